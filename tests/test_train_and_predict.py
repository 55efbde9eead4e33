"""Training and predicting from files: saved shares, new rows, and every refusal."""

import json

import numpy as np
import pandas as pd
import pytest

import vfsl
from vfsl.cli import main
from vfsl.errors import ConfigError, StoreError
from vfsl.estimators import LinearRegression, load_model, save_model


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    ids = [f"{i:05}" for i in range(300)]
    numbers = rng.normal(size=(300, 4))
    label = np.where(numbers.sum(axis=1) + rng.normal(size=300) > 0, "yes", "no")
    a = pd.DataFrame({"id": ids, "age": numbers[:, 0], "debt": numbers[:, 1], "churn": label})
    b = pd.DataFrame({"id": ids, "visits": numbers[:, 2], "basket": numbers[:, 3]})
    a.iloc[:200].to_csv(tmp_path / "a.csv", index=False)
    b.iloc[20:220].to_csv(tmp_path / "b.csv", index=False)
    a.iloc[200:].drop(columns="churn").to_csv(tmp_path / "new_a.csv", index=False)
    b.iloc[210:].to_csv(tmp_path / "new_b.csv", index=False)
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["vfsl", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def parties(folder, a="a.csv", b="b.csv"):
    files = ["--party", f"A={folder / a}", "--party", f"B={folder / b}"]
    return [*files, "--id", "id", "--protocol", "ecdh", "--scheme", "plain"]


def train(folder, monkeypatch, *more, label="A=churn", model="logistic"):
    given = [*parties(folder), "--label", label, "--model", model, "--out", folder / "run"]
    return run(monkeypatch, "train", *given, *more)


@pytest.mark.parametrize("model", ["logistic", "rf", "gbdt", "xgb", "lgb"])
def test_train_then_predict_new_rows(model, folder, monkeypatch, capsys):
    assert train(folder, monkeypatch, model=model) == 0
    printed = capsys.readouterr().out
    assert "held-out AUC" in printed
    assert printed.index("held-out rows, with 95% intervals") < printed.index("Trained")
    new = parties(folder, "new_a.csv", "new_b.csv")
    assert run(monkeypatch, "predict", folder / "run", *new, "--out", folder / "scored") == 0
    scored = pd.read_csv(folder / "scored/parties/A/predictions.csv", dtype={"id": str})
    assert list(scored) == ["id", "probability", "predicted", "rows"]
    assert set(scored["rows"]) == {"new"}
    assert sorted(scored["id"]) == [f"{i:05}" for i in range(210, 300)]
    assert (scored["predicted"].eq("yes") == scored["probability"].gt(0.5)).all()
    assert not (folder / "scored/parties/B").exists()


def test_predict_without_a_party_and_rows_that_it_lacks(folder, monkeypatch, capsys):
    assert train(folder, monkeypatch, "--block-dropout", "0.3", model="xgb") == 0
    new = parties(folder, "new_a.csv", "new_b.csv")
    every, alone = folder / "every", folder / "alone"
    assert run(monkeypatch, "predict", folder / "run", *new, "--all-rows", "--out", every) == 0
    only_a = ["--party", f"A={folder / 'new_a.csv'}", "--id", "id", "--scheme", "plain"]
    given = [*only_a, "--offline", "B", "--out", alone]
    assert run(monkeypatch, "predict", folder / "run", *given) == 0
    read = [pd.read_csv(f / "parties/A/predictions.csv", dtype={"id": str}) for f in (every, alone)]
    first, second = (one.set_index("id") for one in read)
    assert list(first.index) == list(second.index) == [f"{i:05}" for i in range(200, 300)]
    lacking = first["scored_by"].eq("own columns").to_numpy()
    assert lacking.tolist() == [True] * 10 + [False] * 90
    chances = [one["probability"].to_numpy() for one in (first, second)]
    np.testing.assert_allclose(chances[0][lacking], chances[1][lacking])
    assert (chances[0][~lacking] != chances[1][~lacking]).any()


@pytest.mark.parametrize("model", ["logistic", "linear"])
def test_every_model_scores_everybody(model, folder, monkeypatch, capsys):
    label, more = ("A=churn", ()) if model == "logistic" else ("A=debt", ("--drop", "A=churn"))
    assert train(folder, monkeypatch, "--all-rows", *more, model=model, label=label) == 0
    own = pd.read_csv(folder / "run/parties/A/predictions-2.csv", dtype={"id": str})
    table = pd.read_csv(folder / "a.csv", dtype={"id": str})
    assert sorted(own["id"]) == sorted(table["id"])
    assert set(own["scored_by"]) == {"joint", "own columns"}
    assert set(own.loc[own["scored_by"] == "own columns", "rows"]) == {"training"}
    new = parties(folder, "new_a.csv", "new_b.csv")
    every, alone = folder / "every", folder / "alone"
    assert run(monkeypatch, "predict", folder / "run", *new, "--all-rows", "--out", every) == 0
    only_a = ["--party", f"A={folder / 'new_a.csv'}", "--id", "id"]
    capsys.readouterr()
    assert run(monkeypatch, "predict", folder / "run", *only_a, "--out", alone) == 0
    told = capsys.readouterr().out
    assert "100 rows scored by the columns of A alone, by a model with" in told
    assert "in cross-validation when it was trained." in told
    first, second = (
        pd.read_csv(place / "parties/A/predictions.csv", dtype={"id": str})
        for place in (every, alone)
    )
    assert first["scored_by"].tolist() == ["own columns"] * 10 + ["joint"] * 90
    assert set(second["scored_by"]) == {"own columns"}
    value = "probability" if model == "logistic" else "predicted"
    np.testing.assert_allclose(first[value][:10], second[value][:10])


def test_predictions_are_explained_to_those_who_may_know(folder, monkeypatch, capsys):
    given = ("--n-estimators", "4", "--max-depth", "3")
    assert train(folder, monkeypatch, *given, model="xgb") == 0
    new = [*parties(folder, "new_a.csv", "new_b.csv"), "--explain", "--explain-columns", "B"]
    assert run(monkeypatch, "predict", folder / "run", *new, "--out", folder / "scored") == 0
    place = folder / "scored/parties"
    scored = pd.read_csv(place / "A/predictions.csv", dtype={"id": str}).set_index("id")
    adds = pd.read_csv(place / "A/contributions.csv", dtype={"id": str}).set_index("id")
    assert list(adds) == ["adds base", "adds A", "adds B"]
    chance = 1 / (1 + np.exp(-adds.sum(axis=1)))
    np.testing.assert_allclose(chance, scored["probability"][adds.index], atol=1e-5)
    columns = pd.read_csv(place / "B/column-contributions.csv", dtype={"id": str})
    assert list(columns) == ["id", "adds visits", "adds basket"]
    assert sorted(columns["id"]) == sorted(adds.index)
    assert not (place / "A/column-contributions.csv").exists()
    capsys.readouterr()
    wrong = [*parties(folder), "--explain-columns", "Q", "--out", folder / "no"]
    assert run(monkeypatch, "predict", folder / "run", *wrong) == 2
    assert "--explain-columns must name one of A, B. Got 'Q'" in capsys.readouterr().err


def test_trees_for_numbers_from_options(folder, monkeypatch):
    given = ("--task", "regression", "--n-estimators", "3", "--max-depth", "2")
    assert train(folder, monkeypatch, *given, model="xgb", label="A=debt") == 0
    written = pd.read_csv(folder / "run/parties/A/predictions-2.csv", dtype={"id": str})
    assert list(written) == ["id", "predicted", "rows"]
    assert written["predicted"].nunique() > 2


def test_predicting_the_training_rows_repeats_the_run(folder, monkeypatch):
    assert train(folder, monkeypatch, "--refine", "0") == 0
    out = folder / "again"
    assert run(monkeypatch, "predict", folder / "run", *parties(folder), "--out", out) == 0
    first = pd.read_csv(folder / "run/parties/A/predictions-2.csv").set_index("id")
    second = pd.read_csv(out / "parties/A/predictions.csv").set_index("id")
    assert set(first.pop("rows")) == {"training", "held-out"}
    assert set(second.pop("rows")) == {"new"}
    pd.testing.assert_frame_equal(first.sort_index(), second.sort_index())


def test_each_share_holds_only_its_own_columns(folder, monkeypatch):
    assert train(folder, monkeypatch, "--solver", "one-shot", "--refine", "0") == 0
    shares = {p: (folder / f"run/parties/{p}/model-2-share.json").read_text() for p in "AB"}
    assert "age" in shares["A"]
    assert "visits" in shares["B"]
    assert not {"visits", "basket"} & set(json.dumps(shares["A"]).split('\\"'))
    assert not {"age", "debt"} & set(json.dumps(shares["B"]).split('\\"'))
    public = (folder / "run/model-2.json").read_text()
    assert "visits" not in public


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "cubic"}, "model must be one of 'linear', 'logistic', 'rf'"),
        ({"label": "Q=churn"}, "names party 'Q', which has no --party"),
        ({"label": "A=gone"}, "'gone'"),
        ({"label": "churn"}, "--label must be PARTY=COLUMN"),
        ({"model": "linear"}, "expected numbers"),
    ],
)
def test_wrong_training_is_one_sentence(change, words, folder, monkeypatch, capsys):
    assert train(folder, monkeypatch, **change) == 2
    assert words in capsys.readouterr().err
    assert not (folder / "run").exists()


