"""Linear and logistic regression across parties.

The label holder turns its label into weighted least-squares problems, which all parties solve
together: by gradient rounds (least_squares.py), or in one exchange (one_shot.py) where the user
asks for it. The logistic loss is replaced by the quadratic that touches it at score 0: the gradient
of degree 1 of the literature. With ``refine`` the label holder then sees the total scores and takes
the quadratic that touches the loss there (Newton's method), so that the result is the pooled one.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import expit, softmax

from vfsl.channel import Channel, expect_array
from vfsl.data import Encoder
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import exchange, least_squares, one_shot
from vfsl.estimators.base import (
    NOTHING_KEPT,
    Ask,
    Estimator,
    find_labelled,
    scale_weights,
    two_dimensional,
)
from vfsl.estimators.descent import Problem, Program
from vfsl.estimators.least_squares import Problems
from vfsl.estimators.privacy import (
    LABEL_NOISE,
    LOOK_NOISE,
    RARE_ROWS_PER_COLUMN,
    Rarest,
    find_rarest_class,
    find_rarest_number,
    noise_rng,
)
from vfsl.params import documented, param, params_of
from vfsl.parts import ModelShare, Part, Roles, Rows
from vfsl.store import Checkpoints
from vfsl.values import Array, Disclosure, Disclosures, Floats

DISCLOSURES: Disclosures = {
    "labelled rows": Disclosure(np.ndarray, "which aligned rows have a known label"),
}

_HESSIAN_FLOOR = 0.02  # keeps the targets of nearly certain rows within the score range
_TARGET_RANGE = 100.0


@dataclass(kw_only=True)
class LinearModel(Estimator):
    """What both models share: a party's sides of training and scoring."""

    # Parameters that keep single labels hidden: below its default, one asks for consent.
    _protections: ClassVar[tuple[str, ...]] = ("rare_rows_per_column",)

    l2: float = param(
        0.0,
        "Penalty: ½ l2 ‖w‖² on the weights of standardised columns is added to the mean loss; the "
        "intercept is not penalised.",
        ge=0,
    )
    max_rounds: int = param(100, "Maximum number of training rounds in all.", ge=1)
    tolerance: float = param(
        1e-7,
        "Training ends when predictions would change by no more than about this fraction of what "
        "the columns explain.",
        ge=0,
    )
    rows_per_column: int = param(
        10,
        "Refuse to train on fewer rows than this many per column of the widest party: a party with "
        "as many columns as rows could solve its gradients for the residuals.",
        ge=0,
    )
    rare_rows_per_column: float = param(
        RARE_ROWS_PER_COLUMN,
        "Refuse to train if a class, or all others without it, has fewer rows than this many per "
        "column of the widest feature holder: its gradients could tell it which rows these are. "
        "Of numbers, the rows count that differ from the most frequent value.",
        ge=0,
    )
    solver: Literal["rounds", "one-shot"] = param(
        "rounds",
        "Gradient rounds, or the normal equations in one exchange, which shows the feature holder "
        "how its columns go with the label holder's nameless ones.",
    )

    # ---- declared facts -------------------------------------------------------------------------

    def work(self, feature_holders: int, weighted: bool = False) -> str:
        several = feature_holders > 1 and (weighted or self._always_weighted())
        return "linear of many" if several else "linear"

    def rounds_planned(self) -> int:
        return self.max_rounds

    def asks(self) -> tuple[Ask, ...]:
        program, declared = self._program(), params_of(type(self))
        looks = program.stages > 1
        asked = {
            "cross-gram": self.solver == "one-shot",
            "training scores": looks,
            "exact training scores": looks and program.look_noise < LOOK_NOISE,
            "rare labels": any(
                getattr(self, name) < declared[name].default for name in self._protections
            ),
        }
        return tuple(("disclosure", name) for name, wanted in asked.items() if wanted)

    def _always_weighted(self) -> bool:
        """Whether rows have weights even if the user gives none."""
        return False

    # ---- a party's sides ------------------------------------------------------------------------

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator | None = None,
        kept: Checkpoints = NOTHING_KEPT,
    ) -> ModelShare | None:
        """One party's side of training; None for the key holder, who has no part.

        ``rng`` is the party's private generator, for noise that protects its values; without one
        the noise comes from the operating system.
        """
        self.check()
        program, at_once = self._program(), self.solver == "one-shot"
        if at_once and (len(roles.feature_holders) != 1 or program.stages > 1):
            raise ConfigError(
                "The one-shot solver needs exactly one feature holder, and refine=0 in logistic "
                "regression; use solver='rounds'."
            )
        channel = channel.within(self.name, DISCLOSURES)
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
        key, noise = exchange.receive_key(inner, roles), noise_rng(rng)
        if channel.me != roles.label_holder:
            known = expect_array(
                channel.receive(roles.label_holder, "labelled rows"),
                sender=roles.label_holder,
                name="labelled rows",
                holds="boolean",
                shape=(len(part.rows),),
            )
            state, columns = fit_encoder(part, part.rows[known])
            if at_once:
                solved = one_shot.solve_feature_holder(inner, columns, roles, key)
            else:
                solved = least_squares.train_feature_holder(
                    inner, columns, roles, key, program, noise
                )
            return ModelShare(channel.me, self.name, state | _weights_state(solved.weights))
        known = find_labelled(channel.me, part.target)
        for party in roles.feature_holders:
            channel.send(party, "labelled rows", known)
        state, columns = fit_encoder(part, part.rows[known])
        columns = np.column_stack([columns, np.ones(len(columns))])
        row_weights = None
        if part.weights is not None:
            scale_weights(part.weights, len(known))  # refuses what cannot be used
            row_weights = np.asarray(part.weights)[known]
        target = np.asarray(part.target)[known]
        problems = self._read_label(channel.me, target, row_weights, noise)
        program = self._program(problems.weighted)
        solve = one_shot.solve_label_holder if at_once else least_squares.train_label_holder
        solved = solve(inner, columns, problems, roles, key, program)
        state |= _weights_state(solved.weights) | problems.facts
        return ModelShare(channel.me, self.name, state, solved.rounds, solved.stop_reason)

    def score_rows(
        self, channel: Channel, part: Part | None, share: ModelShare | None, *, roles: Roles
    ) -> Array | None:
        """One party's side of scoring: the total scores, only at the label holder."""
        channel = channel.within(self.name).within("score", exchange.TOTALS)
        if channel.me == roles.key_holder:
            exchange.score_key_holder(channel, roles)
            return None
        if part is None or share is None:
            raise ConfigError(f"Party {channel.me!r} needs data and its share of the model.")
        key = exchange.receive_key(channel, roles)
        columns = encode_columns(part, share)
        if channel.me == roles.label_holder:
            columns = np.column_stack([columns, np.ones(len(columns))])
        weights = np.asarray(share.state["weights"], dtype=np.float64)
        weights = weights.reshape(columns.shape[1], share.state["models"])
        if channel.me == roles.label_holder:
            return exchange.score_label_holder(channel, columns, weights, roles, key)
        exchange.score_feature_holder(channel, columns, weights, roles, key)
        return None

    @abstractmethod
    def _read_label(
        self, party: str, target: Array, weights: Array | None, rng: np.random.Generator
    ) -> Problems:
        """The problems that the label poses; ``rng`` gives the noise that protects it."""

    def _program(self, weighted: bool = False) -> Program:
        """What all parties know of the training."""
        return Program(
            l2=self.l2,
            max_rounds=self.max_rounds,
            tolerance=self.tolerance,
            weighted=weighted,
            rows_per_column=self.rows_per_column,
            rare_rows_per_column=self.rare_rows_per_column,
        )


