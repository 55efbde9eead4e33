"""The seam under every channel: frames of bytes between named parties, in order.

Also here: what our transports have in common. They wait for frames, learn who has ended or failed,
and find deadlocks, which are judged by message counts and so never wrong.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from vfsl.errors import ChannelError, Deadlock, PeerClosed, PeerFailed, TimedOut

if TYPE_CHECKING:
    from vfsl.channel.sealing import NoteSession

RELAY = "the relay"


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


@runtime_checkable
class NotingTransport(Transport, Protocol):
    """A transport with notes of its own, which a relay must not be able to write."""

    def seal_notes(self, peer: str, keys: NoteSession) -> None:
        """The handshake with a peer has ended: from now on notes between the two are sealed."""


@dataclass(frozen=True)
class Venue:
    """A place where parties run together, as ``run_together(on=...)`` names it.

    Attributes
    ----------
    play : callable
        ``play(bodies)`` calls one body per party with that party's transport, all at once, and
        returns their results by party. The error of the party that failed first is raised; its
        peers stop with PeerFailed, which names it.
    shares_memory : bool
        Whether the parties run in this process. If not, bodies and their results must pickle.
    """

    play: Callable[[Mapping[str, Callable[[Transport], Any]]], dict[str, Any]]
    shares_memory: bool


@dataclass(frozen=True)
class Failed:
    """Somebody has failed, and why; not ``sure`` where the relay may have made that up."""

    culprit: str
    reason: str
    sure: bool = True

    @property
    def named(self) -> str:
        """Whom to name."""
        return self.culprit if self.sure or self.culprit == RELAY else f"{RELAY} or {self.culprit}"


@dataclass(frozen=True)
class Wait:
    """A party's state at the moment when it found nothing to take."""

    sender: str
    name: str
    taken: int  # messages taken from that sender so far
    posted: Mapping[str, int]  # messages posted to each peer so far


class WaitGraph:
    """The latest wait of each party.

    A ring of waits is a deadlock if every party in it had already taken all that the next one had
    posted: the first to wake would need a message from one that is itself still waiting. Reports
    may therefore come late and in any order without a false alarm.
    """

    def __init__(self) -> None:
        self._waits: dict[str, Wait] = {}

    def add(self, party: str, wait: Wait) -> list[str] | None:
        """Note that ``party`` waits; the parties of the ring that it closes, if any."""
        self._waits[party] = wait
        ring = [party]
        while True:
            last = self._waits[ring[-1]]
            ahead = self._waits.get(last.sender)
            if ahead is None or ahead.posted.get(ring[-1], 0) != last.taken:
                return None
            if last.sender in ring:
                return ring[ring.index(last.sender) :]
            ring.append(last.sender)

    def describe(self, ring: list[str]) -> str:
        """The ring in words."""
        waits = "; ".join(
            f"{party!r} waits for {self._waits[party].name!r} from {self._waits[party].sender!r}"
            for party in ring
        )
        return f"The parties wait for each other: {waits}."


class Mailbox(ABC):
    """The frames that have come for one party, and what it knows of its peers."""

    # Seconds of waiting before a party reports it.
    report_after: ClassVar[float]

    def __init__(
        self, me: str, peers: tuple[str, ...], changed: threading.Condition | None = None
    ) -> None:
        self.me = me
        self.peers = peers
        self._changed = changed or threading.Condition()
        self._inbox: dict[str, deque[bytes]] = {peer: deque() for peer in peers}
        self._posted: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        self._ended: set[str] = set()
        self._failed: Failed | None = None
        self._deadlock: str | None = None
        self._heard = 0.0  # when a peer last showed progress; deadlines count from there

    def take(self, sender: str, name: str, timeout: float | None) -> bytes:
        started, reported = time.monotonic(), False
        frames = self._inbox[sender]
        with self._changed:
            while not frames:
                self._raise_if_hopeless(sender, name)
                now = time.monotonic()
                if not reported and now - started >= self.report_after:
                    reported = True
                    self._report(Wait(sender, name, self._taken[sender], dict(self._posted)))
                    continue
                pauses = [] if reported else [self.report_after - (now - started)]
                if timeout is not None:
                    pauses.append(max(started, self._heard) + timeout - now)
                    if pauses[-1] <= 0:
                        raise TimedOut(
                            f"{self.me!r} waited {timeout:g} s for {name!r} from {sender!r}.",
                            sender,
                        )
                self._changed.wait(min(pauses, default=None))
            self._taken[sender] += 1
            return frames.popleft()

    def learn(self, what: str, value: Any) -> None:
        """News of the others: who has "ended", who "failed" (the first counts), a "deadlock"."""
        with self._changed:
            if what == "ended":
                self._ended.add(value)
            elif what == "failed":
                self._failed = self._failed or value
            elif what == "deadlock":
                self._deadlock = value
            self._changed.notify_all()

    @abstractmethod
    def _report(self, wait: Wait) -> None:
        """Tell whoever looks for deadlocks that this party waits; called once, with the lock."""

    def _is_closed(self, sender: str) -> bool:
        """Whether no further frame of a sender will come."""
        return sender in self._ended

    def _raise_if_failed(self) -> None:
        if self._failed is not None:
            culprit, reason = self._failed.named, self._failed.reason
            raise PeerFailed(f"Party {culprit!r} failed ({reason}); {self.me!r} stops.", culprit)

    def _raise_if_hopeless(self, sender: str, name: str) -> None:
        self._raise_if_failed()
        if self._is_closed(sender):
            raise PeerClosed(
                f"Party {sender!r} ended without sending {name!r} to {self.me!r}.", sender
            )
        if self._deadlock is not None:
            raise Deadlock(self._deadlock, sender)


def closed_before_sending(me: str, to: str) -> PeerClosed:
    """The error of a party that finds no receiver any more."""
    return PeerClosed(f"Party {to!r} ended before {me!r} could send to it.", to)


def refuse_unread(receiver: str, sender: str, count: int) -> None:
    """A message that nobody took means that the roles do not fit each other."""
    if count:
        raise ChannelError(
            f"{receiver!r} ended with {count} messages of {sender!r} that it never received.",
            sender,
        )


def find_cause(errors: Iterable[BaseException]) -> BaseException:
    """The first error that is not merely the echo of another party's."""
    first, *more = errors
    return next((one for one in (first, *more) if not isinstance(one, PeerFailed)), first)
