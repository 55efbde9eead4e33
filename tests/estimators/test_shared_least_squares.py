"""Least squares on shares: the pooled solution, the same integers everywhere, bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from tests.crypto.share_cases import run_program
from vfsl.crypto.shares import Session
from vfsl.errors import BoundExceeded
from vfsl.estimators.shared.algebra import (
    BITS,
    Widths,
    average,
    invert,
    solve,
    truncate_symmetric,
    whiten,
    whiten_with_constant,
)
from vfsl.estimators.shared.least_squares import (
    LeastSquaresPlan,
    choose_bits,
    fit_least_squares,
    fit_orthogonal,
)


def people(rows, sizes, mix, seed=0, targets=1):
    """Columns of several parties with common factors, the constant at C, and targets."""
    rng = np.random.default_rng([seed, rows])
    factors = rng.normal(size=(rows, 3))
    columns = {
        party: mix * factors @ rng.normal(size=(3, size)) + rng.normal(size=(rows, size))
        for party, size in sizes.items()
    }
    columns = {party: (x - x.mean(axis=0)) / x.std(axis=0) for party, x in columns.items()}
    columns["C"] = np.column_stack([columns["C"], np.ones(rows)])
    everything = np.hstack(list(columns.values()))
    y = everything @ rng.normal(size=(everything.shape[1], targets))
    y = y + 2 * rng.normal(size=y.shape)
    return columns, (y - y.mean(axis=0)) / y.std(axis=0)


def whiten_all(columns, l2):
    return {
        party: whiten(x, l2, free=[x.shape[1] - 1] if party == "C" else [])
        for party, x in columns.items()
    }


def solve_pooled(columns, y, l2):
    everything = np.hstack(list(columns.values()))
    penalty = np.concatenate([np.full(x.shape[1], l2) for x in columns.values()])
    ends = np.cumsum([x.shape[1] for x in columns.values()])
    penalty[ends[list(columns).index("C")] - 1] = 0.0
    moments = everything.T @ everything / len(y) + np.diag(penalty)
    return np.linalg.solve(moments, everything.T @ y / len(y))


def fit(session, white, y, shape, targets, row_weights=None, peak=None):
    rows, sizes = shape
    plan = LeastSquaresPlan(rows, sizes, "C", targets, peak)
    found = fit_least_squares(session, white, y, row_weights, plan)
    return {party: one.open(party, name="result") for party, one in found.items()}


def weights_of(opened, white):
    return np.concatenate([white[p].back @ (opened[p] / 2.0**BITS) for p in white])


@pytest.mark.parametrize("sizes", [{"B": 6, "C": 4}, {"B": 3, "C": 2, "D": 4}])
@pytest.mark.parametrize("mix", [0.3, 2.0])
def test_the_pooled_solution_is_found(sizes, mix):
    columns, y = people(1500, sizes, mix, targets=2)
    white = whiten_all(columns, 1e-3)
    ranks = {party: one.columns.shape[1] for party, one in white.items()}
    opened = fit(Session.plain(), white, y, (1500, ranks), 2)
    weights, pooled = weights_of(opened, white), solve_pooled(columns, y, 1e-3)
    assert np.abs(weights - pooled).max() < 1e-3
    assert np.abs(np.hstack(list(columns.values())) @ (weights - pooled)).max() < 1e-3


@pytest.mark.parametrize("sizes", [{"B": 3, "C": 2}, {"C": 2, "B": 3, "D": 2}])
def test_parties_find_the_integers_of_one_place(sizes):
    columns, y = people(300, sizes, 1.0)
    white = whiten_all(columns, 1e-3)
    ranks = {party: one.columns.shape[1] for party, one in white.items()}
    alone = fit(Session.plain(), white, y, (300, ranks), 1)

    def program(session, own):
        return fit(session, own.get("white", {}), own.get("y"), (300, ranks), 1)

    data = {party: {"white": {party: white[party]}} for party in sizes}
    data["C"]["y"] = y
    opened = run_program(program, tuple(sizes), data)
    for party in sizes:
        np.testing.assert_array_equal(opened[party][party], alone[party])
        assert all(opened[party][other] is None for other in sizes if other != party)


def test_columns_of_one_side_need_no_solving():
    """The weights of ridge regression on centred columns, by scikit-learn, and at every party."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(400, 5)) @ rng.normal(size=(5, 5)) + 3, rng.normal(size=(400, 2))
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    white = whiten_with_constant(np.column_stack([x, np.ones(400)]), 1e-2)
    data = {"B": {"columns": white.columns[:, :-1]}, "C": {"target": y}}

    def program(session, own):
        plan = LeastSquaresPlan(400, {"B": 5, "C": 1}, "C", 2)
        found = fit_orthogonal(session, own.get("columns"), own.get("target"), plan)
        return found["B"].open("B", name="result")

    opened = run_program(program, ("B", "C"), data)["B"]
    np.testing.assert_array_equal(opened, program(Session.plain(), data["B"] | data["C"]))
    ridge = Ridge(alpha=1e-2 * 400).fit(x, y)
    assert np.abs(white.back[:-1, :-1] @ (opened / 2.0**BITS) - ridge.coef_.T).max() < 1e-3


