"""The linear experiment: its split, its counts, its goals, and a tiny run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

from benchmarks import linear
from benchmarks.linear import Sizes, bootstrap_counts, flows_of, goals, of_ids, split, timed
from vfsl.channel.transcript import Entry
from vfsl.data import PartyTable
from vfsl.datasets import available
from vfsl.errors import DataError

TINY = Sizes(rows=300, refine=(0,), bags=2, large=2_000)


@pytest.fixture
def no_data(monkeypatch):
    def absent(name):
        raise DataError("the data folder is not there.")

    monkeypatch.setattr(linear, "load", absent)


def _table(ids: list[str], party: str = "B") -> PartyTable:
    frame = pd.DataFrame({"id": ids, "x": np.arange(float(len(ids)))})
    return PartyTable.from_frame(frame, party=party, id="id")


def test_rows_follow_ids_and_strangers_are_left_out():
    table = of_ids(_table(["a", "b", "c"]), np.array(["c", "z", "a"], dtype=object))
    assert table.ids.tolist() == ["c", "a"]
    assert table.frame["x"].tolist() == [2.0, 0.0]


def test_the_split_is_scikit_learns():
    ids = [f"p{number}" for number in range(101)]
    parts = split({"A": _table(ids, "A"), "B": _table(ids[::-1])}, "A")
    train, test = train_test_split(ids, test_size=0.2, random_state=42)
    assert parts["train"]["A"].ids.tolist() == train
    assert parts["test"]["A"].ids.tolist() == test
    assert parts["test"]["B"].ids.tolist() == test


def test_a_bag_has_as_many_draws_as_rows():
    counts = bootstrap_counts(500, 3, np.random.default_rng(0))
    assert counts.shape == (500, 3)
    assert (counts.sum(axis=0) == 500).all()
    assert not np.array_equal(counts[:, 0], counts[:, 1])


def test_flows_are_counted_by_round():
    sent = [
        ("logistic/fit/public key", 1_000_000),
        ("logistic/fit/stage 0/row weights", 500_000),
        ("logistic/fit/stage 0/round 0/scores", 2_000_000),
        ("logistic/fit/stage 0/round 0/gradient", 1_000_000),
        ("logistic/fit/stage 0/round 1/scores", 2_000_000),
        ("logistic/fit/stage 1/round 0/scores", 2_500_000),
    ]
    entries = [Entry(i, "A", "B", name, "", size, 0.0, "") for i, (name, size) in enumerate(sent)]
    flows = flows_of(entries)
    assert flows.messages == 6
    assert flows.megabytes == pytest.approx(9.0)
    assert flows.megabytes_per_round == pytest.approx(3.0)
    assert flows.gradients == 3


def test_time_is_wall_and_processor_time():
    result, cost = timed(lambda: sum(range(2_000_000)))
    assert result == sum(range(2_000_000))
    assert 0 < cost.core <= cost.wall + 1


def _rows(**changes: dict[str, float]) -> list[dict[str, object]]:
    fit = {"core-s": 5.0, "MB per round": 9.0, "MB": 50.0, "rounds": 20, "test AUC": 0.707}
    rows: dict[str, dict[str, object]] = {
        "scikit-learn, pooled": {"test AUC": 0.708},
        "vfsl bfv, refine=0": dict(fit),
        "vfsl plain, refine=0": dict(fit),
        "vfsl bfv, one-shot": fit | {"core-s": 3.0},
        "vfsl bfv, 1 bag": dict(fit),
        "vfsl bfv, 2 bags": fit | {"× compute of 1": 24.0},
        "large": {"rows": 2_000, "wall s": 3.0, "peak MB": 1500.0},
    }
    for name, change in changes.items():
        rows[name.replace("_", " ")] |= change
    return [{"fit": name, **row} for name, row in rows.items()]


def test_goals_reached():
    lines = goals(_rows(), TINY)
    assert len(lines) == 5
    assert all(line.endswith(": reached.") for line in lines), lines


@pytest.mark.parametrize(
    ("name", "change", "missed"),
    [
        ("vfsl bfv, refine=0", {"core-s": 11.0}, 0),
        ("vfsl bfv, refine=0", {"MB per round": 16.0}, 0),
        ("vfsl plain, refine=0", {"test AUC": 0.7071}, 1),
        ("vfsl bfv, one-shot", {"MB": 61.0}, 2),
        ("vfsl bfv, 2 bags", {"rounds": 21}, 3),
        ("vfsl bfv, 2 bags", {"× compute of 1": 26.0}, 3),
        ("large", {"peak MB": 4100.0}, 4),
    ],
)
def test_goals_missed(name, change, missed):
    lines = goals(_rows(**{name: change}), TINY)
    assert [place for place, line in enumerate(lines) if "NOT reached" in line] == [missed]


def test_many_rows_measures_memory():
    row = linear.many_rows(2_000)
    assert row["rows"] == 2_000
    assert row["rounds"] >= 1
    assert row["MB"] > 0
    assert row["peak MB"] is None or row["peak MB"] > 20


def test_a_tiny_run_on_made_up_parties(monkeypatch, no_data):
    monkeypatch.setattr(linear, "QUICK", TINY)
    monkeypatch.setattr(linear, "call_apart", lambda function, item: function(item))
    outcome = linear.run(True, lambda text: None)
    rows = {row["fit"]: row for row in outcome.rows}
    assert "Synthetic parties" in outcome.notes[0]
    assert "the data folder is not there" in outcome.notes[0]
    plain, bfv = rows["vfsl plain, refine=0"], rows["vfsl bfv, refine=0"]
    assert plain["test AUC"] == bfv["test AUC"]
    assert plain["rounds"] == bfv["rounds"]
    assert bfv["gradients"] == bfv["rounds"] + 1
    assert bfv["MB"] > plain["MB"] > 0
    assert bfv["test AUC"] > rows["scikit-learn, pooled"]["test AUC"] - 0.05
    assert rows["vfsl bfv, 2 bags"]["models"] == 2
    assert rows["vfsl bfv, 2 bags"]["rows"] == 240
    assert "vfsl plain, 20 synthetic columns" in rows
    assert "vfsl bfv, one-shot" in rows


@pytest.mark.data
def test_the_credit_data_are_cut_by_id():
    if linear.DATA not in available():
        pytest.skip(f"{linear.DATA} is not here")
    tables, label, notes = linear.parties(500)
    assert label == ("guest", "y")
    assert tables["guest"].ids.tolist() == tables["host"].ids.tolist()
    assert len(tables["host"]) == 500
    assert (len(tables["guest"].features), len(tables["host"].features)) == (13, 10)
    assert "500 rows; 13 columns and the label at one party, 10" in notes[0]
