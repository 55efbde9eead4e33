"""Completion among three parties: only rows that the missing party really lacks are completed."""

import json

import numpy as np
import pandas as pd
import pytest

import vfsl as package
from tests.job_cases import vfsl
from vfsl.completion.imputers.vfgain import VFGAIN
from vfsl.deploy.job import load_shared_job
from vfsl.errors import ConfigError
from vfsl.job import load_job

ALONE = "Completion needs an alignment of A and B alone"


@pytest.fixture
def frames():
    """A has everybody, B and C overlap in a part of them, so B has people that C lacks."""
    rng = np.random.default_rng(3)
    rows = 400
    ids = np.array([f"p{i}" for i in range(rows)])
    shared = rng.normal(size=rows)

    def frame(first, last, **columns):
        return pd.DataFrame(
            {"id": ids[first:last], **{n: c[first:last] for n, c in columns.items()}}
        )

    def follows():
        return shared + 0.6 * rng.normal(size=rows)

    late = np.where(follows() > 0, "yes", "no")
    return {
        "A": frame(0, rows, a0=follows(), a1=follows(), late=late),
        "B": frame(0, 280, b0=follows(), b1=rng.normal(size=rows)),
        "C": frame(120, 330, c0=follows()),
    }


@pytest.fixture
def folder(tmp_path, frames):
    for party, frame in frames.items():
        frame.to_csv(tmp_path / f"{party}.csv", index=False)
    return tmp_path


def test_an_alignment_with_a_third_party_is_refused(frames):
    fed = package.simulate(frames, labels={"A": "late"}, scheme="plain")
    fed.align("B", "C", "A", protocol="ecdh")
    # What would be completed: rows of A that C lacks, most of which B has.
    lacked = set(fed.tables["A"].ids[fed.share("A").rest])
    assert lacked & set(frames["B"]["id"])
    with pytest.raises(ConfigError, match=ALONE):
        package.FedPSG().fit_complete(fed, "A", "B")
    assert [step.name for step in fed.steps] == ["align"]


def test_an_alignment_of_the_pair_completes_what_b_lacks(frames):
    fed = package.simulate(frames, labels={"A": "late"}, scheme="plain")
    fed.align("B", "A", protocol="ecdh")
    done = package.FedPSG(rounds=2, folds=2).fit_complete(fed, "A", "B")
    assert set(done.table.index) == set(frames["A"]["id"]) - set(frames["B"]["id"])


def test_without_an_alignment_the_pair_is_aligned(frames):
    fed = package.simulate(frames, labels={"A": "late"}, scheme="plain")
    done = package.FedPSG(rounds=2, folds=2).fit_complete(fed, "A", "B")
    assert fed.plan.parties == ("A", "B")
    assert not set(done.table.index) & set(frames["B"]["id"])


def test_vf_gain_is_refused_as_well(frames):
    pytest.importorskip("torch")
    fed = package.simulate(frames, labels={"A": "late"}, scheme="plain")
    fed.align("B", "C", "A", protocol="ecdh")
    model = VFGAIN(epochs=1).fit(fed, "A", "B")
    with pytest.raises(ConfigError, match=ALONE):
        model.complete(fed)


def drafted(folder, monkeypatch):
    files = [folder / f"{party}.csv" for party in "ABC"]
    out = folder / "job.toml"
    assert vfsl(monkeypatch, "init", *files, "--label", "late", "--out", out) == 0
    return out


def test_a_draft_of_three_files_runs_and_completes_what_b_lacks(folder, frames, monkeypatch):
    path = drafted(folder, monkeypatch)
    job = load_job(path)
    done = [(step.do, getattr(step, "parties", None)) for step in job.steps]
    assert done == [
        ("align", ["B", "A"]),
        ("complete", None),
        ("align", ["B", "C", "A"]),
        ("train", None),
        ("evaluate", None),
    ]
    fast = path.read_text().replace('"blind-rsa"', '"ecdh"').replace('"auto"', '"plain"')
    path.write_text(fast)
    assert vfsl(monkeypatch, "run", path, "--out", folder / "out") == 0
    completed = set(pd.read_csv(folder / "out/parties/B/completed-2.csv")["id"])
    assert completed == set(frames["A"]["id"]) - set(frames["B"]["id"])
    metrics = json.loads((folder / "out/parties/A/metrics-5.json").read_text())
    # A fifth of the rows that all three have.
    assert metrics["test rows"] == round(0.2 * 160)


MODEL = '[[steps]]\ndo = "train"\nmodel = "xgb"\nlabel = ["A", "late"]\nn_estimators = 2\n{}\n'


def test_completed_rows_train_before_the_next_alignment(folder, monkeypatch):
    """Test rows are drawn anew by each alignment, so only later models are evaluated."""
    text = drafted(folder, monkeypatch).read_text()
    text = text.replace('"blind-rsa"', '"ecdh"').replace('"auto"', '"plain"')
    everybody = text.index('[[steps]]\ndo = "align"\nparties = ["B", "C", "A"]')
    more = MODEL.format('rows = "completed"')
    path = folder / "more.toml"
    path.write_text(text[:everybody] + more + text[everybody:])
    job = load_job(path)
    assert job.completed_before(3) == 2
    assert job.trained_before(6) == [5]
    assert vfsl(monkeypatch, "run", path, "--out", folder / "out") == 0
    metrics = json.loads((folder / "out/parties/A/metrics-6.json").read_text())
    judged = {line["model"] for line in metrics["metrics"]}
    assert {name for name in judged if "," not in name} == {"logistic"}
    assert (folder / "out/parties/A/predictions-3.csv").exists()
    named = (
        text[:everybody]
        + more
        + text[everybody:].replace('do = "evaluate"', 'do = "evaluate"\nmodels = [3]')
    )
    path.write_text(named)
    with pytest.raises(ConfigError, match="train steps since the last alignment: 5"):
        load_job(path)


def test_a_job_with_one_alignment_of_three_is_refused(folder, monkeypatch):
    text = drafted(folder, monkeypatch).read_text()
    path = folder / "wrong.toml"
    path.write_text(text.replace('parties = ["B", "A"]', 'parties = ["B", "C", "A"]'))
    words = f"step 2: {ALONE}.*align A and B in a step of their own before completing"
    with pytest.raises(ConfigError, match=words):
        load_job(path)
    deployed = path.read_text().split("[test]")
    path.write_text(deployed[0] + "[[steps]]" + deployed[1].split("[[steps]]", 1)[1])
    path.write_text(path.read_text().replace('[[steps]]\ndo = "evaluate"', ""))
    with pytest.raises(ConfigError, match=words):
        load_shared_job(path)
