"""BFV encryption (ring LWE) of integer arrays with SEAL: exact inner products by packing.

Security: N = 8192, at most 218 bits of modulus, 128 bits by the HomomorphicEncryption.org tables.
The plaintext space is Z mod 2**plain_bits.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import seal

from vfsl.crypto import wire
from vfsl.crypto.bfv_array import BFVArray
from vfsl.crypto.bfv_opening import BFVMask, BFVSecretKey, Tickets, load_mask
from vfsl.crypto.packing import Layout, rows_layout
from vfsl.crypto.ring import DEGREE, Parameters, Ring, Zeros, parameters, ring_of
from vfsl.crypto.scheme import RESULT, PublicKey, Scheme
from vfsl.errors import ConfigError, KeyMismatch, ProtocolError
from vfsl.values import Array


class BFV(Scheme):
    """Brakerski-Fan-Vercauteren with a power-of-two plaintext modulus.

    Parameters
    ----------
    security : int
        128, or 112, which gets 128 too.
    plain_bits : int
        Values are signed integers of so many bits, 58 by default.
    modulus_bits : tuple of int
        Sizes of the data primes. More bits leave more room for large plain columns; the default
        takes columns whose absolute values add up to about 2**46.
    """

    name = "bfv"
    elementwise = False

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
        ring = ring_of(self.params)
        generator = seal.KeyGenerator(ring.context)
        text = generator.create_public_key().to_string()
        public = BFVPublicKey(self.params, text[len(text) - ring.key_bytes :])
        return public, BFVSecretKey(public, generator.secret_key())

    def load_public(self, content: dict[str, Any]) -> BFVPublicKey:
        if wire.field(content, "scheme", str) != self.name:
            raise ProtocolError(
                f"A bfv public key was expected. Got scheme {content['scheme']!r} instead."
            )
        came = wire.field(content, "parameters", str)
        if came != self.params.text:
            raise KeyMismatch(
                f"A bfv key with parameters {self.params.text} was expected. Got {came[:60]!r} "
                "instead; all parties of a job must use the same options."
            )
        numbers = wire.field(content, "public", bytes)
        ring = ring_of(self.params)
        if len(numbers) != ring.key_bytes or not any(numbers[: 8 * DEGREE]):
            raise KeyMismatch("The bfv public key has another size than its parameters.")
        try:
            return BFVPublicKey(self.params, numbers)
        except (ValueError, RuntimeError):
            raise KeyMismatch("The bfv public key is not valid for its parameters.") from None


class BFVPublicKey(PublicKey):
    """A public key of SEAL, and a pool of encryptions of zero."""

    scheme = "bfv"

    def __init__(self, params: Parameters, public: bytes) -> None:
        self.params = params
        self.ring: Ring = ring_of(params)
        self.capacity = 2 ** (params.plain_bits - 1) - 1
        self._public = public
        self.pool = Zeros(params, public)
        self.tickets = Tickets()
        self.pool.prepare(1)  # SEAL validates the key's numbers when it first uses them

    def to_wire(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "parameters": self.params.text, "public": self._public}

    def prepare(self, count: int) -> None:
        """Precompute encryptions of zero for ``count`` further ciphertexts."""
        self.pool.prepare(count)

    def prepare_in_background(self, count: int) -> threading.Thread:
        return self.pool.prepare_in_background(count)

    def _encrypt(self, values: Array, use: str, bound: int) -> BFVArray:
        layout = rows_layout(values.shape, use, DEGREE)
        polynomials = self.polynomials(values, layout)
        zeros = self.pool.take(len(polynomials))
        raws = np.stack(
            [self.ring.add_plain(zero, row) for zero, row in zip(zeros, polynomials, strict=True)]
        )
        noise = self.ring.fresh_noise
        return BFVArray(self, values.shape, use, bound, raws, layout, noise, 0, fresh=True)

    def polynomials(self, values: Array, layout: Layout) -> Array:
        """Values mod t at their places, zero elsewhere."""
        rows = np.zeros((layout.count(values.shape), DEGREE), dtype=np.uint64)
        rows[layout.places(values.shape)] = self.ring.residues(values)
        return rows

    def _load(
        self, payload: dict[str, Any], shape: tuple[int, ...], use: str, bound: int
    ) -> BFVArray:
        layout = self.read_layout(payload, shape)
        if (use == RESULT) != (layout.kind != "rows"):
            raise ProtocolError(f"A bfv array of use {use!r} cannot hold {layout.kind!r}.")
        levels = (len(self.ring.primes), self.ring.low)
        raws = self.read_numbers(payload, layout.count(shape), levels)
        noise = (1 << min(max(wire.field(payload, "noise", int), 0), 1024)) - 1
        if not self.ring.fresh_noise <= noise <= self.ring.limit(raws.shape[2]):
            raise ProtocolError("A bfv array states a noise that it cannot have.")
        return BFVArray(self, shape, use, bound, raws, layout, noise, 0, fresh=False)

    def _load_mask(
        self, payload: dict[str, Any], shape: tuple[int, ...], bound: int, shown: Array
    ) -> BFVMask:
        return load_mask(self, payload, shape, bound, shown)

    def read_layout(self, payload: dict[str, Any], shape: tuple[int, ...]) -> Layout:
        """The layout that a message states, if an array of this shape can have it."""
        kind = wire.field(payload, "kind", str)
        columns, ka, kb = (wire.field(payload, name, int) for name in ("columns", "ka", "kb"))
        layout = Layout(kind, columns, ka, kb, DEGREE)
        if kind not in ("rows", "inner", "sums") or not layout.fits(shape):
            raise ProtocolError(f"A bfv array of shape {shape} cannot have the layout {layout}.")
        return layout

    def read_numbers(self, payload: dict[str, Any], count: int, levels: tuple[int, ...]) -> Array:
        """The ciphertexts of a message, at one of the levels given by numbers of limbs."""
        numbers = wire.array_field(payload, "numbers", np.uint64, 4)
        if numbers.shape not in [(count, 2, limbs, DEGREE) for limbs in levels]:
            raise ProtocolError(
                f"{count} bfv ciphertexts were expected. Got an array {numbers.shape} instead."
            )
        if not self.ring.in_range(numbers):
            raise ProtocolError("A bfv ciphertext lies outside its range.")
        return numbers
