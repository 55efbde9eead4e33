"""Set intersection by Diffie–Hellman on Curve25519, one-sided: only the client learns.

Holds    client: ids c, a scalar a, fresh for every intersection. Server: ids s, its key b.
Flow     client → server  a·H(c)                          (blinded, in batches)
         server → client  b·a·H(c), in the same order
         server → client  tags H'(nonces ‖ parties ‖ b·H(s)), freshly shuffled, 16 bytes per id
         the client multiplies by 1/a, has b·H(c), and compares tags.
Learns   server: how many ids the client asked about. Client: which of its ids the server has, and
         how many ids the server has. The points b·H(s) themselves are never sent: under a kept key
         they would be the same every time and link two intersections.
Cost     two multiplications per client id at the client and one at the server; one per server id.

H is hash_to_curve of RFC 9380 (below); multiplication is OpenSSL's X25519, constant-time. Only
x-coordinates are used: a point and its opposite count as one, which costs the hash one bit.
Points off the curve (on its twist), of small order, or not in canonical form are refused; clamped
scalars are multiples of 8, so a small-order part of an otherwise good point vanishes.
A server that does not apply b to every point spoils the result unnoticed; with blind RSA the client
would notice. Malicious servers are out of scope in both.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gmpy2
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from gmpy2 import mpz

from vfsl.align.ids import DIGEST_BYTES, ByteRows, to_rows
from vfsl.align.psi import BadElement, PsiProtocol, hash_element, read_private_key
from vfsl.align.state import VALUE_BYTES
from vfsl.errors import ConfigError, StoreError
from vfsl.parallel import spread
from vfsl.store import write_bytes

POINT_BYTES = 32
_NAME = "ecdh"
_SECURITY = (128, 112)
_DST = b"VFSL-PSI-V01-CS01-with-curve25519_XMD:SHA-512_ELL2_RO_"
_CHUNK = 1024  # points in one task of a worker: some 50 ms
_PEM = (
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)


class CurveKey:
    """A server's scalar; the whole server side of the protocol."""

    name = _NAME
    batch = 16_384
    width = POINT_BYTES

    def __init__(self, scalar: bytes) -> None:
        self._scalar = scalar

    @classmethod
    def generate(cls, security: int = 128) -> CurveKey:
        if security not in _SECURITY:
            raise ConfigError(
                "The security parameter of an ecdh key must be 128 or 112. "
                f"Got {security!r} instead."
            )
        return cls(secrets.token_bytes(POINT_BYTES))

    @classmethod
    def load(cls, path: Path) -> CurveKey:
        key = read_private_key(path)
        if not isinstance(key, X25519PrivateKey):
            raise StoreError(f"{path} holds another kind of key than ecdh needs.")
        return cls(key.private_bytes_raw())

    def save(self, path: Path) -> None:
        write_bytes(path, _private_key(self._scalar).private_bytes(*_PEM))

    def check_security(self, security: int) -> None:
        """Every key has the security of the curve."""

    @property
    def public(self) -> bytes:
        return _private_key(self._scalar).public_key().public_bytes_raw()

    def proof(self) -> bytes:
        return b""  # any scalar hides: blinding happens in a group of prime order

    def answer(self, elements: ByteRows) -> ByteRows:
        return _spread_rows(partial(multiply, self._scalar), POINT_BYTES, elements)

    def values(self, digests: ByteRows) -> ByteRows:
        return _spread_rows(partial(compute_own_values, self._scalar), VALUE_BYTES, digests)


