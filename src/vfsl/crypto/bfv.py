"""BFV encryption (ring LWE) of integer arrays with SEAL: two rings, coefficients and slots.

Coefficients (N = 8192, at most 218 bits of modulus, plaintext space Z mod 2**plain_bits) are
packed for inner products and group sums. Slots (N = 16384, at most 438 bits, Z mod a 60-bit prime)
are for element-wise products, and have room for two plain products one after the other with
flooding behind each. Both have 128 bits of security by the HomomorphicEncryption.org tables, and
keys of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import seal

from vfsl.crypto import wire
from vfsl.crypto.bfv_array import BFVArray
from vfsl.crypto.bfv_opening import BFVMask, BFVSecretKey, Tickets
from vfsl.crypto.packing import SLOTTED, Layout, choose_layout
from vfsl.crypto.ring import (
    DEGREE,
    SLOT_DEGREE,
    SLOTS,
    STATISTICAL_BITS,
    Parameters,
    Ring,
    get_ring,
)
from vfsl.crypto.scheme import RESULT, PublicKey, Scheme, Use
from vfsl.crypto.work import Pool, count_workers, cut_chunks, spread_if_worth
from vfsl.errors import ConfigError, KeyMismatch, ProtocolError
from vfsl.parallel import spread
from vfsl.values import Array

# HomomorphicEncryption.org standard, ternary secret, 128 bits.
MAX_MODULUS_BITS = {DEGREE: 218, SLOT_DEGREE: 438}
# The kinds of layout in each ring.
KINDS = {DEGREE: ("rows", "inner", "sums"), SLOT_DEGREE: (SLOTTED, "inner", "sums")}
# Only to decide about worker processes.
SECONDS_PER_ENCRYPTION = 5e-3
ZEROS_PER_TASK = 8


class BFV(Scheme):
    """Brakerski-Fan-Vercauteren over exact integers.

    Parameters
    ----------
    security : int
        128, or 112, which gets 128 too.
    plain_bits : int
        Bits of the signed integers in coefficients, 58 by default; those in slots always have 60.
    modulus_bits : tuple of int
        Sizes of the data primes of coefficients. More bits leave more room for large plain
        columns; the default takes columns whose absolute values add up to about 2**46.
    """

    name = "bfv"
    rows_together = True
    opener_sees_places = True
    serves = ("linear rounds", "linear rounds of many", "association", "trees")

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
        self.params = make_parameters(plain_bits, tuple(modulus_bits))

    def generate(self) -> tuple[BFVPublicKey, BFVSecretKey]:
        packed, packed_secret = RingKey.generate(self.params)
        slots, slots_secret = RingKey.generate(SLOTS)
        public = BFVPublicKey(self.params, packed, slots)
        return public, BFVSecretKey(public, {DEGREE: packed_secret, SLOT_DEGREE: slots_secret})

    def _load_public(self, content: dict[str, Any]) -> BFVPublicKey:
        came, expected = wire.read_field(content, "parameters", str), _write_both(self.params)
        if came != expected:
            raise KeyMismatch(
                f"A bfv key with parameters {expected} was expected. Got {came[:120]!r} "
                "instead; all parties of a job must use the same options."
            )
        packed = RingKey.load(self.params, wire.read_field(content, "public", bytes))
        slots = RingKey.load(SLOTS, wire.read_field(content, "slots", bytes))
        return BFVPublicKey(self.params, packed, slots)


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

    def at(self, degree: int) -> RingKey:
        """The key of a layout's ring."""
        return self.slots if degree == SLOT_DEGREE else self.packed

    def to_wire(self) -> dict[str, Any]:
        return {
            "scheme": self.scheme,
            "parameters": _write_both(self.params),
            "public": self.packed.public,
            "slots": self.slots.public,
        }

    def prepare(self, count: int, *, use: Use = "inner") -> None:
        """Precompute encryptions of zero for ``count`` further ciphertexts."""
        self._pool_for(use).prepare(count)

    def prepare_in_background(self, count: int, *, use: Use = "inner") -> threading.Thread:
        return self._pool_for(use).prepare_in_background(count)

    def _pool_for(self, use: Use) -> Zeros:
        return (self.slots if use == "any" else self.packed).pool

    def _encrypt(self, values: Array, use: str, bound: int) -> BFVArray:
        layout = choose_layout(values.shape, use, DEGREE, SLOT_DEGREE)
        key = self.at(layout.degree)
        polynomials = key.to_polynomials(values, layout)
        zeros = key.pool.take(len(polynomials))
        raws = np.stack(
            [key.ring.add_plain(zero, row) for zero, row in zip(zeros, polynomials, strict=True)]
        )
        error = key.ring.fresh_error
        return BFVArray(self, values.shape, use, bound, raws, layout, error, 0, fresh=True)

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
        raws = _read_numbers(key.ring, payload, layout.count(shape))
        error = (1 << min(max(wire.read_field(payload, "noise", int), 0), 1024)) - 1
        if not key.ring.fresh_error <= error <= key.ring.limit(raws.shape[2]):
            raise ProtocolError("A bfv array states a noise that it cannot have.")
        return BFVArray(self, shape, use, bound, raws, layout, error, 0)

    def _load_mask(
        self, payload: dict[str, Any], shape: tuple[int, ...], bound: int, shown: Array
    ) -> BFVMask:
        numbers = wire.read_array(payload, "numbers", np.uint64, 1)
        answers = wire.read_field(payload, "answers", int)
        ring = self.at(self.read_degree(payload)).ring
        if numbers.size != shown.size or (numbers >= ring.t).any():
            raise ProtocolError(
                f"A mask of {shown.size} residues was expected. Got {numbers.size} instead, or "
                "some out of range."
            )
        if not shown.max(initial=0) < answers <= wire.MAX_VALUES:
            raise ProtocolError("A bfv mask states positions that its answer cannot have.")
        return BFVMask(self, shape, bound, ring, numbers, shown, answers)

    def read_layout(self, payload: dict[str, Any], shape: tuple[int, ...]) -> Layout:
        """The layout that a message states, if an array of this shape can have it."""
        kind, degree = wire.read_field(payload, "kind", str), self.read_degree(payload)
        columns, ka, kb = (wire.read_field(payload, name, int) for name in ("columns", "ka", "kb"))
        layout = Layout(kind, columns, ka, kb, degree)
        if kind not in KINDS[degree] or not layout.fits(shape):
            raise ProtocolError(f"A bfv array of shape {shape} cannot have the layout {layout}.")
        if degree == SLOT_DEGREE and ka * kb != 1:
            raise ProtocolError("Sums over bfv slots come one a ciphertext.")
        return layout

    def read_degree(self, payload: dict[str, Any]) -> int:
        """The ring that a message states."""
        degree = wire.read_field(payload, "degree", int)
        if degree not in KINDS:
            raise ProtocolError(f"A bfv ring of {list(KINDS)} was expected. Got {degree} instead.")
        return degree


