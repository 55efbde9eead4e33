"""Conformal intervals and sets, against values worked out by hand and by coverage."""

import numpy as np
import pytest

from vfsl.completion import conformal


def test_the_quantile_is_an_order_statistic():
    scores = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 9.0, 8.0, 7.0, 6.0])
    assert conformal.quantile(scores, 0.1) == 9.0  # ⌈10 × 0.9⌉ = 9th
    assert conformal.quantile(scores, 0.5) == 5.0
    assert conformal.quantile(scores[:8], 0.1) == float("inf")  # ⌈9 × 0.9⌉ = 9th of 8


def test_equal_weights_give_the_plain_quantile():
    scores = np.random.default_rng(0).exponential(size=57)
    found = conformal.weighted_quantile(scores, np.ones(57), np.ones(3), 0.1)
    assert found.tolist() == [conformal.quantile(scores, 0.1)] * 3


def test_weights_move_the_quantile():
    scores = np.array([1.0, 2.0, 3.0, 4.0])
    weights = np.array([6.0, 1.0, 1.0, 1.0])
    # Total with the new row 10: a share of 0.6 is reached by the first score alone.
    assert conformal.weighted_quantile(scores, weights, np.array([1.0]), 0.4).tolist() == [1.0]
    assert conformal.weighted_quantile(scores, weights, np.array([1.0]), 0.25).tolist() == [3.0]
    assert conformal.weighted_quantile(scores, weights, np.array([91.0]), 0.1).tolist() == [np.inf]


def test_split_intervals_scale_with_the_expected_error():
    scores = conformal.split_scores(np.array([3.0, 10.0]), np.array([1.0, 4.0]), np.array([2.0, 3]))
    assert scores.tolist() == [1.0, 2.0]
    low, high = conformal.split_interval(np.array([5.0, 5.0]), 2.0, np.array([0.5, 3.0]))
    assert (low.tolist(), high.tolist()) == ([4.0, -1.0], [6.0, 11.0])


def test_quantile_regression_is_widened_or_narrowed():
    scores = conformal.cqr_scores(np.array([1.0, 5.0]), np.array([2.0, 2.0]), np.array([6.0, 6.0]))
    assert scores.tolist() == [1.0, -1.0]
    low, high = conformal.cqr_interval(np.array([2.0]), np.array([6.0]), -1.0)
    assert (low.tolist(), high.tolist()) == ([3.0], [5.0])


def test_lac_by_hand():
    chances = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])
    np.testing.assert_allclose(conformal.lac_scores(chances, np.array([0, 1])), [0.3, 0.7])
    assert conformal.lac_sets(chances, 0.7).tolist() == [[True, False, False], [True, True, True]]


def test_aps_by_hand():
    chances = np.array([[0.5, 0.3, 0.2]])
    draws = np.array([0.5])
    assert conformal.aps_scores(chances, np.array([1]), draws).tolist() == [0.5 + 0.15]
    assert conformal.aps_sets(chances, 0.65, draws).tolist() == [[True, True, False]]
    assert conformal.aps_sets(chances, 0.0, draws).tolist() == [[True, False, False]]


@pytest.mark.parametrize("measure", ["lac", "aps"])
def test_class_sets_cover(measure):
    rng = np.random.default_rng(1)
    chances = rng.dirichlet(np.ones(4), size=4000)
    truth = np.array([rng.choice(4, p=row) for row in chances])
    draws = rng.random(4000)
    old, new = slice(0, 2000), slice(2000, None)
    if measure == "lac":
        q = conformal.quantile(conformal.lac_scores(chances[old], truth[old]), 0.1)
        sets = conformal.lac_sets(chances[new], q)
    else:
        q = conformal.quantile(conformal.aps_scores(chances[old], truth[old], draws[old]), 0.1)
        sets = conformal.aps_sets(chances[new], q, draws[new])
    assert abs(sets[np.arange(2000), truth[new]].mean() - 0.9) < 0.03


def test_weights_repair_a_shift_that_plain_quantiles_do_not():
    rng = np.random.default_rng(2)
    x = rng.normal(size=6000)
    y = x + rng.normal(size=6000) * np.exp(x)
    rest = rng.random(6000) < 1 / (1 + np.exp(-x))
    scores = conformal.split_scores(y, x)
    weights = conformal.odds(1 / (1 + np.exp(-x)))
    plain = (scores[rest] <= conformal.quantile(scores[~rest], 0.1)).mean()
    q = conformal.weighted_quantile(scores[~rest], weights[~rest], weights[rest], 0.1)
    assert plain < 0.85
    assert abs((scores[rest] <= q).mean() - 0.9) < 0.04
