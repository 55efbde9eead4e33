"""Sealed transport: every frame encrypted and authenticated between its two parties.

Each attempt of a run makes a fresh Noise KK handshake between every pair, on X25519 keys that were
pinned out of band. Identities, run, attempt, job and the key holder's public key are bound into the
handshake and into the derived keys; each direction has its own AES-256-GCM key and counts its
nonces, so that a replayed, reordered, dropped or altered frame fails, and no attempt repeats one.
Notes of a transport that has them (notes.py) have keys and numbers of their own.
The relay that carries the frames sees their sizes and their timing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from vfsl.channel import wire
from vfsl.channel.noise import Handshake, Secrets
from vfsl.channel.transport import NotingTransport, Transport
from vfsl.errors import ConfigError, Unauthentic

# Far below the limits of AES-GCM for 96-bit counter nonces.
MAX_FRAMES = 1 << 32
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


class Session:
    """The two directions of one pair in one attempt."""

    def __init__(self, sending_key: bytes, receiving_key: bytes, peer: str) -> None:
        self._sending = AESGCM(sending_key)
        self._receiving = AESGCM(receiving_key)
        self._sent = 0
        self._received = 0
        self._peer = peer

    def seal(self, frame: bytes) -> bytes:
        nonce = _nonce(self._sent)
        self._sent += 1
        return self._sending.encrypt(nonce, frame, None)

    def open(self, sealed: bytes) -> bytes:
        try:
            frame = self._receiving.decrypt(_nonce(self._received), sealed, None)
        except (InvalidTag, ValueError):
            raise Unauthentic(f"A message of {self._peer!r} was refused.", self._peer) from None
        self._received += 1
        return frame


class NoteSession:
    """The notes of one pair in one attempt, whose numbers the transport carries beside them.

    Carrying may repeat a note, so an old number is no error. A relay can drop notes; it can not
    make, change, repeat or reorder them.
    """

    def __init__(self, sending_key: bytes, receiving_key: bytes, peer: str) -> None:
        self._sending = AESGCM(sending_key)
        self._receiving = AESGCM(receiving_key)
        self._sent = 0
        self._next = 0
        self._peer = peer

    def seal(self, note: bytes) -> tuple[int, bytes]:
        number = self._sent
        self._sent += 1
        return number, self._sending.encrypt(_nonce(number), note, None)

    def open(self, number: int, sealed: bytes) -> bytes | None:
        if number < self._next:
            return None
        try:
            note = self._receiving.decrypt(_nonce(number), sealed, None)
        except (InvalidTag, ValueError):
            raise Unauthentic(f"A note of {self._peer!r} was refused.", self._peer) from None
        self._next = number + 1
        return note


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
    # First those that wait for an answer, then those that have been asked.
    for peer in sorted(first, key=lambda peer: inner.me < peer):
        handshake = first[peer]
        _read(inner, peer, handshake, timeout)
        if inner.me > peer:
            inner.post(peer, handshake.write())
        secrets = handshake.finish()
        sessions[peer] = session(secrets, inner.me, peer, attempt)
        if isinstance(inner, NotingTransport):
            inner.seal_notes(peer, note_session(secrets, inner.me, peer, attempt))
    return SealedTransport(inner, sessions)


def session(secrets: Secrets, me: str, peer: str, attempt: Attempt) -> Session:
    """The session keys: HKDF of the handshake's keys over everything that was agreed on."""
    return Session(*_keys(secrets, me, peer, attempt, b""), peer)


def note_session(secrets: Secrets, me: str, peer: str, attempt: Attempt) -> NoteSession:
    """The keys of notes: like those of frames, under a label of their own."""
    return NoteSession(*_keys(secrets, me, peer, attempt, _NOTES), peer)


def _keys(
    secrets: Secrets, me: str, peer: str, attempt: Attempt, label: bytes
) -> tuple[bytes, bytes]:
    """The key to send with and the key to receive with."""
    initiator, responder = sorted((me, peer))
    # A context begins with the mark of a frame, so no label makes one out of another.
    context = label + attempt.bind(initiator, responder)
    forward, backward = (
        HKDF(hashes.SHA256(), 32, salt=secrets.transcript_hash, info=context).derive(key)
        for key in (secrets.initiator_key, secrets.responder_key)
    )
    return (forward, backward) if me == initiator else (backward, forward)


def _read(inner: Transport, peer: str, handshake: Handshake, timeout: float | None) -> None:
    try:
        handshake.read(inner.take(peer, "handshake", timeout))
    except Unauthentic:
        raise Unauthentic(f"The handshake with {peer!r} failed.", peer) from None


def _nonce(count: int) -> bytes:
    if count >= MAX_FRAMES:
        raise Unauthentic("The session is used up; start a new attempt.")
    return count.to_bytes(12, "big")
