"""SEAL behind numpy: BFV ciphertexts as uint64 arrays (2, limbs, N), worst-case noise, flooding.

SEAL objects neither pickle nor expose their numbers, so a ciphertext lives as an array and becomes
an object for the operations that need one. Peers send the arrays, never SEAL's own format: no
foreign bytes reach its parser.

Noise. A ciphertext with c0 + c1·s = (q/t)·m + v mod q decrypts to m if |v| < q/(2t). Bounds here
are worst cases, with |s| ≤ 1, |u| ≤ 1 and |e| ≤ 21 for every coefficient (SEAL's centred binomial
distribution has 21 coins). q/(8t) is the limit, which leaves room for SEAL's approximate rounding.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import seal

from vfsl.crypto.packing import Plains
from vfsl.crypto.pool import Pool
from vfsl.crypto.work import pieces, shared, workers
from vfsl.errors import ConfigError
from vfsl.parallel import spread
from vfsl.values import Array

DEGREE = 8192
# HomomorphicEncryption.org standard, ternary secret, N = 8192, 128 bits.
MAX_MODULUS_BITS = 218
ERROR_BOUND = 21
STATISTICAL_BITS = 40
WORD = 30
# Only to decide about worker processes.
SECONDS_AN_ENCRYPTION = 5e-3
ZEROS_A_TASK = 8


@dataclass(frozen=True)
class Parameters:
    """Plaintext modulus 2**plain_bits, data primes, and one more prime for encryption only."""

    plain_bits: int
    prime_bits: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"{DEGREE}:{self.plain_bits}:" + ",".join(map(str, self.prime_bits))


def parameters(plain_bits: int, data_bits: tuple[int, ...]) -> Parameters:
    """Checked parameters; the last prime takes what the security level leaves."""
    if not 2 <= plain_bits <= 59:
        raise ConfigError(
            f"The plain_bits parameter of bfv must be between 2 and 59. Got {plain_bits} instead."
        )
    special = min(MAX_MODULUS_BITS - sum(data_bits), 60)
    if not data_bits or not all(18 <= bits <= 60 for bits in data_bits) or special < 20:
        raise ConfigError(
            "The modulus_bits parameter of bfv must be primes of 18 to 60 bits that leave 20 of "
            f"{MAX_MODULUS_BITS} bits. Got {data_bits} instead."
        )
    made = Parameters(plain_bits, (*data_bits, special))
    ring = ring_of(made)
    # Something must be left for work: flooding of a fresh ciphertext's own noise, at the least.
    if ring.flood_bits < ring.fresh_noise.bit_length() + STATISTICAL_BITS + 20:
        raise ConfigError(
            f"bfv with plain_bits={plain_bits} and modulus_bits={data_bits} cannot flood its own "
            "noise; use fewer plain_bits or more modulus bits."
        )
    return made


class Ring:
    """One parameter set: SEAL's context, and arithmetic on raw ciphertexts."""

    def __init__(self, params: Parameters) -> None:
        self.params = params
        self.t = 1 << params.plain_bits
        settings = seal.EncryptionParameters(seal.scheme_type.bfv)
        settings.set_poly_modulus_degree(DEGREE)
        settings.set_coeff_modulus(seal.CoeffModulus.Create(DEGREE, list(params.prime_bits)))
        settings.set_plain_modulus(self.t)
        self.context = seal.SEALContext(settings, True, seal.sec_level_type.tc128)
        if not self.context.parameters_set():
            raise ConfigError(
                f"SEAL refuses bfv with {params.text}: {self.context.parameter_error_message()}."
            )
        self.evaluator = seal.Evaluator(self.context)
        *data, self.special = [int(prime.value()) for prime in settings.coeff_modulus()]
        self.primes = tuple(data)

    # Noise, in exact integers.

    @property
    def fresh_noise(self) -> int:
        """Public-key encryption: −e·u + e0 + e1·s at the key level, divided by the last prime.

        Rounding both halves adds ½ + N/2, scaling the message by q/t at most ½.
        """
        key_level = ERROR_BOUND * (2 * DEGREE + 1)
        return key_level // self.special + 1 + DEGREE // 2 + 1

    def modulus(self, limbs: int) -> int:
        product = 1
        for prime in self.primes[:limbs]:
            product *= prime
        return product

    def limit(self, limbs: int) -> int:
        """Largest noise that surely decrypts at this level."""
        return self.modulus(limbs) // (8 * self.t)

    def dropped(self, limbs: int) -> int:
        """What switching from the top level down to ``limbs`` divides noise by."""
        return self.modulus(len(self.primes)) // self.modulus(limbs)

    def switched_noise(self, noise: int, limbs: int) -> int:
        """Noise at level ``limbs`` of a ciphertext that had ``noise`` at the top."""
        # Each prime that goes adds rounding of both halves, (N + 1)/2; earlier ones shrink again.
        return noise // self.dropped(limbs) + 1 + DEGREE

    @cached_property
    def flood_bits(self) -> int:
        """Flooding is uniform in ±2**flood_bits at the top level; seven of them fit the limit."""
        return (self.modulus(len(self.primes)) // (64 * self.t)).bit_length() - 1

    @property
    def cover_noise(self) -> int:
        """A flooded encryption."""
        return (1 << self.flood_bits) + self.fresh_noise + 1

    @cached_property
    def low(self) -> int:
        """Fewest limbs that still hold flooded ciphertexts: what leaves is switched down to it."""
        limbs = len(self.primes)
        while limbs > 1 and 3 * self.switched_noise(1 << self.flood_bits, limbs - 1) <= self.limit(
            limbs - 1
        ):
            limbs -= 1
        return limbs

    # Raw arrays and SEAL objects.

    @cached_property
    def _headers(self) -> dict[tuple[int, bool], bytes]:
        """What SEAL writes in front of the numbers, for every level, in and out of NTT form."""
        encryptor = seal.Encryptor(
            self.context, seal.KeyGenerator(self.context).create_public_key()
        )
        ciphertext = encryptor.encrypt_zero()
        headers = {}
        for limbs in range(len(self.primes), 0, -1):
            for form in (ciphertext, self.evaluator.transform_to_ntt(ciphertext)):
                text = form.to_string(seal.compr_mode_type.none)
                headers[limbs, form.is_ntt_form()] = text[: len(text) - 16 * limbs * DEGREE]
            if limbs > 1:
                ciphertext = self.evaluator.mod_switch_to_next(ciphertext)
        return headers

    @cached_property
    def _plain_header(self) -> bytes:
        text: bytes = seal.Plaintext(f"1x^{DEGREE - 1}").to_bytes(seal.compr_mode_type.none)
        return text[: len(text) - 8 * DEGREE]

    @cached_property
    def key_header(self) -> bytes:
        text: bytes = seal.KeyGenerator(self.context).create_public_key().to_string()
        return text[: len(text) - self.key_bytes]

    @property
    def key_bytes(self) -> int:
        return 16 * (len(self.primes) + 1) * DEGREE

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
        numbers = np.frombuffer(text[len(text) - 16 * limbs * DEGREE :], dtype=np.uint64)
        return numbers.reshape(2, limbs, DEGREE)

    def plaintext(self, coefficients: Array) -> Any:
        """A SEAL plaintext from up to N residues mod t."""
        full = np.zeros(DEGREE, dtype=np.uint64)
        full[: len(coefficients)] = coefficients
        plain = seal.Plaintext()
        plain.load_bytes(self.context, self._plain_header + full.tobytes())
        return plain

    def coefficients(self, plain: Any) -> Array:
        """All N residues mod t of a SEAL plaintext; SEAL leaves out leading zeros."""
        text = plain.to_bytes(seal.compr_mode_type.none)
        held = np.frombuffer(text, dtype=np.uint64, offset=len(self._plain_header))
        return np.pad(held, (0, DEGREE - len(held)))

    def residues(self, values: Array) -> Array:
        """Signed integers mod t."""
        return values.astype(np.int64).astype(np.uint64) & np.uint64(self.t - 1)

    def centred(self, residues: Array) -> Array:
        """Residues mod t as signed integers."""
        unused = np.uint64(64 - self.params.plain_bits)
        return (residues << unused).astype(np.int64) >> np.int64(unused)

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

    def flood(self, raw: Array, where: Array | slice = slice(None)) -> Array:
        """Add uniform noise from ±2**flood_bits to the first half, at the top level.

        ``where`` are the exponents that will leave; drowning the others would be wasted.
        """
        part = raw[0][:, where]
        words, count = -(-(self.flood_bits + 1) // WORD), part.shape[1]
        noise = np.frombuffer(secrets.token_bytes(4 * words * count), dtype=np.uint32)
        digits = (noise & np.uint32((1 << WORD) - 1)).astype(np.uint64).reshape(words, count)
        digits[0] >>= np.uint64(words * WORD - self.flood_bits - 1)
        middle = np.array(
            [[(1 << self.flood_bits) % prime] for prime in self.primes], dtype=np.uint64
        )
        reduced = np.stack([horner(digits, prime) for prime in self.primes])
        flooded = raw.copy()
        flooded[0][:, where] = self.subtract(
            self.add(part, reduced), np.broadcast_to(middle, part.shape)
        )
        return flooded

    def cover(self, zero: Array, residues: Array, where: Array | slice = slice(None)) -> Array:
        """An encryption of ``residues``, flooded at some exponents, from an encryption of zero."""
        return self.flood(self.add_plain(zero, residues), where)

    def products(self, raws: Array, blocks: int, plains: Plains, groups: slice) -> list[Array]:
        """Σ over blocks of encrypted × plain, for each encrypted and each plain group.

        ``raws`` are ordered (encrypted group, block); the result (encrypted group, plain group).
        A sum to which nothing was added (all-zero plaintexts, which SEAL refuses) is all zeros.
        """
        evaluator, top = self.evaluator, self.context.first_parms_id()
        columns = len(raws) // blocks
        sums: list[list[Any]] = [[None] * (groups.stop - groups.start) for _ in range(columns)]
        for block in range(blocks):
            encrypted = [
                evaluator.transform_to_ntt(self.object(raws[column * blocks + block]))
                for column in range(columns)
            ]
            for at, row in enumerate(plains.block(block)[groups]):
                if not row.any():
                    continue
                plain = evaluator.transform_to_ntt(self.plaintext(self.residues(row)), top)
                for column, ciphertext in enumerate(encrypted):
                    term = evaluator.multiply_plain(ciphertext, plain)
                    if sums[column][at] is None:
                        sums[column][at] = term
                    else:
                        evaluator.add_inplace(sums[column][at], term)
        return [self._collected(term) for row in sums for term in row]

    def _collected(self, term: Any) -> Array:
        if term is None:
            return np.zeros((2, len(self.primes), DEGREE), dtype=np.uint64)
        self.evaluator.transform_from_ntt_inplace(term)
        return self.raw(term)


@lru_cache(maxsize=8)
def ring_of(params: Parameters) -> Ring:
    """The ring of a parameter set, made once a process."""
    return Ring(params)


def horner(digits: Array, prime: int) -> Array:
    """Σ digits · 2^(30 j) mod a prime below 2^60, most significant digit first.

    The quotient of a 90-bit number by the prime is below 2^31, so float64 gets it right to ±1;
    the remainder is exact because 64-bit integers wrap.
    """
    modulus = np.int64(prime)
    value = digits[0].astype(np.int64) % modulus
    for digit in digits[1:]:
        quotient = np.floor(value.astype(np.float64) * (2.0**WORD / prime)).astype(np.int64)
        value = ((value << np.int64(WORD)) + digit.astype(np.int64) - quotient * modulus) % modulus
    reduced: Array = value.astype(np.uint64)
    return reduced


def zero_ciphertexts(task: tuple[Parameters, bytes, int]) -> list[Array]:
    """Encryptions of zero under a public key, SEAL's randomness from the operating system."""
    params, public, count = task
    encryptor, ring = _encryptor(params, public), ring_of(params)
    return [ring.raw(encryptor.encrypt_zero()) for _ in range(count)]


@lru_cache(maxsize=8)
def _encryptor(params: Parameters, public: bytes) -> Any:
    ring = ring_of(params)
    return seal.Encryptor(ring.context, ring.context.from_public_str(ring.key_header + public))


def block_products(task: tuple[Parameters, Array, int, Plains, slice]) -> list[Array]:
    """:meth:`Ring.products` for one run of plain groups; runs in a worker process."""
    params, raws, blocks, plains, groups = task
    return ring_of(params).products(raws, blocks, plains, groups)


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
        seconds = count * SECONDS_AN_ENCRYPTION
        tasks = [
            (self._params, self._public, piece.stop - piece.start)
            for piece in pieces(count, seconds)
        ]
        return [raw for part in shared(zero_ciphertexts, tasks, seconds) for raw in part]
