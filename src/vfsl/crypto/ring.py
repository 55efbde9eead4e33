"""The rings behind BFV: exact bounds on the error of a ciphertext, and SEAL behind numpy.

Errors. A ciphertext with c0 + c1·s = (q/t)·m + v mod q decrypts to m if |v| < q/(2t). Bounds on v
are worst cases, with |s| ≤ 1, |u| ≤ 1 and |e| ≤ 21 for every coefficient (SEAL's centred binomial
distribution has 21 coins). q/(8t) is the limit, which leaves room for SEAL's approximate rounding.

Arrays. A ciphertext is a uint64 array (2, limbs, N). SEAL objects neither pickle nor expose their
numbers, so an array becomes an object only for the operations that need one. Peers send the
arrays, never SEAL's own format: no foreign bytes reach its parser.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import seal

from vfsl.crypto.fixed import draw_words, expand_words
from vfsl.crypto.sums import PrefixSums
from vfsl.errors import ConfigError
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.crypto.packing import Plains

# Rings of values in coefficients and of values in slots.
DEGREE, SLOT_DEGREE = 8192, 16384
# The largest 60-bit prime that is 1 modulo 2 · SLOT_DEGREE after the seven that SEAL takes for the
# ciphertext modulus, to which it must be coprime; below all of them, lifting plaintexts is fast.
SLOT_PRIME = 1152921504598720513
WORD = 30
ERROR_BOUND = 21
STATISTICAL_BITS = 40
# Room for 2**22 results (times blocks of rows) when a receiver multiplies once more.
ONWARD_BITS = 22


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


# Two products one after the other, with two floodings: 6 × 60 bits of data.
SLOTS = Parameters(SLOT_DEGREE, SLOT_PRIME, (60,) * 7)


@dataclass(frozen=True)
class Exit:
    """How ciphertexts leave: flooded by ±2**flood_bits at the top level, then with fewer limbs."""

    flood_bits: int
    limbs: int


class ErrorBounds:
    """Bounds for one ring: degree N, plaintext modulus t, data primes, the encryption's prime."""

    def __init__(self, degree: int, t: int, primes: tuple[int, ...], special: int) -> None:
        self.degree = degree
        self.t = t
        self.primes = primes
        self.special = special

    @property
    def top(self) -> int:
        """The limbs of a fresh ciphertext."""
        return len(self.primes)

    @property
    def fresh_error(self) -> int:
        """Public-key encryption: −e·u + e0 + e1·s at the key level, divided by the last prime.

        Rounding both halves adds ½ + N/2, scaling the message by q/t at most ½.
        """
        key_level = ERROR_BOUND * (2 * self.degree + 1)
        return key_level // self.special + 1 + self.degree // 2 + 1

    def modulus(self, limbs: int) -> int:
        return math.prod(self.primes[:limbs])

    def limit(self, limbs: int) -> int:
        """The largest error that surely decrypts at this level."""
        return self.modulus(limbs) // (8 * self.t)

    def drop_factor(self, limbs: int, start: int | None = None) -> int:
        """By what switching from ``start`` limbs (default: all) to ``limbs`` divides errors."""
        return self.modulus(self.top if start is None else start) // self.modulus(limbs)

    def switched_error(self, error: int, limbs: int, start: int | None = None) -> int:
        """The error at level ``limbs`` of a ciphertext that had ``error`` at ``start``."""
        # Each prime that goes adds rounding of both halves, (N + 1)/2; earlier ones shrink again.
        return error // self.drop_factor(limbs, start) + 1 + self.degree

    def cover_error(self, flood_bits: int) -> int:
        """The error of a flooded encryption."""
        return (1 << flood_bits) + self.fresh_error + 1

    @property
    def slot_norm(self) -> int:
        """Largest L1 norm of a plaintext: that of any values in slots, as centred coefficients."""
        return self.degree * (self.t // 2)

    def flood_bits(self, out: Exit, limbs: int) -> int:
        """The bits of flooding at level ``limbs`` that come to those of an exit at the top."""
        return out.flood_bits - (self.drop_factor(limbs) - 1).bit_length()

    def drowns(self, out: Exit, own: int, limbs: int, coefficients: int) -> bool:
        """Whether an exit hides errors up to ``own`` in that many coefficients at a level."""
        return needed_bits(own, coefficients) <= self.flood_bits(out, limbs)

    @cached_property
    def last(self) -> Exit:
        """The exit with as much flooding as there is room for: seven of them fit the limit.

        Afterwards the fewest limbs that still hold it are enough.
        """
        bits = (self.modulus(self.top) // (64 * self.t)).bit_length() - 1
        limbs = self.top
        while limbs > 1 and 3 * self.switched_error(1 << bits, limbs - 1) <= self.limit(limbs - 1):
            limbs -= 1
        return Exit(bits, limbs)

    @cached_property
    def onward(self) -> Exit:
        """The exit with so little flooding that its receiver can multiply by values in slots again.

        What that product leaves with must be drowned by the last exit. Where the modulus has no
        room for it, this is the last exit itself.
        """
        # Errors are stated in whole bits, so one may be received as twice what it was.
        bits = self.last.flood_bits - needed_bits(2 * self.slot_norm, 1 << ONWARD_BITS)
        if bits <= self.fresh_error.bit_length():
            return self.last
        limbs = self.top

        def fits(fewer: int) -> bool:
            received = (1 << self.switched_error(1 << bits, fewer).bit_length()) - 1
            return self.drowns(self.last, received * self.slot_norm, fewer, 1 << ONWARD_BITS)

        while limbs > 1 and fits(limbs - 1):
            limbs -= 1
        return Exit(bits, limbs)

    @property
    def levels(self) -> tuple[int, ...]:
        """The limbs that ciphertexts between parties may have."""
        return (self.top, self.onward.limbs, self.last.limbs)


def needed_bits(own: int, coefficients: int) -> int:
    """Bits of flooding that hide errors up to ``own`` in that many coefficients."""
    return (max(own * coefficients, 1) - 1).bit_length() + STATISTICAL_BITS


class Ring(ErrorBounds):
    """One parameter set: SEAL's context, and arithmetic on raw ciphertexts."""

    def __init__(self, params: Parameters) -> None:
        self.params = params
        moduli = seal.CoeffModulus.Create(params.degree, list(params.prime_bits))
        *data, special = [int(prime.value()) for prime in moduli]
        super().__init__(params.degree, params.plain, tuple(data), special)

    @cached_property
    def context(self) -> Any:
        """SEAL's precomputed tables; they take a while, so a ring that is not used has none."""
        settings = seal.EncryptionParameters(seal.scheme_type.bfv)
        settings.set_poly_modulus_degree(self.degree)
        bits = list(self.params.prime_bits)
        settings.set_coeff_modulus(seal.CoeffModulus.Create(self.degree, bits))
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
        """Roughly how much longer a step takes than in the ring for which seconds are stated."""
        return self.degree * self.top / (8192 * 3)

    # ---- residues mod t -----------------------------------------------------------------------

    def reduce(self, values: Array) -> Array:
        """Integers between −t and t as residues mod t."""
        signed = values.astype(np.int64)
        return np.where(signed < 0, signed + self.t, signed).astype(np.uint64)

    def centre(self, residues: Array) -> Array:
        """Residues mod t as signed integers."""
        signed = residues.astype(np.int64)
        return np.where(signed > self.t // 2, signed - self.t, signed)

    def minus(self, a: Array, b: Array) -> Array:
        """a − b mod t."""
        return _wrap_negative(a - b, np.uint64(self.t))

    def plus(self, a: Array, b: Array) -> Array:
        """a + b mod t."""
        return _wrap_large(a + b, np.uint64(self.t))

    def draw(self, count: int) -> Array:
        """Uniform residues mod t from the operating system, by rejection."""
        bits = (self.t - 1).bit_length()
        drawn = draw_words(count, bits)
        while (over := drawn >= self.t).any():
            drawn[over] = draw_words(int(over.sum()), bits)
        return drawn

    def expand(self, seed: bytes, count: int) -> Array:
        """Uniform residues mod t, the same for everybody who holds ``seed``."""
        drawn, kept = count, np.empty(0, dtype=np.uint64)
        while len(kept) < count:
            # A longer stream begins with the shorter one.
            words = expand_words(seed, drawn, (self.t - 1).bit_length())
            kept = words[words < self.t]
            drawn *= 2
        return kept[:count]

    def add_up(self, sums: PrefixSums, residues: Array) -> Array:
        """Prefix sums mod t."""
        if self.t & (self.t - 1) == 0:  # then wrapping around at 2^64 does no harm
            return sums.add_up(residues) & np.uint64(self.t - 1)
        return (sums.add_up(residues.astype(object)) % self.t).astype(np.uint64)

    # ---- slots: the values of a polynomial at the N roots of X^N + 1 mod t, a prime ------------

    @cached_property
    def _encoder(self) -> Any:
        return seal.BatchEncoder(self.context)

    def from_slots(self, residues: Array) -> Array:
        """The coefficients of the polynomial with these values; missing ones are zero."""
        return self.from_plain(self._encoder.encode(residues))

    def to_slots(self, coefficients: Array) -> Array:
        """All N values of a polynomial."""
        slots: Array = self._encoder.decode_uint64(self.to_plain(coefficients))
        return slots

    # ---- raw arrays and SEAL objects ----------------------------------------------------------

    @cached_property
    def _headers(self) -> dict[int, bytes]:
        """What SEAL writes in front of the numbers of a ciphertext, by its limbs."""
        encryptor = seal.Encryptor(
            self.context, seal.KeyGenerator(self.context).create_public_key()
        )
        ciphertext = encryptor.encrypt_zero()
        headers = {}
        for limbs in range(self.top, 0, -1):
            text = ciphertext.to_string(seal.compr_mode_type.none)
            headers[limbs] = text[: len(text) - 16 * limbs * self.degree]
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

    def to_seal(self, raw: Array) -> Any:
        """A SEAL ciphertext from its numbers."""
        ciphertext = seal.Ciphertext()
        ciphertext.load_bytes(self.context, self._headers[raw.shape[1]] + raw.tobytes())
        return ciphertext

    def from_seal(self, ciphertext: Any) -> Array:
        """The numbers of a SEAL ciphertext."""
        limbs = ciphertext.coeff_modulus_size()
        text = ciphertext.to_string(seal.compr_mode_type.none)
        # The slice copies, which also aligns the numbers behind the odd-sized header.
        numbers = np.frombuffer(text[len(text) - 16 * limbs * self.degree :], dtype=np.uint64)
        return numbers.reshape(2, limbs, self.degree)

    def to_plain(self, coefficients: Array) -> Any:
        """A SEAL plaintext from up to N residues mod t."""
        full = np.zeros(self.degree, dtype=np.uint64)
        full[: len(coefficients)] = coefficients
        plain = seal.Plaintext()
        plain.load_bytes(self.context, self._plain_header + full.tobytes())
        return plain

    def from_plain(self, plain: Any) -> Array:
        """All N residues mod t of a SEAL plaintext; SEAL leaves out leading zeros."""
        text = plain.to_bytes(seal.compr_mode_type.none)
        held = np.frombuffer(text, dtype=np.uint64, offset=len(self._plain_header))
        return np.pad(held, (0, self.degree - len(held)))

    # ---- arithmetic on raw arrays -------------------------------------------------------------

    def _primes_column(self, limbs: int) -> Array:
        return np.array(self.primes[:limbs], dtype=np.uint64)[:, None]

    def in_range(self, raw: Array) -> bool:
        return bool((raw < self._primes_column(raw.shape[-2])).all())

    def add(self, a: Array, b: Array) -> Array:
        return _wrap_large(a + b, self._primes_column(a.shape[-2]))

    def subtract(self, a: Array, b: Array) -> Array:
        return _wrap_negative(a - b, self._primes_column(a.shape[-2]))

    def switch(self, raw: Array, limbs: int) -> Array:
        """Down to ``limbs`` limbs."""
        if raw.shape[1] == limbs:
            return raw
        ciphertext = self.to_seal(raw)
        for _ in range(raw.shape[1] - limbs):
            self.evaluator.mod_switch_to_next_inplace(ciphertext)
        return self.from_seal(ciphertext)

    def add_plain(self, raw: Array, residues: Array) -> Array:
        if not residues.any():
            return raw
        return self.from_seal(self.evaluator.add_plain(self.to_seal(raw), self.to_plain(residues)))

    def scale(self, raw: Array, factor: int) -> Array:
        """Times a non-zero integer below t/2 in size.

        A negative constant is not given to SEAL: it would multiply by t − |factor|, which is the
        same mod t, but lets the error grow by t.
        """
        if abs(factor) > 1:
            constant = seal.Plaintext(f"{abs(factor):X}")
            raw = self.from_seal(self.evaluator.multiply_plain(self.to_seal(raw), constant))
        return raw if factor > 0 else self.subtract(np.zeros_like(raw), raw)

    def flood(self, raw: Array, bits: int, where: Array | slice = slice(None)) -> Array:
        """Add a uniform error from ±2**bits to the first half.

        ``where`` are the exponents that will leave; drowning the others would be wasted.
        """
        part = raw[0][:, where]
        words, count = -(-(bits + 1) // WORD), part.shape[1]
        drawn = np.frombuffer(secrets.token_bytes(4 * words * count), dtype=np.uint32)
        digits = (drawn & np.uint32((1 << WORD) - 1)).astype(np.uint64).reshape(words, count)
        digits[0] >>= np.uint64(words * WORD - bits - 1)
        primes = self.primes[: raw.shape[1]]
        middle = np.array([[(1 << bits) % prime] for prime in primes], dtype=np.uint64)
        reduced = np.stack([reduce_digits(digits, prime) for prime in primes])
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
        plain = self.to_plain(residues)
        return self.from_seal(self.evaluator.multiply_plain(self.to_seal(raw), plain))

    def multiply_blocks(
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
                evaluator.transform_to_ntt(self.to_seal(raws[column * blocks + block]))
                for column in range(columns)
            ]
            level = encrypted[0].parms_id()
            factors: Iterable[Any] | None = None if kept is None else kept.get(block)
            if factors is None:
                factors = self._transform(plains.block(block, groups), level)
                if kept is not None:
                    factors = kept[block] = list(factors)
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
        return [self._collect(term, limbs) for row in sums for term in row]

    def _transform(self, rows: Array, level: Any) -> Iterator[Any]:
        """Plaintexts in the form that multiplies fastest; None for one that is zero."""
        for row in rows:
            some = row.any()
            plain = self.to_plain(self.reduce(row)) if some else None
            yield self.evaluator.transform_to_ntt(plain, level) if some else None

    def _collect(self, term: Any, limbs: int) -> Array:
        if term is None:
            return np.zeros((2, limbs, self.degree), dtype=np.uint64)
        self.evaluator.transform_from_ntt_inplace(term)
        return self.from_seal(term)


@lru_cache(maxsize=8)
def get_ring(params: Parameters) -> Ring:
    """The ring of a parameter set, made once per process."""
    return Ring(params)


def _wrap_large(total: Array, modulus: Any) -> Array:
    # Where nothing is to be taken off, the difference wraps to a huge number.
    reduced: Array = np.minimum(total, total - modulus)
    return reduced


def _wrap_negative(difference: Array, modulus: Any) -> Array:
    # Where nothing was borrowed, the sum is a larger number; else it wraps to a small one.
    reduced: Array = np.minimum(difference, difference + modulus)
    return reduced


def reduce_digits(digits: Array, prime: int) -> Array:
    """Σ digits · 2^(30 j) mod a prime below 2^60, most significant digit first."""
    value = digits[0].astype(np.int64) % np.int64(prime)
    for digit in digits[1:]:
        value = shift_left(value, WORD, prime, digit.astype(np.int64))
    reduced: Array = value.astype(np.uint64)
    return reduced


def shift_left(value: Array, bits: int, prime: int, digit: Array | int = 0) -> Array:
    """value · 2^bits + digit mod a prime below 2^60, for bits ≤ 30 and a digit below 2^bits.

    The quotient of a 90-bit number by the prime is below 2^31, so float64 gets it right to ±1;
    the remainder is exact because 64-bit integers wrap.
    """
    modulus = np.int64(prime)
    quotient = np.floor(value.astype(np.float64) * (2.0**bits / prime)).astype(np.int64)
    return ((value << np.int64(bits)) + digit - quotient * modulus) % modulus


def multiply_task(task: tuple[Parameters, Array, int, Plains, slice]) -> list[Array]:
    """:meth:`Ring.multiply_blocks` for one chunk of plain groups; runs in a worker process."""
    params, raws, blocks, plains, groups = task
    return get_ring(params).multiply_blocks(raws, blocks, plains, groups)
