"""Aggregates of rows that may be shown around: no number in them stands for fewer than ten rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vfsl.values import Array

LEAST = 10
OTHERS = "all others"

Floats = npt.NDArray[np.float64]
Counts = list[list[int]]


def histogram(*samples: Array, bins: int = 20, least: int = LEAST) -> dict[str, Any]:
    """Counts of numbers over bins that all samples share; missing numbers are left out.

    Bounds are round numbers, and the first and the last bin are open, so that no bound is a row's
    value. Every count is 0 or at least ``least``: a bin with a smaller one joins its neighbour.

    Returns
    -------
    dict
        ``edges``, the inner bounds, and ``counts``, one list per sample with one number more than
        there are edges. Empty if a sample has fewer than ``least`` numbers.
    """
    known = [np.sort(_finite(sample)) for sample in samples]
    if not known or any(len(sample) < least for sample in known):
        return {}
    low = min(float(sample[least - 1]) for sample in known)
    high = max(float(sample[-least]) for sample in known)
    edges = round_edges(low, high, bins)
    counts = np.stack(
        [
            np.bincount(np.searchsorted(edges, sample, side="right"), minlength=len(edges) + 1)
            for sample in known
        ]
    )
    kept, merged = merge_small(edges, counts, least)
    return {"edges": kept.tolist(), "counts": merged.tolist()}


def round_edges(low: float, high: float, bins: int) -> Floats:
    """Multiples of a round step, above ``low`` and up to ``high``: about ``bins`` of them."""
    width = (high - low) / bins
    if not width > 0 or not math.isfinite(width):
        return np.zeros(0)
    step = round_up(width)
    first, last = math.floor(low / step) + 1, math.floor(high / step)
    if last - first > 10 * bins:  # the step is below the precision of such numbers
        return np.zeros(0)
    # Twelve digits: 3 × 0.1 is not 0.3 in binary, and the bound is read by people.
    return np.array([float(f"{number * step:.12g}") for number in range(first, last + 1)])


def round_up(width: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(power * factor for factor in (1, 2, 5, 10) if width <= power * factor * (1 + 1e-9))


def merge_small(edges: Floats, counts: Array, least: int) -> tuple[Floats, Array]:
    """Join bins until every count is 0 or at least ``least``; counts are (samples, bins)."""
    bounds, table = list(edges), [list(column) for column in np.asarray(counts).T]
    while len(table) > 1:
        small = [place for place, column in enumerate(table) if _small(column, least)]
        if not small:
            break
        here = small[0]
        sides = [place for place in (here - 1, here + 1) if 0 <= place < len(table)]
        # The emptier neighbour, so that full bins keep their shape.
        other = min(sides, key=lambda place: (sum(table[place]), place))
        first = min(here, other)
        pair = zip(table[first], table[first + 1], strict=True)
        table[first : first + 2] = [[one + two for one, two in pair]]
        del bounds[first]
    return np.asarray(bounds, dtype=np.float64), np.asarray(table).T


def level_counts(
    *samples: Mapping[Hashable, int], most: int = 12, least: int = LEAST
) -> dict[str, Any]:
    """Counts of categories; rare ones, and those beyond the ``most`` frequent, share one line.

    Returns
    -------
    dict
        ``levels`` and ``counts``, one list per sample with one count per level. Empty if a sample
        has fewer than ``least`` rows.
    """
    if not samples or any(sum(sample.values()) < least for sample in samples):
        return {}
    names = list(dict.fromkeys(name for sample in samples for name in sample))
    lines = [(name, [int(sample.get(name, 0)) for sample in samples]) for name in names]
    lines.sort(key=lambda line: -line[1][0])
    shown = [line for line in lines if not _small(line[1], least)][:most]
    kept = {name for name, _ in shown}
    rest = _sum([line for name, line in lines if name not in kept], len(samples))
    while shown and _small(rest, least):
        _, line = shown.pop()
        rest = _sum([rest, line], len(samples))
    named = [(str(name), line) for name, line in shown]
    named += [(OTHERS, rest)] if any(rest) else []
    return {
        "levels": [name for name, _ in named],
        "counts": [[line[place] for _, line in named] for place in range(len(samples))],
    }


def capture_curve(found: Array, among: Array, least: int = LEAST, most: int = 40) -> Counts:
    """How many of ``found`` and of ``among`` score above a falling bar; steps of ``least`` or more.

    Returns
    -------
    list of [found, among]
        From [0, 0] to all rows; empty if one side has fewer than ``least`` scores.
    """
    wanted, others = -np.sort(-_finite(found)), np.sort(_finite(among))
    if len(wanted) < least or len(others) < least:
        return []
    step = max(least, math.ceil(len(wanted) / most))
    points = [[0, 0]]
    for place in range(step, len(wanted) - least + 1, step):
        bar = wanted[place - 1]
        above = len(others) - int(np.searchsorted(others, bar, side="left"))
        reached = int((wanted >= bar).sum())
        # A step by fewer rows on one side would tell how those few are ranked.
        moved = (reached - points[-1][0], above - points[-1][1])
        left = (len(wanted) - reached, len(others) - above)
        if min(moved) >= least and min(left) >= least:
            points.append([reached, above])
    return [*points, [len(wanted), len(others)]]


def _small(column: Sequence[int], least: int) -> bool:
    return any(0 < count < least for count in column)


def _sum(lines: Sequence[Sequence[int]], width: int) -> list[int]:
    return [sum(line[place] for line in lines) for place in range(width)]


def _finite(sample: Array) -> Floats:
    values = np.asarray(sample, dtype=np.float64)
    return np.asarray(values[np.isfinite(values)])
