"""Fixed point: real numbers as integers and back; exact, so every scheme agrees bit for bit."""

from __future__ import annotations

import numpy as np

from vfsl.crypto.integers import INT64_MAX, as_integers, largest, narrow
from vfsl.errors import BoundExceeded, ConfigError
from vfsl.values import Array

MAX_BITS = 62


def encode(x: Array, bits: int, *, bound: int = INT64_MAX) -> Array:
    """Real numbers as multiples of ``2**-bits``.

    Parameters
    ----------
    x : array of real numbers
    bits : int
        Bits behind the binary point, 0 to 62.
    bound : int
        Largest absolute result that is allowed; at most the int64 range.

    Returns
    -------
    int64 array
        ``x * 2**bits``, rounded half to even.

    Raises
    ------
    BoundExceeded
        If a number is not finite or its encoding would pass ``bound``.
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
        raise BoundExceeded(_past(bits, "2**63 - 1"))
    whole = scaled.astype(np.int64)
    if largest(whole) > limit:
        raise BoundExceeded(_past(bits, str(limit)))
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
    return narrow(floor + up)


def _check_bits(bits: int) -> None:
    if not 0 <= bits <= MAX_BITS:
        raise ConfigError(
            f"The bits parameter of fixed point must be between 0 and {MAX_BITS}. "
            f"Got {bits} instead."
        )


def _past(bits: int, limit: str) -> str:
    return (
        f"encode was given a number that passes {limit} at {bits} bits behind the point; "
        "use fewer bits or scale the column down."
    )
