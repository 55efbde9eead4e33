"""Bags of PU bagging as row weights: who trains each model, and whose scores count for a row.

Pure functions. Bagging is that of Mordelet and Vert, "A bagging SVM to learn from positive and
unlabeled examples". The negatives N of a bag are |P| draws with replacement from the unlabelled
rows U, and the bag scores the rows O = U − N. A model that trains on P ∪ N is a column of row
weights: 1 for a positive, k for a row that was drawn k times, 0 for all others.

Spies are those of Liu et al., "Partially supervised classification of text documents": some known
positives go among the unlabelled rows. A model that takes all of these for negative scores them,
and the unlabelled rows below nearly all spies are reliable negatives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vfsl.errors import DataError
from vfsl.values import Floats, Integers

Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Batch:
    """Models that are trained together.

    Attributes
    ----------
    weights : array (rows, models)
        The training weight of each row in each model.
    voters : array (rows, models)
        Whose scores make up the one value of a row: for an unlabelled row the bags that it is out
        of, for a known positive the model that it was held out of, for a promoted row nobody's.
    held_out : array (rows, models)
        The model that a known positive or unlabelled row was held out of.
    bags : int
        How many of the models, the first ones, are bags; they make up the result.
    """

    weights: Floats
    voters: Booleans
    held_out: Booleans
    bags: int


def make_batch(
    known: Booleans,
    promoted: Booleans,
    pool: Booleans,
    *,
    bags: int,
    folds: int,
    rng: np.random.Generator,
    preliminary: bool = False,
) -> Batch:
    """The models of one iteration.

    Parameters
    ----------
    known, promoted : arrays (rows,)
        Positives by mark, and rows that joined them; all others are unlabelled.
    pool : array (rows,)
        Unlabelled rows to draw pseudo-negatives from, two or more: all, or the reliable negatives.
    bags, folds : int
        How many models vote, and how many bags hold out a part of the known positives in turn.
    preliminary : bool
        Add a model of all positives against all of the pool; it votes for the rows outside.
    """
    positive, unlabelled = known | promoted, ~(known | promoted)
    draws = draw_negatives(pool, int(positive.sum()), bags, rng)
    # Dealt one by one, so that no fold has all rows to draw from.
    places = np.full(len(known), -1, dtype=np.int64)
    for rows in (known, pool, unlabelled & ~pool):
        places = np.where(rows, deal_folds(rows, folds, rng), places)
    weights = [weigh_bags(positive, draws)]
    votes = [find_out_of_bag(unlabelled, draws)]
    if preliminary:
        weights.append(weigh_sides(positive, pool)[:, None])
        votes.append((unlabelled & ~pool)[:, None])
    of_fold = places[:, None] == np.arange(folds)
    checks = [weigh_fold(positive, pool, places, fold, rng) for fold in range(folds)]
    weights.append(np.stack(checks, axis=1))
    votes.append(of_fold & known[:, None])
    others = np.zeros((len(known), bags + preliminary), dtype=bool)
    return Batch(np.hstack(weights), np.hstack(votes), np.hstack([others, of_fold]), bags)


def draw_negatives(pool: Booleans, size: int, bags: int, rng: np.random.Generator) -> Integers:
    """How often each row was drawn into each bag: ``size`` draws with replacement from the pool."""
    rows = np.flatnonzero(pool)
    drawn = rng.integers(0, len(rows), (bags, size))
    counts = np.zeros((len(pool), bags), dtype=np.int64)
    for bag, places in enumerate(drawn):
        counts[rows, bag] = np.bincount(places, minlength=len(rows))
    return counts


def weigh_bags(positive: Booleans, draws: Integers) -> Floats:
    """Training weights of the bags, (rows, bags): P ∪ N; a row drawn k times counts k times."""
    return (positive[:, None] + draws).astype(np.float64)


def weigh_sides(positive: Booleans, others: Booleans) -> Floats:
    """Weights of a model of all positives against all others, where both sides weigh the same."""
    return np.asarray(positive + others * (positive.sum() / max(int(others.sum()), 1)), np.float64)


def weigh_fold(
    positive: Booleans,
    pool: Booleans,
    folds: Integers,
    fold: int,
    rng: np.random.Generator,
) -> Floats:
    """Weights of a bag that knows nothing of one fold: its other positives, and as many draws.

    Held-out positives are compared with rows that bags score, so they are scored by a bag too: a
    model of few positives against all of U would know these by heart and score all others low.
    """
    here = folds != fold
    kept = positive & here
    draws = draw_negatives(pool & here, int(kept.sum()), 1, rng)
    return weigh_bags(kept, draws)[:, 0]


def find_out_of_bag(unlabelled: Booleans, draws: Integers) -> Booleans:
    """Which bags score a row: those that it is out of, or all if it is in every bag."""
    free = unlabelled[:, None] & (draws == 0)
    never = unlabelled & ~free.any(axis=1)
    return np.asarray(free | never[:, None])


def deal_folds(rows: Booleans, folds: int, rng: np.random.Generator) -> Integers:
    """A fold for each of the rows, evenly and at random; −1 for the others."""
    places = np.full(len(rows), -1, dtype=np.int64)
    chosen = rng.permutation(np.flatnonzero(rows))
    places[chosen] = np.arange(len(chosen)) % folds
    return places


# ---- votes ---------------------------------------------------------------------------------------


def average_votes(scores: Floats, voters: Booleans) -> Floats:
    """The mean score of each row's voters; NaN for a row without one."""
    return average_sums((scores * voters).sum(axis=1), voters)


def average_sums(sums: Floats, voters: Booleans) -> Floats:
    """Sums over each row's voters as means; NaN for a row without one."""
    counts = voters.sum(axis=1)
    means = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return np.asarray(means)


def match_scale(values: Floats, from_scale: Floats, to_scale: Floats) -> Floats:
    """Values of one scoring brought to the scale of another that scored the same rows.

    The k-th smallest of ``from_scale`` becomes the k-th smallest of ``to_scale``.
    """
    return np.asarray(np.interp(values, np.sort(from_scale), np.sort(to_scale)))


# ---- spies ---------------------------------------------------------------------------------------


def choose_spies(known: Booleans, fraction: float, rng: np.random.Generator) -> Booleans:
    """A random fraction of the known positives: at least one, and at least one stays behind."""
    rows = np.flatnonzero(known)
    count = min(max(round(fraction * len(rows)), 1), len(rows) - 1)
    spies = np.zeros(len(known), dtype=bool)
    spies[rng.choice(rows, count, replace=False)] = True
    return spies


def find_negatives(
    scores: Floats, unlabelled: Booleans, spies: Booleans, threshold: float
) -> Booleans:
    """Unlabelled rows that score below all spies but the lowest fraction ``threshold`` of them."""
    line = np.quantile(scores[spies], threshold)
    found = unlabelled & (scores < line)
    if found.sum() < 2:  # held-out models draw from a part of them
        raise DataError(
            f"{int(found.sum())} unlabelled rows score below {1 - threshold:.0%} of the "
            f"{int(spies.sum())} spies, so there are no reliable negatives to draw from; raise "
            "spy_threshold, or leave spies out."
        )
    return found
