"""Set intersection by blind RSA signatures (De Cristofaro and Tsudik 2010): only the client learns.

Holds    client: ids c. Server: ids s, an RSA key (n, e = 65537, d).
Flow     client → server  y = H(c)·r^e mod n, r fresh for every id          (blinded, in batches)
         server → client  y^d, in the same order
         server → client  tags H'(nonces ‖ parties ‖ F(s)), freshly shuffled, 16 bytes per id
         the client divides by r, has the signature σ = H(c)^d, checks it, and compares tags.
Learns   server: how many ids the client asked about, nothing else: y is uniform whatever c is.
         Client: which of its ids the server has, and how many ids the server has.
Cost     one signature per client id and one per server id, both at the server; the client is cheap.

H        full-domain hash: SHAKE256("…" ‖ SHA-256(n) ‖ id digest) of |n| + 128 bits, modulo n.
F        SHA-256 over the signature: what is compared, kept and cached is 32 bytes, not 384.
Faults   A CRT signature with one wrong half reveals a factor of n, so each is checked (σ^e = y)
         before it leaves. Timing: y is multiplied by a secret s^e first, so that no client chooses
         what the private exponent works on.
Key      If e divided φ(n), r^e would not cover all residues and y would say something about c. The
         server therefore shows e-th roots of eight hashed numbers (Goldberg, Reyzin, Sagga and
         Baldimtsi 2019): under such a key each has one with chance 1/e, all eight with 2^-128; and
         the client checks that n has no small factor.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import gmpy2
import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from gmpy2 import mpz

from vfsl.align.ids import ByteRows, join_rows, to_rows
from vfsl.align.psi import BadElement, PsiProtocol, hash_element, read_private_key
from vfsl.align.state import VALUE_BYTES
from vfsl.errors import ConfigError, CryptoError, StoreError
from vfsl.parallel import count_cores
from vfsl.store import write_bytes

EXPONENT = 65537
_NAME = "blind-rsa"
_MODULUS_BITS = {128: 3072, 112: 2048}
_MAX_BITS = 16_384
_PROOF_ROOTS = 8
_CHUNK = 16  # elements at once in a thread: at most 50 ms, so that cores end a batch together

Numbers = list[Any]  # of mpz


class RsaKey:
    """A server's private key; the whole server side of the protocol."""

    name = _NAME
    batch = 1024

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        numbers = key.private_numbers()
        least = min(_MODULUS_BITS.values())
        if numbers.public_numbers.e != EXPONENT or key.key_size < least:
            raise ConfigError(
                f"A blind-rsa key must have e = {EXPONENT} and at least {least} bits. "
                f"Got e = {numbers.public_numbers.e} and {key.key_size} bits instead."
            )
        self._key = key
        self._p, self._q = mpz(numbers.p), mpz(numbers.q)
        self._dp, self._dq = mpz(numbers.dmp1), mpz(numbers.dmq1)
        self._q_inverse = mpz(numbers.iqmp)
        self.modulus = self._p * self._q
        self.width = modulus_width(self.modulus)

    @classmethod
    def generate(cls, security: int = 128) -> RsaKey:
        return cls(rsa.generate_private_key(EXPONENT, modulus_bits(security)))

    @classmethod
    def load(cls, path: Path) -> RsaKey:
        key = read_private_key(path)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise StoreError(f"{path} holds another kind of key than blind-rsa needs.")
        return cls(key)

    def save(self, path: Path) -> None:
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        write_bytes(path, self._key.private_bytes(*form, serialization.NoEncryption()))

    def check_security(self, security: int) -> None:
        if 8 * self.width < modulus_bits(security):
            raise ConfigError(
                f"The server's blind-rsa key has {8 * self.width} bits, but security "
                f"{security} needs {modulus_bits(security)}; give another key or choose "
                "security=112."
            )

    @property
    def public(self) -> bytes:
        return to_bytes([self.modulus], self.width)

    def proof(self) -> bytes:
        return to_bytes(self.sign(make_challenges(self.modulus)), self.width)

    def answer(self, elements: ByteRows) -> ByteRows:
        check_elements(to_numbers(elements), self.modulus)
        return in_threads(self._answer, self.width, elements)

    def values(self, digests: ByteRows) -> ByteRows:
        return in_threads(self._values, VALUE_BYTES, digests)

    def sign(self, elements: Numbers) -> Numbers:
        """Signatures of elements, made behind a fresh secret factor, each checked."""
        factor = draw_unit(self.modulus)
        power = gmpy2.powmod(factor, EXPONENT, self.modulus)
        hidden = [element * power % self.modulus for element in elements]
        signed = self.sign_crt(hidden)
        if raise_to_e(signed, self.modulus) != hidden:
            raise CryptoError(
                "A signature of this party's own key came out wrong, which points to faulty "
                "hardware; it was not sent."
            )
        inverse = gmpy2.invert(factor, self.modulus)
        return [signature * inverse % self.modulus for signature in signed]

    def sign_crt(self, elements: Numbers) -> Numbers:
        """element^d mod n by the Chinese remainder theorem; not checked; releases the GIL."""
        p, q = self._p, self._q
        halves_p = gmpy2.powmod_base_list([element % p for element in elements], self._dp, p)
        halves_q = gmpy2.powmod_base_list([element % q for element in elements], self._dq, q)
        return [
            b + q * ((a - b) * self._q_inverse % p) for a, b in zip(halves_p, halves_q, strict=True)
        ]

    def _answer(self, elements: ByteRows) -> bytes:
        return to_bytes(self.sign(to_numbers(elements)), self.width)

    def _values(self, digests: ByteRows) -> bytes:
        signatures = self.sign(hash_to_modulus(digests, self.modulus))
        return _hash_signatures(digests, signatures, self.width)


