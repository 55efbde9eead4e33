"""Probabilities of classes from sums of scores: a logistic model needs no more of who is what.

All local at the missing party. The likelihood of a multinomial logistic model of scores depends on
which row has which class only by the sum of the scores over the rows of each class (its sufficient
statistics). These sums are opened; for the rest the model needs scores, whosever they are: those of
the remaining rows, once they are predicted, scaled so that they vary as those of the common rows.

Each class is added up in two halves of its rows. A model of one half is judged by the other: there
scores are drawn for rows of each class as a model of that half finds them. A class of few rows is
added up as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import logsumexp

from vfsl.completion.calibration import ClassScale
from vfsl.completion.columns import Fold, Target
from vfsl.values import Booleans, Floats, Integers

HALVES = 2
# Sums over fewer rows of a class are not asked for.
LEAST_OF_CLASS = 10
# So many scores are enough, and fewer tell too little of their distribution.
_MOST_SCORES, _FEWEST_SCORES = 2000, 100
# Leaving a row out moves its scores away from its class by its leverage. A direction in which that
# is more than this part of the held-out scores' variance is not used, nor one in which new scores
# hardly vary. Leverages vary: their mean square is taken to be so many times that of the mean.
_MOST_MOVED, _LEAST_RATIO, _UNEVEN = 0.2, 0.25, 5.0
# So often drawn scores are made to fit what was counted.
_MEETINGS = 20
# The logit of a class that no row has.
_ABSENT = -50.0


@dataclass(frozen=True, eq=False)
class ClassErrors:
    """Errors of a category's indicators over known cells.

    ``sums`` (halves, classes, targets): by half and class; ``products`` (targets, targets).
    """

    sums: Floats
    products: Floats


# ---- halves of classes --------------------------------------------------------------------------


def draw_halves(groups: Integers, classes: int, rng: np.random.Generator) -> Integers:
    """The half of each row: in every class about as many are in either."""
    halves = np.zeros(len(groups), dtype=np.int64)
    for code in range(classes):
        here = np.flatnonzero(groups == code)
        halves[rng.permutation(here)] = (np.arange(len(here)) + rng.integers(HALVES)) % HALVES
    return halves


def number_cells(groups: Integers, halves: Integers, known: Booleans, classes: int) -> Integers:
    """By which of halves × classes sums each row counts; a class of few rows is not divided."""
    counts = np.bincount(groups[known], minlength=classes)
    divided = np.where(counts[groups] >= HALVES * LEAST_OF_CLASS, halves, 0)
    return np.asarray(divided * classes + groups)


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """Sums (halves, classes, targets) of held-out scores and how many rows (halves, classes) have.

    ``mean`` and ``covariance`` are of the scores of all known rows.
    """

    sums: Floats
    counts: Floats
    mean: Floats
    covariance: Floats

    @classmethod
    def of(
        cls, errors: ClassErrors, groups: Integers, halves: Integers, known: Booleans
    ) -> ScoreSums:
        """From sums of errors: a score is the error and the indicator of the row's class."""
        classes = errors.sums.shape[1]
        hot = np.eye(classes)[:, 1:]
        cells = number_cells(groups, halves, known, classes)[known]
        counts = np.bincount(cells, minlength=HALVES * classes).reshape(HALVES, classes)
        sums = errors.sums + counts[..., None] * hot
        total = errors.sums.sum(axis=0).T @ hot
        second = errors.products + total + total.T + np.diag(counts.sum(axis=0)[1:])
        rows = counts.sum()
        mean = sums.sum(axis=(0, 1)) / rows
        divided = counts.min(axis=0) > 0
        whole = counts.sum(axis=0)
        return cls(
            np.where(divided[:, None], sums, sums.sum(axis=0) / HALVES),
            np.where(divided, counts, whole / HALVES),
            mean,
            np.asarray(second / rows - np.outer(mean, mean)),
        )

    def draw_errors(self, codes: Integers, rng: np.random.Generator) -> Floats:
        """Normal errors of rows of these classes, with the measured means, squares and products."""
        counts, hot = self.counts.sum(axis=0), np.eye(len(self.counts[0]))[:, 1:]
        means = self.sums.sum(axis=0) / np.maximum(counts, 1.0)[:, None]
        apart = means - self.mean
        within = self.covariance - (counts[:, None] * apart).T @ apart / counts.sum()
        noise = rng.standard_normal((len(codes), len(self.mean)))
        for code in range(len(counts)):
            here = codes == code
            noise[here] -= noise[here].mean(axis=0) if here.any() else 0.0
        spread = root(noise.T @ noise / len(noise))
        back = np.linalg.pinv(spread, rcond=1e-6, hermitian=True)
        return np.asarray(noise @ back @ root(within) + (means - hot)[codes])

    def fit(self, scores: Floats, leverage: float) -> tuple[ClassScale, tuple[ClassScale, ...]]:
        """Logistic models of the classes by these scores: of all rows, and of those of each half.

        Directions in which held-out scores vary mostly because rows were left out are not used:
        there they tell the class of a row, which those of new rows do not.
        """
        ridge = 1e-9 * max(float(np.trace(self.covariance)), 1e-9) * np.eye(len(self.mean))
        shares = (self.counts.sum(axis=0) / self.counts.sum())[1:]
        classes = np.diag(shares) - np.outer(shares, shares)
        factor = _UNEVEN * (leverage / max(1.0 - leverage, 0.1)) ** 2
        moved, turn = eigh(factor * classes, self.covariance + ridge)
        turn = turn[:, moved <= _MOST_MOVED]
        inside = (scores - scores.mean(axis=0)) @ turn
        ratios, again = np.linalg.eigh(inside.T @ inside / len(inside))
        kept = ratios >= _LEAST_RATIO
        turn = turn @ again[:, kept]
        # As long as held-out ones, so that sums fit.
        alike = inside @ again[:, kept] / np.sqrt(ratios[kept])
        every = self._fit(self.sums.sum(axis=0), self.counts.sum(axis=0), turn, alike)
        each = [self._fit(self.sums[h], self.counts[h], turn, alike) for h in range(HALVES)]
        return every, tuple(each)

    def _fit(self, sums: Floats, counts: Floats, turn: Floats, alike: Floats) -> ClassScale:
        rows = counts.sum()
        # From the mean of these rows, as the scores are from theirs.
        inside = (sums - counts[:, None] * sums.sum(axis=0) / rows) @ turn / rows
        weights = fit_to_sums(inside, counts / rows, alike, 1.0 / rows)
        whole = np.vstack([turn @ weights[:-1], weights[-1]])
        return ClassScale(self.mean, np.ones(len(self.mean)), whole)


