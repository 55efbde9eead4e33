"""Linear and logistic regression across parties, over the least-squares protocol.

Both pose weighted least-squares problems at the label holder. Linear regression poses one. Logistic
regression replaces its loss by the quadratic that touches it at score 0 (degree 1 of the gradient,
as in the literature); with ``refine`` the label holder then sees the total scores and poses the
quadratic that touches the loss there (Newton's method), so that the result is the pooled one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.metrics import r2_score, roc_auc_score

from vfsl.channel import Channel, expect_array
from vfsl.data import Encoder
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import least_squares, one_shot
from vfsl.estimators.base import Federated, Part, Roles, Rows, Share
from vfsl.estimators.descent import Floats
from vfsl.estimators.least_squares import Pose, Problem, Program
from vfsl.values import Array, Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "labelled rows": Disclosure(np.ndarray, "which aligned rows have a known label"),
}
_HESSIAN_FLOOR = 0.02  # keeps the targets of nearly certain rows within the score range
_TARGET_RANGE = 100.0


@dataclass(kw_only=True)
class _Linear(ABC):
    """What both models share: running the roles, encoding columns, keeping shares."""

    name: ClassVar[str]
    solver: str = "rounds"

    def fit(self, fed: Federated, label: tuple[str, str], weights: Array | None = None) -> Any:
        """Train on all aligned rows of a federation whose label is known.

        Parameters
        ----------
        fed : Federation
        label : (party, column)
        weights : array, optional
            Row weights in the common order, known to the label holder only; (rows,) or, to train
            several models in the same rounds, (rows, models).
        """
        self._check()
        several = len(fed.parts(label)) > 2 and self._is_weighted(weights)
        roles = fed.roles(label[0], "linear of many" if several else "linear")
        parts = fed.parts(label, weights)
        jobs = {
            party: partial(self.train, part=parts.get(party), role=roles)
            for party in roles.everyone
        }
        settings = {"model": self.name, "label": list(label), **self._settings()}
        settings |= {"scheme": roles.scheme, "security": roles.security}
        shares, report = fed.run(f"train {self.name}", jobs, settings)
        self.shares_: dict[str, Share] = {
            party: share for party, share in shares.items() if share is not None
        }
        held = self.shares_[roles.label_holder]
        self.n_rounds_ = len(held.rounds)
        self.stop_reason_ = held.stop_reason
        self.label_ = label
        report(rounds=held.rounds, stop_reason=held.stop_reason)
        return self

    def decision_function(self, fed: Federated) -> Array:
        """Total scores of the aligned rows in the common order, (rows, models)."""
        if not hasattr(self, "shares_"):
            raise ConfigError(f"{type(self).__name__} is not fitted yet: call fit first.")
        roles = fed.roles(self.label_[0], "linear")
        parts = fed.parts(self.label_)
        jobs = {
            party: partial(
                self.score, part=parts.get(party), share=self.shares_.get(party), role=roles
            )
            for party in roles.everyone
        }
        settings = {"model": self.name, "scheme": roles.scheme, "security": roles.security}
        answers, report = fed.run(f"predict {self.name}", jobs, settings)
        scores = np.asarray(answers[roles.label_holder])
        target = parts[roles.label_holder].target
        known = ~pd.isna(np.asarray(target))
        report(metrics=self._quality(scores[known], np.asarray(target)[known]))
        return scores

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        role: Roles,
        rng: np.random.Generator | None = None,
    ) -> Share | None:
        """One party's side of training; None for the key holder, who has no part."""
        self._check()
        self._check_solver(role)
        channel = channel.within(self.name, DISCLOSURES)
        at_once = self.solver == "one-shot"
        inner = channel.within("fit", (one_shot if at_once else least_squares).DISCLOSURES)
        program = self._program()
        if channel.me == role.key_holder:
            if at_once:
                one_shot.solve_key_holder(inner, role)
            else:
                least_squares.train_key_holder(inner, role, program)
            return None
        if part is None:
            raise ConfigError(f"Party {channel.me!r} needs a part of the data to train on.")
        key = least_squares.receive_key(inner, role)
        if channel.me != role.label_holder:
            known = expect_array(
                channel.receive(role.label_holder, "labelled rows"),
                sender=role.label_holder,
                name="labelled rows",
                holds="boolean",
                shape=(len(part.rows),),
            )
            state, columns = _encode_columns(part, part.rows[known])
            if at_once:
                trained = one_shot.solve_feature_holder(inner, columns, role, key)
            else:
                trained = least_squares.train_feature_holder(inner, columns, role, key, program)
            return Share(channel.me, self.name, state | _weights_state(trained.weights))
        known = _known(channel.me, part.target)
        for party in role.feature_holders:
            channel.send(party, "labelled rows", known)
        state, columns = _encode_columns(part, part.rows[known])
        columns = np.column_stack([columns, np.ones(len(columns))])
        row_weights = None if part.weights is None else np.asarray(part.weights)[known]
        pose, facts, weighted = self._pose(channel.me, np.asarray(part.target)[known], row_weights)
        program = self._program(weighted)
        if at_once:
            problem = pose(0, np.zeros((len(columns), 0)))
            trained = one_shot.solve_label_holder(inner, columns, problem, role, key, program)
        else:
            trained = least_squares.train_label_holder(inner, columns, pose, role, key, program)
        state |= _weights_state(trained.weights) | facts
        return Share(channel.me, self.name, state, trained.rounds, trained.stop_reason)

    def score(
        self, channel: Channel, part: Part | None, share: Share | None, *, role: Roles
    ) -> Array | None:
        """One party's side of prediction: the total scores, only at the label holder."""
        channel = channel.within(self.name).within("score", least_squares.DISCLOSURES)
        if channel.me == role.key_holder:
            least_squares.score_key_holder(channel, role)
            return None
        if part is None or share is None:
            raise ConfigError(f"Party {channel.me!r} needs data and its share of the model.")
        key = least_squares.receive_key(channel, role)
        columns = _apply_encoding(part, share)
        if channel.me == role.label_holder:
            columns = np.column_stack([columns, np.ones(len(columns))])
        weights = np.asarray(share.state["weights"], dtype=np.float64)
        weights = weights.reshape(columns.shape[1], share.state["models"])
        if channel.me == role.label_holder:
            return least_squares.score_label_holder(channel, columns, weights, role, key)
        least_squares.score_feature_holder(channel, columns, weights, role, key)
        return None

    @abstractmethod
    def _program(self, weighted: bool = False) -> Program:
        """What all parties know of the training."""

    @abstractmethod
    def _pose(
        self, party: str, target: Array, weights: Array | None
    ) -> tuple[Pose, dict[str, Any], bool]:
        """The problems of all stages, what the share keeps, and whether rows have weights."""

    @abstractmethod
    def _quality(self, scores: Array, target: Array) -> dict[str, float]:
        """How good the scores of labelled rows are, computed by their holder for the record."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """For the run record."""

    def _is_weighted(self, weights: Array | None) -> bool:
        return weights is not None

    def _check_solver(self, roles: Roles) -> None:
        if self.solver not in ("rounds", "one-shot"):
            raise ConfigError(
                f"The solver parameter of {type(self).__name__} must be 'rounds' or 'one-shot'. "
                f"Got {self.solver!r} instead."
            )
        if self.solver == "one-shot" and (
            len(roles.feature_holders) != 1 or getattr(self, "refine", 0) > 0
        ):
            raise ConfigError(
                "The one-shot solver needs exactly one feature holder, and refine=0 in logistic "
                "regression; use solver='rounds'."
            )

    def _check(self) -> None:
        for name, least in (("l2", 0.0), ("max_rounds", 1), ("tolerance", 0.0), ("refine", 0)):
            value = getattr(self, name, least)
            if not value >= least:
                raise ConfigError(
                    f"The {name} parameter of {type(self).__name__} must be at least {least}. "
                    f"Got {value!r} instead."
                )


@dataclass
class LinearRegression(_Linear):
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
    solver : {"rounds", "one-shot"}
        Gradient rounds, or the normal equations in one exchange, which shows the feature holder
        how its columns go with the label holder's nameless ones.

    Attributes
    ----------
    shares_ : dict of Share
        Each party's part of the model.
    n_rounds_ : int
    stop_reason_ : str
    """

    name = "linear"

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
        )

    def _pose(
        self, party: str, target: Array, weights: Array | None
    ) -> tuple[Pose, dict[str, Any], bool]:
        values = _two_dimensional(_as_numbers(target, party))
        row_weights, values = np.broadcast_arrays(_checked_weights(weights, len(values)), values)
        mean, scale = values.mean(axis=0), values.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        problem = Problem((values - mean) / scale, np.array(row_weights))
        facts = {"mean": mean.tolist(), "scale": scale.tolist()}
        return (lambda stage, scores: problem), facts, weights is not None

    def _quality(self, scores: Array, target: Array) -> dict[str, float]:
        if scores.shape[1] > 1 or len(target) < 2:
            return {}
        state = self.shares_[self.label_[0]].state
        predicted = scores[:, 0] * state["scale"][0] + state["mean"][0]
        return {"r2": float(r2_score(_as_numbers(target, self.label_[0]), predicted))}

    def _settings(self) -> dict[str, Any]:
        return {"l2": self.l2, "max_rounds": self.max_rounds}


