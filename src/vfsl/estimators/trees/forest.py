"""Random forest across parties."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vfsl.errors import ConfigError
from vfsl.estimators.linear_model import known_weights
from vfsl.estimators.trees.fitting import Bagging, Fitting
from vfsl.estimators.trees.gains import Penalty
from vfsl.estimators.trees.model import TreeModel
from vfsl.estimators.trees.objectives import Means, encode_target
from vfsl.estimators.trees.program import Program
from vfsl.parts import Part, Roles
from vfsl.values import Array


@dataclass(kw_only=True)
class RandomForest(TreeModel):
    """The mean of trees, each on a bootstrap sample of rows and, at each node, some columns.

    Splits lower the Gini impurity, or the variance of a number.

    Parameters
    ----------
    columns : {"sqrt", "all"} or float
        How many of all parties' columns a node may use: the square root of their number, all, or
        a share.
    bootstrap : bool
    together : int
        Trees that grow in the same rounds: fewer messages, more memory.
    min_child_weight : float
        Least weight of the drawn rows on each side of a split.
    n_estimators, max_depth, max_bins, task, categories, min_rows, packing, keys, checkpoints
        As in all tree models.

    Attributes
    ----------
    oob_score_ : float
        Accuracy, or R², of each row's mean over the trees that did not draw it.
    """

    name = "rf"
    scores_are = "probability"

    n_estimators: int = 100
    max_depth: int = 12
    columns: str | float = "sqrt"
    bootstrap: bool = True
    together: int = 10
    min_child_weight: float = 1.0

    @property
    def oob_score_(self) -> float:
        score: float | None = self.shares_[self.label_[0]].state.get("oob")
        if score is None:
            raise ConfigError("There are no out-of-bag rows: fit with bootstrap=True.")
        return score

    def chances(self, scores: Array, classes: int) -> Array:
        """The forest's means are probabilities; one-vs-rest trees need not add up to 1."""
        clipped = np.clip(scores, 0.0, 1.0)
        if classes == 2:
            return clipped
        return np.asarray(clipped / np.maximum(clipped.sum(axis=1, keepdims=True), 1e-12))

    def _fitting(self, party: str, part: Part, rng: np.random.Generator) -> Fitting:
        target, classes, known = encode_target(party, part.target, self.task)
        weights = known_weights(part.weights, known)
        kind: dict[str, Any] = {"task": "regression"}
        targets = target[:, None].astype(np.float64)
        if classes:
            kind = {"task": "binary" if len(classes) == 2 else "classes", "classes": classes}
            targets = targets if len(classes) == 2 else np.eye(len(classes))[target]
        rounds = math.ceil(self.n_estimators / self.together)
        return Bagging(
            objective=Means(targets, kind),
            weights=weights,
            rounds=rounds,
            step=1.0 / self.n_estimators,
            l2=0.0,
            trees=self.n_estimators,
            together=self.together,
            bootstrap=self.bootstrap,
        )

    def _penalty(self) -> Penalty:
        return Penalty(l2=0.0, least_gain=0.0, least_weight=self.min_child_weight)

    def _program(self, roles: Roles) -> Program:
        return replace(super()._program(roles), columns_by_node=_share(self.columns))

    def _check(self) -> None:
        super()._check()
        self._check_range("min_child_weight", 0.0, np.inf, open_low=True)
        if self.columns not in ("sqrt", "all") and not (
            isinstance(self.columns, float) and 0 < self.columns <= 1
        ):
            raise ConfigError(
                "The columns parameter of RandomForest must be 'sqrt', 'all' or a share from 0 to "
                f"1. Got {self.columns!r} instead."
            )
        if self.together < 1:
            raise ConfigError(
                "The together parameter of RandomForest must be at least 1. "
                f"Got {self.together!r} instead."
            )


def _share(columns: str | float) -> float:
    """0 stands for the square root, which depends on how many columns all parties have."""
    if columns == "sqrt":
        return 0.0
    return 1.0 if columns == "all" else float(columns)
