"""No encryption: the same integers, bounds, masks and messages as elsewhere, at numpy speed.

For simulation only. Whoever receives a "ciphertext" of this scheme can read it.
"""

from __future__ import annotations

import secrets
from typing import Any, Self

import numpy as np

from vfsl.crypto import wire
from vfsl.crypto.grouping import Grouping
from vfsl.crypto.integers import exact_dot, group_places, random_words, sums_by_place
from vfsl.crypto.opening import Mask, SecretKey
from vfsl.crypto.runs import RUNS_A_VALUE, Runs
from vfsl.crypto.scheme import RESULT, EncryptedArray, PublicKey, Scheme
from vfsl.errors import CryptoError, ProtocolError
from vfsl.values import Array

# The plaintext space is Z mod 2**62: whatever fits here also fits a Paillier key or its slots.
SPACE_BITS = 62
CAPACITY = 2 ** (SPACE_BITS - 1) - 1
SPACE = np.uint64(2**SPACE_BITS - 1)


class Plain(Scheme):
    """The scheme without secrets."""

    name = "plain"
    hides = False

    def generate(self) -> tuple[PlainPublicKey, PlainSecretKey]:
        public = PlainPublicKey(secrets.token_bytes(16))
        return public, PlainSecretKey(public)

    def load_public(self, content: dict[str, Any]) -> PlainPublicKey:
        if wire.field(content, "scheme", str) != self.name:
            raise ProtocolError(
                f"A plain public key was expected. Got scheme {content['scheme']!r} instead."
            )
        tag = wire.field(content, "tag", bytes)
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
        return PlainArray(self, values.astype(np.int64), use, bound)

    def _load(
        self, payload: dict[str, Any], shape: tuple[int, ...], use: str, bound: int
    ) -> PlainArray:
        values = wire.array_field(payload, "values", np.int64, 1)
        if values.size != int(np.prod(shape, dtype=np.int64)):
            raise ProtocolError(
                f"A ciphertext of shape {shape} was expected. Got {values.size} values instead."
            )
        if int(values.max()) > bound or int(values.min()) < -bound:
            raise ProtocolError("A ciphertext holds values past its stated bound.")
        return PlainArray(self, values.reshape(shape), use, bound)

    def _load_mask(
        self, payload: dict[str, Any], shape: tuple[int, ...], bound: int, shown: Array
    ) -> PlainMask:
        numbers = wire.array_field(payload, "numbers", np.uint64, 1)
        if numbers.size != shown.max(initial=-1) + 1 or (numbers > SPACE).any():
            raise ProtocolError(
                f"A mask of shape {shape} was expected. Got {numbers.size} numbers instead, or "
                "some out of range."
            )
        return PlainMask(self, shape, bound, numbers)


