"""A public key in one ring: encryptions of zero, and values as plaintexts of that ring."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import seal

from vfsl.crypto.bfv_opening import Tickets
from vfsl.crypto.packing import SLOTTED, Layout
from vfsl.crypto.pool import Pool
from vfsl.crypto.ring import Parameters, Ring, ring_of
from vfsl.crypto.work import pieces, shared, workers
from vfsl.errors import KeyMismatch
from vfsl.parallel import spread
from vfsl.values import Array

# Only to decide about worker processes.
SECONDS_AN_ENCRYPTION = 5e-3
ZEROS_A_TASK = 8


class RingKey:
    """A public key of SEAL, with a pool of encryptions of zero and names for requests."""

    def __init__(self, params: Parameters, public: bytes) -> None:
        self.ring: Ring = ring_of(params)
        self.public = public
        self.pool = Zeros(params, public)
        self.tickets = Tickets()

    @classmethod
    def generate(cls, params: Parameters) -> tuple[RingKey, Any]:
        """A fresh key and SEAL's secret key to it."""
        ring = ring_of(params)
        generator = seal.KeyGenerator(ring.context)
        text = generator.create_public_key().to_string()
        return cls(params, text[len(text) - ring.key_bytes :]), generator.secret_key()

    @classmethod
    def load(cls, params: Parameters, public: bytes) -> RingKey:
        """A key whose numbers a peer sent, refused if SEAL would not take them."""
        ring = ring_of(params)
        if len(public) != ring.key_bytes:
            raise KeyMismatch("The bfv public key has another size than its parameters.")
        halves = np.frombuffer(public, dtype=np.uint64).reshape(2, -1, ring.degree)
        moduli = np.array([*ring.primes, ring.special], dtype=np.uint64)[:, None]
        # A half of zeros would leave everything readable.
        if not (halves < moduli).all() or not halves.any(axis=(1, 2)).all():
            raise KeyMismatch("The bfv public key is not valid for its parameters.")
        return cls(params, public)

    @property
    def capacity(self) -> int:
        """Largest absolute value of the plaintext space."""
        return (self.ring.t - 1) // 2

    def polynomials(self, values: Array, layout: Layout) -> Array:
        """Values mod t at their places, zero elsewhere, as coefficients."""
        rows = np.zeros((layout.count(values.shape), self.ring.degree), dtype=np.uint64)
        rows[layout.places(values.shape)] = self.ring.residues(values)
        return np.stack([self.ring.from_slots(row) for row in rows]) if _slotted(layout) else rows

    def values(self, rows: Array, layout: Layout, shape: tuple[int, ...]) -> Array:
        """The residues mod t at the places of an array's values."""
        if _slotted(layout):
            rows = np.stack([self.ring.to_slots(row) for row in rows])
        wanted: Array = rows[layout.places(shape)]
        return wanted


def _slotted(layout: Layout) -> bool:
    return layout.kind == SLOTTED


def zero_ciphertexts(task: tuple[Parameters, bytes, int]) -> list[Array]:
    """Encryptions of zero under a public key, SEAL's randomness from the operating system."""
    params, public, count = task
    encryptor, ring = _encryptor(params, public), ring_of(params)
    return [ring.raw(encryptor.encrypt_zero()) for _ in range(count)]


@lru_cache(maxsize=16)
def _encryptor(params: Parameters, public: bytes) -> Any:
    ring = ring_of(params)
    return seal.Encryptor(ring.context, ring.context.from_public_str(ring.key_header + public))


class Zeros(Pool[Array]):
    """Encryptions of zero under one public key."""

    def __init__(self, params: Parameters, public: bytes) -> None:
        super().__init__()
        self._params = params
        self._public = public

    def _elsewhere(self, count: int) -> Iterator[list[Array]]:
        tasks = [(self._params, self._public, ZEROS_A_TASK)] * -(-count // ZEROS_A_TASK)
        return spread(zero_ciphertexts, tasks, workers=max(workers(), 2))

    def _fresh(self, count: int) -> list[Array]:
        seconds = count * SECONDS_AN_ENCRYPTION * ring_of(self._params).weight
        tasks = [
            (self._params, self._public, piece.stop - piece.start)
            for piece in pieces(count, seconds)
        ]
        return [raw for part in shared(zero_ciphertexts, tasks, seconds) for raw in part]
