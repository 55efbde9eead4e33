"""Numbers modulo an RSA modulus: full-domain hash, blinding factors, checks on what peers send."""

from __future__ import annotations

import hashlib
import secrets
from functools import cache
from typing import Any

import gmpy2
from gmpy2 import mpz

from vfsl.align.byterows import ByteRows, rows_of
from vfsl.align.methods import BadElement
from vfsl.errors import ConfigError

MODULUS_BITS = {128: 3072, 112: 2048}
EXPONENT = 65537
_PROOF_ROOTS = 8
_MAX_BITS = 16_384

Numbers = list[Any]  # of mpz


def modulus_bits(security: int) -> int:
    """The length of a modulus for a security level."""
    if security not in MODULUS_BITS:
        raise ConfigError(
            "The security parameter of blind-rsa must be 128 (3072 bits) or 112 (2048 bits). "
            f"Got {security!r} instead."
        )
    return MODULUS_BITS[security]


def numbers_of(rows: ByteRows) -> Numbers:
    """Big-endian rows as numbers."""
    read = mpz.from_bytes
    return [read(row.tobytes(), "big") for row in rows]


def bytes_of(numbers: Numbers, width: int) -> bytes:
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


def modulus_width(modulus: mpz) -> int:
    """Bytes of a number below the modulus."""
    return (int(modulus.bit_length()) + 7) // 8


def random_unit(modulus: mpz) -> mpz:
    """A secret uniform number that can be inverted."""
    while True:
        number = mpz(secrets.randbelow(int(modulus)))
        if gmpy2.gcd(number, modulus) == 1:
            return number


def inverses_of(numbers: Numbers, modulus: mpz) -> Numbers:
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


def blinding_factors(count: int, modulus: mpz) -> tuple[Numbers, Numbers]:
    """r^e and 1/r for fresh secret r."""
    factors = [mpz(secrets.randbelow(int(modulus) - 1) + 1) for _ in range(count)]
    # A factor that shares a divisor with n would factor it: inverting fails with chance 2^-1000.
    return powers_of(factors, modulus), inverses_of(factors, modulus)


def blinded(hashes: Numbers, powers: Numbers, modulus: mpz) -> Numbers:
    """y = H(c)·r^e."""
    return [h * power % modulus for h, power in zip(hashes, powers, strict=True)]


def unblinded(answers: Numbers, inverses: Numbers, modulus: mpz) -> Numbers:
    """σ = y^d / r."""
    return [answer * inverse % modulus for answer, inverse in zip(answers, inverses, strict=True)]


def powers_of(numbers: Numbers, modulus: mpz) -> Numbers:
    """number^e; releases the GIL."""
    result: Numbers = gmpy2.powmod_base_list(numbers, EXPONENT, modulus)
    return result


def check_elements(numbers: Numbers, modulus: mpz) -> None:
    """Refuse what is no unit modulo n; one gcd over the product serves all."""
    product = mpz(1)
    for number in numbers:
        if not 0 < number < modulus:
            raise BadElement("sent a number that is not between 1 and the modulus")
        product = product * number % modulus
    if gmpy2.gcd(product, modulus) != 1:
        raise BadElement("sent a number that shares a factor with the modulus")


def proof_challenges(modulus: mpz) -> Numbers:
    """Hashed numbers whose e-th roots a server shows."""
    counters = b"".join([number.to_bytes(4, "big") for number in range(_PROOF_ROOTS)])
    return hash_to_modulus(rows_of(counters, 4), modulus, b"key proof")


def checked_modulus(public: bytes, proof: bytes, least_bits: int) -> mpz:
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
    if len(proof) != _PROOF_ROOTS * width or powers_of(roots, modulus) != proof_challenges(modulus):
        raise BadElement("sent a key without a valid proof that it hides what is blinded under it")
    return modulus


@cache
def _small_primes() -> mpz:
    return gmpy2.primorial(EXPONENT)
