"""BFV encryption (ring LWE) of integer arrays with SEAL: two rings, coefficients and slots.

Coefficients (N = 8192, at most 218 bits of modulus, plaintext space Z mod 2**plain_bits) are
packed for inner products and group sums. Slots (N = 16384, at most 438 bits, Z mod a 60-bit prime)
are for element-wise products, and have room for two plain products one after the other with
flooding behind each. Both have 128 bits of security by the HomomorphicEncryption.org tables, and
keys of their own.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from vfsl.crypto import wire
from vfsl.crypto.bfv_array import BFVArray
from vfsl.crypto.bfv_opening import BFVMask, BFVSecretKey, load_mask
from vfsl.crypto.packing import SLOTTED, Layout, rows_layout
from vfsl.crypto.ring import DEGREE, SLOT_DEGREE, SLOTS, Parameters, Ring, parameters
from vfsl.crypto.ring_key import RingKey
from vfsl.crypto.scheme import RESULT, PublicKey, Scheme, Use
from vfsl.errors import ConfigError, KeyMismatch, ProtocolError
from vfsl.values import Array

# The kinds of layout in each ring.
KINDS = {DEGREE: ("rows", "inner", "sums"), SLOT_DEGREE: (SLOTTED, "inner", "sums")}


class BFV(Scheme):
    """Brakerski-Fan-Vercauteren over exact integers.

    Parameters
    ----------
    security : int
        128, or 112, which gets 128 too.
    plain_bits : int
        Values in coefficients are signed integers of so many bits, 58 by default; those in slots
        always have 60.
    modulus_bits : tuple of int
        Sizes of the data primes of coefficients. More bits leave more room for large plain
        columns; the default takes columns whose absolute values add up to about 2**46.
    """

    name = "bfv"

    def __init__(
        self,
        security: int = 128,
        *,
        plain_bits: int = 58,
        modulus_bits: tuple[int, ...] = (60, 60, 60),
    ) -> None:
        if security not in (128, 112):
            raise ConfigError(
                f"The security parameter of bfv must be 128 or 112. Got {security!r} instead."
            )
        super().__init__(128)  # whoever is content with 112 bits gets 128 at no cost
        self.params = parameters(plain_bits, tuple(modulus_bits))

    def generate(self) -> tuple[BFVPublicKey, BFVSecretKey]:
        packed, packed_secret = RingKey.generate(self.params)
        slots, slots_secret = RingKey.generate(SLOTS)
        public = BFVPublicKey(self.params, packed, slots)
        return public, BFVSecretKey(public, {DEGREE: packed_secret, SLOT_DEGREE: slots_secret})

    def load_public(self, content: dict[str, Any]) -> BFVPublicKey:
        if wire.field(content, "scheme", str) != self.name:
            raise ProtocolError(
                f"A bfv public key was expected. Got scheme {content['scheme']!r} instead."
            )
        came, expected = wire.field(content, "parameters", str), texts(self.params)
        if came != expected:
            raise KeyMismatch(
                f"A bfv key with parameters {expected} was expected. Got {came[:120]!r} "
                "instead; all parties of a job must use the same options."
            )
        packed = RingKey.load(self.params, wire.field(content, "public", bytes))
        return BFVPublicKey(
            self.params, packed, RingKey.load(SLOTS, wire.field(content, "slots", bytes))
        )


class BFVPublicKey(PublicKey):
    """Public keys of SEAL for both rings."""

    scheme = "bfv"

    def __init__(self, params: Parameters, packed: RingKey, slots: RingKey) -> None:
        self.params = params
        self.packed = packed
        self.slots = slots
        self.capacity = min(packed.capacity, slots.capacity)

    @property
    def widest(self) -> int:
        return max(self.packed.capacity, self.slots.capacity)

    @property
    def ring(self) -> Ring:
        """The ring of coefficients."""
        return self.packed.ring

    def at(self, degree: int) -> RingKey:
        """The key of a layout's ring."""
        return self.slots if degree == SLOT_DEGREE else self.packed

    def to_wire(self) -> dict[str, Any]:
        return {
            "scheme": self.scheme,
            "parameters": texts(self.params),
            "public": self.packed.public,
            "slots": self.slots.public,
        }

    def prepare(self, count: int, *, use: Use = "inner") -> None:
        """Precompute encryptions of zero for ``count`` further ciphertexts."""
        self._for(use).pool.prepare(count)

    def prepare_in_background(self, count: int, *, use: Use = "inner") -> threading.Thread:
        return self._for(use).pool.prepare_in_background(count)

    def _for(self, use: Use) -> RingKey:
        return self.slots if use == "any" else self.packed

    def _encrypt(self, values: Array, use: str, bound: int) -> BFVArray:
        layout = rows_layout(values.shape, use, DEGREE, SLOT_DEGREE)
        key = self.at(layout.degree)
        polynomials = key.polynomials(values, layout)
        zeros = key.pool.take(len(polynomials))
        raws = np.stack(
            [key.ring.add_plain(zero, row) for zero, row in zip(zeros, polynomials, strict=True)]
        )
        noise = key.ring.fresh_noise
        return BFVArray(self, values.shape, use, bound, raws, layout, noise, 0, fresh=True)

    def _load(
        self, payload: dict[str, Any], shape: tuple[int, ...], use: str, bound: int
    ) -> BFVArray:
        layout = self.read_layout(payload, shape)
        kind = {"any": SLOTTED, RESULT: layout.kind}.get(use, "rows")
        if layout.kind != kind or (use == RESULT) == layout.holds_rows:
            raise ProtocolError(f"A bfv array of use {use!r} cannot hold {layout.kind!r}.")
        key = self.at(layout.degree)
        if bound > key.capacity:
            raise ProtocolError("A bfv array states a bound that its layout cannot hold.")
        raws = read_numbers(key.ring, payload, layout.count(shape))
        noise = (1 << min(max(wire.field(payload, "noise", int), 0), 1024)) - 1
        if not key.ring.fresh_noise <= noise <= key.ring.limit(raws.shape[2]):
            raise ProtocolError("A bfv array states a noise that it cannot have.")
        return BFVArray(self, shape, use, bound, raws, layout, noise, 0, fresh=False)

    def _load_mask(
        self, payload: dict[str, Any], shape: tuple[int, ...], bound: int, shown: Array
    ) -> BFVMask:
        return load_mask(self, payload, shape, bound, shown)

    def read_layout(self, payload: dict[str, Any], shape: tuple[int, ...]) -> Layout:
        """The layout that a message states, if an array of this shape can have it."""
        kind, degree = wire.field(payload, "kind", str), self.read_degree(payload)
        columns, ka, kb = (wire.field(payload, name, int) for name in ("columns", "ka", "kb"))
        layout = Layout(kind, columns, ka, kb, degree)
        if kind not in KINDS[degree] or not layout.fits(shape):
            raise ProtocolError(f"A bfv array of shape {shape} cannot have the layout {layout}.")
        if degree == SLOT_DEGREE and ka * kb != 1:
            raise ProtocolError("Sums over bfv slots come one a ciphertext.")
        return layout

    def read_degree(self, payload: dict[str, Any]) -> int:
        """The ring that a message states."""
        degree = wire.field(payload, "degree", int)
        if degree not in KINDS:
            raise ProtocolError(f"A bfv ring of {list(KINDS)} was expected. Got {degree} instead.")
        return degree


def texts(params: Parameters) -> str:
    """The parameters of both rings."""
    return f"{params.text} {SLOTS.text}"


def read_numbers(ring: Ring, payload: dict[str, Any], count: int) -> Array:
    """The ciphertexts of a message, at a level at which they may leave."""
    numbers = wire.array_field(payload, "numbers", np.uint64, 4)
    if numbers.shape not in [(count, 2, limbs, ring.degree) for limbs in ring.levels]:
        raise ProtocolError(
            f"{count} bfv ciphertexts were expected. Got an array {numbers.shape} instead."
        )
    if not ring.in_range(numbers):
        raise ProtocolError("A bfv ciphertext lies outside its range.")
    return numbers
