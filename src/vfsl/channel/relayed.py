"""A transport over an engine that hands envelopes from party to party through a relay.

An envelope holds a part of a frame, or a note of this transport: who waits (counts, no names),
works, has ended, has failed. Frames are sealed above this file (sealing.py), and so are notes from
the handshake on (notes.py): the relay sees sizes, counts and timing. It can drop and delay
envelopes, make a party look absent and stop the run. Whatever it makes or changes is refused, and
the run stops naming "the relay or X", since either may have done it. Envelopes of a pair are
carried one after the other; the next one leaves when the peer's process has the one before.
"""

from __future__ import annotations

import hashlib
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from vfsl.channel import wire
from vfsl.channel.notes import Ended, Note, Notebook, Working, Written
from vfsl.channel.sealing import NoteSession
from vfsl.channel.transport import (
    RELAY,
    Failed,
    Mailbox,
    Wait,
    WaitGraph,
    closed_before_sending,
    refuse_unread,
)
from vfsl.errors import ChannelError, Unauthentic, VfslError, WireError
from vfsl.values import Array

# The engine carries arrays faster than bytes from about here on (measured), and in bounded parts.
ARRAY_FROM = 10_000_000
PART_BYTES = 32 << 20

_HEADER = struct.Struct("<2sBB16sQII")  # magic, version, kind, session, number, part, parts
_MAGIC, _VERSION = b"VE", 2
_DATA, _SEALED_NOTE, _OPEN_NOTE = range(3)
_FRAME_LIMIT = wire.MAX_BYTES + (1 << 16)
_AHEAD = 8  # envelopes that may wait to be carried before ``post`` waits
_PROBE_EVERY = 1.5
_WORKING_EVERY = 10.0  # seconds between two notes of a party that makes progress
CALL_SECONDS = 4.0
_GONE_SECONDS = 4.0  # calls that fail at once: nobody is there
_SILENT_SECONDS = 60.0  # calls that are not answered: the peer may be busy, or far
_RELAY_SECONDS = 8.0  # enough to connect again after a short break

Envelope = bytes | Array
Carry = Callable[[str, Envelope], None]
OnFailure = Callable[[str, str], None]


def session_name(*facts: object) -> bytes:
    """A short public name for one attempt of a run."""
    return hashlib.sha256(wire.encode("session", [str(fact) for fact in facts])).digest()[:16]


class Unreachable(Exception):
    """The engine could not hand an envelope over; ``gone``: it knows that nobody is there."""

    def __init__(self, gone: bool) -> None:
        super().__init__("unreachable")
        self.gone = gone


