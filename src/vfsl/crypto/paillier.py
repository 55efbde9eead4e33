"""Paillier encryption (1999) of integer arrays: additive, exact, over Z_n with gmpy2.

Encrypt: (1 + n)^m · r^n mod n². Security rests on the decisional composite residuosity
assumption (DCR) for n = p·q of 3072 bits (``security=128``) or 2048 bits (``security=112``).
Arrays made for ``inner`` or ``sum_by`` keep as many values of a row in one ciphertext as n has
slots of 64 bits, and masked requests pack values the same way before decryption (see residues.py).
"""

from __future__ import annotations

import math
import secrets
import threading
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import gmpy2
import numpy as np
from cryptography.hazmat.primitives.asymmetric import rsa

from vfsl.crypto import wire
from vfsl.crypto.opening import Mask, SecretKey
from vfsl.crypto.residues import (
    SLOT_BITS,
    SLOT_CAPACITY,
    Obfuscator,
    Obfuscators,
    Residue,
    Slots,
    choose_joint_width,
    choose_window,
    cut_digits,
    from_matrix,
    invert_all,
    multiply_all,
    multiply_groups,
    multiply_powers,
    multiply_prefixes,
    raise_to,
    to_matrix,
)
from vfsl.crypto.scheme import RESULT, EncryptedArray, PublicKey, Scheme, Use
from vfsl.crypto.sums import SUMS_PER_VALUE, Grouping, PrefixSums
from vfsl.crypto.work import cut_chunks, spread_if_worth
from vfsl.errors import ConfigError, CryptoError, KeyMismatch, ProtocolError
from vfsl.values import Array

# NIST SP 800-57 part 1: bits of a factoring modulus for a security level.
MODULUS_BITS = {128: 3072, 112: 2048}
# Rough costs on a current core, to decide about worker processes only.
SECONDS_PER_PRODUCT = {3072: 12e-6, 2048: 6e-6}
SECONDS_PER_DECRYPTION = {3072: 9.5e-3, 2048: 3.5e-3}
# Enough slots for everything that the plain scheme can hold.
PACKED_BOUND = 2**61 - 1


