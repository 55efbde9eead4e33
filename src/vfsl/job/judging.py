"""How good answers are, with bootstrap intervals: samples of the same rows for all answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vfsl.model_selection.figures import auc
from vfsl.values import Array

Floats = npt.NDArray[np.float64]
Tell = Callable[[int, int], None]  # how many samples are done, of how many

AUC, ACCURACY, LOG_LOSS, RMSE = "AUC", "accuracy", "log loss", "RMSE"
# Whether more is better.
BETTER = {AUC: 1.0, ACCURACY: 1.0, LOG_LOSS: -1.0, RMSE: -1.0}
_LEAST_CHANCE = 1e-15
_BLOCK = 50  # samples between two words on how far it is


def measures_for(classes: int | None) -> tuple[str, ...]:
    """What fits: numbers (None), two classes, or more; the first one is what a verdict is about."""
    if classes is None:
        return (RMSE,)
    return (AUC, ACCURACY, LOG_LOSS) if classes == 2 else (ACCURACY, LOG_LOSS)


def measure_answer(measure: str, truth: Array, answer: Floats) -> float:
    """One measure; NaN where it is not defined.

    Parameters
    ----------
    truth : array (rows,)
        Numbers, or codes of classes.
    answer : array (rows,) or (rows, classes)
        Numbers, or probabilities.
    """
    if measure == AUC:
        return auc(truth.astype(np.int64) == 1, answer[:, 1])
    mean = float(_by_row(measure, truth, answer).mean())
    return float(np.sqrt(mean)) if measure == RMSE else mean


def _by_row(measure: str, truth: Array, answer: Floats) -> Floats:
    """What each row adds to a measure that is a mean, or to the square of RMSE."""
    if measure == RMSE:
        return np.asarray((answer - truth) ** 2, dtype=np.float64)
    codes = truth.astype(np.int64)
    if measure == ACCURACY:
        return np.asarray(answer.argmax(axis=1) == codes, dtype=np.float64)
    chances = answer[np.arange(len(codes)), codes]
    return np.asarray(-np.log(np.maximum(chances, _LEAST_CHANCE)), dtype=np.float64)


class Ranked:
    """Scores sorted once, so that the AUC of a sample takes no sorting."""

    def __init__(self, positive: npt.NDArray[np.bool_], scores: Floats) -> None:
        self._order = np.argsort(scores, kind="stable")
        self._positive = positive[self._order].astype(np.float64)
        ordered = scores[self._order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        self._starts = None if len(starts) == len(ordered) else starts

    def auc(self, times: Floats) -> float:
        """AUC where each row counts so many times."""
        counts = times[self._order]
        up = counts * self._positive
        down = counts - up
        if self._starts is not None:
            up = np.add.reduceat(up, self._starts)
            down = np.add.reduceat(down, self._starts)
        ups, downs = up.sum(), down.sum()
        if not ups or not downs:
            return float("nan")
        below = np.cumsum(down) - down / 2
        return float(up @ below / (ups * downs))


@dataclass(frozen=True)
class Interval:
    """A value and the bounds that bootstrap samples of the rows give it."""

    value: float
    low: float
    high: float


class Scores:
    """Measures of several answers on the same rows and on the same samples of them.

    Parameters
    ----------
    truth : array (rows,)
    answers : mapping of name to array
    measures : sequence of str
    samples : int
    level : float
        The share of samples inside the bounds.
    rng : numpy.random.Generator
    tell : callable, optional
        Hears how many samples are done.
    """

    def __init__(
        self,
        truth: Array,
        answers: Mapping[str, Floats],
        measures: Sequence[str],
        samples: int,
        level: float,
        rng: np.random.Generator,
        tell: Tell | None = None,
    ) -> None:
        self._tails = (50 * (1 - level), 50 * (1 + level))
        self._values = {
            (name, measure): measure_answer(measure, truth, answer)
            for name, answer in answers.items()
            for measure in measures
        }
        means = [key for key in self._values if key[1] != AUC]
        ranked = {
            key: Ranked(truth.astype(np.int64) == 1, answers[key[0]][:, 1])
            for key in self._values
            if key[1] == AUC
        }
        parts = np.empty((len(truth), len(means)))
        for place, (name, measure) in enumerate(means):
            parts[:, place] = _by_row(measure, truth, answers[name])
        self._samples = {key: np.empty(samples) for key in self._values}
        for sample in range(samples):
            if tell is not None and sample % _BLOCK == 0:
                tell(sample, samples)
            drawn = rng.integers(0, len(truth), len(truth))
            times = np.bincount(drawn, minlength=len(truth)).astype(np.float64)
            for key, found in zip(means, times @ parts / len(truth), strict=True):
                self._samples[key][sample] = np.sqrt(found) if key[1] == RMSE else found
            for key, one in ranked.items():
                self._samples[key][sample] = one.auc(times)

    def interval(self, name: str, measure: str) -> Interval:
        """A measure of one answer."""
        return self._bounds(self._values[name, measure], self._samples[name, measure])

    def gain(self, name: str, over: str, measure: str) -> Interval:
        """How much better one answer is than another; above 0 is better, whatever the measure."""
        sign = BETTER[measure]
        value = self._values[name, measure] - self._values[over, measure]
        samples = self._samples[name, measure] - self._samples[over, measure]
        return self._bounds(sign * value, sign * samples)

    def best(self, names: Sequence[str], measure: str) -> str:
        """The one of these with the best value; the first of equals."""
        sign = BETTER[measure]
        known = [name for name in names if not np.isnan(self._values[name, measure])]
        return max(known or names, key=lambda name: sign * self._values[name, measure])

    def _bounds(self, value: float, samples: Floats) -> Interval:
        known = samples[~np.isnan(samples)]
        if np.isnan(value) or not len(known):
            return Interval(value, float("nan"), float("nan"))
        low, high = np.percentile(known, self._tails)
        return Interval(float(value), float(low), float(high))
