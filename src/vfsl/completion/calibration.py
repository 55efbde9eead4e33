"""What the missing party learns from held-out predictions: probabilities, errors, intervals.

All local but the last part. Linear scores of classes become probabilities, and the error to expect
follows from the prediction, so neither needs another look at the other party's columns. Intervals
and class sets are conformal: q is the ⌈(n + 1)(1 − a)⌉-th smallest held-out score, so with
exchangeable rows an interval covers a new value with probability at least 1 − a. Where the
remaining rows differ from the common ones, scores are weighted by how typical their rows are.

The last part, `MeasureShift`, asks the given party how far its remaining rows differ:

Holds   the given party: its columns for both kinds of rows. The missing party: nothing.
Learns  the missing party: whether they differ; if so, a rounded number for each row: how typical it
        is of the remaining rows by the other's columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from vfsl.channel import Channel, expect_array
from vfsl.data import Encoder
from vfsl.params import check_params, documented, param
from vfsl.parts import Part, Roles
from vfsl.values import Booleans, Disclosure, Disclosures, Floats, Integers

# Errors below this fraction of their mean count as this fraction: a logarithm needs a floor.
_ERROR_FLOOR = 0.05
_FLATTEST = 1e-9

DISCLOSURES: Disclosures = {
    "difference": Disclosure(
        dict,
        "how well the sender's columns tell common from remaining rows (rounded); if they do, how "
        "typical each row is of the remaining ones, to two digits",
    ),
}

# ---- probabilities and expected errors ----------------------------------------------------------


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
    def fit(cls, scores: Floats, codes: Integers, classes: int) -> ClassScale:
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

    def reaches(self, alpha: float) -> float:
        """The only score from which on the second of two classes has a probability of at least α.

        Infinite where its probability does not rise with the score.
        """
        slope, level = self.weights[:, 1] - self.weights[:, 0]
        if not slope > 0:
            return math.inf
        wanted = math.log(alpha / (1.0 - alpha)) if alpha < 1 else math.inf
        return float(self.centre[0] + self.deviation[0] * (wanted - level) / slope)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ClassScale:
        return cls(**{name: np.asarray(values) for name, values in content.items()})


def to_lists(one: Any) -> dict[str, Any]:
    """The fields of an instance as JSON values: arrays as lists."""
    named = vars(one).items()
    return {name: each.tolist() if isinstance(each, np.ndarray) else each for name, each in named}


def plain_chances(scores: Floats) -> Floats:
    """Linear scores of classes 1, 2, … as they are, cut to 0 and 1; class 0 has what is left."""
    inside = np.clip(scores, 0.0, 1.0)
    whole = np.column_stack([np.clip(1.0 - inside.sum(axis=1), 0.0, 1.0), inside])
    return np.asarray(whole / whole.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class ErrorScale:
    """How large an error to expect of a prediction: a parabola for the log of the error."""

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

    @classmethod
    def constant(cls, square: float) -> ErrorScale:
        """The same for all predictions: of normal errors with that mean square."""
        error = math.sqrt(2.0 / math.pi * max(square, 1e-300))
        return cls(0.0, 1.0, (math.log(error), 0.0, 0.0))

    def expected(self, predicted: Floats) -> Floats:
        """Beyond two deviations of the predictions that it knows, the error at two deviations."""
        z = np.clip((predicted - self.centre) / self.deviation, -2.0, 2.0)
        return np.asarray(np.exp(_powers(z) @ np.array(self.terms)))


def _powers(z: Floats) -> Floats:
    return np.column_stack([np.ones(len(z)), z, z**2])


def log_errors(errors: Floats) -> Floats:
    """The logarithm of absolute errors, floored."""
    absolute = np.abs(errors)
    floor = max(_ERROR_FLOOR * float(absolute.mean()), 1e-12)
    return np.asarray(np.log(np.maximum(absolute, floor)))


def cross_chances(
    scores: Floats, codes: Integers, known: Booleans, classes: int, folds: Integers
) -> Floats:
    """Probabilities of each row by the scale of the other folds' known rows."""
    found = np.zeros((len(scores), classes))
    for fold in np.unique(folds):
        use, here = known & (folds != fold), folds == fold
        found[here] = ClassScale.fit(scores[use], codes[use], classes).chances(scores[here])
    return found


def cross_errors(predicted: Floats, errors: Floats, known: Booleans, folds: Integers) -> Floats:
    """The expected error of each row by the scale of the other folds' known rows."""
    found = np.zeros(len(predicted))
    for fold in np.unique(folds):
        use, here = known & (folds != fold), folds == fold
        found[here] = ErrorScale.fit(predicted[use], errors[use]).expected(predicted[here])
    return found


def draw_folds(rows: int, folds: int, rng: np.random.Generator) -> Integers:
    """The fold of each row; folds are of about equal size."""
    return rng.permutation(np.arange(rows, dtype=np.int64) % folds)


# ---- errors of which only sums are known --------------------------------------------------------


