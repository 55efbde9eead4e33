"""Random choices of rows and columns in trees: pure functions of a generator."""

from __future__ import annotations

import numpy as np

from vfsl.estimators.descent import Floats
from vfsl.values import Array


def bootstrap(weights: Floats, rng: np.random.Generator) -> Floats:
    """How often each row is drawn, times its weight: as many draws as rows that count."""
    drawn = np.zeros_like(weights)
    for model in range(weights.shape[1]):
        rows = np.flatnonzero(weights[:, model])
        counts = np.bincount(rng.integers(len(rows), size=len(rows)), minlength=len(rows))
        drawn[rows, model] = counts * weights[rows, model]
    return drawn


def subsample(rows: int, share: float, rng: np.random.Generator) -> Array:
    """Which rows take part in a tree, each with the same probability."""
    return rng.random(rows) < share


def goss(strength: Floats, top: float, other: float, rng: np.random.Generator) -> Floats:
    """A factor for each row: 1 for the largest gradients, (1 − top) / other for a few others.

    Gradient-based one-side sampling: rows that are already fitted well are thinned out, and the
    rest of them made heavier, so that sums stay unbiased.
    """
    present = np.flatnonzero(strength > 0)
    keep, draw = (int(np.ceil(share * len(present))) for share in (top, other))
    # A stable sort: rows of equal strength keep their order, whatever the machine.
    order = present[np.argsort(-strength[present], kind="stable")]
    factors = np.zeros(len(strength))
    factors[order[:keep]] = 1.0
    small = order[keep:]
    chosen = rng.choice(len(small), size=min(draw, len(small)), replace=False)
    if len(chosen):
        factors[small[chosen]] = len(small) / len(chosen)
    return factors


def choose_columns(count: int, share: float, seed: tuple[int, ...]) -> Array:
    """Which of all parties' columns a tree or node may use; everybody draws the same."""
    wanted = max(1, round(share * count))
    chosen = np.zeros(count, dtype=bool)
    if count:
        chosen[
            np.random.default_rng(seed).choice(count, size=min(wanted, count), replace=False)
        ] = True
    return chosen
