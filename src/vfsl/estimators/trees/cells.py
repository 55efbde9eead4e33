"""Sums of plain integers by bin: histograms of one's own columns, in one compiled pass."""

from __future__ import annotations

import numpy as np
from scipy import sparse

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
        # One number for column and code, so that one pass serves all columns.
        self._places = codes.astype(np.int32) + np.arange(columns, dtype=np.int32) * width

    def counts(self, rows: Array) -> Integers:
        """Rows in each bin, (columns, width)."""
        size = self.shape[0] * self.shape[1]
        return np.bincount(self._at(rows).ravel(), minlength=size).reshape(self.shape)

    def sums(self, rows: Array, values: Integers) -> Integers:
        """Values (rows, k) summed over the given rows in each bin, (columns, width, k)."""
        columns, width = self.shape
        shape = (columns * width, len(rows))
        # A matrix with a one for each cell of the table: a column a row, a row a bin.
        starts = np.arange(len(rows) + 1, dtype=np.int32) * columns
        ones = np.ones(len(rows) * columns, dtype=np.int64)
        belongs = sparse.csc_array((ones, self._at(rows).ravel(), starts), shape=shape)
        chosen = values if len(rows) == len(values) else values[rows]
        return np.asarray(belongs @ chosen).reshape(columns, width, values.shape[1])

    def _at(self, rows: Array) -> Array:
        return self._places if len(rows) == len(self._places) else self._places[rows]
