"""What linear models share: running their roles, encoding columns, keeping shares.

A model poses weighted least-squares problems at the label holder; the protocol that solves them is
in least_squares.py, or in one_shot.py where the user asks for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from vfsl.channel import Channel, expect_array
from vfsl.data import Encoder, check_labels
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import least_squares, one_shot, totals
from vfsl.estimators.base import Federated
from vfsl.estimators.descent import Floats
from vfsl.estimators.exchange import receive_key
from vfsl.estimators.exposure import RARE_ROWS_PER_COLUMN, protective
from vfsl.estimators.posing import Posed, Program
from vfsl.parts import ModelShare, Part, Roles, Rows
from vfsl.values import Array, Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "labelled rows": Disclosure(np.ndarray, "which aligned rows have a known label"),
}

# Parameters that must be at least this.
_LEAST = {"l2": 0.0, "max_rounds": 1, "tolerance": 0.0, "refine": 0}
_LEAST |= {"look_noise": 0.0, "label_noise": 0.0, "rare_rows_per_column": 0.0}


@dataclass(kw_only=True)
class LinearModel(ABC):
    """What both models share: running the roles, encoding columns, keeping shares."""

    name: ClassVar[str]
    scores_are: ClassVar[str]  # "logit" or "value"
    solver: str = "rounds"
    rare_rows_per_column: float = RARE_ROWS_PER_COLUMN

    def fit(self, fed: Federated, label: tuple[str, str], weights: Array | None = None) -> Self:
        """Train on all aligned rows of a federation whose label is known.

        Parameters
        ----------
        fed : Federation
        label : (party, column)
        weights : array, optional
            Row weights in the common order, known to the label holder only; (rows,) or, to train
            several models in the same rounds, (rows, models). They count relative to their mean.
        """
        self._check()
        roles = fed.roles(label[0], self.work(len(fed.parts(label)) - 1, weights))
        parts = fed.parts(label, weights)
        check_labels({party: part.table for party, part in parts.items()}, target=label)
        jobs = {
            party: partial(
                self.train,
                part=parts.get(party),
                roles=roles,
                rng=fed.private_rng(party, self.name),
            )
            for party in roles.everyone
        }
        settings = {"model": self.name, "label": list(label), **self._settings()}
        settings |= {"scheme": roles.scheme, "security": roles.security}
        shares, report = fed.run(f"train {self.name}", jobs, settings)
        self.shares_: dict[str, ModelShare] = {
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
                self.score_rows, part=parts.get(party), share=self.shares_.get(party), roles=roles
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
        roles: Roles,
        rng: np.random.Generator | None = None,
    ) -> ModelShare | None:
        """One party's side of training; None for the key holder, who has no part.

        ``rng`` is the party's private generator, for noise that protects its values; without one
        the noise comes from the operating system.
        """
        self._check()
        self._check_solver(roles)
        channel = channel.within(self.name, DISCLOSURES)
        at_once = self.solver == "one-shot"
        program = self._program()
        declared = one_shot.DISCLOSURES if at_once else least_squares.disclosures(program)
        inner = channel.within("fit", declared)
        if channel.me == roles.key_holder:
            if at_once:
                one_shot.solve_key_holder(inner, roles)
            else:
                least_squares.train_key_holder(inner, roles, program)
            return None
        if part is None:
            raise ConfigError(f"Party {channel.me!r} needs a part of the data to train on.")
        key, noise = receive_key(inner, roles), protective(rng)
        if channel.me != roles.label_holder:
            known = expect_array(
                channel.receive(roles.label_holder, "labelled rows"),
                sender=roles.label_holder,
                name="labelled rows",
                holds="boolean",
                shape=(len(part.rows),),
            )
            state, columns = _encode_columns(part, part.rows[known])
            if at_once:
                trained = one_shot.solve_feature_holder(inner, columns, roles, key)
            else:
                trained = least_squares.train_feature_holder(
                    inner, columns, roles, key, program, noise
                )
            return ModelShare(channel.me, self.name, state | _weights_state(trained.weights))
        known = _known(channel.me, part.target)
        for party in roles.feature_holders:
            channel.send(party, "labelled rows", known)
        state, columns = _encode_columns(part, part.rows[known])
        columns = np.column_stack([columns, np.ones(len(columns))])
        row_weights = None
        if part.weights is not None:
            checked_weights(part.weights, len(known))
            row_weights = np.asarray(part.weights)[known]
        target = np.asarray(part.target)[known]
        posed = self._pose(channel.me, target, row_weights, noise)
        program = self._program(posed.weighted)
        solve = one_shot.solve_label_holder if at_once else least_squares.train_label_holder
        trained = solve(inner, columns, posed, roles, key, program)
        state |= _weights_state(trained.weights) | posed.facts
        return ModelShare(channel.me, self.name, state, trained.rounds, trained.stop_reason)

    def score_rows(
        self, channel: Channel, part: Part | None, share: ModelShare | None, *, roles: Roles
    ) -> Array | None:
        """One party's side of prediction: the total scores, only at the label holder."""
        channel = channel.within(self.name).within("score", totals.DISCLOSURES)
        if channel.me == roles.key_holder:
            totals.score_key_holder(channel, roles)
            return None
        if part is None or share is None:
            raise ConfigError(f"Party {channel.me!r} needs data and its share of the model.")
        key = receive_key(channel, roles)
        columns = encoded_columns(part, share)
        if channel.me == roles.label_holder:
            columns = np.column_stack([columns, np.ones(len(columns))])
        weights = np.asarray(share.state["weights"], dtype=np.float64)
        weights = weights.reshape(columns.shape[1], share.state["models"])
        if channel.me == roles.label_holder:
            return totals.score_label_holder(channel, columns, weights, roles, key)
        totals.score_feature_holder(channel, columns, weights, roles, key)
        return None

    @abstractmethod
    def _program(self, weighted: bool = False) -> Program:
        """What all parties know of the training."""

    @abstractmethod
    def _pose(
        self, party: str, target: Array, weights: Array | None, rng: np.random.Generator
    ) -> Posed:
        """What is wanted of the label; ``rng`` gives the noise that protects it."""

    @abstractmethod
    def _quality(self, scores: Array, target: Array) -> dict[str, float]:
        """How good the scores of labelled rows are, computed by their holder for the record."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """For the run record."""

    def work(self, feature_holders: int, weights: Array | None = None) -> str:
        """The kind of work that picks the scheme where it was left to "auto"."""
        several = feature_holders > 1 and self._is_weighted(weights)
        return "linear of many" if several else "linear"

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
        for name, least in _LEAST.items():
            value = getattr(self, name, least)
            if not value >= least:
                raise ConfigError(
                    f"The {name} parameter of {type(self).__name__} must be at least {least}. "
                    f"Got {value!r} instead."
                )


def checked_weights(weights: Array | None, rows: int) -> Floats:
    """Row weights as (rows, models) with mean 1, so that how many rows count shows nowhere."""
    if weights is None:
        return np.ones((rows, 1))
    try:
        values = two_dimensional(np.asarray(weights, dtype=np.float64))
    except (TypeError, ValueError):
        raise DataError("Row weights must be numbers, one for each row and model.") from None
    if len(values) != rows or not np.isfinite(values).all() or (values < 0).any():
        raise DataError(
            f"Row weights must be {rows} finite numbers of at least 0 for each model; "
            f"got shape {values.shape}."
        )
    if (values.sum(axis=0) == 0).any():
        raise DataError("Row weights must not all be 0 for a model.")
    return np.asarray(values / values.mean(axis=0))


def known_weights(weights: Array | None, known: Array) -> Floats:
    """The same with 0 for rows without a label; some others must count."""
    values = checked_weights(weights, len(known)) * known[:, None]
    if (values.sum(axis=0) == 0).any():
        raise DataError(
            "Row weights must not be 0 for all rows with a known label; some model has no row to "
            "learn from."
        )
    return np.asarray(values)


def two_dimensional(values: Floats) -> Floats:
    return values[:, None] if values.ndim == 1 else values


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


def _weights_state(weights: Floats) -> dict[str, Any]:
    return {"weights": weights.tolist(), "models": weights.shape[1]}


def _encode_columns(part: Part, rows: Rows) -> tuple[dict[str, Any], Floats]:
    """The party's columns, standardised and centred, and the state that repeats it for new rows."""
    table = part.table.take(rows)
    encoder = Encoder(missing="impute").fit(table)
    matrix = encoder.transform(table).matrix
    centres = matrix.mean(axis=0)
    return {"encoder": encoder.to_dict(), "centres": centres.tolist()}, matrix - centres


def encoded_columns(part: Part, share: ModelShare) -> Floats:
    """A party's columns as its share of a fitted model takes them."""
    encoder = Encoder.from_dict(share.state["encoder"])
    matrix = encoder.transform(part.table.take(part.rows)).matrix
    return np.asarray(matrix - np.asarray(share.state["centres"], dtype=np.float64))
