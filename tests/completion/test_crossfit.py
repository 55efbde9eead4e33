"""Held-out predictions: leaving one row out, private parts, and what B makes of them by itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.completion.psg_cases import PLAIN, frames, parts, run
from vfsl.channel import Transcript
from vfsl.completion.bases import Pair, RidgeBase, prepare_given
from vfsl.completion.columns import make_target, skill
from vfsl.completion.crossfit import CrossFit, frequencies_of_others, mean_of_others
from vfsl.completion.tasks import known_fractions, leverages, residual_factors
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
    part, _ = prepare_given(both["A"], EXACT)
    matrix = part.table.take(part.all_rows).frame.to_numpy()[:common]
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
    both = parts(a, b)
    folds = run(CrossFit(EXACT), both, ["income", "visits"])
    for name in ("income", "visits"):
        truth = b[name].to_numpy(float)[:120]
        brute = without_each(given_matrix(both, 120), truth, 0.01)
        np.testing.assert_allclose(folds[name].predicted, brute, atol=1e-4 * truth.std())


def test_cells_that_are_unknown_hold_out_nothing():
    a, b, _ = frames()
    both = parts(a, b)
    whole = run(CrossFit(EXACT), both, ["income"])["income"]
    b.loc[:29, "income"] = np.nan
    holed = run(CrossFit(EXACT), parts(a, b), ["income"])["income"]
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
    both, model = parts(a, b, 60), CrossFit(Pair(RidgeBase(max_rounds=3)), spread=True)
    columns = ["income", "colour", "visits"]
    plain = run(model, both, columns)
    hidden = run(model, both, columns, Roles("B", ("A",), "K", scheme, security))
    for name in columns:
        assert hidden[name].to_dict() == plain[name].to_dict()


@pytest.mark.parametrize("pair", [EXACT, TREES], ids=["linear", "trees"])
def test_no_part_of_the_rows_is_told(pair):
    """Whatever the folds are, A sees the same messages and orders; only folds of trees matter."""
    a, b, _ = frames()
    seen = []
    for seed in (0, 1):
        transcript = Transcript(keep_views=True)
        run(CrossFit(pair), parts(a, b), ["income", "colour"], seed=seed, transcript=transcript)
        plain = [
            (s.name, s.body)
            for s in transcript.sights
            if s.receiver == "A" and s.name.rsplit("/", 1)[-1] in ("order", "known shares")
        ]
        seen.append(plain)
        assert len(plain) >= 3
    assert seen[0] == seen[1]


def test_a_linear_cross_fit_opens_the_gradients_of_one_model_per_column():
    """No gradient of a part: as many trainings as groups, each on all rows."""
    a, b, _ = frames()
    transcript = Transcript()
    run(CrossFit(EXACT), parts(a, b), ["income", "colour", "noise"], transcript=transcript)
    begun = [e for e in transcript.entries if e.name.endswith("/fit/models")]
    assert {entry.name for entry in begun} == {"cross-fit/task 0/linear/fit/models"}


def test_classes_of_trees_are_held_out_by_parts():
    a, b, _ = frames()
    fold = run(CrossFit(TREES), parts(a, b), ["colour"])["colour"]
    assert skill(fold)[0] > 0.2
    np.testing.assert_allclose(fold.chances.sum(axis=1), 1)


def test_known_fractions_are_in_twentieths():
    known = np.ones((40, 3), dtype=bool)
    known[:3, 1], known[:, 2] = False, False
    assert known_fractions(known).tolist() == [1.0, 0.9, 0.05]


def test_the_baseline_leaves_out_the_row_too():
    table = parts(*frames(common=40)[:2], common=40)["B"].table
    income, colour = make_target(table, "income"), make_target(table, "colour")
    expected = [np.delete(income.filled, row).mean() for row in range(40)]
    np.testing.assert_allclose(mean_of_others(income), expected)
    share = (np.delete(colour.filled, 7) == 1).mean()
    assert frequencies_of_others(colour)[7].tolist() == pytest.approx([1 - share, share])


def test_spread_needs_no_second_prediction():
    """The missing party sees one held-out prediction per row and column, spread or not."""
    a, b, _ = frames()
    opened = []
    for spread in (False, True):
        transcript = Transcript()
        folds = run(
            CrossFit(EXACT, spread=spread), parts(a, b), ["income"], PLAIN, transcript=transcript
        )
        assert (folds["income"].spread is not None) == spread
        opened.append([e.name for e in transcript.entries if e.receiver == "B"])
    assert opened[0] == opened[1]
