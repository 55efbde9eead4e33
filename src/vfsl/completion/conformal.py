"""Intervals and class sets that hold a stated share of the truth, from held-out rows.

q is the ⌈(n + 1)(1 − a)⌉-th smallest held-out score: with exchangeable rows an interval then covers
a new value with probability at least 1 − a. Where the new rows differ from the held-out ones,
scores are weighted by how typical their rows are of the new ones.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from vfsl.completion.selection import Booleans, Floats


def quantile(scores: Floats, miss: float) -> float:
    """The ⌈(n + 1)(1 − miss)⌉-th smallest score; infinite if there are too few."""
    place = math.ceil((len(scores) + 1) * (1.0 - miss) - 1e-9)
    return float("inf") if place > len(scores) else float(np.sort(scores)[max(place, 1) - 1])


def weighted_quantile(scores: Floats, weights: Floats, new: Floats, miss: float) -> Floats:
    """For each new row the smallest score at which the weighted share reaches 1 − miss.

    The new row's own weight counts as a score of infinity.
    """
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weights[order])
    wanted = (1.0 - miss) * (reached[-1] + new) if len(scores) else np.ones(len(new))
    places = np.searchsorted(reached, wanted - 1e-12 * (reached[-1] if len(scores) else 1.0))
    padded = np.append(scores[order], np.inf)
    return np.asarray(padded[np.minimum(places, len(scores))])


def split_scores(truth: Floats, predicted: Floats, spread: Floats | None = None) -> Floats:
    """|y − m(x)|, over the expected error where that is known."""
    errors = np.abs(truth - predicted)
    return np.asarray(errors if spread is None else errors / spread)


def split_interval(
    predicted: Floats, q: Floats | float, spread: Floats | None = None
) -> tuple[Floats, Floats]:
    """m(x) ± q, times the expected error where that is known."""
    half = q * (np.ones(len(predicted)) if spread is None else spread)
    return np.asarray(predicted - half), np.asarray(predicted + half)


def cqr_scores(truth: Floats, low: Floats, high: Floats) -> Floats:
    """How far the truth is outside an interval of two quantile models; negative inside."""
    return np.asarray(np.maximum(low - truth, truth - high))


def cqr_interval(low: Floats, high: Floats, q: float) -> tuple[Floats, Floats]:
    """The interval of two quantile models, widened by q."""
    return np.asarray(low - q), np.asarray(high + q)


def lac_scores(chances: Floats, truth: npt.NDArray[np.int64]) -> Floats:
    """1 − the probability of the true class."""
    return np.asarray(1.0 - chances[np.arange(len(truth)), truth])


def lac_sets(chances: Floats, q: Floats | float) -> Booleans:
    """{c : P(c) ≥ 1 − q}."""
    bound = np.broadcast_to(np.asarray(q, dtype=float), (len(chances),))[:, None]
    return np.asarray(chances >= 1.0 - bound - 1e-12)


def aps_scores(chances: Floats, truth: npt.NDArray[np.int64], draws: Floats) -> Floats:
    """The mass of classes ranked above the true one, plus a drawn share of its own."""
    return _all_aps(chances, draws)[np.arange(len(truth)), truth]


def aps_sets(chances: Floats, q: Floats | float, draws: Floats) -> Booleans:
    """{c : score ≤ q}; every set has at least the most probable class."""
    bound = np.broadcast_to(np.asarray(q, dtype=float), (len(chances),))[:, None]
    sets = _all_aps(chances, draws) <= bound + 1e-12
    sets[np.arange(len(chances)), chances.argmax(axis=1)] = True
    return np.asarray(sets)


def odds(chance_of_rest: Floats, most: float = 20.0) -> Floats:
    """e / (1 − e): how typical a row is of the remaining rows; bounded, since few would rule."""
    e = np.clip(chance_of_rest, 1e-6, 1 - 1e-6)
    ratio = e / (1 - e)
    ratio = ratio / np.median(ratio)
    return np.asarray(np.clip(ratio, 1 / most, most))


def _all_aps(chances: Floats, draws: Floats) -> Floats:
    order = np.argsort(-chances, axis=1, kind="stable")
    ranked = np.take_along_axis(chances, order, axis=1)
    above = np.cumsum(ranked, axis=1) - ranked
    scores = above + draws[:, None] * ranked
    back = np.argsort(order, axis=1, kind="stable")
    return np.asarray(np.take_along_axis(scores, back, axis=1))