class CurveClient:
    """The client's side of one intersection: its scalar and the inverse of it."""

    batch = CurveKey.batch
    width = POINT_BYTES

    def __init__(
        self, public: bytes, proof: bytes = b"", security: int = 128, pool: Any = None
    ) -> None:
        if len(public) != POINT_BYTES or proof or find_fault(public) is not None:
            raise BadElement("sent a key that is not a point of the curve")
        self._scalar, self._inverse = draw_blinding_pair()

    def blind(self, digests: ByteRows) -> tuple[ByteRows, Any]:
        return _spread_rows(partial(hash_and_multiply, self._scalar), POINT_BYTES, digests), None

    def values(self, digests: ByteRows, answers: ByteRows, secret: Any) -> ByteRows:
        return _spread_rows(
            partial(compute_asked_values, self._inverse), VALUE_BYTES, digests, answers
        )


ECDH = PsiProtocol(
    _NAME,
    "Diffie–Hellman on an elliptic curve",
    CurveKey,
    CurveClient,
    security=_SECURITY,
    ids_per_second=dict.fromkeys(_SECURITY, 12_000),  # `vfsl bench run psi`
)


# ---- the tasks of workers: pure functions of a scalar and rows of bytes joined into one --------


def hash_and_multiply(scalar: bytes, digests: bytes) -> bytes:
    """scalar · H(id) for each id."""
    times, read = _private_key(scalar).exchange, X25519PublicKey.from_public_bytes
    return b"".join(
        [times(read(hash_to_point(digest, _DST))) for digest in _split(digests, DIGEST_BYTES)]
    )


def multiply(scalar: bytes, points: bytes) -> bytes:
    """scalar · point for each point that a peer sent; BadElement for the first bad one."""
    times, read = _private_key(scalar).exchange, X25519PublicKey.from_public_bytes
    products = []
    for point in _split(points, POINT_BYTES):
        fault = find_fault(point)
        if fault is not None:
            raise BadElement(f"sent a point that {fault}")
        try:
            products.append(times(read(point)))
        except ValueError:
            raise BadElement("sent a point of small order") from None
    return b"".join(products)


def compute_own_values(scalar: bytes, digests: bytes) -> bytes:
    """F_k of the server's own ids."""
    return _hash_points(digests, hash_and_multiply(scalar, digests))


def compute_asked_values(inverse: bytes, digests: bytes, answers: bytes) -> bytes:
    """F_k of the client's ids from the server's answers."""
    return _hash_points(digests, multiply(inverse, answers))


def _hash_points(digests: bytes, points: bytes) -> bytes:
    pairs = zip(_split(digests, DIGEST_BYTES), _split(points, POINT_BYTES), strict=True)
    return b"".join([hash_element(_NAME.encode(), digest, point) for digest, point in pairs])


def _spread_rows(function: Callable[..., bytes], width: int, *blocks: ByteRows) -> ByteRows:
    """Apply a task to all rows; by processes where it pays, as OpenSSL works with the GIL held."""
    count = len(blocks[0])
    tasks = (
        tuple(block[start : start + _CHUNK].tobytes() for block in blocks)
        for start in range(0, count, _CHUNK)
    )
    workers = 1 if count <= 2 * _CHUNK else None
    return to_rows(b"".join(spread(partial(_call, function), tasks, workers=workers)), width)


def _call(function: Callable[..., bytes], task: tuple[bytes, ...]) -> bytes:
    return function(*task)


def _split(data: bytes, width: int) -> list[bytes]:
    return [data[start : start + width] for start in range(0, len(data), width)]


