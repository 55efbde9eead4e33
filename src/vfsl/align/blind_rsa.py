"""Set intersection by blind RSA signatures (De Cristofaro & Tsudik 2010): only the client learns.

Holds    client: ids c. Server: ids s, an RSA key (n, e = 65537, d).
Flow     client → server  y = H(c)·r^e mod n, r fresh for every id          (blinded, in batches)
         server → client  y^d, in the same order
         server → client  tags H'(run ‖ parties ‖ F(s)), freshly shuffled, 16 bytes an id
         the client divides by r, has the signature σ = H(c)^d, checks it, and compares tags.
Learns   server: how many ids the client asked, nothing else: y is uniform whatever c is. Client:
         which of its ids the server has, and how many ids the server has.
Cost     one signature a client id and one a server id, both at the server; the client is cheap.

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

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import gmpy2
import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from gmpy2 import mpz

from vfsl.align.byterows import ByteRows, joined, rows_of
from vfsl.align.methods import VALUE_BYTES, BadElement, read_private_key, value_of
from vfsl.align.modular import (
    EXPONENT,
    MODULUS_BITS,
    Numbers,
    blinded,
    blinding_factors,
    bytes_of,
    check_elements,
    checked_modulus,
    hash_to_modulus,
    modulus_bits,
    modulus_width,
    numbers_of,
    powers_of,
    proof_challenges,
    random_unit,
    unblinded,
)
from vfsl.errors import ConfigError, CryptoError, StoreError
from vfsl.parallel import count_cores
from vfsl.store import write_bytes

NAME = "blind-rsa"
_METHOD = NAME.encode()
_CHUNK = 16  # elements in one task of a thread: at most 50 ms, so that cores end a batch together


class RsaKey:
    """A server's private key; the whole server side of the method."""

    name = NAME
    batch = 1024

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        numbers = key.private_numbers()
        least = min(MODULUS_BITS.values())
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

    @property
    def public(self) -> bytes:
        return bytes_of([self.modulus], self.width)

    def proof(self) -> bytes:
        return bytes_of(self.sign(proof_challenges(self.modulus)), self.width)

    def answer(self, elements: ByteRows) -> ByteRows:
        check_elements(numbers_of(elements), self.modulus)
        return in_threads(self._answer, self.width, elements)

    def values(self, digests: ByteRows) -> ByteRows:
        return in_threads(self._values, VALUE_BYTES, digests)

    def sign(self, elements: Numbers) -> Numbers:
        """Signatures of elements, made behind a fresh secret factor, each checked."""
        factor = random_unit(self.modulus)
        power = gmpy2.powmod(factor, EXPONENT, self.modulus)
        hidden = [element * power % self.modulus for element in elements]
        signed = self.sign_crt(hidden)
        if powers_of(signed, self.modulus) != hidden:
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
        return bytes_of(self.sign(numbers_of(elements)), self.width)

    def _values(self, digests: ByteRows) -> bytes:
        return _values_of(digests, self.sign(hash_to_modulus(digests, self.modulus)), self.width)


class RsaClient:
    """The client side for one public key, with blinding prepared ahead where there is a pool."""

    name = NAME
    batch = RsaKey.batch

    def __init__(
        self, public: bytes, proof: bytes, security: int = 128, pool: BlindingPool | None = None
    ) -> None:
        self.modulus = checked_modulus(public, proof, modulus_bits(security))
        self.width = len(public)
        if pool is not None and pool.modulus != self.modulus:
            raise ConfigError("The blinding pool was filled for another key than the server's.")
        self._pool = BlindingPool(public) if pool is None else pool

    def blind(self, digests: ByteRows) -> tuple[ByteRows, ByteRows]:
        powers, inverses = self._pool.take(len(digests))
        hashes = hash_to_modulus(digests, self.modulus)
        elements = blinded(hashes, numbers_of(powers), self.modulus)
        return rows_of(bytes_of(elements, self.width), self.width), inverses

    def values(self, digests: ByteRows, answers: ByteRows, secret: ByteRows) -> ByteRows:
        check_elements(numbers_of(answers), self.modulus)
        return in_threads(self._values, VALUE_BYTES, digests, answers, secret)

    def _values(self, digests: ByteRows, answers: ByteRows, inverses: ByteRows) -> bytes:
        signatures = unblinded(numbers_of(answers), numbers_of(inverses), self.modulus)
        if powers_of(signatures, self.modulus) != hash_to_modulus(digests, self.modulus):
            raise BadElement("sent a signature that its key did not make")
        return _values_of(digests, signatures, self.width)


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
        pairs = joined(taken, 2 * self._width)
        return pairs[:, : self._width], pairs[:, self._width :]

    def _make(self, count: int) -> ByteRows:
        numbers = np.arange(count, dtype=np.uint8).reshape(-1, 1)  # only their count matters
        return in_threads(self._factors, 2 * self._width, numbers)

    def _factors(self, numbers: ByteRows) -> bytes:
        powers, inverses = blinding_factors(len(numbers), self.modulus)
        pairs = zip(powers, inverses, strict=True)
        return b"".join([bytes_of(list(pair), self._width) for pair in pairs])


def in_threads(function: Callable[..., bytes], width: int, *blocks: ByteRows) -> ByteRows:
    """Apply a function to pieces of the blocks on all cores: gmpy2 lets go of the GIL for lists."""
    pieces = [
        tuple(block[start : start + _CHUNK] for block in blocks)
        for start in range(0, len(blocks[0]), _CHUNK)
    ]
    if len(pieces) < 2 or count_cores() == 1:
        return rows_of(b"".join([function(*piece) for piece in pieces]), width)
    done = _threads(count_cores()).map(lambda piece: function(*piece), pieces)
    return rows_of(b"".join(done), width)


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="vfsl blind-rsa")


def _values_of(digests: ByteRows, signatures: Numbers, width: int) -> bytes:
    pairs = zip(digests, signatures, strict=True)
    return b"".join(
        [value_of(_METHOD, row.tobytes(), number.to_bytes(width, "big")) for row, number in pairs]
    )
