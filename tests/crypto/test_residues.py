"""Arithmetic modulo n² against Python's own pow."""

from __future__ import annotations

import math

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.crypto.residues import (
    Comb,
    dot_powers,
    group_products,
    inverses,
    joint_width,
    window_width,
)

PRIME = 2**127 - 1
units = st.integers(1, PRIME - 1)


@settings(max_examples=30)
@given(units, st.integers(0, 2**300 - 1))
def test_comb(base: int, exponent: int) -> None:
    assert Comb(gmpy2.mpz(base), gmpy2.mpz(PRIME), 300).power(exponent) == pow(
        base, exponent, PRIME
    )


@given(st.lists(units, min_size=1, max_size=8))
def test_inverses(values: list[int]) -> None:
    expected = [pow(value, -1, PRIME) for value in values]
    assert inverses([gmpy2.mpz(value) for value in values], gmpy2.mpz(PRIME)) == expected


@given(st.data(), st.integers(1, 30), st.integers(1, 70))
def test_dot_powers(data: st.DataObject, rows: int, bits: int) -> None:
    limit = 2**bits
    numbers = st.lists(st.integers(-limit, limit), min_size=rows, max_size=rows)
    table = [data.draw(numbers), data.draw(numbers), [0] * rows, [1] * rows]
    columns = np.array(table, dtype=object).T
    if bits < 60:
        columns = columns.astype(np.int64)
    bases = [gmpy2.mpz(data.draw(units)) for _ in range(rows)]
    expected = [
        math.prod(pow(int(base), int(x), PRIME) for base, x in zip(bases, column, strict=True))
        % PRIME
        for column in columns.T
    ]
    assert dot_powers((gmpy2.mpz(PRIME), bases, columns)) == expected


@pytest.mark.parametrize(
    ("rows", "columns", "n", "width"),
    [(60, 1, 8, 1), (60, 5, 8, 2), (900, 7, 5, 3), (400, 5, 2, 5)],
)
def test_group_products(rows: int, columns: int, n: int, width: int) -> None:
    rng = np.random.default_rng(rows)
    groups = rng.integers(-1, n, size=(rows, columns))
    bases = [gmpy2.mpz(int(value)) for value in rng.integers(1, 2**60, size=rows)]
    assert joint_width(rows, columns, n) == width
    results = group_products((gmpy2.mpz(PRIME), bases, groups, n))
    for column, got in zip(groups.T, results, strict=True):
        for group in range(n):
            members = [int(b) for b, code in zip(bases, column, strict=True) if code == group]
            assert (got[group] or 1) == math.prod(members) % PRIME


def test_widths_are_the_cheapest() -> None:
    assert window_width(10_000, 30) == 10
    assert window_width(5, 30) <= 3
    assert window_width(10_000, 1) == 1
    assert joint_width(100_000, 20, 32) == 3
    assert joint_width(10_000, 20, 32) == 2
    assert joint_width(100_000, 2, 32) == 2
