"""What blind RSA and ECDH have in common: a keyed function that the client evaluates blindly.

The server holds a key k, and F_k(id) can be computed with k only. The client blinds its ids, the
server applies k, the client unblinds and has F_k of its own ids; the server learns their number.
Both hash F_k together with the run and the two parties into tags of 128 bits. Equal ids give
equal tags; a tag of an id that the client did not ask about is a random number to it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Protocol, Self

from cryptography.hazmat.primitives import serialization

from vfsl.align.byterows import ByteRows, mapped
from vfsl.errors import StoreError

VALUE_BYTES = 32
TAG_BYTES = 16


class BadElement(Exception):
    """What a peer sent is not an element that the method may work on; the text says why."""


class ServerMethod(Protocol):
    """The key holder's side; also the key itself, so it can be kept between runs."""

    name: str
    batch: int  # ids in one message
    width: int  # bytes of an element on the wire

    @classmethod
    def generate(cls, security: int = 128) -> Self:
        """A new key."""
        ...

    @classmethod
    def load(cls, path: Path) -> Self:
        """The key of a file that :meth:`save` wrote."""
        ...

    def save(self, path: Path) -> None:
        """Write the key to a file that only its owner may read."""

    @property
    def public(self) -> bytes:
        """The public key."""
        ...

    def proof(self) -> bytes:
        """What convinces a client that blinding hides its ids under this key."""
        ...

    def answer(self, elements: ByteRows) -> ByteRows:
        """The key applied to blinded elements; BadElement for what a client may not send."""
        ...

    def values(self, digests: ByteRows) -> ByteRows:
        """F_k of the server's own ids."""
        ...


class ClientMethod(Protocol):
    """The client's side, for one public key."""

    name: str
    batch: int
    width: int

    def blind(self, digests: ByteRows) -> tuple[ByteRows, Any]:
        """Blinded elements, and the secret that removes the blinding."""
        ...

    def values(self, digests: ByteRows, answers: ByteRows, secret: Any) -> ByteRows:
        """F_k of the client's ids; BadElement for what a server may not answer."""
        ...


def read_private_key(path: Path) -> Any:
    """The key in a PEM file, of whatever kind; the method says whether it is its own."""
    try:
        return serialization.load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError:
        raise StoreError(f"{path} does not exist.") from None
    except ValueError:
        raise StoreError(f"{path} is damaged: it is not a key.") from None


def fingerprint(method: str, public: bytes) -> str:
    """The name of a public key, for files that belong to it."""
    return hashlib.sha256(b"vfsl-psi-key-v1" + _framed(method.encode(), public)).hexdigest()


def run_context(
    method: str, client: str, server: str, client_nonce: bytes, server_nonce: bytes, public: bytes
) -> bytes:
    """What binds tags to one run and its two parties: tags of two runs never equal."""
    parts = (method.encode(), client.encode(), server.encode(), client_nonce, server_nonce, public)
    return hashlib.sha256(b"vfsl-psi-run-v1" + _framed(*parts)).digest()


def value_of(method: bytes, digest: bytes, element: bytes) -> bytes:
    """F_k(id) from the unblinded element: 32 bytes whatever the width of the group."""
    return hashlib.sha256(b"vfsl-psi-value-v1" + method + digest + element).digest()


def tags_of(values: ByteRows, context: bytes) -> ByteRows:
    """The tags of one run: at 128 bits and a million ids a side, a false match has chance 2^-88."""
    sha256, prefix = hashlib.sha256, b"vfsl-psi-tag-v1" + context
    return mapped(lambda value: sha256(prefix + value).digest()[:TAG_BYTES], values, TAG_BYTES)


def _framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)
