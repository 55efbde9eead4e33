"""Which splits a party may offer in a node, and how good they are: pure functions.

A candidate sends consecutive bins of one column to the left, with or without the missing cells. Its
sums of (g, h) tell the label holder, who knows every (g, h), something about the rows in these
bins. So in every node bins under ``least`` rows are merged with their neighbours, counting all rows
of the node, in the bag or not: no candidate, and no difference of two candidates of one column and
node, describes fewer rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.protocol import LEAST_ROWS
from vfsl.values import Array, Floats, Integers

RIGHT, LEFT = 0, 1  # where missing cells go
NO_COLUMN = -1  # of a rule that sends all rows to where missing cells go
FOLD_BITS = 29  # (g, h) of a row share one encrypted number; 2 × 29 bits fill bfv's plaintext space

# Column, code and where missing cells go, of one's own split of a node.
Rule = tuple[int, int, int]


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

    def allowed(self, counts: Array, least: int = LEAST_ROWS, left: Array | None = None) -> Array:
        """Which candidates may be offered in nodes with these counts of rows.

        Parameters
        ----------
        counts : integer array of shape (nodes, columns, width)
        least : int
        left : integer array of shape (nodes, candidates), optional
            Rows that each candidate sends to the left, if they are known already.

        Returns
        -------
        boolean array of shape (nodes, candidates)
        """
        nodes, columns, width = counts.shape
        if not len(self):
            return np.zeros((nodes, 0), dtype=bool)
        column, place = self.column, self.column * width + self.code
        if left is None:
            left = self.sum_left(counts.reshape(nodes, -1))
        total = counts[:, 0].sum(axis=1)[:, None]  # every column has all rows of a node
        enough = (left >= least) & (total - left >= least)
        # All known cells together end at no inner boundary.
        ends = merge_bins(counts, self._gaps, least).reshape(nodes, -1)
        may_end = ends[:, place] | (self.code == self._gaps[column] - 1)
        allowed = enough & may_end
        if self.missing.any():
            gap = counts[:, np.arange(columns), self._gaps] >= least
            allowed &= (self.missing == RIGHT) | gap[:, column]
        if not self._ordered.all():
            single = find_lone_groups(counts, least).reshape(nodes, -1)
            allowed = np.where(self._ordered[column], allowed, single[:, place])
        return np.asarray(allowed)

    def sum_left(self, flat: Array) -> Array:
        """What each candidate sends to the left, of sums (nodes, places) or (nodes, places, k)."""
        sums = np.zeros((len(flat), flat.shape[1] + 1, *flat.shape[2:]), dtype=flat.dtype)
        np.cumsum(flat, axis=1, out=sums[:, 1:])
        left = sums[:, self.stop] - sums[:, self.start]
        extra = (self.extra >= 0).reshape(-1, *(1,) * (flat.ndim - 2))
        return np.asarray(left + np.where(extra, flat[:, self.extra], 0))

    def rule(self, candidate: int) -> Rule:
        """Column, code and where missing cells go."""
        column, code, missing = (
            int(each[candidate]) for each in (self.column, self.code, self.missing)
        )
        return column, code, missing


def find_sides(bins: Bins, rule: Rule, codes: Array, rows: Array) -> Array:
    """Which of these rows a split sends to the left; ``codes`` are of all rows and columns."""
    column, code, missing = rule
    if column == NO_COLUMN:
        return np.full(len(rows), missing == LEFT)
    cells = codes[:, column].take(rows)
    if not bins.columns[column].ordered:
        return np.asarray(cells == code)
    left = cells <= code  # the code of missing cells is larger than any other
    if missing == LEFT:
        left |= cells == bins.columns[column].size
    return np.asarray(left)


def merge_bins(counts: Array, gaps: Array, least: int) -> Array:
    """After which bins a merged bin of at least ``least`` rows ends, the last one not counted.

    counts is (nodes, columns, width), ``gaps`` the code of missing cells in each column; so is the
    answer, false from the missing code on. What remains behind the last end has as many rows too.
    """
    width = counts.shape[2]
    # Codes first, so that each step of the loop reads and writes one stretch of memory.
    known = np.moveaxis(counts, 2, 0) * (np.arange(width)[:, None] < gaps)[:, None, :]
    passed = np.cumsum(known, axis=0)
    ends = (passed[-1] - passed >= least) & (np.arange(width)[:, None] < gaps)[:, None, :]
    if not ((known > 0) & (known < least)).any():  # no bin needs a neighbour
        return np.moveaxis(ends & (known > 0), 0, 2)
    since = np.full(counts.shape[:2], least)  # how many rows must have passed to end here
    for here, then, end in zip(passed, passed + least, ends, strict=True):
        end &= here >= since
        np.copyto(since, then, where=end)
    return np.moveaxis(ends, 0, 2)


def find_lone_groups(counts: Array, least: int) -> Array:
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


# ---- how good splits are -------------------------------------------------------------------------


@dataclass(frozen=True)
class Penalty:
    """What a split must overcome.

    Parameters
    ----------
    l2 : float
        λ, added to every sum of h.
    least_gain : float
        γ: a split must gain more than this.
    least_weight : float
        Smallest sum of h on each side.
    """

    l2: float = 1.0
    least_gain: float = 0.0
    least_weight: float = 1e-3


class Scale(NamedTuple):
    """How many integer steps make 1 in g and in h."""

    g: float
    h: float


def compute_gains(left: Integers, total: Integers, steps: Floats, penalty: Penalty) -> Floats:
    """½ (G_L² / (H_L + λ) + G_R² / (H_R + λ) − G² / (H + λ)); −inf where a side is too light.

    Parameters
    ----------
    left : integer array of shape (candidates, 2)
        (g, h) summed over the rows that go left.
    total : integer array of the same shape
        (g, h) summed over all rows of the candidate's node.
    steps : array of the same shape
        How many integer steps make 1 in g and in h.
    """
    ours, whole = left / steps, total / steps
    others = (total - left) / steps
    weights = np.stack([ours[:, 1], others[:, 1], whole[:, 1]]) + penalty.l2
    squares = np.stack([ours[:, 0], others[:, 0], whole[:, 0]]) ** 2
    lightest = np.minimum(ours[:, 1], others[:, 1])
    heavy = (lightest >= penalty.least_weight) & (lightest + penalty.l2 > 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        parts = squares / weights
        gain = 0.5 * (parts[0] + parts[1] - parts[2])
    return np.asarray(np.where(heavy, gain, -np.inf))


def find_best(values: Floats, starts: Array) -> tuple[Floats, Array]:
    """The largest value of each group, and which places hold it: (groups,), boolean (values,).

    Groups begin at ``starts`` and may be empty; an empty one has −inf.
    """
    best = np.full(len(starts), -np.inf)
    lengths = np.diff(starts, append=len(values))
    filled = lengths > 0
    if filled.any():
        best[filled] = np.maximum.reduceat(values, starts[filled])
    return best, np.asarray(values == np.repeat(best, lengths))


def quantise(g: Floats, h: Floats, rows: int) -> tuple[Integers, Scale]:
    """(g, h) as integers whose sums over all rows fit :data:`FOLD_BITS`; (rows, 2).

    The step follows the largest value, so small gradients keep their digits in late trees.
    """
    most = row_limit(rows)
    g_scale, h_scale = (most / max(float(np.abs(x).max(initial=0.0)), 1e-300) for x in (g, h))
    scale = Scale(min(g_scale, 2.0**60), min(h_scale, 2.0**60))
    # Rounding must not pass the bound.
    values = np.stack([np.rint(g * scale.g), np.rint(h * scale.h)], axis=-1)
    return np.clip(values, -most, most).astype(np.int64), scale


def row_limit(rows: int) -> int:
    """The public bound of g and of h as integers."""
    return ((1 << (FOLD_BITS - 1)) - 1) // rows


def row_bound(rows: int) -> int:
    """The public bound of a folded (g, h)."""
    most = row_limit(rows)
    return most + (most << FOLD_BITS)
