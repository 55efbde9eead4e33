"""Which share of the unlabelled rows is positive, from scores of held-out positives and of U.

Pure functions. All of them need positives that were picked at random among all positives; more
scored means more likely positive. Between P and U only the order of scores counts, except in
``dedpul`` and ``elkan_noto``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.isotonic import isotonic_regression

from vfsl.values import Floats

# Best bin estimation: confidence 1 − δ and the slack γ of its bound.
_DELTA, _GAMMA = 0.1, 0.01
_TOP = 0.1  # of the held-out positives
_GRID = 1024
_QUANTILES = 2000
# Smaller steps only follow the noise of the densities.
_EM_ROUNDS, _EM_STEP = 1000, 1e-3


@dataclass(frozen=True)
class Prior:
    """Estimates of the positive share of the unlabelled rows.

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
        """A share to decide by how many rows are reliable: rather too low than too high."""
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


def best_bin(positive: Floats, unlabelled: Floats) -> float:
    """Best bin estimation (Garg et al. 2021): the ratio of shares above the safest threshold.

    The threshold minimises q_U/q_P + (1 + γ)/q_P (√(ln(4/δ)/2n_U) + √(ln(4/δ)/2n_P)), where q is
    the share that scores at or above it.
    """
    q_p, q_u = _shares_above(positive, unlabelled)
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


def dedpul(positive: Floats, unlabelled: Floats) -> float:
    """DEDPUL (Ivanov 2019): π ← mean over U of min(1, π f_P/f_U), from π = 1.

    Densities by kernels over the scores, their ratio made to grow with the score. Where π falls to
    nothing, the share where π − mean min(1, π f_P/f_U) bends most.
    """
    ratio = _density_ratio(positive, unlabelled)
    share = 1.0
    for _ in range(_EM_ROUNDS):
        after = float(np.minimum(1.0, share * ratio).mean())
        done = abs(after - share) < _EM_STEP
        share = after
        if done:
            break
    if share > _EM_STEP:
        return share
    grid = np.linspace(0, 1, 201)
    gap = np.array([pi - np.minimum(1.0, pi * ratio).mean() for pi in grid])
    return float(grid[1 + int(np.argmax(np.diff(gap, 2)))])


def _shares_above(positive: Floats, unlabelled: Floats) -> tuple[Floats, Floats]:
    """q_P and q_U at each positive's score; between two of them q_U only grows."""
    lines = np.unique(positive)
    q_p = 1 - np.searchsorted(np.sort(positive), lines) / len(positive)
    q_u = 1 - np.searchsorted(np.sort(unlabelled), lines) / len(unlabelled)
    return np.asarray(q_p), np.asarray(q_u)


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
    spread = min(float(values.std()), quarter) or float(values.std()) or 1e-3
    return 0.9 * spread * float(len(values) ** -0.2)
