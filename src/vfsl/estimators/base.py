"""What a federated estimator is: what users call, what every party plays, what it says of itself.

A new estimator is a dataclass whose parameters are declared by :func:`vfsl.params.param`. It writes
`Estimator.train` and `Estimator.score_rows`, a party's sides of the two protocols, and declares
what its scores are; the rest is here. An entry point in the group ``vfsl.estimators`` makes it
known by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from scipy.special import expit, softmax
from sklearn.metrics import r2_score, roc_auc_score

from vfsl.channel import Channel
from vfsl.data import check_labels
from vfsl.data.checks import counted
from vfsl.errors import ConfigError, DataError
from vfsl.estimators.alone import JOINT, OWN_COLUMNS
from vfsl.estimators.answer import Answer
from vfsl.federation import Federation
from vfsl.params import Settable, check_params, settings_of
from vfsl.parts import ModelShare, Part, Roles, Rows, places_in_training, scores_with_kept
from vfsl.showing import show_table
from vfsl.site import Site
from vfsl.store import Checkpoints
from vfsl.values import Array, Floats

NOTHING_KEPT = Checkpoints(None)
THRESHOLD = "threshold"  # in the label holder's share: from where on the second class is predicted

# What a step reveals or delivers beyond the defaults: its kind, and its name in party.toml.
Ask = tuple[Literal["disclosure", "output"], str]


class Estimator(Settable, ABC):
    """A model of one party's label, trained and asked together with other parties.

    Attributes
    ----------
    shares_ : dict of ModelShare
        Each party's part of the fitted model.
    label_ : (party, column)
    n_rounds_ : int
    stop_reason_ : str or None
    """

    shares_: dict[str, ModelShare]
    label_: tuple[str, str]

    name: ClassVar[str]
    """The name of the model in job files, in records and on disk."""

    keeps_checkpoints: ClassVar[bool] = False
    """Whether a training that was interrupted goes on from what the parties kept."""

    uses_all_rows: ClassVar[bool] = False
    """Whether it trains on rows that only one party has, too."""

    takes_weights: ClassVar[bool] = True
    """Whether training rows may have weights."""

    needs_torch: ClassVar[bool] = False
    """Whether it needs PyTorch."""

    # ---- what it says of itself -----------------------------------------------------------------

    @property
    @abstractmethod
    def predicts(self) -> Literal["classes", "numbers"]:
        """Whether it predicts classes or numbers."""

    @property
    @abstractmethod
    def scores_are(self) -> Literal["logit", "probability", "value"]:
        """What `score_rows` returns: logits or probabilities of classes, or numbers."""

    @property
    def knows_training_scores(self) -> bool:
        """Whether the label holder's fresh share has the scores of all training rows."""
        return False

    @property
    def needs_key_holder(self) -> bool:
        """Whether the key holder takes part in training."""
        return True

    @property
    def scores_need_key_holder(self) -> bool:
        """Whether the key holder takes part in scoring."""
        return True

    @property
    def predicts_without(self) -> bool:
        """Whether it can predict rows without the cells of some feature holders, not only of all.

        Without all of them every model can that writes `learn_alone` or `score_alone`.
        """
        return False

    @property
    def discloses_labels(self) -> bool:
        """Whether other parties can read training labels, so that people must accept that."""
        return False

    def work(self, feature_holders: int, weighted: bool = False) -> str:
        """The kind of work that picks the scheme where it was left to "auto"."""
        return "linear"

    def asks(self, scheme: str = "auto") -> tuple[Ask, ...]:
        """What a training reveals that every party must have allowed, as ("disclosure", name)."""
        return ()

    def numbers_per_row(self) -> int:
        """The fewest exact scores of each row that the label holder sees, in training and after."""
        return 1

    def rounds_planned(self) -> int | None:
        """How many rounds or trees it trains at the most, for estimates; None: not known."""
        return None

    def check(self) -> None:
        """Refuse parameters that cannot be used."""
        check_params(self)

    def saved_settings(self, parties: Sequence[str]) -> dict[str, Any]:
        """The parameters that make the same model of these parties again, as plain values."""
        return settings_of(self)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The model whose `saved_settings` these are."""
        return cls(**settings)

    # ---- what users call ------------------------------------------------------------------------

    def fit(self, fed: Federation, label: tuple[str, str], weights: Array | None = None) -> Self:
        """Train on the aligned rows of a federation whose label is known.

        Parameters
        ----------
        fed : Federation
        label : (party, column)
        weights : array, optional
            Row weights in the common order, known to the label holder only; (rows,) or, to train
            several models in the same rounds, (rows, models). They count relative to their mean.
        """
        self.check()
        parts = fed.parts(label)
        fed.tables[label[0]].column(label[1])  # refused where there is no such column
        check_labels({party: part.table for party, part in parts.items()}, target=label)
        weighted = weights is not None
        roles = fed.roles(label[0], self.work(len(parts) - 1, weighted))
        shares = fed.play(
            partial(self.learn, label=label, weighted=weighted),
            own={label[0]: {"weights": weights}},
            parties=_players(roles, self.needs_key_holder),
        )
        self.shares_ = {party: share for party, share in shares.items() if share is not None}
        self.label_ = label
        return self

    def decision_function(
        self, fed: Federation, *, offline: Sequence[str] = (), rows: str = "overlap"
    ) -> Array:
        """Scores of the aligned rows in the common order, (rows, models · outputs).

        Where the label holder has the scores of the training rows, only other rows are scored, and
        if there are none, no message is sent. A model that was loaded has no training scores.

        Parameters
        ----------
        fed : Federation
        offline : sequence of str
            Feature holders of the training that do not take part: all of them, or with trees and
            RISA any. A party that is not aligned must be named here, unless the label holder is
            alone (`Federation.of_one`).
        rows : {"overlap", "all"}
            "all": all rows of the label holder in the order of its table; those that the others
            lack by its own columns, as if all of them were offline.
        """
        places, held = None, self.held_share
        holder, parts = self.label_[0], fed.parts(self.label_)
        offline = self.find_offline(parts, offline, rows)
        if self.knows_training_scores and held.scores is not None and not offline:
            places = places_in_training(self.shares_, parts, holder)
        roles = fed.roles(holder, self.work(len(parts) - 1)).without(offline)
        answers = fed.play(
            partial(
                self.answer,
                label=self.label_,
                places=places,
                rows=rows,
                offline=tuple(offline),
            ),
            own={party: {"share": share} for party, share in self.shares_.items()},
            parties=self._scorers(roles),
        )
        return np.asarray(answers[holder])

    def predict(
        self, fed: Federation, *, offline: Sequence[str] = (), rows: str = "overlap"
    ) -> Array:
        """The most probable class, or the expected number, of each aligned row.

        ``offline`` and ``rows`` are those of `decision_function`.
        """
        return self.to_predictions(
            self.held_share, self.decision_function(fed, offline=offline, rows=rows)
        )

    def predict_proba(
        self, fed: Federation, *, offline: Sequence[str] = (), rows: str = "overlap"
    ) -> Array:
        """Class probabilities of the aligned rows, in the common order.

        ``offline`` and ``rows`` are those of `decision_function`.

        Returns
        -------
        array
            (rows, classes) in the order of ``classes_``; for several binary models trained
            together, (rows, models) with the probability of the second class.
        """
        self.check_fitted()
        if self.predicts == "numbers":
            raise ConfigError(f"{type(self).__name__} was trained for a regression: use predict.")
        return self.to_probabilities(
            self.held_share, self.decision_function(fed, offline=offline, rows=rows)
        )

    def predict_frame(
        self, fed: Federation, *, offline: Sequence[str] = (), rows: str = "overlap"
    ) -> pd.DataFrame:
        """Predictions with the label holder's ids, a row each, as in a file of predictions.

        ``offline`` and ``rows`` are those of `decision_function`.

        Returns
        -------
        DataFrame
            The id column(s), ``probability`` (of classes), ``predicted``, and where rows could be
            scored in more than one way ``scored_by``: "joint" or "own columns".
        """
        scores = self.decision_function(fed, offline=offline, rows=rows)
        offline = self.find_offline(fed.parts(self.label_), offline, rows)
        site = fed.sites[self.label_[0]]
        answer = self.interpret(site, self.held_share, scores, rows=rows, offline=offline)
        return answer.to_frame(site.own_table(), self.label_[1])

    def _repr_html_(self) -> str:
        """What was asked of it and how its training ended, in a notebook."""
        lines: list[tuple[str, object]] = list(settings_of(self).items())
        title = type(self).__name__
        if not hasattr(self, "shares_"):
            return show_table(f"{title}, not fitted", ("setting", "value"), lines)
        facts: list[tuple[str, object]] = [
            ("label", f"{self.label_[1]} of {self.label_[0]}"),
            ("parties", ", ".join(self.shares_)),
            ("rounds", self.n_rounds_),
            ("stopped", self.stop_reason_ or "–"),
        ]
        return show_table(title, ("setting", "value"), [*facts, *lines])

    def score(
        self, fed: Federation, *, offline: Sequence[str] = (), rows: str = "overlap"
    ) -> float:
        """Accuracy, or R² of numbers, of `predict` on the rows whose label is known.

        It means this for every model. ``offline`` and ``rows`` are those of `decision_function`.
        """
        part = fed.parts(self.label_)[self.label_[0]]
        target = np.asarray(part.target)
        if rows == "all":
            every = np.concatenate([target, np.asarray(part.rest_target)])
            target = every[np.argsort(part.all_rows)]
        return self.rate(self.predict(fed, offline=offline, rows=rows), target)

    def rate(self, predictions: Array, target: Array) -> float:
        """Accuracy, or R² of numbers, of predictions of rows whose label is known."""
        known = ~pd.isna(target)
        if not known.any():
            raise DataError("There is no row with a known label to score.")
        truth = np.asarray(target[known].tolist())
        if self.predicts == "numbers":
            return float(r2_score(truth.astype(np.float64), predictions[known]))
        classes = self.held_share.state["classes"]
        strange = int((~np.isin(truth, classes)).sum())
        if strange:
            raise DataError(
                f"{strange} labels of party {self.label_[0]!r} are not among the {len(classes)} "
                "classes of training."
            )
        return float((predictions[known] == truth).mean())

    @property
    def held_share(self) -> ModelShare:
        """The label holder's share."""
        self.check_fitted()
        return self.shares_[self.label_[0]]

    @property
    def classes_(self) -> Array:
        return np.asarray(self.held_share.state["classes"])

    @property
    def threshold_(self) -> float | None:
        """From which probability on the second class is predicted; None: where it is likelier."""
        kept = self.held_share.state.get(THRESHOLD)
        return None if kept is None else float(kept["value"])

    @property
    def n_rounds_(self) -> int:
        return len(self.held_share.rounds)

    @property
    def stop_reason_(self) -> str | None:
        return self.held_share.stop_reason

    # ---- what every party plays -----------------------------------------------------------------

    @abstractmethod
    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator | None = None,
        kept: Checkpoints = NOTHING_KEPT,
    ) -> ModelShare | None:
        """One party's side of training; its share, None at a party that holds no data.

        ``rng`` is the party's private generator, ``kept`` what it has of an earlier attempt.
        """

    @abstractmethod
    def score_rows(
        self, channel: Channel, part: Part | None, share: ModelShare | None, *, roles: Roles
    ) -> Array | None:
        """One party's side of scoring; the scores at the label holder, None elsewhere."""

    def learn(
        self,
        site: Site,
        channel: Channel,
        label: tuple[str, str],
        *,
        weights: Array | None = None,
        weighted: bool = False,
    ) -> ModelShare | None:
        """One party's whole side of training, wherever that party is: what `fit` lets it play.

        ``weights`` are the label holder's; ``weighted`` says to all whether there are any. A party
        without a role has nothing to do.
        """
        roles = site.roles(label[0], self.work(len(site.standing.aligned) - 1, weighted))
        if site.me not in _players(roles, self.needs_key_holder):
            return None
        settings = {"model": self.name, "label": list(label), **settings_of(self)}
        settings |= {"scheme": roles.scheme, "security": roles.security}
        with site.records(f"train {self.name}", channel, settings) as outcome:
            part = site.part(label, weights)
            share = self.train(
                channel,
                part,
                roles=roles,
                rng=site.private_rng(self.name),
                kept=site.checkpoints(self.name),
            )
            if share is not None and part is not None and site.me == label[0]:
                share = self.learn_alone(part, share)
            if share is not None:
                outcome.rounds, outcome.stop_reason = share.rounds, share.stop_reason
                outcome.notes, outcome.metrics = share.notes, self.training_metrics(share)
        return share

    def answer(
        self,
        site: Site,
        channel: Channel,
        label: tuple[str, str],
        *,
        share: ModelShare | None = None,
        places: Array | None = None,
        rows: str = "overlap",
        offline: Sequence[str] = (),
    ) -> Array | None:
        """One party's whole side of a prediction: scores of the aligned rows at the label holder.

        ``places`` are those of the aligned rows among the training rows, −1 for a row that is to be
        scored; without them all rows are scored. Right after training nobody needs to be asked if
        the model knows its training scores: the places are then 0, 1, 2, … ``rows`` and ``offline``
        are those of `decision_function`.
        """
        roles = site.roles(label[0], self.work(len(site.standing.aligned) - 1))
        roles = roles.without(offline)
        if site.me not in self._scorers(roles):
            return None
        part = site.part(label)
        settings: dict[str, Any] = {"model": self.name}
        if offline:
            settings["offline"] = list(offline)
        if part is not None:
            settings["new rows"] = len(part.rows) if places is None else int((places < 0).sum())
        if self.scores_need_key_holder:
            settings |= {"scheme": roles.scheme, "security": roles.security}
        with site.records(f"predict {self.name}", channel, settings) as outcome:
            scores: Array | None = None
            if not roles.feature_holders and part is not None and share is not None:
                scores = self.score_alone(part, share)
            elif places is None:
                scores = self.score_rows(channel, part, share, roles=roles)
            elif (places < 0).any():
                new = None if part is None else Part(part.table, part.rows[places < 0])
                scores = self.score_rows(channel, new, share, roles=roles)
            if site.me != label[0] or part is None or share is None:
                return scores
            if places is not None:
                scores = scores_with_kept(share, places, scores)
            outcome.metrics = self.measure_quality(share, np.asarray(scores), part.target)
            outcome.notes = self.note_offline(offline)
            own = len(part.rest) if rows == "all" else 0
            own += 0 if roles.feature_holders else len(part.rows)
            if own:
                outcome.notes += (self.note_alone(share, own),)
            if rows == "all":
                rest = self.score_alone(Part(part.table, part.rest), share)
                scores = np.concatenate([np.asarray(scores), rest])
                scores = scores[np.argsort(part.all_rows)]
        return scores

    def find_offline(
        self, present: Collection[str], offline: Sequence[str], rows: str = "overlap"
    ) -> tuple[str, ...]:
        """The parties of the training that take no part in a prediction.

        Where nobody but the label holder is present, these are all others. Refused: a party that is
        absent and not said to be offline, or that the model cannot do without.
        """
        if rows not in ("overlap", "all"):
            raise ConfigError(
                f"The rows parameter must be 'overlap' or 'all'. Got {rows!r} instead."
            )
        kind = type(self).__name__
        others = [party for party in self.shares_ if party != self.label_[0]]
        for party in offline:
            if party not in others:
                raise ConfigError(
                    f"The offline parameter of {kind} must name parties without the label, "
                    f"{', '.join(others) or 'which are none'}. Got {party!r} instead."
                )
        absent = [party for party in others if party in offline or party not in present]
        for party in absent:
            if party not in offline and absent != others:
                raise ConfigError(
                    f"The model was trained with party {party!r}, whose rows are not there; align "
                    f"with it, or predict with offline=[{party!r}]."
                )
        if absent and absent != others and not self.predicts_without:
            raise ConfigError(
                f"{kind} predicts with all parties of its training, or by the columns of "
                f"{self.label_[0]!r} alone; trees and RISA can do without some. Got "
                f"{', '.join(absent)} offline instead."
            )
        if rows == "all" or (absent and absent == others):
            self.check_alone(self.held_share)
        return tuple(absent)

    def learned_from_rest(self, share: ModelShare) -> bool:
        """Whether rows that only the label holder has were learned from."""
        return self.uses_all_rows

    def note_alone(self, share: ModelShare, rows: int) -> str:
        """What to say of this many rows that were scored by the label holder's own columns."""
        return f"{counted(rows, 'row')} scored by the columns of {share.party} alone."

    def learn_alone(self, part: Part, share: ModelShare) -> ModelShare:
        """The label holder's share with what it needs to predict rows by its own columns."""
        return share

    def check_alone(self, share: ModelShare) -> None:
        """Refuse to predict by the label holder's columns alone where the model cannot."""
        raise ConfigError(f"{type(self).__name__} cannot predict rows of one party alone.")

    def note_offline(self, offline: Sequence[str]) -> tuple[str, ...]:
        """What to say in the record of a prediction without these parties."""
        return ()

    def score_alone(self, part: Part, share: ModelShare) -> Array:
        """Scores of the part's rows by the label holder's columns, as if all others were offline.

        `check_alone` has been asked before.
        """
        raise NotImplementedError

    def _scorers(self, roles: Roles) -> tuple[str, ...]:
        """Who plays a prediction; the label holder alone needs nobody."""
        return _players(roles, self.scores_need_key_holder and bool(roles.feature_holders))

    def answer_all(
        self,
        site: Site,
        channel: Channel,
        label: tuple[str, str],
        *,
        share: ModelShare | None = None,
        places: Array | None = None,
        rows: str = "overlap",
        offline: Sequence[str] = (),
    ) -> Answer | None:
        """`answer` for every row that the model can say something of, at the label holder."""
        scores = self.answer(
            site, channel, label, share=share, places=places, rows=rows, offline=offline
        )
        if scores is None or share is None:
            return None
        return self.interpret(site, share, scores, rows=rows, offline=offline)

    # ---- how scores become predictions, at the label holder -------------------------------------

    def to_values(self, share: ModelShare, scores: Array) -> Array:
        """Scores of numbers in units of the target."""
        return scores

    def to_probabilities(self, share: ModelShare, scores: Array) -> Array:
        """Class probabilities, as `predict_proba` returns them."""
        classes = len(share.state["classes"])
        if self.scores_are == "probability":  # those of classes one by one need not add up to 1
            chances = np.clip(scores, 0.0, 1.0)
            if classes > 2:
                chances = chances / np.maximum(chances.sum(axis=1, keepdims=True), 1e-12)
        else:
            chances = np.asarray(expit(scores) if classes == 2 else softmax(scores, axis=1))
        return np.hstack([1 - chances, chances]) if chances.shape[1] == 1 else chances

    def to_predictions(self, share: ModelShare, scores: Array) -> Array:
        """The most probable classes or the expected numbers, as `predict` returns them."""
        if self.predicts == "numbers":
            values = self.to_values(share, scores)
            return values[:, 0] if values.shape[1] == 1 else values
        classes, chances = np.asarray(share.state["classes"]), self.to_probabilities(share, scores)
        if len(classes) == 2 and scores.shape[1] > 1:
            return np.asarray(classes[(chances > 0.5).astype(int)])
        return self.pick_classes(share, chances)

    def pick_classes(self, share: ModelShare, chances: Array) -> Array:
        """The most probable class of each row, or by the threshold that the share has."""
        classes, kept = np.asarray(share.state["classes"]), share.state.get(THRESHOLD)
        if kept is None:
            return np.asarray(classes[chances.argmax(axis=1)])
        return np.asarray(classes[(chances[:, 1] >= kept["value"]).astype(int)])

    def interpret(
        self,
        site: Site,
        share: ModelShare,
        scores: Array,
        *,
        rows: str = "overlap",
        offline: Sequence[str] = (),
    ) -> Answer:
        """What scores of a site's aligned rows, or of all its rows, mean."""
        found, more = site.rows().overlap, {}
        if rows == "all":
            found = np.sort(np.concatenate([found, site.rows().rest]))
        if rows == "all" or offline:
            more = {"scored_by": name_ways(site, found, offline)}
        if self.predicts == "numbers":
            return Answer(found, self.to_predictions(share, scores), more=more)
        chances, classes = self.to_probabilities(share, scores), np.asarray(share.state["classes"])
        return Answer(found, chances, classes, more)

    def measure_quality(
        self, share: ModelShare, scores: Array, target: Array | None
    ) -> dict[str, float]:
        """How good scores are on rows with a known label, for the record of the label holder.

        R² and root mean squared error of numbers, AUC of two classes, accuracy of several; nothing
        where several models were trained together.
        """
        known = ~pd.isna(np.asarray(target))
        if target is None or known.sum() < 2:
            return {}
        scores, truth = scores[known], np.asarray(np.asarray(target)[known].tolist())
        if self.predicts == "numbers":
            if scores.shape[1] > 1:
                return {}
            truth, values = truth.astype(np.float64), self.to_values(share, scores)[:, 0]
            rmse = float(np.sqrt(np.mean((values - truth) ** 2)))
            return {"r2": float(r2_score(truth, values)), "rmse": rmse}
        classes = share.state["classes"]
        outputs = 1 if len(classes) == 2 else len(classes)
        if scores.shape[1] > outputs or not set(truth.tolist()) <= set(classes):
            return {}
        if outputs > 1:
            return {"accuracy": float((self.to_predictions(share, scores) == truth).mean())}
        positive = truth == classes[1]
        if positive.all() or not positive.any():
            return {}
        ranked = np.clip(scores, 0.0, 1.0) if self.scores_are == "probability" else scores
        return {"auc": float(roc_auc_score(positive, ranked[:, 0]))}

    def tell_columns(self, share: ModelShare) -> tuple[str, pd.DataFrame | None]:
        """What a party's share says of its own columns: what that is called, and a table of it.

        Where there is none, a sentence says why; nothing by default.
        """
        return "", None

    def rate_parties(self, share: ModelShare) -> dict[str, float]:
        """How much each party's columns matter, adding up to 1, where the label holder knows it."""
        return {}

    def list_tables(self, share: ModelShare) -> dict[str, pd.DataFrame]:
        """What a party may read in its own share, as tables for its folder, by their names."""
        return {}

    def compare_rows(self, share: ModelShare, part: Part) -> dict[str, pd.DataFrame]:
        """How a party's other rows differ from those of the training, as tables by their names."""
        return {}

    def training_metrics(self, share: ModelShare) -> dict[str, float]:
        """What the label holder knows of the model's quality from training alone."""
        return {}

    def training_scores(self, share: ModelShare) -> Array:
        """The label holder's scores of the training rows, without a message, (rows, models)."""
        if share.scores is None:
            raise ConfigError("Only the label holder's fresh share knows the training scores.")
        return share.scores

    def check_fitted(self) -> None:
        """Refuse a model without shares."""
        if not hasattr(self, "shares_"):
            raise ConfigError(f"{type(self).__name__} is not fitted yet: call fit first.")


def name_ways(site: Site, rows: Rows, offline: Sequence[str]) -> Array:
    """For each of the label holder's rows: was it scored jointly, or by its own columns?"""
    others = [party for party in site.standing.aligned if party != site.me]
    joint = JOINT
    if all(party in offline for party in others):
        joint = OWN_COLUMNS
    elif offline:
        joint = f"{JOINT} without {' and '.join(offline)}"
    return np.where(np.isin(rows, site.rows().overlap), joint, OWN_COLUMNS).astype(object)


def _players(roles: Roles, with_key_holder: bool) -> tuple[str, ...]:
    return roles.everyone if with_key_holder else roles.data_holders


# ---- row weights and labels ----------------------------------------------------------------------


def scale_weights(weights: Array | None, rows: int) -> Floats:
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


def two_dimensional(values: Floats) -> Floats:
    return values[:, None] if values.ndim == 1 else values


def find_labelled(party: str, target: Array | None) -> Array:
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
