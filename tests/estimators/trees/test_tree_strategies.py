"""The four strategies differ as they should: splits and leaves by hand, growth, draws."""

import numpy as np
import pandas as pd
import pytest

from tests.estimators.trees.tree_cases import (
    ALONE,
    classes,
    grow,
    parts_of,
    pooled,
    scores,
    tables,
    train,
)
from vfsl.estimators import GBDT, LGB, XGB, RandomForest
from vfsl.estimators.trees.boosting import Boosting, draw_one_side, draw_subsample
from vfsl.estimators.trees.forest import Bagging, draw_bootstrap


def step_frame():
    """Ten rows each at x = 0, 1, 2, 3."""
    return pd.DataFrame({"x": np.repeat([0.0, 1.0, 2.0, 3.0], 10)})


def test_a_regression_stump_by_hand():
    """Means 0, 0, 6, 6: start at 3, one split in the middle, each side ±3 off."""
    target = np.repeat([0.0, 0.0, 6.0, 6.0], 10)
    exact, found = grow(
        XGB(n_estimators=1, max_depth=1, task="regression", l2=0.0, learning_rate=1.0),
        step_frame(),
        target,
    )
    assert exact.state["trees"][0]["rules"] == [[0, 0, 1, 0]]
    assert found[:, 0] == pytest.approx(target)
    assert exact.state["trees"][0]["gain"][0] == pytest.approx(0.5 * 2 * 60**2 / 20, rel=1e-6)
    # λ = 20 halves each leaf, a learning rate of 0.5 halves it again.
    _, shrunk = grow(
        XGB(n_estimators=1, max_depth=1, task="regression", l2=20.0, learning_rate=0.5),
        step_frame(),
        target,
    )
    assert shrunk[:, 0] == pytest.approx(np.repeat([3 - 0.75, 3 + 0.75], 20))


def test_first_and_second_order_choose_different_splits():
    """After a confident start curvature differs: XGB weighs rows by p (1 − p), GBDT does not.

    Row weights make class 1 rare where x is 0, so that gains with Σh and with Σw disagree.
    """
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"a": rng.integers(0, 12, 400), "b": rng.integers(0, 12, 400)})
    target = (rng.random(400) < 1 / (1 + np.exp(4 - 0.5 * frame["a"]))).astype(int)
    settings = {"n_estimators": 6, "max_depth": 2, "learning_rate": 0.8}
    first, _ = grow(GBDT(**settings), frame, target)
    second, _ = grow(XGB(**settings, l2=0.0, min_child_weight=1e-3), frame, target)
    rules = [[tree["rules"] for tree in share.state["trees"]] for share in (first, second)]
    # At the common start all rows have the same curvature: the first trees agree.
    assert rules[0][0] == rules[1][0]
    assert rules[0][1:] != rules[1][1:]


def test_leaves_of_the_first_logistic_tree_by_hand():
    """Start at the log odds; then −Σ(p − y) / Σ p (1 − p) in each leaf, for both orders."""
    target = np.array(2 * ([0] * 9 + [1]) + 2 * ([0] * 3 + [1] * 7))
    share, start = 16 / 40, np.log(16 / 24)
    for model in (
        GBDT(n_estimators=1, max_depth=1, learning_rate=1.0),
        XGB(n_estimators=1, max_depth=1, learning_rate=1.0, l2=0.0),
    ):
        _, found = grow(model, step_frame(), target)
        for rows, ones in ((slice(0, 20), 2), (slice(20, 40), 14)):
            leaf = -(20 * share - ones) / (20 * share * (1 - share))
            assert found[rows, 0] == pytest.approx(start + leaf)
    _, penalised = grow(XGB(n_estimators=1, max_depth=1, learning_rate=1.0), step_frame(), target)
    leaf = -(20 * share - 2) / (20 * share * (1 - share) + 1)
    assert penalised[0, 0] == pytest.approx(start + leaf)


