"""Many small signed integers in one large plaintext: 64-bit digits, one slot each.

A large number m = Σ v_j · 2^(64 j) with |v_j| < 2^63 adds and scales slot by slot. Adding 2^63 to
every digit makes all of them non-negative, so that bytes can be cut apart without carries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vfsl.crypto.integers import largest, object_array
from vfsl.errors import BoundExceeded, ConfigError, CryptoError
from vfsl.values import Array

SLOT_BITS = 64
SLOT_CAPACITY = 2**63 - 1
_SIGN = np.uint64(2**63)


def offset(count: int) -> int:
    """2^63 in every one of ``count`` slots."""
    return int.from_bytes((b"\0" * 7 + b"\x80") * count, "little")


def join(digits: Array) -> list[int]:
    """Rows of int64 digits as one signed integer a row."""
    count = digits.shape[1]
    lifted = (digits.astype(np.int64).view(np.uint64) ^ _SIGN).astype("<u8").tobytes()
    step, base = 8 * count, offset(count)
    return [
        int.from_bytes(lifted[start : start + step], "little") - base
        for start in range(0, len(lifted), step)
    ]


def cut(numbers: list[int], count: int) -> Array:
    """The rows of int64 digits behind :func:`join`."""
    base = offset(count)
    try:
        lifted = b"".join([(number + base).to_bytes(8 * count, "little") for number in numbers])
    except OverflowError:
        raise CryptoError("The ciphertext could not be decrypted.") from None
    digits = np.frombuffer(lifted, dtype="<u8").astype(np.uint64) ^ _SIGN
    return digits.view(np.int64).reshape(len(numbers), count)


def fold(values: Array, bits: int) -> Array:
    """The last axis as one integer: Σ v_j · 2^(bits j).

    Group sums of folded rows are folded group sums, so (g, h) of a tree cost one column under
    every scheme. ``bits`` must cover the sums with their sign: |Σ v_j| < 2^(bits−1).
    """
    _check_fold(values.shape[-1], bits)
    if largest(values) >= 1 << (bits - 1):
        raise BoundExceeded(f"fold was given a value that does not fit {bits} bits.")
    weights = np.int64(1) << (bits * np.arange(values.shape[-1], dtype=np.int64))
    return np.asarray((values.astype(np.int64) * weights).sum(axis=-1))


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


def _check_fold(count: int, bits: int) -> None:
    if bits < 2 or count * bits > 62:
        raise ConfigError(
            f"Folding takes at most 62 bits in all. Got {count} integers of {bits} bits instead."
        )


@dataclass(frozen=True)
class Slots:
    """How the values of an array are spread over numbers: ``count`` a number, along ``axis``."""

    count: int = 1
    axis: int = -1

    def numbers_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the array of numbers behind an array of values."""
        if self.count == 1:
            return shape
        lengths = list(shape)
        lengths[self.axis] = -(-lengths[self.axis] // self.count)
        return tuple(lengths)

    def pack(self, values: Array) -> list[int]:
        """Values as numbers, in C order of :meth:`numbers_shape`."""
        if self.count == 1:
            return [int(value) for value in values.reshape(-1).tolist()]
        axis = self.axis % values.ndim
        outer = self.numbers_shape(values.shape)
        missing = outer[axis] * self.count - values.shape[axis]
        padded = np.pad(values, [(0, missing if at == axis else 0) for at in range(values.ndim)])
        split = padded.reshape(*outer[: axis + 1], self.count, *outer[axis + 1 :])
        digits = np.moveaxis(split, axis + 1, -1)
        return join(digits.reshape(-1, self.count))

    def unpack(self, numbers: list[int], shape: tuple[int, ...]) -> Array:
        """The values behind :meth:`pack`."""
        if self.count == 1:
            return object_array(numbers, shape)
        return self.from_digits(cut(numbers, self.count), shape)

    def from_digits(self, digits: Array, shape: tuple[int, ...]) -> Array:
        """Values from one row of digits a number."""
        if self.count == 1:
            return digits.reshape(shape)
        outer = self.numbers_shape(shape)
        split = digits.reshape(*outer, self.count)
        axis = self.axis % len(shape)
        # Put the digit axis right behind the packed one, and let the two become one again.
        merged = np.moveaxis(split, -1, axis + 1)
        lengths = [*outer]
        lengths[axis] *= self.count
        whole = merged.reshape(lengths)
        return whole[tuple(slice(length) for length in shape)]