def draw_errors(
    squares: Floats,
    products: Floats,
    beyond: Floats,
    known: Booleans,
    parts: Integers,
    rng: np.random.Generator,
) -> Floats:
    """Errors of rows that add up to what was measured: normal ones, otherwise at random.

    In each part the known rows' errors have these sums of squares and of products with ``beyond``,
    so every measure that is made of such sums is the measured one.

    Parameters
    ----------
    squares, products : array (parts,)
    beyond : array (rows,)
        How far the values are from their baseline.
    """
    total = max(float(squares.sum()), 0.0)
    found = np.sqrt(total / max(int(known.sum()), 1)) * rng.standard_normal(len(known))
    for part, (square, product) in enumerate(zip(squares, products, strict=True)):
        here = np.flatnonzero(known & (parts == part))
        along = beyond[here]
        length = float(along @ along)
        slope = float(product) / length if length > 0 else 0.0
        across = found[here] - (along * (along @ found[here]) / length if length > 0 else 0.0)
        size = float(np.linalg.norm(across))
        left = np.sqrt(max(float(square) - slope**2 * length, 0.0))
        found[here] = slope * along + (across * left / size if size > 0 else 0.0)
    return np.asarray(found)


# ---- intervals and class sets -------------------------------------------------------------------


def quantile(scores: Floats, miss: float) -> float:
    """The ⌈(n + 1)(1 − miss)⌉-th smallest score; infinite if there are too few."""
    place = math.ceil((len(scores) + 1) * (1.0 - miss) - 1e-9)
    return float("inf") if place > len(scores) else float(np.sort(scores)[max(place, 1) - 1])


def weighted_quantile(scores: Floats, weights: Floats, new: Floats, miss: float) -> Floats:
    """For each new row the smallest score at which the weighted fraction reaches 1 − miss.

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


def lac_scores(chances: Floats, truth: Integers) -> Floats:
    """1 − the probability of the true class."""
    return np.asarray(1.0 - chances[np.arange(len(truth)), truth])


def lac_sets(chances: Floats, q: Floats | float) -> Booleans:
    """{c : P(c) ≥ 1 − q}."""
    bound = np.broadcast_to(np.asarray(q, dtype=float), (len(chances),))[:, None]
    return np.asarray(chances >= 1.0 - bound - 1e-12)


# ---- how remaining rows differ from the common ones ---------------------------------------------


@dataclass(frozen=True, eq=False)
class Shift:
    """How common and remaining rows differ.

    Attributes
    ----------
    auc : float
        How well the given party's columns tell them apart; 0.5 is not at all.
    common, rest : array, optional
        How typical of the remaining rows each row is, where they differ.
    """

    auc: float
    common: Floats | None = None
    rest: Floats | None = None


@documented
@dataclass
class MeasureShift:
    """Compare common and remaining rows by the given party's own columns."""

    name: ClassVar[str] = "shift"

    least: float = param(0.6, "The AUC from which on rows count as different.", ge=0, le=1)

    def train(
        self, channel: Channel, part: Part | None, *, roles: Roles, rng: np.random.Generator
    ) -> Shift | None:
        """One party's side; the missing party gets the answer."""
        check_params(self)
        channel = channel.within(self.name, DISCLOSURES)
        given = roles.feature_holders[0]
        if channel.me == given and part is not None:
            answer = self._compare(part, rng)
            # Two digits of a number between 1/20 and 20: less than a quarter of its 32 bits.
            described = len(answer.get("weights", ()))
            channel.release(roles.label_holder, "how typical rows are", -(-described // 4))
            channel.send(roles.label_holder, "difference", answer)
        if channel.me != roles.label_holder:
            return None
        came = channel.receive(given, "difference")
        auc = float(came.get("auc", 0.5))
        if "weights" not in came:
            return Shift(auc)
        common = 0 if part is None else len(part.rows)
        weights = expect_array(
            came["weights"], sender=given, name="difference", holds="float", shape=(None,)
        )
        return Shift(auc, weights[:common], weights[common:])

    def _compare(self, part: Part, rng: np.random.Generator) -> dict[str, Any]:
        auc, chances = tell_rows_apart(part, rng)
        if auc < self.least:
            return {"auc": round(auc, 2)}
        return {"auc": round(auc, 2), "weights": round_digits(odds(chances))}


def tell_rows_apart(part: Part, rng: np.random.Generator) -> tuple[float, Floats]:
    """How well columns tell remaining from common rows, out of fold, and each row's probability."""
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    rest = np.repeat([0, 1], [len(part.rows), len(part.rest)])
    if min(len(part.rows), len(part.rest)) < 10:
        return 0.5, np.full(len(rest), 0.5)
    matrix = Encoder(missing="impute").fit_transform(part.table.take(part.all_rows)).matrix
    if not matrix.shape[1]:
        return 0.5, np.full(len(rest), 0.5)
    folds = StratifiedKFold(5, shuffle=True, random_state=int(rng.integers(1 << 31)))
    # A strong penalty: a hundred weak columns must not tell rows apart by chance.
    model = LogisticRegression(C=0.1, max_iter=500)
    chances = cross_val_predict(model, matrix, rest, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(rest, chances)), np.asarray(chances)


def odds(chance_of_rest: Floats, most: float = 20.0) -> Floats:
    """e / (1 − e): how typical a row is of the remaining rows; bounded, since few would rule."""
    e = np.clip(chance_of_rest, 1e-6, 1 - 1e-6)
    ratio = e / (1 - e)
    ratio = ratio / np.median(ratio)
    return np.asarray(np.clip(ratio, 1 / most, most))


def round_digits(values: Floats, digits: int = 2) -> Floats:
    """Positive numbers to so many significant digits."""
    scale = 10.0 ** (digits - 1 - np.floor(np.log10(values)))
    return np.asarray(np.round(values * scale) / scale)