def leaves(share, at=0):
    return sum(owner == -1 for owner in share.state["trees"][at]["owner"])


def deep_frame():
    """One side of the first split has much left to explain, the other little."""
    frame = pd.DataFrame({"x": np.repeat(np.arange(8.0), 20)})
    target = np.repeat([0.0, 0.1, 0.2, 0.3, 100.0, 140.0, 180.0, 220.0], 20)
    return frame, target


def test_leaf_wise_growth_follows_the_gain():
    """With four leaves LGB splits the steep side twice, XGB both sides once."""
    frame, target = deep_frame()
    exact = {"n_estimators": 1, "task": "regression", "learning_rate": 1.0, "l2": 0.0}
    steep, found = grow(LGB(**exact, max_leaves=4), frame, target)
    level, other = grow(XGB(**exact, max_depth=2), frame, target)
    assert leaves(steep) == leaves(level) == 4
    assert len(np.unique(found[target < 1])) == 1
    assert len(np.unique(found[target > 1])) == 3
    assert len(np.unique(other[target < 1])) == 2
    assert np.square(found[:, 0] - target).sum() < np.square(other[:, 0] - target).sum()


def test_leaf_wise_growth_goes_on_where_a_branch_has_ended():
    """With room for all leaves both ways end alike: a branch at full depth does not end a tree."""
    frame, target = deep_frame()
    exact = {"n_estimators": 1, "task": "regression", "learning_rate": 1.0, "l2": 0.0}
    best_first, found = grow(LGB(**exact, max_leaves=31, max_depth=3), frame, target)
    level, other = grow(XGB(**exact, max_depth=3, min_child_weight=1e-3), frame, target)
    assert leaves(level) == 8
    assert leaves(best_first) == 8
    assert found == pytest.approx(other)


@pytest.mark.parametrize("most", [2, 3, 5, 7])
def test_max_leaves_is_kept(most):
    frame, target = deep_frame()
    share, _ = grow(LGB(n_estimators=1, task="regression", max_leaves=most), frame, target)
    assert leaves(share) == most


def test_one_side_sampling_changes_the_model_and_stays_good():
    made, target = tables(rows=600)
    label = classes(target)
    parts = {"C": parts_of({"C": pooled(made)}, label)["C"]}
    settings = {"n_estimators": 5, "max_leaves": 6}
    full, sampled = LGB(**settings), LGB(**settings, goss=True, top=0.3, other=0.2)
    one, two = (train(model, parts, ALONE)["C"] for model in (full, sampled))
    assert one.state["trees"] != two.state["trees"]
    assert two.rounds[-1]["loss"] < 0.9 * np.log(2)
    nearly_all = LGB(**settings, goss=True, top=0.999, other=0.001)
    three = train(nearly_all, parts, ALONE)["C"]
    assert three.rounds[-1]["loss"] == pytest.approx(one.rounds[-1]["loss"], rel=0.05)


def test_gamma_and_child_weight_hold_splits_back():
    frame, target = deep_frame()
    exact = {"n_estimators": 1, "task": "regression", "l2": 0.0}
    free, _ = grow(XGB(**exact, max_depth=3), frame, target)
    assert leaves(free) == 8
    # The four low groups together gain 0.5 · 80 · 0.1² + 2 · 0.5 · 40 · 0.05².
    held, _ = grow(XGB(**exact, max_depth=3, gamma=50.0), frame, target)
    assert leaves(held) == 5
    heavy, _ = grow(XGB(**exact, max_depth=3, min_child_weight=40.0), frame, target)
    assert leaves(heavy) == 4


