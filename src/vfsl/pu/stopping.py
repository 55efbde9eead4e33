"""How many rows to promote and when to stop, without a true label; reasons are data.

Pure functions. More promoted batches hurt more often than they help, so everything here is a
reason to stop.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import mannwhitneyu, spearmanr

from vfsl.values import Floats

STABLE = 0.995  # rank correlation of two iterations
DRIFT = 0.01  # of the held-out positives' AUC

REASONS = {
    "outer": "all iterations were done",
    "hidden": "the promoted rows reach half of the positives that are estimated to be hidden",
    "stable": "the ranking of the unlabelled rows did not change any more",
    "sizes": "one more batch would leave fewer unlabelled rows than positives",
}


def hidden_positives(share: float, unlabelled: int) -> int:
    """How many positives are among the unlabelled rows, by a cautious estimate of their share."""
    return round(share * unlabelled)


def promotion_size(share: float | None, unlabelled: int, hidden: int, promoted: int) -> int:
    """How many of the best rows become reliable positives now: at least one.

    ``share`` of the unlabelled rows; without it what is left to half of the hidden positives.
    """
    if share is not None:
        return max(min(math.ceil(share * unlabelled), unlabelled), 1)
    return max(min(hidden // 2 - promoted, unlabelled), 1)


def why_stop(
    iteration: int,
    outer: int,
    *,
    promoted: int,
    hidden: int,
    stability: float | None,
    positives: int,
    unlabelled: int,
) -> str | None:
    """The reason to end after an iteration (counted from 1), or None to go on.

    ``positives`` and ``unlabelled`` count the rows with this iteration's promotion done.
    """
    if iteration >= outer:
        return "outer"
    if promoted >= hidden / 2:
        return "hidden"
    if stability is not None and stability >= STABLE:
        return "stable"
    return "sizes" if positives > unlabelled else None


def ranking_stability(before: Floats, after: Floats) -> float:
    """Spearman's rank correlation of two scorings of the same rows; 1 for fewer than two rows."""
    if len(before) < 2:
        return 1.0
    if np.ptp(before) == 0 or np.ptp(after) == 0:
        return 1.0
    return float(spearmanr(before, after).statistic)


def separation(positive: Floats, unlabelled: Floats) -> float:
    """How often a held-out positive scores above an unlabelled row: an AUC, ties count half."""
    above = mannwhitneyu(positive, unlabelled, method="asymptotic").statistic
    return float(above / (len(positive) * len(unlabelled)))


def at_chance(separation: float) -> bool:
    """Whether known positives that were held out rank no better than unlabelled rows."""
    return separation <= 0.5


def drifted(first: float, now: float) -> bool:
    """Whether known positives that were held out are found less well than in the beginning."""
    return now < first - DRIFT
