"""Conjugate gradients over blocks of columns, against direct solves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.errors import BoundExceeded
from vfsl.estimators.descent import Block, RoundSums, Search, Width, encode


def solve(blocks, targets, *, weights=None, rounds=60, tolerance=1e-7):
    """The federated loop without messages: blocks only share sums."""
    wanted = encode(targets, blocks[0].width.scores)
    search, number = None, 0
    while number < rounds:
        residual = sum(block.scores() for block in blocks) - wanted
        if weights is not None:
            residual = np.rint(residual * weights).astype(np.int64)
        sums = [residual.T @ block.columns for block in blocks]
        if search is None:
            gain = sum(b.begin(s) for b, s in zip(blocks, sums, strict=True))
            search = Search(gain, tolerance)
            continue
        number += 1
        step = search.step([b.measure(s) for b, s in zip(blocks, sums, strict=True)])
        for block in blocks:
            block.move(step)
        if search.done:
            break
    return number, search


def problem(seed, rows, sizes, models=1):
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 2))
    parts = [rng.normal(size=(rows, d)) + common @ rng.normal(size=(2, d)) for d in sizes]
    parts = [(part - part.mean(0)) / part.std(0) for part in parts]
    targets = np.hstack(parts) @ rng.normal(size=(sum(sizes), models))
    targets = targets + rng.normal(size=(rows, models))
    return parts, (targets - targets.mean(0)) / targets.std(0)


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    rows=st.integers(60, 400),
    l2=st.sampled_from([0.0, 0.01, 1.0]),
    models=st.integers(1, 3),
)
def test_blocks_find_the_pooled_solution(seed, sizes, rows, l2, models):
    """To 1e-5 within the default 100 rounds, and to 1e-4 soon after as many rounds as columns."""
    parts, targets = problem(seed, rows, sizes, models)
    pooled = np.hstack(parts)
    gram = pooled.T @ pooled / rows + l2 * np.eye(pooled.shape[1])
    reference = np.linalg.solve(gram, pooled.T @ targets / rows)
    for rounds, precision in ((100, 1e-5), (2 * sum(sizes) + 5, 1e-4)):
        width = Width.for_rows(rows)
        blocks = [Block(part, np.full((part.shape[1], models), l2), width) for part in parts]
        solve(blocks, targets, rounds=rounds)
        found = np.concatenate([block.best for block in blocks])
        assert np.abs(pooled @ (found - reference)).max() < precision


def test_row_weights_and_the_decrease_of_the_objective():
    parts, targets = problem(5, 300, [3, 2])
    weights = np.random.default_rng(0).uniform(0.1, 3, size=(300, 1))
    width = Width.for_rows(300, weighted=True)
    blocks = [Block(part, np.full((part.shape[1], 1), 0.1), width) for part in parts]
    _, search = solve(blocks, targets, weights=weights)
    pooled = np.hstack(parts)
    gram = pooled.T @ (weights * pooled) / 300 + 0.1 * np.eye(5)
    reference = np.linalg.solve(gram, pooled.T @ (weights * targets) / 300)
    found = np.concatenate([block.best for block in blocks])
    np.testing.assert_allclose(found, reference, atol=1e-4)

    def objective(w):
        squares = weights * (pooled @ w - targets) ** 2
        return squares.sum() / 600 + 0.05 * (w**2).sum()

    decrease = objective(np.zeros((5, 1))) - objective(reference)
    assert search.decrease[0] == pytest.approx(decrease, rel=1e-5)


def test_a_descent_can_begin_anywhere():
    parts, targets = problem(3, 200, [2, 2])
    width = Width.for_rows(200)
    start = np.random.default_rng(0).normal(size=(2, 1))
    blocks = [Block(part, np.zeros((2, 1)), width, start) for part in parts]
    solve(blocks, targets)
    pooled = np.hstack(parts)
    reference = np.linalg.lstsq(pooled, targets, rcond=None)[0]
    np.testing.assert_allclose(np.concatenate([b.best for b in blocks]), reference, atol=1e-5)


def test_columns_that_repeat_across_parties_do_no_harm():
    parts, targets = problem(1, 200, [3, 3])
    parts[1][:, 0] = parts[0][:, 0]
    parts[1][:, 1] = parts[1][:, 2]
    width = Width.for_rows(200)
    blocks = [Block(part, np.zeros((3, 1)), width) for part in parts]
    solve(blocks, targets)
    pooled = np.hstack(parts)
    fitted = pooled @ np.concatenate([block.best for block in blocks])
    reference = pooled @ np.linalg.lstsq(pooled, targets, rcond=None)[0]
    assert np.abs(fitted - reference).max() < 1e-5


def test_a_party_without_columns_takes_part():
    parts, targets = problem(2, 100, [3, 1])
    width = Width.for_rows(100)
    empty = Block(np.zeros((100, 0)), np.zeros((0, 1)), width)
    blocks = [Block(parts[0], np.zeros((3, 1)), width), empty]
    solve(blocks, targets)
    reference = np.linalg.lstsq(parts[0], targets, rcond=None)[0]
    np.testing.assert_allclose(blocks[0].best, reference, atol=1e-6)


@pytest.mark.parametrize("rows", [10, 1000, 30_000, 1_000_000])
@pytest.mark.parametrize(("weighted", "products"), [(False, False), (True, False), (True, True)])
def test_width_keeps_sums_within_the_plaintext_space(rows, weighted, products):
    width = Width.for_rows(rows, weighted=weighted, products=products)
    most = width.sums + width.score_range + width.row_weight_range + np.log2(rows)
    assert most + np.log2(3) < (61 if products else 57)
    assert min(width.scores, width.columns) >= 8


def test_step_is_the_minimum_along_the_direction():
    """One variable by hand: f = ½·4w² − 4w, M = 2, from w = 0: g = −4, p = 2, Ap = 8."""
    search = Search(np.array([(-4.0) * (-4.0) / 2]), 1e-7)
    terms = RoundSums(curvature=[2 * 8.0], overlap=[8.0 * (-2.0)], spread=[8.0 * 8 / 2])
    step = search.step([RoundSums(*map(np.array, terms))])
    assert step.length[0] * 2 == pytest.approx(1.0)  # the minimum is at w = 1
    assert search.decrease[0] == pytest.approx(2.0)  # f(0) − f(1)
    assert search.gain[0] == pytest.approx(0.0)
    assert search.reasons == ["converged"]


def test_no_curvature_ends_the_descent():
    search = Search(np.array([1.0]), 1e-7)
    search.step([RoundSums(*np.zeros((3, 1)))])
    assert search.reasons == ["precision"]


def test_where_rounding_shows_the_search_begins_anew_and_then_gives_up():
    """A point with a higher gain is not the best one; after ten such rounds comes the end."""
    search = Search(np.array([1.0]), 1e-7)
    search.gain = search._best = np.array([1e-12])
    for number in range(1, 11):
        gain = search.gain
        step = search.step([RoundSums(gain, 0.0 * gain, 0.05 * gain)])  # the gain grows by 5 %
        assert step.turn[0] == step.best[0] == 0.0
        assert search.reasons == (["precision"] if number == 10 else [None])


def test_a_gain_that_grows_far_above_the_precision_is_no_reason_to_stop():
    search = Search(np.array([1.0]), 1e-7)
    search.gain = search._best = np.array([1e-3])
    for _ in range(5):
        step = search.step([RoundSums(np.array([1e-3]), np.array([1e-4]), np.array([1e-4]))])
        assert step.turn[0] > 0
    assert search.reasons == [None]


def test_a_case_whose_gain_once_grew_before_it_fell():
    parts, targets = problem(1193, 165, [2, 5, 2], 3)
    blocks = [Block(part, np.full((part.shape[1], 3), 0.01), Width.for_rows(165)) for part in parts]
    solve(blocks, targets)
    pooled = np.hstack(parts)
    gram = pooled.T @ pooled / 165 + 0.01 * np.eye(9)
    reference = np.linalg.solve(gram, pooled.T @ targets / 165)
    found = np.concatenate([block.best for block in blocks])
    assert np.abs(pooled @ (found - reference)).max() < 1e-5


def test_a_finished_model_stays_where_it_is():
    search = Search(np.array([1.0, 1.0]), 1e-7)
    search.reasons[0] = "converged"
    step = search.step([RoundSums(np.ones(2), -np.ones(2), np.ones(2))])
    assert step.length.tolist() == [0.0, 1.0]
    assert not step.turn[0]


def test_runaway_values_raise_instead_of_wrapping():
    block = Block(np.ones((50, 1)), np.zeros((1, 1)), Width.for_rows(50))
    for trial in (200 << block.width.weights, 1 << 61):  # the second wraps in int64
        block.trial = np.array([[trial]])
        with pytest.raises(BoundExceeded, match="32 units of the target"):
            block.scores()