def test_column_shares_use_other_columns_in_other_trees():
    made, target = tables(rows=400)
    parts = {"C": parts_of({"C": pooled(made)}, target)["C"]}

    def used(model):
        trees = train(model, parts, ALONE)["C"].state["trees"]
        return [{rule[1] for rule in tree["rules"]} for tree in trees]

    few = used(XGB(n_estimators=8, max_depth=3, colsample=0.25, task="regression"))
    assert all(len(columns) <= 2 for columns in few)
    assert len(set.union(*few)) > 3
    by_node = used(GBDT(n_estimators=4, max_depth=3, colsample=0.25, task="regression"))
    assert max(len(columns) for columns in by_node) > 2  # each node draws anew
    forest = used(RandomForest(n_estimators=4, columns=0.25, task="regression", max_depth=3))
    assert max(len(columns) for columns in forest) > 2


def test_subsampling_rows_changes_trees():
    made, target = tables()
    parts = {"C": parts_of({"C": pooled(made)}, target)["C"]}
    whole, drawn = (
        train(XGB(n_estimators=2, subsample=share, task="regression"), parts, ALONE)["C"]
        for share in (1.0, 0.5)
    )
    assert whole.state["trees"] != drawn.state["trees"]


# ---- forests ----


def forest_case(task, count=2):
    made, target = tables(rows=250)
    label = target if task == "regression" else classes(target, count)
    return {"C": parts_of({"C": pooled(made)}, label)["C"]}, label


@pytest.mark.parametrize(("task", "count"), [("classes", 2), ("classes", 3), ("regression", 0)])
def test_out_of_bag_score_is_that_of_trees_that_did_not_draw_a_row(task, count, monkeypatch):
    """Brute force: each tree scored by itself on the rows outside its bag."""
    parts, label = forest_case(task, count)
    model = RandomForest(n_estimators=7, together=3, max_depth=4, task=task)
    bags = []
    real = Bagging.set_goals

    def spy(self, fitted, number, rng):
        made = real(self, fitted, number, rng)
        bags.extend(goal.second > 0 for goal in made)
        return made

    monkeypatch.setattr(Bagging, "set_goals", spy)
    share = train(model, parts, ALONE)["C"]
    outputs = share.state["output"]
    sums = np.zeros((len(label), max(outputs) + 1))
    counts = np.zeros_like(sums)
    for at, (bag, output) in enumerate(zip(bags, outputs, strict=True)):
        state = {**share.state, "trees": [share.state["trees"][at]], "output": [output]}
        only = type(share)(share.party, share.model, state)
        value = scores(model, parts, {"C": only}, ALONE)[:, output] * 7
        sums[~bag, output] += value[~bag]
        counts[~bag, output] += 1
    use = (counts > 0).all(axis=1)
    assert use.mean() > 0.8
    means = sums[use] / counts[use]
    if task == "regression":
        truth = label[use]
        expected = 1 - ((means[:, 0] - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
    elif count == 2:
        expected = ((means[:, 0] > 0.5) == (label[use] == 1)).mean()
    else:
        expected = (means.argmax(axis=1) == label[use]).mean()
    assert share.state["oob"] == pytest.approx(expected)


def test_a_forest_without_bootstrap_has_no_out_of_bag_score():
    parts, _ = forest_case("classes")
    share = train(RandomForest(n_estimators=2, bootstrap=False), parts, ALONE)["C"]
    assert share.state["oob"] is None


def test_a_forest_is_the_mean_of_its_trees():
    parts, label = forest_case("regression")
    model = RandomForest(
        n_estimators=1, bootstrap=False, columns="all", max_depth=2, task="regression"
    )
    share = train(model, parts, ALONE)["C"]
    found = scores(model, parts, {"C": share}, ALONE)[:, 0]
    for value in np.unique(found):
        assert value == pytest.approx(label[found == value].mean())
    many = RandomForest(
        n_estimators=5, bootstrap=False, columns="all", max_depth=2, task="regression"
    )
    again = scores(many, parts, {"C": train(many, parts, ALONE)["C"]}, ALONE)[:, 0]
    assert again == pytest.approx(found)  # five times the same tree


def test_bags_differ_from_tree_to_tree():
    rng = np.random.default_rng(0)
    one, two = (draw_bootstrap(np.ones((50, 1)), rng) for _ in range(2))
    assert not np.array_equal(one, two)


# ---- stopping ----


def test_early_stopping_keeps_the_best_round():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 4)), columns=list("abcd"))
    noise = rng.normal(size=400)
    model = XGB(n_estimators=40, task="regression", validation=0.4, patience=3)
    share, found = grow(model, frame, frame["a"].to_numpy() + noise)
    losses = [line["validation"] for line in share.rounds]
    best = int(np.argmin(losses))
    assert share.stop_reason == "no better on validation rows for 3 rounds"
    assert len(losses) == best + 1 + 3
    assert len(share.state["trees"]) == best + 1
    assert found == pytest.approx(model.training_scores(share))


