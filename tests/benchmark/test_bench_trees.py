"""The trees experiment: drawn rows, columns dealt to parties, peers, goals, and a tiny run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from benchmarks import linear, trees, trees_peers, trees_work
from benchmarks.linear import Cost
from benchmarks.peers import PeerMissing
from benchmarks.trees import COST, GROWTH, PLAIN, QUALITY, SCORES, Sizes, add_ratios, goals
from benchmarks.trees_work import align, best_of, deal_columns, draw_rows, pool, target_of
from vfsl.data import PartyTable
from vfsl.errors import DataError

TINY = Sizes(
    rows=300,
    trees=2,
    growth=(60, 120),
    growth_trees=1,
    holders=(2, 3),
    scored=20,
    drawn=(),
    repeats=1,
    data=("not here",),
    splits=1,
    most=200,
    peers=False,
)


@pytest.fixture
def no_data(monkeypatch):
    def absent(name):
        raise DataError("the data folder is not there.")

    monkeypatch.setattr(linear, "load", absent)


def _tables(rows=50):
    ids = [f"p{number}" for number in range(rows)]
    x = np.arange(float(rows))
    one = pd.DataFrame({"id": ids, "x": x, "y": (x > 20).astype(int)})
    two = pd.DataFrame({"id": ids[::-1], "z": 100 + x[::-1], "g": ["a", "b"] * (rows // 2)})
    return {
        "A": PartyTable.from_frame(one, party="A", id="id", label="y"),
        "B": PartyTable.from_frame(two, party="B", id="id"),
    }


# ---- the work ------------------------------------------------------------------------------------


def test_drawn_rows_belong_together():
    made = draw_rows(_tables(), "A", 400, np.random.default_rng(0))
    assert [len(table) for table in made.values()] == [400, 400]
    assert made["A"].ids.tolist() == made["B"].ids.tolist()
    x, z = made["A"].frame["x"], made["B"].frame["z"]
    assert np.abs(z - 100 - x).max() < 2  # the same people, apart from the jitter
    assert len(np.unique(x)) == 400
    assert set(made["A"].frame["y"]) == {0, 1}
    assert set(made["B"].frame["g"]) == {"a", "b"}
    assert ((x > 20.5) == (made["A"].frame["y"] == 1)).mean() > 0.95


def test_all_rows_are_aligned_in_their_order():
    fed = align(_tables(), "plain")
    assert fed.parts(("A", "y"))["B"].rows.tolist() == list(range(50))


def test_columns_are_dealt_to_parties():
    tables = _tables()
    made = deal_columns(tables, "A", 3)
    assert list(made) == ["A", "B-1", "B-2"]
    assert made["A"] is tables["A"]
    assert [list(made[party].features) for party in ("B-1", "B-2")] == [["z"], ["g"]]
    assert made["B-2"].ids.tolist() == tables["B"].ids.tolist()
    assert (made["B-1"].frame["z"].to_numpy() == tables["B"].frame["z"].to_numpy()).all()


def test_the_fastest_run_counts(monkeypatch):
    costs = iter([Cost(3.0, 1.0), Cost(1.0, 2.0), Cost(2.0, 0.5)])
    monkeypatch.setattr(trees_work, "timed", lambda work: (work(), next(costs)))
    assert best_of(3, lambda: "result") == ("result", Cost(1.0, 2.0))


def test_a_peers_best_number_of_threads_counts(monkeypatch, no_data):
    made = {1: Cost(3.0, 1.0), 2: Cost(2.0, 4.0)}
    monkeypatch.setattr(
        trees_work, "make_peer", lambda name, trees, threads: SimpleNamespace(fit=threads)
    )
    monkeypatch.setattr(trees_work, "partial", lambda fit, *arguments: fit)
    monkeypatch.setattr(trees_work, "best_of", lambda repeats, fit: (None, made[fit]))
    row = trees_work.time_fit(trees_work.Timing("lightgbm", 100, 1, False, 1))
    assert (row["wall s"], row["core-s"]) == (2.0, 1.0)


def test_pooled_columns_and_targets():
    tables = _tables()
    pooled = pool(tables)
    assert list(pooled.columns) == ["x0", "x1", "x2"]
    assert isinstance(pooled["x2"].dtype, pd.CategoricalDtype)
    assert target_of(tables, ("A", "y")).tolist() == [int(x > 20) for x in range(50)]


def test_bytes_before_the_first_trees():
    sent = [("runs", 7), ("setup", 5), ("trees", 1), ("nodes", 2), ("trees", 1)]
    entries = [
        SimpleNamespace(sequence=place, message=name, bytes=size)
        for place, (name, size) in enumerate(sent)
    ]
    assert trees_work.count_before_trees(entries) == 12


# ---- peers ---------------------------------------------------------------------------------------


def test_a_missing_pooled_peer_is_a_note(monkeypatch):
    def measured(work, case):
        if case.fit in trees_work.PIP:
            raise ImportError
        return {"fit": f"vfsl {case.fit}, plain", "wall s": 1.0, "core-s": 1.0, "rows": 9}

    monkeypatch.setattr(trees, "call_apart", measured)
    notes: list[str] = []
    rows = trees.plain_rows(TINY, lambda text: None, notes)
    assert [row["fit"] for row in rows] == ["vfsl XGB, plain", "vfsl LGB, plain"]
    assert notes == [
        "xgboost is not installed: pip install xgboost-cpu adds its row.",
        "lightgbm is not installed: pip install lightgbm adds its row.",
    ]


def test_ratios_are_to_the_slower_peer():
    rows = [
        {"fit": "xgboost, pooled", "wall s": 0.1, "core-s": 0.4},
        {"fit": "lightgbm, pooled", "wall s": 0.2, "core-s": 0.3},
        {"fit": "vfsl XGB, plain", "wall s": 1.0, "core-s": 2.0},
    ]
    *peers, ours = add_ratios(rows)
    assert peers == rows[:2]
    assert ours["wall / slower peer"] == pytest.approx(5)
    assert ours["core / slower peer"] == pytest.approx(5)


def test_a_federated_peer_that_does_not_install_is_a_note(monkeypatch, no_data):
    def missing(name, *packages):
        raise PeerMissing(f"pip install {packages[0]}: ERROR: none.")

    monkeypatch.setattr(trees_peers, "peer_python", missing)
    rows, notes = trees_peers.peer_rows(100, 2, lambda text: None)
    assert rows == []
    assert notes[-2:] == [
        "xgboost with split columns is left out: pip install xgboost==3.2.0: ERROR: none.",
        "SecretFlow with split columns is left out: pip install "
        "secretflow-lite==1.5.0.dev20240321: ERROR: none.",
    ]


def test_a_federated_peer_gets_each_party_its_columns(tmp_path, monkeypatch, no_data):
    tables = _tables()
    path = trees_peers.save_columns(tmp_path, {"train": tables, "test": tables}, ("A", "y"))
    with np.load(path) as saved:
        assert saved["held"].ravel().tolist() == list(range(50))
        assert saved["own"].shape == saved["new own"].shape == (50, 2)
        assert saved["label"].sum() == 29


# ---- goals ---------------------------------------------------------------------------------------


def _rows(**changes):
    rows = {
        "cost": {"what": COST, "work": "XGB", "MB": 90, "core-s": 39, "same trees as plain": True},
        "few": {"what": GROWTH, "rows": 10, "MB": 1.0, "core-s": 1.0},
        "many": {"what": GROWTH, "rows": 100, "MB": 9.0, "core-s": 10.5},
        "scores": {"what": SCORES, "work": "50 trees", "holders": 2, "KB per row": 2.9},
        "more scores": {"what": SCORES, "work": "50 trees", "holders": 3, "KB per row": 9},
        "plain": {
            "what": PLAIN,
            "fit": "vfsl XGB, plain",
            "rows": 24_000,
            "drawn": False,
            "wall / slower peer": 4.9,
            "core / slower peer": 4.0,
        },
        "drawn": {
            "what": PLAIN,
            "fit": "vfsl XGB, plain",
            "rows": 300_000,
            "drawn": True,
            "wall / slower peer": 2.9,
            "core / slower peer": 2.0,
        },
        "quality": {
            "what": QUALITY,
            "model": "XGB",
            "data": "bank",
            "beside": "xgboost",
            "mean difference": -0.0019,
        },
    }
    for name, change in changes.items():
        rows[name] |= change
    return list(rows.values())


def test_goals_reached():
    lines = goals(_rows())
    assert len(lines) == 9
    assert all(line.endswith(": reached.") for line in lines), lines


@pytest.mark.parametrize(
    ("name", "change", "missed"),
    [
        ("cost", {"MB": 101}, 0),
        ("cost", {"core-s": 41}, 1),
        ("cost", {"same trees as plain": False}, 2),
        ("many", {"MB": 11.1}, 3),
        ("many", {"core-s": 11.1}, 4),
        ("scores", {"KB per row": 3.1}, 5),
        ("plain", {"wall / slower peer": 5.1}, 6),
        ("drawn", {"wall / slower peer": 3.1}, 7),
        ("quality", {"mean difference": -0.0021}, 8),
    ],
)
def test_goals_missed(name, change, missed):
    lines = goals(_rows(**{name: change}))
    assert [place for place, line in enumerate(lines) if "NOT reached" in line] == [missed]


def test_a_better_model_than_the_peer_is_no_fault():
    assert goals(_rows(quality={"mean difference": 0.1}))[-1].endswith(": reached.")


# ---- a run ---------------------------------------------------------------------------------------


def test_a_tiny_run_on_made_up_parties(monkeypatch, no_data):
    pytest.importorskip("xgboost")
    pytest.importorskip("lightgbm")
    made = linear.parties(400)
    for module in (trees, trees_work):
        monkeypatch.setattr(module, "parties", lambda rows: (made[0], made[1], list(made[2])))
    monkeypatch.setattr(trees, "call_apart", lambda function, item: function(item))
    monkeypatch.setattr(
        trees.Cells, "all", lambda self, work, cases: [work(case) for case in cases.values()]
    )
    outcome = trees.measure_all(TINY, lambda text: None, judge=False)
    assert "Synthetic parties" in outcome.notes[0]
    assert "The data set not here is not here; its rows are left out." in outcome.notes
    by_what = {}
    for row in outcome.rows:
        by_what.setdefault(row["what"], []).append(row)
    (cost,) = by_what[COST]
    assert cost["scheme"] == "shares"
    assert cost["same trees as plain"] is True
    assert 0 < cost["MB once"] < cost["MB"]
    assert cost["MB once"] + 2 * cost["MB per tree"] == pytest.approx(cost["MB"])
    assert [row["rows"] for row in by_what[GROWTH]] == [60, 120]
    two, three = by_what[SCORES]
    assert 0 < two["KB per row"] < three["KB per row"]
    assert two["WAN s of one row"] <= two["WAN s"]
    fits = {row["fit"]: row for row in by_what[PLAIN]}
    assert set(fits) == {
        "xgboost, pooled",
        "lightgbm, pooled",
        "vfsl XGB, plain",
        "vfsl LGB, plain",
    }
    assert fits["vfsl XGB, plain"]["wall / slower peer"] > 0
