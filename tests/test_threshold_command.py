"""Thresholds from options and job files to predictions, files, the console and the page."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix

from vfsl.cli import main


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    ids = [f"{i:05}" for i in range(300)]
    numbers = rng.normal(size=(300, 4))
    total = numbers.sum(axis=1) + rng.normal(size=300)
    a = pd.DataFrame({"id": ids, "age": numbers[:, 0], "churn": np.where(total > 0, "yes", "no")})
    a["size"], a["group"] = total, pd.cut(total, 3, labels=["low", "mid", "high"]).astype(str)
    b = pd.DataFrame({"id": ids, "visits": numbers[:, 2], "basket": numbers[:, 3]})
    a.to_csv(tmp_path / "a.csv", index=False)
    b.to_csv(tmp_path / "b.csv", index=False)
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["vfsl", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def given(folder, label="churn"):
    files = ["--party", f"A={folder / 'a.csv'}", "--party", f"B={folder / 'b.csv'}"]
    others = {"churn", "size", "group"} - {label}
    drops = [word for name in sorted(others) for word in ("--drop", f"A={name}")]
    return [*files, "--id", "id", "--scheme", "plain", "--protocol", "ecdh", *drops]


def train(folder, monkeypatch, *more, label="churn", model="logistic"):
    named = ["--label", f"A={label}", "--model", model, "--out", folder / "run"]
    return run(monkeypatch, "train", *given(folder, label), *named, "--test", "0.4", *more)


def read_page(folder):
    return json.loads((folder / "run/parties/A/metrics-3.json").read_text())


def test_predictions_files_console_and_page_go_by_the_threshold(folder, monkeypatch, capsys):
    assert train(folder, monkeypatch, "--threshold", "cost=6") == 0
    printed = capsys.readouterr().out
    assert "note: Predicted is churn = yes from probability 0." in printed
    assert "on: cost = 6, chosen on 120 held-out rows." in printed
    found = read_page(folder)["figures"]["logistic"]
    cut = found["threshold"]["value"]
    said = f"logistic: KS {found['KS']:.3f}, Gini {found['Gini']:.3f}; from probability {cut:.3g}"
    assert f"{said} on (cost = 6) it flags" in printed
    place = folder / "run/parties/A"
    written = pd.read_csv(place / "predictions-2.csv")
    assert cut < 0.4
    assert (written["predicted"].eq("yes") == written["probability"].ge(cut)).all()
    truth = pd.read_csv(folder / "a.csv").set_index("id")["churn"]
    held = written[written["rows"] == "held-out"]
    positive = truth.loc[held["id"]].eq("yes").to_numpy()
    lines = pd.read_csv(place / "thresholds-3.csv")
    (line,) = lines[lines["chosen"]].to_dict("records")
    [[left, alarms], [misses, hits]] = confusion_matrix(positive, held["predicted"].eq("yes"))
    names = ("hits", "false alarms", "misses", "rightly left")
    assert [line[name] for name in names] == [hits, alarms, misses, left]
    assert line["cost"] == alarms + 6 * misses == lines["cost"].min()
    bands = pd.read_csv(place / "bands-3.csv")
    assert bands["rows"].sum() == 120
    assert bands["positives"].sum() == positive.sum()
    page = (folder / "run/report.html").read_text()
    for words in ("Lift: positives found", "Calibration: do", "KS 0.", "chosen for cost = 6"):
        assert words in page
    assert page.count("<figcaption>Lift: positives found") <= 1
    # New rows go by it too, and the console says so.
    scored = folder / "scored"
    assert run(monkeypatch, "predict", folder / "run", *given(folder), "--out", scored) == 0
    assert "chosen on 120 held-out rows." in capsys.readouterr().out
    new = pd.read_csv(scored / "parties/A/predictions.csv")
    assert (new["predicted"].eq("yes") == new["probability"].ge(cut)).all()


def test_without_held_out_rows_training_rows_choose_and_it_says_so(folder, monkeypatch, capsys):
    assert train(folder, monkeypatch, "--threshold", "top=30", "--test", "0") == 0
    assert "on: top = 30, chosen on 300 training rows." in capsys.readouterr().out
    written = pd.read_csv(folder / "run/parties/A/predictions-2.csv")
    assert written["predicted"].eq("yes").sum() == 30


def test_numbers_have_residuals_and_several_classes_a_matrix(folder, monkeypatch, capsys):
    assert train(folder, monkeypatch, label="size", model="linear") == 0
    assert "linear: R² 0." in capsys.readouterr().out
    found = read_page(folder)["figures"]["linear"]
    assert sum(band["rows"] for band in found["bands"]) == 120
    assert "Residuals by prediction" in (folder / "run/report.html").read_text()
    (folder / "run").rename(folder / "before")
    assert train(folder, monkeypatch, label="group") == 0
    page = read_page(folder)
    matrix = np.array(page["figures"]["logistic"]["confusion"])
    accuracy = next(one["value"] for one in page["metrics"] if one["measure"] == "accuracy")
    assert matrix.sum() == 120
    assert np.trace(matrix) / 120 == pytest.approx(accuracy)
    assert "predicted high" in (folder / "run/report.html").read_text()
    assert not (folder / "run/parties/A/bands-3.csv").exists()


@pytest.mark.parametrize(
    ("label", "model", "value", "words"),
    [
        ("churn", "logistic", "cost=cheap", "--threshold must be a number, or cost=NUMBER"),
        ("churn", "logistic", "2", "at parameter of the threshold must be a number from 0 to 1"),
        ("size", "linear", "0.4", "threshold is for a label with two classes"),
        ("group", "logistic", "0.4", "label 'group' of A has 3 in the common rows"),
    ],
)
def test_a_threshold_that_cannot_be_is_one_sentence(
    label, model, value, words, folder, monkeypatch, capsys
):
    assert train(folder, monkeypatch, "--threshold", value, label=label, model=model) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert len(printed.strip().splitlines()) == 1
    assert not (folder / "run").exists()


def test_owners_get_files_of_their_columns_and_the_console_says_so(folder, monkeypatch, capsys):
    assert train(folder, monkeypatch, "--weights", "own") == 0
    assert "Coefficients of its own columns are in the folder of A (" in capsys.readouterr().out
    for party, names in (("A", ["age", "intercept"]), ("B", ["visits", "basket"])):
        found = pd.read_csv(folder / f"run/parties/{party}/coefficients-2.csv")
        assert found["column"].tolist() == names
    assert "Coefficients of its own columns" in (folder / "run/report.html").read_text()
    (folder / "run").rename(folder / "own")
    assert train(folder, monkeypatch) == 0
    assert "weights stay shared, so nobody has coefficients" in capsys.readouterr().out
    assert not list((folder / "run").rglob("coefficients*"))
    (folder / "run").rename(folder / "shared")
    assert train(folder, monkeypatch, "--n-estimators", "3", model="gbdt") == 0
    assert "Importance by party: A " in capsys.readouterr().out
    rated = pd.read_csv(folder / "run/parties/A/parties-2.csv")
    assert rated["importance"].sum() == pytest.approx(1)
    found = pd.read_csv(folder / "run/parties/B/importances-2.csv")
    assert set(found["column"]) == {"visits", "basket"}
