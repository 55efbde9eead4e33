"""The seam under every channel: frames of bytes between named parties, in order.

A transport that goes through a relay also carries notes of its own; sealing hands it keys for them.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Transport(Protocol):
    """Carries frames between one party and its peers.

    Implementations must keep the order of the frames of each pair, and must not let ``post`` wait
    until the receiver takes the frame: "both send, then both receive" works at any size.
    """

    me: str
    peers: tuple[str, ...]

    def post(self, to: str, frame: bytes) -> None:
        """Hand a frame over to a peer."""

    def take(self, sender: str, name: str, timeout: float | None) -> bytes:
        """The next frame of a sender; ``name`` only serves error messages.

        Raises PeerClosed, PeerFailed, Deadlock or TimedOut when none will come.
        """
        ...


class NoteKeys(Protocol):
    """Seals and opens the notes of one pair; a note that was seen before opens as None."""

    def seal(self, note: bytes) -> tuple[int, bytes]:
        """The number of a note, and the note sealed."""
        ...

    def open(self, number: int, sealed: bytes) -> bytes | None: ...


@runtime_checkable
class NotingTransport(Transport, Protocol):
    """A transport with notes of its own, which a relay must not be able to write."""

    def seal_notes(self, peer: str, keys: NoteKeys) -> None:
        """The handshake with a peer has ended: from now on notes between the two are sealed."""