class RingKey:
    """A public key in one ring, with a pool of encryptions of zero and names for requests."""

    def __init__(self, params: Parameters, public: bytes) -> None:
        self.ring: Ring = get_ring(params)
        self.public = public
        self.pool = Zeros(params, public)
        self.tickets = Tickets()

    @classmethod
    def generate(cls, params: Parameters) -> tuple[RingKey, Any]:
        """A fresh key and SEAL's secret key to it."""
        ring = get_ring(params)
        generator = seal.KeyGenerator(ring.context)
        text = generator.create_public_key().to_string()
        return cls(params, text[len(text) - ring.key_bytes :]), generator.secret_key()

    @classmethod
    def load(cls, params: Parameters, public: bytes) -> RingKey:
        """A key whose numbers a peer sent, refused if SEAL would not take them."""
        ring = get_ring(params)
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

    def to_polynomials(self, values: Array, layout: Layout) -> Array:
        """Values mod t at their places, zero elsewhere, as coefficients."""
        rows = np.zeros((layout.count(values.shape), self.ring.degree), dtype=np.uint64)
        rows[layout.places(values.shape)] = self.ring.reduce(values)
        if layout.kind == SLOTTED:
            rows = np.stack([self.ring.from_slots(row) for row in rows])
        return rows

    def from_polynomials(self, rows: Array, layout: Layout, shape: tuple[int, ...]) -> Array:
        """The residues mod t at the places of an array's values."""
        if layout.kind == SLOTTED:
            rows = np.stack([self.ring.to_slots(row) for row in rows])
        wanted: Array = rows[layout.places(shape)]
        return wanted


