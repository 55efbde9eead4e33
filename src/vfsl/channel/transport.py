"""The seam under every channel: frames of bytes between named parties, in order."""

from __future__ import annotations

from typing import Protocol


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
