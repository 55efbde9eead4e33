"""Strengths on shares: roots, largest numbers and sums of squares, against exact arithmetic."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.channel import run_together
from vfsl.crypto.shares import DISCLOSURES, Session
from vfsl.errors import BoundExceeded
from vfsl.estimators.shared.strengths import (
    BITS,
    MOST_ROWS,
    WIDTH,
    Side,
    count_steps,
    find_largest,
    find_roots,
    find_strengths,
    is_below_zero,
    mark_largest,
    round_randomly,
)
from vfsl.values import Disclosure, Masked

ONE = 1 << (2 * BITS)


def in_one_place(numbers, bound=2 * ONE):
    numbers = np.asarray(numbers, dtype=np.int64)
    return Session.plain().share("A", numbers, numbers.shape, bound=bound)


def opened(shared):
    return shared.open(name="numbers")


# ---- functions of shared numbers -----------------------------------------------------------------


@pytest.mark.parametrize("decimals", range(5))
def test_roots_are_exact_to_a_fraction_of_the_last_place(decimals):
    expected = np.concatenate([np.linspace(0, 1, 4001), np.geomspace(2e-6, 1.0, 4001), [1.001]])
    squares = np.rint(expected**2 * ONE)
    found = opened(find_roots(in_one_place(squares), decimals)) / 2**BITS
    roundings = (count_steps(decimals) + 1) * 2.0 ** -(BITS + 1)
    assert np.abs(found - expected).max() < 0.015 * 10.0**-decimals + roundings
    assert count_steps(decimals) <= 5


def test_fewer_steps_would_not_do(monkeypatch):
    squares = np.rint(np.linspace(0.3, 1, 1000) ** 2 * ONE)
    monkeypatch.setattr("vfsl.estimators.shared.strengths.count_steps", lambda decimals: 1)
    found = opened(find_roots(in_one_place(squares), 2)) / 2**BITS
    assert np.abs(found - np.linspace(0.3, 1, 1000)).max() > 0.001


numbers = st.lists(
    st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2 * ONE)), min_size=3, max_size=3),
    min_size=2,
    max_size=9,
)


@given(numbers, st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_the_largest_numbers_are_found_whatever_is_equal(rows, k):
    values = np.array(rows, dtype=np.int64)
    assert opened(find_largest(in_one_place(values))).tolist() == [values.max(axis=0).tolist()]
    k = min(k, len(values) - 1)
    marks = opened(mark_largest(in_one_place(values), k))
    assert set(np.unique(marks)) <= {0, 1}
    assert (marks.sum(axis=0) == k).all()
    assert ((marks * values).sum(axis=0) == np.sort(values, axis=0)[-k:].sum(axis=0)).all()


@pytest.mark.parametrize("bound", [3, 2**14 - 1, 2**14, 2**38, 2**61, None])
def test_signs_are_right_up_to_the_bound(bound):
    most = 2**62 - 1 if bound is None else bound
    values = in_one_place([-most, -1, 0, 1, most], bound)
    assert opened(is_below_zero(values)).tolist() == [1, 1, 0, 0, 0]


def test_random_rounding_keeps_products_where_plain_rounding_does_not():
    """An indicator has two values: what rounding them costs adds up over all rows."""
    rows = 300_000
    rng = np.random.default_rng(0)
    columns = [(rng.random(rows) < share).astype(float) for share in (0.5, 0.3, 0.07)]
    columns = [column - column.mean() for column in columns]
    x = np.stack([column / np.linalg.norm(column) for column in columns], axis=1)
    rounded = round_randomly(x * 2.0**BITS, np.random.default_rng(1))
    assert np.abs(rounded - x * 2.0**BITS).max() <= 1
    scale = 2.0 ** (2 * BITS)
    again = round_randomly(x * 2.0**BITS, np.random.default_rng(2))
    error = np.abs(rounded.T @ again / scale - x.T @ x).max()
    plain = np.rint(x * 2.0**BITS)
    assert error < 6 * 2.0**-BITS < np.abs(plain.T @ plain / scale - x.T @ x).max()


# ---- the whole computation -----------------------------------------------------------------------


def make_sides(dimensions, rows=300, seed=0):
    """Orthonormal columns of two parties, related, with these dimensions per column."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 3))
    sides = []
    for owner, sizes in zip("AB", dimensions, strict=True):
        spaces = [
            np.linalg.qr(common[:, :1] * rng.normal() + rng.normal(size=(rows, size)))[0]
            for size in sizes
        ]
        belongs = np.repeat(np.arange(len(sizes)), sizes)
        sides.append(Side(owner, rows, len(sizes), sum(sizes), np.hstack(spaces), belongs))
    return sides


