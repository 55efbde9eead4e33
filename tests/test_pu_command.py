"""Finding reliable positives from files: results by party, consent, resuming, every refusal."""

import numpy as np
import pandas as pd
import pytest

from vfsl.cli import main
from vfsl.data import make_parties
from vfsl.pu import VFPU


@pytest.fixture(scope="module")
def made():
    return make_parties(
        rows=600, parties=3, overlap=0.9, positives=0.4, rng=np.random.default_rng(4)
    )


@pytest.fixture
def folder(made, tmp_path):
    for party, table in made.tables.items():
        table.to_csv(tmp_path / f"{party}.csv", index=False)
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["vfsl", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def pu(folder, monkeypatch, *more, out="run"):
    files = [part for name in "ABC" for part in ("--party", f"{name}={folder / name}.csv")]
    given = ["--id", "id", "--positives", "A", "--label-holder", "C", "--out", folder / out]
    fast = ["--protocol", "ecdh", "--scheme", "plain", "--rounds", "3"]
    return run(monkeypatch, "pu", *files, *given, *fast, *more)


def scores_in(folder, party, name):
    return pd.read_csv(folder / "run/parties" / party / name, dtype={"id": str})


def test_the_label_holder_gets_scores_and_nobody_else(folder, monkeypatch, made):
    assert pu(folder, monkeypatch) == 0
    scores = scores_in(folder, "C", "pu-scores-2.csv")
    known = set(made.tables["A"]["id"])
    assert list(scores) == ["id", "score", "oob_mean"]
    assert scores["oob_mean"].between(0, 1).all()
    assert not set(scores["id"]) & known
    assert scores["score"].between(0, 1).all()
    reliable = scores_in(folder, "C", "reliable-positives-2.csv")
    assert set(reliable["id"]) < set(scores["id"])
    assert reliable["score"].is_monotonic_decreasing
    written = {path.name for path in (folder / "run/parties/B").iterdir()}
    assert written == {"aligned.csv", "vfpu-2-share.json"}
    assert not (folder / "run/parties/A").exists()


def test_with_consent_the_positive_holder_gets_the_reliable_ones(folder, monkeypatch):
    agreed = ("--consent", "B", "--consent", "C", "--base", "xgb")
    assert pu(folder, monkeypatch, *agreed) == 0
    mine = scores_in(folder, "C", "reliable-positives-2.csv")
    delivered = scores_in(folder, "A", "reliable-positives-2.csv")
    pd.testing.assert_frame_equal(mine, delivered)


def test_delivered_ids_are_no_formulas_at_their_receiver(folder, monkeypatch):
    for path in folder.glob("*.csv"):
        table = pd.read_csv(path, dtype={"id": str})
        table.assign(id="=1+" + table["id"]).to_csv(path, index=False)
    assert pu(folder, monkeypatch, "--consent", "B", "--consent", "C") == 0
    mine = scores_in(folder, "C", "reliable-positives-2.csv")["id"]
    assert mine.str.startswith("=1+").all()
    assert len(mine)
    assert list(scores_in(folder, "A", "reliable-positives-2.csv")["id"]) == list("'" + mine)


def test_an_interrupted_run_goes_on_to_the_same_result(folder, monkeypatch):
    assert pu(folder, monkeypatch, out="whole") == 0
    learn, calls = VFPU.learn, []

    def interrupted(self, site, channel, *how):
        if site.me == "C" and not calls:
            calls.append(site.me)
            raise KeyboardInterrupt
        return learn(self, site, channel, *how)

    monkeypatch.setattr(VFPU, "learn", interrupted)
    assert pu(folder, monkeypatch) == 130
    assert (folder / "run.unfinished").is_dir()
    assert not (folder / "run").exists()
    assert pu(folder, monkeypatch) == 0
    assert not (folder / "run.unfinished").exists()
    name = "parties/C/pu-scores-2.csv"
    assert (folder / "run" / name).read_text() == (folder / "whole" / name).read_text()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--consent", "B"), "consent must name all parties that hold columns, B, C"),
        (("--label-holder", "A"), "label_holder must be an aligned party. Got 'A'"),
        (("--label-holder", "Q"), "party 'Q', which has no table"),
        (("--label-holder", "7"), "party '7', which has no table"),  # a name, not a number
        (("--base", "forest"), "There is no base of VFPU 'forest'. Known are lr, rf"),
        (("--promote", "2"), "promote must be a number from 0 to 1. Got 2.0"),
        (("--preset", "papers"), "preset must be one of 'default', 'paper'"),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(more, words, folder, monkeypatch, capsys):
    before = sorted(folder.iterdir())
    assert pu(folder, monkeypatch, *more) == 2
    assert words in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_positives_that_nobody_has_are_one_sentence(folder, monkeypatch, capsys):
    pd.DataFrame({"id": ["nobody-1", "nobody-2"]}).to_csv(folder / "A.csv", index=False)
    assert pu(folder, monkeypatch) == 2
    assert "None of the" in capsys.readouterr().err
    assert not (folder / "run").exists()
