"""Paillier encryption (1999) of integer arrays: additive, exact, over Z_n with gmpy2.

Encrypt: (1 + n)^m · r^n mod n². Security rests on the decisional composite residuosity
assumption (DCR) for n = p·q of 3072 bits (``security=128``) or 2048 bits (``security=112``).
Arrays made for ``inner`` or ``sum_by`` keep up to n/64 values of a row in one ciphertext, and
masked requests pack values the same way before decryption (see slots.py).
"""

from __future__ import annotations

import threading
from typing import Any, Self

import gmpy2
import numpy as np
from cryptography.hazmat.primitives.asymmetric import rsa

from vfsl.crypto import wire
from vfsl.crypto.grouping import Grouping
from vfsl.crypto.integers import from_matrix, random_below, to_matrix
from vfsl.crypto.obfuscators import Obfuscator, Obfuscators
from vfsl.crypto.paillier_opening import PaillierMask, PaillierSecretKey
from vfsl.crypto.residues import (
    Residue,
    dot_powers,
    group_products,
    inverses,
    joint_width,
    product,
    run_products,
    signed_power,
    window_width,
)
from vfsl.crypto.runs import Runs
from vfsl.crypto.scheme import RESULT, EncryptedArray, PublicKey, Scheme, Use
from vfsl.crypto.slots import SLOT_BITS, SLOT_CAPACITY, Slots
from vfsl.crypto.work import pieces, shared
from vfsl.errors import ConfigError, CryptoError, KeyMismatch, ProtocolError
from vfsl.values import Array

# NIST SP 800-57 part 1: bits of a factoring modulus for a security level.
MODULUS_BITS = {128: 3072, 112: 2048}
# Rough costs on a current core, to decide about worker processes only.
SECONDS_A_PRODUCT = {3072: 12e-6, 2048: 6e-6}
# Enough slots for everything that the plain scheme can hold.
PACKED_BOUND = 2**61 - 1


class Paillier(Scheme):
    """The Paillier cryptosystem with the usual generator n + 1."""

    name = "paillier"

    def __init__(self, security: int = 128) -> None:
        if security not in MODULUS_BITS:
            raise ConfigError(
                f"The security parameter of paillier must be one of {sorted(MODULUS_BITS)}. "
                f"Got {security!r} instead."
            )
        super().__init__(security)

    def generate(self) -> tuple[PaillierPublicKey, PaillierSecretKey]:
        # An RSA key's primes are what Paillier needs: random, of one size, far apart.
        bits = MODULUS_BITS[self.security]
        numbers = rsa.generate_private_key(public_exponent=65537, key_size=bits).private_numbers()
        public = PaillierPublicKey(numbers.p * numbers.q)
        return public, PaillierSecretKey(public, numbers.p, numbers.q)

    def load_public(self, content: dict[str, Any]) -> PaillierPublicKey:
        if wire.field(content, "scheme", str) != self.name:
            raise ProtocolError(
                f"A paillier public key was expected. Got scheme {content['scheme']!r} instead."
            )
        modulus = int.from_bytes(wire.field(content, "n", bytes), "big")
        check_modulus(modulus, MODULUS_BITS[self.security])
        return PaillierPublicKey(modulus)


