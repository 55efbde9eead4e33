"""What people read off scores: KS, Gini, bands with lift and calibration, confusion, residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from vfsl.data.aggregates import LEAST, histogram
from vfsl.values import Array, Floats

Flags = npt.NDArray[np.bool_]


def auc(positive: Flags, scores: Floats) -> float:
    """How often a positive row scores above another one; ties count half."""
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return float("nan")
    ranks = rankdata(scores)  # scikit-learn's takes fifteen times as long per bootstrap sample
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * others))


def find_ks(positive: Flags, scores: Floats) -> tuple[float, float]:
    """The largest distance between the score distributions of both classes, and at which score.

    The statistic of Kolmogorov and Smirnov; both are NaN where a class has no row.
    """
    ups, downs = np.sort(scores[positive]), np.sort(scores[~positive])
    if not len(ups) or not len(downs):
        return float("nan"), float("nan")
    every = np.unique(scores)
    above = np.searchsorted(downs, every, side="right") / len(downs)
    below = np.searchsorted(ups, every, side="right") / len(ups)
    gaps = np.abs(above - below)
    return float(gaps.max()), float(every[gaps.argmax()])


def count_outcomes(positive: Flags, flagged: Flags) -> dict[str, int]:
    """The confusion matrix in words: rows by what they are and what they are called."""
    return {
        "hits": int((positive & flagged).sum()),
        "false alarms": int((~positive & flagged).sum()),
        "misses": int((positive & ~flagged).sum()),
        "rightly left": int((~positive & ~flagged).sum()),
    }


def rate_outcomes(counts: dict[str, int]) -> dict[str, float]:
    """Precision and recall of a confusion matrix, and which fraction of rows is flagged."""
    hits, flagged = counts["hits"], counts["hits"] + counts["false alarms"]
    return {
        "precision": _divide(hits, flagged),
        "recall": _divide(hits, hits + counts["misses"]),
        "flagged": _divide(flagged, sum(counts.values())),
    }


def cut_bands(scores: Floats, count: int, least: int = LEAST) -> list[npt.NDArray[np.int64]]:
    """About equally many rows per band, the highest scores first; equal scores stay together.

    A band has at least ``least`` rows, so that no figure of it stands for fewer.
    """
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    ends = np.append(np.flatnonzero(np.diff(ordered)) + 1, len(ordered))  # of equal scores
    wanted = max(len(scores) / count, least)
    bands: list[npt.NDArray[np.int64]] = []
    start = 0
    for end in ends.tolist():
        if end - start >= least and end >= (len(bands) + 1) * wanted - 0.5:
            bands.append(order[start:end])
            start = end
    rest = order[start:]
    if len(rest) and (len(rest) >= least or not bands):
        bands.append(rest)
    elif len(rest):
        bands[-1] = np.concatenate([bands[-1], rest])
    return bands


def list_bands(positive: Flags, scores: Floats, count: int = 10) -> list[dict[str, float]]:
    """Score bands from the highest: how many rows, how many positives, calibration and lift.

    ``expected`` is the mean score of a band and ``rate`` its fraction of positives: on a calibrated
    model they agree. ``captured`` is the fraction of all positives down to the band, ``lift`` how
    many times as many these are as in as many rows by chance.
    """
    found, rows, hits = [], 0, 0
    total = int(positive.sum())
    for band in cut_bands(scores, count):
        rows, hits = rows + len(band), hits + int(positive[band].sum())
        found.append(
            {
                "from": float(scores[band].min()),
                "to": float(scores[band].max()),
                "rows": len(band),
                "positives": int(positive[band].sum()),
                "expected": float(scores[band].mean()),
                "rate": float(positive[band].mean()),
                "rows so far": _divide(rows, len(scores)),
                "captured": _divide(hits, total),
                "lift": _divide(hits * len(scores), total * rows),
            }
        )
    return found


def describe_scores(positive: Flags, scores: Floats, bands: int = 10) -> dict[str, Any]:
    """All figures of two classes that need no threshold."""
    ks, at = find_ks(positive, scores)
    return {
        "rows": len(scores),
        "positives": int(positive.sum()),
        "KS": ks,
        "KS at": at,
        "Gini": 2 * auc(positive, scores) - 1,
        "bands": list_bands(positive, scores, bands),
    }


def describe_residuals(truth: Floats, values: Floats, bands: int = 10) -> dict[str, Any]:
    """Residuals (truth less prediction) of numbers: their shape, and how they go by prediction."""
    residuals = truth - values
    spread = float(((truth - truth.mean()) ** 2).sum())
    lines = []
    for band in reversed(cut_bands(values, bands)):
        low, middle, high = np.percentile(residuals[band], [10, 50, 90])
        lines.append(
            {
                "from": float(values[band].min()),
                "to": float(values[band].max()),
                "rows": len(band),
                "expected": float(values[band].mean()),
                "mean residual": float(residuals[band].mean()),
                "10 %": float(low),
                "median": float(middle),
                "90 %": float(high),
            }
        )
    return {
        "rows": len(truth),
        "mean residual": float(residuals.mean()),
        "R²": 1 - float((residuals**2).sum()) / spread if spread else float("nan"),
        "bands": lines,
        "histogram": histogram(residuals),
    }


def _divide(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")


def is_positive(labels: Array, classes: Array) -> Flags:
    """Which labels are the second of two classes."""
    return np.array([name == classes[1] for name in labels.tolist()], dtype=bool)
