"""Whitened columns, weighted Gram matrices and inverses on shares, against floats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crypto.share_cases import run_plain, run_program
from vfsl.crypto.shares import Session
from vfsl.estimators.shared.curvature import (
    CELL_BITS,
    FIRST_STEP,
    MATRIX_BITS,
    MOST_STEPS,
    invert,
    plan_inverse,
    weigh_gram,
    whiten,
)


def test_whitened_columns_have_curvature_one():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4))
    penalties = np.array([1e-3, 1e-3, 1e-3, 0.0])
    white = whiten(columns, penalties)
    cells = white.cells / 2.0**CELL_BITS
    np.testing.assert_allclose(
        cells.T @ cells / (4 * 500) + white.penalty, np.eye(4), atol=2.0**-CELL_BITS
    )
    # Weights of the cells cost and score what the columns' weights do.
    u = rng.normal(size=4)
    w = white.back @ u
    assert u @ white.penalty @ u == pytest.approx(penalties @ w**2)
    assert np.abs(cells @ u - columns @ w).max() < 2.0 ** (1 - CELL_BITS)


def test_columns_without_variance_stay_finite():
    columns = np.column_stack([np.arange(9.0), np.zeros(9), np.arange(9.0)])
    white = whiten(columns, np.zeros(3))
    assert np.isfinite(white.back).all()
    assert (np.square(white.cells / 2.0**CELL_BITS).sum(axis=0) <= 4 * 9 * 1.01).all()


@given(st.floats(1e-6, 0.2), st.integers(3, MOST_STEPS))
def test_steps_of_an_inverse_never_leave_the_unit_interval(floor, most):
    steps = plan_inverse(floor, most)
    assert len(steps) <= most
    assert steps[0] == FIRST_STEP
    values = np.linspace(0, 1, 1001)
    for step in steps:
        values = step / 8 * values * (2 - step / 8 * values)
        assert ((values >= 0) & (values <= 1)).all()


@pytest.mark.parametrize("floor", [0.135, 0.05, 0.018, 0.0067, 4e-3])
def test_eigenvalues_above_the_floor_are_inverted(floor):
    values = np.geomspace(floor, 1, 1001)
    for step in plan_inverse(floor):
        values = step / 8 * values * (2 - step / 8 * values)
    assert values.min() > 0.85


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_an_inverse_by_products(seed, size):
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix = axes @ np.diag(rng.uniform(0.02, 1, size)) @ axes.T
    session = Session.plain()
    first = FIRST_STEP / 8 * 2.0**MATRIX_BITS
    product = session.share("A", np.rint(first * matrix).astype(np.int64), matrix.shape)
    start = session.zeros(matrix.shape) + np.rint(first * np.eye(size)).astype(np.int64)
    longer = invert(product, start, plan_inverse(0.02)).open(name="result")
    found = longer / 4.0**MATRIX_BITS
    eigenvalues = np.linalg.eigvals(found @ matrix).real
    assert eigenvalues.min() > 0.84
    assert eigenvalues.max() < 1.01


def gram(session, held):
    sizes = {"A": 3, "B": 1, "C": 2, "D": 2}
    count = held.get("count", 2)
    names = list(sizes)[:count]
    cells = [session.private(p, held.get(p), (40, sizes[p]), width=48) for p in names]
    weights = session.share("A", held.get("w"), (40, 2), width=48)
    return weigh_gram(cells, weights).open(name="result")


@pytest.mark.parametrize("count", [2, 3, 4])
def test_weighted_gram_matrices_are_exact(count):
    rng = np.random.default_rng(count)
    sizes = {"A": 3, "B": 1, "C": 2, "D": 2}
    names = tuple(sizes)[:count]
    data = {p: {p: rng.integers(-999, 1000, (40, sizes[p])), "count": count} for p in names}
    weights = rng.integers(-500, 500, (40, 2))
    data["A"]["w"] = weights
    data["K"] = {"count": count}
    everything = np.hstack([data[p][p] for p in names])
    right = np.stack([everything.T @ (weights[:, [k]] * everything) for k in range(2)])
    found = run_program(gram, names, data)
    for party in names:
        np.testing.assert_array_equal(found[party], right)
    np.testing.assert_array_equal(run_plain(gram, data), right)
