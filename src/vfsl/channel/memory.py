"""Parties as threads of one process: the default, with nothing to set up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from vfsl.channel.transport import (
    Failed,
    Mailbox,
    Transport,
    Venue,
    Wait,
    WaitGraph,
    find_cause,
    refuse_unread,
)


class MemoryTransport(Mailbox):
    """One party's end of a hub."""

    report_after = 0.0

    def __init__(self, me: str, hub: Hub) -> None:
        # One lock for all, and a bell for each party: a message wakes nobody but its receiver.
        peers = tuple(party for party in hub.parties if party != me)
        super().__init__(me, peers, threading.Condition(hub.lock))
        self._hub = hub

    def post(self, to: str, frame: bytes) -> None:
        receiver = self._hub.transport(to)
        with receiver._changed:
            receiver._inbox[self.me].append(frame)
            self._posted[to] += 1
            receiver._changed.notify_all()

    def count_unread(self, sender: str) -> int:
        return len(self._inbox[sender])

    def _report(self, wait: Wait) -> None:
        self._hub.note_wait(self.me, wait)


class Hub:
    """The transports of all parties that talk in this process."""

    def __init__(self, parties: tuple[str, ...]) -> None:
        self.parties = parties
        self.lock = threading.RLock()
        self._waits = WaitGraph()
        self._failed: Failed | None = None
        self._transports = {party: MemoryTransport(party, self) for party in parties}

    def transport(self, party: str) -> MemoryTransport:
        return self._transports[party]

    def end(self, party: str) -> None:
        self._tell("ended", party)

    def fail(self, party: str, reason: str) -> None:
        """Note the first failure; all parties that wait learn who it was."""
        with self.lock:
            self._failed = self._failed or Failed(party, reason)
            self._tell("failed", self._failed)

    def note_wait(self, party: str, wait: Wait) -> None:
        ring = self._waits.add(party, wait)
        if ring is not None:
            self._tell("deadlock", self._waits.describe(ring))

    def refuse_unread(self) -> None:
        for receiver, transport in self._transports.items():
            for sender in transport.peers:
                refuse_unread(receiver, sender, transport.count_unread(sender))

    def _tell(self, what: str, value: Any) -> None:
        with self.lock:
            for transport in self._transports.values():
                transport.learn(what, value)


def _play(bodies: Mapping[str, Callable[[Transport], Any]]) -> dict[str, Any]:
    hub = Hub(tuple(bodies))
    results: dict[str, Any] = {}
    errors: list[BaseException] = []

    def work(party: str) -> None:
        try:
            results[party] = bodies[party](hub.transport(party))
            hub.end(party)
        except BaseException as error:
            errors.append(error)
            hub.fail(party, type(error).__name__)

    threads = [
        threading.Thread(target=work, args=(party,), name=f"vfsl {party}", daemon=True)
        for party in bodies
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        # Ctrl-C: parties that wait stop now, those that compute stop at their next message.
        hub.fail("this run", "interrupted")
        raise
    if errors:
        raise find_cause(errors)
    hub.refuse_unread()
    return {party: results[party] for party in bodies}


MEMORY = Venue(_play, shares_memory=True)
