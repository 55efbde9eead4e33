"""Bins of a column for a scorecard: rows and positives of each, weight of evidence, information.

A column is first cut finely (trees' bins). Neighbouring fine bins are joined until each has enough
rows of both classes to be shown (`find_ends`; on shares in counting.py), and then again for the
best scorecard (`join_bins`). The second is the owner's own work on what it was shown.

    WOE of a bin   ln(its fraction of all positives / its fraction of all negatives)
    IV             sum over bins of (fraction of positives − fraction of negatives) · WOE

A larger WOE means more positives; some books have the other sign. The stability index of two
samples is the same sum for their fractions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from vfsl.data import PartyTable
from vfsl.estimators.trees.binning import Bins, Column
from vfsl.values import Array, Floats, Integers

LEAST = 10  # rows of each class in whatever is shown
FINE_BINS = 20  # as many as optbinning's
MISSING = "missing"
_NEUTRAL = 0.0  # the WOE of a cell that no training row had
_LEAST_FRACTION = 1e-4  # of a sample, in a stability index


@dataclass(frozen=True)
class BinnedColumn:
    """The bins of one column, and how a cell finds its bin.

    Attributes
    ----------
    cut : Column
        Its fine bins.
    bins : list of list of int
        The fine codes of each bin; that of missing cells is the last code.
    rows, positives : list of int
        Of each bin.
    woe : list of float
    """

    cut: Column
    bins: list[list[int]]
    rows: list[int]
    positives: list[int]
    woe: list[float]

    @property
    def name(self) -> str:
        return self.cut.name

    @property
    def information(self) -> float:
        """The information value."""
        return float(find_information(np.array(self.rows), np.array(self.positives)).sum())

    def find_bins(self, values: pd.Series[Any]) -> Integers:
        """The bin of each cell, −1 where no bin has it."""
        places = np.full(self.cut.size + 1, -1, dtype=np.int64)
        for number, fine in enumerate(self.bins):
            places[fine] = number
        return np.asarray(places[self.cut.codes(values)])

    def transform(self, values: pd.Series[Any]) -> Floats:
        """The weight of evidence of each cell."""
        return np.append(self.woe, _NEUTRAL)[self.find_bins(values)]

    def describe(self) -> list[str]:
        """Each bin in words."""
        return [_describe(self.cut, sorted(fine)) for fine in self.bins]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> BinnedColumn:
        return cls(**{**content, "cut": Column(**content["cut"])})


def _describe(cut: Column, fine: Sequence[int]) -> str:
    words = []
    values = [code for code in fine if code < cut.size]
    if cut.levels is not None:
        words += [str(cut.levels[code]) for code in values]
    elif values:
        low, high = min(values), max(values)
        above = "" if low == 0 else f"above {cut.edges[low - 1]:.6g}"
        most = "" if high == cut.size - 1 else f"at most {cut.edges[high]:.6g}"
        words.append(", ".join(filter(None, [above, most])) or "any value")
    return " or ".join(words + ([MISSING] if cut.size in fine else []))


# ---- fine bins -----------------------------------------------------------------------------------


def cut_finely(table: PartyTable, most: int = FINE_BINS) -> list[Column]:
    """The fine bins of each feature that says anything."""
    return list(Bins.fit(table, most, "one-vs-rest").columns)


def order_codes(cut: Column, rows: Integers) -> list[int]:
    """The fine codes in the order in which neighbours may be joined, given their rows.

    Missing cells come first, so that nothing is joined with them that has rows enough. Categories
    follow from rare to frequent: rare ones are joined with each other.
    """
    values = list(range(cut.size))
    if cut.levels is not None:
        values.sort(key=lambda code: (int(rows[code]), code))
    return [cut.size, *values] if rows[cut.size] else values


def find_ends(rows: Integers, positives: Integers, least: int = LEAST) -> list[int]:
    """Where bins end, as numbers of fine bins before each end; the last end is that of the column.

    From the left, a bin ends as soon as it has enough rows of both classes and so has all that
    follows.
    """
    ends, start, size = [], 0, len(rows)
    for end in range(1, size):
        parts = [slice(start, end), slice(end, size)]
        if all(_has_enough(rows[part], positives[part], least) for part in parts):
            ends.append(end)
            start = end
    return [*ends, size]


def _has_enough(rows: Integers, positives: Integers, least: int) -> bool:
    found = int(positives.sum())
    return found >= least and int(rows.sum()) - found >= least


# ---- the bins of a scorecard ---------------------------------------------------------------------


def make_column(
    cut: Column,
    shown: Sequence[Sequence[int]],
    rows: Integers,
    positives: Integers,
    *,
    most: int,
    least_fraction: float,
    monotone: bool,
) -> BinnedColumn:
    """The best bins made of those that were shown, each with its fine codes.

    Parameters
    ----------
    most : int
        How many bins at most, without one of missing cells alone.
    least_fraction : float
        The fewest rows of a bin, as a fraction of all.
    monotone : bool
        Whether the fraction of positives may only rise, or only fall, with an ordered column.
    """
    alone = [place for place, fine in enumerate(shown) if list(fine) == [cut.size]]
    places = [place for place in range(len(shown)) if place not in alone]
    if cut.levels is not None:  # categories have no order but that of their fractions
        places.sort(key=lambda place: positives[place] / rows[place])
    own, found = rows[places], positives[places]
    least = min(least_fraction * rows.sum(), own.sum() / 2)
    joined = join_bins(own, found, int(rows.sum()), int(positives.sum()), most, least, monotone)
    groups = [[place] for place in alone]
    groups += [places[start:end] for start, end in zip([0, *joined[:-1]], joined, strict=True)]
    all_rows = [int(rows[group].sum()) for group in groups]
    all_found = [int(positives[group].sum()) for group in groups]
    woe = find_woe(np.array(all_rows), np.array(all_found))
    codes = [sorted(code for place in group for code in shown[place]) for group in groups]
    return BinnedColumn(cut, codes, all_rows, all_found, woe.tolist())


def find_woe(rows: Array, positives: Array) -> Floats:
    """The weight of evidence of each bin; half a row is added to each class of it."""
    negatives = rows - positives
    share = (positives + 0.5) / (positives.sum() + 0.5 * len(rows))
    others = (negatives + 0.5) / (negatives.sum() + 0.5 * len(rows))
    return np.asarray(np.log(share / others))


def find_information(rows: Array, positives: Array) -> Floats:
    """What each bin adds to the information value."""
    share = (positives + 0.5) / (positives.sum() + 0.5 * len(rows))
    others = (rows - positives + 0.5) / ((rows - positives).sum() + 0.5 * len(rows))
    return np.asarray((share - others) * np.log(share / others))


def find_stability(expected: Array, actual: Array) -> float:
    """The population stability index of two samples: their rows by bin."""
    first, second = (
        np.maximum(np.asarray(one, dtype=np.float64) / max(np.sum(one), 1), _LEAST_FRACTION)
        for one in (expected, actual)
    )
    return float(((second - first) * np.log(second / first)).sum())


def join_bins(
    rows: Integers,
    positives: Integers,
    all_rows: int,
    all_positives: int,
    most: int,
    least: float,
    monotone: bool,
) -> list[int]:
    """Where to end bins so that their information is greatest, by dynamic programming.

    Bins are runs of neighbours with at least ``least`` rows, ``most`` of them at the most, and
    where ``monotone`` their fraction of positives only rises or only falls.
    """
    size = len(rows)
    if not size:
        return []
    sums = [np.concatenate([[0], np.cumsum(one)]) for one in (rows, positives)]
    counted, found = (one[None, :] - one[:, None] for one in sums)  # of the bin from i to j
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = found / counted
        share = found / max(all_positives, 1)
        others = (counted - found) / max(all_rows - all_positives, 1)
        value = (share - others) * np.log((share + 1e-12) / (others + 1e-12))
    value = np.where(counted >= max(least, 1), value, -np.inf)
    candidates = [_best_path(value, rate, most, sign) for sign in ((1, -1) if monotone else (0,))]
    ends = max(candidates, key=lambda one: one[0])
    return ends[1] if np.isfinite(ends[0]) else [size]


def _best_path(value: Floats, rate: Floats, most: int, sign: int) -> tuple[float, list[int]]:
    """The greatest sum of values of a chain of bins from 0 to the end; ``sign`` 0: any rates."""
    size = len(value) - 1
    best = np.full((most + 1, size + 1, size + 1), -np.inf)  # bins so far, last bin from i to j
    before = np.zeros((most + 1, size + 1, size + 1), dtype=np.int64)
    best[1, 0, 1:] = value[0, 1:]
    for count in range(2, most + 1):
        for start in range(1, size):
            earlier, its_rate = best[count - 1, :start, start], rate[:start, start]
            for end in range(start + 1, size + 1):
                fits = sign * (rate[start, end] - its_rate) >= 0
                sums = np.where(fits, earlier, -np.inf)
                at = int(sums.argmax())
                best[count, start, end] = sums[at] + value[start, end]
                before[count, start, end] = at
    count, start = divmod(int(best[:, :, size].argmax()), size + 1)
    total, ends, end = float(best[count, start, size]), [size], size
    while start > 0:
        start, end = int(before[count, start, end]), start
        count -= 1
        ends.insert(0, int(end))
    return total, ends