def root(matrix: Floats) -> Floats:
    """The symmetric root of a matrix without negative eigenvalues; small ones count as 0."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def fit_to_sums(sums: Floats, shares: Floats, scores: Floats, penalty: float) -> Floats:
    """Weights (columns + 1, classes) of the likeliest logistic model, with scikit-learn's penalty.

    ``sums`` (classes, columns): the mean over all rows of a score times whether the row has the
    class; ``shares``: which fraction of the rows has it; ``scores``: of any rows like these.
    """
    classes, columns = sums.shape
    seen = shares > 0
    start = np.zeros((columns + 1, classes))
    start[-1] = np.log(shares, out=np.full(classes, _ABSENT), where=seen)

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(columns + 1, classes)
        logits = scores @ weights[:-1] + weights[-1]
        total = logsumexp(logits, axis=1)
        chances = np.exp(logits - total[:, None])
        value = total.mean() - (weights[:-1].T * sums).sum() - weights[-1] @ shares
        slope = np.vstack([scores.T @ chances / len(scores) - sums.T, chances.mean(axis=0)])
        slope[-1] -= shares
        slope[:-1] += penalty * weights[:-1]
        return float(value + penalty / 2 * (weights[:-1] ** 2).sum()), slope.ravel()

    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    weights = found.x.reshape(columns + 1, classes)
    weights[-1] = np.where(seen, weights[-1], _ABSENT)
    return np.asarray(weights)


# ---- a category ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Counted:
    """Which fraction of held-out rows is within margins, both rising."""

    margins: Floats
    within: Floats


@dataclass(frozen=True, eq=False)
class ClassModel:
    """What the missing party knows of a category: sums of its scores, and scores to go with them.

    Attributes
    ----------
    target : Target
    sums : ScoreSums
    halves : integer array (common rows,)
    scores : array
        Like those of common rows, whosever they are.
    every : ClassScale
        From scores to probabilities of groups of categories, by all rows.
    each : sequence of ClassScale
        The same by the rows of either half.
    """

    target: Target
    sums: ScoreSums
    halves: Integers
    scores: Floats
    every: ClassScale
    each: tuple[ClassScale, ...]

    @classmethod
    def fit(
        cls,
        target: Target,
        errors: ClassErrors,
        halves: Integers,
        scores: Floats,
        leverage: float,
        rng: np.random.Generator,
    ) -> ClassModel:
        """From sums, and scores of other rows; of too few rows normal scores are taken instead.

        ``leverage`` is that of common rows on average: columns of the other party by rows.
        """
        sums = ScoreSums.of(errors, target.grouped, halves, target.known)
        if len(scores) < max(_FEWEST_SCORES, 10 * target.width):
            codes = rng.choice(target.grouped[target.known], _MOST_SCORES)
            hot = np.eye(target.width + 1)[codes][:, 1:]
            scores = hot + sums.draw_errors(codes, rng)
        elif len(scores) > _MOST_SCORES:
            scores = scores[rng.choice(len(scores), _MOST_SCORES, replace=False)]
        return cls(target, sums, halves, scores, *sums.fit(scores, leverage))

    def hold_out(self, rng: np.random.Generator, counted: Counted | None = None) -> Fold:
        """Probabilities of the common rows by models of the other half, of drawn scores.

        Scores are drawn as the model of their own half finds them likely, and so that as many rows
        are within some margins as were counted.
        """
        target, codes = self.target, self.target.filled.astype(np.int64)
        likely = [spread_levels(one, target).chances(self.scores) for one in self.each]
        if counted is not None:
            likely = self._meet(likely, counted)
        drawn = np.zeros((len(codes), self.scores.shape[1]))
        chances = np.zeros((len(codes), len(target.levels)))
        for half in range(HALVES):
            for code in range(len(target.levels)):
                here = np.flatnonzero((self.halves == half) & (codes == code))
                reached = np.cumsum(likely[half][:, code] + 1e-300)
                # At even distances from a random start: no more chance than needed.
                places = (np.arange(len(here)) + rng.random()) / max(len(here), 1) * reached[-1]
                at = np.minimum(np.searchsorted(reached, places), len(reached) - 1)
                drawn[rng.permutation(here)] = self.scores[at]
            here = self.halves == half
            chances[here] = spread_levels(self.each[1 - half], target).chances(drawn[here])
        guess = chances.argmax(axis=1).astype(np.float64)
        baseline = frequencies_of_others(target)
        return Fold(target, guess, baseline, chances, scale=self.scale, drawn=True, scores=drawn)

    def _meet(self, likely: Sequence[Floats], counted: Counted) -> list[Floats]:
        """Probabilities changed by margin, so that rows have margins as often as counted."""
        target, edges = self.target, counted.margins
        margins = [
            find_margins(find_logits(spread_levels(self.each[1 - half], target), self.scores))
            for half in range(HALVES)
        ]
        bins = [np.searchsorted(edges, one) for one in margins]
        wanted = np.diff(counted.within, prepend=0.0, append=1.0)
        shares, factors = target.frequencies() / HALVES, np.ones(len(edges) + 1)
        made = list(likely)
        for _ in range(_MEETINGS):
            met = np.zeros(len(factors))
            for half in range(HALVES):
                made[half] = likely[half] * factors[bins[half]]
                each = made[half] / np.maximum(made[half].sum(axis=0), 1e-300) * shares
                met += np.bincount(bins[half].ravel(), each.ravel(), minlength=len(factors))
            factors = factors * np.where(met > 0, wanted / np.maximum(met, 1e-12), 1.0)
        return made

    @property
    def scale(self) -> ClassScale:
        """From scores to probabilities of all categories."""
        return spread_levels(self.every, self.target)


def draw_classes(
    target: Target, errors: ClassErrors, halves: Integers, rng: np.random.Generator
) -> Fold:
    """Held-out linear scores with these sums, as if they were probabilities.

    Their squared error is the measured one. It is not that of the probabilities which scores become
    later, but in most cases larger.
    """
    sums = ScoreSums.of(errors, target.grouped, halves, target.known)
    drawn = np.eye(target.width + 1)[target.grouped][:, 1:]
    drawn = drawn + sums.draw_errors(target.grouped, rng)
    groups = np.column_stack([1.0 - drawn.sum(axis=1), drawn])
    chances = groups[:, target.group_of] * target.within
    guess = chances.argmax(axis=1).astype(np.float64)
    fold = Fold(target, guess, frequencies_of_others(target), chances, drawn=True, scores=drawn)
    return replace(fold, halves=halves, sums=errors.sums, products=errors.products)


def spread_levels(scale: ClassScale, target: Target) -> ClassScale:
    """Probabilities of groups as those of their categories: within a group as they are frequent."""
    weights = scale.weights[:, target.group_of]
    weights[-1] = weights[-1] + np.log(target.within)
    return ClassScale(scale.centre, scale.deviation, weights)


def frequencies_of_others(target: Target) -> Floats:
    """The frequencies of the classes among all known cells but the row's own, (rows, classes)."""
    hot = np.eye(len(target.levels))[target.filled.astype(np.int64)] * target.known[:, None]
    counts = hot.sum(axis=0) - hot
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0))


# ---- sets of classes ----------------------------------------------------------------------------


def find_margins(logits: Floats) -> Floats:
    """By how much the best of the other classes is ahead of each class, (rows, classes)."""
    if logits.shape[1] < 2:
        return np.full(logits.shape, -np.inf)
    best = logits.argmax(axis=1)
    first = logits.max(axis=1)
    others = logits.copy()
    others[np.arange(len(logits)), best] = -np.inf
    second = others.max(axis=1)
    leads = np.eye(logits.shape[1], dtype=bool)[best]
    return np.asarray(np.where(leads, second[:, None], first[:, None]) - logits)


def find_logits(scale: ClassScale, scores: Floats) -> Floats:
    """Logarithms of probabilities, up to a number for each row."""
    inside: Floats = (scores - scale.centre) / scale.deviation
    return np.asarray(inside @ scale.weights[:-1] + scale.weights[-1])
