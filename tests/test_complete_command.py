"""Completing from files: ``vfsl complete`` writes what the API gives, or one sentence."""

import pandas as pd
import pytest

import vfsl as package
from tests.job_cases import tables, vfsl


@pytest.fixture
def folder(tmp_path):
    found = tables()
    found["B"].to_csv(tmp_path / "b.csv", index=False)
    found["C"].to_csv(tmp_path / "c.csv", index=False)
    return tmp_path


def complete(folder, monkeypatch, *more, out="done"):
    files = ["--party", f"A={folder / 'c.csv'}", "--party", f"B={folder / 'b.csv'}"]
    given = ["--id", "id", "--given", "A", "--missing", "B", "--out", folder / out]
    fast = ["--protocol", "ecdh", "--scheme", "plain", "--rounds", "2"]
    return vfsl(monkeypatch, "complete", *files, *given, *fast, *more)


def test_the_files_are_what_the_api_gives(folder, monkeypatch):
    assert complete(folder, monkeypatch, "--tau", "0.2", "--aggregate", "max") == 0
    written = pd.read_csv(folder / "done/parties/B/completed-2.csv", dtype={"id": str})
    found = tables()
    fed = package.simulate({"A": found["C"], "B": found["B"]}, id="id", scheme="plain", seed=0)
    fed.align("A", "B", protocol="ecdh")
    done = package.FedPSG(tau=0.2, aggregate="max", rounds=2).fit_complete(fed, "A", "B")
    expected = done.table.reset_index()
    assert list(written) == list(expected)
    assert written["id"].tolist() == expected["id"].tolist()
    for name in expected.columns.drop("id"):
        if pd.api.types.is_numeric_dtype(expected[name].dtype):
            pd.testing.assert_series_equal(
                written[name].astype(float), expected[name].astype(float), check_names=False
            )
        else:
            assert written[name].astype(str).tolist() == expected[name].astype(str).tolist()
    routes = pd.read_csv(folder / "done/parties/B/quality-2.csv").set_index("column")
    assert routes["route"].to_dict() == {route.column: route.route for route in done.routes}
    assert (routes["threshold"] == 0.2).all()


def test_settings_of_low_methods(folder, monkeypatch):
    few = ("--tau", "1", "--shift", "none", "--folds", "2")
    one = (*few, "--low", "hot-deck", "--low-settings", "neighbours = 5")
    assert complete(folder, monkeypatch, *one) == 0
    two = (*few, "--low-settings", 'ensemble = ["mean", "hot-deck"], how = "weighted"')
    assert complete(folder, monkeypatch, *two, "--low-fill", "draw", out="two") == 0
    models = {}
    for out in ("done", "two"):
        quality = pd.read_csv(folder / out / "parties/B/quality-2.csv")
        models[out] = set(quality["model"])
    assert models == {"done": {"hot-deck"}, "two": {"mean + hot-deck by weighted"}}


def test_ids_of_the_given_party_are_no_formulas_at_the_missing_one(folder, monkeypatch):
    for path in folder.glob("*.csv"):
        table = pd.read_csv(path, dtype={"id": str})
        table.assign(id="=1+" + table["id"]).to_csv(path, index=False)
    assert complete(folder, monkeypatch, "--base", "linear") == 0
    own = set(pd.read_csv(folder / "c.csv", dtype={"id": str})["id"])
    for name in ("completed-2.csv", "provenance-2.csv"):
        written = pd.read_csv(folder / "done/parties/B" / name, dtype={"id": str})["id"]
        assert len(written)
        assert written.str.startswith("'=1+").all()
        assert set(written.str[1:]) <= own


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--missing", "Q"), "names party 'Q', which has no table"),
        (("--missing", "A"), "missing must be another party than given"),
        (
            ("--tau", "half"),
            "tau must be a number from 0 to 1 or one of 'auto', 'significance'. Got 'half'",
        ),
        (
            ("--tau", "2"),
            "tau must be a number from 0 to 1 or one of 'auto', 'significance'. Got 2.0",
        ),
        (("--low", "hotdeck"), "did you mean 'hot-deck'?"),
        (("--low", "hot-deck", "--low-settings", "neighbours = "), "settings as in TOML"),
        (("--low-settings", "neighbours = 3"), "with a method, one of"),
        (
            ("--low", "mean", "--low-settings", 'ensemble = ["mean"]'),
            "Got --low mean and an ensemble",
        ),
        (("--base", "xgbb"), "did you mean 'xgb'?"),
        (("--k", "0"), "k must be a number above 0 and at most 1. Got 0.0"),
        (("--label", "A=gone"), "Party A has no label 'gone'"),
        (("--label", "late"), "--label must be PARTY=COLUMN"),
        (("--label", "Q=late"), "names party 'Q', which has no --party"),
        (("--no-label", "A", "--label", "A=late"), "both name party 'A'"),
        (("--advise",), "--advise needs the label of the given party"),
        (("--party", "../../x=c.csv"), "Got '../../x' instead"),
        (("--party", "C=c.csv"), "between the given and the missing party alone"),
        (("--method", "gian"), "did you mean 'gain'?"),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(more, words, folder, monkeypatch, capsys):
    before = sorted(folder.iterdir())
    assert complete(folder, monkeypatch, *more) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_too_few_common_rows_are_one_sentence(folder, monkeypatch, capsys):
    pd.read_csv(folder / "b.csv", dtype={"id": str}).head(20).to_csv(folder / "b.csv", index=False)
    assert complete(folder, monkeypatch) == 2
    assert "completion needs at least 30" in capsys.readouterr().err
    assert not (folder / "done").exists()
    assert not (folder / "done.unfinished").exists()
