"""Losses of trees: derivatives by differences, starts as minima, targets, and fitted leaves."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from vfsl.data import PartyTable
from vfsl.errors import ConfigError, DataError
from vfsl.estimators.trees.boosting import Logistic, Softmax, Squared
from vfsl.estimators.trees.forest import Bagging, Means
from vfsl.estimators.trees.splits import Penalty
from vfsl.estimators.trees.training import make_goal, read_label, solve_leaves
from vfsl.parts import Part

ROWS = 12


def cases():
    rng = np.random.default_rng(3)
    binary = rng.integers(0, 2, ROWS).astype(float)
    return {
        "squared": Squared(rng.normal(size=ROWS)),
        "logistic": Logistic(binary),
        "softmax": Softmax(rng.permutation(ROWS) % 3, 3),
        "means": Means(rng.normal(size=(ROWS, 2))),
    }


def weights(models=2):
    drawn = np.random.default_rng(4).random((ROWS, models)) + 0.2
    drawn[0] = 0.0
    return drawn


def total(objective, scores, row_weights):
    """The weighted sum, of which the derivatives are taken; loss() is the weighted mean."""
    return objective.loss(scores, row_weights) * row_weights.sum(axis=0)


def slope(objective, scores, row_weights, row, output, by=1e-5):
    up, down = scores.copy(), scores.copy()
    up[row, output] += by
    down[row, output] -= by
    change = total(objective, up, row_weights) - total(objective, down, row_weights)
    return change[output // objective.outputs] / (2 * by)


@pytest.mark.parametrize("name", ["squared", "logistic", "softmax"])
def test_gradients_are_slopes_of_the_loss(name):
    objective, row_weights = cases()[name], weights()
    scores = np.random.default_rng(5).normal(size=(ROWS, 2 * objective.outputs))
    first, _ = objective.gradients(scores, row_weights)
    assert first.shape == scores.shape
    for row in range(ROWS):
        for output in range(scores.shape[1]):
            found = slope(objective, scores, row_weights, row, output)
            assert first[row, output] == pytest.approx(found, abs=1e-7)


@pytest.mark.parametrize(("name", "factor"), [("squared", 1), ("logistic", 1), ("softmax", 2)])
def test_curvature_is_the_slope_of_the_gradient(name, factor):
    """For several classes twice the diagonal, which bounds the full curvature."""
    objective, row_weights, by = cases()[name], weights(), 1e-5
    scores = np.random.default_rng(6).normal(size=(ROWS, 2 * objective.outputs))
    _, second = objective.gradients(scores, row_weights)
    for output in range(scores.shape[1]):
        step = np.zeros_like(scores)
        step[:, output] = by
        up, _ = objective.gradients(scores + step, row_weights)
        down, _ = objective.gradients(scores - step, row_weights)
        found = factor * (up[:, output] - down[:, output]) / (2 * by)
        assert second[:, output] == pytest.approx(found, abs=1e-7)


@pytest.mark.parametrize("name", ["squared", "logistic", "softmax"])
def test_starts_are_the_best_constants(name):
    objective, row_weights = cases()[name], weights()
    start = objective.start(row_weights)
    scores = np.tile(start, (ROWS, 1))
    first, _ = objective.gradients(scores, row_weights)
    assert first.sum(axis=0) == pytest.approx(0, abs=1e-9)
    best = total(objective, scores, row_weights)
    for at in range(len(start)):
        for step in (-0.01, 0.01):
            moved = scores.copy()
            moved[:, at] += step
            model = at // objective.outputs
            assert total(objective, moved, row_weights)[model] > best[model]


def test_a_bag_of_one_class_has_a_finite_start():
    start = Logistic(np.ones(4)).start(np.ones((4, 1)))
    assert np.isfinite(start).all()
    assert expit(start)[0] > 0.99999


def test_extreme_scores_are_safe():
    scores = np.array([[800.0], [-800.0]])
    objective = Logistic(np.array([0.0, 1.0]))
    first, second = objective.gradients(scores, np.ones((2, 1)))
    assert first.ravel().tolist() == [1.0, -1.0]
    assert (second > 0).all()
    assert objective.loss(scores, np.ones((2, 1)))[0] == pytest.approx(800)
    scores = np.array([[800.0, -800.0, 0.0]])
    first, second = Softmax(np.array([1]), 3).gradients(scores, np.ones((1, 1)))
    assert first.ravel().tolist() == [1.0, -1.0, 0.0]
    assert (second > 0).all()


def test_means_fit_the_weighted_mean_of_a_leaf():
    objective, row_weights = cases()["means"], weights(1)
    first, second = objective.gradients(np.zeros((ROWS, 2)), row_weights)
    leaf = np.arange(ROWS) % 3
    for output in range(2):
        goal = make_goal(first[:, output], second[:, output], second[:, output], output)
        found = solve_leaves(leaf, 3, goal, 0.0)
        for node in range(3):
            rows = leaf == node
            mean = np.average(objective.targets[rows, output], weights=row_weights[rows, 0])
            assert found[node] == pytest.approx(mean)


def test_the_gain_of_means_is_the_drop_of_gini():
    """½ Σ (G²/H) falls by n/4 times Gini for two classes: the same split is best."""
    rng = np.random.default_rng(7)
    y = rng.integers(0, 2, 40).astype(float)
    side = rng.random(40) < 0.4

    def gini(part):
        share = part.mean()
        return len(part) * 2 * share * (1 - share)

    def fit(part):
        return 0.5 * part.sum() ** 2 / len(part)

    gain = fit(y[side]) + fit(y[~side]) - fit(y)
    drop = gini(y) - gini(y[side]) - gini(y[~side])
    assert gain == pytest.approx(drop / 4)


def test_leaf_values_by_hand():
    leaf = np.array([0, 0, 2, 2])
    first, second = np.array([1.0, 2.0, -3.0, 0.0]), np.array([1.0, 1.0, 2.0, 0.0])
    goal = make_goal(first, second, second, 0)
    assert solve_leaves(leaf, 3, goal, 0.0).tolist() == [-1.5, 0.0, 1.5]
    assert solve_leaves(leaf, 3, goal, 1.0).tolist() == [-1.0, 0.0, 1.0]


def oob_score(targets, classes, means):
    """Of a forest whose trees left out the first three of four rows, with these means."""
    how = {"rounds": 1, "step": 1.0, "penalty": Penalty(), "trees": 1, "together": 1}
    bagging = Bagging(objective=Means(targets), weights=np.ones((4, 1)), classes=classes, **how)
    outside = np.array([[1.0], [1.0], [1.0], [0.0]]) * np.ones(targets.shape)
    bagging._out_counts, bagging._out_sums = outside, np.vstack([means, means[:1]]) * outside
    return bagging.oob_score()


def test_the_score_out_of_the_bag_is_accuracy_or_r_squared():
    truth = np.array([[1.0], [2.0], [3.0], [6.0]])
    assert oob_score(truth, 0, np.array([[1.0], [2.0], [4.0]])) == pytest.approx(0.5)
    two = np.array([[1.0], [0.0], [1.0], [0.0]])
    assert oob_score(two, 2, np.array([[0.7], [0.2], [0.4]])) == pytest.approx(2 / 3)
    guess = np.array([[0.9, 0.1, 0], [0.5, 0.4, 0], [0, 0, 1.0]])
    assert oob_score(np.eye(3)[[0, 1, 2, 0]], 3, guess) == pytest.approx(2 / 3)


# ---- targets ----


def label_of(target, task):
    frame = pd.DataFrame({"id": [f"p{row}" for row in range(4)], "x": np.arange(4.0)})
    table = PartyTable.from_frame(frame, party="C", id="id")
    values = None if target is None else np.array(target, dtype=object)
    return read_label("C", Part(table, np.arange(len(target or ())), values), task)


def test_classes_are_coded_in_order_and_unknown_ones_weigh_nothing():
    label = label_of(["no", None, "yes", "no"], "classes")
    assert label.target.tolist() == [0, 0, 1, 0]
    assert label.facts == {"task": "binary", "classes": ["no", "yes"]}
    assert (label.weights[:, 0] > 0).tolist() == [True, False, True, True]


def test_numbers_stay_numbers():
    label = label_of([1, None, 2.5], "regression")
    assert label.target.tolist() == [1.0, 0.0, 2.5]
    assert label.facts == {"task": "regression"}
    assert (label.weights[:, 0] > 0).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("target", "task", "message"),
    [
        ([None, None, 1], "classes", "'C' has 1 aligned rows with a known label; at least 2"),
        ([1, 1, 1], "classes", "at least two among the labelled aligned rows of party 'C'"),
        (["a", "b"], "regression", "'C' must be numbers for a regression; use task='classes'"),
        ([1.0, float("inf")], "regression", "'C' has values that are not finite"),
    ],
)
def test_targets_that_cannot_be_used(target, task, message):
    with pytest.raises(DataError, match=message):
        label_of(target, task)


def test_the_label_holder_needs_a_target():
    with pytest.raises(ConfigError, match="'C' holds the label but was given no target"):
        label_of(None, "classes")
