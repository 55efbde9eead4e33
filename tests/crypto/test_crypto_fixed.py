"""Fixed point is exact: vectors, rounding, limits."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfsl.crypto.fixed import decode, encode, shift
from vfsl.errors import BoundExceeded, ConfigError, InputError

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
