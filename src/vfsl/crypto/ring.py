"""SEAL behind numpy: BFV ciphertexts as uint64 arrays (2, limbs, N), plaintexts, flooding.

SEAL objects neither pickle nor expose their numbers, so a ciphertext lives as an array and becomes
an object for the operations that need one. Peers send the arrays, never SEAL's own format: no
foreign bytes reach its parser.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import seal

from vfsl.crypto.integers import expanded_words, random_words
from vfsl.crypto.noise import STATISTICAL_BITS, Noise
from vfsl.crypto.packing import Plains
from vfsl.crypto.runs import Runs
from vfsl.errors import ConfigError
from vfsl.values import Array

# Rings of values in coefficients and of values in slots.
DEGREE, SLOT_DEGREE = 8192, 16384
# HomomorphicEncryption.org standard, ternary secret, 128 bits.
MAX_MODULUS_BITS = {DEGREE: 218, SLOT_DEGREE: 438}
# The largest 60-bit prime that is 1 modulo 2 · SLOT_DEGREE behind the seven that SEAL takes for the
# ciphertext modulus, to which it must be coprime; below all of them, lifting plaintexts is fast.
SLOT_PRIME = 1152921504598720513
WORD = 30


@dataclass(frozen=True)
class Parameters:
    """Degree, plaintext modulus, data primes, and one more prime for encryption only.

    The plaintext modulus is a power of two for values in coefficients, a prime for slots.
    """

    degree: int
    plain: int
    prime_bits: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"{self.degree}:{self.plain}:" + ",".join(map(str, self.prime_bits))


# Two products one after the other, with two floodings: 6 × 60 bits of data, see noise.py.
SLOTS = Parameters(SLOT_DEGREE, SLOT_PRIME, (60,) * 7)


def parameters(plain_bits: int, data_bits: tuple[int, ...]) -> Parameters:
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
    ring = ring_of(made)
    # Something must be left for work: flooding of a fresh ciphertext's own noise, at the least.
    if ring.last.flood_bits < ring.fresh_noise.bit_length() + STATISTICAL_BITS + 20:
        raise ConfigError(
            f"bfv with plain_bits={plain_bits} and modulus_bits={data_bits} cannot flood its own "
            "noise; use fewer plain_bits or more modulus bits."
        )
    return made


class Ring(Noise):
    """One parameter set: SEAL's context, and arithmetic on raw ciphertexts."""

    def __init__(self, params: Parameters) -> None:
        self.params = params
        moduli = seal.CoeffModulus.Create(params.degree, list(params.prime_bits))
        *data, special = [int(prime.value()) for prime in moduli]
        super().__init__(params.degree, params.plain, tuple(data), special)

    @cached_property
    def context(self) -> Any:
        """SEAL's precomputed tables; they take a while, so a ring that is not used has none."""
        degree, bits = self.degree, list(self.params.prime_bits)
        settings = seal.EncryptionParameters(seal.scheme_type.bfv)
        settings.set_poly_modulus_degree(degree)
        settings.set_coeff_modulus(seal.CoeffModulus.Create(degree, bits))
        settings.set_plain_modulus(self.t)
        context = seal.SEALContext(settings, True, seal.sec_level_type.tc128)
        if not context.parameters_set():
            raise ConfigError(
                f"SEAL refuses bfv with {self.params.text}: {context.parameter_error_message()}."
            )
        return context

    @cached_property
    def evaluator(self) -> Any:
        return seal.Evaluator(self.context)

    @property
    def weight(self) -> float:
        """About how much longer steps take than in the ring that seconds are stated for."""
        return self.degree * self.top / (8192 * 3)

    # Residues mod t.

    def residues(self, values: Array) -> Array:
        """Integers between −t and t mod t."""
        signed = values.astype(np.int64)
        return np.where(signed < 0, signed + self.t, signed).astype(np.uint64)

    def centred(self, residues: Array) -> Array:
        """Residues mod t as signed integers."""
        signed = residues.astype(np.int64)
        return np.where(signed > self.t // 2, signed - self.t, signed)

    def minus(self, a: Array, b: Array) -> Array:
        """a − b mod t."""
        difference = a - b
        # Where nothing was borrowed, adding t makes a larger number; else it wraps to a small one.
        reduced: Array = np.minimum(difference, difference + np.uint64(self.t))
        return reduced

    def plus(self, a: Array, b: Array) -> Array:
        """a + b mod t."""
        total = a + b
        reduced: Array = np.minimum(total, total - np.uint64(self.t))
        return reduced

    def random(self, count: int) -> Array:
        """Uniform residues mod t from the operating system, by rejection."""
        bits = (self.t - 1).bit_length()
        drawn = random_words(count, bits)
        while (over := drawn >= self.t).any():
            drawn[over] = random_words(int(over.sum()), bits)
        return drawn

    def expanded(self, seed: bytes, count: int) -> Array:
        """The same for everybody who holds ``seed``."""
        drawn, kept = count, np.empty(0, dtype=np.uint64)
        while len(kept) < count:
            # A longer stream begins with the shorter one.
            words = expanded_words(seed, drawn, (self.t - 1).bit_length())
            kept = words[words < self.t]
            drawn *= 2
        return kept[:count]

    def run_sums(self, runs: Runs, residues: Array) -> Array:
        """Sums over runs mod t."""
        if self.t & (self.t - 1) == 0:  # then wrapping around at 2^64 does no harm
            return runs.of(residues) & np.uint64(self.t - 1)
        return (runs.of(residues.astype(object)) % self.t).astype(np.uint64)

    # Slots: the values of a polynomial at the N roots of X^N + 1 mod t, a prime.

    @cached_property
    def _encoder(self) -> Any:
        return seal.BatchEncoder(self.context)

    def from_slots(self, residues: Array) -> Array:
        """The coefficients of the polynomial with these values; missing ones are zero."""
        return self.coefficients(self._encoder.encode(residues))

    def to_slots(self, coefficients: Array) -> Array:
        """All N values of a polynomial."""
        slots: Array = self._encoder.decode_uint64(self.plaintext(coefficients))
        return slots

    # Raw arrays and SEAL objects.

    @cached_property
    def _headers(self) -> dict[tuple[int, bool], bytes]:
        """What SEAL writes in front of the numbers, for every level, in and out of NTT form."""
        encryptor = seal.Encryptor(
            self.context, seal.KeyGenerator(self.context).create_public_key()
        )
        ciphertext = encryptor.encrypt_zero()
        headers = {}
        for limbs in range(self.top, 0, -1):
            for form in (ciphertext, self.evaluator.transform_to_ntt(ciphertext)):
                text = form.to_string(seal.compr_mode_type.none)
                headers[limbs, form.is_ntt_form()] = text[: len(text) - 16 * limbs * self.degree]
            if limbs > 1:
                ciphertext = self.evaluator.mod_switch_to_next(ciphertext)
        return headers

    @cached_property
    def _plain_header(self) -> bytes:
        text: bytes = seal.Plaintext(f"1x^{self.degree - 1}").to_bytes(seal.compr_mode_type.none)
        return text[: len(text) - 8 * self.degree]

    @cached_property
    def key_header(self) -> bytes:
        text: bytes = seal.KeyGenerator(self.context).create_public_key().to_string()
        return text[: len(text) - self.key_bytes]

    @property
    def key_bytes(self) -> int:
        return 16 * (self.top + 1) * self.degree

    def object(self, raw: Array) -> Any:
        """A SEAL ciphertext from its numbers."""
        ciphertext = seal.Ciphertext()
        header = self._headers[raw.shape[1], False]
        ciphertext.load_bytes(self.context, header + raw.tobytes())
        return ciphertext

    def raw(self, ciphertext: Any) -> Array:
        """The numbers of a SEAL ciphertext."""
        limbs = ciphertext.coeff_modulus_size()
        text = ciphertext.to_string(seal.compr_mode_type.none)
        # The slice copies, which also aligns the numbers behind the odd-sized header.
        numbers = np.frombuffer(text[len(text) - 16 * limbs * self.degree :], dtype=np.uint64)
        return numbers.reshape(2, limbs, self.degree)

    def plaintext(self, coefficients: Array) -> Any:
        """A SEAL plaintext from up to N residues mod t."""
        full = np.zeros(self.degree, dtype=np.uint64)
        full[: len(coefficients)] = coefficients
        plain = seal.Plaintext()
        plain.load_bytes(self.context, self._plain_header + full.tobytes())
        return plain

    def coefficients(self, plain: Any) -> Array:
        """All N residues mod t of a SEAL plaintext; SEAL leaves out leading zeros."""
        text = plain.to_bytes(seal.compr_mode_type.none)
        held = np.frombuffer(text, dtype=np.uint64, offset=len(self._plain_header))
        return np.pad(held, (0, self.degree - len(held)))

    def _primes_column(self, limbs: int) -> Array:
        return np.array(self.primes[:limbs], dtype=np.uint64)[:, None]

    def in_range(self, raw: Array) -> bool:
        return bool((raw < self._primes_column(raw.shape[-2])).all())

    def add(self, a: Array, b: Array) -> Array:
        total = a + b
        # Where nothing is to be taken off, the difference wraps to a huge number.
        reduced: Array = np.minimum(total, total - self._primes_column(a.shape[-2]))
        return reduced

    def subtract(self, a: Array, b: Array) -> Array:
        difference = a - b
        reduced: Array = np.minimum(difference, difference + self._primes_column(a.shape[-2]))
        return reduced

    def switch(self, raw: Array, limbs: int) -> Array:
        """Down to ``limbs`` limbs."""
        if raw.shape[1] == limbs:
            return raw
        ciphertext = self.object(raw)
        for _ in range(raw.shape[1] - limbs):
            self.evaluator.mod_switch_to_next_inplace(ciphertext)
        return self.raw(ciphertext)

    def add_plain(self, raw: Array, residues: Array) -> Array:
        if not residues.any():
            return raw
        return self.raw(self.evaluator.add_plain(self.object(raw), self.plaintext(residues)))

    def scale(self, raw: Array, factor: int) -> Array:
        """Times a non-zero integer below t/2 in size.

        A negative constant is not given to SEAL: it would multiply by t − |factor|, which is the
        same mod t, but lets the noise grow by t.
        """
        if abs(factor) > 1:
            constant = seal.Plaintext(f"{abs(factor):X}")
            raw = self.raw(self.evaluator.multiply_plain(self.object(raw), constant))
        return raw if factor > 0 else self.subtract(np.zeros_like(raw), raw)

    def flood(self, raw: Array, bits: int, where: Array | slice = slice(None)) -> Array:
        """Add uniform noise from ±2**bits to the first half.

        ``where`` are the exponents that will leave; drowning the others would be wasted.
        """
        part = raw[0][:, where]
        words, count = -(-(bits + 1) // WORD), part.shape[1]
        noise = np.frombuffer(secrets.token_bytes(4 * words * count), dtype=np.uint32)
        digits = (noise & np.uint32((1 << WORD) - 1)).astype(np.uint64).reshape(words, count)
        digits[0] >>= np.uint64(words * WORD - bits - 1)
        primes = self.primes[: raw.shape[1]]
        middle = np.array([[(1 << bits) % prime] for prime in primes], dtype=np.uint64)
        reduced = np.stack([horner(digits, prime) for prime in primes])
        flooded = raw.copy()
        flooded[0][:, where] = self.subtract(
            self.add(part, reduced), np.broadcast_to(middle, part.shape)
        )
        return flooded

    def cover(
        self, zero: Array, residues: Array, bits: int, where: Array | slice = slice(None)
    ) -> Array:
        """An encryption of ``residues``, flooded at some exponents, from an encryption of zero."""
        return self.flood(self.add_plain(zero, residues), bits, where)

    def multiply(self, raw: Array, residues: Array) -> Array:
        """Times a plaintext; all zeros if that is zero, which SEAL refuses."""
        if not residues.any():
            return np.zeros_like(raw)
        return self.raw(self.evaluator.multiply_plain(self.object(raw), self.plaintext(residues)))

    def products(
        self,
        raws: Array,
        blocks: int,
        plains: Plains,
        groups: slice,
        kept: dict[int, list[Any]] | None = None,
    ) -> list[Array]:
        """Σ over blocks of encrypted × plain, for each encrypted and each plain group.

        ``raws`` are ordered (encrypted group, block); the result (encrypted group, plain group).
        A sum to which nothing was added (all-zero plaintexts, which SEAL refuses) is all zeros.
        ``kept`` holds, by block, plaintexts that were transformed before; missing ones are added.
        """
        evaluator, columns = self.evaluator, len(raws) // blocks
        sums: list[list[Any]] = [[None] * (groups.stop - groups.start) for _ in range(columns)]
        for block in range(blocks):
            encrypted = [
                evaluator.transform_to_ntt(self.object(raws[column * blocks + block]))
                for column in range(columns)
            ]
            level = encrypted[0].parms_id()
            if kept is None:
                factors: Iterable[Any] = self._transformed(plains.block(block, groups), level)
            elif block in kept:
                factors = kept[block]
            else:
                factors = kept[block] = list(self._transformed(plains.block(block, groups), level))
            for at, plain in enumerate(factors):
                if plain is None:
                    continue
                for column, ciphertext in enumerate(encrypted):
                    term = evaluator.multiply_plain(ciphertext, plain)
                    if sums[column][at] is None:
                        sums[column][at] = term
                    else:
                        evaluator.add_inplace(sums[column][at], term)
        limbs = raws.shape[2]
        return [self._collected(term, limbs) for row in sums for term in row]

    def _transformed(self, rows: Array, level: Any) -> Iterator[Any]:
        """Plaintexts in the form that multiplies fastest; None for one that is zero."""
        for row in rows:
            some = row.any()
            plain = self.plaintext(self.residues(row)) if some else None
            yield self.evaluator.transform_to_ntt(plain, level) if some else None

    def _collected(self, term: Any, limbs: int) -> Array:
        if term is None:
            return np.zeros((2, limbs, self.degree), dtype=np.uint64)
        self.evaluator.transform_from_ntt_inplace(term)
        return self.raw(term)


@lru_cache(maxsize=8)
def ring_of(params: Parameters) -> Ring:
    """The ring of a parameter set, made once a process."""
    return Ring(params)


def horner(digits: Array, prime: int) -> Array:
    """Σ digits · 2^(30 j) mod a prime below 2^60, most significant digit first."""
    value = digits[0].astype(np.int64) % np.int64(prime)
    for digit in digits[1:]:
        value = shifted(value, WORD, prime, digit.astype(np.int64))
    reduced: Array = value.astype(np.uint64)
    return reduced


def shifted(value: Array, bits: int, prime: int, digit: Array | int = 0) -> Array:
    """value · 2^bits + digit mod a prime below 2^60, for at most 30 bits and a digit of as many.

    The quotient of a 90-bit number by the prime is below 2^31, so float64 gets it right to ±1;
    the remainder is exact because 64-bit integers wrap.
    """
    modulus = np.int64(prime)
    quotient = np.floor(value.astype(np.float64) * (2.0**bits / prime)).astype(np.int64)
    return ((value << np.int64(bits)) + digit - quotient * modulus) % modulus


def block_products(task: tuple[Parameters, Array, int, Plains, slice]) -> list[Array]:
    """:meth:`Ring.products` for one run of plain groups; runs in a worker process."""
    params, raws, blocks, plains, groups = task
    return ring_of(params).products(raws, blocks, plains, groups)
