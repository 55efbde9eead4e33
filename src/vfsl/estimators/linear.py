"""Linear and logistic regression across parties.

By default the parties compute on shares (shared/fit.py): nothing is opened in training, and later
the scores of rows that are predicted. In the protocol "rounds", the four steps of the literature,
the label holder turns its label into weighted least-squares problems, which all parties solve
together: by gradient rounds (least_squares.py), or in one exchange (one_shot.py). There the
logistic loss is replaced by the quadratic that touches it at score 0, the gradient of degree 1;
with ``refine`` the label holder then sees the total scores and takes the quadratic that touches the
loss there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from scipy.special import expit, softmax
from sklearn.utils.class_weight import compute_sample_weight

from vfsl.channel import Channel, expect_array
from vfsl.crypto.shares import Session
from vfsl.data import Encoder
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import exchange, least_squares, one_shot
from vfsl.estimators.alone import describe_quality, fit_alone, score_alone, to_separate_logits
from vfsl.estimators.base import (
    NOTHING_KEPT,
    Ask,
    Estimator,
    find_labelled,
    scale_weights,
    two_dimensional,
)
from vfsl.estimators.coefficients import own_weights, read_coefficients
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
from vfsl.estimators.shared import fit as shared_fit
from vfsl.estimators.shared import scoring, true_loss
from vfsl.estimators.shared.fit import SharedWeights, solve_least_squares, solve_logistic
from vfsl.estimators.shared.softmax import MOST_CLASSES
from vfsl.estimators.shared.true_loss import Truth
from vfsl.params import documented, param, params_of
from vfsl.parts import ModelShare, Part, Roles, Rows
from vfsl.store import Checkpoints
from vfsl.values import Array, Disclosure, Disclosures, Floats

DISCLOSURES: Disclosures = {
    "labelled rows": Disclosure(np.ndarray, "which aligned rows have a known label"),
}

_HESSIAN_FLOOR = 0.02  # keeps the targets of nearly certain rows within the score range
_TARGET_RANGE = 100.0
ONE_AGAINST_REST = "one against the rest"


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a data holder brings to a training; target and row weights at the label holder only."""

    state: dict[str, Any]  # of its share of the model
    columns: Floats
    target: Array | None = None
    row_weights: Array | None = None


@dataclass(frozen=True, eq=False)
class Label:
    """A label as numbers, (rows, outputs), and row weights with mean 1 where there are any."""

    values: Floats
    row_weights: Floats | None
    rarest: Rarest
    facts: dict[str, Any]  # for the label holder's share
    truth: Truth | None = None  # by what a loss is judged