class RelayedTransport(Mailbox):
    """One party's frames to and from its peers; a thread per peer carries, another one probes.

    Parameters
    ----------
    me, peers, session
        Whose transport it is, with whom, in which attempt.
    carry : callable
        ``carry(peer, envelope)`` returns when the peer's process has it, else raises Unreachable.
    probe : callable
        ``probe(peer)`` returns if the peer answers, else raises Unreachable.
    relayed : callable
        Whether there is a connection to the relay.
    """

    report_after = 1.0

    def __init__(
        self,
        me: str,
        peers: tuple[str, ...],
        session: bytes,
        carry: Carry,
        probe: Callable[[str], None],
        relayed: Callable[[], bool],
    ) -> None:
        super().__init__(me, peers)
        self.session = session
        self._carry, self._probe, self._relayed = carry, probe, relayed
        self._parts: dict[str, list[bytes]] = {peer: [] for peer in peers}
        self._next: dict[str, tuple[int, int]] = dict.fromkeys(peers, (0, 0))
        self._outbox: dict[str, queue.Queue[Envelope | None]] = {
            peer: queue.Queue() for peer in peers
        }
        self._waits = WaitGraph()
        self._frames_at_end: dict[str, int] = {}  # how many each ended peer has posted to us
        self._notes = Notebook(me, peers)
        self._writing = threading.Lock()  # notes leave in the order of their numbers
        self.on_failure: OnFailure | None = None
        self._active = False  # whether this party has made progress since it last said so
        self._heard = time.monotonic()
        self._met = dict.fromkeys(peers, 0.0)  # when each peer was last there
        self._done = threading.Event()
        self._threads = [
            threading.Thread(target=work, args=(peer,), daemon=True, name=f"vfsl {me}→{peer}")
            for peer in peers
            for work in (self._send_to, self._watch)
        ]
        self._threads += [
            threading.Thread(target=work, daemon=True, name=f"vfsl {me} {work.__name__}")
            for work in (self._watch_relay, self._say_progress)
        ]
        for thread in self._threads:
            thread.start()

    # ---- Transport ----------------------------------------------------------------------------

    def post(self, to: str, frame: bytes) -> None:
        with self._changed:
            self._raise_if_failed()
            if to in self._ended:
                raise closed_before_sending(self.me, to)
        for envelope in _make_envelopes(self.session, self._posted[to], frame):
            while self._outbox[to].qsize() >= _AHEAD:
                with self._changed:
                    self._raise_if_failed()
                    self._changed.wait(0.05)
            self._outbox[to].put(envelope)
        self._posted[to] += 1
        self._active = True

    def take(self, sender: str, name: str, timeout: float | None) -> bytes:
        frame = super().take(sender, name, timeout)
        self._active = True
        return frame

    def progress(self) -> None:
        """Say that this party makes progress, though it sends nothing: others keep waiting."""
        self._active = True

    # ---- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """End well: tell the peers, wait until all have ended, refuse frames that nobody took."""
        unsealed = [peer for peer in self.peers if not self._notes.has_keys(peer)]
        if unsealed:
            raise ChannelError(
                f"{self.me!r} cannot end well before its handshake with {unsealed[0]!r} has ended.",
                unsealed[0],
            )
        for peer in self.peers:
            self._tell(peer, Ended(self._posted[peer]))
        try:
            with self._changed:
                while len(self._ended) < len(self.peers):
                    self._raise_if_failed()
                    self._changed.wait()
            for peer, posted in self._frames_at_end.items():
                refuse_unread(self.me, peer, posted - self._taken[peer])
        except VfslError as error:
            self.abandon(error)
            raise
        self._stop()

    def abandon(self, error: BaseException) -> None:
        """End because of an error: the peers learn who failed and of which kind, not the text."""
        with self._changed:
            if self._failed is None:
                self._failed = Failed(self.me, type(error).__name__)
        for peer in self.peers:
            self._tell(peer, self._failed)
        self._stop()

    def _stop(self) -> None:
        for outbox in self._outbox.values():
            outbox.put(None)
        self._done.set()
        deadline = time.monotonic() + CALL_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # ---- what arrives -------------------------------------------------------------------------

    def accept(self, sender: str, envelope: Envelope) -> None:
        """Take in an envelope; called by the engine's threads."""
        with self._changed:
            self._met[sender] = time.monotonic()
            try:
                kind, number, part, parts, content = _open_envelope(envelope)
                if kind == _DATA:
                    self._accept_part(sender, number, part, parts, content)
                    self._heard = time.monotonic()
                else:
                    written = Written(kind == _SEALED_NOTE, number, content)
                    self._accept_note(sender, self._notes.read(sender, written))
            except (WireError, Unauthentic):
                self._refuse(sender)
            self._changed.notify_all()

    def seal_notes(self, peer: str, keys: NoteSession) -> None:
        """The handshake with a peer has ended: notes between the two are sealed from now on."""
        with self._changed:
            try:
                for note in self._notes.add_keys(peer, keys):
                    self._accept_note(peer, note)
            except (WireError, Unauthentic):
                self._refuse(peer)
            self._changed.notify_all()
        # The first sealed note tells the peer that nothing open is to be believed any more.
        self._tell(peer, Working())

    def _accept_note(self, sender: str, note: Note | None) -> None:
        match note:
            case None:
                return
            case Wait():
                self._note_wait(sender, note)
                return
            case Ended():
                if (note.posted, 0) != self._next[sender]:
                    raise WireError(f"Frames of {sender!r} are missing at its end.", sender)
                self._ended.add(sender)
                self._frames_at_end[sender] = note.posted
            case Failed():
                self._set_failed(note)
        self._heard = time.monotonic()

    def _refuse(self, sender: str) -> None:
        """Something is not as its sender makes it; nobody can tell who has changed it."""
        self._set_failed(Failed(sender, "an envelope was refused", sure=False))

    def _accept_part(self, sender: str, number: int, part: int, parts: int, content: bytes) -> None:
        if (number, part) < self._next[sender]:
            return  # carried twice: the answer to the first time was lost
        held = self._parts[sender]
        size = sum(map(len, held)) + len(content)
        if (number, part) != self._next[sender] or part >= parts or size > _FRAME_LIMIT:
            raise WireError(f"Envelopes of {sender!r} do not follow each other.", sender)
        held.append(content)
        self._next[sender] = (number, part + 1)
        if part + 1 == parts:
            self._inbox[sender].append(b"".join(held) if len(held) > 1 else held[0])
            self._parts[sender], self._next[sender] = [], (number + 1, 0)

    # ---- who waits, who is lost ---------------------------------------------------------------

    def _report(self, wait: Wait) -> None:
        unnamed = replace(wait, name="a message")
        for peer in self.peers:
            self._tell(peer, unnamed)
        self._note_wait(self.me, unnamed)

    def _note_wait(self, party: str, wait: Wait) -> None:
        ring = self._waits.add(party, wait)
        if ring is not None and self.me in ring:
            self._deadlock = self._waits.describe(ring)

    def _send_to(self, peer: str) -> None:
        """Carry this peer's envelopes one after the other, so that they stay in order."""
        while (envelope := self._outbox[peer].get()) is not None:
            trouble = Trouble()
            while True:
                try:
                    self._carry(peer, envelope)
                    self._met[peer] = time.monotonic()
                    break
                except Unreachable as error:
                    if self._done.is_set() or trouble.is_final(error.gone):
                        self._lose(peer)
                        return
                    time.sleep(0.3)
            with self._changed:
                self._changed.notify_all()

    def _watch(self, peer: str) -> None:
        """Ask every now and then whether a peer is still there, until it has ended."""
        trouble = Trouble()
        while not self._done.wait(_PROBE_EVERY) and peer not in self._ended:
            if time.monotonic() - self._met[peer] < _PROBE_EVERY:
                trouble = Trouble()
                continue  # it has just sent something, or taken something in
            try:
                self._probe(peer)
                trouble = Trouble()
            except Unreachable as error:
                if trouble.is_final(error.gone):
                    self._lose(peer)
                    return

    def _watch_relay(self) -> None:
        seen = time.monotonic()
        while not self._done.wait(0.5):
            if self._relayed():
                seen = time.monotonic()
            elif time.monotonic() - seen >= _RELAY_SECONDS:
                self._fail(RELAY, "it does not answer")
                return

    def _say_progress(self) -> None:
        """While this party makes progress, tell all peers so every now and then."""
        while not self._done.wait(_WORKING_EVERY):
            if self._active:
                self._active = False
                for peer in self.peers:
                    if peer not in self._ended and self._outbox[peer].empty():
                        self._tell(peer, Working())

    def _lose(self, peer: str) -> None:
        self._fail(peer if self._relayed() else RELAY, "it does not answer")

    def call_off(self, own: bool) -> None:
        """The engine ends the run: find out because of whom, while the others can be asked."""
        if own:
            self._fail(self.me, "its site process has gone")
        for peer in self.peers:
            if peer not in self._ended and not self._answers(peer):
                self._lose(peer)
        self._fail(RELAY, "it called the run off")

    def _answers(self, peer: str) -> bool:
        try:
            self._probe(peer)
        except Unreachable:
            return False
        return True

    def _fail(self, culprit: str, reason: str) -> None:
        with self._changed:
            if culprit not in self._ended and not self._done.is_set():
                self._set_failed(Failed(culprit, reason))
            self._changed.notify_all()

    def _set_failed(self, failed: Failed) -> None:
        """The first failure counts; whoever listens hears of it even while the party computes.

        What was in doubt is sure once the same is said by a sealed note.
        """
        known = self._failed
        sealed = known is not None and failed == replace(known, sure=True)
        if known is None or (sealed and not known.sure):
            self._failed = failed
            if self.on_failure is not None:
                self.on_failure(failed.named, failed.reason)

    def _tell(self, peer: str, note: Note) -> None:
        with self._writing:
            for written in self._notes.write(peer, note):
                kind = _SEALED_NOTE if written.sealed else _OPEN_NOTE
                header = _HEADER.pack(_MAGIC, _VERSION, kind, self.session, written.number, 0, 1)
                self._outbox[peer].put(header + written.content)


