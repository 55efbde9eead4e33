"""A transport over an engine that hands envelopes from party to party through a relay.

An envelope holds a part of a frame, or a note of this transport: who waits (counts, no names),
works, has ended, has failed. Frames are sealed above this file (sealing.py), and so are notes from
the handshake on (notes.py): the relay sees sizes, counts and timing. It can drop and delay
envelopes, make a party look absent and stop the run. Whatever it makes or changes is refused, and
the run stops naming "the relay or X", since either may have done it. Envelopes of a pair are
carried one after the other; the next one leaves when the peer's process has the one before. A slow
line is no lost party: parts are small, notes pass between them, and a peer is given up only when
nothing of it has come for long.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from vfsl.channel import wire
from vfsl.channel.envelopes import (
    DATA,
    OPEN_NOTE,
    SEALED_NOTE,
    VERSION,
    Envelope,
    Incoming,
    OtherVersion,
    Outbox,
    Pace,
    make_envelope,
    open_envelope,
)
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
from vfsl.store import is_full

_AHEAD = 8  # frames that may wait to be carried before ``post`` waits
_PROBE_EVERY = 1.5
_WORKING_EVERY = 10.0  # seconds between two notes of a party that makes progress
CALL_SECONDS = 4.0
_PART_SECONDS = 8.0  # a part takes about one; what is lost on the way is carried again after these
_GONE_SECONDS = 9.0  # calls that fail at once: nobody is there, or its line is being restored
_SILENT_SECONDS = 60.0  # calls that are not answered: the peer may be busy, or far
_RELAY_SECONDS = 9.0  # enough to connect again after a short break

Carry = Callable[[str, Envelope, float], None]
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
        ``carry(peer, envelope, seconds)`` returns when the peer's process has it, and raises
        Unreachable if it has not within these seconds.
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
        self._incoming = {peer: Incoming() for peer in peers}
        self._outbox = {peer: Outbox() for peer in peers}
        self._pace = {peer: Pace() for peer in peers}
        self._waits = WaitGraph()
        self._frames_at_end: dict[str, int] = {}  # how many each ended peer has posted to us
        self._notes = Notebook(me, peers)
        self.on_failure: OnFailure | None = None
        self._active = False  # whether this party has made progress since it last said so
        self._heard = time.monotonic()
        self._met = dict.fromkeys(peers, 0.0)  # when each peer was last there
        self._done = threading.Event()
        self._senders = [
            threading.Thread(
                target=self._send_to, args=(peer,), daemon=True, name=f"vfsl {me}→{peer}"
            )
            for peer in peers
        ]
        self._watchers = [
            threading.Thread(target=self._watch, args=(peer,), daemon=True) for peer in peers
        ]
        self._watchers += [
            threading.Thread(target=work, daemon=True, name=f"vfsl {me} {work.__name__}")
            for work in (self._watch_relay, self._say_progress)
        ]
        for thread in (*self._senders, *self._watchers):
            thread.start()

    # ---- Transport ----------------------------------------------------------------------------

    def post(self, to: str, frame: bytes) -> None:
        with self._changed:
            self._raise_if_failed()
            if to in self._ended:
                raise closed_before_sending(self.me, to)
        while self._outbox[to].waiting_frames() >= _AHEAD:
            with self._changed:
                self._raise_if_failed()
                self._changed.wait(0.05)
        self._outbox[to].put(self._posted[to], frame)
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
            self._outbox[peer].tell(Ended(self._posted[peer]))
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
        self._stop(_SILENT_SECONDS)  # a peer leaves when it knows that all have ended

    def abandon(self, error: BaseException) -> None:
        """End because of an error: the peers learn who failed and why, but not the text."""
        with self._changed:
            if self._failed is None:
                self._failed = Failed(self.me, public_reason(error))
        for peer in self.peers:
            self._outbox[peer].tell(self._failed)
        self._stop(_PART_SECONDS)

    def _stop(self, seconds: float) -> None:
        """Carry what waits, within these seconds, then let all threads end."""
        for outbox in self._outbox.values():
            outbox.close()
        deadline = time.monotonic() + seconds
        for thread in self._senders:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._done.set()
        for thread in self._watchers:
            thread.join(CALL_SECONDS)

    # ---- what arrives -------------------------------------------------------------------------

    def accept(self, sender: str, envelope: Envelope) -> None:
        """Take in an envelope; called by the engine's threads."""
        with self._changed:
            self._met[sender] = time.monotonic()
            try:
                opened = open_envelope(envelope)
                if opened.kind == DATA:
                    frame = self._incoming[sender].add(opened)
                    if frame is not None:
                        self._inbox[sender].append(frame)
                    self._heard = time.monotonic()
                    self._active = True
                else:
                    written = Written(opened.kind == SEALED_NOTE, opened.number, opened.content)
                    self._accept_note(sender, self._notes.read(sender, written))
            except OtherVersion as error:
                self._set_failed(Failed(sender, compare_envelopes(error.version), sure=False))
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
        self._outbox[peer].tell(Working())

    def _accept_note(self, sender: str, note: Note | None) -> None:
        match note:
            case None:
                return
            case Wait():
                self._note_wait(sender, note)
                return
            case Ended():
                incoming = self._incoming[sender]
                if note.posted != incoming.number or not incoming.between_frames:
                    raise WireError(f"Frames of {sender!r} are missing at its end.", sender)
                self._ended.add(sender)
                self._frames_at_end[sender] = note.posted
            case Failed():
                self._set_failed(note)
        self._heard = time.monotonic()

    def _refuse(self, sender: str) -> None:
        """Something is not as its sender makes it; nobody can tell who has changed it."""
        self._set_failed(Failed(sender, "an envelope was refused", sure=False))

    # ---- who waits, who is lost ---------------------------------------------------------------

    def _report(self, wait: Wait) -> None:
        unnamed = replace(wait, name="a message")
        for peer in self.peers:
            self._outbox[peer].tell(unnamed)
        self._note_wait(self.me, unnamed)

    def _note_wait(self, party: str, wait: Wait) -> None:
        ring = self._waits.add(party, wait)
        if ring is not None and self.me in ring:
            self._deadlock = self._waits.describe(ring)

    def _send_to(self, peer: str) -> None:
        """Carry what is for this peer, one thing after the other, so that frames stay in order."""
        outbox = self._outbox[peer]
        while (thing := outbox.get()) is not None:
            if isinstance(thing, tuple):
                carried = self._send_frame(peer, *thing)
            else:
                carried = self._send_note(peer, thing)
            if not carried:
                self._lose(peer)
                return
            with self._changed:
                self._changed.notify_all()

    def _send_frame(self, peer: str, number: int, frame: bytes) -> bool:
        """Carry a frame in parts, and notes between them; False if the peer is lost."""
        pace, start, trouble = self._pace[peer], 0, Trouble()
        while True:
            while (note := self._outbox[peer].next_note()) is not None:
                if not self._send_note(peer, note):
                    return False
            if self._failed is not None:
                return True  # the run has ended: nobody waits for this frame
            content = frame[start : start + pace.size]
            envelope = make_envelope(DATA, self.session, number, content, start, len(frame))
            began = time.monotonic()
            try:
                self._carry(peer, envelope, _PART_SECONDS)
            except Unreachable as error:
                pace.slow_down()
                if not self._may_try_again(peer, trouble, error.gone):
                    return False
                continue
            self._met[peer], trouble = time.monotonic(), Trouble()
            pace.learn(len(content), self._met[peer] - began)
            self._active = True
            start += len(content)
            if start >= len(frame):
                return True

    def _send_note(self, peer: str, note: Note) -> bool:
        """Carry a note until the peer has it; False if the peer is lost."""
        if peer in self._ended and isinstance(note, Working | Wait):
            return True  # it needs none of these any more
        for written in self._notes.write(peer, note):
            kind = SEALED_NOTE if written.sealed else OPEN_NOTE
            envelope = make_envelope(kind, self.session, written.number, written.content)
            trouble = Trouble()
            while True:
                try:
                    self._carry(peer, envelope, _PART_SECONDS)
                    self._met[peer] = time.monotonic()
                    break
                except Unreachable as error:
                    if not self._may_try_again(peer, trouble, error.gone):
                        return False
        return True

    def _may_try_again(self, peer: str, trouble: Trouble, gone: bool) -> bool:
        """Whether to carry something once more, after a pause; not to a peer that is lost."""
        if self._done.is_set() or trouble.is_final(gone, self._met[peer]):
            return False
        time.sleep(0.3)
        return True

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
                if trouble.is_final(error.gone, self._met[peer]):
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
                    self._outbox[peer].tell(Working())

    def _lose(self, peer: str) -> None:
        self._fail(peer if self._relayed() else RELAY, "it does not answer")

    def call_off(self, own: bool) -> None:
        """The engine ends the run: find out because of whom, while the others can be asked."""
        if own:
            self._fail(self.me, "its site process has gone")
        asked = [peer for peer in self.peers if peer not in self._ended]
        # All at once: the engine kills this process before slow answers add up.
        with ThreadPoolExecutor(max(1, len(asked))) as pool:
            answers = list(pool.map(self._answers, asked))
        for peer, here in zip(asked, answers, strict=True):
            if not here:
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


class Trouble:
    """How long something has not worked; final sooner where the engine knows the peer is gone."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._gone_since: float | None = None

    def is_final(self, gone: bool, heard: float = 0.0) -> bool:
        """Whether to give up; ``heard`` is when something of the peer last came."""
        now = time.monotonic()
        if heard > self._since:
            self._since, self._gone_since = heard, None
        self._gone_since = (self._gone_since or now) if gone else None
        sure = self._gone_since is not None and now - self._gone_since >= _GONE_SECONDS
        return sure or now - self._since >= _SILENT_SECONDS


def public_reason(error: BaseException) -> str:
    """What peers may know of an error: its kind, and what somebody there has to do."""
    if is_full(error):
        return "no space left in its runs folder"
    return str(getattr(error, "public", type(error).__name__))


def compare_envelopes(version: int) -> str:
    """What is wrong if a peer writes envelopes of another version."""
    older = "it must upgrade vfsl" if version < VERSION else "the others must upgrade vfsl"
    return f"its envelopes have version {version}, those here {VERSION}: {older}"