@dataclass(kw_only=True)
class LinearModel(Estimator):
    """What both models share: a party's sides of training and scoring."""

    accuracy: ClassVar[scoring.Accuracy]
    """What it wants of scores under shared weights."""

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
        "the columns explain; logistic regression on shares ends when a step lowers the loss by "
        "less than this fraction.",
        ge=0,
    )
    rows_per_column: int = param(
        10,
        "Where parties see weights or gradients: refuse to train on fewer rows than this many per "
        "column of the widest party, which could solve them for single rows.",
        ge=0,
    )
    rare_rows_per_column: float = param(
        RARE_ROWS_PER_COLUMN,
        "Where parties see weights or gradients: refuse to train if a class, or all others without "
        "it, has fewer rows than this many per column of the widest feature holder, which could "
        "find out which rows these are. Of numbers, the rows count that differ from the most "
        "frequent value.",
        ge=0,
    )
    protocol: Literal["auto", "shares", "rounds"] = param(
        "auto",
        "'shares' opens nothing in training. 'rounds' are the four steps of the literature: "
        "gradients are opened to their parties in every round. 'auto' computes on shares unless "
        "the run names a scheme that encrypts.",
    )
    weights: Literal["auto", "shared", "own"] = param(
        "auto",
        "'shared': nobody learns weights, and predictions are computed on shares too. 'own': each "
        "party learns the weights of its own columns. 'auto' is 'shared', and 'own' in the "
        "protocol 'rounds', which knows no other.",
    )
    solver: Literal["rounds", "one-shot"] = param(
        "rounds",
        "Of the protocol 'rounds': gradient rounds, or the normal equations in one exchange, which "
        "shows the feature holder how its columns go with the label holder's nameless ones.",
    )

    missing: Literal["impute", "mean", "zero"] | None = param(
        None,
        "What missing cells become: the mean or the most frequent category ('impute'), the mean or "
        "every category as much as it is frequent ('mean'), or 0 and no category ('zero'). By "
        "default as each party's table says. To drop rows, say so before the alignment: "
        "simulate(missing='drop'), or missing = 'drop' at a party of a job.",
    )

    def check(self) -> None:
        super().check()
        asked = self._ask_for_shares()
        if asked and self._names_rounds:
            raise ConfigError(
                f"{asked} needs a computation on shares; protocol='rounds' and solver='one-shot' "
                "are none. Use one or the other."
            )

    # ---- declared facts -------------------------------------------------------------------------

    def work(self, feature_holders: int, weighted: bool = False) -> str:
        if not self._names_rounds:
            return "linear"
        several = feature_holders > 1 and (weighted or self._always_weighted())
        return "linear rounds of many" if several else "linear rounds"

    @property
    def _names_rounds(self) -> bool:
        """Whether a setting asks for the protocol "rounds"."""
        return self.protocol == "rounds" or self.solver == "one-shot"

    def rounds_planned(self) -> int:
        return self.max_rounds

    def asks(self, scheme: str = "auto") -> tuple[Ask, ...]:
        program, declared = self._program(), params_of(type(self))
        rounds = self._names_rounds or scheme not in ("auto", "shares")
        looks = rounds and program.stages > 1
        asked = {
            "cross-gram": self.solver == "one-shot",
            "gradients": rounds and self.solver == "rounds",
            "training scores": looks,
            "exact training scores": looks and program.look_noise < LOOK_NOISE,
            "own weights": self.weights == "own" and not rounds,
            "rare labels": (self.weights == "own" or rounds)
            and any(getattr(self, name) < declared[name].default for name in self._protections),
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
        channel = channel.within(self.name, DISCLOSURES)
        if part is None and channel.me != roles.key_holder:
            raise ConfigError(f"Party {channel.me!r} needs a part of the data to train on.")
        ready = None if part is None else self._prepare(channel, part, roles)
        if self._on_shares(roles):
            return self._train_on_shares(channel, ready, roles, rng)
        return self._train_in_rounds(channel, ready, roles, noise_rng(rng))

    def _train_on_shares(
        self,
        channel: Channel,
        ready: Prepared | None,
        roles: Roles,
        rng: np.random.Generator | None,
    ) -> ModelShare | None:
        label = None
        if ready is not None and ready.target is not None:
            label = self._read_numbers(channel.me, ready.target, ready.row_weights, noise_rng(rng))
        with shared_fit.join(channel, roles, rng, shared_fit.FIT) as session:
            columns = None if ready is None else ready.columns
            solved = self._solve_on_shares(session, columns, label, roles)
            if self.weights != "own":
                state = solved.keep(session, columns, roles.label_holder)
            else:
                own = solved.open_own(session, roles.label_holder)
                state = {} if own is None else _weights_state(own)
        if ready is None:
            return None
        facts = {} if label is None else label.facts
        return ModelShare(
            channel.me, self.name, ready.state | state | facts, solved.rounds, solved.stop_reason
        )

    def _train_in_rounds(
        self, channel: Channel, ready: Prepared | None, roles: Roles, noise: np.random.Generator
    ) -> ModelShare | None:
        program, at_once = self._program(), self.solver == "one-shot"
        if at_once and (len(roles.feature_holders) != 1 or program.stages > 1):
            raise ConfigError(
                "The one-shot solver needs exactly one feature holder, and refine=0 in logistic "
                "regression; use solver='rounds'."
            )
        declared = one_shot.DISCLOSURES if at_once else least_squares.disclosures(program)
        inner = channel.within("fit", declared)
        if ready is None:
            if at_once:
                one_shot.solve_key_holder(inner, roles)
            else:
                least_squares.train_key_holder(inner, roles, program)
            self._show_losses(channel, roles)
            return None
        key, columns = exchange.receive_key(inner, roles), ready.columns
        if ready.target is None:
            if at_once:
                solved = one_shot.solve_feature_holder(inner, columns, roles, key)
            else:
                solved = least_squares.train_feature_holder(
                    inner, columns, roles, key, program, noise
                )
            self._show_losses(channel, roles, ready, solved.path)
            return ModelShare(channel.me, self.name, ready.state | _weights_state(solved.weights))
        problems = self._read_label(channel.me, ready.target, ready.row_weights, noise)
        program = self._program(problems.weighted)
        solve = one_shot.solve_label_holder if at_once else least_squares.train_label_holder
        solved = solve(inner, columns, problems, roles, key, program)
        state = ready.state | _weights_state(solved.weights) | problems.facts
        rounds = self._add_losses(solved.rounds, state)
        losses = self._show_losses(channel, roles, ready, solved.path)
        if losses:
            lines = rounds or ({},)
            rounds = tuple({**line, "loss": loss} for line, loss in zip(lines, losses, strict=True))
        return ModelShare(channel.me, self.name, state, rounds, solved.stop_reason)

    # What the record calls a loss is the true one: that of a surrogate may be far from it.

    def _show_losses(
        self,
        channel: Channel,
        roles: Roles,
        ready: Prepared | None = None,
        path: Sequence[Floats] = (),
    ) -> list[float]:
        """The loss after each round at the label holder, where it was asked for."""
        return []

    def _add_losses(
        self, rounds: tuple[Mapping[str, Any], ...], state: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], ...]:
        """The lines of the record with their loss, where the objective tells it."""
        return rounds

    def _prepare(self, channel: Channel, part: Part, roles: Roles) -> Prepared:
        """A data holder's columns of the labelled rows, which the label holder tells the others."""
        if channel.me != roles.label_holder:
            known = expect_array(
                channel.receive(roles.label_holder, "labelled rows"),
                sender=roles.label_holder,
                name="labelled rows",
                holds="boolean",
                shape=(len(part.rows),),
            )
            return Prepared(*fit_encoder(part, part.rows[known], self.missing))
        known = find_labelled(channel.me, part.target)
        for party in roles.feature_holders:
            channel.send(party, "labelled rows", known)
        state, columns = fit_encoder(part, part.rows[known], self.missing)
        columns = np.column_stack([columns, np.ones(len(columns))])
        row_weights = None
        if part.weights is not None:
            scale_weights(part.weights, len(known))  # refuses what cannot be used
            row_weights = np.asarray(part.weights)[known]
        return Prepared(state, columns, np.asarray(part.target)[known], row_weights)

    def score_rows(
        self, channel: Channel, part: Part | None, share: ModelShare | None, *, roles: Roles
    ) -> Array | None:
        """One party's side of scoring: the total scores, only at the label holder."""
        channel = channel.within(self.name)
        columns, weights, state = None, None, {} if share is None else share.state
        on_shares = self._on_shares(roles)
        if channel.me != roles.key_holder:
            if part is None or share is None:
                raise ConfigError(f"Party {channel.me!r} needs data and its share of the model.")
            columns = encode_columns(part, share)
            if channel.me == roles.label_holder:
                columns = np.column_stack([columns, np.ones(len(columns))])
            if self.weights == "own" or not on_shares:
                weights = own_weights(share)
            elif "pieces" not in state:
                raise ConfigError(
                    f"Party {channel.me!r} has weights of its own, not shared ones: ask this model "
                    "with weights='own', or under the scheme that it was trained with."
                )
        if on_shares:
            with shared_fit.join(channel, roles, None, shared_fit.SCORE) as session:
                if self.weights != "own":
                    return scoring.open_shared_scores(
                        session, columns, state, self.accuracy, roles.label_holder
                    )
                scores = None if columns is None or weights is None else columns @ weights
                return shared_fit.open_scores(session, scores, roles.label_holder)
        channel = channel.within("score", exchange.TOTALS)
        if columns is None or weights is None:
            exchange.score_key_holder(channel, roles)
            return None
        key = exchange.receive_key(channel, roles)
        if channel.me == roles.label_holder:
            return exchange.score_label_holder(channel, columns, weights, roles, key)
        exchange.score_feature_holder(channel, columns, weights, roles, key)
        return None

    def learn_alone(self, part: Part, share: ModelShare) -> ModelShare:
        """With a model of the label holder's own columns, of all rows whose label is known.

        Where several models are trained together, there is none.
        """
        weights = scale_weights(part.weights, len(part.rows))
        several = np.asarray(part.target).ndim > 1 or weights.shape[1] > 1
        if several or part.rest_target is None:
            return share
        target = np.concatenate([np.asarray(part.target), np.asarray(part.rest_target)])
        weights = np.concatenate([weights[:, 0], np.ones(len(part.rest))])
        codes, classes = self._read_own(share, target)
        known = np.flatnonzero(~np.isnan(codes))
        made = fit_alone(
            part.table,
            part.all_rows[known],
            codes[known],
            self._weigh_classes(codes[known], weights[known]),
            classes=classes,
            l2=self.l2,
            missing=self.missing,
        )
        return replace(share, state={**share.state, "alone": made})

    @abstractmethod
    def _read_own(self, share: ModelShare, target: Array) -> tuple[Floats, int | None]:
        """The label as numbers or codes of the model's classes, and how many; NaN: not known."""

    def _weigh_classes(self, codes: Floats, weights: Floats) -> Floats:
        """Row weights with those of classes in them."""
        return weights

    def check_alone(self, share: ModelShare) -> None:
        if "alone" not in share.state:
            raise ConfigError(
                f"This {type(self).__name__} has no model of the columns of {share.party!r} alone: "
                "it comes from an earlier version, or several were trained together; train it "
                "again."
            )

    def score_alone(self, part: Part, share: ModelShare) -> Array:
        return score_alone(share.state["alone"], part.table, part.rows)

    def learned_from_rest(self, share: ModelShare) -> bool:
        return "alone" in share.state

    def note_alone(self, share: ModelShare, rows: int) -> str:
        found = [
            f"{name.rpartition(' ')[2]} of {value:.3f} in cross-validation when it was trained"
            for name, value in describe_quality(share.state["alone"]).items()
        ]
        told = super().note_alone(share, rows)
        return f"{told[:-1]}, by a model with {found[0]}." if found else told

    def training_metrics(self, share: ModelShare) -> dict[str, float]:
        return describe_quality(share.state["alone"]) if "alone" in share.state else {}

    def _on_shares(self, roles: Roles) -> bool:
        """Whether this step computes on shares; refuses a scheme that cannot."""
        if self._names_rounds:
            return False
        on_shares = roles.scheme in ("shares", "plain")
        asked = self._ask_for_shares()
        if asked and not on_shares:
            raise ConfigError(
                f"{asked} needs a computation on shares, but the run has scheme={roles.scheme!r}; "
                "use scheme='auto', or weights='own' and protocol='rounds'."
            )
        return on_shares

    def _ask_for_shares(self) -> str | None:
        """The setting that only a computation on shares can do."""
        if self.weights == "shared":
            return "weights='shared'"
        return "protocol='shares'" if self.protocol == "shares" else None

    @property
    def weights_(self) -> dict[str, Floats]:
        """By party, the weights of its encoded columns, (columns, models).

        Columns are standardised and centred; the label holder's last weight is the intercept.
        """
        self.check_fitted()
        return {party: own_weights(share) for party, share in self.shares_.items()}

    @property
    def coef_(self) -> dict[str, pd.DataFrame]:
        """By party, what one unit more of each of its columns adds: to log-odds, or to the number.

        The label holder's intercept is the score of a row that is average in all columns.
        """
        return {p: read_coefficients(one, self.held_share) for p, one in self.shares_.items()}

    def tell_columns(self, share: ModelShare) -> tuple[str, pd.DataFrame | None]:
        if "weights" in share.state:
            return "coefficients", read_coefficients(share)
        return (
            'The weights stay shared, so nobody has coefficients; weights = "own" gives each party '
            "those of its own columns.",
            None,
        )

    def _check_sizes(
        self, label_holder: str, label: Label | None, columns: Mapping[str, int], rows: int
    ) -> None:
        """Refuse tables whose weights would tell a party single rows or rare labels."""
        if label is not None and self.weights == "own":
            program = replace(self._program(), opened="weights")
            program.check_sizes(columns, label_holder, rows, label.rarest)

    @abstractmethod
    def _read_numbers(
        self, party: str, target: Array, weights: Array | None, rng: np.random.Generator
    ) -> Label:
        """The label as numbers, for a training on shares."""

    @abstractmethod
    def _solve_on_shares(
        self, session: Session, columns: Floats | None, label: Label | None, roles: Roles
    ) -> SharedWeights:
        """The weights in shares; columns are None at the dealer, the label elsewhere too."""

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
    accuracy = scoring.LINEAR

    def _add_losses(
        self, rounds: tuple[Mapping[str, Any], ...], state: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], ...]:
        """The mean squared error, which is twice the objective if there is no penalty in that."""
        if self.l2 > 0 or len(state["scale"]) > 1:
            return rounds
        factor = 2 * state["scale"][0] ** 2
        return tuple(
            {**line, "loss": factor * line["objective"]} if "objective" in line else line
            for line in rounds
        )

    def to_values(self, share: ModelShare, scores: Array) -> Array:
        """Scores in units of the target."""
        return np.asarray(
            scores * np.asarray(share.state["scale"]) + np.asarray(share.state["mean"])
        )

    def _read_own(self, share: ModelShare, target: Array) -> tuple[Floats, int | None]:
        values = np.array([np.nan if pd.isna(one) else float(one) for one in target])
        return (values - share.state["mean"][0]) / share.state["scale"][0], None

    def _read_numbers(
        self, party: str, target: Array, weights: Array | None, rng: np.random.Generator
    ) -> Label:
        problems = self._read_label(party, target, weights)
        posed = problems.pose_problem(0, np.zeros((len(target), 0)))
        row_weights = None if weights is None else posed.weights
        return Label(posed.targets, row_weights, problems.rarest, problems.facts)

    def _solve_on_shares(
        self, session: Session, columns: Floats | None, label: Label | None, roles: Roles
    ) -> SharedWeights:
        target, row_weights = (None, None) if label is None else (label.values, label.row_weights)
        holder = roles.label_holder
        check = partial(self._check_sizes, holder, label)
        return solve_least_squares(session, columns, target, row_weights, holder, self.l2, check)

    def _read_label(
        self,
        party: str,
        target: Array,
        weights: Array | None,
        rng: np.random.Generator | None = None,
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
    accuracy = scoring.LOGISTIC
    _protections = ("rare_rows_per_column", "label_noise")

    l2: float = 1e-3
    max_rounds: int = 25
    # A step that gains less than 0.2 % of the loss is the last but one: Newton steps then gain far
    # less, and half a percent of the pooled loss is what is promised.
    tolerance: float = 2e-3
    refine: int = param(
        2,
        "Of the protocol 'rounds': how often the label holder sees the total scores of the "
        "training rows and improves the "
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
        "training, so that what is opened of them has few bits. 0 opens exact sums. Where weights "
        "stay shared, nothing is opened, and there is no noise.",
        ge=0,
    )
    show_loss: bool = param(
        False,
        "Whether the label holder learns the log-loss of the training rows after each step or "
        "round: that number and nothing else, found on shares, without the penalty.",
    )

    def _read_numbers(
        self, party: str, target: Array, weights: Array | None, rng: np.random.Generator
    ) -> Label:
        classes, codes = self._read_classes(party, target)
        row_weights = self._weigh_rows(codes, weights)
        rarest = self._find_rarest(codes, classes, row_weights)
        hot = codes[:, None].astype(np.float64)
        facts: dict[str, Any] = {"classes": classes.tolist()}
        if len(classes) > 2:
            hot = np.eye(len(classes))[codes]
            row_weights = np.tile(row_weights, (1, len(classes)))
        if len(classes) > MOST_CLASSES:
            facts["link"] = ONE_AGAINST_REST
        truth = hot
        if self.weights == "own":  # where weights stay shared, nothing of the label is opened
            # One draw per row and class: models that train together must not average it away.
            hot = hot + self.label_noise * rng.standard_normal(hot.shape)
        weighted = weights is not None or self.class_weight is not None
        hot = np.array(np.broadcast_to(hot, row_weights.shape))
        weighing = row_weights if weighted else None
        return Label(hot, weighing, rarest, facts, Truth(truth, weighing))

    def _solve_on_shares(
        self, session: Session, columns: Floats | None, label: Label | None, roles: Roles
    ) -> SharedWeights:
        target, row_weights = (None, None) if label is None else (label.values, label.row_weights)
        return solve_logistic(
            session,
            columns,
            target,
            row_weights,
            roles.label_holder,
            partial(self._check_sizes, roles.label_holder, label),
            softmax=label is not None and 2 < len(label.facts["classes"]) <= MOST_CLASSES,
            truth=None if label is None else label.truth,
            l2=self.l2,
            tolerance=self.tolerance,
            max_rounds=self.max_rounds,
            show_loss=self.show_loss,
        )

    def _read_own(self, share: ModelShare, target: Array) -> tuple[Floats, int | None]:
        known = {name: code for code, name in enumerate(share.state["classes"])}
        return np.array([known.get(one, np.nan) for one in target.tolist()]), len(known)

    def _weigh_classes(self, codes: Floats, weights: Floats) -> Floats:
        if self.class_weight is None:
            return weights
        return np.asarray(weights * compute_sample_weight(self.class_weight, codes))

    def score_alone(self, part: Part, share: ModelShare) -> Array:
        scores = super().score_alone(part, share)
        return to_separate_logits(scores) if share.state.get("link") else scores

    def to_probabilities(self, share: ModelShare, scores: Array) -> Array:
        if share.state.get("link") != ONE_AGAINST_REST:
            return super().to_probabilities(share, scores)
        chances = expit(scores)
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    def numbers_per_row(self) -> int:
        return 1 + (self.refine if self.look_noise == 0 and self._names_rounds else 0)

    def _show_losses(
        self,
        channel: Channel,
        roles: Roles,
        ready: Prepared | None = None,
        path: Sequence[Floats] = (),
    ) -> list[float]:
        if not self.show_loss:
            return []
        truth, several = None, False
        if ready is not None and ready.target is not None:
            truth = self._read_truth(ready)
            several = truth.hot.shape[1] > 1
        with shared_fit.join(channel.within("loss"), roles, None, true_loss.DISCLOSURES) as session:
            return true_loss.open_losses_of(
                session,
                None if ready is None else ready.columns,
                path,
                truth,
                roles.label_holder,
                several,
            )

    def _read_truth(self, ready: Prepared) -> Truth:
        """The label without noise, and row weights if there are any."""
        classes, codes = np.unique(np.asarray(ready.target), return_inverse=True)
        hot = np.eye(len(classes))[codes] if len(classes) > 2 else codes[:, None].astype(float)
        weighted = ready.row_weights is not None or self.class_weight is not None
        return Truth(hot, self._weigh_rows(codes, ready.row_weights) if weighted else None)

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
        classes, codes = self._read_classes(party, target)
        row_weights = self._weigh_rows(codes, weights)
        if len(classes) == 2:
            hot, link, factor = codes[:, None].astype(np.float64), expit, 1.0
        else:
            hot, link, factor = np.eye(len(classes))[codes], partial(softmax, axis=1), 2.0
        rarest = self._find_rarest(codes, classes, row_weights)
        # One draw per row and class: models that train together must not average it away.
        hot = hot + self.label_noise * rng.standard_normal(hot.shape)
        hot, row_weights = np.broadcast_arrays(hot, row_weights)

        def pose_problem(stage: int, scores: Floats) -> Problem:
            start = np.zeros(hot.shape) if stage == 0 else scores
            return touching_quadratic(hot, link(start), start, row_weights, factor)

        weighted = weights is not None or self.class_weight is not None
        return Problems(pose_problem, rarest, weighted, {"classes": classes.tolist()})

    def _read_classes(self, party: str, target: Array) -> tuple[Array, Array]:
        """The classes, and the number of each row's class."""
        classes, codes = np.unique(np.asarray(target), return_inverse=True)
        if len(classes) < 2:
            raise DataError(
                "Logistic regression needs at least two classes among the labelled aligned rows "
                f"of party {party!r}; there is {len(classes)}."
            )
        return classes, codes

    def _weigh_rows(self, codes: Array, weights: Array | None) -> Floats:
        """Row weights with mean 1, (rows, models), balanced if that was asked for."""
        row_weights = scale_weights(weights, len(codes))
        frequency = np.bincount(codes) / len(codes)
        if self.class_weight == "balanced":
            row_weights = row_weights / (len(frequency) * frequency[codes])[:, None]
            row_weights = row_weights / row_weights.mean(axis=0)
        if len(frequency) > 2 and row_weights.shape[1] > 1:
            raise ConfigError("Several models at once need a label with two classes.")
        return row_weights

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


def fit_encoder(
    part: Part, rows: Rows, missing: str | None = None
) -> tuple[dict[str, Any], Floats]:
    """A party's columns, standardised and centred, and the state that repeats it for new rows.

    ``missing`` says what missing cells become, by default as the party's table does.
    """
    table = part.table.take(rows)
    encoder = Encoder(missing=missing or table.missing).fit(table)
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
