"""Sums of plain integers by bin: histograms of one's own columns, at numpy's speed."""

from __future__ import annotations

import numpy as np

from vfsl.estimators.descent import Integers
from vfsl.values import Array


class Cells:
    """The codes of a party's columns, ready to be summed for any rows.

    Parameters
    ----------
    codes : integer array of shape (rows, columns)
    width : int
        Codes a column.
    """

    def __init__(self, codes: Array, width: int) -> None:
        columns = codes.shape[1]
        self.shape: tuple[int, int] = (columns, width)
        # One number for column and code, so that one pass counts all columns.
        self._places = codes.astype(np.int32) + np.arange(columns, dtype=np.int32) * width

    def counts(self, rows: Array) -> Integers:
        """Rows in each bin, (columns, width)."""
        places = self._at(rows).ravel()
        return np.bincount(places, minlength=self._size).reshape(self.shape)

    def sums(self, rows: Array, values: Integers) -> Integers:
        """(g, h) summed in each bin, (columns, width, 2); exact, as all sums are below 2⁵³."""
        places = self._at(rows).ravel()
        columns = self.shape[0]
        summed = [
            np.bincount(
                places, weights=np.repeat(values[rows, part], columns), minlength=self._size
            )
            for part in range(values.shape[1])
        ]
        return np.stack(summed, axis=-1).astype(np.int64).reshape(*self.shape, -1)

    @property
    def _size(self) -> int:
        return int(self.shape[0] * self.shape[1])

    def _at(self, rows: Array) -> Array:
        return self._places if len(rows) == len(self._places) else self._places[rows]
