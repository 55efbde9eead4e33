"""Nothing is written over, nothing private is printed, and RISA asks before it tells labels."""

import numpy as np
import pandas as pd
import pytest

import vfsl
from tests.job_cases import vfsl as command
from vfsl.errors import ConfigError
from vfsl.estimators import LinearRegression, load_model, save_model
from vfsl.job.run import check_free
from vfsl.record import RunRecord, StepRecord
from vfsl.report import write_page

SECRET = "PRIVATE-VALUE"


@pytest.fixture(scope="module")
def fed():
    rng = np.random.default_rng(0)
    ids = [f"{SECRET}-{row}" for row in range(160)]
    a = pd.DataFrame({"id": ids, "a0": rng.normal(size=160), "y": rng.normal(size=160)})
    b = pd.DataFrame({"id": ids[:100], "b0": a["a0"][:100] + rng.normal(size=100)})
    made = vfsl.simulate({"A": a, "B": b}, labels={"A": "y"}, scheme="plain")
    made.align("A", "B", protocol="ecdh")
    return made


def test_reprs_are_short_and_show_nothing_private(fed):
    done = vfsl.FedPSG().fit_complete(fed, given="A", missing="B")
    for one in (fed, fed.plan, fed.plan["A"], done):
        said = repr(one)
        assert len(said) < 200
        assert SECRET not in said
    assert repr(fed.plan) == "<RowPlan: 100 common rows; other rows: A 60, B 0>"
    assert repr(fed).startswith("<Federation of A 160 rows, B 100 rows; 100 common rows;")
    assert repr(done).startswith("<Completion of 1 columns for 60 rows;")


def test_a_saved_model_is_not_replaced_unless_one_says_so(fed, tmp_path):
    model = LinearRegression(l2=0.1).fit(fed, ("A", "y"))
    save_model(model, tmp_path)
    before = (tmp_path / "parties/A/model-share.json").read_bytes()
    other = LinearRegression(l2=10.0).fit(fed, ("A", "y"))
    with pytest.raises(ConfigError, match=r"model\.json exists; give another name, or force=True"):
        save_model(other, tmp_path)
    assert (tmp_path / "parties/A/model-share.json").read_bytes() == before
    save_model(other, tmp_path, "other")
    save_model(other, tmp_path, force=True)
    assert load_model(tmp_path).l2 == 10.0


def test_a_page_is_not_replaced_unless_one_says_so(fed, tmp_path, monkeypatch, capsys):
    fed.record.save(tmp_path / "run")
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert command(monkeypatch, "report", tmp_path / "run", "--out", page) == 2
    assert "say --force" in capsys.readouterr().err
    assert page.read_text() == "mine"
    assert command(monkeypatch, "report", tmp_path / "run", "--out", page, "--force") == 0
    assert "<html" in page.read_text()


@pytest.mark.parametrize("place", ["a.csv/out", "a.csv/deeper/out", "/proc/x/out"])
def test_an_output_folder_that_cannot_be_made_is_one_sentence(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("id\n")
    with pytest.raises(ConfigError, match="cannot be made") as caught:
        check_free(tmp_path / place)  # an absolute place stays one
    assert str(caught.value).count(". ") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_risa_asks_before_it_tells_labels(tmp_path, monkeypatch, capsys):
    for party in "AB":
        frame = pd.DataFrame({"id": ["1", "2"], f"{party}-x": [0.1, 0.2], "late": ["n", "y"]})
        frame.drop(columns=[] if party == "A" else "late").to_csv(
            tmp_path / f"{party}.csv", index=False
        )
    files = [part for party in "AB" for part in ("--party", f"{party}={tmp_path / f'{party}.csv'}")]
    options = [*files, "--id", "id", "--label", "A=late", "--model", "risa"]
    options += ["--protect", "none"]
    assert command(monkeypatch, "train", *options, "--out", tmp_path / "out") == 2
    assert "accept must be ['label-disclosure']" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_first_screen_says_that_labels_were_told(tmp_path):
    steps = (StepRecord("train risa", {"scheme": "none"}, 1.0),)
    record = RunRecord("r", "2026-11-17T00:00:00+00:00", 0, "auto", {}, steps, {})
    write_page(record, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "tell the other parties the labels" in text
    assert text.index("tell the other parties the labels") < text.index('id="ledger"')
