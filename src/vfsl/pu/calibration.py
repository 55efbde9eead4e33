"""Scores as probabilities: Platt scaling of held-out P-against-U scores under a given prior.

Pure functions. A row is labelled with the frequency c if it is positive and never otherwise (Elkan
and Noto), so P(labelled | score z) = c · σ(αz + β), where c follows from the prior and the sizes.
α and β maximise the likelihood of who is labelled; σ(αz + β) is the probability of being positive.
α has a least value, so that a probability always keeps the order of the scores: `least_slope`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import norm

from vfsl.pu.stopping import separation
from vfsl.values import Floats

METHOD = "Platt scaling of held-out scores, Elkan-Noto correction under the estimated prior"
_EDGE = 1e-12
# The highest logit of the best row: nearer to 1 a double has too few digits to keep an order.
_SUREST = float(-np.log(np.sqrt(np.finfo(float).eps)))


@dataclass(frozen=True)
class Calibration:
    """From logit scores to probabilities.

    Attributes
    ----------
    slope, intercept : float
        α and β.
    frequency : float
        c, the share of all positives that is labelled.
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Calibration:
        return cls(**content)


def label_frequency(prior: float, positives: int, unlabelled: int) -> float:
    """c: the labelled share of all positives, if that share of U is positive."""
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
    surest = 1 - 1 / (2 * n_p * n_u)  # half a pair short of all
    ranked = min(max(separation(positive, unlabelled), chance), surest)
    return float(np.sqrt(2) * norm.ppf(ranked))


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
    slope = float(found[0] / spread)
    return Calibration(slope, float(found[1] - slope * best), c)


def finite_logit(probabilities: Floats) -> Floats:
    """The logit, of 0 and 1 too: nearer than a billionth to either counts as that."""
    return np.asarray(logit(np.clip(probabilities, 1e-9, 1 - 1e-9)))
