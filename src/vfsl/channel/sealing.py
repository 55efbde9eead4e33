"""Sealed transport: every frame encrypted and authenticated between its two parties.

Each attempt of a run makes a fresh Noise KK handshake between every pair, on X25519 keys that were
pinned out of band. Identities, run, attempt, job and the key holder's public key are bound into the
handshake and into the derived keys; each direction has its own AES-256-GCM key and counts its
nonces, so that a replayed, reordered, dropped or altered frame fails, and no attempt repeats one.
Notes of a transport that has them (notes.py) have keys and numbers of their own.
The relay that carries the frames sees their sizes and their timing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from vfsl.channel import wire
from vfsl.channel.transport import NotingTransport, Transport
from vfsl.errors import ConfigError, Unauthentic

# Far below the limits of AES-GCM for 96-bit counter nonces.
MAX_FRAMES = 1 << 32
KEY_BYTES = 32
MESSAGE_BYTES = KEY_BYTES + 16  # an ephemeral key and the tag of an empty payload
_HANDSHAKE = b"Noise_KK_25519_AESGCM_SHA256"
_NOTES = b"vfsl notes of a transport"


@dataclass(frozen=True)
class Attempt:
    """What both sides of a session must agree on before they exchange anything."""

    run: str
    number: int = 1
    job_hash: bytes = b""
    he_key_hash: bytes = b""

    def bind(self, initiator: str, responder: str) -> bytes:
        """All of it as unambiguous bytes."""
        facts = [initiator, responder, self.run, self.number, self.job_hash, self.he_key_hash]
        return wire.encode("attempt", facts)


# ---- the handshake ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Secrets:
    """What a finished handshake leaves: one key per direction, and a hash that binds all of it."""

    initiator_key: bytes
    responder_key: bytes
    transcript_hash: bytes


class Handshake:
    """One side of the KK handshake, in which both sides know each other's pinned key.

    The initiator writes, then reads; the responder reads, then writes. It follows the Noise
    specification, revision 34 (X25519, AES-256-GCM, SHA-256), with empty payloads:
    -> s, <- s (known beforehand); -> e, es, ss; <- e, ee, se.
    """

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
        self._chaining_key = self._hash = _HANDSHAKE.ljust(32, b"\0")
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


# ---- sessions -----------------------------------------------------------------------------------


class _Keys:
    """The keys of one pair in one attempt, derived by HKDF from all that was agreed on."""

    label, what = b"", "message"

    def __init__(self, secrets: Secrets, me: str, peer: str, attempt: Attempt) -> None:
        initiator, responder = sorted((me, peer))
        # A context begins with the mark of a frame, so no label makes one out of another.
        context = self.label + attempt.bind(initiator, responder)
        forward, backward = (
            AESGCM(HKDF(hashes.SHA256(), 32, secrets.transcript_hash, context).derive(key))
            for key in (secrets.initiator_key, secrets.responder_key)
        )
        mine, theirs = (forward, backward) if me == initiator else (backward, forward)
        self._sending, self._receiving = mine, theirs
        self._sent = 0
        self._next = 0
        self._peer = peer

    def _encrypt(self, content: bytes) -> bytes:
        nonce = _make_nonce(self._sent)
        self._sent += 1
        return self._sending.encrypt(nonce, content, None)

    def _decrypt(self, number: int, sealed: bytes) -> bytes:
        try:
            content = self._receiving.decrypt(_make_nonce(number), sealed, None)
        except (InvalidTag, ValueError):
            raise Unauthentic(f"A {self.what} of {self._peer!r} was refused.", self._peer) from None
        self._next = number + 1
        return content


class Session(_Keys):
    """The frames of one pair in one attempt, in order."""

    def seal(self, frame: bytes) -> bytes:
        return self._encrypt(frame)

    def open(self, sealed: bytes) -> bytes:
        return self._decrypt(self._next, sealed)


class NoteSession(_Keys):
    """The notes of one pair in one attempt, whose numbers the transport carries beside them.

    Carrying may repeat a note, so an old number is no error. A relay can drop notes; it cannot
    make, change, repeat or reorder them.
    """

    label, what = _NOTES, "note"

    def seal(self, note: bytes) -> tuple[int, bytes]:
        """The number of a note, and the note sealed."""
        return self._sent, self._encrypt(note)

    def open(self, number: int, sealed: bytes) -> bytes | None:
        """The note; None if its number was seen before."""
        return None if number < self._next else self._decrypt(number, sealed)


class SealedTransport:
    """A transport whose frames only the two parties of a pair can read or make."""

    def __init__(self, inner: Transport, sessions: Mapping[str, Session]) -> None:
        self.me = inner.me
        self.peers = inner.peers
        self._inner = inner
        self._sessions = sessions

    def post(self, to: str, frame: bytes) -> None:
        self._inner.post(to, self._sessions[to].seal(frame))

    def take(self, sender: str, name: str, timeout: float | None) -> bytes:
        return self._sessions[sender].open(self._inner.take(sender, name, timeout))


def seal(
    inner: Transport,
    own: X25519PrivateKey,
    pinned: Mapping[str, X25519PublicKey],
    attempt: Attempt,
    timeout: float | None = None,
) -> SealedTransport:
    """Shake hands with every peer and return the sealed transport."""
    for peer in inner.peers:
        if peer not in pinned:
            raise ConfigError(
                f"{inner.me!r} has no pinned key for {peer!r}; add it before the run, compared "
                "out of band."
            )
    # Of each pair the smaller name begins. All first messages leave before anyone waits.
    first = {
        peer: Handshake(
            initiator=inner.me < peer,
            own=own,
            peer=pinned[peer],
            prologue=attempt.bind(*sorted((inner.me, peer))),
        )
        for peer in inner.peers
    }
    for peer, handshake in first.items():
        if inner.me < peer:
            inner.post(peer, handshake.write())
    sessions = {}
    # First the peers that wait for an answer, then those that have been asked.
    for peer in sorted(first, key=lambda peer: inner.me < peer):
        handshake = first[peer]
        try:
            handshake.read(inner.take(peer, "handshake", timeout))
        except Unauthentic:
            raise Unauthentic(f"The handshake with {peer!r} failed.", peer) from None
        if inner.me > peer:
            inner.post(peer, handshake.write())
        secrets = handshake.finish()
        sessions[peer] = Session(secrets, inner.me, peer, attempt)
        if isinstance(inner, NotingTransport):
            inner.seal_notes(peer, NoteSession(secrets, inner.me, peer, attempt))
    return SealedTransport(inner, sessions)


def _make_nonce(count: int) -> bytes:
    if count >= MAX_FRAMES:
        raise Unauthentic("The session is used up; start a new attempt.")
    return count.to_bytes(12, "big")