@dataclass
class LogisticRegression(_Linear):
    """Logistic regression over the aligned rows of several parties, binary or multi-class.

    Parameters
    ----------
    l2 : float
        Penalty: minimises the mean logistic loss + ½ l2 ‖w‖² on standardised columns; the intercept
        is not penalised.
    refine : int
        How often the label holder sees the total scores of the training rows and improves the
        quadratic approximation of the loss. 0 reveals no score in training, and is the gradient of
        degree 1 of the literature; 4 is close to the pooled model.
    max_rounds : int
        Most rounds of training in all.
    tolerance : float
        A stage ends when the scores would change by no more than about this share.
    class_weight : None or "balanced"
        Weigh classes inversely to their frequency.
    rows_per_column, solver
        As in LinearRegression; "one-shot" needs ``refine=0``.

    Attributes
    ----------
    classes_ : array
    shares_, n_rounds_, stop_reason_
        As in LinearRegression.
    """

    name = "logistic"

    l2: float = 1e-3
    refine: int = 4
    max_rounds: int = 25
    tolerance: float = 1e-3
    class_weight: str | None = None
    rows_per_column: int = 10

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
            return _softmax(scores)
        positive = _sigmoid(scores)
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
            score_range=7,
        )

    def _pose(
        self, party: str, target: Array, weights: Array | None
    ) -> tuple[Pose, dict[str, Any], bool]:
        values = np.asarray(target)
        classes, codes = np.unique(values, return_inverse=True)
        if len(classes) < 2:
            raise DataError(
                "Logistic regression needs at least two classes among the labelled aligned rows "
                f"of party {party!r}; there is {len(classes)}."
            )
        row_weights = _checked_weights(weights, len(values))
        if self.class_weight == "balanced":
            share = np.bincount(codes) / len(codes)
            row_weights = row_weights / (len(classes) * share[codes])[:, None]
        if len(classes) == 2:
            hot, link, factor = codes[:, None].astype(np.float64), _sigmoid, 1.0
        else:
            hot, link, factor = np.eye(len(classes))[codes], _softmax, 2.0
            if row_weights.shape[1] > 1:
                raise ConfigError("Several models at once need a label with two classes.")
        hot, row_weights = np.broadcast_arrays(hot, row_weights)

        def pose(stage: int, scores: Floats) -> Problem:
            start = np.zeros(hot.shape) if stage == 0 else scores
            return touching_quadratic(hot, link(start), start, row_weights, factor)

        weighted = weights is not None or self.class_weight is not None
        return pose, {"classes": classes.tolist()}, weighted

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
        return {"l2": self.l2, "refine": self.refine, "class_weight": self.class_weight}

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


