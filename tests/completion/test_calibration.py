"""Probabilities, expected errors, intervals and sets, by hand and by coverage."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from vfsl.completion import calibration
from vfsl.completion.calibration import ClassScale, ErrorScale, draw_folds, plain_chances, to_lists


def test_the_quantile_is_an_order_statistic():
    scores = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 9.0, 8.0, 7.0, 6.0])
    assert calibration.quantile(scores, 0.1) == 9.0  # ⌈10 × 0.9⌉ = 9th
    assert calibration.quantile(scores, 0.5) == 5.0
    assert calibration.quantile(scores[:8], 0.1) == float("inf")  # ⌈9 × 0.9⌉ = 9th of 8


def test_equal_weights_give_the_plain_quantile():
    scores = np.random.default_rng(0).exponential(size=57)
    found = calibration.weighted_quantile(scores, np.ones(57), np.ones(3), 0.1)
    assert found.tolist() == [calibration.quantile(scores, 0.1)] * 3


def test_weights_move_the_quantile():
    scores = np.array([1.0, 2.0, 3.0, 4.0])
    weights = np.array([6.0, 1.0, 1.0, 1.0])
    # Total with the new row 10: a fraction of 0.6 is reached by the first score alone.
    assert calibration.weighted_quantile(scores, weights, np.array([1.0]), 0.4).tolist() == [1.0]
    assert calibration.weighted_quantile(scores, weights, np.array([1.0]), 0.25).tolist() == [3.0]
    assert calibration.weighted_quantile(scores, weights, np.array([91.0]), 0.1).tolist() == [
        np.inf
    ]


def test_split_intervals_scale_with_the_expected_error():
    scores = calibration.split_scores(
        np.array([3.0, 10.0]), np.array([1.0, 4.0]), np.array([2.0, 3])
    )
    assert scores.tolist() == [1.0, 2.0]
    low, high = calibration.split_interval(np.array([5.0, 5.0]), 2.0, np.array([0.5, 3.0]))
    assert (low.tolist(), high.tolist()) == ([4.0, -1.0], [6.0, 11.0])


def test_lac_by_hand():
    chances = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])
    np.testing.assert_allclose(calibration.lac_scores(chances, np.array([0, 1])), [0.3, 0.7])
    assert calibration.lac_sets(chances, 0.7).tolist() == [[True, False, False], [True, True, True]]


def test_class_sets_cover():
    rng = np.random.default_rng(1)
    chances = rng.dirichlet(np.ones(4), size=4000)
    truth = np.array([rng.choice(4, p=row) for row in chances])
    old, new = slice(0, 2000), slice(2000, None)
    q = calibration.quantile(calibration.lac_scores(chances[old], truth[old]), 0.1)
    sets = calibration.lac_sets(chances[new], q)
    assert abs(sets[np.arange(2000), truth[new]].mean() - 0.9) < 0.03


def test_weights_repair_a_shift_that_plain_quantiles_do_not():
    rng = np.random.default_rng(2)
    x = rng.normal(size=6000)
    y = x + rng.normal(size=6000) * np.exp(x)
    rest = rng.random(6000) < 1 / (1 + np.exp(-x))
    scores = calibration.split_scores(y, x)
    weights = calibration.odds(1 / (1 + np.exp(-x)))
    plain = (scores[rest] <= calibration.quantile(scores[~rest], 0.1)).mean()
    q = calibration.weighted_quantile(scores[~rest], weights[~rest], weights[rest], 0.1)
    assert plain < 0.85
    assert abs((scores[rest] <= q).mean() - 0.9) < 0.04


def test_folds_are_drawn_and_of_equal_size():
    one, two = (draw_folds(103, 5, np.random.default_rng(seed)) for seed in (0, 1))
    assert np.bincount(one).tolist() == [21, 21, 21, 20, 20]
    assert 0.1 < (one == two).mean() < 0.3
    assert (one != np.arange(103) % 5).any()


def test_class_scales_are_logistic_models_of_the_scores():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(400, 2))
    codes = (scores + rng.normal(size=(400, 2))).argmax(axis=1) + (scores[:, 0] > 1)
    scale = ClassScale.fit(scores, codes, 4)
    inside = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    model = LogisticRegression(max_iter=1000).fit(inside, codes)
    np.testing.assert_allclose(scale.chances(scores)[:, :3], model.predict_proba(inside), atol=1e-9)
    assert (scale.chances(scores)[:, 3] == 0).all()  # a class that was never seen
    again = ClassScale.from_dict(json.loads(json.dumps(to_lists(scale))))
    np.testing.assert_array_equal(again.chances(scores), scale.chances(scores))
    two = ClassScale.fit(scores[:, :1], (scores[:, 0] > 0).astype(int), 2)
    assert (two.chances(scores[:, :1]).argmax(axis=1) == (scores[:, 0] > 0)).mean() > 0.95
    one = ClassScale.fit(scores, np.full(400, 2), 3)
    assert one.chances(scores)[0].tolist() == [0, 0, 1]


def test_linear_scores_count_as_probabilities_where_nothing_scales_them():
    made = plain_chances(np.array([[0.2, 0.3], [1.4, -0.2], [-0.1, -0.3]]))
    np.testing.assert_allclose(made, [[0.5, 0.2, 0.3], [0, 1, 0], [1, 0, 0]])


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


# ---- from sums of errors ------------------------------------------------------------------------


def test_drawn_errors_have_the_measured_sums():
    rng = np.random.default_rng(0)
    parts, known = rng.permutation(np.arange(120) % 4), rng.random(120) < 0.8
    beyond, real = rng.normal(size=120), rng.standard_t(3, size=120)
    real -= 0.5 * beyond
    both = [np.bincount(parts[known], weights=(real * other)[known]) for other in (real, beyond)]
    drawn = calibration.draw_errors(*both, beyond, known, parts, np.random.default_rng(1))
    for sums, other in zip(both, (drawn, beyond), strict=True):
        found = np.bincount(parts[known], weights=(drawn * other)[known])
        np.testing.assert_allclose(found, sums)
    assert abs(np.corrcoef((real + 0.5 * beyond)[known], drawn[known])[0, 1]) < 0.3


def test_a_score_reaches_a_probability():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 400)
    scores = (codes + rng.normal(size=400))[:, None]
    scale = ClassScale.fit(scores, codes, 2)
    for alpha in (0.5, 0.8):
        sure = scale.chances(scores)[:, 1] >= alpha
        np.testing.assert_array_equal(scores[:, 0] >= scale.reaches(alpha), sure)
    assert scale.reaches(1.0) == np.inf
    assert ClassScale.fit(-scores, codes, 2).reaches(0.8) == np.inf


def test_a_constant_error_is_that_of_normal_errors():
    errors = np.random.default_rng(0).normal(scale=3.0, size=100_000)
    scale = ErrorScale.constant(float((errors**2).mean()))
    assert scale.expected(np.array([-5.0, 40.0])).tolist() == pytest.approx(
        [np.abs(errors).mean()] * 2, rel=0.01
    )
