"""Held-out predictions: leaving one row out, private parts, and what B makes of them by itself."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psg_cases import PLAIN, frames, run, sides
from sklearn.linear_model import LogisticRegression
from vfsl.completion.calibrating import (
    ClassScale,
    ErrorScale,
    draw_parts,
    plain_chances,
)
from vfsl.completion.leave_one_out import known_shares, leverages, residual_factors
from vfsl.completion.targets import merge_rare, target_of

from vfsl.channel import Transcript
from vfsl.completion.bases import Pair, RidgeBase
from vfsl.completion.crossfit import CrossFit, mean_of_others, shares_of_others, skill
from vfsl.completion.vfpum import prepared
from vfsl.data import PartyTable
from vfsl.estimators import XGB, Roles

EXACT = Pair(RidgeBase(tolerance=1e-9, max_rounds=200))
TREES = Pair(XGB(task="regression", n_estimators=4, max_depth=2), XGB(n_estimators=4, max_depth=2))


def without_each(matrix, y, l2):
    """Ridge regression with an intercept, trained anew without each row in turn."""
    rows = len(matrix)
    design = np.column_stack([matrix, np.ones(rows)])
    penalty = np.diag([*[l2 * rows] * matrix.shape[1], 0.0])
    found = np.zeros(rows)
    for row in range(rows):
        kept = np.arange(rows) != row
        gram = design[kept].T @ design[kept] + penalty
        found[row] = design[row] @ np.linalg.solve(gram, design[kept].T @ y[kept])
    return found


def given_matrix(both, common):
    side, _ = prepared(both["A"], EXACT)
    matrix = side.table.take(side.rows).frame.to_numpy()[:common]
    return (matrix - matrix.mean(axis=0)) / matrix.std(axis=0)


@given(
    rows=st.integers(8, 40),
    columns=st.integers(1, 4),
    l2=st.floats(1e-3, 1.0),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_one_row_left_out_is_the_same_as_training_without_it(rows, columns, l2, seed):
    rng = np.random.default_rng(seed)
    matrix, y = rng.normal(size=(rows, columns)), rng.normal(size=rows)
    matrix -= matrix.mean(axis=0)
    gram = matrix.T @ matrix + rows * l2 * np.eye(columns)
    fitted = matrix @ np.linalg.solve(gram, matrix.T @ y) + y.mean()
    factors = residual_factors(leverages(matrix, l2), 1.0)
    if factors.max() < 16:
        left_out = y + factors * (fitted - y)
        np.testing.assert_allclose(left_out, without_each(matrix, y, l2), atol=1e-8)


def test_held_out_predictions_are_those_of_models_without_the_row():
    a, b, _ = frames()
    both = sides(a, b)
    folds = run(CrossFit(EXACT), both, ["income", "visits"])
    for name in ("income", "visits"):
        truth = b[name].to_numpy(float)[:120]
        brute = without_each(given_matrix(both, 120), truth, 0.01)
        np.testing.assert_allclose(folds[name].predicted, brute, atol=1e-4 * truth.std())


def test_cells_that_are_unknown_hold_out_nothing():
    a, b, _ = frames()
    both = sides(a, b)
    whole = run(CrossFit(EXACT), both, ["income"])["income"]
    b.loc[:29, "income"] = np.nan
    holed = run(CrossFit(EXACT), sides(a, b), ["income"])["income"]
    known = holed.target.known
    matrix, truth = given_matrix(both, 120), b["income"].to_numpy()[:120]
    brute = without_each(matrix[known] - matrix[known].mean(axis=0), truth[known], 0.01)
    errors, held = brute - truth[known], holed.predicted[known] - truth[known]
    assert np.corrcoef(errors, held)[0, 1] > 0.999
    assert np.sqrt((held**2).mean()) == pytest.approx(np.sqrt((errors**2).mean()), rel=0.02)
    assert skill(holed)[0] == pytest.approx(skill(whole)[0], abs=0.03)


@pytest.mark.parametrize(
    ("scheme", "security"), [pytest.param("paillier", 112, marks=pytest.mark.slow), ("bfv", 128)]
)
def test_encrypted_equals_plain(scheme, security):
    a, b, _ = frames(common=60, rest=10)
    b.loc[4, "visits"] = np.nan
    both, model = sides(a, b, 60), CrossFit(Pair(RidgeBase(max_rounds=3)), spread=True)
    columns = ["income", "colour", "visits"]
    plain = run(model, both, columns)
    hidden = run(model, both, columns, Roles("B", ("A",), "K", scheme, security))
    for name in columns:
        assert hidden[name].to_dict() == plain[name].to_dict()


@pytest.mark.parametrize("pair", [EXACT, TREES], ids=["linear", "trees"])
def test_no_part_of_the_rows_is_told(pair):
    """Whatever the parts are, A sees the same messages and orders; only parts of trees matter."""
    a, b, _ = frames()
    seen = []
    for seed in (0, 1):
        transcript = Transcript(keep_views=True)
        run(CrossFit(pair), sides(a, b), ["income", "colour"], seed=seed, transcript=transcript)
        plain = [
            (s.name, s.body)
            for s in transcript.sights
            if s.receiver == "A" and s.name.rsplit("/", 1)[-1] in ("work", "known shares")
        ]
        seen.append(plain)
        assert len(plain) >= 3
    assert seen[0] == seen[1]


def test_a_linear_cross_fit_opens_the_gradients_of_one_model_per_column():
    """No gradient of a part: as many trainings as groups, each on all rows."""
    a, b, _ = frames()
    transcript = Transcript()
    run(CrossFit(EXACT), sides(a, b), ["income", "colour", "noise"], transcript=transcript)
    begun = [e for e in transcript.entries if e.name.endswith("/fit/models")]
    assert {entry.name for entry in begun} == {"cross-fit/piece 0/linear/fit/models"}


def test_parts_are_drawn_and_of_equal_size():
    one, two = (draw_parts(103, 5, np.random.default_rng(seed)) for seed in (0, 1))
    assert np.bincount(one).tolist() == [21, 21, 21, 20, 20]
    assert 0.1 < (one == two).mean() < 0.3
    assert (one != np.arange(103) % 5).any()


def test_classes_of_trees_are_held_out_by_parts():
    a, b, _ = frames()
    fold = run(CrossFit(TREES), sides(a, b), ["colour"])["colour"]
    assert skill(fold)[0] > 0.2
    np.testing.assert_allclose(fold.chances.sum(axis=1), 1)


def test_known_shares_are_in_twentieths():
    known = np.ones((40, 3), dtype=bool)
    known[:3, 1], known[:, 2] = False, False
    assert known_shares(known).tolist() == [1.0, 0.9, 0.05]


def test_the_baseline_leaves_out_the_row_too():
    table = sides(*frames(common=40)[:2], common=40)["B"].table
    income, colour = target_of(table, "income"), target_of(table, "colour")
    expected = [np.delete(income.filled, row).mean() for row in range(40)]
    np.testing.assert_allclose(mean_of_others(income), expected)
    share = (np.delete(colour.filled, 7) == 1).mean()
    assert shares_of_others(colour)[7].tolist() == pytest.approx([1 - share, share])


def test_class_scales_are_logistic_models_of_the_scores():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(400, 2))
    codes = (scores + rng.normal(size=(400, 2))).argmax(axis=1) + (scores[:, 0] > 1)
    scale = ClassScale.fit(scores, codes, 4)
    inside = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    model = LogisticRegression(max_iter=1000).fit(inside, codes)
    np.testing.assert_allclose(scale.chances(scores)[:, :3], model.predict_proba(inside), atol=1e-9)
    assert (scale.chances(scores)[:, 3] == 0).all()  # a class that was never seen
    again = ClassScale.from_dict(scale.to_dict())
    np.testing.assert_array_equal(again.chances(scores), scale.chances(scores))
    two = ClassScale.fit(scores[:, :1], (scores[:, 0] > 0).astype(int), 2)
    assert (two.chances(scores[:, :1]).argmax(axis=1) == (scores[:, 0] > 0)).mean() > 0.95
    one = ClassScale.fit(scores, np.full(400, 2), 3)
    assert one.chances(scores)[0].tolist() == [0, 0, 1]


def test_linear_scores_count_as_probabilities_where_nothing_scales_them():
    made = plain_chances(np.array([[0.2, 0.3], [1.4, -0.2], [-0.1, -0.3]]))
    np.testing.assert_allclose(made, [[0.5, 0.2, 0.3], [0, 1, 0], [1, 0, 0]])


def test_rare_categories_are_predicted_together():
    counts = {"u": 50, "v": 30, "w": 12, "x": 5, "y": 3}
    cells = np.repeat(list(counts), list(counts.values()))
    frame = pd.DataFrame({"id": np.arange(100).astype(str), "c": cells, "n": np.arange(100.0)})
    frame["mostly"] = np.where(np.arange(100) < 92, 0.0, np.arange(100))
    table = PartyTable.from_frame(frame, party="B", id="id")
    column = target_of(table, "c")
    assert (column.width, merge_rare(column, 1).width) == (4, 4)
    ten = merge_rare(column, 10)  # x and y have 8 rows together, so w hides them
    assert ten.groups.tolist() == [0, 1, 2, 2, 2]
    assert ten.numbers(np.array([0.0, 1.0, 3.0])).tolist() == [[0, 0], [1, 0], [0, 1]]
    eight = merge_rare(column, 8)
    assert eight.groups.tolist() == [0, 1, 2, 3, 3]
    made = ten.plain_chances(np.array([[0.2, 0.4]]))
    np.testing.assert_allclose(made, [[0.4, 0.2, 0.4 * 0.6, 0.4 * 0.25, 0.4 * 0.15]])
    assert merge_rare(column, 50).groups.tolist() == [0, 1, 1, 1, 1]
    assert merge_rare(column, 51) is None
    assert merge_rare(target_of(table, "n"), 99) is not None
    assert merge_rare(target_of(table, "mostly"), 8) is not None
    assert merge_rare(target_of(table, "mostly"), 9) is None


def test_expected_errors_follow_the_prediction():
    rng = np.random.default_rng(0)
    predicted = rng.normal(size=4000)
    errors = rng.normal(size=4000) * np.exp(0.5 * predicted)
    scale = ErrorScale.fit(predicted, errors)
    found = scale.expected(np.array([-1.0, 0.0, 1.0, 9.0]))
    assert found[2] / found[0] == pytest.approx(np.exp(1.0), rel=0.1)
    assert found[3] == pytest.approx(scale.expected(np.array([2 * predicted.std()]))[0], rel=0.2)
    flat = ErrorScale.fit(np.zeros(10), rng.normal(size=10))
    assert np.isfinite(flat.expected(np.zeros(3))).all()


def test_spread_needs_no_second_prediction():
    """The missing party sees one held-out prediction per row and column, spread or not."""
    a, b, _ = frames()
    opened = []
    for spread in (False, True):
        transcript = Transcript()
        folds = run(
            CrossFit(EXACT, spread=spread), sides(a, b), ["income"], PLAIN, transcript=transcript
        )
        assert (folds["income"].spread is not None) == spread
        opened.append([e.name for e in transcript.entries if e.receiver == "B"])
    assert opened[0] == opened[1]
