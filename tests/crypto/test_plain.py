"""Exact products of integer matrices by floats."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vfsl.crypto.fixed import max_abs, max_column_sum
from vfsl.crypto.plain import multiply_exactly


@given(st.integers(0, 2**32), st.integers(1, 58), st.integers(1, 40))
def test_multiply_exactly(seed: int, bits: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    left_bits = int(rng.integers(0, bits + 1))
    left = rng.integers(-(2**left_bits), 2**left_bits, size=(rows, 3), endpoint=True)
    right = rng.integers(-(2 ** (bits - left_bits)), 2 ** (bits - left_bits), size=(rows, 2))
    exact = left.T.astype(object) @ right.astype(object)
    bound = max_abs(left) * max_column_sum(right)
    if bound < 2**61:
        np.testing.assert_array_equal(multiply_exactly(left, right, bound), exact)


def test_multiply_exactly_where_floats_round() -> None:
    left = np.arange(1, 4001).reshape(2000, 2) + 2**24
    right = np.arange(5, 2005)[:, None] - 2**24
    exact = left.T.astype(object) @ right.astype(object)
    bound = max_abs(left) * max_column_sum(right)
    np.testing.assert_array_equal(multiply_exactly(left, right, bound), exact)
    assert ((left.T.astype(float) @ right.astype(float)).astype(np.int64) != exact).any()
