"""Federated linear and logistic regression: lossless, and the same everywhere."""

from functools import partial

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression as PooledLeastSquares
from sklearn.linear_model import LogisticRegression as PooledLogistic
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from tests.estimators.linear_cases import (
    BFV,
    EXACT,
    PAILLIER,
    PLAIN,
    LinearInRounds,
    LogisticInRounds,
    classes,
    fitted,
    in_units,
    parts_of,
    pooled_matrix,
    scores,
    tables,
    train,
)
from vfsl.channel import run_together
from vfsl.data import PartyTable
from vfsl.errors import BoundExceeded, ConfigError, DataError
from vfsl.estimators import Roles
from vfsl.estimators.linear import touching_quadratic
from vfsl.estimators.privacy import Rarest, find_rarest_class, find_rarest_number

# ---- lossless ------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [("B",), ("B", "D"), ("B", "D", "E")])
def test_predictions_equal_pooled_least_squares(parties):
    made, target = tables(parties=parties)
    roles = Roles("C", parties, "K", "plain")
    shares, found = fitted(LinearInRounds(), parts_of(made, target), roles)
    matrix = pooled_matrix(made)
    reference = PooledLeastSquares().fit(matrix, target).predict(matrix)
    np.testing.assert_allclose(in_units(found, shares["C"]), reference, atol=1e-5)
    assert shares["C"].stop_reason in ("converged", "precision")
    unexplained = ((target - reference) ** 2).mean() / target.var()
    assert 2 * shares["C"].rounds[-1]["objective"] == pytest.approx(unexplained, abs=1e-6)


def test_ridge_equals_the_pooled_ridge():
    made, target = tables()
    shares, found = fitted(LinearInRounds(l2=0.3), parts_of(made, target))
    matrix = pooled_matrix(made)
    reference = Ridge(alpha=0.3 * len(target)).fit(matrix, target).predict(matrix)
    np.testing.assert_allclose(in_units(found, shares["C"]), reference, atol=1e-5)


@pytest.mark.parametrize("parties", [("B",), ("B", "D")])
def test_row_weights_equal_pooled_row_weights(parties):
    made, target = tables(parties=parties)
    weights = np.random.default_rng(0).uniform(0, 3, size=240)
    roles = Roles("C", parties, "K", "plain")
    shares, found = fitted(LinearInRounds(), parts_of(made, target, weights=weights), roles)
    matrix = pooled_matrix(made)
    reference = PooledLeastSquares().fit(matrix, target, sample_weight=weights).predict(matrix)
    tolerance = 1e-5 if len(parties) == 1 else 2e-4  # products of ciphertexts are coarser
    np.testing.assert_allclose(in_units(found, shares["C"]) / 15, reference / 15, atol=tolerance)


@pytest.mark.parametrize("seed", range(3))
def test_logistic_equals_the_pooled_one(seed):
    made, target = tables(rows=400, seed=seed)
    label = classes(target)
    model = LogisticInRounds(l2=0.01, refine=30, max_rounds=600, tolerance=1e-5, **EXACT)
    _, found = fitted(model, parts_of(made, label))
    matrix = pooled_matrix(made)
    pooled = PooledLogistic(C=1 / (0.01 * 400), tol=1e-8, max_iter=5000).fit(matrix, label)
    np.testing.assert_allclose(found[:, 0], pooled.decision_function(matrix), atol=2e-3)


def test_degree_one_is_the_weighted_least_squares_of_the_literature():
    """Without refinement: targets ±2, so that a quarter of the score is the gradient's slope."""
    made, target = tables()
    label = classes(target)
    _, found = fitted(
        LogisticInRounds(l2=0.0, refine=0, max_rounds=100, tolerance=1e-7, **EXACT),
        parts_of(made, label),
    )
    matrix = pooled_matrix(made)
    reference = PooledLeastSquares().fit(matrix, 4.0 * label - 2).predict(matrix)
    np.testing.assert_allclose(found[:, 0], reference, atol=1e-5)


def test_multi_class_equals_the_pooled_softmax():
    made, target = tables(rows=400)
    label = classes(target, 3)
    model = LogisticInRounds(l2=0.01, refine=25, max_rounds=400, tolerance=1e-4, **EXACT)
    shares, found = fitted(model, parts_of(made, label))
    matrix = pooled_matrix(made)
    pooled = PooledLogistic(C=1 / (0.01 * 400), tol=1e-8, max_iter=5000).fit(matrix, label)
    reference = pooled.decision_function(matrix)
    np.testing.assert_allclose(found - found.mean(axis=1, keepdims=True), reference, atol=0.02)
    assert shares["C"].state["classes"] == [0, 1, 2]


