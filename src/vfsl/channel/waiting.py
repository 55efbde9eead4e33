"""Waiting for a frame, and finding deadlocks: judged by message counts, so never wrong."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vfsl.errors import TimedOut


@dataclass(frozen=True)
class Wait:
    """A party's state at the moment when it found nothing to take."""

    sender: str
    name: str
    taken: int  # messages taken from that sender so far
    posted: Mapping[str, int]  # messages posted to each peer so far


def late_message(me: str, sender: str, name: str, seconds: float) -> TimedOut:
    """The error of a party whose patience has ended."""
    return TimedOut(f"{me!r} waited {seconds:g} s for {name!r} from {sender!r}.", sender)


class WaitGraph:
    """The latest wait of each party.

    A ring of waits is a deadlock if every party in it had already taken all that the next one had
    posted: the first to wake would need a message from one that is itself still waiting. Reports
    may therefore come late and in any order without a false alarm.
    """

    def __init__(self) -> None:
        self._waits: dict[str, Wait] = {}

    def wait(self, party: str, wait: Wait) -> list[str] | None:
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

    def clear(self, party: str) -> None:
        self._waits.pop(party, None)

    def describe(self, ring: list[str]) -> str:
        """The ring in words."""
        return "; ".join(
            f"{party!r} waits for {self._waits[party].name!r} from {self._waits[party].sender!r}"
            for party in ring
        )


def wait_for_frame(
    frames: deque[bytes],
    changed: threading.Condition,
    timeout: float | None,
    *,
    late: Callable[[float], TimedOut],
    check: Callable[[], None],
    report: Callable[[], None],
    report_after: float,
    heard: Callable[[], float] = lambda: 0.0,
) -> None:
    """Wait until there is a frame, ``changed`` being held; raises ``late`` after ``timeout``.

    Parameters
    ----------
    late : callable
        The error for a wait of so many seconds.
    check : callable
        Raises if no frame can come any more.
    report : callable
        Tells the others, once, that this party waits; called after ``report_after`` seconds.
    heard : callable
        When the others were last heard to get on: the deadline counts from there.
    """
    started = time.monotonic()
    reported = False
    while not frames:
        check()
        now = time.monotonic()
        left = None if timeout is None else max(started, heard()) + timeout - now
        if left is not None and left <= 0:
            raise late(timeout or 0.0)
        pause = None if reported else report_after - (now - started)
        if pause is not None and pause <= 0:
            reported, pause = True, None
            report()
        changed.wait(min((x for x in (left, pause) if x is not None), default=None))
