"""Drafting a job from files: what is guessed, what is refused, and that the draft runs."""

import numpy as np
import pandas as pd
import pytest

from tests.job_cases import tables, vfsl
from vfsl.job import load_job


@pytest.fixture
def folder(tmp_path):
    for party, table in tables().items():
        table.to_csv(tmp_path / f"{party}.csv", index=False)
    return tmp_path


def draft(monkeypatch, folder, *more, out="job.toml", files=("A.csv", "B.csv", "C.csv")):
    named = [folder / name for name in files]
    return vfsl(monkeypatch, "init", *named, *more, "--out", folder / out)


def test_the_draft_says_what_the_files_show_and_runs(folder, monkeypatch, capsys):
    assert draft(monkeypatch, folder, "--label", "late") == 0
    job = load_job(folder / "job.toml")
    assert {party: section.id for party, section in job.parties.items()} == dict.fromkeys(
        "ABC", "id"
    )
    steps = ["align", "pu", "complete", "train", "train", "evaluate"]
    assert [step.do for step in job.steps] == steps
    assert (job.steps[4].name, job.steps[4].rows) == ("with completed rows", "completed")
    assert job.parties["C"].label == "late"
    assert job.steps[0].parties == ["B", "C"]
    assert (job.steps[1].positives, job.steps[1].label_holder) == ("A", "C")
    text = (folder / "job.toml").read_text()
    assert '# numeric: "age", "income"' in text
    fast = text.replace('"blind-rsa"', '"ecdh"').replace('"auto"', '"plain"')
    fast = fast.replace("rounds = 20", 'rounds = 2\nprotocol = "ecdh"')
    (folder / "job.toml").write_text(fast)
    assert vfsl(monkeypatch, "run", folder / "job.toml", "--out", folder / "out") == 0
    assert (folder / "out/parties/C/metrics-6.json").exists()


def test_without_a_label_nothing_is_trained(folder, monkeypatch):
    assert draft(monkeypatch, folder, files=("B.csv", "C.csv")) == 0
    job = load_job(folder / "job.toml")
    assert [step.do for step in job.steps] == ["align", "complete"]
    assert job.test is None


def test_paths_are_relative_to_the_job(folder, monkeypatch):
    (folder / "jobs").mkdir()
    assert draft(monkeypatch, folder, out="jobs/one.toml", files=("B.csv", "C.csv")) == 0
    assert load_job(folder / "jobs/one.toml").parties["B"].table == "../B.csv"


def test_the_id_is_the_column_that_names_the_same_rows(tmp_path, monkeypatch):
    rows = 80
    a = pd.DataFrame({"when": range(rows), "client": [f"c{i}" for i in range(rows)], "x": 1.5})
    b = pd.DataFrame({"when": range(500, 580), "client": [f"c{i}" for i in range(40, 120)], "y": 2})
    a["x"] = np.arange(rows) / 2
    b["y"] = np.arange(rows) % 7
    a.to_csv(tmp_path / "one.csv", index=False)
    b.to_parquet(tmp_path / "two.parquet")
    assert draft(monkeypatch, tmp_path, files=("one.csv", "two.parquet")) == 0
    job = load_job(tmp_path / "job.toml")
    assert list(job.parties) == ["one", "two"]
    assert {section.id for section in job.parties.values()} == {"client"}


def test_names_that_toml_would_misread_are_quoted(folder, monkeypatch):
    odd = folder / 'a "shop" of 50 %.csv'
    (folder / "C.csv").rename(odd)
    assert draft(monkeypatch, folder, f"shop={odd}", "--label", "late", files=("B.csv",)) == 0
    assert load_job(folder / "job.toml").parties["shop"].table == odd.name


def test_a_party_called_k_does_not_hold_the_keys(folder, monkeypatch):
    (folder / "C.csv").rename(folder / "K.csv")
    assert draft(monkeypatch, folder, files=("B.csv", "K.csv")) == 0
    assert load_job(folder / "job.toml").run.key_holder == "keys"


@pytest.mark.parametrize(
    ("files", "more", "words"),
    [
        (("B.csv",), (), "Two parties are needed; only"),
        (("B.csv", "gone.csv"), (), "does not exist"),
        (("B.csv", "C.csv"), ("--label", "lat"), "did you mean 'late'?"),
        (("B.csv", "C.csv"), ("--label", "id"), "--label must be a column of one file"),
        (("B.csv", "C.csv"), ("--id", "gone"), "Got 'gone' instead"),
        (("B.csv", "B.csv"), (), "Two files are of party 'B'"),
        (("B.csv", "C.csv"), ("../../x=C.csv",), "Got '../../x' instead"),
        (("B.csv", "C.csv"), ("--no-label", "Q"), "--no-label must be a party"),
        (("B.csv", "C.csv"), ("--label", "late", "--no-label", "C"), "without a --label"),
        (("B.csv", "C.csv"), ("--label", "late", "--label", "C=x0"), "--label"),
        (("A.csv", "B.csv"), (), "two files with columns beside the id. Got 1 instead"),
    ],
)
def test_what_cannot_be_drafted_is_one_sentence(files, more, words, folder, monkeypatch, capsys):
    assert draft(monkeypatch, folder, *more, files=files) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1
    assert not (folder / "job.toml").exists()


def test_ids_of_other_names_and_spellings_are_found(folder, monkeypatch, capsys):
    frame = pd.read_csv(folder / "B.csv", dtype={"id": str}).rename(columns={"id": "client"})
    frame["client"] = frame["client"].str.upper()
    frame.to_csv(folder / "B.csv", index=False)
    shop = pd.read_csv(folder / "C.csv", dtype={"id": str})
    shop["id"] = shop["id"].str.lower()
    shop.to_csv(folder / "C.csv", index=False)
    assert draft(monkeypatch, folder, files=("B.csv", "C.csv")) == 0
    job = load_job(folder / "job.toml")
    assert (job.parties["B"].id, job.ids.case) == ("client", "fold")


def test_without_a_column_in_common_the_id_must_be_said(folder, monkeypatch, capsys):
    frame = pd.read_csv(folder / "B.csv", dtype={"id": str})
    frame["id"] = [f"other {place} x" for place in range(len(frame))]
    frame.to_csv(folder / "B.csv", index=False)
    assert draft(monkeypatch, folder, files=("B.csv", "C.csv")) == 2
    assert "say which by --id B=COLUMN" in capsys.readouterr().err


def test_a_job_is_never_overwritten(folder, monkeypatch, capsys):
    (folder / "job.toml").write_text("mine")
    assert draft(monkeypatch, folder) == 2
    assert (folder / "job.toml").read_text() == "mine"