def expected_matrix(given_side, missing_side):
    squares = (given_side.cells.T @ missing_side.cells) ** 2
    found = np.zeros((given_side.columns, missing_side.columns))
    for i in range(given_side.columns):
        for j in range(missing_side.columns):
            block = squares[given_side.belongs == i][:, missing_side.belongs == j]
            found[i, j] = np.sqrt(block.sum() / min(block.shape))
    return found


KINDS = [
    ((1, 1, 1, 1, 1), (1, 1, 1)),
    ((1, 4, 1, 2), (1, 1)),
    ((1, 1, 1, 1), (3, 1)),
    ((2, 1, 5, 3, 1), (1, 3, 7, 2)),
    ((6,), (2,)),
]


def combine(matrix, how, k):
    count = {"mean": len(matrix), "max": 1}.get(how, k)
    return np.sort(matrix, axis=0)[-count:].mean(axis=0)


@pytest.mark.parametrize("dimensions", KINDS)
@pytest.mark.parametrize("how", ["mean", "max", "top-k"])
def test_strengths_are_those_of_subspaces(dimensions, how):
    sides = make_sides(dimensions)
    for decimals in (2, 4):
        found = (
            opened(find_strengths(Session.plain(), *sides, how, 3, decimals).rounded) / 10**decimals
        )
        expected = combine(expected_matrix(*sides), how, 3)
        assert np.abs(found - expected).max() < 0.52 * 10.0**-decimals + 1e-5


def play(channel, sides, parties, how):
    disclosures = {**DISCLOSURES, "strengths": Disclosure(Masked, "the result")}
    with Session.join(channel.within("test", disclosures), parties, "K") as session:
        known = [
            side if side.owner == session.me else Side(side.owner, **side.sizes) for side in sides
        ]
        found = find_strengths(session, *known, how, 2, 4)
        return found.rounded.open("B", name="strengths")


@pytest.mark.parametrize("parties", [("A", "B"), ("B", "A"), ("C", "B", "A")])
@pytest.mark.parametrize("how", ["mean", "max", "top-k"])
def test_parties_find_the_same_bit_for_bit(parties, how):
    sides = make_sides(KINDS[3])
    jobs = {p: partial(play, sides=sides, parties=parties, how=how) for p in (*parties, "K")}
    found = run_together(jobs)
    expected = opened(find_strengths(Session.plain(), *sides, how, 2, 4).rounded)
    assert found["B"].tolist() == expected.tolist()
    assert all(found[party] is None for party in found if party != "B")


def test_too_many_rows_are_refused_before_anything_is_sent():
    sides = [Side(owner, MOST_ROWS + 1, 2, 2) for owner in "AB"]
    with pytest.raises(BoundExceeded, match="up to"):
        find_strengths(Session.rehearse(("A", "B")), *sides, "mean", 3, 2)
    # What shortening the largest product needs.
    assert (2**BITS + MOST_ROWS**0.5 + 1) ** 2 + 2 ** (BITS - 1) < 2 ** (WIDTH - 2)


@pytest.mark.parametrize("how", ["mean", "max", "top-k"])
@pytest.mark.parametrize(("columns", "derived"), [(30, 30), (5, 40)])
def test_bounds_hold_whatever_the_values_are(how, columns, derived):
    """A rehearsal has no values, and would refuse what could overflow."""
    sides = [Side(owner, 10_000, columns, derived) for owner in "AB"]
    find_strengths(Session.rehearse(("A", "B")), *sides, how, 5, 4)
