"""No encryption: the same integers, bounds, masks and messages as elsewhere, at numpy speed.

For simulation only. Whoever receives a "ciphertext" of this scheme can read it.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from vfsl.crypto import wire
from vfsl.crypto.fixed import draw_words, max_abs
from vfsl.crypto.opening import Mask, SecretKey
from vfsl.crypto.scheme import RESULT, EncryptedArray, PublicKey, Scheme
from vfsl.crypto.sums import SUMS_PER_VALUE, Grouping, PrefixSums, sum_by_place
from vfsl.errors import CryptoError, ProtocolError
from vfsl.values import Array

# The plaintext space is Z mod 2**62: whatever fits here also fits a Paillier key or its slots.
SPACE_BITS = 62
CAPACITY = 2 ** (SPACE_BITS - 1) - 1
SPACE = np.uint64(2**SPACE_BITS - 1)
# Below this every product and every partial sum of a dot product is exact in float64,
# whatever order BLAS adds in; above it BLAS would round silently.
FLOAT_EXACT = 2**53


class Plain(Scheme):
    """The scheme without secrets."""

    name = "plain"
    hides = False

    def generate(self) -> tuple[PlainPublicKey, PlainSecretKey]:
        public = PlainPublicKey(secrets.token_bytes(16))
        return public, PlainSecretKey(public)

    def _load_public(self, content: dict[str, Any]) -> PlainPublicKey:
        tag = wire.read_field(content, "tag", bytes)
        if len(tag) != 16:
            raise ProtocolError(f"A plain key's tag must have 16 bytes. Got {len(tag)} instead.")
        return PlainPublicKey(tag)


class PlainPublicKey(PublicKey):
    """A name only, so that arrays of two keys do not mix here either."""

    scheme = "plain"
    capacity = CAPACITY

    def __init__(self, tag: bytes) -> None:
        self._tag = tag

    def to_wire(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "tag": self._tag}

    def _encrypt(self, values: Array, use: str, bound: int) -> PlainArray:
        return PlainArray(self, values.shape, use, bound, values.astype(np.int64))

    def _load(
        self, payload: dict[str, Any], shape: tuple[int, ...], use: str, bound: int
    ) -> PlainArray:
        values = wire.read_array(payload, "values", np.int64, 1)
        if values.size != math.prod(shape):
            raise ProtocolError(
                f"A ciphertext of shape {shape} was expected. Got {values.size} values instead."
            )
        if int(values.max()) > bound or int(values.min()) < -bound:
            raise ProtocolError("A ciphertext holds values past its stated bound.")
        return PlainArray(self, shape, use, bound, values.reshape(shape))

    def _load_mask(
        self, payload: dict[str, Any], shape: tuple[int, ...], bound: int, shown: Array
    ) -> PlainMask:
        numbers = wire.read_array(payload, "numbers", np.uint64, 1)
        if numbers.size != shown.max(initial=-1) + 1 or (numbers > SPACE).any():
            raise ProtocolError(
                f"A mask of shape {shape} was expected. Got {numbers.size} numbers instead, or "
                "some out of range."
            )
        return PlainMask(self, shape, bound, numbers)


@dataclass(eq=False, repr=False)
class PlainArray(EncryptedArray):
    """Integers in the clear behind the interface of an encrypted array."""

    values: Array

    def _make(self, values: Array, bound: int) -> Self:
        return replace(self, shape=values.shape, bound=bound, values=values)

    def _make_sums(self, values: Array, bound: int) -> PlainArray:
        use = "any" if self.use == "any" else RESULT
        return PlainArray(self.key, values.shape, use, bound, values)

    def _add(self, other: Self, bound: int) -> Self:
        return self._make(self.values + other.values, bound)

    def _subtract(self, other: Self, bound: int) -> Self:
        return self._make(self.values - other.values, bound)

    def _add_plain(self, values: Array, bound: int) -> Self:
        return self._make(self.values + values.astype(np.int64), bound)

    def _scale(self, factor: int, bound: int) -> Self:
        # A factor past int64 passes the bound check only on an array of zeros.
        small = factor if self.bound else 0
        return self._make(self.values * np.int64(small), bound)

    def _multiply(self, values: Array, bound: int) -> Self:
        return self._make(self.values * (values if self.bound else 0), bound)

    def _inner(self, columns: Array, bound: int) -> PlainArray:
        if self.bound == 0:
            columns = np.zeros(columns.shape, dtype=np.int64)
        dots = multiply_exactly(self.values.reshape(len(columns), -1), columns, bound)
        return self._make_sums(dots if self.values.ndim == 2 else dots[0], bound)

    def _sum_by(self, grouping: Grouping, shape: tuple[int, ...], bound: int) -> PlainArray:
        rows, groupings = grouping.places.shape
        values, count = self.values.reshape(rows, -1), groupings * (grouping.n + 1)
        sums = sum_by_place(grouping.places, values, count)
        counted = sums.reshape(groupings, grouping.n + 1, -1)[:, 1:]
        return self._make_sums(counted.reshape(shape), bound)

    def _take(self, rows: Array) -> Self:
        return self._make(self.values[rows], self.bound)

    def _mask(self) -> tuple[dict[str, Any], PlainMask]:
        return self._hide(self.values.reshape(-1), self.shape, self.bound)

    def _mask_sums(
        self, sums: PrefixSums, shown: Array, bound: int
    ) -> tuple[dict[str, Any], PlainMask]:
        return self._hide(sums.add_up(self.values.reshape(-1))[shown], (len(shown),), bound)

    def _hide(
        self, values: Array, shape: tuple[int, ...], bound: int
    ) -> tuple[dict[str, Any], PlainMask]:
        mask = draw_words(values.size, SPACE_BITS)
        hidden = (values.astype(np.uint64) + mask) & SPACE
        return {"values": hidden}, PlainMask(self.key, shape, bound, mask)

    def _rerandomise(self) -> dict[str, Any]:
        return {"values": self.values.reshape(-1)}


@dataclass(eq=False, repr=False)
class PlainMask(Mask):
    """A uniform number mod 2**62 for every value."""

    numbers: Array

    def _remove(self, payload: dict[str, Any]) -> Array:
        values = wire.read_array(payload, "values", np.uint64, 1)
        if values.size != self.numbers.size:
            raise ProtocolError(
                f"An answer with {self.numbers.size} values was expected. Got {values.size} "
                "instead."
            )
        unused = np.uint64(64 - SPACE_BITS)
        # Moving the sign bit to the top lets the arithmetic shift back extend it.
        signed = ((values - self.numbers) << unused).astype(np.int64) >> np.int64(unused)
        return signed.reshape(self.shape)

    def _fields(self) -> dict[str, Any]:
        return {"numbers": self.numbers}


class PlainSecretKey(SecretKey):
    """Opens what was never closed."""

    def _decrypt(self, array: EncryptedArray) -> Array:
        if not isinstance(array, PlainArray):
            raise CryptoError("A plain key opens plain arrays only.")
        return array.values

    def _open(
        self, payload: dict[str, Any], shape: tuple[int, ...], prefixes: bool
    ) -> dict[str, Any]:
        values = wire.read_array(payload, "values", np.uint64, 1)
        size = math.prod(shape)
        fits = values.size <= SUMS_PER_VALUE * size if prefixes else values.size == size
        if not fits:
            raise ProtocolError(
                f"A masked request of shape {shape} was expected. Got {values.size} values instead."
            )
        if values.size and values.max() > SPACE:
            raise ProtocolError("A masked request holds values outside the plaintext space.")
        return {"values": values}


def read_plain(array: EncryptedArray) -> Array:
    """The integers of an array of this scheme, which hides none."""
    if not isinstance(array, PlainArray):
        raise CryptoError(f"An array of {array.key.scheme!r} cannot be read without its key.")
    return array.values


def multiply_exactly(left: Array, right: Array, bound: int) -> Array:
    """``left.T @ right`` of int64 matrices, exactly, where no result can pass ``bound``.

    BLAS multiplies floats only, so the right side is cut into digits so narrow that every
    partial sum stays below 2**53, and the digits are put together again in integers.
    """
    if bound < FLOAT_EXACT:
        return (left.T.astype(np.float64) @ right.astype(np.float64)).astype(np.int64)
    width = 52 - (max_abs(left) * len(left)).bit_length()
    if width < 8:  # so many digits would be slower than numpy's own integer loop
        return left.T @ right
    floats = left.T.astype(np.float64)
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
    rest, shift = right, 0
    while rest.any():
        # The last digit keeps the sign: an arithmetic shift ends at -1, never at 0.
        last = max_abs(rest) < 2**width
        digit = rest if last else rest & (2**width - 1)
        total += (floats @ digit.astype(np.float64)).astype(np.int64) << shift
        if last:
            break
        rest, shift = rest >> width, shift + width
    return total
