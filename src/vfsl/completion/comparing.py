"""Comparing ways to train on the same held-out rows: losses, blends, and how sure a gain is.

Every score here is, to first order, a sum over rows; the rows' parts of two ways subtract, so a
gain is judged on the rows where the ways differ (for AUC this is DeLong's covariance).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import log_softmax
from scipy.stats import rankdata

from vfsl.completion.downstream import Way
from vfsl.values import Array, Floats

# How strongly blend weights are drawn to their start, in rows' worth of loss: a few hundred common
# rows cannot tell ways apart that differ by a hundredth of AUC, and the mean of several is safe.
PULL = 20.0
# Bounds are 95 % ones.
_WIDTH = 1.96

# A way's score, and what each row adds to its error.
Judged = tuple[float, Floats]

# ---- blending -----------------------------------------------------------------------------------


def start_weights(ways: Sequence[Way]) -> Floats:
    """Equal weights, but ways that fill by the same means share one: they err together."""
    family = ["completed" if way.fill == "gated" else way.fill for way in ways]
    sizes = np.array([family.count(name) for name in family], dtype=np.float64)
    return np.asarray(1.0 / (sizes * len(set(family))))


def blend_weights(
    scores: Floats, codes: Array, classes: bool, start: Floats, pull: float = PULL
) -> Floats:
    """Weights of ways, adding up to 1, with the least held-out loss of their blended scores.

    Drawn to the start by ``pull`` rows' worth of loss.
    """
    from scipy.optimize import minimize

    scale = 1.0 if classes else max(float(np.var(codes)), 1e-300)

    def loss(weights: Floats) -> float:
        blended = np.tensordot(weights, scores, axes=1)
        total = float(row_losses(blended, codes, classes).sum()) / scale
        return total + pull * float(((weights - start) ** 2).sum())

    found = minimize(
        loss,
        start,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(scores),
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1.0},
    )
    weights = np.where(found.x < 1e-3, 0.0, found.x)
    return np.asarray(weights / weights.sum())


def row_losses(scores: Floats, codes: Array, classes: bool) -> Floats:
    """−log of the true class's probability, or the squared error, of each row."""
    if not classes:
        return np.asarray((scores[:, 0] - codes) ** 2)
    if scores.shape[1] == 1:
        sign = np.where(codes == 1, -1.0, 1.0)
        return np.asarray(np.logaddexp(0.0, sign * scores[:, 0]))
    return np.asarray(-log_softmax(scores, axis=1)[np.arange(len(codes)), codes.astype(np.int64)])


def measure_score(scores: Floats, codes: Array, classes: Array | None) -> float:
    """R² of numbers, AUC of two classes, accuracy of several."""
    from sklearn.metrics import r2_score, roc_auc_score

    if classes is None:
        return float(r2_score(codes, scores[:, 0]))
    if len(classes) == 2:
        return float(roc_auc_score(codes, scores[:, 0]))
    return float((scores.argmax(axis=1) == codes).mean())


# ---- how sure a gain is -------------------------------------------------------------------------


def judge(scores: Floats, codes: Array, classes: int | None) -> Judged:
    """AUC of two classes, accuracy of several, R² of numbers, with the parts of rows.

    Parameters
    ----------
    scores : array (rows, outputs)
        Logits, or numbers.
    codes : array (rows,)
        Class codes, or numbers.
    classes : int or None
        None for numbers.
    """
    if classes is None:
        return _r2(scores[:, 0], codes)
    if classes == 2:
        return _auc(scores[:, 0], np.asarray(codes == 1))
    right = (scores.argmax(axis=1) == codes).astype(np.float64)
    return float(right.mean()), (right - right.mean()) / len(right)


def bounds(judged: Judged) -> dict[str, float]:
    """The score and its 95 % bounds."""
    score, parts = judged
    width = _WIDTH * _error(parts)
    return {"score": score, "low": score - width, "high": score + width}


def gain(judged: Judged, reference: Judged) -> dict[str, float]:
    """What a way scores above another one, and the 95 % bounds of that."""
    more = judged[0] - reference[0]
    width = _WIDTH * _error(judged[1] - reference[1])
    return {"gain": more, "gain low": more - width, "gain high": more + width}


def verdict(found: Mapping[str, float], measure: str, what: str, over: str) -> str:
    """Whether a gain is one, as a sentence: "Completion adds 0.012 ± 0.004 AUC over …"."""
    more, error = found["gain"], (found["gain high"] - found["gain low"]) / 2
    amount = f"{abs(more):.3f} ± {error:.3f} {measure}"
    if found["gain low"] > 0:
        return f"{what} adds {amount} over {over}."
    if found["gain high"] < 0:
        return f"{what} costs {amount} against {over}: do without."
    signed = f"{more:+.3f}".replace("-", "−")
    return f"{what} does not help here: {signed} ± {error:.3f} {measure} over {over} may be chance."


def compare_ways(
    ways: Mapping[str, Floats],
    codes: Array,
    classes: int | None,
    *,
    alone: str | None,
    missing: str | None,
    completed: str | None,
    best: str,
    measure: str,
    parties: tuple[str, str],
) -> dict[str, Any]:
    """What the report shows of all ways; verdicts on the other party and on completion.

    Parameters
    ----------
    ways : mapping of name to array (rows, outputs)
        Held-out scores of the common rows.
    alone, missing, completed, best : str
        The way of the label holder alone, the one that leaves cells missing, the one to judge
        completion by, and the one that is advised.
    parties : (given, missing)
    """
    judged = {name: judge(scores, codes, classes) for name, scores in ways.items()}
    lines: list[dict[str, Any]] = []
    for name, one in judged.items():
        line: dict[str, Any] = {"way": name, **bounds(one)}
        if alone in judged and name != alone:
            line |= gain(one, judged[alone])
        lines.append(line)
    given, other = parties
    asked = [
        (best, alone, f"Learning with {other}", f"{given}'s own columns alone"),
        (completed, missing, "Completion", "leaving cells missing"),
    ]
    said = []
    for way, reference, what, over in asked:
        if way in judged and reference in judged:
            found = gain(judged[way], judged[reference])
            text = verdict(found, measure, what, over)
            if reference == alone and found["gain low"] <= 0:
                text += f" Use {given}'s own columns only."
            said.append({"text": text, "low": found["gain low"], "high": found["gain high"]})
    return {"measure": measure, "rows": len(codes), "ways": lines, "verdicts": said}


def _auc(scores: Floats, positive: Array) -> Judged:
    """DeLong: for each row the fraction of the other class that it is on the right side of."""
    n_p, n_n = int(positive.sum()), int((~positive).sum())
    if not n_p or not n_n:
        return float("nan"), np.full(len(scores), np.nan)
    every = rankdata(scores)
    right = np.empty(len(scores))
    right[positive] = (every[positive] - rankdata(scores[positive])) / n_n
    right[~positive] = 1 - (every[~positive] - rankdata(scores[~positive])) / n_p
    auc = float(right[positive].mean())
    return auc, np.asarray((right - auc) / np.where(positive, n_p, n_n))


def _r2(predicted: Floats, truth: Array) -> Judged:
    ours, base = (truth - predicted) ** 2, (truth - truth.mean()) ** 2
    total = float(base.mean())
    if total <= 0:
        return float("nan"), np.full(len(truth), np.nan)
    ratio = float(ours.mean()) / total
    return 1 - ratio, np.asarray((ratio * base - ours) / (total * len(truth)))


def _error(parts: Floats) -> float:
    return float(np.sqrt((parts**2).sum()))
