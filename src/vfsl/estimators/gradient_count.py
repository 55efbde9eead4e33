"""How many numbers the gradients of a least-squares descent show the two sides of each other.

In one stage the feature holder B sees, round by round and for each target y,

    X_Bᵀ V (X_B w_B + X_C w_C − y)        d_B numbers, V the row weights, w_C unknown to B.

All of them follow from X_Bᵀ V y, from X_Bᵀ V X_C, and, where V is hidden, from X_Bᵀ V X_B and
X_Bᵀ V 1: so however many rounds there are, a target shows no more than

    about the label     d_B                       and with hidden weights d_B (d_B + 1) / 2 + d_B
    about columns       d_B · d_C

An equation that has both in it counts for both, each up to that. Models with one target in common
differ by row weights only. Where these are private draws of the label holder for each model, each
model brings as many unknown numbers as there are rows; so such models count once. Whoever trains
models on row weights that others can work out (known folds, a known seed) must not rely on that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from vfsl.channel import About, Channel
from vfsl.estimators.descent import Floats


class _Problem(Protocol):
    @property
    def targets(self) -> Floats: ...


@dataclass(frozen=True)
class GradientCount:
    """What one stage may show of each target.

    Parameters
    ----------
    targets, models : int
        Different ones among the targets of the stage, and how many there are in all.
    weighted : bool
        Whether rows have weights that others do not know.
    own : int
        Columns of the label holder, without the constant one.
    """

    targets: int
    models: int
    weighted: bool
    own: int

    @classmethod
    def of(cls, problem: _Problem, weighted: bool, columns: int) -> Self:
        different = np.unique(problem.targets, axis=1).shape[1]
        return cls(different, problem.targets.shape[1], weighted, columns - 1)

    def release(self, channel: Channel, party: str, columns: int, number: int) -> None:
        """Count the gradient of round ``number``, which a feature holder is about to learn."""
        shown = columns * self.models
        about_label = columns + (columns * (columns + 1) // 2 + columns if self.weighted else 0)
        most: dict[About, int] = {"label": about_label, "columns": columns * self.own}
        for about, numbers in most.items():
            new = self.targets * fresh(number, columns, numbers)
            channel.release(party, "gradients", shown, about=about, new=new)


def release_sums(
    channel: Channel, to: str, models: int, columns: tuple[int, int], number: int
) -> None:
    """Count what a feature holder's columns tell the label holder in one round.

    The label holder's own gradient, X_Cᵀ V (X_B w_B + …), has no more in it than X_Cᵀ V X_B for
    each model; the sums that steer the descent come on top, one at first and then three a round.
    ``columns`` are those of the feature holder and of the label holder.
    """
    own, theirs = columns
    steering = (3 if number else 1) if own else 0
    shown = (theirs if own else 0) + steering
    new = fresh(number, theirs, own * theirs) + steering
    channel.release(to, "sums over rows", models * shown, new=models * new)


def fresh(number: int, each: int, most: int) -> int:
    """What message ``number``, from 0, adds where all messages together hold ``most`` numbers."""
    return min((number + 1) * each, most) - min(number * each, most)
