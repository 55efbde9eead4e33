"""How good splits are, and which one is best: pure functions of exact integer sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vfsl.estimators.descent import Floats, Integers
from vfsl.values import Array


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
        Least sum of h on each side.
    """

    l2: float = 1.0
    least_gain: float = 0.0
    least_weight: float = 1e-3


class Scale(NamedTuple):
    """How many integer steps make 1 in g and in h."""

    g: float
    h: float


def gains(left: Integers, total: Integers, steps: Floats, penalty: Penalty) -> Floats:
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


def best_of_each(values: Floats, starts: Array) -> tuple[Floats, Array]:
    """The largest value of each run, and which places hold it: (runs,), boolean (values,).

    Runs begin at ``starts`` and may be empty; an empty one has −inf.
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
    most = ((1 << (FOLD_BITS - 1)) - 1) // rows
    g_scale, h_scale = (most / max(float(np.abs(x).max(initial=0.0)), 1e-300) for x in (g, h))
    scale = Scale(min(g_scale, 2.0**60), min(h_scale, 2.0**60))
    # Rounding must not pass the bound.
    values = np.stack([np.rint(g * scale.g), np.rint(h * scale.h)], axis=-1)
    return np.clip(values, -most, most).astype(np.int64), scale


# (g, h) of a row share one encrypted number; 2 × 29 bits fill bfv's plaintext space.
FOLD_BITS = 29


def row_bound(rows: int) -> int:
    """The public bound of a folded (g, h)."""
    most = ((1 << (FOLD_BITS - 1)) - 1) // rows
    return most + (most << FOLD_BITS)
