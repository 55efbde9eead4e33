"""Hashing to Curve25519: suite curve25519_XMD:SHA-512_ELL2_RO_ of RFC 9380, sections 5.3.1 and
6.7.1.

Points are affine (x, y) on y² = x³ + 486662 x² + x over p = 2^255 − 19. Cofactor clearing is left
to X25519, whose clamped scalars are multiples of 8: X25519(8m, Q0 + Q1) = m · hash_to_curve(id).
This arithmetic is not constant-time; it handles the party's own ids on its own machine, and public
points. Secret scalars are only ever used by OpenSSL's X25519, which is constant-time.
"""

from __future__ import annotations

import hashlib

import gmpy2
from gmpy2 import mpz

P = mpz(2**255 - 19)
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the prime subgroup
POINT_BYTES = 32
_A = mpz(486662)
_ROOT_EXPONENT = (P + 3) // 8
_SQRT_MINUS_1 = gmpy2.powmod(2, (P - 1) // 4, P)
_FIELD_BYTES = 48  # L: 255 bits and 128 more, so that the reduction is not biased
_BLOCK = bytes(128)  # SHA-512 reads blocks of 128 bytes; Z_pad of section 5.3.1

Point = tuple[mpz, mpz]


def expand_message_xmd(message: bytes, dst: bytes, length: int) -> bytes:
    """Uniform bytes from a message and a domain separation tag, with SHA-512 (section 5.3.1)."""
    sha512 = hashlib.sha512
    tag = dst + bytes([len(dst)])
    start = sha512(_BLOCK + message + length.to_bytes(2, "big") + b"\0" + tag).digest()
    block = sha512(start + b"\1" + tag).digest()
    uniform = block
    for number in range(2, -(-length // 64) + 1):
        mixed = (int.from_bytes(start, "big") ^ int.from_bytes(block, "big")).to_bytes(64, "big")
        block = sha512(mixed + bytes([number]) + tag).digest()
        uniform += block
    return uniform[:length]


def hash_to_field(message: bytes, dst: bytes) -> tuple[mpz, mpz]:
    """Two field elements of a message (section 5.2)."""
    uniform = expand_message_xmd(message, dst, 2 * _FIELD_BYTES)
    first = mpz.from_bytes(uniform[:_FIELD_BYTES], "big")
    second = mpz.from_bytes(uniform[_FIELD_BYTES:], "big")
    return first % P, second % P


def map_to_curve(u: mpz) -> Point:
    """Elligator 2 (section 6.7.1), Z = 2."""
    x = -_A * gmpy2.invert(1 + 2 * u * u, P) % P
    square = _right_side(x)
    odd = gmpy2.legendre(square, P) >= 0
    if not odd:
        x = (-x - _A) % P
        square = _right_side(x)
    y = _square_root(square)
    # The sign is the record of which of the two candidates was taken: odd for the first.
    return x, (y if y.bit_test(0) == odd else P - y)


def add(first: Point, second: Point) -> Point:
    """The sum of two points that are not opposite (which two hashes are with chance 2^-250)."""
    x1, y1 = first
    x2, y2 = second
    if x1 == x2:
        slope = (3 * x1 * x1 + 2 * _A * x1 + 1) * gmpy2.invert(2 * y1, P)
    else:
        slope = (y2 - y1) * gmpy2.invert(x2 - x1, P)
    x = (slope * slope - _A - x1 - x2) % P
    return x, (slope * (x1 - x) - y1) % P


def hash_to_point(message: bytes, dst: bytes) -> bytes:
    """The x-coordinate of Q0 + Q1 as X25519 reads it; its cofactor is not yet cleared."""
    first, second = hash_to_field(message, dst)
    x, _ = add(map_to_curve(first), map_to_curve(second))
    return bytes(x.to_bytes(POINT_BYTES, "little"))


def fault_of(point: bytes) -> str | None:
    """Why these bytes are no usable point, or None; small order shows later, as a zero product."""
    x = mpz.from_bytes(point, "little")
    if x >= P:
        return "is not in canonical form"
    if gmpy2.legendre(_right_side(x), P) < 0:
        return "is not on the curve"
    return None


def _right_side(x: mpz) -> mpz:
    return x * (x * (x + _A) + 1) % P


def _square_root(square: mpz) -> mpz:
    """One root of a square; p = 5 mod 8, so the power is a root of it or of its negative."""
    root = gmpy2.powmod(square, _ROOT_EXPONENT, P)
    return root if root * root % P == square else root * _SQRT_MINUS_1 % P
