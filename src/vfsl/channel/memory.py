"""Parties as threads of one process: the default, with nothing to set up."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque

from vfsl.channel.waiting import Wait, WaitGraph
from vfsl.errors import Deadlock, PeerClosed, PeerFailed, TimedOut


class Hub:
    """The queues between all parties of one run, and who has ended or failed."""

    def __init__(self, parties: tuple[str, ...]) -> None:
        self.parties = parties
        # One lock, and a bell for each party: a message wakes nobody but its receiver.
        self._lock = threading.Lock()
        self._bells = {party: threading.Condition(self._lock) for party in parties}
        self._queues: dict[tuple[str, str], deque[bytes]] = defaultdict(deque)
        self._posted: dict[str, Counter[str]] = {party: Counter() for party in parties}
        self._taken: dict[str, Counter[str]] = {party: Counter() for party in parties}
        self._waits = WaitGraph()
        self._ended: set[str] = set()
        self._failed: tuple[str, str] | None = None
        self._deadlock: str | None = None

    def transport(self, party: str) -> MemoryTransport:
        return MemoryTransport(self, party)

    def post(self, sender: str, to: str, frame: bytes) -> None:
        with self._lock:
            self._queues[sender, to].append(frame)
            self._posted[sender][to] += 1
            self._bells[to].notify_all()

    def take(self, party: str, sender: str, name: str, timeout: float | None) -> bytes:
        deadline = None if timeout is None else time.monotonic() + timeout
        queue = self._queues[sender, party]
        with self._lock:
            while not queue:
                self._raise_if_hopeless(party, sender, name)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimedOut(
                        f"{party!r} waited {timeout:g} s for {name!r} from {sender!r}.", sender
                    )
                self._bells[party].wait(left)
            self._waits.clear(party)
            self._taken[party][sender] += 1
            return queue.popleft()

    def end(self, party: str) -> None:
        with self._lock:
            self._ended.add(party)
            self._wake_all()

    def fail(self, party: str, reason: str) -> None:
        """Note the first failure; all parties that wait learn who it was."""
        with self._lock:
            if self._failed is None:
                self._failed = (party, reason)
            self._wake_all()

    def unread(self) -> tuple[str, str, int] | None:
        """A sender and receiver with messages that nobody took."""
        for (sender, receiver), queue in self._queues.items():
            if queue:
                return sender, receiver, len(queue)
        return None

    def _raise_if_hopeless(self, party: str, sender: str, name: str) -> None:
        if self._failed is not None:
            culprit, reason = self._failed
            raise PeerFailed(f"Party {culprit!r} failed ({reason}); {party!r} stops.", culprit)
        if sender in self._ended:
            raise PeerClosed(
                f"Party {sender!r} ended without sending {name!r} to {party!r}.", sender
            )
        wait = Wait(sender, name, self._taken[party][sender], dict(self._posted[party]))
        ring = self._waits.wait(party, wait)
        if ring is not None:
            self._deadlock = f"The parties wait for each other: {self._waits.describe(ring)}."
            self._wake_all()
        if self._deadlock is not None:
            raise Deadlock(self._deadlock, sender)

    def _wake_all(self) -> None:
        for bell in self._bells.values():
            bell.notify_all()


class MemoryTransport:
    """One party's end of a hub."""

    def __init__(self, hub: Hub, me: str) -> None:
        self.me = me
        self.peers = tuple(party for party in hub.parties if party != me)
        self._hub = hub

    def post(self, to: str, frame: bytes) -> None:
        self._hub.post(self.me, to, frame)

    def take(self, sender: str, name: str, timeout: float | None) -> bytes:
        return self._hub.take(self.me, sender, name, timeout)
