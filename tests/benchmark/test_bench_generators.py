"""The experiment on generators: its errors, its goals, its kept cells, and a tiny run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks import blocks
from benchmarks import generators as bench
from vfsl.data import PartyTable

TINY = bench.Sizes(
    60,
    80,
    (0, 1),
    ("made up",),
    peers=False,
    settings={
        "ctgan": {"epochs": 1, "width": 8},
        "tablegan": {"epochs": 1, "channels": 2},
        "ctabgan": {"epochs": 1, "channels": 2},
        "vae": {"epochs": 2},
        "tvae": {"epochs": 2},
        "tabddpm": {"epochs": 2, "width": 8, "steps": 30},
        "gain": {"epochs": 2},
        "vgain": {"epochs": 2},
        "vfgain": {"epochs": 2},
    },
)


def table():
    frame = pd.DataFrame(
        {"id": range(6), "a": [1.0] * 6, "x": [0.0, 2.0, 0.0, 2.0, 5.0, 1.0], "c": list("ppqqpq")}
    )
    return PartyTable.from_frame(frame, party="P", id="id")


def test_errors_by_hand():
    hidden = np.array([4, 5])
    means = {"x": np.array([1.0, 1.0])}
    values = {"c": np.array(["p", "p"])}
    rmse, accuracy = blocks.errors(table(), ["x", "c"], hidden, means, values)
    # Known cells 0, 2, 0, 2 have deviation 1; gaps are −4 and 0.
    assert rmse == pytest.approx(np.sqrt(8.0))
    assert accuracy == 0.5
    assert blocks.errors(table(), ["c"], hidden, {}, values)[0] is None


def test_holes_are_where_they_should_be():
    made = blocks.with_holes(table(), ["x", "c"], np.array([1, 3]))
    assert made.frame["x"].isna().tolist() == [False, True, False, True, False, False]
    assert made.frame["c"].isna().tolist() == [False, True, False, True, False, False]
    assert made.frame["a"].notna().all()
    whole = table().with_column("n", [1, 2, 3, 4, 5, 6], "categorical")
    cells = blocks.with_holes(whole, ["n"], np.array([0])).frame["n"].dropna()
    assert [str(cell) for cell in cells] == ["2", "3", "4", "5", "6"]


def test_training_and_unseen_rows_are_apart():
    train, test, label = blocks.whole_table("made up", 100)
    assert len(train) == len(test) == 50
    assert label in train.features
    assert set(train.ids).isdisjoint(test.ids)
    whole, _, _ = blocks.whole_table("made up", 100, whole=True)
    assert len(whole) == 100
    assert label not in whole.columns


def _rows(**changes):
    fidelity = {"what": "fidelity", "shape + pair": 0.8}
    speed = {"what": "speed", "s per epoch": 1.0, "the package's": 1.0, "ratio": 1.0}
    gaps = {"sdmetrics: shape gap": 0.0, "sdmetrics: strong pair gap": 1e-9}
    rows = [{**fidelity, "method": name} for name in ("ctgan", "tvae", "tabddpm in ctgan's time")]
    rows += [
        {**fidelity, **gaps, "method": f"{name} of the ctgan package"} for name in ("ctgan", "tvae")
    ]
    rows += [{**speed, "method": name} for name in ("ctgan", "tvae")]
    for data in ("census", "credit"):
        for title, *_ in bench.COMPLETION:
            rows.append({"what": "completion", "data": data, "method": title})
            rows[-1] |= {"RMSE": 0.5, "accuracy": 0.9}
    for row in rows:
        row |= changes.get(row["method"], {})
    return rows


def test_goals_reached():
    lines = bench.goals(_rows())
    assert len(lines) == 6 + 1 + 6 + 4
    assert all(line.endswith(": reached.") for line in lines), lines


@pytest.mark.parametrize(
    ("method", "change", "count"),
    [
        ("ctgan", {"ratio": 1.1}, 1),
        ("tvae", {"shape + pair": 0.77}, 1),
        ("tvae of the ctgan package", {"sdmetrics: strong pair gap": 1e-3}, 1),
        ("tabddpm in ctgan's time", {"shape + pair": 0.79}, 1),
        ("VF-GAIN", {"RMSE": 0.7}, 1),
        ("GAIN", {"accuracy": 0.7}, 1),
        ("TVAE, mean of draws", {"RMSE": 0.6}, 2),
    ],
)
def test_goals_missed(method, change, count):
    lines = bench.goals(_rows(**{method: change}))
    assert sum("NOT reached" in line for line in lines) == count


def test_a_missing_peer_is_said():
    rows = [row for row in _rows() if "package" not in row["method"]]
    assert sum("did not run" in line for line in bench.goals(rows)) == 2


@pytest.mark.slow
def test_a_tiny_run(monkeypatch):
    monkeypatch.setattr(bench, "QUICK", TINY)
    said = []
    outcome = bench.run(True, said.append)
    fidelity = [row for row in outcome.rows if row["what"] == "fidelity"]
    completion = [row for row in outcome.rows if row["what"] == "completion"]
    assert [row["method"] for row in fidelity] == [*bench.GENERATORS]
    assert all(0 < row["shape + pair"] <= 1 for row in fidelity)
    assert len(completion) == len(bench.COMPLETION)
    assert all(row["RMSE"] > 0.1 and 0 <= row["accuracy"] <= 1 for row in completion)
    sees = {row["method"]: row["sees"] for row in completion}
    assert "federated" in sees["VF-GAIN"]
    assert "not federated" in sees["GAIN"]
    done = [line for line in said if ": done" in line]
    assert len(done) == len(fidelity) + 2 * len(completion)
    assert "full form only" in outcome.notes[-1]


def test_the_fastest_epoch_of_each_counts(monkeypatch):
    asked = []

    def answer(code, train, method, epochs):
        asked.append(epochs)
        return {"epochs": [0.5, 0.25]}

    monkeypatch.setattr(bench, "_ask_peer", answer)
    spent = iter([[3.0, 1.0], [0.125, 2.0]])
    monkeypatch.setattr(bench, "_epoch_seconds", lambda *_: next(spent))
    found = bench.speed_cell(("made up", 50, "tvae", 2, 2))
    assert asked == [2, 2]
    assert (found["s per epoch"], found["the package's"], found["ratio"]) == (0.125, 0.25, 0.5)


def test_every_epoch_but_the_first_is_timed():
    table, _, _ = blocks.whole_table("made up", 120)
    spent = bench._epoch_seconds(table, "vae", 3)
    assert len(spent) == 3
    assert min(spent) > 0
