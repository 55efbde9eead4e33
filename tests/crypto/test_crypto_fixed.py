"""Exact integers: fixed point by vectors, rounding, folding, types, norms, limits."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vfsl.crypto.fixed import (
    as_integers,
    decode,
    draw_words,
    encode,
    fold,
    max_abs,
    max_column_sum,
    shift,
    unfold,
)
from vfsl.errors import BoundExceeded, ConfigError, InputError
from vfsl.values import Array

VECTORS = json.loads((Path(__file__).parent / "vectors" / "fixed.json").read_text())


def test_vectors() -> None:
    for case in VECTORS:
        got = encode(np.array([float.fromhex(case["x"])]), case["bits"])
        assert got.dtype == np.int64
        assert got.tolist() == [case["ints"]]


@given(st.lists(st.floats(-1e6, 1e6), max_size=20), st.integers(0, 30))
def test_round_trip_is_within_half_a_step(reals: list[float], bits: int) -> None:
    x = np.array(reals, dtype=np.float64)
    assert np.all(np.abs(decode(encode(x, bits), bits) - x) <= 2.0 ** -(bits + 1))


@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=1, max_size=20), st.integers(0, 62))
def test_shift_rounds_half_to_even_exactly(ints: list[int], bits: int) -> None:
    expected = [round(Fraction(value, 2**bits)) for value in ints]
    assert shift(np.array(ints, dtype=np.int64), bits).tolist() == expected


def test_shift_takes_large_integers() -> None:
    large = np.array([2**100 + 2**39, -(2**100), 3 * 2**39], dtype=object)
    assert shift(large, 40).tolist() == [2**60, -(2**60), 2]


def test_shift_leaves_its_input_alone() -> None:
    ints = np.array([4, 5])
    shift(ints, 0)[0] = 9
    assert ints.tolist() == [4, 5]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(BoundExceeded, match="finite"):
        encode(np.array([1.0, bad]), 8)


@pytest.mark.parametrize(("x", "bits"), [(2.0**63, 0), (-(2.0**63), 0), (1e300, 62), (2.0, 62)])
def test_past_int64_is_refused(x: float, bits: int) -> None:
    with pytest.raises(BoundExceeded, match="passes"):
        encode(np.array([x]), bits)


def test_past_a_bound_is_refused() -> None:
    assert encode(np.array([1.0]), 4, bound=16).tolist() == [16]
    with pytest.raises(BoundExceeded, match="15"):
        encode(np.array([-1.0]), 4, bound=15)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="bits"):
        encode(np.array([1.0]), 63)
    with pytest.raises(ConfigError, match="bits"):
        shift(np.array([1]), -1)
    with pytest.raises(InputError, match="integer"):
        shift(np.array([1.5]), 1)


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
    assert max_abs(least) == 2**63
    assert max_column_sum(least) == 2**64 - 1
    assert max_abs(np.array([], dtype=np.int64)) == 0


def test_random_words_fill_their_bits() -> None:
    words = draw_words(4000, 5)
    assert set(words.tolist()) == set(range(32))
