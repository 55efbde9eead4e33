"""Base estimators of VFPU-M: by name and kind of target, and what their scores mean."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from vfsl.completion.selection import Floats
from vfsl.errors import ConfigError
from vfsl.estimators.base import Estimator
from vfsl.estimators.descent import Program, Width
from vfsl.estimators.linear import LinearRegression
from vfsl.estimators.trees import GBDT, LGB, XGB, RandomForest
from vfsl.parts import ModelShare, Roles
from vfsl.values import Array

BASES = ("linear", "rf", "gbdt", "xgb", "lgb")
ROWS_PER_COLUMN = 10


@dataclass(frozen=True)
class _HeavyRows(Program):
    """A training whose fixed-point widths give precision away for larger row weights.

    Rows outside D_L weigh nothing, so those in it may weigh far more than the average.
    """

    def width(self, rows: int, stage: int, roles: Roles) -> Width:
        usual = super().width(rows, stage, roles)
        if not self.is_weighted(stage):
            return usual
        return replace(
            usual,
            columns=usual.columns - _MORE_BITS // 2,
            scores=usual.scores - _MORE_BITS // 2,
            row_weight_range=usual.row_weight_range + _MORE_BITS,
        )


# Row weights up to 2^10 times the average, instead of 2^6.
_MORE_BITS = 4


@dataclass
class RidgeBase(LinearRegression):
    """Ridge regression whose rows may weigh a lot; several columns train in the same rounds.

    A guess at a column needs no seven digits: two save most of the rounds.
    """

    l2: float = 0.01
    max_rounds: int = 30
    tolerance: float = 1e-3

    def _program(self, weighted: bool = False) -> Program:
        # Rows that weigh nothing may be predicted far out.
        return replace(_heavy(super()._program(weighted)), score_range=7)


def _heavy(program: Program) -> Program:
    return _HeavyRows(**{name: getattr(program, name) for name in Program.__dataclass_fields__})


# Small trees: the common rows are few. Users who want others give estimators of their own.
_TREES: Mapping[str, Any] = {
    "rf": lambda task: RandomForest(task=task, n_estimators=50, max_depth=8, columns=0.5),
    "gbdt": lambda task: GBDT(task=task, n_estimators=50, max_depth=3, learning_rate=0.1),
    "xgb": lambda task: XGB(task=task, n_estimators=50, max_depth=3, learning_rate=0.1),
    "lgb": lambda task: LGB(task=task, n_estimators=50, max_depth=4, learning_rate=0.1),
}


@dataclass(frozen=True)
class Pair:
    """The estimators of a base for numbers and for classes.

    A linear base has none for classes: it predicts an indicator of each, which the missing party
    turns into probabilities by itself.
    """

    numbers: Estimator
    classes: Estimator | None = None

    def of(self, *, classes: bool) -> Estimator:
        if not classes:
            return self.numbers
        if self.classes is None:
            raise ConfigError(f"The base {self.numbers.name!r} has no estimator for classes.")
        return self.classes

    @property
    def linear(self) -> bool:
        return isinstance(self.numbers, LinearRegression)

    @property
    def work(self) -> str:
        """What kind of work the scheme is chosen for."""
        return "linear" if self.linear else "trees"

    def name_of(self, *, classes: bool) -> str:
        """The name of what predicts such a column."""
        return self.numbers.name if self.linear else self.of(classes=classes).name

    def check(self) -> None:
        """Refuse what would only fail in the middle of a run, or show more than it should."""
        if self.linear:
            if self.classes is not None:
                raise ConfigError(
                    "A Pair with a linear model for numbers must have no estimator for classes: "
                    "it would show a party more scores of every row than its predictions."
                )
            return
        for one in (self.numbers, self.classes):
            if one is None or not one.knows_training_scores:
                raise ConfigError(
                    "A Pair must be of a linear model, or of two estimators that know the scores "
                    f"of their training rows, as trees do. Got {type(one).__name__} instead."
                )


def make_pair(base: str | Pair) -> Pair:
    """The base of that name, or the given pair."""
    if isinstance(base, Pair):
        base.check()
        return base
    if base == "linear":
        return Pair(RidgeBase())
    if base in _TREES:
        return Pair(_TREES[base]("regression"), _TREES[base]("classes"))
    near = difflib.get_close_matches(str(base), BASES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ConfigError(
        f"The base parameter must be one of {', '.join(BASES)} or a Pair of estimators. "
        f"Got {base!r} instead{hint}"
    )


def penalty_of(base: Estimator) -> float:
    """The l2 penalty of a linear base."""
    return float(base.l2) if isinstance(base, LinearRegression) else 0.0


def rare_rows_of(base: Estimator) -> float:
    """How many rows per column a value must have for a linear base to predict it by itself."""
    return float(base.rare_rows_per_column) if isinstance(base, LinearRegression) else 0.0


def as_values(base: Estimator, share: ModelShare, scores: Array) -> Floats:
    """Scores of a regression in units of the target, (rows, columns)."""
    found = np.asarray(scores, dtype=np.float64)
    if isinstance(base, LinearRegression):
        return np.asarray(
            found * np.asarray(share.state["scale"]) + np.asarray(share.state["mean"])
        )
    return found


def as_chances(base: Estimator, share: ModelShare, scores: Array, classes: int) -> Floats:
    """Scores of a classifier as probabilities of the class codes 0 to ``classes`` − 1."""
    found = np.asarray(scores, dtype=np.float64)
    known = [int(code) for code in share.state["classes"]]
    if base.scores_are == "probability":
        chances = np.clip(found, 0.0, 1.0)
    elif len(known) == 2:
        chances = expit(found[:, :1])
    else:
        chances = softmax(found, axis=1)
    if len(known) == 2:
        chances = np.hstack([1 - chances[:, :1], chances[:, :1]])
    chances = chances / np.maximum(chances.sum(axis=1, keepdims=True), 1e-12)
    # A part of the rows may lack a rare class.
    whole = np.zeros((len(chances), classes))
    whole[:, known] = chances
    return whole


def fresh_scores(base: Estimator, share: ModelShare) -> Array:
    """The scores of all training rows, of a base that knows them without a message."""
    if share.scores is None:
        raise ConfigError(f"The base {base.name!r} of VFPU-M does not know its training scores.")
    return share.scores


def of_model(scores: Array, share: ModelShare, model: int) -> Floats:
    """The scores of one of the models that were trained together, (rows, outputs)."""
    by_model = np.asarray(scores, dtype=np.float64).reshape(len(scores), share.state["models"], -1)
    return np.asarray(by_model[:, model])
