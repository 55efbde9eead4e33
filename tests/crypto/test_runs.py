"""Sums over runs against sums by definition, their bounds, and what is refused."""

from __future__ import annotations

from typing import Any

import gmpy2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfsl.crypto.residues import run_products
from vfsl.crypto.runs import Groups, Runs, shown_positions
from vfsl.errors import InputError, ProtocolError
from vfsl.values import Array


def made(*runs: tuple[int, int, int]) -> Runs:
    start, stop, extra = (np.array(column) for column in zip(*runs, strict=True))
    return Runs(start, stop, extra)


@st.composite
def runs_over(draw: st.DrawFn, size: int) -> Runs:
    ends = st.tuples(st.integers(0, size), st.integers(0, size)).map(sorted)
    one = st.tuples(ends, st.integers(-1, size - 1))
    drawn = draw(st.lists(one, min_size=1, max_size=min(4 * size, 12)))
    return made(*((start, stop, extra) for (start, stop), extra in drawn))


def by_definition(runs: Runs, values: list[int]) -> list[int]:
    return [
        sum(values[start:stop]) + (values[extra] if extra >= 0 else 0)
        for start, stop, extra in zip(runs.start, runs.stop, runs.extra, strict=True)
    ]


@given(st.data(), st.integers(1, 12))
def test_runs_by_definition(data: st.DataObject, size: int) -> None:
    runs = data.draw(runs_over(size))
    values = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=size, max_size=size))
    expected = by_definition(runs, values)
    assert runs.of(np.array(values, dtype=object)).tolist() == expected
    modular = runs.of(np.array(values, dtype=np.uint64))
    assert modular.dtype == np.uint64
    assert modular.tolist() == [value % 2**64 for value in expected]
    small = np.array(values, dtype=np.uint64).view(np.int64) >> 8
    assert runs.of(small).tolist() == by_definition(runs, small.tolist())


@given(st.data(), st.integers(1, 12))
def test_running_products_by_definition(data: st.DataObject, size: int) -> None:
    runs = data.draw(runs_over(size))
    modulus = gmpy2.mpz(10007)
    values = data.draw(st.lists(st.integers(1, 10006), min_size=size, max_size=size))
    places = list(zip(runs.start, runs.stop, runs.extra, strict=True))
    expected = []
    for start, stop, extra in places:
        product = 1
        for value in [*values[start:stop], *([values[extra]] if extra >= 0 else [])]:
            product = product * value % 10007
        expected.append(product)
    assert run_products([gmpy2.mpz(value) for value in values], places, modulus) == expected


@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.integers(1, 20))
def test_no_run_passes_its_bound(data: st.DataObject, groupings: int, n: int, rows: int) -> None:
    """Whatever the rows hold: all at the row bound, in groups as they come."""
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    codes = rng.integers(-1, n, size=(rows, groupings))
    signs = rng.choice([-7, 7], size=rows)
    sums = np.zeros((groupings, n), dtype=np.int64)
    for grouping, column in enumerate(codes.T):
        np.add.at(sums[grouping], column[column >= 0], np.abs(signs[column >= 0]))
    one = int(sums.max())
    counted = int(np.count_nonzero(codes >= 0, axis=0).max())
    runs = data.draw(runs_over(groupings * n))
    bound = runs.bound(one, Groups(n, 7 * counted))
    assert max(runs.of(sums.reshape(-1)).tolist()) <= bound <= runs.bound(one, None)


def test_bounds_by_hand() -> None:
    groups = Groups(4, 10)
    # Bins of at most 5 each, 10 in a grouping of four.
    assert made((0, 1, -1)).bound(5, groups) == 5
    assert made((0, 4, -1)).bound(5, groups) == 10
    assert made((0, 3, 3)).bound(5, groups) == 10
    assert made((4, 8, -1)).bound(5, groups) == 10
    assert made((2, 2, 5)).bound(5, groups) == 5
    assert made((2, 2, -1)).bound(5, groups) == 0
    # A bin twice, or bins of two groupings: no better than one by one.
    assert made((0, 4, 2)).bound(5, groups) == 25
    assert made((0, 4, 4)).bound(5, groups) == 25
    assert made((3, 5, -1), (0, 4, -1)).bound(5, groups) == 10
    assert made((3, 6, -1), (0, 4, -1)).bound(5, groups) == 15
    assert made((0, 4, -1)).bound(5, None) == 20


def test_groups_of_sums_and_multiples() -> None:
    assert Groups(4, 10).joined(Groups(4, 3)) == Groups(4, 13)
    assert Groups(4, 10).joined(Groups(5, 3)) is None
    assert Groups(4, 10).joined(None) is None
    assert Groups(4, 10).scaled(-3) == Groups(4, 30)


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
def test_malformed_runs(start: Any, stop: Any, extra: Any) -> None:
    with pytest.raises(InputError, match="Runs"):
        Runs(start, stop, extra)


@pytest.mark.parametrize("run", [(0, 6, -1), (-1, 2, -1), (3, 2, -1), (0, 1, 5), (0, 1, -2)])
def test_runs_outside_their_array(run: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="keep 0"):
        made(run).of(np.arange(5))
    with pytest.raises(ProtocolError, match="asks for other runs"):
        Runs.from_wire(made(run).to_wire(), 5)


def test_too_many_runs() -> None:
    made(*[(0, 1, -1)] * 8).check(2)
    with pytest.raises(InputError, match="at most 4"):
        made(*[(0, 1, -1)] * 9).check(2)


def test_runs_travel() -> None:
    runs = made((0, 2, 4), (1, 5, -1))
    came = Runs.from_wire(runs.to_wire(), 5)
    values = np.arange(5) ** 2
    np.testing.assert_array_equal(came.of(values), runs.of(values))
    with pytest.raises(ProtocolError, match="int64"):
        Runs.from_wire(runs.to_wire() | {"stop": np.array([2.0, 5.0])}, 5)
    with pytest.raises(ProtocolError, match="asks for other runs"):
        Runs.from_wire(runs.to_wire() | {"stop": np.array([2])}, 5)


def test_shown_positions() -> None:
    everything: Array = shown_positions(None, 3)
    assert everything.tolist() == [0, 1, 2]
    assert shown_positions(np.array([True, False, True]), 3).tolist() == [0, 2]
    with pytest.raises(InputError, match="truth value"):
        shown_positions(np.array([1, 0, 1]), 3)