@documented
@dataclass(kw_only=True)
class LinearRegression(LinearModel):
    """Least squares or ridge regression over the aligned rows of several parties.

    Attributes
    ----------
    shares_ : dict of ModelShare
        Each party's part of the model.
    n_rounds_ : int
    stop_reason_ : str
    """

    name = "linear"
    predicts = "numbers"
    scores_are = "value"

    def to_values(self, share: ModelShare, scores: Array) -> Array:
        """Scores in units of the target."""
        return np.asarray(
            scores * np.asarray(share.state["scale"]) + np.asarray(share.state["mean"])
        )

    def _read_label(
        self, party: str, target: Array, weights: Array | None, rng: np.random.Generator
    ) -> Problems:
        try:
            values = two_dimensional(np.asarray(target, dtype=np.float64))
        except (ValueError, TypeError):
            raise DataError(
                f"The label of party {party!r} is the target of a regression, but it holds text; "
                "expected numbers."
            ) from None
        row_weights, values = np.broadcast_arrays(scale_weights(weights, len(values)), values)
        mean, scale = values.mean(axis=0), values.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        problem = Problem((values - mean) / scale, np.array(row_weights))
        facts = {"mean": mean.tolist(), "scale": scale.tolist()}
        rarest = find_rarest_number(values, row_weights)
        return Problems(lambda stage, scores: problem, rarest, weights is not None, facts)


