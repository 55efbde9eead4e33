"""Second-order boosting leaf by leaf with one-side sampling, as in LightGBM, across parties."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vfsl.errors import ConfigError
from vfsl.estimators.trees.boosted import Boosted
from vfsl.estimators.trees.fitting import Fitting
from vfsl.estimators.trees.gains import Penalty
from vfsl.estimators.trees.program import Program
from vfsl.parts import Part, Roles


@dataclass(kw_only=True)
class LGB(Boosted):
    """Boosted trees that split the leaf with the largest gain first.

    Parameters
    ----------
    max_leaves : int
        Leaves a tree.
    goss : bool
        Whether rows with small gradients are thinned out and made heavier. Which rows were chosen
        stays at the label holder: the others are encrypted zeros.
    top, other : float
        With ``goss``: share of rows with the largest gradients that stay, and share of the others
        that are drawn.
    l2, gamma, min_child_weight, colsample
        As in XGB.
    n_estimators, max_depth, max_bins, task, categories, min_rows, packing, keys, checkpoints
        As in all tree models.
    learning_rate, subsample, validation, patience
        As in all boosted models.
    """

    name = "lgb"

    max_depth: int = 12
    max_leaves: int = 31
    goss: bool = False
    top: float = 0.2
    other: float = 0.1
    l2: float = 0.0
    gamma: float = 0.0
    min_child_weight: float = 1e-3
    colsample: float = 1.0

    def _fitting(self, party: str, part: Part, rng: np.random.Generator) -> Fitting:
        top, other = (self.top, self.other) if self.goss else (1.0, 0.0)
        return self._boosting(party, part, rng, l2=self.l2, top=top, other=other)

    def _penalty(self) -> Penalty:
        return Penalty(self.l2, self.gamma, self.min_child_weight)

    def _program(self, roles: Roles) -> Program:
        base = super()._program(roles)
        return replace(base, max_leaves=self.max_leaves, columns_by_tree=self.colsample)

    def _check(self) -> None:
        super()._check()
        self._check_range("l2", 0.0, np.inf)
        self._check_range("gamma", 0.0, np.inf)
        self._check_range("min_child_weight", 0.0, np.inf)
        self._check_range("colsample", 0.0, 1.0, open_low=True)
        self._check_range("top", 0.0, 1.0)
        self._check_range("other", 0.0, 1.0, open_low=True)
        if self.max_leaves < 2 or (self.goss and self.top + self.other > 1):
            raise ConfigError(
                "LGB needs max_leaves of at least 2, and top + other of at most 1. Got "
                f"max_leaves={self.max_leaves!r}, top={self.top!r}, other={self.other!r} instead."
            )
