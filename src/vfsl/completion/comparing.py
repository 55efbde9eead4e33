"""How sure the scores of several ways are, and the gain of one over another, on the same rows.

Every score here is, to first order, a sum over rows; the rows' parts of two ways subtract, so a
gain is judged on the rows where the ways differ (for AUC this is DeLong's covariance).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import rankdata

from vfsl.completion.selection import Floats
from vfsl.values import Array

# Bounds are 95 % ones.
_WIDTH = 1.96

# A way's score, and what each row adds to its error.
Judged = tuple[float, Floats]


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


def comparison(
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
    """DeLong: for each row the share of the other class that it is on the right side of."""
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
    share = float(ours.mean()) / total
    return 1 - share, np.asarray((share * base - ours) / (total * len(truth)))


def _error(parts: Floats) -> float:
    return float(np.sqrt((parts**2).sum()))