@documented
@dataclass(kw_only=True)
class LogisticRegression(LinearModel):
    """Logistic regression over the aligned rows of several parties, binary or multi-class.

    Attributes
    ----------
    classes_ : array
    shares_, n_rounds_, stop_reason_
        As in LinearRegression.
    """

    name = "logistic"
    predicts = "classes"
    scores_are = "logit"
    _protections = ("rare_rows_per_column", "label_noise")

    l2: float = 1e-3
    max_rounds: int = 25
    tolerance: float = 1e-3
    refine: int = param(
        2,
        "How often the label holder sees the total scores of the training rows and improves the "
        "quadratic approximation of the loss. 0 reveals no score in training, and is the gradient "
        "of degree 1 of the literature; 2 is close to the pooled model.",
        ge=0,
    )
    class_weight: Literal["balanced"] | None = param(
        None, "'balanced' weighs classes inversely to their frequency."
    )
    look_noise: float = param(
        LOOK_NOISE,
        "Standard deviation, in logits, of the fresh noise that each feature holder adds to its "
        "scores each time the label holder sees the totals. 0 shows exact scores, and the ledger "
        "says so.",
        ge=0,
    )
    label_noise: float = param(
        LABEL_NOISE,
        "Standard deviation of the noise that the label holder adds to its labels 0 and 1 before "
        "training, so that what is opened of them has few bits. 0 opens exact sums.",
        ge=0,
    )

    def numbers_per_row(self) -> int:
        return 1 + (self.refine if self.look_noise == 0 else 0)

    def _always_weighted(self) -> bool:
        return self.class_weight is not None or self.refine > 0

    def _program(self, weighted: bool = False) -> Program:
        stages = self.refine + 1
        return replace(
            super()._program(weighted),
            max_rounds=max(self.max_rounds // stages, 1),
            stages=stages,
            look_noise=self.look_noise,
            score_range=7,
        )

    def _read_label(
        self, party: str, target: Array, weights: Array | None, rng: np.random.Generator
    ) -> Problems:
        values = np.asarray(target)
        classes, codes = np.unique(values, return_inverse=True)
        if len(classes) < 2:
            raise DataError(
                "Logistic regression needs at least two classes among the labelled aligned rows "
                f"of party {party!r}; there is {len(classes)}."
            )
        row_weights = scale_weights(weights, len(values))
        if self.class_weight == "balanced":
            frequency = np.bincount(codes) / len(codes)
            row_weights = row_weights / (len(classes) * frequency[codes])[:, None]
            row_weights = row_weights / row_weights.mean(axis=0)
        if len(classes) == 2:
            hot, link, factor = codes[:, None].astype(np.float64), expit, 1.0
        else:
            hot, link, factor = np.eye(len(classes))[codes], partial(softmax, axis=1), 2.0
            if row_weights.shape[1] > 1:
                raise ConfigError("Several models at once need a label with two classes.")
        rarest = self._find_rarest(codes, classes, row_weights)
        # One draw per row and class: models that train together must not average it away.
        hot = hot + self.label_noise * rng.standard_normal(hot.shape)
        hot, row_weights = np.broadcast_arrays(hot, row_weights)

        def pose_problem(stage: int, scores: Floats) -> Problem:
            start = np.zeros(hot.shape) if stage == 0 else scores
            return touching_quadratic(hot, link(start), start, row_weights, factor)

        weighted = weights is not None or self.class_weight is not None
        return Problems(pose_problem, rarest, weighted, {"classes": classes.tolist()})

    def _find_rarest(self, codes: Array, classes: Array, weights: Floats) -> Rarest:
        """Whose labels a feature holder could find most easily."""
        return find_rarest_class(codes, classes, weights)


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


def fit_encoder(part: Part, rows: Rows) -> tuple[dict[str, Any], Floats]:
    """A party's columns, standardised and centred, and the state that repeats it for new rows."""
    table = part.table.take(rows)
    encoder = Encoder(missing="impute").fit(table)
    matrix = encoder.transform(table).matrix
    centres = matrix.mean(axis=0)
    return {"encoder": encoder.to_dict(), "centres": centres.tolist()}, matrix - centres


def encode_columns(part: Part, share: ModelShare) -> Floats:
    """A party's columns as its share of a fitted model takes them."""
    encoder = Encoder.from_dict(share.state["encoder"])
    matrix = encoder.transform(part.table.take(part.rows)).matrix
    return np.asarray(matrix - np.asarray(share.state["centres"], dtype=np.float64))


def _weights_state(weights: Floats) -> dict[str, Any]:
    return {"weights": weights.tolist(), "models": weights.shape[1]}
