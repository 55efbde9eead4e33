"""Search over settings: each is cross-validated on the same folds, and the best trained at last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from vfsl.errors import ConfigError
from vfsl.estimators import Estimator
from vfsl.federation import Federation
from vfsl.model_selection.cross_validation import LOWER_IS_BETTER, validate_all
from vfsl.params import Settable, check_params, documented, param
from vfsl.values import Array


@documented
@dataclass
class GridSearch(Settable):
    """Find the settings of a model that are best on rows it was not trained on.

    The label holder sees one score per row for every combination of settings: keep grids small. The
    best score is a little too good, since it was chosen; judge the model on rows that neither the
    search nor the training had.

    Attributes
    ----------
    best_params_ : dict
    best_score_ : float
        The mean of the measure over folds.
    best_estimator_ : Estimator
        With the best settings, trained on all rows.
    results_ : DataFrame
        A line per combination, the best one first: settings, mean and deviation of measures.
    """

    model: Estimator = param(None, "What to find settings for.", option=False)
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] = param(
        None, "Values to try by name of setting, or several such tables.", option=False
    )
    folds: int = param(5, "How many folds the rows are in.", ge=2)
    measure: Literal["score", "auc", "log_loss", "rmse"] = param(
        "score",
        "What to choose by: accuracy or R² ('score'), 'auc' of two classes, 'log_loss' of classes, "
        "'rmse' of numbers.",
    )
    n_jobs: int | None = param(
        None, "How many trainings go on at the same time, each in a process; −1: one per core."
    )

    def fit(self, fed: Federation, label: tuple[str, str]) -> Self:
        """Cross-validate every combination, then train the best one on all aligned rows.

        Parameters
        ----------
        fed : Federation
        label : (party, column)
        """
        check_params(self)
        tried = list(ParameterGrid(self.grid))
        models = [clone(self.model).set_params(**settings) for settings in tried]
        found = validate_all(models, fed, label, self.folds, self.n_jobs)
        lines = []
        for settings, one in zip(tried, found, strict=True):
            shown = one.measures.drop(columns="rows")
            if self.measure not in shown:
                known = ", ".join(map(str, shown))
                raise ConfigError(
                    f"The measure parameter of GridSearch must be one of {known} for this label. "
                    f"Got {self.measure!r} instead."
                )
            means = {f"mean {name}": shown[name].mean() for name in shown}
            lines.append({**settings, **means, **{f"std {n}": shown[n].std() for n in shown}})
        values = np.array([line[f"mean {self.measure}"] for line in lines])
        order = np.argsort(values if self.measure in LOWER_IS_BETTER else -values, kind="stable")
        self.results_ = pd.DataFrame(lines).iloc[order].reset_index(drop=True)
        best = int(order[0])
        self.best_params_, self.best_score_ = dict(tried[best]), float(values[best])
        self.best_estimator_: Estimator = clone(models[best]).fit(fed, label)
        return self

    def predict(self, fed: Federation, **how: Any) -> Array:
        """`predict` of the best model."""
        return self._found.predict(fed, **how)

    def predict_proba(self, fed: Federation, **how: Any) -> Array:
        """`predict_proba` of the best model."""
        return self._found.predict_proba(fed, **how)

    def score(self, fed: Federation, **how: Any) -> float:
        """`score` of the best model."""
        return self._found.score(fed, **how)

    @property
    def _found(self) -> Estimator:
        if not hasattr(self, "best_estimator_"):
            raise ConfigError("GridSearch is not fitted yet: call fit first.")
        return self.best_estimator_