class RsaClient:
    """The client's side for one public key, with blinding prepared ahead where there is a pool."""

    batch = RsaKey.batch

    def __init__(
        self, public: bytes, proof: bytes, security: int = 128, pool: BlindingPool | None = None
    ) -> None:
        self.modulus = check_modulus(public, proof, modulus_bits(security))
        self.width = len(public)
        if pool is not None and pool.modulus != self.modulus:
            raise ConfigError("The blinding pool was filled for another key than the server's.")
        self._pool = BlindingPool(public) if pool is None else pool

    def blind(self, digests: ByteRows) -> tuple[ByteRows, ByteRows]:
        powers, inverses = self._pool.take(len(digests))
        hashes = hash_to_modulus(digests, self.modulus)
        elements = multiply_pairs(hashes, to_numbers(powers), self.modulus)  # y = H(c)·r^e
        return to_rows(to_bytes(elements, self.width), self.width), inverses

    def values(self, digests: ByteRows, answers: ByteRows, secret: ByteRows) -> ByteRows:
        check_elements(to_numbers(answers), self.modulus)
        return in_threads(self._values, VALUE_BYTES, digests, answers, secret)

    def _values(self, digests: ByteRows, answers: ByteRows, inverses: ByteRows) -> bytes:
        signatures = multiply_pairs(to_numbers(answers), to_numbers(inverses), self.modulus)
        if raise_to_e(signatures, self.modulus) != hash_to_modulus(digests, self.modulus):
            raise BadElement("sent a signature that its key did not make")
        return _hash_signatures(digests, signatures, self.width)


class BlindingPool:
    """Blinding factors for one server key, made ahead of time; each is used once and never stored.

    Parameters
    ----------
    public : bytes
        The server's public key, known from an earlier run.
    """

    def __init__(self, public: bytes) -> None:
        self.modulus = mpz.from_bytes(public, "big")
        self._width = len(public)
        self._lock = threading.Lock()
        self._ready: list[ByteRows] = []

    def __len__(self) -> int:
        return sum(len(block) for block in self._ready)

    def fill(self, count: int) -> None:
        """Make ``count`` further factors, on all cores."""
        made = self._make(count)
        with self._lock:
            self._ready.append(made)

    def take(self, count: int) -> tuple[ByteRows, ByteRows]:
        """r^e and 1/r of ``count`` factors; those that are not ready are made now."""
        taken: list[ByteRows] = []
        with self._lock:
            missing = count
            while missing and self._ready:
                block = self._ready.pop()
                if len(block) > missing:
                    self._ready.append(block[missing:])
                taken.append(block[:missing])
                missing -= len(taken[-1])
        if missing:
            taken.append(self._make(missing))
        pairs = join_rows(taken, 2 * self._width)
        return pairs[:, : self._width], pairs[:, self._width :]

    def _make(self, count: int) -> ByteRows:
        numbers = np.arange(count, dtype=np.uint8).reshape(-1, 1)  # only their count matters
        return in_threads(self._draw_chunk, 2 * self._width, numbers)

    def _draw_chunk(self, numbers: ByteRows) -> bytes:
        powers, inverses = draw_blinding_factors(len(numbers), self.modulus)
        pairs = zip(powers, inverses, strict=True)
        return b"".join([to_bytes(list(pair), self._width) for pair in pairs])


BLIND_RSA = PsiProtocol(
    _NAME,
    "blind RSA signatures",
    RsaKey,
    RsaClient,
    security=tuple(_MODULUS_BITS),
    ids_per_second={128: 615, 112: 1_770},  # `vfsl bench run psi`, docs/benchmarks/psi.md
)


def in_threads(function: Callable[..., bytes], width: int, *blocks: ByteRows) -> ByteRows:
    """Apply a function to chunks of the blocks on all cores: gmpy2 lets go of the GIL for lists."""
    chunks = [
        tuple(block[start : start + _CHUNK] for block in blocks)
        for start in range(0, len(blocks[0]), _CHUNK)
    ]
    if len(chunks) < 2 or count_cores() == 1:
        return to_rows(b"".join([function(*chunk) for chunk in chunks]), width)
    done = _threads(count_cores()).map(lambda chunk: function(*chunk), chunks)
    return to_rows(b"".join(done), width)


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="vfsl blind-rsa")


def _hash_signatures(digests: ByteRows, signatures: Numbers, width: int) -> bytes:
    """F of each id."""
    name, pairs = _NAME.encode(), zip(digests, signatures, strict=True)
    return b"".join(
        [hash_element(name, row.tobytes(), number.to_bytes(width, "big")) for row, number in pairs]
    )