def draw_weights(rows, targets, seed=0):
    """Some zeros, most around 1, a few large; mean 1."""
    rng = np.random.default_rng([seed, rows])
    drawn = rng.exponential(size=(rows, targets)) * (rng.random((rows, targets)) < 0.8)
    drawn[:: rows // 10] *= 4
    drawn = drawn / drawn.mean(axis=0)
    return drawn, int(np.ceil(np.log2(drawn.max())))


@pytest.mark.parametrize("sizes", [{"B": 6, "C": 4}, {"B": 3, "C": 2, "D": 4}])
def test_row_weights_are_those_of_the_pooled_solution(sizes):
    columns, y = people(1500, sizes, 1.0, targets=2)
    given, peak = draw_weights(1500, 2)
    white = whiten_all(columns, 1e-2)
    ranks = {party: one.columns.shape[1] for party, one in white.items()}
    opened = fit(Session.plain(), white, y, (1500, ranks), 2, given, peak)
    weights = weights_of(opened, white)
    everything = np.hstack(list(columns.values()))
    for target in range(2):
        root = np.sqrt(given[:, target : target + 1])
        scaled = {party: root * x for party, x in columns.items()}
        pooled = solve_pooled(scaled, root * y[:, target : target + 1], 1e-2)
        assert np.abs(weights[:, target] - pooled[:, 0]).max() < 1e-3
        assert np.abs(everything @ (weights[:, target] - pooled[:, 0])).max() < 2e-3


def test_parties_with_row_weights_find_the_integers_of_one_place():
    sizes = {"C": 2, "B": 3, "D": 2}
    columns, y = people(200, sizes, 1.0)
    given, peak = draw_weights(200, 1)
    white = whiten_all(columns, 1e-3)
    ranks = {party: one.columns.shape[1] for party, one in white.items()}
    alone = fit(Session.plain(), white, y, (200, ranks), 1, given, peak)

    def program(session, own):
        mine = own.get("white", {}), own.get("y")
        return fit(session, *mine, (200, ranks), 1, own.get("weights"), peak)

    data = {party: {"white": {party: white[party]}} for party in sizes}
    data["C"] |= {"y": y, "weights": given}
    opened = run_program(program, tuple(sizes), data)
    for party in sizes:
        np.testing.assert_array_equal(opened[party][party], alone[party])


@pytest.mark.parametrize(("rows", "peak"), [(100, 0), (24_000, 4), (10**6, 6)])
def test_weighted_sums_fit_their_words(rows, peak):
    bits, weight_bits = choose_bits(rows, peak)
    assert 2 * bits + weight_bits + np.log2(rows) + peak <= 61
    assert bits >= 10
    with pytest.raises(BoundExceeded, match="less extreme weights"):
        choose_bits(10**9, 20)


def test_columns_that_both_parties_have_do_no_harm():
    """Without a penalty the equations are singular; predictions are still the pooled ones."""
    columns, y = people(800, {"B": 3, "C": 3}, 1.0)
    columns["B"] = np.column_stack([columns["B"], columns["C"][:, 0]])
    white = whiten_all(columns, 0.0)
    ranks = {party: one.columns.shape[1] for party, one in white.items()}
    weights = weights_of(fit(Session.plain(), white, y, (800, ranks), 1), white)
    everything = np.hstack(list(columns.values()))
    pooled = np.linalg.lstsq(everything, y, rcond=None)[0]
    assert np.abs(everything @ (weights - pooled)).max() < 1e-3


def test_a_column_that_follows_from_others_is_left_out():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 2))
    white = whiten(np.column_stack([x, x.sum(axis=1)]), 0.0)
    assert white.columns.shape[1] == 2
    np.testing.assert_allclose(white.columns.T @ white.columns / 100, np.eye(2), atol=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 6), st.floats(0.01, 1.0), st.integers(0, 10**6))
def test_inverses_of_any_spectrum_never_go_too_far(size, smallest, seed):
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(size, size)))
    values = np.linspace(smallest, 1.0, size)
    matrix = turn @ np.diag(values) @ turn.T
    session = Session.plain()
    shared = session.share("B", np.rint(matrix * 2**BITS).astype(np.int64), (size, size))
    inverse = invert(shared)
    found = inverse.open(name="x") / 2.0**BITS
    spectrum = np.linalg.eigvalsh((found @ matrix + matrix @ found) / 2)
    assert spectrum.max() < 1.01
    right = rng.normal(size=(size, 1)) / 4
    aim = session.share("B", np.rint(right * 2**BITS).astype(np.int64), (size, 1))
    solution = solve(shared, aim, inverse).open(name="x") / 2.0**BITS
    assert np.abs(matrix @ solution - right).max() < 1e-4


def test_averages_and_symmetric_truncation():
    session = Session.plain()
    values = np.array([[7.25, -3.5], [-3.5, 0.125]])
    sums = session.share("B", np.rint(values * 1000 * 2**20).astype(np.int64), (2, 2), 48)
    (found,) = average([sums], 1000, 20)
    np.testing.assert_allclose(found.open(name="x") / 2.0**BITS, values, atol=1e-5)
    matrix = session.share("B", np.array([[40, 25], [99, -40]]), (2, 2))
    assert truncate_symmetric(matrix, 4).open(name="x").tolist() == [[3, 2], [2, -2]]


def test_widths_hold_every_inner_product_and_refuse_too_many_rows():
    for rows in (10, 24_000, 10**6, 10**8):
        chosen = Widths.choose(rows)
        assert rows * 4.0**chosen.bits * 1.1 < 2 ** (chosen.width - 2)
    with pytest.raises(BoundExceeded, match="too many"):
        Widths.choose(10**12)
