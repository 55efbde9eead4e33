"""Which rows a model was trained on, so that rows whose scores are known are not asked again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from vfsl.data import Kind, PartyTable
from vfsl.data.codes import as_floats
from vfsl.values import Array

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