class Trouble:
    """How long something has not worked; final sooner where the engine knows the peer is gone."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._gone_since: float | None = None

    def is_final(self, gone: bool) -> bool:
        now = time.monotonic()
        self._gone_since = (self._gone_since or now) if gone else None
        sure = self._gone_since is not None and now - self._gone_since >= _GONE_SECONDS
        return sure or now - self._since >= _SILENT_SECONDS


def _make_envelopes(session: bytes, number: int, frame: bytes) -> Iterator[Envelope]:
    """A frame in parts that the engine likes: bytes while small, arrays of bytes when large."""
    parts = max(1, -(-len(frame) // PART_BYTES))
    for part in range(parts):
        content = frame[part * PART_BYTES : (part + 1) * PART_BYTES]
        header = _HEADER.pack(_MAGIC, _VERSION, _DATA, session, number, part, parts)
        whole = header + content
        yield np.frombuffer(whole, dtype=np.uint8) if len(whole) >= ARRAY_FROM else whole


def _open_envelope(envelope: Envelope) -> tuple[int, int, int, int, bytes]:
    data = envelope.tobytes() if isinstance(envelope, np.ndarray) else bytes(envelope)
    if len(data) < _HEADER.size:
        raise WireError("An envelope is too short.")
    magic, version, kind, _, number, part, parts = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or kind > _OPEN_NOTE:
        raise WireError("An envelope is not one of ours.")
    return kind, number, part, parts, data[_HEADER.size :]


def session_of(envelope: Envelope) -> bytes:
    start = bytes(envelope[: _HEADER.size])
    return start[4:20]
