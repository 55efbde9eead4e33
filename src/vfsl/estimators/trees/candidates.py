"""Which splits a party may offer in a node: pure functions over its counts of rows.

A candidate sends a run of bins of one column to the left, with or without the missing cells. Its
sums of (g, h) tell the label holder, who knows every (g, h), something about the rows in that run.
So in every node bins under ``least`` rows are merged with their neighbours, counting all rows of
the node, in the bag or not: no candidate, and no difference of two candidates of one column and
node, describes fewer rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vfsl.estimators.trees.binning import Bins
from vfsl.values import Array

LEAST_ROWS = 10
RIGHT, LEFT = 0, 1  # where missing cells go


@dataclass(frozen=True)
class Candidates:
    """All splits that a party's columns allow, in the order that settles ties.

    Sums of a node are an array (columns, width); ``start``, ``stop`` and ``extra`` are places in it
    when it is flattened: a candidate sends Σ flat[start:stop] to the left, and flat[extra] too if
    that is not −1.
    """

    bins: Bins
    column: Array
    code: Array
    missing: Array
    start: Array
    stop: Array
    extra: Array

    @classmethod
    def of(cls, bins: Bins) -> Candidates:
        width = bins.width
        rows: list[tuple[int, int, int, int, int, int]] = []
        for at, column in enumerate(bins.columns):
            base, size, gap = at * width, column.size, at * width + column.size
            if not column.ordered:
                # Of two groups one says it all.
                last = size + column.missing if size + column.missing > 2 else 1
                rows += [(at, b, RIGHT, base + b, base + b + 1, -1) for b in range(last)]
                continue
            for b in range(size - 1):
                rows.append((at, b, RIGHT, base, base + b + 1, -1))
                if column.missing:
                    rows.append((at, b, LEFT, base, base + b + 1, gap))
            if column.missing:
                rows.append((at, size - 1, RIGHT, base, gap, -1))
        table = np.array(rows, dtype=np.int64).reshape(-1, 6)
        return cls(bins, *table.T)

    def __len__(self) -> int:
        return len(self.column)

    @cached_property
    def _ordered(self) -> Array:
        flags = [column.ordered for column in self.bins.columns]
        return np.array(flags, dtype=bool)

    @cached_property
    def _gaps(self) -> Array:
        return np.array([column.size for column in self.bins.columns], dtype=np.int64)

    def allowed(self, counts: Array, least: int = LEAST_ROWS) -> Array:
        """Which candidates may be offered in nodes with these counts of rows.

        Parameters
        ----------
        counts : integer array of shape (nodes, columns, width)
        least : int

        Returns
        -------
        boolean array of shape (nodes, candidates)
        """
        nodes, columns = counts.shape[:2]
        if not len(self):
            return np.zeros((nodes, 0), dtype=bool)
        total = counts.sum(axis=2)
        missing = np.take_along_axis(
            counts, np.broadcast_to(self._gaps[None, :, None], (nodes, columns, 1)), axis=2
        )[:, :, 0]
        ends = merged_ends(counts, self._gaps, least)
        single = lone_groups(counts, least)
        column, code = self.column, self.code
        gap = missing[:, column]
        left = _left(counts, self)
        enough = (left >= least) & (total[:, column] - left >= least)
        # The run of all known cells ends at no inner boundary.
        at_end = ends[:, column, code] | (code == self._gaps[column] - 1)
        may_go_left = (self.missing == RIGHT) | (gap >= least)
        in_order = enough & at_end & may_go_left
        return np.asarray(np.where(self._ordered[column], in_order, single[:, column, code]))

    def goes_left(self, candidate: int, codes: Array) -> Array:
        """Which rows a split sends to the left, by their codes (rows, columns)."""
        column = int(self.column[candidate])
        return rule_sides(
            self.bins, column, int(self.code[candidate]), int(self.missing[candidate]), codes
        )


def rule_sides(bins: Bins, column: int, code: int, missing: int, codes: Array) -> Array:
    """Which rows go left where a column is split at a code, missing cells as said."""
    cells = codes[:, column]
    if not bins.columns[column].ordered:
        return np.asarray(cells == code)
    left = cells <= code
    gap = cells == bins.columns[column].size
    return np.asarray(np.where(gap, missing == LEFT, left))


def merged_ends(counts: Array, gaps: Array, least: int) -> Array:
    """After which bins a merged bin of at least ``least`` rows ends, the last one not counted.

    counts is (nodes, columns, width), ``gaps`` the code of missing cells in each column; so is the
    answer, false from the missing code on. What remains behind the last end has as many rows too.
    """
    nodes, columns, width = counts.shape
    known = counts * (np.arange(width) < gaps[:, None])
    rest = known.sum(axis=2)
    since = np.zeros((nodes, columns), dtype=np.int64)
    ends = np.zeros(counts.shape, dtype=bool)
    for code in range(width):
        here = known[:, :, code]
        since += here
        rest = rest - here
        # A bin that adds no rows would only repeat the boundary before it.
        full = (since >= least) & (rest >= least) & (code < gaps)
        ends[:, :, code] = full
        since[full] = 0
    return ends


def lone_groups(counts: Array, least: int) -> Array:
    """Which single codes may be split from all others, in each column; (nodes, columns, width).

    Codes with fewer rows are not offered; if they have fewer even together, the smallest of the
    others is withheld too, or total and offers would give them away.
    """
    total = counts.sum(axis=2, keepdims=True)
    fine = (counts >= least) & (total - counts >= least)
    rest = total[:, :, 0] - np.where(fine, counts, 0).sum(axis=2)
    exposed = (rest > 0) & (rest < least) & fine.any(axis=2)
    smallest = np.where(fine, counts, np.iinfo(np.int64).max).argmin(axis=2)
    nodes, columns = np.nonzero(exposed)
    fine[nodes, columns, smallest[nodes, columns]] = False
    return np.asarray(fine)


def _left(counts: Array, candidates: Candidates) -> Array:
    """Rows that each candidate sends to the left, (nodes, candidates)."""
    return run_sums(counts.reshape(len(counts), -1), candidates)


def run_sums(flat: Array, candidates: Candidates) -> Array:
    """What each candidate sends to the left of the sums (nodes, places)."""
    sums = np.zeros((len(flat), flat.shape[1] + 1), dtype=flat.dtype)
    np.cumsum(flat, axis=1, out=sums[:, 1:])
    chosen = sums[:, candidates.stop] - sums[:, candidates.start]
    return np.asarray(chosen + np.where(candidates.extra >= 0, flat[:, candidates.extra], 0))
