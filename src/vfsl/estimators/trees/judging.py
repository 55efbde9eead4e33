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

from vfsl.channel import expect_array
from vfsl.crypto.fixed import unfold
from vfsl.errors import ProtocolError
from vfsl.estimators.trees.splits import FOLD_BITS, Penalty
from vfsl.values import Array, Floats, Integers

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


@dataclass(frozen=True)
class Size:
    """What feature holders learn of a node: how its t is read, which follows from its weight."""

    edge: int = 0  # how many cells at the edges are too light: a place in EDGES
    shift: int = 0  # a unit of h is 2^shift units of t


@dataclass(frozen=True)
class Judges:
    """How the label holder judges splits of some nodes; most attributes have an entry for each.

    Attributes
    ----------
    folded : integer array of shape (rows,)
        r and h of each row in one number, node after node.
    lengths : integer array
        How many rows each node has.
    marks : integer array of shape (nodes, 4)
        What is subtracted from sums of r, what is added to sums of h after their shift, and the
        size of each node: edge and shift.
    unit, g, h : arrays
        Units of r; the sums of g and h of each node.
    l2 : float
    """

    folded: Integers
    lengths: Array
    marks: Integers
    unit: Floats
    g: Floats
    h: Floats
    l2: float

    @property
    def sizes(self) -> list[Size]:
        return [Size(int(edge), int(shift)) for edge, shift in self.marks[:, 2:]]

    @property
    def values(self) -> Integers:
        """r and h of each row, (rows, 2)."""
        return unfold(self.folded, 2, FOLD_BITS)

    def split(self) -> list[Integers]:
        """Folded r and h of the rows of each node."""
        return np.split(self.folded, np.cumsum(self.lengths)[:-1])

    def gain(self, ratings: Array) -> Floats:
        """What splits of these ratings gain, one of each node."""
        whole = self.h + 2 * self.l2
        strength = ratings * 2 / (STEP * self.unit)
        with np.errstate(divide="ignore", invalid="ignore"):
            # The two last terms are one, without cancelling.
            gain = 0.5 * (strength**2 - self.g**2 * self.l2 / (self.h + self.l2)) / whole
        return np.asarray(np.where((ratings > 0) & (whole > 0), gain, 0.0))


_SHIFT = PLACE_BITS - CELL_BITS


def make_judges(g: Floats, h: Floats, lengths: Array, penalty: Penalty, rows: int) -> Judges:
    """Round (g, h) of the rows of some nodes, one node after the other, for judging their splits.

    ``rows`` is how many there are in all. Errors are carried from row to row, so the order of rows
    matters; that of nodes does not. In a node that cannot be split no split is any good.
    """
    starts, l2 = np.cumsum(lengths) - lengths, penalty.l2
    total_g, total_h = np.add.reduceat(g, starts), np.add.reduceat(h, starts)
    whole, span = total_h + 2 * l2, total_h - 2 * penalty.least_weight
    mean = total_g / np.where(whole > 0, whole, 1.0)
    pair = np.empty((2, len(g)))
    r = np.multiply(np.repeat(mean, lengths), h, out=pair[0])
    np.subtract(g, r, out=r)
    above = np.add.reduceat(np.maximum(r, 0.0), starts)
    reach = np.maximum(above, above - (total_g - mean * total_h)) + np.abs(mean) * l2
    largest = np.maximum(np.maximum.reduceat(r, starts), -np.minimum.reduceat(r, starts))
    fine = (total_h > 0) & (span >= -1e-9 * total_h) & (reach > np.abs(total_g) * 1e-12)
    most_row, most_sum = (1 << count_row_bits(rows)) - 1, 1 << count_sum_bits(rows)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Rounding moves no sum by more than a unit for each row.
        unit = np.minimum((most_sum - lengths - 2) / reach, (most_row - 1) / largest)
        edge = find_edge((penalty.least_weight + l2) / whole)
        heaviest = np.maximum.reduceat(h, starts)
        shift, step = _find_step(edge, span, total_h, heaviest / (most_row - 1))
        plus = np.rint((_PLACES - step * total_h) / 2)
    fine &= shift <= MOST_SHIFT
    unit = np.where(fine, unit, 1.0)
    less = np.rint(mean * l2 * unit)
    np.multiply(r, np.repeat(np.where(fine, unit, 0.0), lengths), out=r)
    np.multiply(h, np.repeat(np.where(fine, step / (1 << shift), 0.0), lengths), out=pair[1])
    rounded = _round(pair, starts, lengths)
    marks = np.where(fine, [less, plus, edge, shift], 0).T.astype(np.int64)
    folded = rounded[0] + (rounded[1] << FOLD_BITS)
    return Judges(folded, lengths, marks, unit, total_g, total_h, l2)


