"""Sums of plain integers by bin: histograms of one's own columns, in one compiled pass."""

from __future__ import annotations

import math
from collections.abc import Sequence

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

    def counts(self, rows: Sequence[Array]) -> Integers:
        """How many of each node's rows are in each bin, (nodes, columns, width)."""
        places = self._at(rows)
        shape = (len(rows), *self.shape)
        return np.bincount(places.ravel(), minlength=math.prod(shape)).reshape(shape)

    def sums(self, rows: Sequence[Array], values: Sequence[Integers]) -> Integers:
        """Values (rows, k) of each node's rows summed in each bin, (nodes, columns, width, k).

        ``values`` has all rows, once for each node.
        """
        columns, width = self.shape
        places = self._at(rows)
        # A matrix with a one for each cell of the table: a column a row, a row a bin.
        starts = np.arange(len(places) + 1, dtype=np.int32) * columns
        ones = np.ones(places.size, dtype=np.int64)
        shape = (len(rows) * columns * width, len(places))
        belongs = sparse.csc_array((ones, places.ravel(), starts), shape=shape)
        chosen = np.concatenate([each[at] for each, at in zip(values, rows, strict=True)])
        return np.asarray(belongs @ chosen).reshape(len(rows), columns, width, chosen.shape[1])

    def _at(self, rows: Sequence[Array]) -> Array:
        """The place of each cell of each node's rows, nodes one after the other."""
        joined = np.concatenate(rows)
        places: Array = self._places[joined]
        size = self.shape[0] * self.shape[1]
        node = np.repeat(np.arange(len(rows), dtype=np.int32) * size, [len(r) for r in rows])
        places += node[:, None]
        return places
