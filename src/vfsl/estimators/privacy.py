"""How much linear protocols may say about single rows: limits, noise, and the count of it.

A feature holder's first gradient is the sum of its rows' columns by label: few rare rows against
many columns are an equation that can be solved for them. docs/security.md has the experiments.

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

import math
import secrets
from dataclasses import dataclass

import numpy as np

from vfsl.channel import About, Channel
from vfsl.values import Array, Floats

RARE_ROWS_PER_COLUMN = 2.0
LABEL_NOISE = 0.05  # of labels 0 and 1
LOOK_NOISE = 0.1  # of scores, in logits
_WIDEST_SCORES = 8.0


# ---- rare labels ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rarest:
    """The value of the label that fewest rows have, or lack, in one of the models."""

    rows: int
    words: str  # for an error: "the class 'yes'"


def find_rarest_class(codes: Array, classes: Array, weights: Floats) -> Rarest:
    """The rarest class, each against the rest, among the rows that count in a model."""
    counting = weights > 0
    sizes = np.stack([counting[codes == code].sum(axis=0) for code in range(len(classes))])
    sizes = np.where(sizes > 0, sizes, len(codes))  # a class that no row of a model has is no class
    code, _ = np.unravel_index(sizes.argmin(), sizes.shape)
    return Rarest(int(sizes.min()), f"the class {str(classes[code])!r:.60}")


def find_rarest_number(values: Floats, weights: Floats) -> Rarest:
    """How many rows have another value than the most frequent one; two values are two classes."""
    counting = weights > 0
    fewest = len(values)
    for model in range(values.shape[1]):
        chosen = values[counting[:, model], model]
        others = len(chosen) - int(np.unique(chosen, return_counts=True)[1].max())
        fewest = min(fewest, others or fewest)  # where all are equal, none is rare
    return Rarest(fewest, "another value than the most frequent one")


# ---- noise ---------------------------------------------------------------------------------------


def noise_rng(rng: np.random.Generator | None) -> np.random.Generator:
    """A generator for noise that protects: the party's own, else from the operating system."""
    return np.random.default_rng(secrets.randbits(256)) if rng is None else rng


def count_look(scores: int, noise: float) -> int:
    """How many exact numbers of 32 bits a look at so many noisy scores is worth at most.

    By the capacity of a Gaussian channel, ½ log2(1 + (deviation / noise)²) bits per score, for
    scores that deviate by 8 logits: more than any model's that is not certain of every row.
    """
    if noise <= 0:
        return scores
    bits = min(0.5 * math.log2(1 + (_WIDEST_SCORES / noise) ** 2), 32.0)
    return math.ceil(scores * bits / 32)


def describe_look(noise: float) -> str:
    """What the label holder sees when it looks at total scores, for the ledger."""
    how = f"with noise of {noise:g} logits by each feature holder" if noise > 0 else "exact"
    return f"the total score of each row, {how}, to the label holder"


# ---- how many numbers are shown ------------------------------------------------------------------


@dataclass(frozen=True)
class GradientCount:
    """How many numbers one stage of a descent may show a feature holder.

    Parameters
    ----------
    targets, models : int
        How many different targets the stage has, and how many targets in all.
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
    def of(cls, targets: Floats, weighted: bool, columns: int) -> GradientCount:
        different = np.unique(targets, axis=1).shape[1]
        return cls(different, targets.shape[1], weighted, columns - 1)

    def release(self, channel: Channel, party: str, columns: int, number: int) -> None:
        """Count the gradient of round ``number``, which a feature holder is about to learn."""
        shown = columns * self.models
        about_label = columns + (columns * (columns + 1) // 2 + columns if self.weighted else 0)
        most: dict[About, int] = {"label": about_label, "columns": columns * self.own}
        for about, numbers in most.items():
            new = self.targets * count_new(number, columns, numbers)
            channel.release(party, "gradients", shown, about=about, new=new)


def release_sums(
    channel: Channel, to: str, models: int, columns: tuple[int, int], number: int
) -> None:
    """Count what a feature holder's columns tell the label holder in one round.

    The label holder's own gradient, X_Cᵀ V (X_B w_B + …), has no more in it than X_Cᵀ V X_B for
    each model. The sums that steer the descent come on top: one in the first round, three in every
    other. ``columns`` are those of the feature holder and of the label holder.
    """
    own, theirs = columns
    steering = (3 if number else 1) if own else 0
    shown = (theirs if own else 0) + steering
    new = count_new(number, theirs, own * theirs) + steering
    channel.release(to, "sums over rows", models * shown, new=models * new)


def count_new(number: int, each: int, most: int) -> int:
    """What message ``number``, from 0, adds where all messages together hold ``most`` numbers."""
    return min((number + 1) * each, most) - min(number * each, most)
