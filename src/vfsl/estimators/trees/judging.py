"""How good the splits of a node are, in small integers: one function for columns, plain and shares.

With G and H the sums of g and h in a node and S = H + 2λ, let r = g − (G / S) h. If R is the sum of
r on the left less λ G / S, and t = (H_left + λ) / S, then the gain of a split is
½ (R² / (t (1 − t) S) + G² / S − G² / (H + λ)), exactly. So the best split of a node has the largest
|R| / √(t (1 − t)). The label holder, who knows G and H, rounds r and h of the node's rows to small
integers; then R is a sum of integers, t an index into a table, and the order of splits a product.

Rounding carries the error of a row over to the next one, so that sums of many rows stay right even
if rows count few units: R is off by less than about √rows units, of 2^(bits − 1) to 2^bits in all.
Light sides are left out by the table: cells of t that stand for less than the least weight are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from vfsl.crypto.fixed import unfold
from vfsl.estimators.trees.splits import FOLD_BITS, Penalty
from vfsl.values import Floats, Integers

PLACE_BITS, CELL_BITS = 16, 8  # of t, and of those that are looked up
TABLE_BITS = 7  # of an entry
STEP = 22  # entries are 11 / √(t (1 − t)): 22 where both sides are even
# How many cells at either end stand for sides that are too light: of each size class of nodes.
EDGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96, 112, 120, 124, 126)
MOST_SHIFT = 9  # of a node's units of h against those of t

_PLACES, _CELLS = 1 << PLACE_BITS, 1 << CELL_BITS
_GUARD = 2  # units by which a side may miss the least weight, because of rounding


def count_row_bits(rows: int) -> int:
    """Bits of r and of h of a row: as many as make one digit of an encrypted product.

    Of large tables a bit less costs nothing that sums would show, and saves bytes.
    """
    size = math.ceil(math.log2(max(rows, 2)))
    return min(max(26 - size, 5), 9 if size <= 13 else 7)


def count_sum_bits(rows: int) -> int:
    """Bits of |R|: some units for each row on average, whatever the number of rows."""
    return max(math.ceil(math.log2(max(rows, 2))) + 2, 12)


@cache
def make_table(edge: int) -> Integers:
    """11 / √(t (1 − t)) in the middle of each cell of t, 0 at the edges; (cells,)."""
    t = (np.arange(_CELLS) + 0.5) / _CELLS
    table = np.rint(STEP / 2 / np.sqrt(t * (1 - t))).astype(np.int64)
    table = np.minimum(table, (1 << TABLE_BITS) - 1)  # only in the two cells next to the edges
    table[: EDGES[edge]] = 0
    table[_CELLS - EDGES[edge] :] = 0
    table.setflags(write=False)
    return table


def find_edge(light: float) -> int:
    """The size class of a node by the share of its weight that is too light for a side."""
    return next((at for at, cells in enumerate(EDGES) if light * _CELLS <= cells), len(EDGES) - 1)


@dataclass(frozen=True)
class Size:
    """What feature holders learn of a node: how its t is read, which follows from its weight."""

    edge: int = 0  # how many cells at the edges are too light: a place in EDGES
    shift: int = 0  # a unit of h is 2^shift units of t


@dataclass(frozen=True)
class Judge:
    """How the label holder judges splits of one node.

    Attributes
    ----------
    folded : integer array of shape (rows of the node,)
        r and h of each row in one number.
    less : int
        What is subtracted from a sum of r.
    plus : int
        What is added to a sum of h, after its shift.
    size : Size
    """

    folded: Integers
    less: int
    plus: int
    size: Size
    unit: float
    total: tuple[float, float]
    l2: float

    @property
    def values(self) -> Integers:
        """r and h of each row, (rows, 2)."""
        return unfold(self.folded, 2, FOLD_BITS)

    def rate(self, left: Integers) -> Integers:
        """How good splits are, by the sums of r and h on their left, (splits, 2); 0: not at all."""
        return rate_splits([self], left, [len(left)])

    def gain(self, rating: int) -> float:
        """What a split of this rating gains."""
        g, h = self.total
        whole = h + 2 * self.l2
        if not rating or not whole > 0:
            return 0.0
        strength = rating * 2 / (STEP * self.unit)
        # The two last terms are one, without cancelling.
        return 0.5 * (strength**2 - g**2 * self.l2 / (h + self.l2)) / whole


_SHIFT = PLACE_BITS - CELL_BITS


def make_judge(g: Floats, h: Floats, penalty: Penalty, rows: int) -> Judge:
    """Round (g, h) of a node's rows for judging its splits; ``rows`` is how many there are in all.

    Errors are carried from row to row, so the order of rows matters.
    In a node that cannot be split no split is any good.
    """
    total, l2 = (float(g.sum()), float(h.sum())), penalty.l2
    whole, span = total[1] + 2 * l2, total[1] - 2 * penalty.least_weight
    nothing = Judge(np.zeros(len(g), dtype=np.int64), 0, 0, Size(), 1.0, total, l2)
    if not whole > 0 or span < -1e-9 * total[1]:
        return nothing
    mean = total[0] / whole
    r = g - mean * h
    most_row, most_sum = (1 << count_row_bits(rows)) - 1, 1 << count_sum_bits(rows)
    above = float(np.maximum(r, 0.0).sum())
    reach = max(above, above - float(r.sum())) + abs(mean) * l2
    if not reach > abs(total[0]) * 1e-12:
        return nothing
    # Rounding moves no sum by more than a unit for each row.
    unit = min((most_sum - len(r) - 2) / reach, (most_row - 1) / max(r.max(), -r.min()))
    edge = find_edge((penalty.least_weight + l2) / whole)
    free = _PLACES - 2 * (EDGES[edge] << _SHIFT)
    # The lightest sides that are heavy enough lie at the edges, but for the guard.
    step = min(free / max(span, 1e-300), _PLACES / total[1])
    shift = max(math.ceil(math.log2(step * float(h.max()) / (most_row - 1))), 0)
    if shift > MOST_SHIFT:
        return nothing
    guard = _GUARD << shift
    most = (_PLACES - 2 * guard) / total[1]
    step = min(max(free - 2 * guard, 1) / max(span, 1e-300), most)
    folded = _round(r * unit) + (_round(h * (step / (1 << shift))) << FOLD_BITS)
    plus = round((_PLACES - step * total[1]) / 2)
    return Judge(folded, round(mean * l2 * unit), plus, Size(edge, shift), float(unit), total, l2)


def _round(values: Floats) -> Integers:
    """Integers whose sums from the first row on are those of the values, rounded."""
    sums = np.cumsum(values)
    whole = np.rint(sums, out=sums).astype(np.int64)
    rounded = whole.copy()
    rounded[1:] -= whole[:-1]
    return rounded


@cache
def _stack_tables() -> Integers:
    return np.stack([make_table(edge) for edge in range(len(EDGES))])


def rate_splits(judges: Sequence[Judge], left: Integers, lengths: Sequence[int]) -> Integers:
    """As :meth:`Judge.rate` for the splits of several nodes, which have so many each."""
    numbers = [(one.less, one.plus, one.size.edge, one.size.shift) for one in judges]
    less, plus, edge, shift = np.repeat(np.array(numbers, dtype=np.int64), lengths, axis=0).T
    place = (left[:, 1] << shift) + plus
    return np.asarray(np.abs(left[:, 0] - less) * _stack_tables()[edge, place >> _SHIFT])