class PlainArray(EncryptedArray):
    """Integers in the clear behind the interface of an encrypted array."""

    def __init__(self, key: PublicKey, values: Array, use: str, bound: int) -> None:
        super().__init__(key, values.shape, use, bound)
        self._values = values

    def _make(self, values: Array, bound: int) -> Self:
        return type(self)(self.key, values, self.use, bound)

    def _sums(self, values: Array, bound: int) -> PlainArray:
        return PlainArray(self.key, values, "any" if self.use == "any" else RESULT, bound)

    def _add(self, other: Self, bound: int) -> Self:
        return self._make(self._values + other._values, bound)

    def _subtract(self, other: Self, bound: int) -> Self:
        return self._make(self._values - other._values, bound)

    def _add_plain(self, values: Array, bound: int) -> Self:
        return self._make(self._values + values.astype(np.int64), bound)

    def _scale(self, factor: int, bound: int) -> Self:
        # A factor past int64 passes the bound check only on an array of zeros.
        small = factor if self.bound else 0
        return self._make(self._values * np.int64(small), bound)

    def _multiply(self, values: Array, bound: int) -> Self:
        return self._make(self._values * (values if self.bound else 0), bound)

    def _inner(self, columns: Array, bound: int) -> PlainArray:
        if self.bound == 0:
            columns = np.zeros(columns.shape, dtype=np.int64)
        rows = columns.shape[0]
        dots = exact_dot(self._values.reshape(rows, -1), columns, bound)
        return self._sums(dots if self._values.ndim == 2 else dots[0], bound)

    def _sum_by(self, groups: Array, n: int, bound: int) -> PlainArray:
        return self._sums(self._grouped(group_places(groups[:, None], n), n)[0], bound)

    def _sum_by_many(self, grouping: Grouping, bound: int) -> PlainArray:
        return self._sums(self._grouped(grouping.places, grouping.n), bound)

    def _grouped(self, places: Array, n: int) -> Array:
        """Sums for all groupings (rows, f), (f, n, ...)."""
        rows, groupings = places.shape
        sums = sums_by_place(places, self._values.reshape(rows, -1), groupings * (n + 1))
        return sums.reshape(groupings, n + 1, *self.shape[1:])[:, 1:]

    def _take(self, rows: Array) -> Self:
        return self._make(self._values[rows], self.bound)

    def _masked(self) -> tuple[dict[str, Any], PlainMask]:
        return self._hidden(self._values.reshape(-1), self.shape, self.bound)

    def _masked_runs(
        self, runs: Runs, shown: Array, bound: int
    ) -> tuple[dict[str, Any], PlainMask]:
        return self._hidden(runs.of(self._values.reshape(-1))[shown], (len(shown),), bound)

    def _hidden(
        self, values: Array, shape: tuple[int, ...], bound: int
    ) -> tuple[dict[str, Any], PlainMask]:
        mask = random_words(values.size, SPACE_BITS)
        hidden = (values.astype(np.uint64) + mask) & SPACE
        return {"values": hidden}, PlainMask(self.key, shape, bound, mask)

    def _rerandomised(self) -> dict[str, Any]:
        return {"values": self._values.reshape(-1)}


class PlainMask(Mask):
    """A uniform number mod 2**62 for every value."""

    def __init__(self, key: PublicKey, shape: tuple[int, ...], bound: int, mask: Array) -> None:
        super().__init__(key, shape, bound)
        self._mask = mask

    def _remove(self, payload: dict[str, Any]) -> Array:
        values = wire.array_field(payload, "values", np.uint64, 1)
        if values.size != self._mask.size:
            raise ProtocolError(
                f"An answer with {self._mask.size} values was expected. Got {values.size} instead."
            )
        return centred((values - self._mask) & SPACE).reshape(self.shape)

    def _fields(self) -> dict[str, Any]:
        return {"numbers": self._mask}


class PlainSecretKey(SecretKey):
    """Opens what was never closed."""

    def _decrypt(self, array: EncryptedArray) -> Array:
        if not isinstance(array, PlainArray):
            raise CryptoError("A plain key opens plain arrays only.")
        return array._values

    def _open(self, payload: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        size = int(np.prod(shape, dtype=np.int64))
        return {"values": self._opened(payload, shape, size, size)}

    def _open_runs(self, payload: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        most = RUNS_A_VALUE * int(np.prod(shape, dtype=np.int64))
        return {"values": self._opened(payload, shape, 0, most)}

    def _opened(
        self, payload: dict[str, Any], shape: tuple[int, ...], least: int, most: int
    ) -> Array:
        values = wire.array_field(payload, "values", np.uint64, 1)
        if not least <= values.size <= most:
            raise ProtocolError(
                f"A masked request of shape {shape} was expected. Got {values.size} values instead."
            )
        if values.size and values.max() > SPACE:
            raise ProtocolError("A masked request holds values outside the plaintext space.")
        return values


def centred(values: Array) -> Array:
    """Residues mod 2**62 as signed integers around zero."""
    unused = np.uint64(64 - SPACE_BITS)
    # Moving the sign bit to the top lets the arithmetic shift back extend it.
    return (values << unused).astype(np.int64) >> np.int64(unused)
