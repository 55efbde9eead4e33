"""What trees learn: losses with gradients, leaf values and links; pure functions of arrays.

Scores are (rows, models · outputs), model by model. Row weights are (rows, models).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy.special import expit, logit, softmax

from vfsl.errors import DataError
from vfsl.estimators.descent import Floats
from vfsl.values import Array

_FLOOR = 1e-16


class Objective(Protocol):
    """A loss over encoded targets."""

    @property
    def outputs(self) -> int:
        """Scores, and so trees, a model."""
        ...

    def start(self, weights: Floats) -> Floats:
        """The best constant scores, (models · outputs)."""
        ...

    def gradients(self, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """First and second derivatives of the weighted loss by the scores."""
        ...

    def loss(self, scores: Floats, weights: Floats) -> Floats:
        """The weighted mean loss of each model."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the share keeps."""
        ...


@dataclass(frozen=True)
class Squared:
    """½ (s − y)², for numbers."""

    target: Floats
    outputs: int = 1

    def start(self, weights: Floats) -> Floats:
        return np.asarray((weights * self.target[:, None]).sum(axis=0) / weights.sum(axis=0))

    def gradients(self, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        return weights * (scores - self.target[:, None]), weights

    def loss(self, scores: Floats, weights: Floats) -> Floats:
        return _mean(0.5 * (scores - self.target[:, None]) ** 2, weights)

    def facts(self) -> dict[str, Any]:
        return {"task": "regression"}


@dataclass(frozen=True)
class Logistic:
    """−log of the probability of the right one of two classes."""

    target: Floats  # 0 or 1
    classes: list[Any]
    outputs: int = 1

    def start(self, weights: Floats) -> Floats:
        share = (weights * self.target[:, None]).sum(axis=0) / weights.sum(axis=0)
        # A bag may hold one class only.
        return np.asarray(logit(np.clip(share, 1e-6, 1 - 1e-6)))

    def gradients(self, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        chance = expit(scores)
        curvature = np.maximum(chance * (1 - chance), _FLOOR)
        return weights * (chance - self.target[:, None]), weights * curvature

    def loss(self, scores: Floats, weights: Floats) -> Floats:
        signed = np.where(self.target[:, None] > 0.5, -scores, scores)
        return _mean(np.logaddexp(0.0, signed), weights)

    def facts(self) -> dict[str, Any]:
        return {"task": "binary", "classes": self.classes}


@dataclass(frozen=True)
class Softmax:
    """−log of the probability of the right one of several classes, a tree for each class."""

    target: Array  # class codes
    classes: list[Any]

    @property
    def outputs(self) -> int:
        return len(self.classes)

    def start(self, weights: Floats) -> Floats:
        hot = np.eye(self.outputs)[self.target]
        share = (weights.T @ hot) / weights.sum(axis=0)[:, None]
        return np.asarray(np.log(np.clip(share, 1e-6, None)).reshape(-1))

    def gradients(self, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        chance = softmax(self._by_model(scores), axis=2)
        hot = np.eye(self.outputs)[self.target][:, None, :]
        # Twice p (1 − p) bounds the curvature of classes that move together.
        curvature = np.maximum(2 * chance * (1 - chance), _FLOOR)
        each = weights[:, :, None]
        flat = (len(scores), -1)
        return (each * (chance - hot)).reshape(flat), (each * curvature).reshape(flat)

    def loss(self, scores: Floats, weights: Floats) -> Floats:
        chance = softmax(self._by_model(scores), axis=2)
        right = np.take_along_axis(chance, self.target[:, None, None], axis=2)[:, :, 0]
        return _mean(-np.log(np.maximum(right, _FLOOR)), weights)

    def facts(self) -> dict[str, Any]:
        return {"task": "classes", "classes": self.classes}

    def _by_model(self, scores: Floats) -> Floats:
        return scores.reshape(len(scores), -1, self.outputs)


@dataclass(frozen=True)
class Means:
    """Forests: each leaf holds the weighted mean of its targets; impurity is their variance.

    For a class indicator the variance is half the Gini impurity, so both choose the same splits.
    """

    targets: Floats  # (rows, outputs)
    kind: dict[str, Any]

    @property
    def outputs(self) -> int:
        return int(self.targets.shape[1])

    def start(self, weights: Floats) -> Floats:
        return np.zeros(weights.shape[1] * self.outputs)

    def gradients(self, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
        first = -weights[:, :, None] * self.targets[:, None, :]
        second = np.broadcast_to(weights[:, :, None], first.shape)
        return first.reshape(len(weights), -1), second.reshape(len(weights), -1)

    def loss(self, scores: Floats, weights: Floats) -> Floats:
        gaps = scores.reshape(len(scores), -1, self.outputs) - self.targets[:, None, :]
        return _mean(0.5 * (gaps**2).sum(axis=2), weights)

    def facts(self) -> dict[str, Any]:
        return self.kind

    def rightness(self, scores: Floats, rows: Array) -> float:
        """Accuracy of the most probable class, or R² of a number."""
        truth = self.targets[rows]
        if self.kind["task"] == "regression":
            return float(1 - ((scores - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum())
        if self.outputs == 1:
            return float(((scores > 0.5) == (truth > 0.5)).mean())
        return float((scores.argmax(axis=1) == truth.argmax(axis=1)).mean())


def encode_target(party: str, target: Array | None, task: str) -> tuple[Array, list[Any], Array]:
    """Numbers or class codes, the classes, and which rows have a label.

    ``task`` is "regression", "classes", or "auto": classes unless the target has many numbers.
    """
    if target is None:
        raise DataError(f"Party {party!r} holds the label but was given no target.")
    values = np.asarray(target)
    known = ~pd.isna(values)
    if known.sum() < 2:
        raise DataError(
            f"Party {party!r} has {int(known.sum())} aligned rows with a known label; at least 2 "
            "are needed."
        )
    if task == "regression":
        numbers = np.zeros(len(values))
        try:
            numbers[known] = values[known].astype(np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"The label of party {party!r} must be numbers for a regression; use "
                "task='classes' for categories."
            ) from None
        if not np.isfinite(numbers).all():
            raise DataError(f"The label of party {party!r} has values that are not finite.")
        return numbers, [], known
    classes, codes = np.unique(values[known], return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"Trees for classes need at least two among the labelled aligned rows of party "
            f"{party!r}; there is {len(classes)}."
        )
    all_codes = np.zeros(len(values), dtype=np.int64)
    all_codes[known] = codes
    return all_codes, classes.tolist(), known


def _mean(losses: Floats, weights: Floats) -> Floats:
    total = weights.sum(axis=0)
    safe = np.where(total > 0, total, 1.0)
    return np.asarray((losses * weights).sum(axis=0) / safe)
