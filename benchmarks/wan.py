"""Runs in memory as they would go between places: bytes, rounds, and seconds on a slow line.

Whatever steps a job or a method has, each is one run of all its parties; their rounds and seconds
are counted by `vfsl.channel.count_rounds` and `estimate_seconds`, and add up. A delayed run really
waits for every message, to compare the calculation with.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vfsl.channel import Transcript, Transport, Venue, count_rounds, estimate_seconds, memory
from vfsl.channel.transcript import Event


@dataclass(frozen=True)
class Line:
    """What carries messages.

    Attributes
    ----------
    seconds : float
        From the last bit that leaves until it arrives.
    bits : float
        Per second out of each party, whose messages leave one after the other.
    """

    seconds: float
    bits: float


WAN = Line(seconds=0.05, bits=20e6)


@dataclass(frozen=True)
class Traffic:
    """What a run sent, and how long that takes on a line.

    Attributes
    ----------
    sent : mapping of party to int
        Bytes that left it.
    messages, rounds : int
    seconds : float
        Of the network alone, by calculation.
    """

    sent: Mapping[str, int] = field(default_factory=dict)
    messages: int = 0
    rounds: int = 0
    seconds: float = 0.0

    @property
    def megabytes(self) -> float:
        return sum(self.sent.values()) / 1e6

    def __add__(self, then: Traffic) -> Traffic:
        """Of both, one after the other."""
        return Traffic(
            Counter(self.sent) + Counter(then.sent),
            self.messages + then.messages,
            self.rounds + then.rounds,
            self.seconds + then.seconds,
        )


def add_up(traffic: Iterable[Traffic]) -> Traffic:
    """Of several runs, one after the other."""
    return sum(traffic, Traffic())


@contextmanager
def watch(line: Line = WAN, *, delayed: bool = False) -> Iterator[list[Traffic]]:
    """Watch every run in memory inside the block: the traffic of each, in order.

    ``delayed`` makes the receivers of messages wait as long as they would on that line.
    """
    runs: list[Traffic] = []
    before = memory.MEMORY
    memory.MEMORY = Venue(partial(_play, before, line, delayed, runs), shares_memory=True)
    try:
        yield runs
    finally:
        memory.MEMORY = before


class _Watched:
    """One party's end: it notes what passes and, if delayed, lets messages come late."""

    def __init__(
        self,
        inner: Transport,
        transcript: Transcript,
        line: Line | None,
        due: Mapping[tuple[str, str], deque[float]],
    ) -> None:
        self.me, self.peers = inner.me, inner.peers
        self._inner, self._transcript, self._line, self._due = inner, transcript, line, due
        self._free = 0.0  # when the line out of this party is free again

    def post(self, to: str, frame: bytes) -> None:
        self._transcript.events.append(Event(self.me, to, True, len(frame)))
        if self._line is not None:
            self._free = max(self._free, time.monotonic()) + 8 * len(frame) / self._line.bits
            self._due[self.me, to].append(self._free + self._line.seconds)
        self._inner.post(to, frame)

    def take(self, sender: str, name: str, timeout: float | None) -> bytes:
        frame = self._inner.take(sender, name, timeout)
        self._transcript.events.append(Event(self.me, sender, False, len(frame)))
        if self._line is not None:
            time.sleep(max(0.0, self._due[sender, self.me].popleft() - time.monotonic()))
        return frame


def _play(
    venue: Venue,
    line: Line,
    delayed: bool,
    runs: list[Traffic],
    bodies: Mapping[str, Callable[[Transport], Any]],
) -> dict[str, Any]:
    transcript = Transcript()
    due: dict[tuple[str, str], deque[float]] = {
        (sender, to): deque() for sender in bodies for to in bodies if sender != to
    }

    def work(party: str, transport: Transport) -> Any:
        return bodies[party](_Watched(transport, transcript, line if delayed else None, due))

    results = venue.play({party: partial(work, party) for party in bodies})
    if len(bodies) == 1:
        return results  # a party that works alone, inside another run: nothing to carry
    sent = Counter(dict.fromkeys(sorted(bodies), 0))
    for event in transcript.events:
        sent[event.party] += event.bytes * event.sends
    runs.append(
        Traffic(
            dict(sent),
            sum(event.sends for event in transcript.events),
            count_rounds(transcript),
            estimate_seconds(transcript, line.seconds, line.bits),
        )
    )
    return results
