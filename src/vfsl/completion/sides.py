"""What each party brings to completion, and what its models learn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from vfsl.align import RowShare
from vfsl.channel import Player
from vfsl.data import Encoder, Kind, PartyTable
from vfsl.errors import ConfigError
from vfsl.parts import Part, Roles, Rows
from vfsl.values import Array

_FARTHEST = 8.0


@dataclass(frozen=True, eq=False)
class Side:
    """One party's table and its rows: the common ones in the common order, then its others.

    The missing party has no row for the given party's remaining ones; its ``rest`` is empty.
    """

    table: PartyTable
    overlap: Rows
    rest: Rows

    @property
    def rows(self) -> Rows:
        """Common rows first, then the others."""
        return np.concatenate([self.overlap, self.rest])


class Completable(Protocol):
    """What completion needs of a federation."""

    @property
    def tables(self) -> Mapping[str, PartyTable]: ...

    def roles(self, label_holder: str, work: str) -> Roles: ...

    def parts(self, label: tuple[str, str], weights: Array | None = None) -> dict[str, Part]: ...

    def private_rng(self, party: str, purpose: str) -> np.random.Generator: ...

    def run(
        self, step: str, roles: Mapping[str, Player], settings: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Any]: ...

    @property
    def plan(self) -> Any: ...

    def align(self, *parties: str) -> Any: ...

    def share(self, party: str) -> RowShare: ...

    def plays(self, party: str) -> bool: ...


def check_pair(given: str, missing: str, aligned: Iterable[str]) -> None:
    """Refuse an alignment with a third party: its rest would hold rows that both parties have."""
    others = [party for party in aligned if party not in (given, missing)]
    if others:
        raise ConfigError(
            f"Completion needs an alignment of {given} and {missing} alone, or values would be "
            f"made up for rows that {missing} has and {others[0]} lacks; align {given} and "
            f"{missing} in a step of their own before completing."
        )


def plain_table(party: str, columns: dict[str, Array], rows: int) -> PartyTable:
    """A table of numbers without ids of its own."""
    frame = pd.DataFrame(columns, index=pd.RangeIndex(rows))
    ids = np.array([str(row) for row in range(rows)], dtype=object)
    return PartyTable(party, ids, frame, dict.fromkeys(columns, Kind.NUMERIC))


@dataclass(frozen=True, eq=False)
class Components:
    """The given party's columns as a few numbers, by what it learned from all of its own rows.

    A linear model on as many columns as rows would show the given party the other's residuals, so
    few common rows allow few columns. Its own principal components keep most of what they say, and
    the rows that are not common help to find them.
    """

    encoder: Encoder
    centre: Array
    directions: Array  # (components, encoded columns)

    @classmethod
    def fit(cls, table: PartyTable, common: int, most: int) -> Components:
        """At most so many components of a table whose first rows are the common ones."""
        encoder = Encoder(missing="impute").fit(table)
        matrix = _clipped(encoder.transform(table).matrix)
        centre = matrix.mean(axis=0)
        directions = np.eye(matrix.shape[1])
        if matrix.shape[1] > most:
            _, _, found = np.linalg.svd(matrix - centre, full_matrices=False)
            # The sign of a direction is arbitrary; its largest entry decides, so that runs repeat.
            largest = np.abs(found[:most]).argmax(axis=1)
            signs = np.sign(found[np.arange(most), largest])
            directions = found[:most] * signs[:, None]
        # In units of the common rows, which is what models learn from.
        deviation = ((matrix[:common] - centre) @ directions.T).std(axis=0)
        varied = deviation > 1e-6
        return cls(encoder, centre, directions[varied] / deviation[varied, None])

    def transform(self, table: PartyTable) -> PartyTable:
        """The components of a table's rows."""
        matrix = _clipped(self.encoder.transform(table).matrix) - self.centre
        matrix = _clipped(matrix @ self.directions.T)
        columns = {f"component {place}": matrix[:, place] for place in range(matrix.shape[1])}
        return plain_table(table.party, columns, len(matrix))


def _clipped(matrix: Array) -> Array:
    # A row dozens of deviations out would be predicted as far out, past what a linear protocol
    # holds.
    return np.clip(matrix, -_FARTHEST, _FARTHEST)


def principal(side: Side, most: int) -> tuple[Side, Components]:
    """The given party's side by at most so many components."""
    table = side.table.take(side.rows)
    common = len(side.overlap)
    found = Components.fit(table, common, most)
    made = found.transform(table)
    numbers = np.arange(len(made), dtype=np.int64)
    return Side(made, numbers[:common], numbers[common:]), found


def context_table(
    party: str, context: PartyTable | None, rows: int, without: list[str], *, placeholder: bool
) -> PartyTable:
    """The missing party's own columns for all rows: preliminary ones, or none.

    With ``placeholder`` a column that no tree can split on stands in for none: it differs in two
    rows, and splits need ten. Two, since one of them is held out of a part of a cross-fit.
    """
    kept = [] if context is None else [name for name in context.features if name not in without]
    if context is not None and kept:
        return context.without([name for name in context.columns if name not in kept])
    columns = {"no column": (np.arange(rows) < 2).astype(np.float64)} if placeholder else {}
    return plain_table(party, columns, rows)
