"""What a step works with at each party: who plays which role, which rows, its part of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vfsl.data import Kind, PartyTable
from vfsl.data.codes import as_floats
from vfsl.errors import ConfigError
from vfsl.values import Array

Rows = npt.NDArray[np.int64]


def no_rows() -> Rows:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Roles:
    """Who plays which role, under which scheme; the same for all parties of a step."""

    label_holder: str
    feature_holders: tuple[str, ...]
    key_holder: str
    scheme: str = "bfv"
    security: int = 128

    def __post_init__(self) -> None:
        if len({*self.everyone}) != len(self.everyone):
            raise ConfigError(f"Each role needs a party of its own. Got {self.everyone} instead.")

    @property
    def data_holders(self) -> tuple[str, ...]:
        """All parties with columns, in the fixed order in which sums are formed."""
        return (self.label_holder, *self.feature_holders)

    @property
    def everyone(self) -> tuple[str, ...]:
        return (*self.data_holders, self.key_holder)

    def list_absences(self) -> list[tuple[str, ...]]:
        """Which feature holders may be offline: none, each one of them, all of them."""
        each = [(party,) for party in self.feature_holders]
        return [(), *each, *([self.feature_holders] if len(each) > 1 else [])]

    def without(self, offline: Sequence[str]) -> Roles:
        """The roles that are left if these feature holders take no part."""
        present = tuple(party for party in self.feature_holders if party not in offline)
        return replace(self, feature_holders=present)


@dataclass(frozen=True, eq=False)
class Part:
    """What one party brings to a step: its own table and rows.

    Attributes
    ----------
    table : PartyTable
    rows : array of int
        The common rows, in the common order.
    target, weights : array or None
        Of the common rows; only at the label holder.
    rest : array of int
        The rows that only this party has, where a step uses them.
    rest_target : array or None
        Of these; only at the label holder. Unknown labels are None.
    """

    table: PartyTable
    rows: Rows
    target: Array | None = None
    weights: Array | None = None
    rest: Rows = field(default_factory=no_rows)
    rest_target: Array | None = None

    @property
    def all_rows(self) -> Rows:
        """The common rows, then the others."""
        return np.concatenate([self.rows, self.rest]).astype(np.int64)


def labels_of(table: PartyTable, column: str, rows: Rows) -> Array:
    """The cells of a label; unknown ones are None."""
    cells = table.column(column).iloc[rows]
    return np.array(cells.astype(object).where(cells.notna(), None), dtype=object)


@dataclass(frozen=True)
class ModelShare:
    """One party's part of a fitted model, which never leaves it; the state is plain JSON values."""

    party: str
    model: str
    state: Mapping[str, Any]
    rounds: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str | None = None
    notes: tuple[str, ...] = field(default=())
    # The label holder's scores of the training rows, where the protocol shows them anyway, and at
    # every party which rows these were; neither is saved with the model.
    scores: Array | None = field(default=None, repr=False, compare=False)
    seen: Seen | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, without what is known of training rows."""
        return {
            "party": self.party,
            "model": self.model,
            "state": dict(self.state),
            "rounds": list(self.rounds),
            "stop_reason": self.stop_reason,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ModelShare:
        """The share whose ``to_dict`` this is; completion once kept shares without their rounds."""
        listed = {name: tuple(content[name]) for name in ("rounds", "notes") if name in content}
        return cls(**{**content, **listed})


def places_in_training(
    shares: Mapping[str, ModelShare], parts: Mapping[str, Part], label_holder: str
) -> Rows:
    """For each row of the parts its place among the training rows, −1 for a new row.

    A row is known if the label holder has kept its score and every party has the features that it
    had at that place: the score is then the same. Each party looks at its own rows only; who asks
    for a prediction learns nothing but which rows are to be scored.
    """
    held = shares[label_holder]
    rows = parts[label_holder].rows
    if held.scores is None or held.seen is None:
        return np.full(len(rows), -1)
    places = held.seen.places(rows)
    for party, part in parts.items():
        seen = shares[party].seen if party in shares else None
        if seen is None or len(seen.rows) != len(held.seen.rows):
            return np.full(len(rows), -1)
        places = np.where(seen.same(places, part.table, part.rows), places, -1)
    return places


def scores_with_kept(held: ModelShare, places: Rows, answer: Array | None) -> Array:
    """Scores of all rows: kept ones of training rows, and for the others what was answered."""
    if held.scores is None:
        return np.asarray(answer)
    scores, new = np.asarray(held.scores[places]), places < 0
    if new.any():
        scores[new] = answer
    return scores


Marks = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Seen:
    """One party's training rows in the common order, known to that party only.

    Attributes
    ----------
    rows : array of int
        Their numbers in its table.
    marks : array of uint64
        A hash of each row's features.
    """

    rows: npt.NDArray[np.int64]
    marks: Marks

    @classmethod
    def of(cls, table: PartyTable, rows: Array) -> Seen:
        return cls(np.asarray(rows, dtype=np.int64), mark_rows(table, rows))

    def places(self, rows: Array) -> npt.NDArray[np.int64]:
        """Where in the training each row of the same table was, −1 for one that was not there."""
        if not len(self.rows):
            return np.full(len(rows), -1)
        order = np.argsort(self.rows, kind="stable")
        near = np.minimum(np.searchsorted(self.rows, rows, sorter=order), len(order) - 1)
        found = order[near]
        return np.where(self.rows[found] == rows, found, -1)

    def same(self, places: Array, table: PartyTable, rows: Array) -> npt.NDArray[np.bool_]:
        """Whether rows have the features that the training had at these places."""
        here = places >= 0
        if not here.any():
            return np.asarray(here)
        kept = self.marks[np.where(here, places, 0)]
        return np.asarray(here & (kept == mark_rows(table, rows)))


def mark_rows(table: PartyTable, rows: Array) -> Marks:
    """A hash of the features of each row, whatever the order and the types of columns are."""
    chosen = table.take(rows)
    cells: dict[str, Array] = {}
    for name in sorted(chosen.features):
        column = chosen.column(name)
        if chosen.kinds[name] is Kind.NUMERIC:
            cells[name] = as_floats(column)
        else:
            cells[name] = np.array(column.astype(object).where(column.notna(), None), dtype=object)
    if not cells:
        return np.zeros(len(chosen), dtype=np.uint64)
    hashed = pd.util.hash_pandas_object(pd.DataFrame(cells), index=False)
    return np.asarray(hashed, dtype=np.uint64)
