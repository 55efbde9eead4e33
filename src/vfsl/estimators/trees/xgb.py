"""Second-order boosting level by level, as XGBoost does it, across parties."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vfsl.estimators.trees.boosted import Boosted
from vfsl.estimators.trees.fitting import Fitting
from vfsl.estimators.trees.gains import Penalty
from vfsl.estimators.trees.program import Program
from vfsl.parts import Part, Roles


@dataclass(kw_only=True)
class XGB(Boosted):
    """Boosted trees whose splits are judged by first and second derivatives of the loss.

    Parameters
    ----------
    l2 : float
        λ in the gain and in leaf values.
    gamma : float
        Least gain of a split.
    min_child_weight : float
        Least sum of second derivatives on each side of a split.
    colsample : float
        Share of all parties' columns that a tree may use.
    n_estimators, max_depth, max_bins, task, categories, min_rows, packing, keys, checkpoints
        As in all tree models.
    learning_rate, subsample, validation, patience
        As in all boosted models.
    """

    name = "xgb"

    learning_rate: float = 0.3
    l2: float = 1.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    colsample: float = 1.0

    def _fitting(self, party: str, part: Part, rng: np.random.Generator) -> Fitting:
        return self._boosting(party, part, rng, l2=self.l2)

    def _penalty(self) -> Penalty:
        return Penalty(self.l2, self.gamma, self.min_child_weight)

    def _program(self, roles: Roles) -> Program:
        return replace(super()._program(roles), columns_by_tree=self.colsample)

    def _check(self) -> None:
        super()._check()
        self._check_range("l2", 0.0, np.inf)
        self._check_range("gamma", 0.0, np.inf)
        self._check_range("min_child_weight", 0.0, np.inf)
        self._check_range("colsample", 0.0, 1.0, open_low=True)
