"""Notes between the parties of a relayed run: who waits, works, has ended, has failed.

Holds   each pair of parties: keys for their notes, from the same handshake as those of their
        frames, and a number for each note. The relay: none of it.
Learns  the peer: what a note says. The relay: that there is a note, its size and its time.

A sealed note is what its sender said, once: a repeated or late one is dropped, an altered or a
malformed one is refused. As long as no sealed note of a peer has come, that peer may have no keys
yet, and one thing is taken from it openly: that somebody has failed. The relay could have written
that. It stops the run and names "the relay or X"; nobody takes it for a fact. Nothing else is said
or believed openly, and once a sealed note has come, nothing at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from vfsl.channel import wire
from vfsl.channel.sealing import NoteSession
from vfsl.channel.transport import RELAY, Failed, Wait
from vfsl.errors import WireError

_LIMIT = 1 << 14  # bytes of a note
_EARLY = 64  # sealed notes of a peer that wait for its keys; the latest count
_LONGEST = 200  # characters of a reason
_MOST = 1 << 62


@dataclass(frozen=True)
class Working:
    """The sender makes progress."""


@dataclass(frozen=True)
class Ended:
    """The sender has ended well, having posted this many frames to the receiver."""

    posted: int


Note = Working | Ended | Failed | Wait


@dataclass(frozen=True)
class Written:
    """A note as it is carried."""

    sealed: bool
    number: int
    content: bytes


class Notebook:
    """One party's notes: which may be said to whom, and what of the others' counts.

    Whoever calls it sees to it that one thread writes and one thread reads at a time.
    """

    def __init__(self, me: str, peers: tuple[str, ...]) -> None:
        self._parties = frozenset((me, *peers))
        self._keys: dict[str, NoteSession] = {}
        self._heard: set[str] = set()  # peers of whom a sealed note has come: they have keys
        self._early = {peer: deque[tuple[int, bytes]](maxlen=_EARLY) for peer in peers}

    def has_keys(self, peer: str) -> bool:
        return peer in self._keys

    def add_keys(self, peer: str, keys: NoteSession) -> list[Note]:
        """Seal notes from now on; returns those of the peer that were waiting for its keys."""
        self._keys[peer] = keys
        early, self._early[peer] = self._early[peer], deque(maxlen=_EARLY)
        notes = [self.read(peer, Written(True, number, content)) for number, content in early]
        return [note for note in notes if note is not None]

    def write(self, peer: str, note: Note) -> list[Written]:
        """What to carry to a peer for it to hear this; nothing if it may not be said yet."""
        content, written = _pack(note), []
        if peer in self._keys:
            number, sealed = self._keys[peer].seal(content)
            written.append(Written(True, number, sealed))
        if isinstance(note, Failed) and peer not in self._heard:
            written.append(Written(False, 0, content))
        return written

    def read(self, sender: str, written: Written) -> Note | None:
        """What a peer says; None if it does not count, or not yet."""
        if len(written.content) > _LIMIT:
            raise WireError(f"A note of {len(written.content)} bytes is refused.", sender)
        if not written.sealed:
            return self._read_open(sender, written.content)
        if sender not in self._keys:
            self._early[sender].append((written.number, written.content))
            return None
        content = self._keys[sender].open(written.number, written.content)
        if content is None:
            return None
        self._heard.add(sender)
        return _unpack(content, self._parties)

    def _read_open(self, sender: str, content: bytes) -> Note | None:
        if sender in self._heard:
            return None  # the sender seals its notes by now: the relay has kept it, or made it
        note = _unpack(content, self._parties)
        if not isinstance(note, Failed):
            raise WireError("A note that must be sealed came open.", sender)
        return replace(note, sure=False)


def _pack(note: Note) -> bytes:
    match note:
        case Wait():
            facts = {"for": note.sender, "taken": note.taken, "posted": dict(note.posted)}
            return wire.encode("waiting", facts)
        case Ended():
            return wire.encode("ended", {"posted": note.posted})
        case Failed():
            facts = {"culprit": note.culprit, "reason": note.reason[:_LONGEST], "sure": note.sure}
            return wire.encode("failed", facts)
        case Working():
            return wire.encode("working", {})


_FIELDS = {
    "waiting": {"for", "taken", "posted"},
    "ended": {"posted"},
    "failed": {"culprit", "reason", "sure"},
    "working": set(),
}


def _unpack(content: bytes, parties: Collection[str]) -> Note:
    """The note, every field of which is as expected; else WireError."""
    kind, facts = wire.decode(content)
    if not isinstance(facts, dict) or set(facts) != _FIELDS.get(kind):
        raise WireError("A note has other fields than expected.")
    match kind:
        case "waiting":
            sender, posted = _read_party(facts["for"], parties), facts["posted"]
            if not isinstance(posted, dict):
                raise WireError("A note of a wait has no counts.")
            counts = {
                _read_party(peer, parties): _read_count(number) for peer, number in posted.items()
            }
            return Wait(sender, "a message", _read_count(facts["taken"]), counts)
        case "ended":
            return Ended(_read_count(facts["posted"]))
        case "failed":
            reason, sure = facts["reason"], facts["sure"]
            if not isinstance(reason, str) or len(reason) > _LONGEST or not reason.isprintable():
                raise WireError("A note of a failure has no readable reason.")
            if not isinstance(sure, bool):
                raise WireError("A note of a failure does not say whether it is sure.")
            return Failed(_read_party(facts["culprit"], {*parties, RELAY}), reason, sure)
        case _:
            return Working()


def _read_party(value: Any, parties: Collection[str]) -> str:
    if not isinstance(value, str) or value not in parties:
        raise WireError("A note names a party that takes no part.")
    return value


def _read_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        raise WireError("A note has a count that is none.")
    return value
