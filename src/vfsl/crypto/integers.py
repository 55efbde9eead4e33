"""Exact integers: what may be encrypted, how large it can get, and uniform randomness."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np

from vfsl.errors import InputError
from vfsl.values import Array

INT64_MAX = 2**63 - 1
# Below this every product and every partial sum of a dot product is exact in float64,
# whatever order BLAS adds in; above it BLAS would round silently.
FLOAT_EXACT = 2**53


def as_integers(values: Any, what: str) -> Array:
    """Return ``values`` as an int64 array, or as an object array of Python ints if larger."""
    array = np.asarray(values)
    if array.dtype.kind == "i":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "u":
        small = array.size == 0 or int(array.max()) <= INT64_MAX
        return array.astype(np.int64) if small else array.astype(object)
    if array.dtype.kind == "O":
        return _from_objects(array, what)
    if array.size == 0 and not isinstance(values, np.ndarray):
        return array.astype(np.int64)  # an empty list has no type of its own
    raise InputError(
        f"{what} must be an integer array, since schemes compute on exact integers. "
        f"Got dtype {array.dtype} instead; encode real numbers with vfsl.crypto.fixed.encode."
    )


def _from_objects(array: Array, what: str) -> Array:
    # bool is an int for Python, but a truth value among amounts is a mistake of the caller.
    for value in array.flat:
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise InputError(
                f"{what} must hold Python ints only. Got an element of type "
                f"{type(value).__name__} instead."
            )
    exact = np.empty(array.shape, dtype=object)
    exact.reshape(-1)[:] = [int(value) for value in array.flat]
    return narrow(exact)


def narrow(values: Array) -> Array:
    """An object array as int64 when every element fits, else unchanged."""
    if values.dtype.kind == "O" and largest(values) <= INT64_MAX:
        return values.astype(np.int64)
    return values


def object_array(values: list[int], shape: tuple[int, ...]) -> Array:
    """Python ints as an object array; numpy alone would guess a dtype and may round."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


def largest(values: Array) -> int:
    """The largest absolute value, 0 for an empty array."""
    if values.size == 0:
        return 0
    return max(abs(int(values.max())), abs(int(values.min())))


def largest_column_sum(columns: Array) -> int:
    """The largest sum of absolute values down one column (the L1 norm that bounds ``inner``)."""
    if columns.size == 0:
        return 0
    if largest(columns) * columns.shape[0] > INT64_MAX:
        columns = columns.astype(object)
    return int(np.abs(columns).sum(axis=0).max())


def negated(values: Array) -> Array:
    """−values, also where int64 has no negative."""
    if values.dtype.kind == "i" and largest(values) > INT64_MAX:
        values = values.astype(object)
    return -values


def group_places(codes: Array, n: int) -> Array:
    """Codes (rows, groupings) as places in one row of all groups of all groupings.

    Every grouping has a group more in front, which −1 falls into: a row that counts nowhere.
    """
    return np.asarray(codes + (np.arange(codes.shape[1]) * (n + 1) + 1))


def sums_by_place(places: Array, values: Array, count: int) -> Array:
    """Values (rows, k) summed at each of a row's places (rows, f), below ``count``; (count, k).

    One compiled pass over integers, by a matrix with a one for each place: a column is a row.
    """
    from scipy import sparse

    rows, many = places.shape
    narrow = places.size <= np.iinfo(places.dtype).max
    starts = np.arange(rows + 1, dtype=places.dtype if narrow else np.int64) * many
    belongs = sparse.csc_array((_ones(places.size), places.ravel(), starts), shape=(count, rows))
    return np.asarray(belongs @ values)


_kept_ones = np.ones(0, dtype=np.int64)
_MOST_KEPT = 1 << 22


def _ones(count: int) -> Array:
    """So many ones; where they are few, always the same, since making them costs as much."""
    global _kept_ones
    if count > _MOST_KEPT:
        return np.ones(count, dtype=np.int64)
    kept = _kept_ones
    if len(kept) < count:
        _kept_ones = kept = np.ones(min(2 * count, _MOST_KEPT), dtype=np.int64)
    return kept[:count]


def exact_dot(left: Array, right: Array, bound: int) -> Array:
    """``left.T @ right`` of int64 matrices, exactly, where no result can pass ``bound``.

    BLAS multiplies floats only, so the right side is cut into digits so narrow that every
    partial sum stays below 2**53, and the digits are put together again in integers.
    """
    rows = left.shape[0]
    spread = largest(left) * rows
    if bound < FLOAT_EXACT:
        return (left.T.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)
    width = 52 - spread.bit_length()
    if width < 8:  # so many digits would be slower than numpy's own integer loop
        return left.T @ right
    floats = left.T.astype(np.float64)
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    rest, shift = right, 0
    while rest.any():
        # The last digit keeps the sign: an arithmetic shift ends at -1, never at 0.
        last = largest(rest) < 2**width
        digit = rest if last else rest & (2**width - 1)
        total += (floats @ digit.astype(np.float64)).astype(np.int64) << shift
        if last:
            break
        rest, shift = rest >> width, shift + width
    return total


def to_matrix(numbers: list[int], width: int) -> Array:
    """Non-negative integers as rows of a uint8 matrix, big-endian, ``width`` bytes each."""
    joined = b"".join([number.to_bytes(width, "big") for number in numbers])
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(numbers), width)


def from_matrix(matrix: Array) -> list[int]:
    """The integers of :func:`to_matrix`."""
    width = matrix.shape[1]
    joined = matrix.tobytes()
    return [
        int.from_bytes(joined[start : start + width], "big")
        for start in range(0, len(joined), width)
    ]


def random_words(count: int, bits: int) -> Array:
    """``count`` uniform integers below 2**bits (at most 64) from the operating system."""
    words = np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)
    return words >> np.uint64(64 - bits)


def expanded_words(seed: bytes, count: int, bits: int) -> Array:
    """The same as :func:`random_words` for everybody who holds ``seed``, by SHAKE-256."""
    stream = hashlib.shake_256(b"vfsl.crypto words" + seed).digest(8 * count)
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64) >> np.uint64(64 - bits)


def random_below(limit: int) -> int:
    """A uniform integer below ``limit`` from the operating system, by rejection."""
    return secrets.randbelow(limit)
