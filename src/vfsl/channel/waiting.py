"""Finding deadlocks: who waits for whom, judged by message counts so that it is never wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