def _private_key(scalar: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(scalar)


# ---- scalars --------------------------------------------------------------------------------


def draw_blinding_pair() -> tuple[bytes, bytes]:
    """A random scalar and its inverse modulo the group order, both in the clamped form of X25519.

    Clamped scalars 2^254 + 8·[0, 2^251) cover half of all residues, so two draws are needed on
    average.
    """
    while True:
        scalar = clamp(secrets.token_bytes(POINT_BYTES))
        inverse = invert_clamped(scalar)
        if inverse is not None:
            return scalar, inverse


def clamp(scalar: bytes) -> bytes:
    """The scalar that X25519 really uses (RFC 7748, section 5)."""
    return bytes([scalar[0] & 248]) + scalar[1:31] + bytes([scalar[31] & 127 | 64])


def invert_clamped(scalar: bytes) -> bytes | None:
    """1/scalar modulo the group order as a clamped scalar, or None where there is none."""
    inverse = pow(int.from_bytes(scalar, "little"), -1, _ORDER)
    # Wanted: 8m with m = inverse/8 modulo the order and 2^251 <= m < 2^252.
    eighth = inverse * pow(8, -1, _ORDER) % _ORDER
    return (8 * eighth).to_bytes(POINT_BYTES, "little") if 2**251 <= eighth < 2**252 else None


# ---- hashing to the curve -------------------------------------------------------------------
#
# Suite curve25519_XMD:SHA-512_ELL2_RO_ of RFC 9380, sections 5.3.1 and 6.7.1. Points are affine
# (x, y) on y² = x³ + 486662 x² + x over p = 2^255 − 19. Cofactor clearing is left to X25519, whose
# clamped scalars are multiples of 8: X25519(8m, Q0 + Q1) = m · hash_to_curve(id).
# This arithmetic is not constant-time; it handles the party's own ids on its own machine and public
# points. Secret scalars are only ever used by OpenSSL's X25519, which is constant-time.

_P = mpz(2**255 - 19)
_ORDER = 2**252 + 27742317777372353535851937790883648493  # of the prime subgroup
_A = mpz(486662)
_ROOT_EXPONENT = (_P + 3) // 8
_SQRT_MINUS_1 = gmpy2.powmod(2, (_P - 1) // 4, _P)
_FIELD_BYTES = 48  # L: 255 bits and 128 more, so that the reduction is not biased
_BLOCK = bytes(128)  # SHA-512 reads blocks of 128 bytes; Z_pad of section 5.3.1

Point = tuple[mpz, mpz]


def hash_to_point(message: bytes, dst: bytes) -> bytes:
    """The x-coordinate of Q0 + Q1 as X25519 reads it; its cofactor is not yet cleared."""
    first, second = hash_to_field(message, dst)
    x, _ = add(map_to_curve(first), map_to_curve(second))
    return bytes(x.to_bytes(POINT_BYTES, "little"))


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
    return first % _P, second % _P


def map_to_curve(u: mpz) -> Point:
    """Elligator 2 (section 6.7.1), Z = 2."""
    x = -_A * gmpy2.invert(1 + 2 * u * u, _P) % _P
    square = _right_side(x)
    odd = gmpy2.legendre(square, _P) >= 0
    if not odd:
        x = (-x - _A) % _P
        square = _right_side(x)
    y = _square_root(square)
    # The sign is the record of which of the two candidates was taken: odd for the first.
    return x, (y if y.bit_test(0) == odd else _P - y)


def add(first: Point, second: Point) -> Point:
    """The sum of two points that are not opposite (which two hashes are with chance 2^-250)."""
    x1, y1 = first
    x2, y2 = second
    if x1 == x2:
        slope = (3 * x1 * x1 + 2 * _A * x1 + 1) * gmpy2.invert(2 * y1, _P)
    else:
        slope = (y2 - y1) * gmpy2.invert(x2 - x1, _P)
    x = (slope * slope - _A - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def find_fault(point: bytes) -> str | None:
    """Why these bytes are no usable point, or None; small order shows later, as a zero product."""
    x = mpz.from_bytes(point, "little")
    if x >= _P:
        return "is not in canonical form"
    if gmpy2.legendre(_right_side(x), _P) < 0:
        return "is not on the curve"
    return None


def _right_side(x: mpz) -> mpz:
    return x * (x * (x + _A) + 1) % _P


def _square_root(square: mpz) -> mpz:
    """One root of a square; p = 5 mod 8, so the power is a root of it or of its negative."""
    root = gmpy2.powmod(square, _ROOT_EXPONENT, _P)
    return root if root * root % _P == square else root * _SQRT_MINUS_1 % _P
