"""Prefix sums and sums by place against sums by definition, bounds, and what is refused."""

from __future__ import annotations

from typing import Any

import gmpy2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfsl.crypto.residues import multiply_prefixes
from vfsl.crypto.sums import GroupBound, PrefixSums, find_shown, sum_by_place
from vfsl.errors import InputError, ProtocolError
from vfsl.values import Array


def make(*places: tuple[int, int, int]) -> PrefixSums:
    start, stop, extra = (np.array(column) for column in zip(*places, strict=True))
    return PrefixSums(start, stop, extra)


@st.composite
def sums_over(draw: st.DrawFn, size: int) -> PrefixSums:
    ends = st.tuples(st.integers(0, size), st.integers(0, size)).map(sorted)
    one = st.tuples(ends, st.integers(-1, size - 1))
    drawn = draw(st.lists(one, min_size=1, max_size=min(4 * size, 12)))
    return make(*((start, stop, extra) for (start, stop), extra in drawn))


def by_definition(asked: PrefixSums, values: list[int]) -> list[int]:
    return [
        sum(values[start:stop]) + (values[extra] if extra >= 0 else 0)
        for start, stop, extra in zip(asked.start, asked.stop, asked.extra, strict=True)
    ]


@given(st.data(), st.integers(1, 12))
def test_sums_by_definition(data: st.DataObject, size: int) -> None:
    asked = data.draw(sums_over(size))
    values = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=size, max_size=size))
    expected = by_definition(asked, values)
    assert asked.add_up(np.array(values, dtype=object)).tolist() == expected
    modular = asked.add_up(np.array(values, dtype=np.uint64))
    assert modular.dtype == np.uint64
    assert modular.tolist() == [value % 2**64 for value in expected]
    small = np.array(values, dtype=np.uint64).view(np.int64) >> 8
    assert asked.add_up(small).tolist() == by_definition(asked, small.tolist())


@given(st.data(), st.integers(1, 12))
def test_prefix_products_by_definition(data: st.DataObject, size: int) -> None:
    asked = data.draw(sums_over(size))
    modulus = gmpy2.mpz(10007)
    values = data.draw(st.lists(st.integers(1, 10006), min_size=size, max_size=size))
    places = list(zip(asked.start, asked.stop, asked.extra, strict=True))
    expected = []
    for start, stop, extra in places:
        product = 1
        for value in [*values[start:stop], *([values[extra]] if extra >= 0 else [])]:
            product = product * value % 10007
        expected.append(product)
    assert multiply_prefixes([gmpy2.mpz(value) for value in values], places, modulus) == expected


@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.integers(1, 20))
def test_no_sum_passes_its_bound(data: st.DataObject, groupings: int, n: int, rows: int) -> None:
    """Whatever the rows hold: all at the row bound, in groups as they come."""
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    codes = rng.integers(-1, n, size=(rows, groupings))
    signs = rng.choice([-7, 7], size=rows)
    sums = np.zeros((groupings, n), dtype=np.int64)
    for grouping, column in enumerate(codes.T):
        np.add.at(sums[grouping], column[column >= 0], np.abs(signs[column >= 0]))
    one = int(sums.max())
    counted = int(np.count_nonzero(codes >= 0, axis=0).max())
    asked = data.draw(sums_over(groupings * n))
    bound = asked.bound(one, GroupBound(n, 7 * counted))
    assert max(asked.add_up(sums.reshape(-1)).tolist()) <= bound <= asked.bound(one, None)


def test_bounds_by_hand() -> None:
    groups = GroupBound(4, 10)
    # Bins of at most 5 each, 10 in a grouping of four.
    assert make((0, 1, -1)).bound(5, groups) == 5
    assert make((0, 4, -1)).bound(5, groups) == 10
    assert make((0, 3, 3)).bound(5, groups) == 10
    assert make((4, 8, -1)).bound(5, groups) == 10
    assert make((2, 2, 5)).bound(5, groups) == 5
    assert make((2, 2, -1)).bound(5, groups) == 0
    # A bin twice, or bins of two groupings: no better than one by one.
    assert make((0, 4, 2)).bound(5, groups) == 25
    assert make((0, 4, 4)).bound(5, groups) == 25
    assert make((3, 5, -1), (0, 4, -1)).bound(5, groups) == 10
    assert make((3, 6, -1), (0, 4, -1)).bound(5, groups) == 15
    assert make((0, 4, -1)).bound(5, None) == 20


def test_groups_of_sums_and_multiples() -> None:
    assert GroupBound(4, 10).add(GroupBound(4, 3)) == GroupBound(4, 13)
    assert GroupBound(4, 10).add(GroupBound(5, 3)) is None
    assert GroupBound(4, 10).add(None) is None
    assert GroupBound(4, 10).scale(-3) == GroupBound(4, 30)


@pytest.mark.parametrize(
    ("start", "stop", "extra"),
    [
        ([], [], []),
        ([0], [1, 2], [-1]),
        ([0.0], [1], [-1]),
        ([[0]], [[1]], [[-1]]),
        ([2**70], [2**70], [-1]),
    ],
)
def test_malformed_sums(start: Any, stop: Any, extra: Any) -> None:
    with pytest.raises(InputError, match="PrefixSums"):
        PrefixSums(start, stop, extra)


@pytest.mark.parametrize("place", [(0, 6, -1), (-1, 2, -1), (3, 2, -1), (0, 1, 5), (0, 1, -2)])
def test_sums_outside_their_array(place: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="keep 0"):
        make(place).add_up(np.arange(5))
    with pytest.raises(ProtocolError, match="asks for other prefix sums"):
        PrefixSums.from_wire(make(place).to_wire(), 5)


def test_too_many_sums() -> None:
    make(*[(0, 1, -1)] * 8).check(2)
    with pytest.raises(InputError, match="at most 4"):
        make(*[(0, 1, -1)] * 9).check(2)


def test_sums_travel() -> None:
    asked = make((0, 2, 4), (1, 5, -1))
    came = PrefixSums.from_wire(asked.to_wire(), 5)
    values = np.arange(5) ** 2
    np.testing.assert_array_equal(came.add_up(values), asked.add_up(values))
    with pytest.raises(ProtocolError, match="int64"):
        PrefixSums.from_wire(asked.to_wire() | {"stop": np.array([2.0, 5.0])}, 5)
    with pytest.raises(ProtocolError, match="asks for other prefix sums"):
        PrefixSums.from_wire(asked.to_wire() | {"stop": np.array([2])}, 5)


def test_find_shown() -> None:
    everything: Array = find_shown(None, 3)
    assert everything.tolist() == [0, 1, 2]
    assert find_shown(np.array([True, False, True]), 3).tolist() == [0, 2]
    with pytest.raises(InputError, match="truth value"):
        find_shown(np.array([1, 0, 1]), 3)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("rows", "many"), [(0, 2), (7, 0), (1, 1), (50, 3)])
def test_sum_by_place(rows: int, many: int, dtype: type) -> None:
    rng = np.random.default_rng(rows)
    places = rng.integers(0, 9, (rows, many)).astype(dtype)
    values = rng.integers(-(1 << 58), 1 << 58, (rows, 2))
    wanted = np.zeros((9, 2), dtype=np.int64)
    for row, place in np.ndindex(rows, many):
        wanted[places[row, place]] += values[row]
    assert (sum_by_place(places, values, 9) == wanted).all()
    assert (sum_by_place(places, values[:, 0].copy(), 9) == wanted[:, 0]).all()
    counts = sum_by_place(places, np.ones(rows, dtype=np.int32), 9)
    assert (counts == np.bincount(places.ravel(), minlength=9)).all()