class Zeros(Pool[Array]):
    """Encryptions of zero under one public key."""

    def __init__(self, params: Parameters, public: bytes) -> None:
        super().__init__()
        self._params = params
        self._public = public

    def _make(self, count: int) -> list[Array]:
        seconds = count * SECONDS_PER_ENCRYPTION * get_ring(self._params).weight
        tasks = [
            (self._params, self._public, chunk.stop - chunk.start)
            for chunk in cut_chunks(count, seconds)
        ]
        return [raw for part in spread_if_worth(encrypt_zeros, tasks, seconds) for raw in part]

    def _make_elsewhere(self, count: int) -> Iterator[list[Array]]:
        tasks = [(self._params, self._public, ZEROS_PER_TASK)] * -(-count // ZEROS_PER_TASK)
        return spread(encrypt_zeros, tasks, workers=max(count_workers(), 2))


def encrypt_zeros(task: tuple[Parameters, bytes, int]) -> list[Array]:
    """Encryptions of zero under a public key, with SEAL's randomness from the operating system."""
    params, public, count = task
    encryptor, ring = _make_encryptor(params, public), get_ring(params)
    return [ring.from_seal(encryptor.encrypt_zero()) for _ in range(count)]


@lru_cache(maxsize=16)
def _make_encryptor(params: Parameters, public: bytes) -> Any:
    ring = get_ring(params)
    return seal.Encryptor(ring.context, ring.context.from_public_str(ring.key_header + public))


def make_parameters(plain_bits: int, data_bits: tuple[int, ...]) -> Parameters:
    """Checked parameters of coefficients; the last prime takes what the security level leaves."""
    if not 2 <= plain_bits <= 59:
        raise ConfigError(
            f"The plain_bits parameter of bfv must be between 2 and 59. Got {plain_bits} instead."
        )
    most = MAX_MODULUS_BITS[DEGREE]
    special = min(most - sum(data_bits), 60)
    if not data_bits or not all(18 <= bits <= 60 for bits in data_bits) or special < 20:
        raise ConfigError(
            "The modulus_bits parameter of bfv must be primes of 18 to 60 bits that leave 20 of "
            f"{most} bits. Got {data_bits} instead."
        )
    made = Parameters(DEGREE, 1 << plain_bits, (*data_bits, special))
    ring = get_ring(made)
    # Something must be left for work: flooding of a fresh ciphertext's own error, at the least.
    if ring.last.flood_bits < ring.fresh_error.bit_length() + STATISTICAL_BITS + 20:
        raise ConfigError(
            f"bfv with plain_bits={plain_bits} and modulus_bits={data_bits} cannot flood its own "
            "noise; use fewer plain_bits or more modulus bits."
        )
    return made


def _write_both(params: Parameters) -> str:
    """The parameters of both rings."""
    return f"{params.text} {SLOTS.text}"


def _read_numbers(ring: Ring, payload: dict[str, Any], count: int) -> Array:
    """The ciphertexts of a message, at a level at which they may leave."""
    numbers = wire.read_array(payload, "numbers", np.uint64, 4)
    if numbers.shape not in [(count, 2, limbs, ring.degree) for limbs in ring.levels]:
        raise ProtocolError(
            f"{count} bfv ciphertexts were expected. Got an array {numbers.shape} instead."
        )
    if not ring.in_range(numbers):
        raise ProtocolError("A bfv ciphertext lies outside its range.")
    return numbers