def _sigmoid(scores: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(scores / 2)))


def _softmax(scores: Floats) -> Floats:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def _known(party: str, target: Array | None) -> Array:
    """Which rows have a label (all of their labels, where there are several)."""
    if target is None:
        raise ConfigError(f"Party {party!r} holds the label but was given no target.")
    missing = pd.isna(np.asarray(target))
    known = ~missing if missing.ndim == 1 else ~missing.any(axis=1)
    if known.sum() < 2:
        raise DataError(
            f"Party {party!r} has {int(known.sum())} aligned rows with a known label; "
            "at least 2 are needed."
        )
    return np.asarray(known)


def _as_numbers(target: Array, party: str) -> Floats:
    try:
        return np.asarray(target, dtype=np.float64)
    except (ValueError, TypeError):
        raise DataError(
            f"The label of party {party!r} is the target of a regression, but it holds text; "
            "expected numbers."
        ) from None


def _checked_weights(weights: Array | None, rows: int) -> Floats:
    """Row weights as (rows, models); equal ones by default."""
    if weights is None:
        return np.ones((rows, 1))
    values = _two_dimensional(np.asarray(weights, dtype=np.float64))
    if len(values) != rows or not np.isfinite(values).all() or (values < 0).any():
        raise DataError(
            f"Row weights must be {rows} finite numbers of at least 0 for each model; "
            f"got shape {values.shape}."
        )
    if (values.sum(axis=0) == 0).any():
        raise DataError("Row weights must not all be 0 for a model.")
    return values


def _two_dimensional(values: Floats) -> Floats:
    return values[:, None] if values.ndim == 1 else values


def _weights_state(weights: Floats) -> dict[str, Any]:
    return {"weights": weights.tolist(), "models": weights.shape[1]}


def _encode_columns(part: Part, rows: Rows) -> tuple[dict[str, Any], Floats]:
    """The party's columns, standardised and centred, and the state that repeats it for new rows."""
    table = part.table.take(rows)
    encoder = Encoder(missing="impute").fit(table)
    matrix = encoder.transform(table).matrix
    centres = matrix.mean(axis=0)
    return {"encoder": encoder.to_dict(), "centres": centres.tolist()}, matrix - centres


def _apply_encoding(part: Part, share: Share) -> Floats:
    encoder = Encoder.from_dict(share.state["encoder"])
    matrix = encoder.transform(part.table.take(part.rows)).matrix
    return np.asarray(matrix - np.asarray(share.state["centres"], dtype=np.float64))
