"""Which fraction of the unlabelled rows is positive, and scores as probabilities under it.

Pure functions over logits of held-out positives and of unlabelled rows. All of them need positives
that were picked at random among all positives; a higher score means more likely positive. Between
P and U only the order of scores counts, except in ``dedpul`` and ``elkan_noto``.

Probabilities are Platt scaling of P against U under the prior. A row is labelled with the frequency
c if it is positive and never otherwise (Elkan and Noto, "Learning classifiers from only positive
and unlabeled data"), so P(labelled | score z) = c · σ(αz + β), where c follows from the prior and
the sizes. α and β maximise the likelihood of who is labelled; σ(αz + β) is the probability of being
positive. α has a least value, so that a probability always keeps the order of the scores.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import mannwhitneyu, norm
from sklearn.isotonic import isotonic_regression

from vfsl.values import Floats

# Best bin estimation: confidence 1 − δ and the slack γ of its bound.
_DELTA, _GAMMA = 0.1, 0.01
_TOP = 0.1  # of the held-out positives
_GRID = 1024
_QUANTILES = 2000
# Smaller steps only follow random errors of the densities.
_EM_ROUNDS, _EM_STEP = 1000, 1e-3

CALIBRATED_BY = "Platt scaling of held-out scores, Elkan-Noto correction under the estimated prior"
_EDGE = 1e-12
# The highest logit of the best row: nearer to 1 a double has too few digits to keep an order.
_SUREST = float(-np.log(np.sqrt(np.finfo(float).eps)))
_DEEPEST = 700.0  # and of the worst row: below its negative, probabilities become 0


@dataclass(frozen=True)
class Prior:
    """Estimates of the fraction of the unlabelled rows that is positive.

    Attributes
    ----------
    value : float
        By DEDPUL.
    low, high : float
        Its 90 % bootstrap interval.
    best_bin : float
        By best bin estimation: a cross-check that is too high where the classes overlap.
    upper : float
        By Elkan and Noto's mean; higher still.
    top : float
        The ratio among the best tenth of held-out positives.
    """

    value: float
    low: float
    high: float
    best_bin: float
    upper: float
    top: float

    @property
    def cautious(self) -> float:
        """The fraction that decides how many rows are reliable: rather too low than too high."""
        return min(self.low, self.top)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def estimate_prior(
    positive: Floats, unlabelled: Floats, rng: np.random.Generator, repeats: int = 50
) -> Prior:
    """All estimates from logits of held-out positives and of unlabelled rows."""
    draws = [
        dedpul(rng.choice(positive, len(positive)), rng.choice(unlabelled, len(unlabelled)))
        for _ in range(repeats)
    ]
    low, high = np.quantile(draws, [0.05, 0.95])
    value = dedpul(positive, unlabelled)
    return Prior(
        value,
        min(float(low), value),
        max(float(high), value),
        best_bin(positive, unlabelled),
        elkan_noto(positive, unlabelled),
        top_ratio(positive, unlabelled),
    )


def dedpul(positive: Floats, unlabelled: Floats) -> float:
    """DEDPUL: π ← mean over U of min(1, π f_P/f_U), from π = 1.

    Ivanov, "DEDPUL: Difference-of-estimated-densities-based positive-unlabeled learning". Densities
    are kernels over the scores, and their ratio is made to grow with the score. Where π falls to
    nothing, it is the fraction at which π − mean min(1, π f_P/f_U) bends most.
    """
    ratio = _density_ratio(positive, unlabelled)
    if not ratio.any():
        return 0.0  # every positive scores far above all of U
    fraction = 1.0
    for _ in range(_EM_ROUNDS):
        after = float(np.minimum(1.0, fraction * ratio).mean())
        done = abs(after - fraction) < _EM_STEP
        fraction = after
        if done:
            break
    if fraction > _EM_STEP:
        return fraction
    grid = np.linspace(0, 1, 201)
    gap = np.array([pi - np.minimum(1.0, pi * ratio).mean() for pi in grid])
    return float(grid[1 + int(np.argmax(np.diff(gap, 2)))])


def best_bin(positive: Floats, unlabelled: Floats) -> float:
    """Best bin estimation: the ratio of fractions above the safest threshold.

    Garg et al., "Mixture proportion estimation and PU learning: A modern approach". The threshold
    minimises q_U/q_P + (1 + γ)/q_P (√(ln(4/δ)/2n_U) + √(ln(4/δ)/2n_P)), where q is the fraction
    that scores at or above it.
    """
    # At each positive's score: between two of them q_U only grows.
    lines = np.unique(positive)
    q_p = 1 - np.searchsorted(np.sort(positive), lines) / len(positive)
    q_u = 1 - np.searchsorted(np.sort(unlabelled), lines) / len(unlabelled)
    doubt = np.log(4 / _DELTA) / 2
    slack = np.sqrt(doubt / len(unlabelled)) + np.sqrt(doubt / len(positive))
    best = int(np.argmin(q_u / q_p + (1 + _GAMMA) / q_p * slack))
    return float(min(q_u[best] / q_p[best], 1.0))


def top_ratio(positive: Floats, unlabelled: Floats) -> float:
    """q_U/q_P above the best tenth of the held-out positives, where hardly a negative is left."""
    line = np.quantile(positive, 1 - _TOP)
    ratio = (unlabelled >= line).mean() / (positive >= line).mean()
    return float(min(ratio, 1.0))


def elkan_noto(positive: Floats, unlabelled: Floats) -> float:
    """By Elkan and Noto's label frequency, the mean P(labelled | x) of held-out positives.

    Scores are logits of a model that saw both sides with the same weight.
    """
    n_p, n_u = len(positive), len(unlabelled)
    labelled = expit(positive + np.log(n_p / n_u))
    return float(min(n_p * (1 / labelled.mean() - 1) / n_u, 1.0))


def _density_ratio(positive: Floats, unlabelled: Floats) -> Floats:
    """f_P/f_U at even quantiles of the unlabelled rows, both densities smoothed alike."""
    both = np.concatenate([positive, unlabelled])
    width = min(_bandwidth(positive), _bandwidth(unlabelled))
    grid = np.linspace(both.min() - 3 * width, both.max() + 3 * width, _GRID)
    floor = 1e-3 / (len(unlabelled) * (grid[-1] - grid[0]))
    f_u = np.maximum(_density(unlabelled, grid, width), floor)
    places = np.quantile(unlabelled, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    ratio = np.interp(places, grid, _density(positive, grid, width) / f_u)
    rising = isotonic_regression(ratio)
    if not rising.any():
        return np.asarray(rising)
    # The mean of f_P/f_U over U is 1; what kernels lose of it would let EM fall to nothing.
    return np.asarray(rising / rising.mean())


def _density(values: Floats, grid: Floats, bandwidth: float) -> Floats:
    """A Gaussian kernel density on an even grid, by smoothing a histogram."""
    step = grid[1] - grid[0]
    counts = np.bincount(np.rint((values - grid[0]) / step).astype(int), minlength=len(grid))
    width = bandwidth / step
    reach = np.arange(-int(4 * width) - 1, int(4 * width) + 2)
    kernel = np.exp(-0.5 * (reach / max(width, 0.3)) ** 2)
    smooth = np.convolve(counts, kernel / kernel.sum())
    start = len(reach) // 2
    return np.asarray(smooth[start : start + len(grid)] / (len(values) * step))


def _bandwidth(values: Floats) -> float:
    """Silverman's rule, by the smaller of two measures of spread."""
    quarter = float(np.subtract(*np.quantile(values, [0.75, 0.25]))) / 1.34
    # What equal numbers differ by when they are added up is no spread.
    nothing = 1e-9 * max(1.0, float(np.abs(values).max()))
    both = [one for one in (float(values.std()), quarter) if one > nothing]
    return 0.9 * (min(both) if both else 1e-3) * float(len(values) ** -0.2)


