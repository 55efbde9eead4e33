"""What parties know of a least-squares training beforehand, and what a model wants of its label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vfsl.estimators.descent import Floats, Width
from vfsl.estimators.exposure import LOOK_NOISE, RARE_ROWS_PER_COLUMN, Rarest
from vfsl.parts import Roles


@dataclass(frozen=True)
class Program:
    """What all parties know of a training beforehand.

    Parameters
    ----------
    l2 : float
    max_rounds : int
        Of each stage.
    tolerance : float
    stages : int
        Descents one after the other; the label holder sees the total scores between two of them and
        sets new targets and row weights.
    weighted : bool
        Whether rows have weights in the first stage, as the label holder announces; later stages
        always have.
    rows_per_column : int
        Least number of rows for each column of the widest party.
    rare_rows_per_column : float
        Least number of rows of the rarest class for each column of the widest feature holder.
    look_noise : float
        Standard deviation of the noise that each feature holder adds to its scores between stages.
    score_range : int
        Scores and targets stay below 2 to this power.
    """

    l2: float
    max_rounds: int
    tolerance: float
    stages: int = 1
    weighted: bool = False
    rows_per_column: int = 10
    rare_rows_per_column: float = RARE_ROWS_PER_COLUMN
    look_noise: float = LOOK_NOISE
    score_range: int = 5

    def two_terms(self, stage: int, roles: Roles) -> bool:
        """Whether a stage's gradients are formed in two terms, without element-wise products."""
        return self.is_weighted(stage) and len(roles.feature_holders) == 1

    def is_weighted(self, stage: int) -> bool:
        return self.weighted or stage > 0

    def width(self, rows: int, stage: int, roles: Roles) -> Width:
        weighted = self.is_weighted(stage)
        products = weighted and not self.two_terms(stage, roles)
        return Width.for_rows(
            rows,
            score_range=self.score_range,
            holders=len(roles.feature_holders),
            weighted=weighted,
            products=products,
        )


@dataclass(frozen=True)
class Problem:
    """What the label holder wants in one stage: targets and row weights, (rows, models)."""

    targets: Floats
    weights: Floats

    @property
    def size(self) -> Floats:
        """The average row weight of each model, rounded: its last bits would tell of the rows."""
        return np.asarray(np.round(self.weights.mean(axis=0), 9))


# From the stage's number and the total scores so far (rows, models) to what is wanted next.
Pose = Callable[[int, Floats], Problem]


@dataclass(frozen=True)
class Posed:
    """What a model wants of its label: the problems of all stages, and what must be known of it."""

    pose: Pose
    rarest: Rarest
    weighted: bool
    facts: dict[str, Any]  # for the label holder's share


@dataclass(frozen=True)
class Trained:
    """One party's weights (columns, models); at the label holder also what happened."""

    weights: Floats
    rounds: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str | None = None
