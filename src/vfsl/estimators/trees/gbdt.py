"""First-order gradient boosting, as Friedman described it, across parties."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vfsl.estimators.trees.boosted import Boosted
from vfsl.estimators.trees.fitting import Fitting
from vfsl.estimators.trees.gains import Penalty
from vfsl.estimators.trees.program import Program
from vfsl.parts import Part, Roles


@dataclass(kw_only=True)
class GBDT(Boosted):
    """Boosted trees that are grown as regressions on the gradient alone.

    Splits are judged by how much they lower the weighted variance of the gradient; only the leaf
    values take one Newton step, as the label holder knows the second derivatives anyway.

    Parameters
    ----------
    colsample : float
        Share of all parties' columns that a node may use.
    n_estimators, max_depth, max_bins, task, categories, min_rows, packing, keys, checkpoints
        As in all tree models.
    learning_rate, subsample, validation, patience
        As in all boosted models.
    """

    name = "gbdt"

    max_depth: int = 3
    colsample: float = 1.0

    def _fitting(self, party: str, part: Part, rng: np.random.Generator) -> Fitting:
        return self._boosting(party, part, rng, l2=0.0, second_order=False)

    def _penalty(self) -> Penalty:
        return Penalty(l2=0.0, least_gain=0.0, least_weight=1e-3)

    def _program(self, roles: Roles) -> Program:
        return replace(super()._program(roles), columns_by_node=self.colsample)

    def _check(self) -> None:
        super()._check()
        self._check_range("colsample", 0.0, 1.0, open_low=True)