def find_edge(light: Floats) -> Array:
    """The size class of each node by the share of its weight that is too light for a side."""
    return np.minimum(np.searchsorted(EDGES, light * _CELLS), len(EDGES) - 1)


def _find_step(edge: Array, span: Floats, total: Floats, row: Floats) -> tuple[Array, Floats]:
    """By how many bits units of t are finer than those of h, and how many units make a weight of 1.

    ``span`` is how much heavier a node is than two sides that are just heavy enough, ``row`` the
    weight that a unit of h must stand for at least, so that the heaviest row fits.
    """
    free = _PLACES - 2 * (np.array(EDGES)[edge] << _SHIFT)
    safe = np.maximum(span, 1e-300)
    # The lightest sides that are heavy enough lie at the edges, but for the guard.
    step = np.minimum(free / safe, _PLACES / total)
    bits = np.ceil(np.log2(np.maximum(step * row, 1.0)))
    shift = np.minimum(np.where(np.isfinite(bits), bits, np.inf), MOST_SHIFT + 1).astype(np.int64)
    guard = _GUARD << shift
    step = np.minimum(np.maximum(free - 2 * guard, 1) / safe, (_PLACES - 2 * guard) / total)
    return shift, step


_FRACTION = 32  # bits behind the point: sums of many rows are exact, whatever came before


def _round(values: Floats, starts: Array, lengths: Array) -> Integers:
    """Integers whose sums from the first row of each node on are those of the values, rounded.

    ``values`` is (numbers, rows) and is overwritten.
    """
    np.multiply(values, float(1 << _FRACTION), out=values)
    exact = np.rint(values, out=values).astype(np.int64)
    sums = np.cumsum(exact, axis=1)
    sums -= np.repeat(sums[:, starts] - exact[:, starts] - (1 << (_FRACTION - 1)), lengths, axis=1)
    sums >>= _FRACTION
    rounded = exact
    rounded[:, 0] = sums[:, 0]
    np.subtract(sums[:, 1:], sums[:, :-1], out=rounded[:, 1:])
    rounded[:, starts] = sums[:, starts]
    return rounded


@cache
def _stack_tables() -> Integers:
    return np.stack([make_table(edge) for edge in range(len(EDGES))])


def rate_splits(left: Integers, marks: Integers) -> Integers:
    """How good splits are, by the folded sums of r and h on their left; 0: not at all.

    ``left`` is (nodes, splits), ``marks`` is that of `Judges`.
    """
    sums = unfold(left, 2, FOLD_BITS)
    less, plus, edge, shift = marks.T[:, :, None]
    place = (sums[:, :, 1] << shift) + plus
    return np.asarray(np.abs(sums[:, :, 0] - less) * _stack_tables()[edge, place >> _SHIFT])


def read_marks(value: object, sender: str, nodes: int) -> Integers:
    """The marks of `Judges` that another party sent, checked."""
    marks = expect_array(value, sender=sender, name="judged", holds="integer", shape=(nodes, 4))
    if (marks[:, 1:] < 0).any() or (marks[:, 1:] > [_PLACES, len(EDGES) - 1, MOST_SHIFT]).any():
        raise ProtocolError(f"Party {sender!r} sent size classes that there are not.", sender)
    return marks


def pick_best(
    left: Integers, marks: Integers, usable: Sequence[Array] | None = None
) -> tuple[Integers, Array]:
    """How good the best split of each node is, and which it is: the first of equally good ones.

    ``usable`` says of each node which splits it may have, if not all.
    """
    if not left.shape[1]:
        nothing = np.zeros(len(left), dtype=np.int64)
        return nothing, nothing
    ratings = rate_splits(left, marks)
    if usable is not None:
        ratings = np.where(np.stack(usable), ratings, 0)
    best = ratings.argmax(axis=1)
    return np.asarray(ratings[np.arange(len(best)), best]), best
