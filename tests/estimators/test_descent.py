"""Conjugate gradients over blocks of columns, against direct solves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.errors import BoundExceeded
from vfsl.estimators.descent import Block, Terms, Width, choose_step, encode


def solve(blocks, target, *, rounds=60, tolerance=1e-7):
    """The federated loop without messages: blocks only share sums."""
    wanted = encode(target, blocks[0].width.scores)
    gain = first = 0.0
    for number in range(rounds):
        residual = sum(block.scores() for block in blocks) - wanted
        sums = [block.columns.T @ residual for block in blocks]
        if number == 0:
            gain = first = sum(b.begin(s) for b, s in zip(blocks, sums, strict=True))
            continue
        terms = [b.measure(s) for b, s in zip(blocks, sums, strict=True)]
        step, gain, stop = choose_step(terms, gain, first, tolerance)
        for block in blocks:
            block.move(step)
        if stop:
            return number, stop
    return rounds, "max_rounds"


def problem(seed, rows, sizes, mixing=1.0):
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 2))
    parts = [rng.normal(size=(rows, d)) + mixing * common @ rng.normal(size=(2, d)) for d in sizes]
    parts = [(part - part.mean(0)) / part.std(0) for part in parts]
    target = np.hstack(parts) @ rng.normal(size=sum(sizes)) + rng.normal(size=rows)
    return parts, (target - target.mean()) / target.std()


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    rows=st.integers(60, 400),
    l2=st.sampled_from([0.0, 0.01, 1.0]),
)
def test_blocks_find_the_pooled_solution(seed, sizes, rows, l2):
    parts, target = problem(seed, rows, sizes)
    width = Width.for_rows(rows)
    blocks = [Block(part, np.full(part.shape[1], l2), width) for part in parts]
    number, _ = solve(blocks, target)
    pooled = np.hstack(parts)
    gram = pooled.T @ pooled / rows + l2 * np.eye(pooled.shape[1])
    reference = np.linalg.solve(gram, pooled.T @ target / rows)
    found = np.concatenate([block.weights for block in blocks])
    assert np.abs(pooled @ (found - reference)).max() < 1e-5
    # In exact arithmetic: as many rounds as columns. Rounding costs a few more.
    assert number <= 2 * sum(sizes) + 5


def test_columns_that_repeat_across_parties_do_no_harm():
    parts, target = problem(1, 200, [3, 3])
    parts[1][:, 0] = parts[0][:, 0]
    parts[1][:, 1] = parts[1][:, 2]
    width = Width.for_rows(200)
    blocks = [Block(part, np.zeros(3), width) for part in parts]
    solve(blocks, target)
    pooled = np.hstack(parts)
    fitted = pooled @ np.concatenate([block.weights for block in blocks])
    reference = pooled @ np.linalg.lstsq(pooled, target, rcond=None)[0]
    assert np.abs(fitted - reference).max() < 1e-5


def test_a_party_without_columns_takes_part():
    parts, target = problem(2, 100, [3, 1])
    width = Width.for_rows(100)
    blocks = [Block(parts[0], np.zeros(3), width), Block(np.zeros((100, 0)), np.zeros(0), width)]
    solve(blocks, target)
    reference = np.linalg.lstsq(parts[0], target, rcond=None)[0]
    np.testing.assert_allclose(blocks[0].weights, reference, atol=1e-6)


def test_width_keeps_sums_within_its_bits():
    for rows in (10, 1000, 30_000, 1_000_000):
        width = Width.for_rows(rows)
        bits = width.columns + width.scores + width.score_range + np.log2(rows)
        assert bits <= 56
        assert min(width.scores, width.columns) >= 15


def test_step_is_the_minimum_along_the_direction():
    """One variable by hand: f = ½·4w² − 4w, M = 2, from w = 0: g = −4, p = 2, Ap = 8."""
    gain = (-4.0) * (-4.0) / 2
    terms = [Terms(curvature=2 * 8.0, overlap=8.0 * (-2.0), spread=8.0 * 8 / 2, fit=0, penalty=0)]
    step, after, stop = choose_step(terms, gain, gain, 1e-7)
    assert step.length * 2 == pytest.approx(1.0)  # the minimum is at w = 1
    assert after == pytest.approx(0.0)
    assert stop == "converged"


def test_no_curvature_and_growing_noise_end_the_descent():
    flat = [Terms(0.0, 0.0, 0.0, 0.0, 0.0)]
    assert choose_step(flat, 1.0, 1.0, 1e-7)[2] == "precision"
    noisy = [Terms(curvature=1e-12, overlap=1e-12, spread=1e-11, fit=0, penalty=0)]
    step, gain, stop = choose_step(noisy, 1e-12, 1.0, 1e-7)
    assert (step.length, gain, stop) == (0.0, 1e-12, "precision")


def test_runaway_values_raise_instead_of_wrapping():
    block = Block(np.ones((50, 1)), np.zeros(1), Width.for_rows(50))
    block.trial = np.array([200 << block.width.weights])
    with pytest.raises(BoundExceeded, match="64 standard deviations"):
        block.scores()
    block.trial = np.array([1 << 61])  # wraps in int64, and is noticed all the same
    with pytest.raises(BoundExceeded, match="64 standard deviations"):
        block.scores()
