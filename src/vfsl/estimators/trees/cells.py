"""Sums of plain integers by bin: histograms of one's own columns, in one compiled pass."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vfsl.crypto import Grouping
from vfsl.crypto.sums import sum_by_place
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
        self._codes = codes.astype(np.int32, order="C")
        # One number for column and code, so that one pass serves all columns.
        self._places = self._codes + np.arange(columns, dtype=np.int32) * width

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
        chosen = np.concatenate([each[at] for each, at in zip(values, rows, strict=True)])
        summed = sum_by_place(self._at(rows), chosen, len(rows) * columns * width)
        return summed.reshape(len(rows), columns, width, chosen.shape[1])

    def grouping(self, rows: Sequence[Array]) -> Grouping:
        """All nodes' rows for a scheme to sum: the bins of the first node, of the second, ..."""
        columns, width = self.shape
        groups = len(rows) * width
        places = _room(self._codes[np.concatenate(rows)], columns * (groups + 1))
        places += _each(rows, width).astype(places.dtype)
        places += np.arange(columns, dtype=places.dtype) * (groups + 1) + 1
        return Grouping.from_places(places, groups)

    def _at(self, rows: Sequence[Array]) -> Array:
        """The place of each cell of each node's rows, nodes one after the other."""
        size = self.shape[0] * self.shape[1]
        places = _room(self._places[np.concatenate(rows)], len(rows) * size)
        places += _each(rows, size).astype(places.dtype)
        return places


def _each(rows: Sequence[Array], step: int) -> Array:
    """Where the cells of each node begin, a step a node, for every row of theirs; (rows, 1)."""
    return np.repeat(np.arange(len(rows)) * step, [len(each) for each in rows])[:, None]


def _room(places: Array, count: int) -> Array:
    """Places as they are, or as wide numbers where so many do not fit narrow ones."""
    return places if count <= np.iinfo(places.dtype).max else places.astype(np.int64)
