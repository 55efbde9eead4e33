"""How many exact numbers each peer has seen of this party's columns and labels, over all runs.

Roles say what they are about to show (`Channel.release`); here it is counted, or refused, before it
is sent. The counts lie in ``budget.json`` of the party's own folder, written and synced before the
numbers leave, so neither a crash nor a new run begins from zero.

- **Unit**: one number of 32 bits. **Limit**: ``limits.numbers`` of party.toml times the numbers
  hidden, rows of the run × columns that they are about; a label is one column.
- **Key**: the peer and the *names* of columns. A table that changes gets a line of its own, so that
  one sees it, and the numbers of all lines that share a column count together: touching a file,
  or adding a column, buys nothing.
- Numbers with the noise of a mechanism are no exact ones. What they spend is added up on the same
  lines, as divergences, and ``limits.epsilon`` bounds the ε that the sums come to.
- A further attempt of a run is counted again: this party cannot know that a peer, who may have
  changed its part, will see the same numbers. What is finished is not shown again.
"""

from __future__ import annotations

import fcntl
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vfsl.channel import About
from vfsl.data.checks import counted
from vfsl.errors import ConfigError, LimitReached, StoreError
from vfsl.mechanisms import add_up, find_epsilon
from vfsl.record import fingerprint
from vfsl.store import read_json, write_json

BUDGET_FILE = "budget.json"
_LOCK_FILE = ".budget.lock"
_VERSION = 1
NEAR = 0.8  # of the limit: people are told


@dataclass(frozen=True)
class Line:
    """What one peer has seen about some columns of one state of the table.

    Attributes
    ----------
    peer : str
    columns : tuple of str
        Their names, sorted.
    table : str
        The table's keyed fingerprint.
    seen, limit : int
        Exact numbers; the limit is that of the last run.
    runs : tuple of str
    once : tuple of str
        Keyed digests of what was counted as a whole and is not counted again.
    last : str
        When something was shown last.
    spent : tuple of float
        What noisy numbers cost so far, at each of `vfsl.mechanisms.ORDERS`; empty: nothing.
    """

    peer: str
    columns: tuple[str, ...]
    table: str
    seen: int
    limit: int
    runs: tuple[str, ...]
    once: tuple[str, ...]
    last: str
    spent: tuple[float, ...] = ()


@dataclass(frozen=True)
class Hidden:
    """What a run could tell a peer about: so many rows of these columns."""

    columns: tuple[str, ...]
    rows: int

    @property
    def numbers(self) -> int:
        return self.rows * len(self.columns)


@dataclass(frozen=True)
class Sum:
    """All that one peer has seen about columns that have one in common with these."""

    peer: str
    columns: tuple[str, ...]
    seen: int
    limit: int
    runs: int
    last: str
    epsilon: float = 0.0  # of noisy numbers

    @property
    def share(self) -> float:
        """Of the limit."""
        return self.seen / self.limit if self.limit else float(self.seen > 0)


