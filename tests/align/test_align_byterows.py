"""Rows of bytes: finding and repeats against dictionaries, and the secret order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vfsl.align.byterows import count_repeats, find, first_of_each, rows_of, secret_order

# Few different bytes, zeros among them, so that repeats and trailing zeros are common.
rows = st.lists(st.binary(min_size=3, max_size=3).map(lambda b: bytes(x % 3 for x in b)))


@given(rows, rows)
def test_find_equals_a_dictionary(wanted, among):
    among = list(dict.fromkeys(among))
    places = {row: place for place, row in enumerate(among)}
    found = find(rows_of(b"".join(wanted), 3), rows_of(b"".join(among), 3))
    assert found.tolist() == [places.get(row, -1) for row in wanted]


@given(rows)
def test_repeats_equal_a_set(values):
    values = [row[:1] * 8 + row for row in values]  # starts of eight bytes that often coincide
    array = rows_of(b"".join(values), 11)
    assert count_repeats(array) == len(values) - len(set(values))
    first = first_of_each(array)
    assert [v for v, keep in zip(values, first, strict=True) if keep] == list(dict.fromkeys(values))


def test_secret_order_is_a_fresh_permutation():
    first, second = secret_order(1000), secret_order(1000)
    assert sorted(first.tolist()) == list(range(1000))
    assert not np.array_equal(first, second)
    assert abs(np.corrcoef(np.arange(1000), first)[0, 1]) < 0.2
