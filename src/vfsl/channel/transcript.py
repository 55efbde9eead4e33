"""Who sent what to whom: every message of a run, and what each receiver saw of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from vfsl.mechanisms import add_up, find_epsilon
from vfsl.record import Flow, Shown

Belongs = Callable[[str], bool]


@dataclass(frozen=True)
class Entry:
    """One message that left a party."""

    sequence: int
    sender: str
    receiver: str
    name: str  # with its scope: "train/round 7/residual"
    kind: str
    bytes: int
    seconds: float  # since the epoch, so that entries of several processes can be merged
    fact: str

    @property
    def message(self) -> str:
        """The declared name, without the scope."""
        return self.name.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Release:
    """Exact numbers about a party's own rows that it let a peer see at one time."""

    sender: str
    receiver: str
    what: str
    about: str
    numbers: int
    counted: int
    scope: str = ""
    spent: tuple[float, ...] = ()  # by a mechanism that made the numbers inexact


@dataclass(frozen=True)
class Sight:
    """One message as its receiver saw it, kept only where a test or an audit asks for views."""

    receiver: str
    sender: str
    name: str
    kind: str
    body: bytes


@dataclass(frozen=True)
class Opening:
    """What a party could read after a protocol opened it to the party, kept as a `Sight` is."""

    party: str
    name: str  # with its scope
    values: Any


@dataclass(frozen=True)
class Event:
    """A message that a party sent to a peer or took from it, without its content."""

    party: str
    peer: str
    sends: bool
    bytes: int


class Transcript:
    """Collects the messages of a run from all channels that write to it.

    Parameters
    ----------
    keep_views : bool
        Also keep the opened bytes that each party received and what it could read after masks were
        taken off, for privacy tests and audits.
    listen : callable, optional
        Hears the name of each message when it is sent, for progress displays.
    """

    def __init__(
        self, *, keep_views: bool = False, listen: Callable[[str], None] | None = None
    ) -> None:
        self.keep_views = keep_views
        self._listen = listen
        self.entries: list[Entry] = []
        self.sights: list[Sight] = []
        self.releases: list[Release] = []
        self.openings: list[Opening] = []
        self.events: list[Event] = []  # each party's in its own order
        self._lock = threading.Lock()

    def note_sent(
        self, sender: str, receiver: str, name: str, kind: str, size: int, fact: str
    ) -> None:
        with self._lock:
            number = len(self.entries)
            self.entries.append(
                Entry(number, sender, receiver, name, kind, size, time.time(), fact)
            )
            self.events.append(Event(sender, receiver, True, size))
        if self._listen is not None:
            self._listen(name)

    def note_released(self, release: Release) -> None:
        with self._lock:
            self.releases.append(release)

    def note_seen(self, receiver: str, sender: str, name: str, kind: str, body: bytes) -> None:
        with self._lock:
            self.events.append(Event(receiver, sender, False, len(body)))
            if self.keep_views:
                self.sights.append(Sight(receiver, sender, name, kind, body))

    def note_opened(self, party: str, name: str, values: Any) -> None:
        if self.keep_views:
            with self._lock:
                self.openings.append(Opening(party, name, values))

    def merge(
        self,
        entries: Iterable[Entry],
        sights: Iterable[Sight],
        releases: Iterable[Release],
        events: Iterable[Event],
        openings: Iterable[Opening] = (),
    ) -> None:
        """Take in what another process recorded, in the order of time."""
        with self._lock:
            together = sorted([*self.entries, *entries], key=lambda entry: entry.seconds)
            self.entries = [replace(entry, sequence=i) for i, entry in enumerate(together)]
            self.sights.extend(sights)
            self.releases.extend(releases)
            self.events.extend(events)
            self.openings.extend(openings)

    def view(self, party: str) -> list[tuple[str, str, bytes]]:
        """What one party received: (sender, name, bytes), by sender in the order of arrival."""
        mine = [(s.sender, s.name, s.body) for s in self.sights if s.receiver == party]
        return sorted(mine, key=lambda sight: sight[0])

    def flows(self, step: str, belongs: Belongs | None = None) -> tuple[Flow, ...]:
        """Messages summed up by sender, receiver and declared name, in order of appearance.

        ``belongs`` says of a message's name whether it is one of them; all are by default.
        """
        sums: dict[tuple[str, str, str, str, str], list[int]] = {}
        for entry in self.entries:
            if belongs is None or belongs(entry.name):
                line = (entry.sender, entry.receiver, entry.message, entry.kind, entry.fact)
                counts = sums.setdefault(line, [0, 0])
                counts[0] += 1
                counts[1] += entry.bytes
        return tuple(
            Flow(step, sender, receiver, message, kind, messages, size, fact)
            for (sender, receiver, message, kind, fact), (messages, size) in sums.items()
        )

    def shown(self, step: str, belongs: Belongs | None = None) -> tuple[Shown, ...]:
        """The numbers that were shown, summed up by who showed whom what; ε of noisy ones."""
        sums: dict[tuple[str, str, str, str], list[int]] = {}
        spent: dict[tuple[str, str, str, str], tuple[float, ...]] = {}
        for one in self.releases:
            if belongs is None or belongs(one.scope):
                line = (one.sender, one.receiver, one.what, one.about)
                counts = sums.setdefault(line, [0, 0])
                spent[line] = add_up([spent.get(line, ()), one.spent])
                counts[0] += one.numbers
                counts[1] += one.counted
        return tuple(
            Shown(step, *line, numbers, counted, find_epsilon(spent[line]))
            for line, (numbers, counted) in sums.items()
        )
