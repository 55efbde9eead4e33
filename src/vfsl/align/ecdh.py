"""Set intersection by Diffie–Hellman on Curve25519, one-sided: only the client learns.

Holds    client: ids c, a fresh scalar a a run. Server: ids s, its key b.
Flow     client → server  a·H(c)                          (blinded, in batches)
         server → client  b·a·H(c), in the same order
         server → client  tags H'(run ‖ parties ‖ b·H(s)), freshly shuffled, 16 bytes an id
         the client multiplies by 1/a, has b·H(c), and compares tags.
Learns   server: how many ids the client asked. Client: which of its ids the server has, and how
         many ids the server has. The points b·H(s) themselves are never sent: under a kept key they
         would be the same in every run and link two runs.
Cost     two multiplications a client id at the client, one at the server, one a server id.

H is hash_to_curve of RFC 9380 (curve.py); multiplication is OpenSSL's X25519, constant-time. Only
x-coordinates are used: a point and its opposite count as one, which costs the hash one bit.
Points off the curve (on its twist), of small order, or not in canonical form are refused; clamped
scalars are multiples of 8, so a small-order part of an otherwise good point vanishes.
A server that does not apply b to every point spoils the result unnoticed; with blind RSA the client
would notice. Malicious servers are out of scope in both.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from vfsl.align.byterows import ByteRows, rows_of
from vfsl.align.curve import ORDER, POINT_BYTES, fault_of, hash_to_point
from vfsl.align.ids import DIGEST_BYTES
from vfsl.align.methods import VALUE_BYTES, BadElement, read_private_key, value_of
from vfsl.errors import ConfigError, StoreError
from vfsl.parallel import spread
from vfsl.store import write_bytes

NAME = "ecdh"
_DST = b"VFSL-PSI-V01-CS01-with-curve25519_XMD:SHA-512_ELL2_RO_"
_CHUNK = 1024  # points in one task of a worker: some 50 ms
_METHOD = NAME.encode()


class CurveKey:
    """A server's scalar; the whole server side of the method."""

    name = NAME
    batch = 16_384
    width = POINT_BYTES

    def __init__(self, scalar: bytes) -> None:
        self._scalar = scalar

    @classmethod
    def generate(cls, security: int = 128) -> CurveKey:
        if security not in (112, 128):
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
        write_bytes(path, _private(self._scalar).private_bytes(*_PEM))

    @property
    def public(self) -> bytes:
        return _private(self._scalar).public_key().public_bytes_raw()

    def proof(self) -> bytes:
        return b""  # any scalar hides: blinding happens in a group of prime order

    def answer(self, elements: ByteRows) -> ByteRows:
        return _in_chunks(partial(multiply, self._scalar), elements, POINT_BYTES)

    def values(self, digests: ByteRows) -> ByteRows:
        return _in_chunks(partial(own_values, self._scalar), digests, VALUE_BYTES)


class CurveClient:
    """The client side of one run: its scalar and the inverse of it."""

    name = NAME
    batch = CurveKey.batch
    width = POINT_BYTES

    def __init__(self, public: bytes, proof: bytes = b"", security: int = 128) -> None:
        if len(public) != POINT_BYTES or proof or fault_of(public) is not None:
            raise BadElement("sent a key that is not a point of the curve")
        self._scalar, self._inverse = blinding_pair()

    def blind(self, digests: ByteRows) -> tuple[ByteRows, Any]:
        return _in_chunks(partial(hash_and_multiply, self._scalar), digests, POINT_BYTES), None

    def values(self, digests: ByteRows, answers: ByteRows, secret: Any) -> ByteRows:
        return _in_chunks(partial(unblinded_values, self._inverse), digests, VALUE_BYTES, answers)


def blinding_pair() -> tuple[bytes, bytes]:
    """A random scalar and its inverse modulo the group order, both in the clamped form of X25519.

    Clamped scalars 2^254 + 8·[0, 2^251) cover half of all residues, so two draws are needed on
    average.
    """
    while True:
        scalar = clamp(secrets.token_bytes(POINT_BYTES))
        inverse = clamped_inverse(scalar)
        if inverse is not None:
            return scalar, inverse


def clamp(scalar: bytes) -> bytes:
    """The scalar that X25519 really uses (RFC 7748, section 5)."""
    return bytes([scalar[0] & 248]) + scalar[1:31] + bytes([scalar[31] & 127 | 64])


def clamped_inverse(scalar: bytes) -> bytes | None:
    """1/scalar modulo the group order as a clamped scalar, or None where there is none."""
    inverse = pow(int.from_bytes(scalar, "little"), -1, ORDER)
    # Wanted: 8m with m = inverse/8 modulo the order and 2^251 <= m < 2^252.
    eighth = inverse * pow(8, -1, ORDER) % ORDER
    return (8 * eighth).to_bytes(POINT_BYTES, "little") if 2**251 <= eighth < 2**252 else None


# The tasks of the workers: pure functions of a scalar and rows of bytes joined into one.


def hash_and_multiply(scalar: bytes, digests: bytes) -> bytes:
    """scalar · H(id) for each id."""
    times, read = _private(scalar).exchange, X25519PublicKey.from_public_bytes
    return b"".join(
        [times(read(hash_to_point(digest, _DST))) for digest in _split(digests, DIGEST_BYTES)]
    )


def multiply(scalar: bytes, points: bytes) -> bytes:
    """scalar · point for each point that a peer sent; BadElement for the first bad one."""
    times, read = _private(scalar).exchange, X25519PublicKey.from_public_bytes
    products = []
    for point in _split(points, POINT_BYTES):
        fault = fault_of(point)
        if fault is not None:
            raise BadElement(f"sent a point that {fault}")
        try:
            products.append(times(read(point)))
        except ValueError:
            raise BadElement("sent a point of small order") from None
    return b"".join(products)


def own_values(scalar: bytes, digests: bytes) -> bytes:
    """F_k of the server's own ids."""
    return _hashed(digests, hash_and_multiply(scalar, digests))


def unblinded_values(inverse: bytes, digests: bytes, answers: bytes) -> bytes:
    """F_k of the client's ids from the server's answers."""
    return _hashed(digests, multiply(inverse, answers))


def _hashed(digests: bytes, points: bytes) -> bytes:
    pairs = zip(_split(digests, DIGEST_BYTES), _split(points, POINT_BYTES), strict=True)
    return b"".join([value_of(_METHOD, digest, point) for digest, point in pairs])


def _in_chunks(
    function: Callable[..., bytes], rows: ByteRows, width: int, *more: ByteRows
) -> ByteRows:
    """Apply a task to all rows; by processes where it pays, as OpenSSL works with the GIL held."""
    tasks = (
        tuple(block[start : start + _CHUNK].tobytes() for block in (rows, *more))
        for start in range(0, len(rows), _CHUNK)
    )
    workers = 1 if len(rows) <= 2 * _CHUNK else None
    return rows_of(b"".join(spread(partial(_call, function), tasks, workers=workers)), width)


def _call(function: Callable[..., bytes], task: tuple[bytes, ...]) -> bytes:
    return function(*task)


def _split(data: bytes, width: int) -> list[bytes]:
    return [data[start : start + width] for start in range(0, len(data), width)]


def _private(scalar: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(scalar)


_PEM = (
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)
