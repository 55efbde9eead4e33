"""Random forest across parties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

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
from vfsl.estimators.trees.tree import Goal, Tree
from vfsl.params import documented, param
from vfsl.parts import Roles
from vfsl.values import Array, Floats


@documented
@dataclass(kw_only=True)
class RandomForest(TreeModel):
    """The mean of trees, each on a bootstrap sample of rows and, at each node, some columns.

    Splits lower the Gini impurity, or the variance of a number.

    Attributes
    ----------
    oob_score_ : float
        Accuracy, or R², of each row's mean over the trees that did not draw it.
    """

    name = "rf"
    class_scores_are = "probability"

    n_estimators: int = 100
    max_depth: int = 12
    columns: Literal["sqrt", "all"] | float = param(
        "sqrt",
        "How many of all parties' columns a node may use: the square root of their number, all, or "
        "a fraction.",
        gt=0,
        le=1,
    )
    bootstrap: bool = param(True, "Whether each tree draws rows with replacement.")
    together: int = param(
        10, "Trees that grow in the same rounds: fewer messages, more memory.", ge=1
    )
    min_child_weight: float = param(
        1.0, "Smallest weight of the drawn rows on each side of a split.", gt=0
    )

    @property
    def oob_score_(self) -> float:
        score: float | None = self.held_share.state.get("oob")
        if score is None:
            raise ConfigError("There are no out-of-bag rows: fit with bootstrap=True.")
        return score

    def _strategy(self, label: Label, rng: np.random.Generator) -> Strategy:
        targets = label.target[:, None].astype(np.float64)
        if len(label.classes) > 2:
            targets = np.eye(len(label.classes))[label.target]
        return Bagging(
            objective=Means(targets),
            weights=label.weights,
            rounds=math.ceil(self.n_estimators / self.together),
            step=1.0 / self.n_estimators,
            penalty=Penalty(l2=0.0, least_gain=0.0, least_weight=self.min_child_weight),
            trees=self.n_estimators,
            together=self.together,
            bootstrap=self.bootstrap,
            classes=len(label.classes),
        )

    def _growth(self, roles: Roles) -> Growth:
        # 0 stands for the square root, which depends on how many columns all parties have.
        named = {"sqrt": 0.0, "all": 1.0}
        columns = named[self.columns] if isinstance(self.columns, str) else float(self.columns)
        return replace(super()._growth(roles), columns_by_node=columns)


@dataclass(frozen=True)
class Means(Objective):
    """Each leaf holds the weighted mean of its targets; impurity is their variance.

    For a class indicator the variance is half the Gini impurity, so both choose the same splits.
    """

    targets: Floats  # (rows, outputs)

    @property
    def outputs(self) -> int:
        return int(self.targets.shape[1])

    def start(self, weights: Floats) -> Floats:
        return np.zeros(weights.shape[1] * self.outputs)

    def gradients(self, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        first = -weights[:, :, None] * self.targets[:, None, :]
        second = np.broadcast_to(weights[:, :, None], first.shape)
        return first.reshape(len(weights), -1), second.reshape(len(weights), -1)

    def losses(self, scores: Floats) -> Floats:
        gaps = scores.reshape(len(scores), -1, self.outputs) - self.targets[:, None, :]
        return np.asarray(0.5 * (gaps**2).sum(axis=2))


@dataclass(kw_only=True)
class Bagging(Strategy):
    """Each tree fits the labels on a bootstrap sample of the rows; the forest is their mean.

    Parameters
    ----------
    trees : int
    together : int
        Trees that grow in the same rounds.
    bootstrap : bool
    classes : int
        0 for numbers.
    """

    objective: Means
    trees: int
    together: int
    bootstrap: bool = True
    classes: int = 0

    def __post_init__(self) -> None:
        self._out_sums: Floats = np.zeros(0)
        self._out_counts: Floats = np.zeros(0)

    @property
    def trees_planned(self) -> int:
        return self.trees * self.models * self.objective.outputs

    def set_goals(self, ensemble: Ensemble, number: int, rng: np.random.Generator) -> list[Goal]:
        goals = []
        for _ in range(number * self.together, min((number + 1) * self.together, self.trees)):
            drawn = draw_bootstrap(self.weights, rng) if self.bootstrap else self.weights
            first, second = self.objective.gradients(ensemble.scores, drawn)
            for at in range(first.shape[1]):
                goals.append(make_goal(first[:, at], second[:, at], second[:, at], at))
        return goals

    def _more(self, goals: Sequence[Goal], trees: list[Tree], leaf: Array) -> dict[str, Array]:
        shape = (len(self.weights), self.models * self.objective.outputs)
        sums, counts = np.zeros(shape), np.zeros(shape)
        for at, (goal, tree) in enumerate(zip(goals, trees, strict=True)):
            outside = goal.second == 0
            sums[outside, goal.output] += np.array(tree.value)[leaf[outside, at]] / self.step
            counts[outside, goal.output] += 1
        return {"out sums": sums, "out counts": counts}

    def _append(
        self, ensemble: Ensemble, trees: list[Tree], outputs: list[int], arrays: Mapping[str, Array]
    ) -> None:
        if not ensemble.rounds:
            self._out_sums, self._out_counts = arrays["out sums"], arrays["out counts"]
        else:
            self._out_sums = self._out_sums + arrays["out sums"]
            self._out_counts = self._out_counts + arrays["out counts"]
        super()._append(ensemble, trees, outputs, arrays)

    def _judge(self, ensemble: Ensemble) -> None:
        number = len(ensemble.rounds)
        grown = min(number * self.together, self.trees)
        loss = self.objective.loss(ensemble.scores * self.trees / grown, self.weights)
        ensemble.history.append({"round": number, "trees": grown, "loss": float(loss.mean())})
        if number >= self.rounds:
            ensemble.stop_reason = "all trees"

    def oob_score(self) -> float | None:
        """Accuracy, or R², of each row's mean over the trees that did not draw it."""
        use = np.asarray((self._out_counts > 0).all(axis=1) & (self.weights > 0).any(axis=1))
        if self.models > 1 or not use.any():
            return None
        means, truth = self._out_sums[use] / self._out_counts[use], self.objective.targets[use]
        if not self.classes:
            return float(1 - ((means - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())
        if self.classes == 2:
            return float(((means > 0.5) == (truth > 0.5)).mean())
        return float((means.argmax(axis=1) == truth.argmax(axis=1)).mean())


def draw_bootstrap(weights: Floats, rng: np.random.Generator) -> Floats:
    """How often each row is drawn, times its weight: as many draws as rows that count."""
    drawn = np.zeros_like(weights)
    for model in range(weights.shape[1]):
        rows = np.flatnonzero(weights[:, model])
        counts = np.bincount(rng.integers(len(rows), size=len(rows)), minlength=len(rows))
        drawn[rows, model] = counts * weights[rows, model]
    return drawn