# ---- calibration ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calibration:
    """From logit scores to probabilities.

    Attributes
    ----------
    slope, intercept : float
        α and β.
    frequency : float
        c, the fraction of all positives that is labelled.
    """

    slope: float
    intercept: float
    frequency: float

    def of_all(self, scores: Floats) -> Floats:
        """How likely a row is positive, before one knows whether it is labelled."""
        return np.asarray(expit(self.slope * scores + self.intercept))

    def of_unlabelled(self, scores: Floats) -> Floats:
        """How likely an unlabelled row is positive: (1 − c) p / (1 − c p)."""
        p, c = self.of_all(scores), self.frequency
        return np.asarray((1 - c) * p / (1 - c * p))


def calibrate(positive: Floats, unlabelled: Floats, prior: float) -> Calibration:
    """Fit α and β on logits of held-out positives and of unlabelled rows."""
    prior = max(prior, 0.5 / len(unlabelled))  # less than half a row is not told from none
    c = label_frequency(prior, len(positive), len(unlabelled))
    both = np.concatenate([positive, unlabelled])
    # Measured from the best row, whose own logit is what is fitted beside the slope.
    best, spread = both.max(), both.std() or 1.0
    z = (both - best) / spread
    labelled = np.arange(len(both)) < len(positive)
    all_positive = (len(positive) + prior * len(unlabelled)) / len(both)
    least = least_slope(positive, unlabelled)
    start = max(1.0, least)
    top = float(np.clip(finite_logit(np.array(all_positive)) - start * z.mean(), -_SUREST, _SUREST))

    def loss(values: Floats) -> tuple[float, Floats]:
        p = expit(values[0] * z + values[1])
        s = np.clip(c * p, _EDGE, 1 - _EDGE)
        value = -np.where(labelled, np.log(s), np.log1p(-s)).mean()
        # d(−log s) = −(1 − p), d(−log(1 − s)) = s(1 − p)/(1 − s), by the logit of p.
        slope = np.where(labelled, -(1 - p), s * (1 - p) / (1 - s)) / len(z)
        return float(value), np.array([slope @ z, slope.sum()])

    found = minimize(
        loss,
        np.array([start, top]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(least, None), (-_SUREST, _SUREST)],
    ).x
    steepest, top = float(found[0]), float(found[1])
    if steepest * z.min() + top < -_DEEPEST:
        steepest = max((_DEEPEST + top) / -float(z.min()), least)
    slope = float(steepest / spread)
    return Calibration(slope, float(top - slope * best), c)


