"""Logistic regression across parties, binary or multi-class.

Its loss is replaced by the quadratic that touches it at score 0: the gradient of degree 1 of the
literature. With ``refine`` the label holder then sees the total scores and poses the quadratic that
touches the loss there (Newton's method), so that the result is the pooled one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.metrics import roc_auc_score

from vfsl.errors import ConfigError, DataError
from vfsl.estimators.base import Federated
from vfsl.estimators.descent import Floats
from vfsl.estimators.exposure import (
    LABEL_NOISE,
    LOOK_NOISE,
    Rarest,
    rarest_class,
)
from vfsl.estimators.linear_model import LinearModel, checked_weights
from vfsl.estimators.posing import Posed, Problem, Program
from vfsl.values import Array

_HESSIAN_FLOOR = 0.02  # keeps the targets of nearly certain rows within the score range
_TARGET_RANGE = 100.0


@dataclass
class LogisticRegression(LinearModel):
    """Logistic regression over the aligned rows of several parties, binary or multi-class.

    Parameters
    ----------
    l2 : float
        Penalty: minimises the mean logistic loss + ½ l2 ‖w‖² on standardised columns; the intercept
        is not penalised.
    refine : int
        How often the label holder sees the total scores of the training rows and improves the
        quadratic approximation of the loss. 0 reveals no score in training, and is the gradient of
        degree 1 of the literature; 2 is close to the pooled model.
    look_noise : float
        Standard deviation, in logits, of the fresh noise that each feature holder adds to its
        scores each time. 0 shows exact scores, and the ledger says so.
    label_noise : float
        Standard deviation of the noise that the label holder adds to its labels 0 and 1 before
        training, so that what is opened of them has few bits. 0 opens exact sums.
    max_rounds : int
        Most rounds of training in all.
    tolerance : float
        A stage ends when the scores would change by no more than about this share.
    class_weight : None or "balanced"
        Weigh classes inversely to their frequency.
    rare_rows_per_column : float
        Refuse to train if a class, or the rest without it, has fewer rows than this many times the
        widest feature holder's columns: its gradients could tell it which rows these are.
    rows_per_column, solver
        As in LinearRegression; "one-shot" needs ``refine=0``.

    Attributes
    ----------
    classes_ : array
    shares_, n_rounds_, stop_reason_
        As in LinearRegression.
    """

    name = "logistic"
    scores_are = "logit"

    l2: float = 1e-3
    refine: int = 2
    max_rounds: int = 25
    tolerance: float = 1e-3
    class_weight: str | None = None
    rows_per_column: int = 10
    look_noise: float = LOOK_NOISE
    label_noise: float = LABEL_NOISE

    @property
    def classes_(self) -> Array:
        return np.asarray(self.shares_[self.label_[0]].state["classes"])

    def predict_proba(self, fed: Federated) -> Array:
        """Class probabilities of the aligned rows, in the common order.

        Returns
        -------
        array
            (rows, classes) in the order of ``classes_``; for several binary models trained
            together, (rows, models) with the probability of the second class.
        """
        scores = self.decision_function(fed)
        if len(self.classes_) > 2:
            return np.asarray(softmax(scores, axis=1))
        positive = expit(scores)
        return np.hstack([1 - positive, positive]) if positive.shape[1] == 1 else positive

    def predict(self, fed: Federated) -> Array:
        """The most probable class of each aligned row, in the common order."""
        if len(self.classes_) == 2 and self.shares_[self.label_[0]].state["models"] > 1:
            codes = (self.predict_proba(fed) > 0.5).astype(int)
        else:
            codes = self.predict_proba(fed).argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def _program(self, weighted: bool = False) -> Program:
        stages = self.refine + 1
        return Program(
            l2=self.l2,
            max_rounds=max(self.max_rounds // stages, 1),
            tolerance=self.tolerance,
            stages=stages,
            weighted=weighted,
            rows_per_column=self.rows_per_column,
            rare_rows_per_column=self.rare_rows_per_column,
            look_noise=self.look_noise,
            score_range=7,
        )

    def _pose(
        self, party: str, target: Array, weights: Array | None, rng: np.random.Generator
    ) -> Posed:
        values = np.asarray(target)
        classes, codes = np.unique(values, return_inverse=True)
        if len(classes) < 2:
            raise DataError(
                "Logistic regression needs at least two classes among the labelled aligned rows "
                f"of party {party!r}; there is {len(classes)}."
            )
        row_weights = checked_weights(weights, len(values))
        if self.class_weight == "balanced":
            share = np.bincount(codes) / len(codes)
            row_weights = row_weights / (len(classes) * share[codes])[:, None]
            row_weights = row_weights / row_weights.mean(axis=0)
        if len(classes) == 2:
            hot, link, factor = codes[:, None].astype(np.float64), expit, 1.0
        else:
            hot, link, factor = np.eye(len(classes))[codes], partial(softmax, axis=1), 2.0
            if row_weights.shape[1] > 1:
                raise ConfigError("Several models at once need a label with two classes.")
        rarest = self._rarest(codes, classes, row_weights)
        # One draw per row and class: models that train together must not average it away.
        hot = hot + self.label_noise * rng.standard_normal(hot.shape)
        hot, row_weights = np.broadcast_arrays(hot, row_weights)

        def pose(stage: int, scores: Floats) -> Problem:
            start = np.zeros(hot.shape) if stage == 0 else scores
            return touching_quadratic(hot, link(start), start, row_weights, factor)

        weighted = weights is not None or self.class_weight is not None
        return Posed(pose, rarest, weighted, {"classes": classes.tolist()})

    def _rarest(self, codes: Array, classes: Array, weights: Floats) -> Rarest:
        """Whose labels a feature holder could find most easily."""
        return rarest_class(codes, classes, weights)

    def _is_weighted(self, weights: Array | None) -> bool:
        return weights is not None or self.class_weight is not None or self.refine > 0

    def _quality(self, scores: Array, target: Array) -> dict[str, float]:
        if not len(target) or not set(target) <= set(self.classes_.tolist()):
            return {}
        if len(self.classes_) > 2:
            right = self.classes_[scores.argmax(axis=1)] == np.asarray(target.tolist())
            return {"accuracy": float(right.mean())}
        positive = np.asarray(target.tolist()) == self.classes_[1]
        if scores.shape[1] > 1 or positive.all() or not positive.any():
            return {}
        return {"auc": float(roc_auc_score(positive, scores[:, 0]))}

    def _settings(self) -> dict[str, Any]:
        names = ("l2", "refine", "class_weight", "look_noise", "label_noise")
        return {name: getattr(self, name) for name in (*names, "rare_rows_per_column")}

    def _check(self) -> None:
        super()._check()
        if self.class_weight not in (None, "balanced"):
            raise ConfigError(
                "The class_weight parameter of LogisticRegression must be None or 'balanced'. "
                f"Got {self.class_weight!r} instead."
            )


def touching_quadratic(
    hot: Floats, probability: Floats, scores: Floats, row_weights: Floats, factor: float = 1.0
) -> Problem:
    """The quadratic that touches the logistic loss at given scores, as targets and row weights.

    Its gradient there is p − y, its curvature ``factor`` · p(1 − p): a factor of 2 bounds that of
    the softmax, whose classes are fitted side by side.
    """
    curvature = np.maximum(factor * probability * (1 - probability), _HESSIAN_FLOOR)
    targets = scores + (hot - probability) / curvature
    return Problem(np.clip(targets, -_TARGET_RANGE, _TARGET_RANGE), row_weights * curvature)
