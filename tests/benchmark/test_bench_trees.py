"""The trees experiment: its phases, drawn rows, peers, goals, and a tiny run."""

from __future__ import annotations

import threading
import time

import numpy as np
import pandas as pd
import pytest

from benchmarks import linear, trees
from benchmarks.linear import Cost
from benchmarks.trees import Phases, Sizes, aligned, best_of, goals, peer_rows, resampled
from vfsl.crypto import EncryptedArray, PublicKey, SecretKey, make_scheme
from vfsl.data import PartyTable
from vfsl.errors import DataError

TINY = Sizes(
    rows=200,
    trees=2,
    repeats=1,
    encrypted_trees=1,
    paillier=False,
    scaling=(120,),
    scaling_trees=1,
)


@pytest.fixture
def no_data(monkeypatch):
    def absent(name):
        raise DataError("the data folder is not there.")

    monkeypatch.setattr(linear, "load", absent)


def spin(seconds):
    """Keep the processor busy, as thread time counts it."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_phases_count_the_outermost_only_and_each_thread():
    phases = Phases()
    inner = phases._timed("sum", lambda: spin(0.02))
    outer = phases._timed("encrypt", lambda: (inner(), inner()))
    outer()
    assert phases.seconds["encrypt"] >= 0.04
    assert phases.seconds["sum"] == 0
    threads = [threading.Thread(target=inner) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert phases.seconds["sum"] >= 0.04


def test_phases_leave_everything_as_it_was():
    before = PublicKey.encrypt, EncryptedArray.sum_by_many, SecretKey.open
    with Phases():
        assert PublicKey.encrypt is not before[0]
    with pytest.raises(ZeroDivisionError), Phases():
        spin(1 / 0)
    assert (PublicKey.encrypt, EncryptedArray.sum_by_many, SecretKey.open) == before


def test_phases_see_a_scheme_at_work():
    with Phases() as phases:
        public, secret = make_scheme("paillier", 112).generate()
        array = public.encrypt(np.arange(40), use="sum_by", bound=40)
        request, mask = array.sum_by(np.arange(40) % 4, 4).mask()
        mask.remove(secret.open(request, (4,)))
    assert phases.seconds["encrypt"] > 0
    assert phases.seconds["mask"] > 0
    assert phases.seconds["open"] > 0


def _tables(rows=50):
    ids = [f"p{number}" for number in range(rows)]
    x = np.arange(float(rows))
    one = pd.DataFrame({"id": ids, "x": x, "y": (x > 20).astype(int)})
    two = pd.DataFrame({"id": ids[::-1], "z": 100 + x[::-1], "g": ["a", "b"] * (rows // 2)})
    return {
        "A": PartyTable.from_frame(one, party="A", id="id", label="y"),
        "B": PartyTable.from_frame(two, party="B", id="id"),
    }


def test_drawn_rows_belong_together():
    made = resampled(_tables(), "A", 400, np.random.default_rng(0))
    assert [len(table) for table in made.values()] == [400, 400]
    assert made["A"].ids.tolist() == made["B"].ids.tolist()
    x, z = made["A"].frame["x"], made["B"].frame["z"]
    assert np.abs(z - 100 - x).max() < 2  # the same people, apart from the jitter
    assert len(np.unique(x)) == 400
    assert set(made["A"].frame["y"]) == {0, 1}
    assert set(made["B"].frame["g"]) == {"a", "b"}
    assert ((x > 20.5) == (made["A"].frame["y"] == 1)).mean() > 0.95


def test_all_rows_are_aligned_in_their_order():
    fed = aligned(_tables(), "plain")
    assert fed.parts(("A", "y"))["B"].rows.tolist() == list(range(50))


def test_the_fastest_run_counts(monkeypatch):
    costs = iter([Cost(3.0, 1.0), Cost(1.0, 2.0), Cost(2.0, 0.5)])
    monkeypatch.setattr(trees, "timed", lambda work: (work(), next(costs)))
    assert best_of(3, lambda: "result") == ("result", Cost(1.0, 2.0))


def test_a_missing_peer_is_a_note(monkeypatch):
    def absent(count):
        raise ImportError

    monkeypatch.setattr(trees, "_xgboost", absent)
    monkeypatch.setattr(trees, "_lightgbm", absent)
    tables = _tables()
    rows, notes = peer_rows({"train": tables, "test": tables}, ("A", "y"), TINY)
    assert rows == []
    assert notes == [
        "xgboost is not installed: pip install xgboost-cpu adds its row.",
        "lightgbm is not installed: pip install lightgbm adds its row.",
    ]


def _rows(**changes):
    rows = {
        "xgboost, pooled": {"wall s": 0.2, "test AUC": 0.772},
        "lightgbm, pooled": {"wall s": 0.3, "test AUC": 0.775},
        "vfsl XGB plain": {"wall s": 1.1, "test AUC": 0.771},
        "vfsl XGB bfv": {"core-s per tree": 3.9, "same trees as plain": True},
    }
    for name, change in changes.items():
        rows[name] |= change
    return [{"fit": name, **row} for name, row in rows.items()]


def test_goals_reached():
    lines = goals(_rows())
    assert len(lines) == 4
    assert all(line.endswith(": reached.") for line in lines), lines


@pytest.mark.parametrize(
    ("name", "change", "missed"),
    [
        ("vfsl XGB bfv", {"core-s per tree": 4.1}, 0),
        ("vfsl XGB bfv", {"same trees as plain": False}, 1),
        ("vfsl XGB plain", {"wall s": 1.3}, 2),
        ("vfsl XGB plain", {"test AUC": 0.766}, 3),
    ],
)
def test_goals_missed(name, change, missed):
    lines = goals(_rows(**{name: change}))
    assert [place for place, line in enumerate(lines) if "NOT reached" in line] == [missed]


def test_goals_without_peers():
    lines = goals([row for row in _rows() if "pooled" not in row["fit"]])
    assert lines[-1] == "The other goals need xgboost or lightgbm."


def test_a_tiny_run_on_made_up_parties(monkeypatch, no_data):
    pytest.importorskip("xgboost")
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(trees, "QUICK", TINY)
    monkeypatch.setattr(trees, "call_apart", lambda function, item: function(item))
    made = linear.parties(400)
    monkeypatch.setattr(trees, "parties", lambda rows: (made[0], made[1], list(made[2])))
    outcome = trees.run(True, lambda text: None)
    assert "Synthetic parties" in outcome.notes[0]
    rows = {row["fit"]: row for row in outcome.rows}
    assert set(rows) >= {
        "xgboost, pooled",
        "lightgbm, pooled",
        "vfsl XGB plain",
        "vfsl LGB plain",
        "vfsl XGB bfv",
        "vfsl XGB bfv, one process",
        "vfsl XGB plain, drawn rows, one process",
        "vfsl XGB bfv, drawn rows, one process",
    }
    encrypted, alone = rows["vfsl XGB bfv"], rows["vfsl XGB bfv, one process"]
    assert encrypted["same trees as plain"] is True
    assert encrypted["MB per tree"] > rows["vfsl XGB plain"]["MB per tree"] > 0
    assert encrypted["messages per tree"] == alone["messages per tree"]
    phases = [alone[f"{name} s per tree"] for name in ("encrypt", "sum", "mask", "open", "wire")]
    assert min(phases) > 0
    assert sum(phases) <= alone["core-s per tree"]
    assert rows["vfsl XGB plain"]["test AUC"] > 0.5
    assert rows["vfsl XGB plain, drawn rows, one process"]["rows"] == 120
