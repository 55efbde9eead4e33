"""How trees follow each other: goals from labels and scores, leaf values, when to stop.

Everything here happens at the label holder, in the clear; others see only encrypted (g, h).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vfsl.estimators.descent import Floats
from vfsl.estimators.trees.gains import quantise
from vfsl.estimators.trees.objectives import Means, Objective
from vfsl.estimators.trees.sampling import bootstrap, goss, subsample
from vfsl.estimators.trees.state import Kept
from vfsl.estimators.trees.tree import LEAF, Goal, Tree
from vfsl.values import Array


@dataclass(frozen=True)
class Aim:
    """One tree to grow: what judges its splits, what its leaves fit, and which score it moves."""

    goal: Goal
    first: Floats
    second: Floats
    output: int


@dataclass
class Fitted:
    """Trees so far, round by round, and the scores of all training rows."""

    start: Floats
    scores: Floats
    rounds: list[list[Tree]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    history: list[Mapping[str, Any]] = field(default_factory=list)
    keep: int | None = None
    kept_scores: Floats | None = None
    stop_reason: str | None = None

    @property
    def trees_grown(self) -> int:
        return sum(len(trees) for trees in self.rounds)

    @property
    def rounds_kept(self) -> int:
        return len(self.rounds) if self.keep is None else self.keep

    def kept(self) -> tuple[list[Tree], list[int]]:
        """The trees of the rounds that the model keeps, and which score each of them moves."""
        trees = [tree for each in self.rounds[: self.rounds_kept] for tree in each]
        outputs = [output for each in self.outputs[: self.rounds_kept] for output in each]
        return trees, outputs


@dataclass(kw_only=True)
class Fitting(ABC):
    """The label holder's plan.

    Parameters
    ----------
    objective : Objective
    weights : array of shape (rows, models)
        Zero for rows without a label.
    rounds : int
    step : float
        What a leaf's value is multiplied by.
    l2 : float
    """

    objective: Objective
    weights: Floats
    rounds: int
    step: float
    l2: float

    @property
    def models(self) -> int:
        return int(self.weights.shape[1])

    def begin(self, kept: Kept, done: int) -> Fitted:
        """The state after ``done`` rounds of an earlier attempt."""
        start = self.objective.start(self._training_weights())
        fitted = Fitted(start, np.tile(start, (len(self.weights), 1)))
        for number in range(done):
            value = kept.load(number)
            trees = [Tree.from_dict(tree) for tree in value["trees"]]
            self._take(fitted, trees, value["outputs"], kept.arrays(number))
        return fitted

    @abstractmethod
    def aims(self, fitted: Fitted, number: int, rng: np.random.Generator) -> list[Aim]:
        """What the trees of a round are to fit."""

    def settle(
        self, fitted: Fitted, aims: Sequence[Aim], trees: list[Tree], leaf: Array
    ) -> dict[str, Array]:
        """Give leaves their values and take the round in; the arrays to keep of it."""
        scores = fitted.scores.copy()
        for at, (aim, tree) in enumerate(zip(aims, trees, strict=True)):
            values = newton_values(leaf[:, at], len(tree.owner), aim.first, aim.second, self.l2)
            is_leaf = np.array(tree.owner) == LEAF
            values = np.where(is_leaf, self.step * values, 0.0)
            tree.value = values.tolist()
            # Tree by tree, as a prediction adds them up: both give the same to the last digit.
            scores[:, aim.output] += values[leaf[:, at]]
        arrays = {"scores": scores, **self._more(aims, trees, leaf)}
        self._take(fitted, trees, [aim.output for aim in aims], arrays)
        return arrays

    def _more(self, aims: Sequence[Aim], trees: list[Tree], leaf: Array) -> dict[str, Array]:
        return {}

    def _take(
        self, fitted: Fitted, trees: list[Tree], outputs: list[int], arrays: Mapping[str, Array]
    ) -> None:
        fitted.scores = arrays["scores"]
        fitted.rounds.append(trees)
        fitted.outputs.append(outputs)
        self._judge(fitted)

    @abstractmethod
    def _judge(self, fitted: Fitted) -> None:
        """Note how good the model is now, and whether it is finished."""

    def _training_weights(self) -> Floats:
        return self.weights

    def oob_score(self) -> float | None:
        """How well trees predict rows that they did not draw, if there are such."""
        return None


@dataclass(kw_only=True)
class Boosting(Fitting):
    """Each round's trees fit what the rounds before have left.

    Parameters
    ----------
    second_order : bool
        Whether splits are judged by second derivatives, or by row weights alone.
    subsample : float
        Share of rows that a round draws.
    top, other : float
        One-side sampling by gradient: share of rows with the largest gradients that stay, share of
        the others that are drawn. 1 and 0: off.
    validation : boolean array, optional
        Rows that do not train but judge; ``patience`` rounds without improvement end training.
    """

    second_order: bool = True
    subsample: float = 1.0
    top: float = 1.0
    other: float = 0.0
    validation: Array | None = None
    patience: int = 0

    def aims(self, fitted: Fitted, number: int, rng: np.random.Generator) -> list[Aim]:
        weights = self._training_weights()
        if self.subsample < 1:
            weights = weights * subsample(len(weights), self.subsample, rng)[:, None]
        first, second = self.objective.gradients(fitted.scores, weights)
        outputs = self.objective.outputs
        aims = []
        for at in range(first.shape[1]):
            g, h = first[:, at], second[:, at]
            weight = weights[:, at // outputs]
            if self.top < 1:
                factor = goss(np.abs(g) * (weight > 0), self.top, self.other, rng)
                g, h, weight = g * factor, h * factor, weight * factor
            values, scale = quantise(g, h if self.second_order else weight, len(g))
            aims.append(Aim(Goal(values, scale), g, h, at))
        return aims

    def _judge(self, fitted: Fitted) -> None:
        number = len(fitted.rounds)
        loss = self.objective.loss(fitted.scores, self._training_weights())
        line: dict[str, Any] = {"round": number, "loss": float(loss.mean())}
        if self.validation is not None:
            held_out = self.weights * self.validation[:, None]
            line["validation"] = float(self.objective.loss(fitted.scores, held_out).mean())
        fitted.history.append(line)
        if number >= self.rounds:
            fitted.stop_reason = "all rounds"
        if self.validation is None:
            return
        best = int(np.argmin([line["validation"] for line in fitted.history]))
        if best == number - 1:
            fitted.kept_scores = fitted.scores
        if number - 1 - best >= self.patience:
            fitted.stop_reason = f"no better on validation rows for {self.patience} rounds"
        if fitted.stop_reason:
            fitted.keep = best + 1

    def _training_weights(self) -> Floats:
        if self.validation is None:
            return self.weights
        return self.weights * ~self.validation[:, None]


@dataclass(kw_only=True)
class Bagging(Fitting):
    """Each tree fits the labels on a bootstrap sample of the rows; the forest is their mean.

    Parameters
    ----------
    trees : int
    together : int
        Trees that grow in the same rounds.
    bootstrap : bool
    """

    objective: Means
    trees: int
    together: int
    bootstrap: bool = True

    def __post_init__(self) -> None:
        self._out_sums: Floats = np.zeros(0)
        self._out_counts: Floats = np.zeros(0)

    def aims(self, fitted: Fitted, number: int, rng: np.random.Generator) -> list[Aim]:
        aims = []
        for _ in range(number * self.together, min((number + 1) * self.together, self.trees)):
            drawn = bootstrap(self.weights, rng) if self.bootstrap else self.weights
            first, second = self.objective.gradients(fitted.scores, drawn)
            for at in range(first.shape[1]):
                values, scale = quantise(first[:, at], second[:, at], len(first))
                aims.append(Aim(Goal(values, scale), first[:, at], second[:, at], at))
        return aims

    def _more(self, aims: Sequence[Aim], trees: list[Tree], leaf: Array) -> dict[str, Array]:
        shape = (len(self.weights), self.models * self.objective.outputs)
        sums, counts = np.zeros(shape), np.zeros(shape)
        for at, (aim, tree) in enumerate(zip(aims, trees, strict=True)):
            outside = aim.second == 0
            sums[outside, aim.output] += np.array(tree.value)[leaf[outside, at]] / self.step
            counts[outside, aim.output] += 1
        return {"out sums": sums, "out counts": counts}

    def _take(
        self, fitted: Fitted, trees: list[Tree], outputs: list[int], arrays: Mapping[str, Array]
    ) -> None:
        if not fitted.rounds:
            self._out_sums, self._out_counts = arrays["out sums"], arrays["out counts"]
        else:
            self._out_sums = self._out_sums + arrays["out sums"]
            self._out_counts = self._out_counts + arrays["out counts"]
        super()._take(fitted, trees, outputs, arrays)

    def _judge(self, fitted: Fitted) -> None:
        number = len(fitted.rounds)
        grown = min(number * self.together, self.trees)
        loss = self.objective.loss(fitted.scores * self.trees / grown, self.weights)
        fitted.history.append({"round": number, "trees": grown, "loss": float(loss.mean())})
        if number >= self.rounds:
            fitted.stop_reason = "all trees"

    def oob_score(self) -> float | None:
        """Accuracy, or R², of each row's mean over the trees that did not draw it."""
        use = np.asarray((self._out_counts > 0).all(axis=1) & (self.weights > 0).any(axis=1))
        if self.models > 1 or not use.any():
            return None
        means = self._out_sums[use] / self._out_counts[use]
        return self.objective.rightness(means, use)


def newton_values(leaf: Array, nodes: int, first: Floats, second: Floats, l2: float) -> Floats:
    """−Σg / (Σh + λ) over the rows of each node, 0 where nothing counts."""
    g = np.bincount(leaf, weights=first, minlength=nodes)
    h = np.bincount(leaf, weights=second, minlength=nodes) + l2
    return np.asarray(np.where(h > 0, -g / np.where(h > 0, h, 1.0), 0.0))