def label_frequency(prior: float, positives: int, unlabelled: int) -> float:
    """c: the labelled fraction of all positives, if the fraction ``prior`` of U is positive."""
    return positives / (positives + prior * unlabelled)


def least_slope(positive: Floats, unlabelled: Floats) -> float:
    """The least α that fits how well positives rank above U, in deviations of all scores.

    For positives and negatives that score normally with one deviation s, α = √2 Φ⁻¹(AUC)/s with
    the AUC of positives against negatives. U has positives too, so the AUC against U is closer to ½
    (Menon et al., "Learning from corrupted binary labels via class-probability estimation"), and s
    is at most the deviation of all scores: both make this a lower bound. A ranking that is no more
    than a standard error above chance, by Wilcoxon's variance, counts as that: no sample of this
    size can say that a slope is flatter.
    """
    n_p, n_u = len(positive), len(unlabelled)
    chance = 0.5 + np.sqrt((n_p + n_u + 1) / (12 * n_p * n_u))
    surest = 1 - 1 / (2 * (n_p * n_u + 1))  # half a pair short of all, and one more
    ranked = min(max(separation(positive, unlabelled), chance), surest)
    return float(np.sqrt(2) * norm.ppf(ranked))


def separation(positive: Floats, unlabelled: Floats) -> float:
    """How often a held-out positive scores above an unlabelled row: an AUC; ties count half."""
    above = mannwhitneyu(positive, unlabelled, method="asymptotic").statistic
    return float(above / (len(positive) * len(unlabelled)))


def finite_logit(probabilities: Floats) -> Floats:
    """The logit, finite for 0 and 1 too: nearer than a billionth to either counts as that."""
    return np.asarray(logit(np.clip(probabilities, 1e-9, 1 - 1e-9)))
