"""The Noise KK handshake (X25519, AES-256-GCM, SHA-256): both sides know each other's pinned key.

KK:  -> s,  <- s  (known beforehand);  -> e, es, ss;  <- e, ee, se
Follows the Noise specification, revision 34; payloads of the handshake are empty.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vfsl.errors import Unauthentic

_NAME = b"Noise_KK_25519_AESGCM_SHA256"
KEY_BYTES = 32
MESSAGE_BYTES = KEY_BYTES + 16  # an ephemeral key and the tag of an empty payload


@dataclass(frozen=True)
class Secrets:
    """What a finished handshake leaves: one key per direction, and a hash that binds all of it."""

    initiator_key: bytes
    responder_key: bytes
    transcript_hash: bytes


class Handshake:
    """One side: the initiator writes, then reads; the responder reads, then writes."""

    def __init__(
        self,
        *,
        initiator: bool,
        own: X25519PrivateKey,
        peer: X25519PublicKey,
        prologue: bytes,
        ephemeral: X25519PrivateKey | None = None,
    ) -> None:
        self._initiator = initiator
        self._own = own
        self._peer = peer
        # Only test vectors pass an ephemeral key: a real one is used once and never stored.
        self._ephemeral = ephemeral or X25519PrivateKey.generate()
        self._peer_ephemeral: X25519PublicKey | None = None
        self._chaining_key = self._hash = _NAME.ljust(32, b"\0")
        self._key = b""
        self._mix_hash(prologue)
        own_public, peer_public = own.public_key().public_bytes_raw(), peer.public_bytes_raw()
        for public in (own_public, peer_public) if initiator else (peer_public, own_public):
            self._mix_hash(public)

    def write(self) -> bytes:
        """This side's handshake message."""
        public = self._ephemeral.public_key().public_bytes_raw()
        self._mix_hash(public)
        self._mix_shared_secrets()
        tag = AESGCM(self._key).encrypt(bytes(12), b"", self._hash)
        self._mix_hash(tag)
        return public + tag

    def read(self, message: bytes) -> None:
        """Take in the other side's handshake message."""
        if len(message) != MESSAGE_BYTES:
            raise Unauthentic("The handshake failed.")
        public, tag = message[:KEY_BYTES], message[KEY_BYTES:]
        self._peer_ephemeral = X25519PublicKey.from_public_bytes(public)
        self._mix_hash(public)
        self._mix_shared_secrets()
        try:
            AESGCM(self._key).decrypt(bytes(12), tag, self._hash)
        except InvalidTag:
            raise Unauthentic("The handshake failed.") from None
        self._mix_hash(tag)

    def finish(self) -> Secrets:
        first, second = _derive(self._chaining_key, b"")
        return Secrets(first, second, self._hash)

    def _mix_shared_secrets(self) -> None:
        own_e, peer_e = self._ephemeral, self._peer_ephemeral
        if self._initiator and peer_e is None:  # -> e, es, ss
            pairs = [(own_e, self._peer), (self._own, self._peer)]
        elif not self._initiator and self._key == b"" and peer_e is not None:
            pairs = [(self._own, peer_e), (self._own, self._peer)]
        elif self._initiator and peer_e is not None:  # <- e, ee, se
            pairs = [(own_e, peer_e), (self._own, peer_e)]
        elif peer_e is not None:
            pairs = [(own_e, peer_e), (own_e, self._peer)]
        else:
            raise Unauthentic("The handshake failed.")
        for private, public in pairs:
            try:
                shared = private.exchange(public)
            except ValueError:  # a point of small order
                raise Unauthentic("The handshake failed.") from None
            self._chaining_key, self._key = _derive(self._chaining_key, shared)

    def _mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()


def _derive(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes]:
    """HKDF of the Noise specification with two outputs."""
    secret = hmac.digest(chaining_key, material, "sha256")
    first = hmac.digest(secret, b"\x01", "sha256")
    return first, hmac.digest(secret, first + b"\x02", "sha256")
