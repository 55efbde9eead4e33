"""Arithmetic modulo n² against Python's own pow, pools of n-th powers, numbers with slots."""

from __future__ import annotations

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vfsl.crypto.paillier import PaillierPublicKey
from vfsl.crypto.residues import (
    SLOT_CAPACITY,
    Comb,
    Obfuscators,
    Slots,
    choose_joint_width,
    choose_window,
    cut_digits,
    from_matrix,
    invert_all,
    join_digits,
    multiply_groups,
    multiply_powers,
    to_matrix,
)
from vfsl.errors import CryptoError
from vfsl.testing.schemes import SchemeCase
from vfsl.values import Array

PRIME = 2**127 - 1
units = st.integers(1, PRIME - 1)


@settings(max_examples=30)
@given(units, st.integers(0, 2**300 - 1))
def test_comb(base: int, exponent: int) -> None:
    assert Comb(gmpy2.mpz(base), gmpy2.mpz(PRIME), 300).power(exponent) == pow(
        base, exponent, PRIME
    )


@given(st.lists(units, min_size=1, max_size=8))
def test_invert_all(values: list[int]) -> None:
    expected = [pow(value, -1, PRIME) for value in values]
    assert invert_all([gmpy2.mpz(value) for value in values], gmpy2.mpz(PRIME)) == expected


@given(st.data(), st.integers(1, 30), st.integers(1, 70))
def test_multiply_powers(data: st.DataObject, rows: int, bits: int) -> None:
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
    assert multiply_powers((gmpy2.mpz(PRIME), bases, columns)) == expected


@pytest.mark.parametrize(
    ("rows", "columns", "n", "width"),
    [(60, 1, 8, 1), (60, 5, 8, 2), (900, 7, 5, 3), (400, 5, 2, 5)],
)
def test_multiply_groups(rows: int, columns: int, n: int, width: int) -> None:
    rng = np.random.default_rng(rows)
    groups = rng.integers(-1, n, size=(rows, columns))
    bases = [gmpy2.mpz(int(value)) for value in rng.integers(1, 2**60, size=rows)]
    assert choose_joint_width(rows, columns, n) == width
    results = multiply_groups((gmpy2.mpz(PRIME), bases, groups, n))
    for column, got in zip(groups.T, results, strict=True):
        for group in range(n):
            members = [int(b) for b, code in zip(bases, column, strict=True) if code == group]
            assert (got[group] or 1) == math.prod(members) % PRIME


def test_widths_are_the_cheapest() -> None:
    assert choose_window(10_000, 30) == 10
    assert choose_window(5, 30) <= 3
    assert choose_window(10_000, 1) == 1
    assert choose_joint_width(100_000, 20, 32) == 3
    assert choose_joint_width(10_000, 20, 32) == 2
    assert choose_joint_width(100_000, 2, 32) == 2


def test_everything_is_an_encryption_of_zero(paillier: SchemeCase) -> None:
    public = paillier.public
    assert isinstance(public, PaillierPublicKey)
    p, q = paillier.secret._primes  # type: ignore[attr-defined]
    for power, lifted in public.pool.take(5):
        # An n-th residue mod n² has order dividing φ(n).
        assert gmpy2.powmod(power, (p - 1) * (q - 1), public.square) == 1
        assert lifted == public.n * power % public.square


def test_each_number_is_used_once() -> None:
    n = gmpy2.mpz(1000003) * 1000033
    pool = Obfuscators(n, 0.0)
    pool.prepare(400)
    assert len(pool) == 400
    with ThreadPoolExecutor(8) as threads:
        taken = [pair for part in threads.map(pool.take, [60] * 8) for pair in part]
    assert len(taken) == 480
    assert len(pool) == 0
    assert len({int(power) for power, _ in taken}) == 480


def test_a_pool_cannot_be_copied(paillier: SchemeCase, bfv: SchemeCase) -> None:
    ours: tuple[Any, Any] = (paillier.public, bfv.public)
    for pool in (ours[0].pool, ours[1].packed.pool, ours[1].slots.pool):
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(CryptoError, match="pool"):
                copied(pool)


def test_two_pools_differ() -> None:
    n = gmpy2.mpz(2**127 - 1) * (2**89 - 1)
    assert Obfuscators(n, 0.0).take(3) != Obfuscators(n, 0.0).take(3)


def test_encryption_drains_the_pool(paillier: SchemeCase) -> None:
    public = paillier.scheme.load_public(paillier.public.to_wire())
    assert isinstance(public, PaillierPublicKey)
    public.prepare(3)
    public.encrypt([1, 2])
    assert len(public.pool) == 1


signed = st.integers(-SLOT_CAPACITY, SLOT_CAPACITY)


@given(hnp.arrays(np.int64, (3, 4), elements=signed))
def test_join_is_a_sum_of_shifted_digits(digits: Array) -> None:
    expected = [sum(int(v) << (64 * j) for j, v in enumerate(row)) for row in digits]
    assert join_digits(digits) == expected
    np.testing.assert_array_equal(cut_digits(expected, 4), digits)


@given(
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=3, max_side=5), elements=signed),
    st.integers(1, 6),
    st.sampled_from([0, -1]),
)
def test_arrays_round_trip_along_either_axis(values: Array, count: int, axis: int) -> None:
    slots = Slots(count, axis)
    numbers = slots.pack(values)
    assert len(numbers) == np.prod(slots.numbers_shape(values.shape))
    np.testing.assert_array_equal(slots.unpack(numbers, values.shape), values)


def test_packed_numbers_add_slot_by_slot() -> None:
    slots = Slots(3)
    a, b = np.array([[5, -6, 7]]), np.array([[-9, -1, 2**40]])
    total = [x + y for x, y in zip(slots.pack(a), slots.pack(b), strict=True)]
    np.testing.assert_array_equal(slots.unpack(total, (1, 3)), a + b)


def test_axis_zero_packs_down_the_columns() -> None:
    values = np.array([[1, 2], [3, 4], [5, 6]])
    assert Slots(2, 0).pack(values) == [1 + (3 << 64), 2 + (4 << 64), 5, 6]


def test_a_number_that_no_slots_make_is_refused() -> None:
    with pytest.raises(CryptoError, match="could not be decrypted"):
        cut_digits([2**200], 3)


@given(st.lists(st.integers(0, 2**80 - 1), min_size=1, max_size=10))
def test_byte_matrix_round_trip(numbers: list[int]) -> None:
    matrix = to_matrix(numbers, 10)
    assert matrix.shape == (len(numbers), 10)
    assert matrix.dtype == np.uint8
    assert from_matrix(matrix) == numbers
