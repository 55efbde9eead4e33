"""Linear and ridge regression across parties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from vfsl.errors import DataError
from vfsl.estimators.base import Federated
from vfsl.estimators.descent import Floats
from vfsl.estimators.exposure import rarest_number
from vfsl.estimators.linear_model import LinearModel, checked_weights, two_dimensional
from vfsl.estimators.posing import Posed, Problem, Program
from vfsl.values import Array


@dataclass
class LinearRegression(LinearModel):
    """Least squares or ridge regression over the aligned rows of several parties.

    Parameters
    ----------
    l2 : float
        Ridge penalty: minimises ½‖Xw − y‖²/N + ½ l2 ‖w‖² on standardised columns and target; the
        intercept is not penalised.
    max_rounds : int
        Most rounds of training.
    tolerance : float
        Training stops when the predictions would change by no more than about this share of what
        the columns explain.
    rows_per_column : int
        Refuse to train on fewer rows than this many times the widest party's columns: a party with
        as many columns as rows could solve its gradients for the residuals.
    rare_rows_per_column : float
        Refuse to train if fewer rows than this many times the widest feature holder's columns have
        another value than the most frequent one: its gradients could tell it which rows these are.
        Of a target with two values that is the rarer one.
    solver : {"rounds", "one-shot"}
        Gradient rounds, or the normal equations in one exchange, which shows the feature holder
        how its columns go with the label holder's nameless ones.

    Attributes
    ----------
    shares_ : dict of ModelShare
        Each party's part of the model.
    n_rounds_ : int
    stop_reason_ : str
    """

    name = "linear"
    scores_are = "value"

    l2: float = 0.0
    max_rounds: int = 100
    tolerance: float = 1e-7
    rows_per_column: int = 10

    def predict(self, fed: Federated) -> Array:
        """Predictions for the aligned rows, in the common order, in units of the target."""
        scores = self.decision_function(fed)
        state = self.shares_[self.label_[0]].state
        answer: Array = scores * np.asarray(state["scale"]) + np.asarray(state["mean"])
        return answer[:, 0] if answer.shape[1] == 1 else answer

    def _program(self, weighted: bool = False) -> Program:
        return Program(
            l2=self.l2,
            max_rounds=self.max_rounds,
            tolerance=self.tolerance,
            weighted=weighted,
            rows_per_column=self.rows_per_column,
            rare_rows_per_column=self.rare_rows_per_column,
        )

    def _pose(
        self, party: str, target: Array, weights: Array | None, rng: np.random.Generator
    ) -> Posed:
        values = two_dimensional(_as_numbers(target, party))
        row_weights, values = np.broadcast_arrays(checked_weights(weights, len(values)), values)
        mean, scale = values.mean(axis=0), values.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        problem = Problem((values - mean) / scale, np.array(row_weights))
        facts = {"mean": mean.tolist(), "scale": scale.tolist()}
        rarest = rarest_number(values, row_weights)
        return Posed(lambda stage, scores: problem, rarest, weights is not None, facts)

    def _quality(self, scores: Array, target: Array) -> dict[str, float]:
        if scores.shape[1] > 1 or len(target) < 2:
            return {}
        state = self.shares_[self.label_[0]].state
        predicted = scores[:, 0] * state["scale"][0] + state["mean"][0]
        return {"r2": float(r2_score(_as_numbers(target, self.label_[0]), predicted))}

    def _settings(self) -> dict[str, Any]:
        names = ("l2", "max_rounds", "rare_rows_per_column")
        return {name: getattr(self, name) for name in names}


def _as_numbers(target: Array, party: str) -> Floats:
    try:
        return np.asarray(target, dtype=np.float64)
    except (ValueError, TypeError):
        raise DataError(
            f"The label of party {party!r} is the target of a regression, but it holds text; "
            "expected numbers."
        ) from None
