"""What boosted trees share: parameters, sampling, early stopping."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vfsl.errors import ConfigError
from vfsl.estimators.linear_model import known_weights
from vfsl.estimators.trees.fitting import Boosting
from vfsl.estimators.trees.model import TreeModel
from vfsl.estimators.trees.objectives import Logistic, Objective, Softmax, Squared, encode_target
from vfsl.parts import Part


@dataclass(kw_only=True)
class Boosted(TreeModel):
    """Trees that each fit what the ones before have left.

    Parameters
    ----------
    learning_rate : float
    subsample : float
        Share of rows that each round draws.
    validation : float
        Share of rows that do not train but judge; 0 for none.
    patience : int
        Rounds without a better loss on validation rows after which training ends.
    """

    learning_rate: float = 0.1
    subsample: float = 1.0
    validation: float = 0.0
    patience: int = 10

    def _boosting(
        self,
        party: str,
        part: Part,
        rng: np.random.Generator,
        *,
        l2: float,
        second_order: bool = True,
        top: float = 1.0,
        other: float = 0.0,
    ) -> Boosting:
        target, classes, known = encode_target(party, part.target, self.task)
        weights = known_weights(part.weights, known)
        objective: Objective
        if self.task == "regression":
            objective = Squared(target)
        elif len(classes) == 2:
            objective = Logistic(target.astype(np.float64), classes)
        else:
            objective = Softmax(target, classes)
        judges = rng.random(len(target)) < self.validation if self.validation else None
        return Boosting(
            objective=objective,
            weights=weights,
            rounds=self.n_estimators,
            step=self.learning_rate,
            subsample=self.subsample,
            validation=judges,
            patience=self.patience,
            l2=l2,
            second_order=second_order,
            top=top,
            other=other,
        )

    def _check(self) -> None:
        super()._check()
        self._check_range("learning_rate", 0.0, 1.0, open_low=True)
        self._check_range("subsample", 0.0, 1.0, open_low=True)
        self._check_range("validation", 0.0, 0.9)
        if self.patience < 1:
            raise ConfigError(
                f"The patience parameter of {type(self).__name__} must be at least 1. "
                f"Got {self.patience!r} instead."
            )
