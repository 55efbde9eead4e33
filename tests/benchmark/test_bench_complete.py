"""The completion experiment: its cells, its rates, its goals, and a tiny run."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import complete
from benchmarks.complete import Sizes, downstream_row, flag_rates, goals, measure
from benchmarks.complete_cells import Case, complete_cell, prepare, routed_shares
from vfsl.completion.downstream import WAYS

CASE = Case("breast_cancer", 0.4, 0, 200, 100, rounds=2, trees=3, bases=("linear",))


def test_a_case_hides_all_of_bs_cells_outside_the_overlap():
    hidden = prepare(CASE)
    plan = hidden.train.plan
    assert len(plan.overlap) == 80
    assert len(hidden.train.tables["B"]) == 80
    assert len(hidden.truth) == 120
    assert not set(hidden.train.tables["A"].ids) & set(hidden.test.tables["A"].ids)
    names = [hidden.train.tables[party].features for party in "AB"]
    assert len(names[0]) == len(names[1]) == 15
    assert not set(names[0]) & set(names[1])
    assert hidden.label not in names[0] + names[1]
    own, theirs = hidden.whole["A"], hidden.whole["B"]
    assert own.ids.tolist() == theirs.ids.tolist()
    assert theirs.ids[80:].tolist() == hidden.truth.ids.tolist()


def test_the_order_follows_the_seed():
    one, same = prepare(CASE), prepare(CASE)
    other = prepare(Case("breast_cancer", 0.4, 1, 200, 100))
    ids = [case.train.tables["A"].ids.tolist() for case in (one, same, other)]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.slow
def test_a_cell_from_end_to_end():
    found = complete_cell(CASE)
    columns = pd.DataFrame(found["columns"])
    assert len(columns) == 15
    assert columns["coverage"].between(0.7, 1).all()
    assert (columns["rmse of hot-deck"] > columns["rmse of mean"]).all()
    assert (columns["rmse"] < columns["rmse of mean"]).mean() > 0.7
    both = found["downstream"]["both"]
    assert set(both) == {*(way.name for way in WAYS), "blend", "oracle"}
    assert min(both.values()) > 0.8
    alone = found["downstream"]["A alone"]
    assert alone["advice"] == alone["own columns only"] == both["own columns only"]


def test_association_is_stronger_by_the_largest_than_by_the_mean():
    shares = routed_shares(Case("breast_cancer", 1.0, 0, 400, 100))
    assert 0 <= shares["mean"] < shares["max"] <= 1


def test_flags():
    columns = pd.DataFrame(
        {
            "skill of model": [-0.2, -0.1, 0.3, 0.2, 0.0, 0.005],
            "model": ["direct"] * 3 + ["mean"] + ["direct"] * 2,
            "expected skill": [0.01, 0.3, 0.3, 0.2, -0.1, 0.1],
            "its error": [0.02, 0.02, 0.02, 0.02, 0.02, 0.02],
        }
    )
    missed, false = flag_rates(columns)
    assert missed == pytest.approx(1 / 2)
    assert false == pytest.approx(1 / 2)


def made_cells(blend, best=0.8):
    ways = {way.name: 0.7 for way in WAYS} | {"completed": best}
    cell = {
        "columns": [
            {
                "kind": "numeric",
                "skill of model": 0.5,
                "model": "direct",
                "expected skill": 0.4,
                "its error": 0.1,
                "coverage": 0.9,
                "rmse": 0.7,
            }
        ],
        "downstream": {
            "both": {**ways, "blend": blend, "oracle": 0.9},
            "A alone": {
                "own columns only": 0.7,
                "advice": 0.7,
                "missing stays missing": 0.68,
                "completed": 0.6,
            },
        },
    }
    return {Case("bank", 0.1, seed, 100, 100): cell for seed in range(3)}


def test_regret_is_against_the_best_single_way():
    row = downstream_row("bank", 0.1, made_cells(blend=0.78))
    assert row["regret"] == pytest.approx(0.02)
    assert row["gap closed"] == pytest.approx(-0.2)
    assert row["A alone: advice"] == pytest.approx(0.7)


@pytest.mark.parametrize(("blend", "reached"), [(0.84, True), (0.78, False)])
def test_goals_say_whether_they_were_reached(blend, reached):
    cells = made_cells(blend)
    rows = [
        downstream_row("bank", 0.1, cells),
        {"what": "time", "scheme": "plain", "rows": 100, "core-s": 12.0},
    ]
    text = goals(rows, cells)
    assert text[0].endswith(" reached." if reached else "NOT reached.")
    assert ("NOT" in text[1]) is not reached
    assert "40%" in text[2] or not reached
    assert text[-1].endswith("12 core-s: reached.")


@pytest.mark.slow
def test_a_tiny_run():
    sizes = Sizes(("breast_cancer",), (0.4,), (0,), 200, 100, 2, 3, ("linear",), 600, 0)
    outcome = measure(sizes, lambda text: None, keep=False)
    kinds = [row["what"] for row in outcome.rows]
    assert kinds == ["columns", "AUC", "columns above τ = 0.5", "time"]
    assert outcome.rows[-1]["rows"] == 600
    assert any("full form only" in note for note in outcome.notes)
    assert np.isfinite(outcome.rows[1]["regret"])


def test_without_data_the_run_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(complete, "available", lambda: ["iris"])
    with pytest.raises(complete.DataError, match="set VFSL_DATA"):
        complete.run(False, lambda text: None)
