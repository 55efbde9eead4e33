"""How much the openings of linear protocols may say about single rows, and the noise they carry.

A feature holder's first gradient is the sum of its rows' columns by label: few rare rows against
many columns are an equation that can be solved for them. docs/security.md has the experiments.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vfsl.errors import DataError
from vfsl.estimators.descent import Floats
from vfsl.values import Array

RARE_ROWS_PER_COLUMN = 2.0
LABEL_NOISE = 0.05  # of labels 0 and 1
LOOK_NOISE = 0.1  # of scores, in logits
_WIDEST_SCORES = 8.0


@dataclass(frozen=True)
class Rarest:
    """The value of the label that fewest rows have, or lack, in one of the models."""

    rows: int
    words: str  # for an error: "the class 'yes'"


def rarest_class(codes: Array, classes: Array, weights: Floats) -> Rarest:
    """The rarest class, each against the rest, among the rows that count in a model."""
    counting = weights > 0
    sizes = np.stack([counting[codes == code].sum(axis=0) for code in range(len(classes))])
    sizes = np.where(sizes > 0, sizes, len(codes))  # a class that no row of a model has is no class
    code, _ = np.unravel_index(sizes.argmin(), sizes.shape)
    return Rarest(int(sizes.min()), f"the class {str(classes[code])!r:.60}")


def rarest_number(values: Floats, weights: Floats) -> Rarest:
    """How many rows have another value than the most frequent one; two values are two classes."""
    counting = weights > 0
    fewest = len(values)
    for model in range(values.shape[1]):
        chosen = values[counting[:, model], model]
        others = len(chosen) - int(np.unique(chosen, return_counts=True)[1].max())
        fewest = min(fewest, others or fewest)  # where all are equal, none is rare
    return Rarest(fewest, "another value than the most frequent one")


def check_sizes(
    columns: Mapping[str, int],
    label_holder: str,
    rows: int,
    rarest: Rarest,
    rows_per_column: int,
    rare_rows_per_column: float,
) -> None:
    """Refuse tables whose gradients would reveal residuals or rare labels of single rows.

    Labels are hidden from feature holders, so the rare rows count against the widest of these. The
    sentence reaches them too: it does not say how many rare rows there are.
    """
    widest = max(columns, key=lambda party: columns[party])
    needed = rows_per_column * columns[widest]
    if rows < needed:
        raise DataError(
            f"Party {widest!r} has {columns[widest]} encoded columns but there are only {rows} "
            f"labelled aligned rows; at least {needed} are needed, or its gradients would reveal "
            "single rows. Use fewer columns or more rows."
        )
    others = {party: size for party, size in columns.items() if party != label_holder}
    widest = max(others, key=lambda party: others[party])
    least = math.ceil(rare_rows_per_column * others[widest])
    if rarest.rows < least:
        raise DataError(
            f"Party {widest!r} has {others[widest]} encoded columns but fewer than {least} "
            f"labelled aligned rows that count in a model have {rarest.words}; its gradients could "
            "tell it which rows these are. "
            "Use fewer columns there, more rows, or merge rare classes; if that party may know "
            f"them, lower rare_rows_per_column, which is {rare_rows_per_column:g}."
        )


def protective(rng: np.random.Generator | None) -> np.random.Generator:
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
