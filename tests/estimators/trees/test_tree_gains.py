"""Gains, ties, and gradients as integers: against brute force and by hand."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from vfsl.estimators.trees.gains import (
    FOLD_BITS,
    Penalty,
    best_of_each,
    gains,
    quantise,
    row_bound,
)

from vfsl.crypto.slots import fold, unfold

SMALL = st.floats(-1e6, 1e6, allow_subnormal=False)


def gain_of(left, total, penalty, scale=(1.0, 1.0)):
    left, total = np.array([left]), np.array([total])
    return float(gains(left, total, np.broadcast_to(scale, left.shape), penalty)[0])


def test_gains_by_hand():
    """G_L = 2, H_L = 1, G_R = −4, H_R = 3: with λ = 1, ½ (4/2 + 16/4 − 4/5)."""
    assert gain_of((2, 1), (-2, 4), Penalty(l2=1.0)) == pytest.approx(0.5 * (2 + 4 - 0.8))
    assert gain_of((2, 1), (-2, 4), Penalty(l2=0.0)) == pytest.approx(0.5 * (4 + 16 / 3 - 1))
    # The same with ten steps to 1 in g and a hundred in h.
    assert gain_of((20, 100), (-20, 400), Penalty(l2=1.0), (10.0, 100.0)) == pytest.approx(2.6)


def test_a_side_that_is_too_light_gains_nothing():
    assert gain_of((2, 1), (-2, 4), Penalty(least_weight=1.5)) == -np.inf
    assert gain_of((2, 3), (-2, 4), Penalty(least_weight=1.5)) == -np.inf
    assert gain_of((2, 2), (-2, 4), Penalty(least_weight=1.5)) > 0
    assert gain_of((0, 0), (-2, 4), Penalty(l2=0.0, least_weight=0.0)) == -np.inf
    assert gain_of((0, 0), (0, 0), Penalty(l2=0.0, least_weight=0.0)) == -np.inf


@given(
    arrays(np.int64, (6, 2), elements=st.integers(0, 1000)),
    arrays(np.int64, (6, 2), elements=st.integers(0, 1000)),
    st.floats(0, 10),
    st.floats(0, 50),
)
def test_gains_are_the_drop_of_the_penalised_loss(left, right, l2, least):
    """min over w of G w + ½ (H + λ) w² is −½ G² / (H + λ): the gain is what two leaves save."""
    steps = np.broadcast_to((3.0, 7.0), left.shape)
    found = gains(left, left + right, steps, Penalty(l2, 0, least))

    def best(g, h):
        return -0.5 * (g / 3) ** 2 / (h / 7 + l2)

    for one, two, gain in zip(left, right, found, strict=True):
        if min(one[1], two[1]) / 7 < least or min(one[1], two[1]) / 7 + l2 <= 0:
            assert gain == -np.inf
        else:
            saved = best(*(one + two)) - best(*one) - best(*two)
            assert gain == pytest.approx(saved, rel=1e-9, abs=1e-9)


@example(np.array([[255, 0], [0, 0]]), 3.6e-304)  # passes the largest float where h is nothing
@given(arrays(np.int64, (2, 2), elements=st.integers(0, 10**6)), st.floats(0, 10))
def test_mirrored_splits_tie_exactly(sides, l2):
    """A split and its mirror image must not differ by rounding, or plain and encrypted could."""
    one, two = sides
    assert gain_of(one, one + two, Penalty(l2)) == gain_of(two, one + two, Penalty(l2))


def test_best_of_each_with_empty_runs_and_ties():
    values = np.array([1.0, 3.0, 3.0, -np.inf, 2.0])
    best, ties = best_of_each(values, np.array([0, 0, 3, 4, 5]))
    assert best.tolist() == [-np.inf, 3.0, -np.inf, 2.0, -np.inf]
    assert ties.tolist() == [False, True, True, True, True]
    best, ties = best_of_each(np.zeros(0), np.array([0, 0]))
    assert best.tolist() == [-np.inf, -np.inf]
    assert len(ties) == 0


@given(st.lists(st.lists(st.integers(-3, 3), max_size=5), min_size=1, max_size=6))
def test_best_of_each_against_a_loop(runs):
    values = np.array([value for run in runs for value in run], dtype=float)
    lengths = np.array([len(run) for run in runs])
    best, ties = best_of_each(values, np.cumsum(lengths) - lengths)
    assert best.tolist() == [max(run, default=-np.inf) for run in runs]
    assert ties.tolist() == [value == max(run) for run in runs for value in run]


@given(
    arrays(np.float64, st.integers(1, 40), elements=SMALL),
    st.integers(0, 2**32 - 1),
)
def test_integer_gradients_fit_and_fold_exactly(g, seed):
    """Whatever rows are summed, two numbers of 29 bits come back from one."""
    h = np.random.default_rng(seed).random(len(g))
    values, scale = quantise(g, h, len(g))
    # Half a step each, and the division by a scale that is itself rounded.
    assert np.abs(values[:, 0] / scale.g - g).max() <= 0.51 / scale.g
    assert np.abs(values[:, 1] / scale.h - h).max() <= 0.51 / scale.h
    assert np.abs(values).sum(axis=0).max() < 1 << (FOLD_BITS - 1)
    folded = fold(values, FOLD_BITS)
    assert np.abs(folded).max() <= row_bound(len(g))
    bag = np.random.default_rng(seed).random(len(g)) < 0.5
    for rows in (slice(None), bag, ~bag):
        total = folded[rows].sum(keepdims=True)
        assert unfold(total, 2, FOLD_BITS)[0].tolist() == values[rows].sum(axis=0).tolist()


def test_the_largest_sums_fit():
    for rows in (1, 3, 1000, 1 << 20):
        g = np.full(rows, -1.0)
        values, _ = quantise(g, np.ones(rows), rows)
        total = fold(values, FOLD_BITS).sum(keepdims=True)
        assert unfold(total, 2, FOLD_BITS)[0].tolist() == values.sum(axis=0).tolist()
        assert values[0, 1] >= (1 << (FOLD_BITS - 1)) // rows - 1  # the space is used


def test_zero_gradients_stay_zero():
    values, scale = quantise(np.zeros(5), np.zeros(5), 5)
    assert not values.any()
    assert np.isfinite(scale).all()
