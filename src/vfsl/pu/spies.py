"""Reliable negatives by spies, the first step of the two-step technique (Liu et al.).

Pure functions. Some known positives go among the unlabelled rows as spies. A model that takes all
of those for negative scores them; unlabelled rows below nearly all spies are reliable negatives.
"""

from __future__ import annotations

import numpy as np

from vfsl.errors import DataError
from vfsl.pu.bags import Booleans
from vfsl.values import Floats


def choose_spies(known: Booleans, share: float, rng: np.random.Generator) -> Booleans:
    """A random share of the known positives: at least one, and at least one stays behind."""
    rows = np.flatnonzero(known)
    count = min(max(round(share * len(rows)), 1), len(rows) - 1)
    spies = np.zeros(len(known), dtype=bool)
    spies[rng.choice(rows, count, replace=False)] = True
    return spies


def spy_weights(positive: Booleans, spies: Booleans) -> Floats:
    """Row weights of the model that finds them: what is taken for negative weighs the same."""
    taken = positive & ~spies
    return np.where(taken, 1.0, taken.sum() / max(int((~taken).sum()), 1))


def reliable_negatives(
    scores: Floats, unlabelled: Booleans, spies: Booleans, threshold: float
) -> Booleans:
    """Unlabelled rows that score below all spies but the lowest share ``threshold`` of them."""
    line = np.quantile(scores[spies], threshold)
    found = unlabelled & (scores < line)
    if found.sum() < 2:  # held-out models draw from a part of them
        raise DataError(
            f"{int(found.sum())} unlabelled rows score below {1 - threshold:.0%} of the "
            f"{int(spies.sum())} spies, so there are no reliable negatives to draw from; raise "
            "spy_threshold, or leave spies out."
        )
    return found