def test_class_weights_balance():
    made, target = tables(rows=400)
    label = (target > np.quantile(target, 0.85)).astype(int)
    model = LogisticInRounds(
        l2=0.01, refine=30, max_rounds=600, tolerance=1e-5, class_weight="balanced", **EXACT
    )
    _, found = fitted(model, parts_of(made, label))
    matrix = pooled_matrix(made)
    pooled = PooledLogistic(
        C=1 / (0.01 * 400), tol=1e-8, max_iter=5000, class_weight="balanced"
    ).fit(matrix, label)
    np.testing.assert_allclose(found[:, 0], pooled.decision_function(matrix), atol=5e-3)


def test_defaults_come_close_to_the_pooled_model():
    made, target = tables(rows=600, seed=4)
    label = classes(target)
    _, found = fitted(LogisticInRounds(), parts_of(made, label))
    matrix = pooled_matrix(made)
    pooled = PooledLogistic(C=1 / (1e-3 * 600), max_iter=5000).fit(matrix, label)
    gap = roc_auc_score(label, pooled.decision_function(matrix)) - roc_auc_score(label, found[:, 0])
    assert abs(gap) < 0.002


def test_batched_models_equal_single_ones_in_the_same_rounds():
    made, target = tables(rows=300)
    label = classes(target)
    weights = np.random.default_rng(1).poisson(1.0, size=(300, 4)).astype(float)
    model = LogisticInRounds(refine=0, max_rounds=30)
    together, found = fitted(model, parts_of(made, label, weights=weights))
    most = 0
    for bag in range(4):
        alone, single = fitted(model, parts_of(made, label, weights=weights[:, bag]))
        np.testing.assert_allclose(found[:, bag], single[:, 0], atol=0.02)
        most = max(most, len(alone["C"].rounds))
    assert len(together["C"].rounds) == most


def test_several_targets_at_once():
    made, target = tables()
    both = np.column_stack([target, -2 * target + 1])
    shares, found = fitted(LinearInRounds(), parts_of(made, both))
    first = found * shares["C"].state["scale"] + shares["C"].state["mean"]
    np.testing.assert_allclose(first[:, 1], -2 * first[:, 0] + 1, atol=1e-4)


def test_row_order_and_unknown_labels():
    """Rows without a label stay out of training but are predicted; the order is the plan's."""
    made, target = tables()
    rows = np.random.default_rng(1).permutation(240)[:200]
    partly = target[rows].astype(object)
    partly[:30] = None
    shares, found = fitted(LinearInRounds(), parts_of(made, partly, rows))
    matrix = pooled_matrix(made)[rows]
    reference = PooledLeastSquares().fit(matrix[30:], target[rows][30:]).predict(matrix)
    np.testing.assert_allclose(in_units(found, shares["C"]), reference, atol=1e-5)


# ---- the same everywhere -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "weighted"),
    [
        (LinearInRounds(l2=0.01, max_rounds=3), False),
        (LinearInRounds(l2=0.01, max_rounds=2), True),
        (LogisticInRounds(refine=1, max_rounds=4), False),
    ],
    ids=["linear", "weighted", "logistic"],
)
def test_same_weights_under_every_scheme_bit_for_bit(model, weighted):
    made, target = tables(rows=130)
    label = classes(target) if model.name == "logistic" else target
    weights = np.linspace(0.2, 2, 130) if weighted else None
    parts = parts_of(made, label, weights=weights)
    plain = train(model, parts)
    for roles in (PAILLIER, BFV):
        shares = train(model, parts, roles)
        for party in ("B", "C"):
            assert shares[party].state["weights"] == plain[party].state["weights"]
        assert shares["C"].rounds == plain["C"].rounds
        found = scores(model, parts, shares, roles)
        assert (found == scores(model, parts, plain)).all()


def test_same_weights_on_every_channel():
    made, target = tables(rows=130)
    parts, model = parts_of(made, target), LinearInRounds(max_rounds=4)
    reference = train(model, parts)
    for how in ({"on": "processes"}, {"sealed": True}):
        shares = train(model, parts, **how)
        for party in ("B", "C"):
            assert shares[party].state == reference[party].state
    encrypted = train(model, parts, PAILLIER, on="processes")
    assert encrypted["B"].state == reference["B"].state