def test_wrong_prediction_is_one_sentence(folder, monkeypatch, capsys):
    given = [*parties(folder), "--out", folder / "scored"]
    assert run(monkeypatch, "predict", folder, *given) == 2
    assert "There is no run in" in capsys.readouterr().err
    assert train(folder, monkeypatch) == 0
    capsys.readouterr()
    only_b = ["--party", f"B={folder / 'b.csv'}", "--id", "id", "--out", folder / "scored"]
    assert run(monkeypatch, "predict", folder / "run", *only_b) == 2
    assert "needs a table of party 'A'" in capsys.readouterr().err
    short = folder / "short.csv"
    pd.read_csv(folder / "b.csv", dtype=str).drop(columns="visits").to_csv(short, index=False)
    assert (
        run(
            monkeypatch,
            "predict",
            folder / "run",
            *parties(folder, b="short.csv"),
            "--out",
            folder / "scored",
        )
        == 2
    )
    assert "visits" in capsys.readouterr().err
    assert not (folder / "scored").exists()


def test_damaged_models_are_refused(folder, monkeypatch):
    assert train(folder, monkeypatch) == 0
    model = load_model(folder / "run", "model-2")
    assert model.label_ == ("A", "churn")
    path = folder / "run/parties/B/model-2-share.json"
    path.write_text(path.read_text().replace('"party": "B"', '"party": "A"'))
    with pytest.raises(StoreError, match="share of 'A', not of 'B'"):
        load_model(folder / "run", "model-2")
    path.write_text("{}")
    with pytest.raises(StoreError, match="damaged"):
        load_model(folder / "run", "model-2")
    (folder / "run/model-2.json").write_text("{}")
    with pytest.raises(StoreError, match="not a saved model"):
        load_model(folder / "run", "model-2")
    with pytest.raises(ConfigError, match="not fitted"):
        save_model(LinearRegression(), folder)
    assert vfsl.estimators.LinearRegression is LinearRegression