def test_validation_rows_do_not_train(monkeypatch):
    seen = []
    real = Boosting.set_goals

    def spy(self, fitted, number, rng):
        made = real(self, fitted, number, rng)
        seen.append((self.validation, made[0].first, made[0].second))
        return made

    monkeypatch.setattr(Boosting, "set_goals", spy)
    frame, target = deep_frame()
    grow(XGB(n_estimators=2, task="regression", validation=0.3), frame, target)
    for judges, first, second in seen:
        assert 0 < judges.sum() < len(judges)
        assert not first[judges].any()
        assert not second[judges].any()
        assert second[~judges].all()


def test_without_validation_all_rounds_are_grown():
    frame, target = deep_frame()
    share, _ = grow(XGB(n_estimators=4, task="regression"), frame, target)
    assert share.stop_reason == "all rounds"
    assert [line["round"] for line in share.rounds] == [1, 2, 3, 4]
    losses = [line["loss"] for line in share.rounds]
    assert losses == sorted(losses, reverse=True)


# ---- draws ----


def test_goss_keeps_the_large_and_is_unbiased():
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=500)
    strength = np.abs(gradients)
    strength[:50] = 0.0  # rows outside the bag
    top = np.argsort(-strength)[:90]  # 0.2 of 450
    sums = []
    for _ in range(400):
        factors = draw_one_side(strength, 0.2, 0.1, rng)
        assert (factors[top] == 1).all()
        assert not factors[:50].any()
        others = factors[np.setdiff1d(np.arange(500), top)]
        assert (others > 0).sum() == 45
        assert set(others[others > 0]) == {360 / 45}
        sums.append((gradients * factors).sum())
    true = gradients[50:].sum()
    assert abs(np.mean(sums) - true) < 4 * np.std(sums) / 20
    assert np.std(sums) > 1  # it does draw


def test_goss_at_its_limits():
    rng = np.random.default_rng(0)
    strength = np.array([3.0, 1.0, 2.0])
    assert draw_one_side(strength, 1.0, 0.5, rng).tolist() == [1, 1, 1]
    assert draw_one_side(np.zeros(3), 0.2, 0.1, rng).tolist() == [0, 0, 0]
    # Equal gradients: the first rows count as the largest, on every machine.
    assert draw_one_side(np.ones(4), 0.5, 0.25, rng)[:2].tolist() == [1, 1]


def test_bootstrap_draws_as_often_as_rows_count():
    weights = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    drawn = draw_bootstrap(weights, np.random.default_rng(0))
    times = np.divide(drawn, weights, out=np.zeros_like(drawn), where=weights > 0)
    assert times.sum(axis=0).tolist() == [3, 3]
    assert not drawn[weights == 0].any()
    left_out = [
        (draw_bootstrap(np.ones((400, 1)), np.random.default_rng(seed)) == 0).mean()
        for seed in range(20)
    ]
    assert np.mean(left_out) == pytest.approx(np.exp(-1), abs=0.02)


def test_subsample_takes_a_fraction():
    taken = draw_subsample(10_000, 0.3, np.random.default_rng(0))
    assert taken.mean() == pytest.approx(0.3, abs=0.02)
