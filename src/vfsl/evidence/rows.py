"""Which rows each party has: the overlap, then the rows of each party alone; all nameless.

Training counts rows 0, 1, 2 … over all parties: first the overlap in the common order, then the own
rows of the label holder, then those of the next party. A party is only ever told numbers of its own
rows: overlap first, then its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vfsl.errors import ConfigError, DataError
from vfsl.federation import Federation
from vfsl.parts import Part, Rows
from vfsl.values import Array

Numbers = npt.NDArray[np.int64]
UNKNOWN = -1


@dataclass(frozen=True)
class Universe:
    """How many rows there are, and who has them.

    Attributes
    ----------
    parties : tuple of str
        The label holder first, then the others in the fixed order of fusing.
    overlap : int
        Rows that everybody has.
    own : dict of str to int
        Rows that only that party has.
    """

    parties: tuple[str, ...]
    overlap: int
    own: Mapping[str, int]

    @property
    def total(self) -> int:
        return self.overlap + sum(self.own.values())

    def start(self, party: str) -> int:
        """The number of that party's first own row."""
        before = self.parties[: self.parties.index(party)]
        return self.overlap + sum(self.own[other] for other in before)

    def whose(self, row: int) -> str:
        """The party that alone has this row, or "overlap"."""
        if row < self.overlap:
            return "overlap"
        # A party without own rows has the start of the next one, which comes later and wins.
        return [party for party in self.parties if self.start(party) <= row][-1]

    def local(self, party: str, rows: Numbers) -> Numbers:
        """The party's own numbers of these rows; −1 where it does not have the row."""
        first = self.start(party)
        mine = (rows >= first) & (rows < first + self.own[party])
        numbers = np.where(mine, rows - first + self.overlap, -1)
        return np.where(rows < self.overlap, rows, numbers).astype(np.int64)


def deal(rows: Numbers, batch_size: int, rng: np.random.Generator) -> list[Numbers]:
    """The rows in a new order, in batches of nearly equal size."""
    if not len(rows):
        return []
    return list(np.array_split(rng.permutation(rows), -(-len(rows) // batch_size)))


@dataclass(frozen=True)
class WholePart(Part):
    """A part of the data with the rows that only this party has, and at the label holder their
    labels. Unknown labels are None."""

    own: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    own_target: Array | None = None

    @property
    def all_rows(self) -> Rows:
        return np.concatenate([self.rows, self.own]).astype(np.int64)


def whole_parts(fed: Federation, label: tuple[str, str]) -> dict[str, WholePart]:
    """Every party's overlap and own rows; labels at the label holder only."""
    parts = {}
    for party, part in fed.parts(label).items():
        own = fed.share(party).rest
        target = None
        if party == label[0]:
            cells = fed.tables[party].column(label[1]).iloc[own]
            target = np.array(cells.astype(object).where(cells.notna(), None), dtype=object)
        if not len(part.table.features):
            raise DataError(f"Party {party!r} has no columns to learn from.")
        parts[party] = WholePart(part.table, part.rows, part.target, own=own, own_target=target)
    return parts


def class_codes(party: str, target: Array, own_target: Array) -> tuple[list[Any], Numbers]:
    """The classes, and the label of each overlap and own row of the label holder as a number."""
    cells = np.concatenate([np.asarray(target, object), np.asarray(own_target, object)])
    known = ~pd.isna(cells)
    classes = sorted(set(cells[known].tolist()))
    if len(classes) < 2:
        raise DataError(
            f"RISA needs at least two classes among the labels of party {party!r}; there "
            f"{'is' if len(classes) == 1 else 'are'} {len(classes)}."
        )
    if not known[: len(target)].any():
        raise DataError(
            f"Party {party!r} has no label on any of its {len(target)} overlap rows; the other "
            "parties can learn from labelled overlap rows only."
        )
    codes = np.full(len(cells), UNKNOWN, dtype=np.int64)
    codes[known] = pd.Index(classes, dtype=object).get_indexer(pd.Index(cells[known], dtype=object))
    return classes, codes


def codes_in(party: str, target: Array, classes: list[Any]) -> Numbers:
    """Labels as numbers by known classes; DataError for a label that training never saw."""
    cells = np.asarray(target, dtype=object)
    known = ~pd.isna(cells)
    codes = np.full(len(cells), UNKNOWN, dtype=np.int64)
    found = pd.Index(classes, dtype=object).get_indexer(pd.Index(cells[known], dtype=object))
    if (found < 0).any():
        raise DataError(
            f"{int((found < 0).sum())} labels of party {party!r} are not among the "
            f"{len(classes)} classes of training."
        )
    codes[known] = found
    return codes


def check_overlap(parties: tuple[str, ...], overlap: int) -> None:
    if len(parties) < 2:
        raise ConfigError(f"RISA needs at least two parties. Got {len(parties)} instead.")
    if overlap == 0:
        raise DataError(
            f"The parties {', '.join(map(repr, parties))} have no row in common; RISA needs "
            "overlap rows to learn from more than one party."
        )
