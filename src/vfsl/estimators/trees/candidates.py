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
        nodes, columns, width = counts.shape
        if not len(self):
            return np.zeros((nodes, 0), dtype=bool)
        column, place = self.column, self.column * width + self.code
        left = _left(counts, self)
        total = counts[:, 0].sum(axis=1)[:, None]  # every column has all rows of a node
        enough = (left >= least) & (total - left >= least)
        # The run of all known cells ends at no inner boundary.
        ends = merged_ends(counts, self._gaps, least).reshape(nodes, -1)
        may_end = ends[:, place] | (self.code == self._gaps[column] - 1)
        allowed = enough & may_end
        if self.missing.any():
            gap = counts[:, np.arange(columns), self._gaps] >= least
            allowed &= (self.missing == RIGHT) | gap[:, column]
        if not self._ordered.all():
            single = lone_groups(counts, least).reshape(nodes, -1)
            allowed = np.where(self._ordered[column], allowed, single[:, place])
        return np.asarray(allowed)

    def rule(self, candidate: int) -> tuple[int, int, int]:
        """Column, code and where missing cells go."""
        return (
            int(self.column[candidate]),
            int(self.code[candidate]),
            int(self.missing[candidate]),
        )


def rule_sides(bins: Bins, column: int, code: int, missing: int, cells: Array) -> Array:
    """Which rows go left where a column is split at a code, by their cells in that column."""
    if not bins.columns[column].ordered:
        return np.asarray(cells == code)
    left = cells <= code  # the code of missing cells is larger than any other
    if missing == LEFT:
        left |= cells == bins.columns[column].size
    return np.asarray(left)


def merged_ends(counts: Array, gaps: Array, least: int) -> Array:
    """After which bins a merged bin of at least ``least`` rows ends, the last one not counted.

    counts is (nodes, columns, width), ``gaps`` the code of missing cells in each column; so is the
    answer, false from the missing code on. What remains behind the last end has as many rows too.
    """
    width = counts.shape[2]
    # Codes first, so that each step of the loop reads and writes one stretch of memory.
    known = np.moveaxis(counts, 2, 0) * (np.arange(width)[:, None] < gaps)[:, None, :]
    passed = np.cumsum(known, axis=0)
    ends = (passed[-1] - passed >= least) & (np.arange(width)[:, None] < gaps)[:, None, :]
    since = np.full(counts.shape[:2], least)  # how many rows must have passed to end here
    for here, end in zip(passed, ends, strict=True):
        end &= here >= since
        np.copyto(since, here + least, where=end)
    return np.moveaxis(ends, 0, 2)


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