class PaillierPublicKey(PublicKey):
    """The modulus n, and a pool of single-use randomness."""

    scheme = "paillier"

    def __init__(self, n: int) -> None:
        self.n = gmpy2.mpz(n)
        self.square = self.n * self.n
        self.bits = n.bit_length()
        self.capacity = (n - 1) // 2
        # Slots of a packed number; the signed whole stays within n / 2.
        self.slots = (self.bits - 2) // SLOT_BITS
        self.pool = Obfuscators(self.n, SECONDS_A_PRODUCT.get(self.bits, 12e-6))

    def to_wire(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "n": int(self.n).to_bytes((self.bits + 7) // 8, "big")}

    def prepare(self, count: int, *, use: Use = "inner") -> None:
        self.pool.prepare(count)

    def prepare_in_background(self, count: int, *, use: Use = "inner") -> threading.Thread:
        return self.pool.prepare_in_background(count)

    def seconds(self, products: float) -> float:
        """About how long so many products modulo n² take."""
        return products * SECONDS_A_PRODUCT.get(self.bits, 12e-6)

    def _encrypt(self, values: Array, use: str, bound: int) -> PaillierArray:
        slots = Slots()
        if use != "any" and values.ndim == 2 and bound <= PACKED_BOUND:
            slots = Slots(min(values.shape[1], self.slots))
        messages = slots.pack(values)
        square = self.square
        numbers = [
            encrypt_with(message, obfuscator, square)
            for message, obfuscator in zip(messages, self.pool.take(len(messages)), strict=True)
        ]
        return PaillierArray(self, values.shape, use, bound, numbers, slots, fresh=True)

    def _load(
        self, payload: dict[str, Any], shape: tuple[int, ...], use: str, bound: int
    ) -> PaillierArray:
        slots = Slots(wire.field(payload, "slots", int), wire.field(payload, "axis", int))
        packable = slots.count == 1 or (use != "any" and len(shape) > 1)
        if not (1 <= slots.count <= self.slots and slots.axis in (0, -1) and packable):
            raise ProtocolError(
                f"A paillier array of shape {shape} was expected. Got {slots} instead."
            )
        if slots.count > 1 and bound > SLOT_CAPACITY:
            raise ProtocolError("A packed paillier array must state a bound of at most 63 bits.")
        count = int(np.prod(slots.numbers_shape(shape), dtype=np.int64))
        numbers = self.read_numbers(payload, count)
        return PaillierArray(self, shape, use, bound, numbers, slots, fresh=False)

    def _load_mask(
        self, payload: dict[str, Any], shape: tuple[int, ...], bound: int, shown: Array
    ) -> PaillierMask:
        slots = Slots(wire.field(payload, "slots", int), wire.field(payload, "axis", int))
        together = wire.field(payload, "together", int)
        packable = slots.count == 1 or len(shape) > 1
        fits = slots.count * together <= self.slots and min(slots.count, together) >= 1
        if not (packable and fits and slots.axis in (0, -1)):
            raise ProtocolError(f"A mask of shape {shape} was expected. Got {slots} instead.")
        if slots.count * together > 1 and bound > SLOT_CAPACITY:
            raise ProtocolError("A packed paillier mask must state a bound of at most 63 bits.")
        matrix = wire.array_field(payload, "numbers", np.uint8, 2)
        count = -(-int(np.prod(slots.numbers_shape(shape), dtype=np.int64)) // together)
        if matrix.shape != (count, (self.bits + 7) // 8) or shown.size != shown.max(initial=-1) + 1:
            raise ProtocolError(
                f"A mask of {count} residues was expected. Got {matrix.shape} bytes instead."
            )
        masks = from_matrix(matrix)
        if any(mask >= self.n for mask in masks):
            raise ProtocolError("A paillier mask lies outside its range.")
        return PaillierMask(self, shape, bound, masks, slots, together)

    def read_numbers(self, payload: dict[str, Any], count: int) -> list[Residue]:
        """The ciphertexts of a message: ``count`` units modulo n²."""
        matrix = wire.array_field(payload, "numbers", np.uint8, 2)
        if matrix.shape != (count, self.width):
            raise ProtocolError(
                f"Paillier ciphertexts of shape {(count, self.width)} were expected. "
                f"Got {matrix.shape} instead."
            )
        numbers = [gmpy2.mpz(number) for number in from_matrix(matrix)]
        if any(not 0 < number < self.square for number in numbers):
            raise ProtocolError("A paillier ciphertext lies outside its range.")
        # One common gcd for all: the product is a unit only if every factor is.
        if gmpy2.gcd(product([number % self.n for number in numbers], self.n), self.n) != 1:
            raise ProtocolError("A paillier ciphertext is not a unit.")
        return numbers

    @property
    def width(self) -> int:
        """Bytes of a ciphertext."""
        return (2 * self.bits + 7) // 8

    def centred(self, residue: int) -> int:
        """A residue mod n as a signed integer."""
        return residue - int(self.n) if residue > self.capacity else residue


class PaillierArray(EncryptedArray):
    """Ciphertexts in C order; ``slots`` tells how many values each one holds."""

    key: PaillierPublicKey

    def __init__(
        self,
        key: PaillierPublicKey,
        shape: tuple[int, ...],
        use: str,
        bound: int,
        numbers: list[Residue],
        slots: Slots,
        *,
        fresh: bool,
    ) -> None:
        super().__init__(key, shape, use, bound)
        self._numbers = numbers
        self._slots = slots
        # A fresh encryption may leave as it is, once: afterwards it would be recognised.
        self._fresh = fresh

    @property
    def capacity(self) -> int:
        return SLOT_CAPACITY if self._slots.count > 1 else self.key.capacity

    def _make(self, numbers: list[Residue], bound: int) -> Self:
        return type(self)(self.key, self.shape, self.use, bound, numbers, self._slots, fresh=False)

    def _peer(self, other: EncryptedArray) -> Self:
        same = super()._peer(other)
        if same._slots != self._slots:
            raise CryptoError(
                f"Paillier arrays of one layout combine. Got {self._slots} and {same._slots} "
                "instead; encrypt both with the same use and bound."
            )
        return same

    def _add(self, other: Self, bound: int) -> Self:
        square = self.key.square
        pairs = zip(self._numbers, other._numbers, strict=True)
        return self._make([a * b % square for a, b in pairs], bound)

    def _subtract(self, other: Self, bound: int) -> Self:
        square = self.key.square
        pairs = zip(self._numbers, inverses(other._numbers, square), strict=True)
        return self._make([a * b % square for a, b in pairs], bound)

    def _add_plain(self, values: Array, bound: int) -> Self:
        n, square = self.key.n, self.key.square
        pairs = zip(self._numbers, self._slots.pack(values), strict=True)
        # c · (1 + n)^m = c + c · m · n; only c mod n matters in the second term.
        return self._make([(c + c % n * m * n) % square for c, m in pairs], bound)

    def _scale(self, factor: int, bound: int) -> Self:
        square = self.key.square
        bases = self._numbers if factor >= 0 else inverses(self._numbers, square)
        return self._make([gmpy2.powmod(c, abs(factor), square) for c in bases], bound)

    def _multiply(self, values: Array, bound: int) -> Self:
        square = self.key.square
        pairs = zip(self._numbers, values.reshape(-1).tolist(), strict=True)
        return self._make([signed_power(c, m, square) for c, m in pairs], bound)

    def _inner(self, columns: Array, bound: int) -> PaillierArray:
        square = self.key.square
        rows, count = columns.shape
        groups = len(self._numbers) // rows
        spread = int(columns.max()) - min(int(columns.min()), 0)
        bits = max(spread.bit_length(), 1)
        width = window_width(rows, bits)
        seconds = self.key.seconds(groups * count * -(-bits // width) * (rows + 2.0**width))
        tasks = [
            (square, self._numbers[group::groups], columns[:, piece])
            for group in range(groups)
            for piece in pieces(count, seconds)
        ]
        numbers = [number for part in shared(dot_powers, tasks, seconds) for number in part]
        shape = (count,) if len(self.shape) == 1 else (self.shape[1], count)
        return self._sums(shape, bound, numbers, axis=0)

    def _sum_by(self, groups: Array, n: int, bound: int) -> PaillierArray:
        numbers = self._grouped(groups[:, None], n)
        return self._sums((n, *self.shape[1:]), bound, numbers, axis=-1)

    def _sum_by_many(self, grouping: Grouping, bound: int) -> PaillierArray:
        numbers = self._grouped(grouping.codes, grouping.n)
        return self._sums((*grouping.counts.shape, *self.shape[1:]), bound, numbers, axis=-1)

    def _grouped(self, groups: Array, n: int) -> list[Residue]:
        """Sums in the order (grouping, group, number of the row)."""
        square = self.key.square
        rows, count = groups.shape
        width = len(self._numbers) // rows
        joint = joint_width(rows, count, n)
        seconds = self.key.seconds(width * count / joint * rows)
        # Whole runs of joint columns go to one worker.
        runs = pieces(-(-count // joint), seconds)
        tasks = [
            (square, self._numbers[at::width], groups[:, run.start * joint : run.stop * joint], n)
            for at in range(width)
            for run in runs
        ]
        flat = [cells for part in shared(group_products, tasks, seconds) for cells in part]
        one = gmpy2.mpz(1)
        return [
            flat[at * count + grouping][group] or one
            for grouping in range(count)
            for group in range(n)
            for at in range(width)
        ]

    def _sums(
        self, shape: tuple[int, ...], bound: int, numbers: list[Residue], axis: int
    ) -> PaillierArray:
        slots = self._slots if self._slots.count == 1 else Slots(self._slots.count, axis)
        use = "any" if self.use == "any" else RESULT
        return PaillierArray(self.key, shape, use, bound, numbers, slots, fresh=False)

    def _take(self, rows: Array) -> Self:
        outer = self._slots.numbers_shape(self.shape)
        if outer[0] != self.shape[0]:
            raise CryptoError(
                "The rows of these sums share their ciphertexts; take rows before summing."
            )
        width = len(self._numbers) // outer[0]
        numbers = [
            number for row in rows.tolist() for number in self._numbers[row * width :][:width]
        ]
        shape = (len(rows), *self.shape[1:])
        # Not fresh: the same rows may have left already.
        return type(self)(self.key, shape, self.use, self.bound, numbers, self._slots, fresh=False)

    def _masked(self) -> tuple[dict[str, Any], PaillierMask]:
        return self._hidden(self._numbers, self._slots, self.shape, self.bound)

    def _masked_runs(
        self, runs: Runs, shown: Array, bound: int
    ) -> tuple[dict[str, Any], PaillierMask]:
        if self._slots.count > 1:
            raise CryptoError(
                "Runs need sums of one column; fold the columns of a row into one integer first."
            )
        places = zip(runs.start[shown], runs.stop[shown], runs.extra[shown], strict=True)
        numbers = run_products(self._numbers, list(places), self.key.square)
        return self._hidden(numbers, self._slots, (len(shown),), bound)

    def _hidden(
        self, numbers: list[Residue], slots: Slots, shape: tuple[int, ...], bound: int
    ) -> tuple[dict[str, Any], PaillierMask]:
        """Numbers packed as tightly as their bound allows, each whole behind a uniform mask."""
        key, square = self.key, self.key.square
        together = key.slots // slots.count if bound <= SLOT_CAPACITY else 1
        shift = gmpy2.mpz(1) << (SLOT_BITS * slots.count)
        wholes = []
        for start in range(0, len(numbers), together):
            whole = gmpy2.mpz(1)
            for number in reversed(numbers[start : start + together]):
                whole = gmpy2.powmod(whole, shift, square) * number % square
            wholes.append(whole)
        masks = [random_below(int(key.n)) for _ in wholes]
        randoms = key.pool.take(len(wholes))
        hidden = [
            whole * encrypt_with(mask, obfuscator, square) % square
            for whole, mask, obfuscator in zip(wholes, masks, randoms, strict=True)
        ]
        mask = PaillierMask(key, shape, bound, masks, slots, together)
        return {"numbers": to_matrix(hidden, key.width)}, mask

    def _rerandomised(self) -> dict[str, Any]:
        key, square = self.key, self.key.square
        numbers = self._numbers
        if not self._fresh:
            randoms = key.pool.take(len(numbers))
            numbers = [c * r % square for c, (r, _) in zip(numbers, randoms, strict=True)]
        self._fresh = False
        return {
            "numbers": to_matrix(numbers, key.width),
            "slots": self._slots.count,
            "axis": self._slots.axis,
        }


def encrypt_with(message: int, obfuscator: Obfuscator, square: Residue) -> Residue:
    """(1 + n)^message · r^n mod n² with given randomness.

    (1 + n)^m = 1 + m·n, so the product is r^n + m · (n · r^n), and n · r^n is at hand.
    """
    power, lifted = obfuscator
    return (power + message * lifted) % square


def check_modulus(n: int, bits: int) -> None:
    """Refuse a modulus that cannot be a Paillier key of the agreed size."""
    if n.bit_length() != bits:
        raise KeyMismatch(
            f"A paillier modulus of {bits} bits was expected. Got {n.bit_length()} bits instead; "
            "all parties of a job must use one security level."
        )
    small = gmpy2.primorial(2**16)
    if gmpy2.gcd(n, small) != 1 or gmpy2.is_power(n) or gmpy2.is_prime(n):
        raise KeyMismatch("The paillier modulus is not a product of two large primes.")