# ---- numbers modulo n -----------------------------------------------------------------------


def modulus_bits(security: int) -> int:
    """The length of a modulus for a security level."""
    if security not in _MODULUS_BITS:
        raise ConfigError(
            "The security parameter of blind-rsa must be 128 (3072 bits) or 112 (2048 bits). "
            f"Got {security!r} instead."
        )
    return _MODULUS_BITS[security]


def modulus_width(modulus: mpz) -> int:
    """How many bytes a number below the modulus takes."""
    return (int(modulus.bit_length()) + 7) // 8


def to_numbers(rows: ByteRows) -> Numbers:
    """Big-endian rows as numbers."""
    read = mpz.from_bytes
    return [read(row.tobytes(), "big") for row in rows]


def to_bytes(numbers: Numbers, width: int) -> bytes:
    """Numbers as big-endian bytes, one after the other."""
    return b"".join([number.to_bytes(width, "big") for number in numbers])


def hash_to_modulus(digests: ByteRows, modulus: mpz, purpose: bytes = b"id") -> Numbers:
    """The full-domain hash H: SHAKE256, 128 bits more than the modulus to favour no residue."""
    width = modulus_width(modulus)
    key = hashlib.sha256(modulus.to_bytes(width, "big")).digest()
    prefix = b"vfsl-psi-fdh-v1" + len(purpose).to_bytes(1, "big") + purpose + key
    shake, read = hashlib.shake_256, mpz.from_bytes
    return [
        read(shake(prefix + row.tobytes()).digest(width + 16), "big") % modulus for row in digests
    ]


def multiply_pairs(first: Numbers, second: Numbers, modulus: mpz) -> Numbers:
    """Products element by element: by r^e this blinds, by 1/r it removes the blinding."""
    return [one * two % modulus for one, two in zip(first, second, strict=True)]


def raise_to_e(numbers: Numbers, modulus: mpz) -> Numbers:
    """number^e; releases the GIL."""
    result: Numbers = gmpy2.powmod_base_list(numbers, EXPONENT, modulus)
    return result


def invert_all(numbers: Numbers, modulus: mpz) -> Numbers:
    """All inverses for the price of one and three products each (Montgomery's trick)."""
    products = [mpz(1)]
    for number in numbers:
        products.append(products[-1] * number % modulus)
    rest = gmpy2.invert(products[-1], modulus)
    inverses = []
    for number, before in zip(reversed(numbers), reversed(products[:-1]), strict=True):
        inverses.append(rest * before % modulus)
        rest = rest * number % modulus
    return inverses[::-1]


def draw_unit(modulus: mpz) -> mpz:
    """A secret uniform number that can be inverted."""
    while True:
        number = mpz(secrets.randbelow(int(modulus)))
        if gmpy2.gcd(number, modulus) == 1:
            return number


def draw_blinding_factors(count: int, modulus: mpz) -> tuple[Numbers, Numbers]:
    """r^e and 1/r for fresh secret r."""
    factors = [mpz(secrets.randbelow(int(modulus) - 1) + 1) for _ in range(count)]
    # A factor that shares a divisor with n would factor it: inverting fails with chance 2^-1000.
    return raise_to_e(factors, modulus), invert_all(factors, modulus)


def make_challenges(modulus: mpz) -> Numbers:
    """Hashed numbers whose e-th roots a server shows."""
    counters = b"".join([number.to_bytes(4, "big") for number in range(_PROOF_ROOTS)])
    return hash_to_modulus(to_rows(counters, 4), modulus, b"key proof")


def check_elements(numbers: Numbers, modulus: mpz) -> None:
    """Refuse what is no unit modulo n; one gcd over the product serves all."""
    product = mpz(1)
    for number in numbers:
        if not 0 < number < modulus:
            raise BadElement("sent a number that is not between 1 and the modulus")
        product = product * number % modulus
    if gmpy2.gcd(product, modulus) != 1:
        raise BadElement("sent a number that shares a factor with the modulus")


def check_modulus(public: bytes, proof: bytes, least_bits: int) -> mpz:
    """The modulus of a server's key, once it is long enough and shown to hide what it blinds."""
    modulus = mpz.from_bytes(public, "big")
    bits = int(modulus.bit_length())
    if not least_bits <= bits <= _MAX_BITS or modulus_width(modulus) != len(public):
        raise BadElement(f"sent a key of {bits} bits, where at least {least_bits} were expected")
    if gmpy2.gcd(modulus, _small_primes()) != 1:
        raise BadElement("sent a key whose modulus has a small factor")
    width = len(public)
    roots = [
        mpz.from_bytes(proof[start : start + width], "big") for start in range(0, len(proof), width)
    ]
    if len(proof) != _PROOF_ROOTS * width or raise_to_e(roots, modulus) != make_challenges(modulus):
        raise BadElement("sent a key without a valid proof that it hides what is blinded under it")
    return modulus


@cache
def _small_primes() -> mpz:
    return gmpy2.primorial(EXPONENT)