@pytest.mark.parametrize(
    ("model", "weights"),
    [
        (LinearInRounds(max_rounds=2), np.linspace(0.2, 2, 130)),
        # Two bags at once: some rows weigh nothing, some weigh much more than the average.
        (LinearInRounds(max_rounds=1), np.random.default_rng(5).poisson(0.5, size=(130, 2))),
        (LogisticInRounds(refine=1, max_rounds=1), None),
    ],
    ids=["weighted", "bags", "logistic"],
)
def test_several_weighted_holders_agree_bit_for_bit(model, weights):
    """Weights of several holders' residuals are element-wise products of ciphertexts."""
    made, target = tables(rows=130, parties=("B", "D"))
    label = classes(target) if model.name == "logistic" else target
    parts = parts_of(made, label, weights=None if weights is None else weights.astype(float))
    roles = [Roles("C", ("B", "D"), "K", name, 112) for name in ("plain", "paillier", "bfv")]
    plain, *encrypted = (train(model, parts, role) for role in roles)
    for shares in encrypted:
        for party in ("B", "C", "D"):
            assert shares[party].state == plain[party].state
        assert shares["C"].rounds == plain["C"].rounds
    found = scores(model, parts, plain, roles[0])
    assert (scores(model, parts, encrypted[1], roles[2]) == found).all()


# ---- the posed problem ---------------------------------------------------------------------------


def test_touching_quadratic_by_hand():
    """At score 0: p = ½, curvature ¼, targets ±2. At p = 0.9, y = 0: slope 0.9, curvature 0.09."""
    hot, ones = np.array([[1.0], [0.0]]), np.ones((2, 1))
    zero = touching_quadratic(hot, np.full((2, 1), 0.5), np.zeros((2, 1)), ones)
    assert zero.targets.tolist() == [[2.0], [-2.0]]
    assert zero.weights.tolist() == [[0.25], [0.25]]
    score = np.log(9.0)
    there = touching_quadratic(hot, np.full((2, 1), 0.9), np.full((2, 1), score), 3 * ones)
    gradient = there.weights * (score - there.targets)
    np.testing.assert_allclose(gradient, 3 * np.array([[-0.1], [0.9]]))
    np.testing.assert_allclose(there.weights, 0.27)


def test_nearly_certain_rows_keep_a_least_curvature():
    sure = touching_quadratic(
        np.zeros((1, 1)), np.ones((1, 1)), np.full((1, 1), 40.0), np.ones((1, 1))
    )
    assert sure.weights[0, 0] == 0.02
    assert sure.targets[0, 0] == 40 - 50


# ---- faults --------------------------------------------------------------------------------------


def test_too_many_columns_for_the_rows_are_refused():
    made, target = tables(rows=40)
    with pytest.raises(DataError, match=r"6 encoded columns .* only 40 .* at least 60"):
        train(LinearInRounds(), parts_of(made, target))


def test_rare_classes_are_refused_and_their_number_is_not_told():
    made, target = tables(rows=400)
    label = (target > np.sort(target)[-10]).astype(int)  # 9 of 400
    sentence = r"'B' has 6 encoded columns but fewer than 12 .* the class '1'.*rare_rows_per_column"
    for solver in ({}, {"solver": "one-shot", "refine": 0}):
        with pytest.raises(DataError, match=sentence) as raised:
            train(LogisticInRounds(**solver), parts_of(made, label))
        assert "9" not in str(raised.value)
    with pytest.raises(DataError, match=r"fewer than 12 .* another value"):
        train(LinearInRounds(), parts_of(made, label))
    train(LogisticInRounds(rare_rows_per_column=1, max_rounds=3), parts_of(made, label))


def test_each_class_counts_against_the_rest_and_each_model_by_its_rows():
    codes, classes_ = np.repeat([0, 1, 2], [50, 30, 9]), np.array(["a", "b", "c"])
    everybody = np.ones((89, 1))
    assert find_rarest_class(codes, classes_, everybody) == Rarest(9, "the class 'c'")
    weights = np.ones((89, 2))
    weights[55:80, 1] = 0.0  # the second model has five rows of class b
    assert find_rarest_class(codes, classes_, weights) == Rarest(5, "the class 'b'")
    weights[50:80, 1] = 0.0  # and now none: nothing of it can be read
    assert find_rarest_class(codes, classes_, weights).rows == 9


def test_rare_numbers_are_those_that_are_not_the_most_frequent():
    values = np.column_stack([np.arange(40.0), np.repeat([0.0, 1.0, 2.0], [33, 4, 3])])
    assert find_rarest_number(values, np.ones((40, 2))).rows == 7
    assert find_rarest_number(values[:, :1], np.ones((40, 1))).rows == 39
    assert find_rarest_number(np.zeros((40, 1)), np.ones((40, 1))).rows == 40  # nothing is rare


