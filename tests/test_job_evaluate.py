"""Measures, bootstrap bounds, baselines and rows held out, each against an independent value."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score, root_mean_squared_error

from vfsl.data import PartyTable
from vfsl.job.evaluate import (
    OWN_LINEAR,
    OWN_TREES,
    PRIOR,
    Bootstrap,
    auc,
    compare_models,
    give_verdict,
    measure_answer,
    measures_for,
    order_chances,
    predict_alone,
)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=60))
def test_auc_is_that_of_scikit_learn(rows):
    positive = np.array([row[0] for row in rows])
    scores = np.array([float(row[1]) for row in rows])
    if positive.all() or not positive.any():
        assert np.isnan(auc(positive, scores))
    else:
        assert auc(positive, scores) == pytest.approx(roc_auc_score(positive, scores))


def test_measures_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 80)
    chances = rng.dirichlet(np.ones(3), 80)
    assert measure_answer("accuracy", truth, chances) == accuracy_score(
        truth, chances.argmax(axis=1)
    )
    assert measure_answer("log loss", truth, chances) == pytest.approx(log_loss(truth, chances))
    numbers, guess = rng.normal(size=80), rng.normal(size=80)
    assert measure_answer("RMSE", numbers, guess) == pytest.approx(
        root_mean_squared_error(numbers, guess)
    )
    assert measures_for(None) == ("RMSE",)
    assert measures_for(2)[0] == "AUC"
    assert "AUC" not in measures_for(3)


def test_a_class_without_chance_costs_much_but_not_everything():
    truth, chances = np.array([0, 1]), np.array([[1.0, 0.0], [1.0, 0.0]])
    assert measure_answer("log loss", truth, chances) == pytest.approx(-np.log(1e-15) / 2)


def test_bounds_hold_the_true_value_about_as_often_as_they_say():
    """The mean of squares of normal numbers: 90 % bounds of RMSE, 200 times."""
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        truth = rng.normal(size=100)
        found = Bootstrap(truth, 200, 0.9, rng).interval("RMSE", np.zeros(100))
        inside += found.low <= 1.0 <= found.high
    assert 165 <= inside <= 195


def test_gains_are_paired_and_positive_is_better():
    rng = np.random.default_rng(2)
    truth = rng.normal(size=300)
    near, far = truth + 0.1, truth + 0.5
    boot = Bootstrap(truth, 200, 0.95, rng)
    gain = boot.gain("RMSE", near, far)
    assert gain.value == pytest.approx(0.4)
    assert gain.low == pytest.approx(0.4)  # the difference is the same on any rows
    assert gain.high == pytest.approx(0.4)
    assert boot.gain("RMSE", far, near).value == pytest.approx(-0.4)


def test_the_verdict_is_about_the_best_model_and_the_best_baseline():
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 400)

    def chances(noise):
        score = 1 / (1 + np.exp(-(2.0 * truth - 1 + noise * rng.normal(size=400))))
        return np.column_stack([1 - score, score])

    good, fair, poor = chances(0.5), chances(2.0), chances(20.0)
    boot = Bootstrap(truth, 200, 0.95, rng)
    lines, gains = compare_models(boot, ("AUC",), {"m": good}, {"x": fair, "y": poor})
    assert [line["model"] for line in lines] == ["m", "x", "y"]
    assert gains[0]["over"] == "x"
    assert give_verdict(gains, "A", 0.95).startswith("m: AUC better by ")
    _, gains = compare_models(boot, ("AUC",), {"m": poor}, {"x": good})
    text = give_verdict(gains, "A", 0.95)
    assert text.startswith("No model is better than x")
    assert text.endswith("use what A has alone.")
    _, gains = compare_models(boot, ("AUC",), {"m": good}, {"x": good - 0.0})
    assert "No model is better" in give_verdict(gains, "A", 0.95)


def test_baselines_see_own_columns_only_and_the_prior_sees_none():
    rng = np.random.default_rng(4)
    x = rng.normal(size=300)
    frame = pd.DataFrame({"id": [str(i) for i in range(300)], "x": x, "c": ["u", "v"] * 150})
    table = PartyTable.from_frame(frame, party="A", id="id")
    train, test = np.arange(200), np.arange(200, 300)
    classes = (x > 0).astype(int)
    found = predict_alone(table, train, classes[:200], test, ["n", "y"], rng)
    assert list(found) == [OWN_TREES, OWN_LINEAR, PRIOR]
    for name in (OWN_TREES, OWN_LINEAR):
        assert measure_answer("AUC", classes[200:], found[name]) > 0.98
        np.testing.assert_allclose(found[name].sum(axis=1), 1.0)
    np.testing.assert_allclose(found[PRIOR][:, 1], classes[:200].mean())
    numbers = predict_alone(table, train, x[:200] * 3, test, None, rng)
    assert measure_answer("RMSE", x[200:] * 3, numbers[OWN_LINEAR]) < 0.2
    assert measure_answer("RMSE", x[200:] * 3, numbers[OWN_TREES]) < 0.8
    np.testing.assert_allclose(numbers[PRIOR], (x[:200] * 3).mean())


def test_classes_that_a_model_never_saw_get_no_chance():
    whole = order_chances(np.array([[0.4, 0.6]]), [0, 2], 3)
    np.testing.assert_allclose(whole, [[0.4, 0.0, 0.6]])