class Paillier(Scheme):
    """The Paillier cryptosystem with the usual generator n + 1."""

    name = "paillier"
    # The label holder opens, and must not see which bins make up a candidate split.
    serves = ("trees without a key holder",)

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

    def _load_public(self, content: dict[str, Any]) -> PaillierPublicKey:
        modulus = int.from_bytes(wire.read_field(content, "n", bytes), "big")
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
        # Bytes of a residue mod n, and of a ciphertext.
        self.short, self.width = (self.bits + 7) // 8, (2 * self.bits + 7) // 8
        # Slots of a packed number; the signed whole stays within n / 2.
        self.slots = (self.bits - 2) // SLOT_BITS
        self.seconds_per_product = SECONDS_PER_PRODUCT.get(self.bits, 12e-6)
        self.pool = Obfuscators(self.n, self.seconds_per_product)

    def to_wire(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "n": int(self.n).to_bytes(self.short, "big")}

    def prepare(self, count: int, *, use: Use = "inner") -> None:
        self.pool.prepare(count)

    def prepare_in_background(self, count: int, *, use: Use = "inner") -> threading.Thread:
        return self.pool.prepare_in_background(count)

    def _encrypt(self, values: Array, use: str, bound: int) -> PaillierArray:
        slots = Slots()
        if use != "any" and values.ndim == 2 and bound <= PACKED_BOUND:
            slots = Slots(min(values.shape[1], self.slots))
        messages = slots.pack(values)
        numbers = [
            encrypt_with(message, obfuscator, self.square)
            for message, obfuscator in zip(messages, self.pool.take(len(messages)), strict=True)
        ]
        return PaillierArray(self, values.shape, use, bound, numbers, slots, fresh=True)

    def _load(
        self, payload: dict[str, Any], shape: tuple[int, ...], use: str, bound: int
    ) -> PaillierArray:
        slots = _read_slots(payload)
        packable = slots.count == 1 or (use != "any" and len(shape) > 1)
        if not (1 <= slots.count <= self.slots and slots.axis in (0, -1) and packable):
            raise ProtocolError(
                f"A paillier array of shape {shape} was expected. Got {slots} instead."
            )
        if slots.count > 1 and bound > SLOT_CAPACITY:
            raise ProtocolError("A packed paillier array must state a bound of at most 63 bits.")
        numbers = self.read_numbers(payload, math.prod(slots.numbers_shape(shape)))
        return PaillierArray(self, shape, use, bound, numbers, slots)

    def _load_mask(
        self, payload: dict[str, Any], shape: tuple[int, ...], bound: int, shown: Array
    ) -> PaillierMask:
        slots, together = _read_slots(payload), wire.read_field(payload, "together", int)
        packable = slots.count == 1 or len(shape) > 1
        fits = slots.count * together <= self.slots and min(slots.count, together) >= 1
        if not (packable and fits and slots.axis in (0, -1)):
            raise ProtocolError(f"A mask of shape {shape} was expected. Got {slots} instead.")
        if slots.count * together > 1 and bound > SLOT_CAPACITY:
            raise ProtocolError("A packed paillier mask must state a bound of at most 63 bits.")
        matrix = wire.read_array(payload, "numbers", np.uint8, 2)
        count = -(-math.prod(slots.numbers_shape(shape)) // together)
        if matrix.shape != (count, self.short) or shown.size != shown.max(initial=-1) + 1:
            raise ProtocolError(
                f"A mask of {count} residues was expected. Got {matrix.shape} bytes instead."
            )
        masks = from_matrix(matrix)
        if any(mask >= self.n for mask in masks):
            raise ProtocolError("A paillier mask lies outside its range.")
        return PaillierMask(self, shape, bound, masks, slots, together)

    def read_numbers(self, payload: dict[str, Any], count: int) -> list[Residue]:
        """The ciphertexts of a message: ``count`` units modulo n²."""
        matrix = wire.read_array(payload, "numbers", np.uint8, 2)
        if matrix.shape != (count, self.width):
            raise ProtocolError(
                f"Paillier ciphertexts of shape {(count, self.width)} were expected. "
                f"Got {matrix.shape} instead."
            )
        numbers = [gmpy2.mpz(number) for number in from_matrix(matrix)]
        if any(not 0 < number < self.square for number in numbers):
            raise ProtocolError("A paillier ciphertext lies outside its range.")
        # One common gcd for all: the product is a unit only if every factor is.
        if gmpy2.gcd(multiply_all([number % self.n for number in numbers], self.n), self.n) != 1:
            raise ProtocolError("A paillier ciphertext is not a unit.")
        return numbers

    def centre(self, residue: int) -> int:
        """A residue mod n as a signed integer."""
        return residue - int(self.n) if residue > self.capacity else residue


@dataclass(eq=False, repr=False)
class PaillierArray(EncryptedArray):
    """Ciphertexts in C order; ``slots`` tells how many values each one holds."""

    key: PaillierPublicKey
    numbers: list[Residue]
    slots: Slots
    # A fresh encryption may leave as it is, once: afterwards it would be recognised.
    fresh: bool = False

    @property
    def capacity(self) -> int:
        return SLOT_CAPACITY if self.slots.count > 1 else self.key.capacity

    def _make(self, numbers: list[Residue], bound: int) -> Self:
        return replace(self, bound=bound, numbers=numbers, fresh=False)

    def _check_peer(self, other: EncryptedArray) -> Self:
        same = super()._check_peer(other)
        if same.slots != self.slots:
            raise CryptoError(
                f"Paillier arrays of one layout combine. Got {self.slots} and {same.slots} "
                "instead; encrypt both with the same use and bound."
            )
        return same

    def _add(self, other: Self, bound: int) -> Self:
        square = self.key.square
        pairs = zip(self.numbers, other.numbers, strict=True)
        return self._make([a * b % square for a, b in pairs], bound)

    def _subtract(self, other: Self, bound: int) -> Self:
        square = self.key.square
        pairs = zip(self.numbers, invert_all(other.numbers, square), strict=True)
        return self._make([a * b % square for a, b in pairs], bound)

    def _add_plain(self, values: Array, bound: int) -> Self:
        n, square = self.key.n, self.key.square
        pairs = zip(self.numbers, self.slots.pack(values), strict=True)
        # c · (1 + n)^m = c + c · m · n; only c mod n matters in the second term.
        return self._make([(c + c % n * m * n) % square for c, m in pairs], bound)

    def _scale(self, factor: int, bound: int) -> Self:
        square = self.key.square
        bases = self.numbers if factor >= 0 else invert_all(self.numbers, square)
        return self._make([gmpy2.powmod(c, abs(factor), square) for c in bases], bound)

    def _multiply(self, values: Array, bound: int) -> Self:
        pairs = zip(self.numbers, values.reshape(-1).tolist(), strict=True)
        return self._make([raise_to(c, m, self.key.square) for c, m in pairs], bound)

    def _inner(self, columns: Array, bound: int) -> PaillierArray:
        rows, count = columns.shape
        groups = len(self.numbers) // rows
        spread = int(columns.max()) - min(int(columns.min()), 0)
        bits = max(spread.bit_length(), 1)
        width = choose_window(rows, bits)
        products = groups * count * -(-bits // width) * (rows + 2.0**width)
        seconds = products * self.key.seconds_per_product
        tasks = [
            (self.key.square, self.numbers[group::groups], columns[:, chunk])
            for group in range(groups)
            for chunk in cut_chunks(count, seconds)
        ]
        parts = spread_if_worth(multiply_powers, tasks, seconds)
        shape = (count,) if len(self.shape) == 1 else (self.shape[1], count)
        return self._make_sums(shape, bound, [number for part in parts for number in part], axis=0)

    def _sum_by(self, grouping: Grouping, shape: tuple[int, ...], bound: int) -> PaillierArray:
        groups, n = grouping.codes, grouping.n
        rows, count = groups.shape
        width = len(self.numbers) // rows
        joint = choose_joint_width(rows, count, n)
        seconds = width * count / joint * rows * self.key.seconds_per_product
        # Columns that are summed jointly go to one worker.
        chunks = cut_chunks(-(-count // joint), seconds)
        tasks = [
            (
                self.key.square,
                self.numbers[at::width],
                groups[:, chunk.start * joint : chunk.stop * joint],
                n,
            )
            for at in range(width)
            for chunk in chunks
        ]
        parts = spread_if_worth(multiply_groups, tasks, seconds)
        flat = [cells for part in parts for cells in part]
        one = gmpy2.mpz(1)
        # In the order (grouping, group, number of the row).
        numbers = [
            flat[at * count + column][group] or one
            for column in range(count)
            for group in range(n)
            for at in range(width)
        ]
        return self._make_sums(shape, bound, numbers, axis=-1)

    def _make_sums(
        self, shape: tuple[int, ...], bound: int, numbers: list[Residue], axis: int
    ) -> PaillierArray:
        slots = self.slots if self.slots.count == 1 else Slots(self.slots.count, axis)
        use = "any" if self.use == "any" else RESULT
        return PaillierArray(self.key, shape, use, bound, numbers, slots)

    def _take(self, rows: Array) -> Self:
        outer = self.slots.numbers_shape(self.shape)
        if outer[0] != self.shape[0]:
            raise CryptoError(
                "The rows of these sums share their ciphertexts; take rows before summing."
            )
        width = len(self.numbers) // outer[0]
        numbers = [
            number for row in rows.tolist() for number in self.numbers[row * width :][:width]
        ]
        shape = (len(rows), *self.shape[1:])
        # Not fresh: the same rows may have left already.
        return replace(self, shape=shape, numbers=numbers, fresh=False)

    def _mask(self) -> tuple[dict[str, Any], PaillierMask]:
        return self._hide(self.numbers, self.shape, self.bound)

    def _mask_sums(
        self, sums: PrefixSums, shown: Array, bound: int
    ) -> tuple[dict[str, Any], PaillierMask]:
        if self.slots.count > 1:
            raise CryptoError(
                "Prefix sums need sums of one column; fold the columns of a row into one integer "
                "first."
            )
        places = zip(sums.start[shown], sums.stop[shown], sums.extra[shown], strict=True)
        numbers = multiply_prefixes(self.numbers, list(places), self.key.square)
        return self._hide(numbers, (len(shown),), bound)

    def _hide(
        self, numbers: list[Residue], shape: tuple[int, ...], bound: int
    ) -> tuple[dict[str, Any], PaillierMask]:
        """Numbers packed as tightly as their bound allows, each whole behind a uniform mask."""
        key, square, slots = self.key, self.key.square, self.slots
        together = key.slots // slots.count if bound <= SLOT_CAPACITY else 1
        shift = gmpy2.mpz(1) << (SLOT_BITS * slots.count)
        wholes = []
        for start in range(0, len(numbers), together):
            whole = gmpy2.mpz(1)
            for number in reversed(numbers[start : start + together]):
                whole = gmpy2.powmod(whole, shift, square) * number % square
            wholes.append(whole)
        masks = [secrets.randbelow(int(key.n)) for _ in wholes]
        randoms = key.pool.take(len(wholes))
        hidden = [
            whole * encrypt_with(mask, obfuscator, square) % square
            for whole, mask, obfuscator in zip(wholes, masks, randoms, strict=True)
        ]
        mask = PaillierMask(key, shape, bound, masks, slots, together)
        return {"numbers": to_matrix(hidden, key.width)}, mask

    def _rerandomise(self) -> dict[str, Any]:
        numbers = self.numbers
        if not self.fresh:
            randoms = self.key.pool.take(len(numbers))
            pairs = zip(numbers, randoms, strict=True)
            numbers = [c * r % self.key.square for c, (r, _) in pairs]
        self.fresh = False
        return {"numbers": to_matrix(numbers, self.key.width)} | _write_slots(self.slots)


@dataclass(eq=False, repr=False)
class PaillierMask(Mask):
    """One uniform residue mod n for every number of the request."""

    key: PaillierPublicKey
    masks: list[int]
    slots: Slots
    together: int

    def _remove(self, payload: dict[str, Any]) -> Array:
        key, n = self.key, int(self.key.n)
        matrix = wire.read_array(payload, "residues", np.uint8, 2)
        expected = (len(self.masks), key.short)
        if matrix.shape != expected:
            raise ProtocolError(
                f"An answer of {expected} bytes was expected. Got {matrix.shape} instead."
            )
        numbers = [
            key.centre((residue - mask) % n)
            for residue, mask in zip(from_matrix(matrix), self.masks, strict=True)
        ]
        slots = self.slots
        if slots.count * self.together == 1:
            return slots.unpack(numbers, self.shape)
        digits = cut_digits(numbers, slots.count * self.together).reshape(-1, slots.count)
        return slots.from_digits(digits[: math.prod(slots.numbers_shape(self.shape))], self.shape)

    def _fields(self) -> dict[str, Any]:
        numbers = {"numbers": to_matrix(self.masks, self.key.short)}
        return numbers | _write_slots(self.slots) | {"together": self.together}


class PaillierSecretKey(SecretKey):
    """The primes; decrypts modulo p² and q² apart, four times faster than modulo n²."""

    public: PaillierPublicKey

    def __init__(self, public: PaillierPublicKey, p: int, q: int) -> None:
        super().__init__(public)
        self._primes = (gmpy2.mpz(p), gmpy2.mpz(q))

    def _decrypt(self, array: EncryptedArray) -> Array:
        held = cast(PaillierArray, array)  # no other array has this key's fingerprint
        numbers = [self.public.centre(residue) for residue in self._find_residues(held.numbers)]
        return held.slots.unpack(numbers, held.shape)

    def _open(
        self, payload: dict[str, Any], shape: tuple[int, ...], prefixes: bool
    ) -> dict[str, Any]:
        count = len(wire.read_array(payload, "numbers", np.uint8, 2))
        # Packing makes requests smaller than their shape, never larger.
        least, most = (0, SUMS_PER_VALUE) if prefixes else (1, 1)
        if not least <= count <= most * math.prod(shape):
            raise ProtocolError(
                f"A masked request of shape {shape} was expected. Got {count} numbers instead."
            )
        residues = self._find_residues(self.public.read_numbers(payload, count))
        return {"residues": to_matrix(residues, self.public.short)}

    def _find_residues(self, numbers: list[Residue]) -> list[int]:
        seconds = len(numbers) * SECONDS_PER_DECRYPTION.get(self.public.bits, 9.5e-3)
        # The primes go to worker processes of this machine and party, nowhere else.
        tasks = [(*self._primes, numbers[chunk]) for chunk in cut_chunks(len(numbers), seconds)]
        parts = spread_if_worth(decrypt_with, tasks, seconds)
        return [residue for part in parts for residue in part]


def encrypt_with(message: int, obfuscator: Obfuscator, square: Residue) -> Residue:
    """(1 + n)^message · r^n mod n² with given randomness.

    (1 + n)^m = 1 + m·n, so the product is r^n + m · (n · r^n), and n · r^n is at hand.
    """
    power, lifted = obfuscator
    return (power + message * lifted) % square


def decrypt_with(task: tuple[Residue, Residue, list[Residue]]) -> list[int]:
    """Residues mod n = p·q behind ciphertexts.

    Ciphertexts arrive re-randomised, which blinds the exponentiation: its timing belongs to a
    number that nobody chose.
    """
    p, q, numbers = task
    p_square, q_square = p * p, q * q
    # L((1 + n)^(p−1) mod p²) = (p − 1)·q = −q mod p, and likewise for q.
    p_factor, q_factor = gmpy2.invert(-q, p), gmpy2.invert(-p, q)
    p_inverse = gmpy2.invert(p, q)
    residues = []
    for number in numbers:
        in_p = (gmpy2.powmod(number, p - 1, p_square) - 1) // p * p_factor % p
        in_q = (gmpy2.powmod(number, q - 1, q_square) - 1) // q * q_factor % q
        residues.append(int(in_p + p * ((in_q - in_p) * p_inverse % q)))
    return residues


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


def _read_slots(payload: dict[str, Any]) -> Slots:
    return Slots(wire.read_field(payload, "slots", int), wire.read_field(payload, "axis", int))


def _write_slots(slots: Slots) -> dict[str, Any]:
    return {"slots": slots.count, "axis": slots.axis}
