"""Integer helpers: types, norms, exact products, byte matrices, randomness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfsl.crypto.integers import (
    as_integers,
    exact_dot,
    from_matrix,
    largest,
    largest_column_sum,
    random_words,
    sums_by_place,
    to_matrix,
)
from vfsl.errors import InputError


def test_integer_types() -> None:
    assert as_integers(np.array([1, 2], dtype=np.uint8), "x").dtype == np.int64
    assert as_integers(np.array([2**64 - 1], dtype=np.uint64), "x").tolist() == [2**64 - 1]
    assert as_integers(np.array([1, 2], dtype=object), "x").dtype == np.int64
    assert as_integers([2**70], "x").tolist() == [2**70]
    assert as_integers(7, "x").shape == ()
    assert as_integers([], "x").size == 0


@pytest.mark.parametrize("bad", [[1.0], [True], ["a"], [1, 2**70, 0.5], [None]])
def test_what_is_no_integer_is_refused(bad: list[object]) -> None:
    with pytest.raises(InputError, match="The x of y"):
        as_integers(np.array(bad, dtype=None if len(bad) == 1 else object), "The x of y")


def test_norms_do_not_overflow() -> None:
    least = np.array([[-(2**63), 2**62], [2**63 - 1, 5]])
    assert largest(least) == 2**63
    assert largest_column_sum(least) == 2**64 - 1
    assert largest(np.array([], dtype=np.int64)) == 0


@given(st.integers(0, 2**32), st.integers(1, 58), st.integers(1, 40))
def test_exact_dot(seed: int, bits: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    left_bits = int(rng.integers(0, bits + 1))
    left = rng.integers(-(2**left_bits), 2**left_bits, size=(rows, 3), endpoint=True)
    right = rng.integers(-(2 ** (bits - left_bits)), 2 ** (bits - left_bits), size=(rows, 2))
    exact = left.T.astype(object) @ right.astype(object)
    bound = largest(left) * largest_column_sum(right)
    if bound < 2**61:
        np.testing.assert_array_equal(exact_dot(left, right, bound), exact)


def test_exact_dot_where_floats_round() -> None:
    left = np.arange(1, 4001).reshape(2000, 2) + 2**24
    right = np.arange(5, 2005)[:, None] - 2**24
    exact = left.T.astype(object) @ right.astype(object)
    bound = largest(left) * largest_column_sum(right)
    np.testing.assert_array_equal(exact_dot(left, right, bound), exact)
    assert ((left.T.astype(float) @ right.astype(float)).astype(np.int64) != exact).any()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("rows", "many"), [(0, 2), (7, 0), (1, 1), (50, 3)])
def test_sums_by_place(rows: int, many: int, dtype: type) -> None:
    rng = np.random.default_rng(rows)
    places = rng.integers(0, 9, (rows, many)).astype(dtype)
    values = rng.integers(-(1 << 58), 1 << 58, (rows, 2))
    wanted = np.zeros((9, 2), dtype=np.int64)
    for row, place in np.ndindex(rows, many):
        wanted[places[row, place]] += values[row]
    assert (sums_by_place(places, values, 9) == wanted).all()


@given(st.lists(st.integers(0, 2**80 - 1), min_size=1, max_size=10))
def test_byte_matrix_round_trip(numbers: list[int]) -> None:
    matrix = to_matrix(numbers, 10)
    assert matrix.shape == (len(numbers), 10)
    assert matrix.dtype == np.uint8
    assert from_matrix(matrix) == numbers


def test_random_words_fill_their_bits() -> None:
    words = random_words(4000, 5)
    assert set(words.tolist()) == set(range(32))
