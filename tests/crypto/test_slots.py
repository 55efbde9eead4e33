"""Slots: many signed integers in one number, cut apart again exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vfsl.crypto.slots import SLOT_CAPACITY, Slots, cut, fold, join, unfold
from vfsl.errors import BoundExceeded, ConfigError, CryptoError
from vfsl.values import Array

signed = st.integers(-SLOT_CAPACITY, SLOT_CAPACITY)


@given(hnp.arrays(np.int64, (3, 4), elements=signed))
def test_join_is_a_sum_of_shifted_digits(digits: Array) -> None:
    expected = [sum(int(v) << (64 * j) for j, v in enumerate(row)) for row in digits]
    assert join(digits) == expected
    np.testing.assert_array_equal(cut(expected, 4), digits)


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
        cut([2**200], 3)


@given(hnp.arrays(np.int64, (5, 3), elements=st.integers(-(2**15), 2**15)))
def test_sums_of_folded_rows_are_folded_sums(values: Array) -> None:
    folded = fold(values, 20)
    assert folded.shape == (5,)
    np.testing.assert_array_equal(unfold(folded, 3, 20), values)
    np.testing.assert_array_equal(unfold(folded.sum(), 3, 20), values.sum(axis=0))


def test_folding_knows_its_limits() -> None:
    np.testing.assert_array_equal(unfold(fold(np.array([[-7, 7, -8]]), 5), 3, 5), [[-7, 7, -8]])
    with pytest.raises(BoundExceeded, match="5 bits"):
        fold(np.array([[16, 0]]), 5)
    with pytest.raises(ConfigError, match="62"):
        fold(np.array([[1, 2]]), 32)
