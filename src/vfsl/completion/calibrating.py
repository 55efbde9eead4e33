"""What the missing party makes of held-out predictions by itself: probabilities, expected errors.

Local: nothing here is a message. Linear scores of classes become probabilities, and the error that
is to be expected follows from the prediction, so that neither needs another look at the other
party's columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from vfsl.completion.selection import Booleans, Floats, Places

# Errors below this share of their mean count as this share: a logarithm needs a floor.
_ERROR_FLOOR = 0.05
_FLATTEST = 1e-9


@dataclass(frozen=True, eq=False)
class ClassScale:
    """From linear scores of classes to probabilities: a multinomial logistic model of the scores.

    ``weights`` (columns + 1, classes): of the standardised scores, the last row the intercept.
    A class that was not among the rows has an intercept of −infinity.
    """

    centre: Floats
    deviation: Floats
    weights: Floats

    @classmethod
    def fit(cls, scores: Floats, codes: Places, classes: int) -> ClassScale:
        """By maximum likelihood with scikit-learn's default penalty, on held-out scores."""
        centre, deviation = scores.mean(axis=0), np.maximum(scores.std(axis=0), _FLATTEST)
        weights = np.zeros((scores.shape[1] + 1, classes))
        counts = np.bincount(codes, minlength=classes)
        seen = np.flatnonzero(counts)
        weights[-1] = np.log(counts, out=np.full(classes, -np.inf), where=counts > 0)
        if len(seen) > 1:
            model = LogisticRegression(max_iter=1000).fit((scores - centre) / deviation, codes)
            binary = len(seen) == 2
            slopes = model.coef_ if not binary else np.vstack([0 * model.coef_, model.coef_])
            levels = model.intercept_ if not binary else np.append(0.0, model.intercept_)
            weights[:-1, seen], weights[-1, seen] = slopes.T, levels
        return cls(centre, deviation, weights)

    def chances(self, scores: Floats) -> Floats:
        """Probabilities of all classes, (rows, classes)."""
        inside = (scores - self.centre) / self.deviation
        return np.asarray(softmax(inside @ self.weights[:-1] + self.weights[-1], axis=1))

    def to_dict(self) -> dict[str, Any]:
        weights = [
            [cell if np.isfinite(cell) else None for cell in row] for row in self.weights.tolist()
        ]
        return {
            "centre": self.centre.tolist(),
            "deviation": self.deviation.tolist(),
            "weights": weights,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ClassScale:
        weights = np.array(
            [[-np.inf if cell is None else cell for cell in row] for row in content["weights"]]
        )
        return cls(np.asarray(content["centre"]), np.asarray(content["deviation"]), weights)


def plain_chances(scores: Floats) -> Floats:
    """Linear scores of classes 1, 2, … as they are, cut to 0 and 1; class 0 has what is left."""
    inside = np.clip(scores, 0.0, 1.0)
    whole = np.column_stack([np.clip(1.0 - inside.sum(axis=1), 0.0, 1.0), inside])
    return np.asarray(whole / whole.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class ErrorScale:
    """How large an error is to be expected of a prediction: a parabola for the log of the error."""

    centre: float
    deviation: float
    terms: tuple[float, float, float]  # of 1, z and z², z the standardised prediction

    @classmethod
    def fit(cls, predicted: Floats, errors: Floats) -> ErrorScale:
        """By least squares on held-out predictions and their errors."""
        centre, deviation = float(predicted.mean()), max(float(predicted.std()), _FLATTEST)
        z = (predicted - centre) / deviation
        found, *_ = np.linalg.lstsq(_powers(z), log_errors(errors), rcond=None)
        return cls(centre, deviation, (float(found[0]), float(found[1]), float(found[2])))

    def expected(self, predicted: Floats) -> Floats:
        """Beyond two deviations of the predictions that it knows, the error of those."""
        z = np.clip((predicted - self.centre) / self.deviation, -2.0, 2.0)
        return np.asarray(np.exp(_powers(z) @ np.array(self.terms)))


def _powers(z: Floats) -> Floats:
    return np.column_stack([np.ones(len(z)), z, z**2])


def log_errors(errors: Floats) -> Floats:
    """The logarithm of absolute errors, floored."""
    absolute = np.abs(errors)
    floor = max(_ERROR_FLOOR * float(absolute.mean()), 1e-12)
    return np.asarray(np.log(np.maximum(absolute, floor)))


def crossed_chances(
    scores: Floats, codes: Places, known: Booleans, classes: int, parts: Places
) -> Floats:
    """Probabilities of each row by the scale of the other parts' known rows."""
    found = np.zeros((len(scores), classes))
    for part in np.unique(parts):
        use, here = known & (parts != part), parts == part
        found[here] = ClassScale.fit(scores[use], codes[use], classes).chances(scores[here])
    return found


def crossed_errors(predicted: Floats, errors: Floats, known: Booleans, parts: Places) -> Floats:
    """The expected error of each row by the scale of the other parts' known rows."""
    found = np.zeros(len(predicted))
    for part in np.unique(parts):
        use, here = known & (parts != part), parts == part
        found[here] = ErrorScale.fit(predicted[use], errors[use]).expected(predicted[here])
    return found


def draw_parts(rows: int, folds: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Which part each row belongs to, of about equal size."""
    return rng.permutation(np.arange(rows, dtype=np.int64) % folds)
