"""Exact integers: what may be encrypted, real numbers in fixed point, and uniform random words.

Every scheme computes on integers exactly, so all of them agree bit for bit.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np

from vfsl.errors import BoundExceeded, ConfigError, InputError
from vfsl.values import Array

INT64_MAX = 2**63 - 1
MAX_BITS = 62


def encode(x: Array, bits: int, *, bound: int = INT64_MAX) -> Array:
    """Real numbers as multiples of ``2**-bits``: ``x * 2**bits`` as int64, rounded half to even.

    ``bits`` behind the binary point are 0 to 62. A number that is not finite, or whose encoding
    would pass ``bound`` in absolute value, raises BoundExceeded.
    """
    _check_bits(bits)
    real = np.asarray(x, dtype=np.float64)
    if not np.isfinite(real).all():
        raise BoundExceeded(
            "encode expects finite numbers. Got NaN or infinity instead; fill or drop such cells."
        )
    # Scaling by a power of two is exact in float64 (it can only overflow to infinity).
    with np.errstate(over="ignore"):
        scaled = np.rint(np.ldexp(real, bits))
    limit = min(bound, INT64_MAX)
    if scaled.size and np.abs(scaled).max() >= 2.0**63:
        raise BoundExceeded(_describe_excess(bits, "2**63 - 1"))
    whole = scaled.astype(np.int64)
    if max_abs(whole) > limit:
        raise BoundExceeded(_describe_excess(bits, str(limit)))
    return whole


def decode(ints: Array, bits: int) -> Array:
    """Multiples of ``2**-bits`` back as float64, correctly rounded."""
    _check_bits(bits)
    whole = as_integers(ints, "The ints parameter of decode")
    return np.ldexp(whole.astype(np.float64), -bits)


def shift(ints: Array, bits: int) -> Array:
    """``ints / 2**bits`` rounded half to even, in integer arithmetic only.

    Products of two fixed-point numbers carry twice the bits; this takes one half off without
    passing through floats, so shares that hold the same integers stay equal.
    """
    _check_bits(bits)
    whole = as_integers(ints, "The ints parameter of shift")
    if bits == 0:
        return whole.copy()
    floor = whole >> bits
    rest = whole - (floor << bits)
    half = 1 << (bits - 1)
    up = (rest > half) | ((rest == half) & ((floor & 1) == 1))
    return _narrow(floor + up)


def fold(values: Array, bits: int) -> Array:
    """The last axis as one integer: Σ v_j · 2^(bits j).

    Group sums of folded rows are folded group sums, so the (g, h) of a tree cost one column under
    every scheme. ``bits`` must cover the sums with their sign: |Σ v_j| < 2^(bits−1).
    """
    _check_fold(values.shape[-1], bits)
    if max_abs(values) >= 1 << (bits - 1):
        raise BoundExceeded(f"fold was given a value that does not fit {bits} bits.")
    folded = np.zeros(values.shape[:-1], dtype=np.int64)
    for place in range(values.shape[-1]):
        folded += values[..., place].astype(np.int64) << (bits * place)
    return folded


def unfold(sums: Array, count: int, bits: int) -> Array:
    """The ``count`` integers behind each folded sum, as a new last axis."""
    _check_fold(count, bits)
    rest = sums.astype(np.int64)
    digits = []
    for _ in range(count):
        # The lowest digit with its sign; what it borrowed goes back to the next one.
        unused = 64 - bits
        digit = (rest << unused) >> unused
        digits.append(digit)
        rest = (rest - digit) >> bits
    return np.stack(digits, axis=-1)


def as_integers(values: Any, what: str) -> Array:
    """``values`` as an int64 array, or as an object array of Python ints where they are larger."""
    array = np.asarray(values)
    if array.dtype.kind == "i":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "u":
        small = array.size == 0 or int(array.max()) <= INT64_MAX
        return array.astype(np.int64) if small else array.astype(object)
    if array.dtype.kind == "O":
        # bool is an int for Python, but a truth value among amounts is a mistake of the caller.
        for value in array.flat:
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise InputError(
                    f"{what} must hold Python ints only. Got an element of type "
                    f"{type(value).__name__} instead."
                )
        return _narrow(object_array([int(value) for value in array.flat], array.shape))
    if array.size == 0 and not isinstance(values, np.ndarray):
        return array.astype(np.int64)  # an empty list has no type of its own
    raise InputError(
        f"{what} must be an integer array, since schemes compute on exact integers. "
        f"Got dtype {array.dtype} instead; encode real numbers with vfsl.crypto.fixed.encode."
    )


def object_array(values: list[int], shape: tuple[int, ...]) -> Array:
    """Python ints as an object array; numpy alone would guess a dtype and may round."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


def max_abs(values: Array) -> int:
    """The largest absolute value, 0 for an empty array."""
    if values.size == 0:
        return 0
    return max(abs(int(values.max())), abs(int(values.min())))


def max_column_sum(columns: Array) -> int:
    """The largest sum of absolute values down one column (the L1 norm that bounds ``inner``)."""
    if columns.size == 0:
        return 0
    if max_abs(columns) * columns.shape[0] > INT64_MAX:
        columns = columns.astype(object)
    return int(np.abs(columns).sum(axis=0).max())


def negate(values: Array) -> Array:
    """−values, also where int64 has no negative."""
    if values.dtype.kind == "i" and max_abs(values) > INT64_MAX:
        values = values.astype(object)
    return -values


def draw_words(count: int, bits: int) -> Array:
    """``count`` uniform integers below 2**bits (at most 64 bits) from the operating system."""
    words = np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)
    return words >> np.uint64(64 - bits)


def expand_words(seed: bytes, count: int, bits: int) -> Array:
    """Like :func:`draw_words`, but the same for everybody who holds ``seed``, by SHAKE-256."""
    stream = hashlib.shake_256(b"vfsl.crypto words" + seed).digest(8 * count)
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64) >> np.uint64(64 - bits)


def _narrow(values: Array) -> Array:
    """An object array as int64 when every element fits, else unchanged."""
    if values.dtype.kind == "O" and max_abs(values) <= INT64_MAX:
        return values.astype(np.int64)
    return values


def _check_bits(bits: int) -> None:
    if not 0 <= bits <= MAX_BITS:
        raise ConfigError(
            f"The bits parameter of fixed point must be between 0 and {MAX_BITS}. "
            f"Got {bits} instead."
        )


def _check_fold(count: int, bits: int) -> None:
    if bits < 2 or count * bits > 62:
        raise ConfigError(
            f"Folding takes at most 62 bits in all. Got {count} integers of {bits} bits instead."
        )


def _describe_excess(bits: int, limit: str) -> str:
    return (
        f"encode was given a number that passes {limit} at {bits} bits behind the point; "
        "use fewer bits or scale the column down."
    )
