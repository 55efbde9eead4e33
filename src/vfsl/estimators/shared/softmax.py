"""Classes that exclude each other, on shares: the softmax by sigmoids of differences.

The probability of class k is σ(s_k − L_k), where L_k = log Σ_{j ≠ k} exp(s_j) is put together two
scores at a time:

    log(exp(a) + exp(b)) = ½ (a + b) + log(2 cosh(½ (a − b))),

whose last term is a cosine series of a − b, the one that the logistic loss has too. So L_k is a
mean of scores, which is linear in the weights, plus a shared number per row; the next difference is
an angle again, and nothing is cut off on the way.

Holds, learns: as in logistic.py; nothing is opened here.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from vfsl.crypto.shares import Private, Session, Shared, Waves
from vfsl.crypto.words import to_words
from vfsl.estimators.shared.curvature import CELL_BITS
from vfsl.estimators.shared.logistic_plan import WEIGHT_BITS, LogisticPlan
from vfsl.estimators.shared.sigmoid import SigmoidSeries
from vfsl.values import Floats, Integers

MOST_CLASSES = 8  # every further class is one more pair of rounds and K more waves per row
_PERIOD = 48


def find_means(classes: int) -> list[Integers]:
    """After each pair, how L_k leans on the scores, (classes, classes), over 2^number of the pair.

    Column k belongs to class k; it begins with the next class and goes on around the circle.
    """
    one = np.eye(classes, dtype=np.int64)
    means = [np.roll(one, 1, axis=0)]
    for number in range(2, classes):
        means.append(means[-1] + (np.roll(one, number, axis=0) << (number - 2)))
    return means


def find_lean(classes: int) -> Floats:
    """How log Σ exp(s_j) leans on the scores, by the pair of class 0 with all others."""
    last = find_means(classes)[-1][:, 0]
    lean = [Fraction(int(one), 2 ** (classes - 2)) / 2 for one in last]
    lean[0] += Fraction(1, 2)
    return np.array([float(one) for one in lean])


def compare_classes(
    session: Session,
    terms: Sequence[tuple[Private, Shared]],
    series: SigmoidSeries,
    plan: LogisticPlan,
) -> tuple[Waves, Shared]:
    """Waves of s_k − L_k for each class, and ½ of what L_0 is beside a mean, as losses of rows."""
    levels, means = plan.outputs - 2, find_means(plan.outputs)
    one = np.eye(plan.outputs, dtype=np.int64)
    turns = round(2.0 ** (_PERIOD - CELL_BITS - WEIGHT_BITS) / series.period)
    # A pair halves what was there: instead, the later ones count double. In the end half of the sum
    # has the bits of a row's loss.
    bits = plan.loss_bits - plan.row_weight_bits - levels
    rest = session.zeros((plan.rows, plan.outputs), plan.width)

    def find_waves(lean: Integers, over: int, plus: Shared) -> Waves:
        """Of scores @ lean / 2^over plus what has been added up."""
        angle = round(2.0 ** (_PERIOD - bits - max(over - 1, 0)) / series.period)
        return session.waves(
            [
                (matrix, (turns >> over) * value.map(lambda words: words @ to_words(lean)))
                for matrix, value in terms
            ],
            series.frequencies,
            period=_PERIOD,
            bits=plan.dealt_bits,
            width=plan.width,
            plus=angle * plus,
        )

    for number in range(levels):
        following = np.roll(one, number + 2, axis=0) << number
        waves = find_waves(means[number] - following, number, rest)
        pair = waves.sum(bits - plan.dealt_bits, cosines=series.loss.tolist())
        pair = pair + round(series.constant * 2.0**bits)
        rest = rest + (1 << number) * pair
    lean = (one << levels) - means[-1]
    return find_waves(lean, levels, -rest), rest[:, :1]
