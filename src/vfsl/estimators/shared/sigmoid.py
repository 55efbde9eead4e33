"""The sigmoid, its slope and its loss as sums of waves.

Sums of waves can be found on shares without cutting bits off (see `Session.waves`). A wave repeats,
so the sigmoid is continued: at half a period from 0 it falls again as it rose, and so on. That
function has odd frequencies only, and its coefficients are known in closed form, since the Fourier
transform of the sigmoid's slope is πω / sinh(πω). They fall exponentially, which bounds what the
left-out waves amount to; the falling edges are out of reach of all scores that `reach` allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vfsl.values import Floats

# The largest error δ of a row's probability p. It moves the fitted score by δ / p(1 − p), which
# raises the loss by half of δ² / p(1 − p): about 1e-5 where p(1 − p) is 0.1. Waves change their
# sign from row to row, so that most of it averages out. On made-up tables twice as much does as
# well.
ERROR = 1.5e-3


@dataclass(frozen=True, eq=False)
class SigmoidSeries:
    """Coefficients by frequency 1, 3, 5, …, in units of one turn per period.

    Attributes
    ----------
    period : float
        In scores (logits).
    sigmoid : float array
        Of the sines: σ(s) − ½.
    slope : float array
        Of the cosines: σ'(s).
    loss : float array
        Of the cosines: log(2 cosh(s / 2)) − `constant`. With ½ s − y s it is the logistic loss.
    constant : float
    error : float
        What left-out waves of the sigmoid amount to at most.
    """

    period: float
    sigmoid: Floats
    slope: Floats
    loss: Floats
    constant: float
    error: float = ERROR

    @property
    def frequencies(self) -> tuple[int, ...]:
        return tuple(range(1, 2 * len(self.sigmoid), 2))

    @property
    def reach(self) -> float:
        """The largest absolute score for which the series holds."""
        return self.period / 2 + math.log(self.error)


def make_series(period: float, error: float = ERROR) -> SigmoidSeries:
    """The shortest series whose left-out waves amount to less than the error."""
    count = 1
    while find_tail(period, count) >= error:
        count += 1
    angular = 2 * math.pi * np.arange(1, 2 * count, 2) / period
    sigmoid = 4 * math.pi / period / np.sinh(math.pi * angular)
    loss = -sigmoid / angular
    constant = math.log(2) - float(loss.sum())
    return SigmoidSeries(period, sigmoid, sigmoid * angular, loss, constant, error)


def find_tail(period: float, count: int) -> float:
    """At most what all waves of the sigmoid but the first ``count`` add up to.

    1 / sinh x is below 2 e^-x / (1 − e^-2x), and the frequencies left out rise in steps of 2.
    """
    step = 2 * math.pi**2 / period
    first = (2 * count + 1) * step
    decay = (1 - math.exp(-2 * step)) * (1 - math.exp(-2 * first))
    return 8 * math.pi / period * math.exp(-first) / decay


def to_numbers(series: SigmoidSeries) -> Floats:
    """The series as rows of numbers, for a party to announce."""
    count = len(series.sigmoid)
    facts = np.full(count, series.constant)
    return np.stack([series.sigmoid, series.slope, series.loss, facts])


def from_numbers(period: float, numbers: Floats) -> SigmoidSeries:
    """The series of `to_numbers`."""
    sigmoid, slope, loss, facts = numbers
    return SigmoidSeries(period, sigmoid, slope, loss, float(facts[0]))
