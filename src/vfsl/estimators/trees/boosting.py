"""Boosted trees across parties: GBDT, XGB and LGB, and how each round follows from the last."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit, softmax

from vfsl.errors import ConfigError
from vfsl.estimators.trees.model import TreeModel
from vfsl.estimators.trees.protocol import Growth
from vfsl.estimators.trees.splits import Penalty
from vfsl.estimators.trees.training import (
    Ensemble,
    Label,
    Objective,
    Strategy,
    make_goal,
)
from vfsl.estimators.trees.tree import Goal
from vfsl.params import documented, param
from vfsl.parts import Roles
from vfsl.values import Array, Floats

_FLOOR = 1e-16


@dataclass(kw_only=True)
class Boosted(TreeModel):
    """Trees that each fit what the ones before have left."""

    learning_rate: float = param(
        0.1, "What the values of a new tree's leaves are multiplied by.", gt=0, le=1
    )
    subsample: float = param(1.0, "Fraction of rows that each round draws.", gt=0, le=1)
    colsample: float = param(
        1.0, "Fraction of all parties' columns that a tree may use.", gt=0, le=1
    )
    validation: float = param(
        0.0, "Fraction of rows that do not train but judge; 0 for none.", ge=0, le=0.9
    )
    patience: int = param(
        10, "Rounds without a better loss on validation rows after which training ends.", ge=1
    )

    def _strategy(self, label: Label, rng: np.random.Generator) -> Strategy:
        objective: Objective
        if not label.classes:
            objective = Squared(label.target)
        elif len(label.classes) == 2:
            objective = Logistic(label.target.astype(np.float64))
        else:
            objective = Softmax(label.target, len(label.classes))
        judges = rng.random(len(label.target)) < self.validation if self.validation else None
        return Boosting(
            objective=objective,
            weights=label.weights,
            rounds=self.n_estimators,
            step=self.learning_rate,
            penalty=self._penalty(),
            subsample=self.subsample,
            validation=judges,
            patience=self.patience,
            **self._judged_by(),
        )

    @abstractmethod
    def _penalty(self) -> Penalty:
        """What a split must overcome."""

    def _judged_by(self) -> dict[str, Any]:
        """By which derivatives of which rows splits are judged: fields of `Boosting`."""
        return {}


@documented
@dataclass(kw_only=True)
class GBDT(Boosted):
    """Boosted trees that are grown as regressions on the gradient alone.

    First-order gradient boosting, as Friedman described it. Splits are judged by how much they
    lower the weighted variance of the gradient; only the leaf values take one Newton step, as the
    label holder knows the second derivatives anyway.
    """

    name = "gbdt"

    max_depth: int = 3
    colsample: float = param(
        1.0, "Fraction of all parties' columns that a node may use.", gt=0, le=1
    )

    def _penalty(self) -> Penalty:
        return Penalty(l2=0.0, least_gain=0.0, least_weight=1e-3)

    def _judged_by(self) -> dict[str, Any]:
        return {"second_order": False}

    def _growth(self, roles: Roles) -> Growth:
        return replace(super()._growth(roles), columns_by_node=self.colsample)


@dataclass(kw_only=True)
class SecondOrder(Boosted):
    """Boosted trees whose splits are judged by first and second derivatives of the loss."""

    l2: float = param(1.0, "λ in the gain and in leaf values.", ge=0)
    gamma: float = param(0.0, "Smallest gain of a split.", ge=0)
    min_child_weight: float = param(
        1.0, "Smallest sum of second derivatives on each side of a split.", ge=0
    )

    def _penalty(self) -> Penalty:
        return Penalty(self.l2, self.gamma, self.min_child_weight)

    def _growth(self, roles: Roles) -> Growth:
        return replace(super()._growth(roles), columns_by_tree=self.colsample)


@documented
@dataclass(kw_only=True)
class XGB(SecondOrder):
    """Second-order boosting level by level, as XGBoost does it."""

    name = "xgb"

    learning_rate: float = 0.3


@documented
@dataclass(kw_only=True)
class LGB(SecondOrder):
    """Second-order boosting that splits the leaf with the largest gain first, as LightGBM does."""

    name = "lgb"

    max_depth: int = 12
    l2: float = 0.0
    min_child_weight: float = 1e-3
    max_leaves: int = param(31, "Maximum number of leaves per tree.", ge=2)
    goss: bool = param(
        False,
        "Whether rows with small gradients are thinned out and made heavier. Which rows were "
        "chosen stays at the label holder: the others are encrypted zeros.",
    )
    top: float = param(
        0.2, "With goss: fraction of rows, those with the largest gradients, that stay.", ge=0, le=1
    )
    other: float = param(
        0.1, "With goss: fraction of rows that are drawn from the others.", gt=0, le=1
    )

    def check(self) -> None:
        super().check()
        if self.goss and self.top + self.other > 1:
            raise ConfigError(
                "LGB needs top + other of at most 1. Got "
                f"top={self.top!r}, other={self.other!r} instead."
            )

    def _judged_by(self) -> dict[str, Any]:
        return {"top": self.top, "other": self.other} if self.goss else {}

    def _growth(self, roles: Roles) -> Growth:
        return replace(super()._growth(roles), max_leaves=self.max_leaves)


# ---- losses --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Squared(Objective):
    """Half the squared error."""

    target: Floats

    def start(self, weights: Floats) -> Floats:
        return np.asarray((weights * self.target[:, None]).sum(axis=0) / weights.sum(axis=0))

    def gradients(self, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        return weights * (scores - self.target[:, None]), weights

    def losses(self, scores: Floats) -> Floats:
        return np.asarray(0.5 * (scores - self.target[:, None]) ** 2)


@dataclass(frozen=True)
class Logistic(Objective):
    """−log of the probability of the right one of two classes."""

    target: Floats  # 0 or 1

    def start(self, weights: Floats) -> Floats:
        mean = (weights * self.target[:, None]).sum(axis=0) / weights.sum(axis=0)
        # A bag may hold one class only.
        return np.asarray(logit(np.clip(mean, 1e-6, 1 - 1e-6)))

    def gradients(self, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        chance = expit(scores)
        curvature = np.maximum(chance * (1 - chance), _FLOOR)
        return weights * (chance - self.target[:, None]), weights * curvature

    def losses(self, scores: Floats) -> Floats:
        signed = np.where(self.target[:, None] > 0.5, -scores, scores)
        return np.asarray(np.logaddexp(0.0, signed))


@dataclass(frozen=True)
class Softmax(Objective):
    """−log of the probability of the right one of several classes, a tree for each class."""

    target: Array  # class codes
    classes: int

    @property
    def outputs(self) -> int:
        return self.classes

    def start(self, weights: Floats) -> Floats:
        hot = np.eye(self.outputs)[self.target]
        mean = (weights.T @ hot) / weights.sum(axis=0)[:, None]
        return np.asarray(np.log(np.clip(mean, 1e-6, None)).reshape(-1))

    def gradients(self, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        chance = self._chances(scores)
        hot = np.eye(self.outputs)[self.target][:, None, :]
        # Twice p (1 − p) bounds the curvature of classes that move together.
        curvature = np.maximum(2 * chance * (1 - chance), _FLOOR)
        each = weights[:, :, None]
        flat = (len(scores), -1)
        return (each * (chance - hot)).reshape(flat), (each * curvature).reshape(flat)

    def losses(self, scores: Floats) -> Floats:
        chance = self._chances(scores)
        right = np.take_along_axis(chance, self.target[:, None, None], axis=2)[:, :, 0]
        return np.asarray(-np.log(np.maximum(right, _FLOOR)))

    def _chances(self, scores: Floats) -> Floats:
        """(rows, models, classes)."""
        return np.asarray(softmax(scores.reshape(len(scores), -1, self.outputs), axis=2))


# ---- rounds --------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Boosting(Strategy):
    """Each round's trees fit what the rounds before have left.

    Parameters
    ----------
    second_order : bool
        Whether splits are judged by second derivatives, or by row weights alone.
    subsample : float
        Fraction of rows that a round draws.
    top, other : float
        One-side sampling by gradient: fraction of rows with the largest gradients that stay,
        fraction that is drawn from the others. 1 and 0: off.
    validation : boolean array, optional
        Rows that do not train but judge; ``patience`` rounds without improvement end training.
    """

    second_order: bool = True
    subsample: float = 1.0
    top: float = 1.0
    other: float = 0.0
    validation: Array | None = None
    patience: int = 0

    def set_goals(self, ensemble: Ensemble, number: int, rng: np.random.Generator) -> list[Goal]:
        weights = self._training_weights()
        if self.subsample < 1:
            weights = weights * draw_subsample(len(weights), self.subsample, rng)[:, None]
        first, second = self.objective.gradients(ensemble.scores, weights)
        goals = []
        for at in range(first.shape[1]):
            g, h = first[:, at], second[:, at]
            weight = weights[:, at // self.objective.outputs]
            if self.top < 1:
                factor = draw_one_side(np.abs(g) * (weight > 0), self.top, self.other, rng)
                g, h, weight = g * factor, h * factor, weight * factor
            goals.append(make_goal(g, h, h if self.second_order else weight, at))
        return goals

    @property
    def judges(self) -> Array | None:
        return self.validation

    def _judge(self, ensemble: Ensemble) -> None:
        number = len(ensemble.rounds)
        loss = self.objective.loss(ensemble.scores, self._training_weights())
        line: dict[str, Any] = {"round": number, "loss": float(loss.mean())}
        if self.validation is not None:
            held_out = self.weights * self.validation[:, None]
            line["validation"] = float(self.objective.loss(ensemble.scores, held_out).mean())
        ensemble.history.append(line)
        if number >= self.rounds:
            ensemble.stop_reason = "all rounds"
        if self.validation is None:
            return
        best = int(np.argmin([line["validation"] for line in ensemble.history]))
        if best == number - 1:
            ensemble.kept_scores = ensemble.scores
        if number - 1 - best >= self.patience:
            ensemble.stop_reason = f"no better on validation rows for {self.patience} rounds"
        if ensemble.stop_reason:
            ensemble.keep = best + 1

    def _training_weights(self) -> Floats:
        if self.validation is None:
            return self.weights
        return self.weights * ~self.validation[:, None]


def draw_subsample(rows: int, fraction: float, rng: np.random.Generator) -> Array:
    """Which rows take part in a tree, each with the same probability."""
    return rng.random(rows) < fraction


def draw_one_side(strength: Floats, top: float, other: float, rng: np.random.Generator) -> Floats:
    """A factor for each row: 1 for the largest gradients, (1 − top) / other for a few others.

    Gradient-based one-side sampling: rows that are already fitted well are thinned out, and the
    rest of them made heavier, so that sums stay unbiased.
    """
    present = np.flatnonzero(strength > 0)
    keep, draw = (int(np.ceil(fraction * len(present))) for fraction in (top, other))
    # A stable sort: rows of equal strength keep their order, whatever the machine.
    order = present[np.argsort(-strength[present], kind="stable")]
    factors = np.zeros(len(strength))
    factors[order[:keep]] = 1.0
    small = order[keep:]
    chosen = rng.choice(len(small), size=min(draw, len(small)), replace=False)
    if len(chosen):
        factors[small[chosen]] = len(small) / len(chosen)
    return factors