class KeptBudget:
    """The counts in a party's folder.

    Parameters
    ----------
    folder : Path
        The party's own.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / BUDGET_FILE
        self._lock = folder / _LOCK_FILE

    def lines(self) -> list[Line]:
        """Everything that was counted, oldest first."""
        if not self.path.exists():
            return []
        content = read_json(self.path)
        try:
            if content["version"] != _VERSION:
                raise ValueError("another version")
            return [_line(one) for one in content["lines"]]
        except (TypeError, KeyError, ValueError):
            # A damaged record must not open the door: refuse rather than start from zero.
            raise StoreError(f"{self.path} is damaged: it is not a budget.") from None

    def sums(self) -> list[Sum]:
        """One for each peer and set of columns, over all states of the table."""
        lines = self.lines()
        keys = dict.fromkeys((line.peer, line.columns) for line in lines)
        return [_sum(lines, *key) for key in keys]

    def sum(self, peer: str, columns: Sequence[str]) -> Sum:
        """What counts against the limit where the peer is to see more about these columns."""
        return _sum(self.lines(), peer, tuple(sorted(columns)))

    @contextmanager
    def changing(self) -> Iterator[list[Line]]:
        """The lines, to be changed by one process at a time and written when that went well."""
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lines = self.lines()
            before = list(lines)
            yield lines
            if lines != before:
                content = {"version": _VERSION, "lines": [asdict(line) for line in lines]}
                write_json(self.path, content)


@dataclass(frozen=True)
class RunBudget:
    """The budget as the channel of one run uses it: a `vfsl.channel.Budget`.

    Parameters
    ----------
    kept : KeptBudget
    me, run : str
    table : str
        The table's keyed fingerprint.
    key : bytes
        Of fingerprints.
    share : float
        ``limits.numbers`` of party.toml.
    hidden : mapping of "columns" and "label"
        What the step could tell about each.
    epsilon : float
        ``limits.epsilon`` of party.toml.
    """

    kept: KeptBudget
    me: str
    run: str
    table: str
    key: bytes
    share: float
    hidden: Mapping[About, Hidden]
    epsilon: float = math.inf

    def charge(
        self,
        peer: str,
        what: str,
        numbers: int,
        about: About,
        once: bytes | None,
        spent: Sequence[float] = (),
    ) -> None:
        """Count what the peer is about to see; LimitReached if it would be too much."""
        if about not in self.hidden:
            raise ConfigError(f"{self.me!r} has no {about} that {what} could tell {peer!r} about.")
        hidden = self.hidden[about]
        mark = fingerprint(self.key, once, peer.encode()) if once is not None else None
        with self.kept.changing() as lines:
            related = [line for line in lines if _related(line, peer, hidden.columns)]
            if mark is not None and any(mark in line.once for line in related):
                return
            limit = limit_of(hidden, self.share)
            if sum(line.seen for line in related) + numbers > limit:
                before = _sum(lines, peer, hidden.columns)
                raise LimitReached(self._refusal(before, what, numbers, limit, hidden), peer)
            total = find_epsilon(add_up([*(line.spent for line in related), spent]))
            if spent and total > self.epsilon:
                raise LimitReached(self._noisy_refusal(lines, peer, what, total, hidden), peer)
            self._add(lines, peer, hidden.columns, numbers, limit, mark, spent)

    def _add(
        self,
        lines: list[Line],
        peer: str,
        columns: tuple[str, ...],
        numbers: int,
        limit: int,
        mark: str | None,
        spent: Sequence[float],
    ) -> None:
        key = (peer, columns, self.table)
        place = next(
            (at for at, one in enumerate(lines) if (one.peer, one.columns, one.table) == key), None
        )
        line = Line(*key, 0, limit, (), (), "") if place is None else lines.pop(place)
        lines.append(
            replace(
                line,
                seen=line.seen + numbers,
                limit=limit,
                runs=tuple(dict.fromkeys((*line.runs, self.run))),
                once=line.once if mark is None else (*line.once, mark),
                last=datetime.now(UTC).isoformat(timespec="seconds"),
                spent=add_up([line.spent, spent]),
            )
        )

    def _noisy_refusal(
        self, lines: Sequence[Line], peer: str, what: str, total: float, hidden: Hidden
    ) -> str:
        before, names = _sum(lines, peer, hidden.columns), _named(hidden.columns)
        return (
            f"{self.me!r} does not show {peer!r} further noisy numbers ({what}) about {names}: "
            f"they would bring ε to {total:.1f} from {before.epsilon:.1f} over "
            f"{counted(before.runs, 'run')}, and the limit is {self.epsilon:g}. Raise "
            "limits.epsilon in party.toml, or ask for more noise."
        )

    def _refusal(self, before: Sum, what: str, numbers: int, limit: int, hidden: Hidden) -> str:
        names = _named(hidden.columns)
        return (
            f"{self.me!r} does not show {before.peer!r} {numbers:,} further exact numbers ({what}) "
            f"about {names}: it has seen {before.seen:,} over {counted(before.runs, 'run')}, and "
            f"the limit is {limit:,}, {self.share:g} of the {hidden.numbers:,} that "
            f"{counted(hidden.rows, 'row')} hide. {what_to_do(before.peer, names)}"
        )


def limit_of(hidden: Hidden, share: float) -> int:
    """The most exact numbers that a peer may see."""
    return int(share * hidden.numbers)


def what_to_do(peer: str, names: str) -> str:
    """What a party can do that has reached a limit."""
    return (
        f"Raise limits.numbers in party.toml if you accept that {peer!r} could solve for {names}; "
        "or use refine=0, fewer rounds, bags, classes or columns at once."
    )


def near_limit(folder: Path) -> list[str]:
    """A sentence for each peer that has seen nearly as much as it may."""
    return [
        f"Budget: {one.peer} has seen {one.share:.0%} of the exact numbers that it may see about "
        f"{_named(one.columns)}; look at it by: vfsl budget --folder {folder}"
        for one in KeptBudget(folder).sums()
        if one.share >= NEAR
    ]


def _sum(lines: Sequence[Line], peer: str, columns: tuple[str, ...]) -> Sum:
    related = [line for line in lines if _related(line, peer, columns)]
    same = [line for line in related if line.columns == columns]
    return Sum(
        peer,
        columns,
        sum(line.seen for line in related),
        same[-1].limit if same else 0,
        len({run for line in related for run in line.runs}),
        max((line.last for line in related), default=""),
        find_epsilon(add_up([line.spent for line in related])),
    )


def _related(line: Line, peer: str, columns: Sequence[str]) -> bool:
    return line.peer == peer and not set(line.columns).isdisjoint(columns)


def _line(content: Mapping[str, Any]) -> Line:
    lists = {name: tuple(map(str, content[name])) for name in ("columns", "runs", "once")}
    spent = tuple(map(float, content.get("spent", ())))
    line = Line(**{**content, **lists, "spent": spent})
    if not isinstance(line.seen, int) or line.seen < 0:
        raise ValueError("no count")
    return line


def _named(columns: Sequence[str]) -> str:
    """'y', 'a and b', or '12 columns'."""
    if len(columns) > 3:
        return f"{len(columns)} columns"
    return " and ".join(map(repr, columns))