def test_too_few_labels_are_refused():
    made, target = tables()
    target[1:] = np.nan
    with pytest.raises(DataError, match="1 aligned rows with a known label"):
        train(LinearInRounds(), parts_of(made, target))


def test_one_class_is_refused():
    made, _ = tables()
    with pytest.raises(DataError, match="at least two classes"):
        train(LogisticInRounds(), parts_of(made, np.ones(240)))


def test_a_text_target_of_a_regression_is_refused():
    made, target = tables()
    words = np.where(target > 40, "high", "low").astype(object)
    with pytest.raises(DataError, match="expected numbers"):
        train(LinearInRounds(), parts_of(made, words))
    assert train(LogisticInRounds(), parts_of(made, words))["C"].state["classes"] == [
        "high",
        "low",
    ]


def test_noise_repeats_with_the_generators_and_only_with_them():
    made, target = tables()
    parts = parts_of(made, classes(target))
    one, same, other = (train(LogisticInRounds(), parts, seed=seed) for seed in (1, 1, 2))
    assert one["B"].state == same["B"].state
    assert one["B"].state != other["B"].state
    exact = [train(LogisticInRounds(**EXACT), parts, seed=seed)["B"].state for seed in (1, 2)]
    assert exact[0] == exact[1]


def test_without_a_generator_noise_comes_from_the_operating_system():
    made, target = tables()
    parts = parts_of(made, classes(target))
    jobs = {
        party: partial(LogisticInRounds().train, part=parts.get(party), roles=PLAIN)
        for party in PLAIN.everyone
    }
    assert run_together(jobs)["B"].state != run_together(jobs)["B"].state


def test_separable_data_end_with_finite_weights():
    made, _ = tables()
    label = (made["B"].frame["B0"] > 0).astype(int).to_numpy()
    _, found = fitted(LogisticInRounds(l2=1e-3), parts_of(made, label))
    assert np.isfinite(found).all()
    assert roc_auc_score(label, found[:, 0]) > 0.99


def test_constant_target_constant_columns_and_no_columns_are_defined():
    made, _ = tables()
    frame = made["B"].to_frame().assign(B0=1.0)
    made["B"] = PartyTable.from_frame(frame, party="B", id="id")
    shares, found = fitted(LinearInRounds(), parts_of(made, np.full(240, 7.0)))
    np.testing.assert_allclose(in_units(found, shares["C"]), 7.0, atol=1e-6)
    made, target = tables()
    made["B"] = made["B"].without(made["B"].columns)
    shares, found = fitted(LinearInRounds(), parts_of(made, target))
    matrix = pooled_matrix({"C": made["C"]})
    reference = PooledLeastSquares().fit(matrix, target).predict(matrix)
    np.testing.assert_allclose(in_units(found, shares["C"]), reference, atol=1e-5)


def test_extreme_targets_and_weights_are_refused_before_they_wrap():
    made, _ = tables(rows=20_000)
    target = np.zeros(20_000)
    target[0] = 1e9  # 141 standard deviations: outside the fixed-point range
    with pytest.raises(BoundExceeded):
        train(LinearInRounds(rare_rows_per_column=0), parts_of(made, target))
    weights = np.ones(20_000)
    weights[0] = 1e5
    with pytest.raises(BoundExceeded, match="64 times the average"):
        train(LinearInRounds(), parts_of(made, np.arange(20_000.0), weights=weights))


@pytest.mark.parametrize("bad", [np.full(240, -1.0), np.full(240, np.nan), np.zeros(240)])
def test_bad_row_weights(bad):
    made, target = tables()
    with pytest.raises(DataError, match="Row weights"):
        train(LinearInRounds(), parts_of(made, target, weights=bad))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (LinearInRounds, "l2", -1.0),
        (LinearInRounds, "max_rounds", 0),
        (LogisticInRounds, "tolerance", -1.0),
        (LogisticInRounds, "refine", -1),
        (LogisticInRounds, "look_noise", -0.1),
        (LogisticInRounds, "label_noise", np.nan),
        (LinearInRounds, "rare_rows_per_column", -1),
        (LogisticInRounds, "class_weight", "heavy"),
    ],
)
def test_parameters_are_checked(kind, name, value):
    with pytest.raises(ConfigError, match=f"The {name} parameter of {kind.func.__name__}"):
        kind(**{name: value}).check()


def test_one_party_cannot_play_two_roles():
    with pytest.raises(ConfigError, match="a party of its own"):
        Roles("C", ("B",), "B")
    assert PLAIN.everyone == ("C", "B", "K")
