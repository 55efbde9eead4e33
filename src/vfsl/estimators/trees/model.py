"""What all tree models share: running their roles, binning, keeping shares, scoring."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from scipy.special import expit, softmax
from sklearn.metrics import roc_auc_score

from vfsl.channel import Channel
from vfsl.data import check_labels
from vfsl.errors import ConfigError
from vfsl.estimators.base import Federated
from vfsl.estimators.exchange import send_fresh_key
from vfsl.estimators.trees import scoring
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.candidates import LEAST_ROWS
from vfsl.estimators.trees.fitting import Fitting
from vfsl.estimators.trees.gains import Penalty
from vfsl.estimators.trees.holders import open_for_label_holder
from vfsl.estimators.trees.offers import Rule
from vfsl.estimators.trees.partition import Node
from vfsl.estimators.trees.program import DISCLOSURES, PACKING_FOR, Program
from vfsl.estimators.trees.state import Kept
from vfsl.estimators.trees.training import (
    Columns,
    draw_seeds,
    label_state,
    train_feature_holder,
    train_label_holder,
)
from vfsl.estimators.trees.tree import Tree
from vfsl.parts import ModelShare, Part, Roles, Seen, places_in_training, scores_with_kept
from vfsl.values import Array

# Of kept rounds: an attempt does not go on from rounds that were kept in another form.
FORMAT = 2


@dataclass(kw_only=True)
class TreeModel(ABC):
    """Trees over the aligned rows of several parties.

    Parameters
    ----------
    n_estimators : int
        Trees, or rounds of boosting; with several classes each round has a tree a class.
    max_depth : int
    max_bins : int
        Bins a column, at most 255.
    task : {"classes", "regression"}
    categories : {"one-vs-rest", "sorted"}
        How splits on categorical columns look.
    min_rows : int
        Least rows of a bin or a side that others see, at least ten; this protects rows.
    packing : {"auto", "tree", "node", "level"}
        How gradients are encrypted and summed (program.py says what each is for); "auto" takes
        what suits the scheme. Trees are the same.
    keys : {"key-holder", "label-holder"}
        Who holds the secret key. With "label-holder" no third party is needed.
    checkpoints : str or Path, optional
        A folder; each party keeps its finished rounds in its own folder there, and goes on from
        the last round that all of them have.

    Attributes
    ----------
    shares_ : dict of ModelShare by party
    n_rounds_ : int
    stop_reason_ : str
    classes_ : array
        Of a classifier.
    """

    name: ClassVar[str]
    scores_are: ClassVar[str] = "logit"  # or "probability"; of a regression the value itself

    n_estimators: int = 50
    max_depth: int = 5
    max_bins: int = 32
    task: str = "classes"
    categories: str = "one-vs-rest"
    min_rows: int = LEAST_ROWS
    packing: str = "auto"
    keys: str = "key-holder"
    checkpoints: str | Path | None = None

    # ---- what people call ---------------------------------------------------------------------

    def fit(self, fed: Federated, label: tuple[str, str], weights: Array | None = None) -> Self:
        """Train on all aligned rows of a federation; rows without a label only fill nodes.

        Parameters
        ----------
        fed : Federation
        label : (party, column)
        weights : array, optional
            Row weights in the common order, known to the label holder only; (rows,) or, to train
            several models in the same rounds, (rows, models).
        """
        self._check()
        roles = self._roles(fed, label[0])
        parts = fed.parts(label, weights)
        check_labels({party: part.table for party, part in parts.items()}, target=label)
        jobs = {
            party: partial(
                self.train,
                part=parts.get(party),
                roles=roles,
                rng=fed.private_rng(party, self.name),
            )
            for party in self._everyone(roles)
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
        metrics = {"oob": held.state["oob"]} if held.state.get("oob") is not None else {}
        report(metrics=metrics, rounds=held.rounds, stop_reason=held.stop_reason)
        return self

    def decision_function(self, fed: Federated) -> Array:
        """Scores of the aligned rows in the common order, (rows, models · outputs).

        Rows that this model was trained on have their scores at the label holder already: only the
        others are scored, and if there are none, no message is sent. A model that was loaded has
        no training scores and scores all rows.
        """
        self._check_fitted()
        roles = self._roles(fed, self.label_[0])
        parts = fed.parts(self.label_)
        places = places_in_training(self.shares_, parts, roles.label_holder)
        held, new = self.shares_[roles.label_holder], places < 0
        asked = roles.data_holders if new.any() or held.scores is None else ()
        jobs = {
            party: partial(
                self.score_rows,
                part=Part(parts[party].table, parts[party].rows[new]),
                share=self.shares_[party],
                roles=roles,
            )
            for party in asked
        }
        settings = {"model": self.name, "new rows": int(new.sum())}
        answers, report = fed.run(f"predict {self.name}", jobs, settings)
        scores = scores_with_kept(held, places, answers.get(roles.label_holder))
        report(metrics=self._quality(scores, parts[roles.label_holder].target))
        return scores

    def predict_proba(self, fed: Federated) -> Array:
        """Class probabilities of the aligned rows, in the common order.

        Returns
        -------
        array
            (rows, classes) in the order of ``classes_``; for several binary models trained
            together, (rows, models) with the probability of the second class.
        """
        self._check_fitted()
        if self.task == "regression":
            raise ConfigError(f"{type(self).__name__} was trained for a regression: use predict.")
        chances = self.chances(self.decision_function(fed), len(self.classes_))
        if chances.shape[1] == 1:
            return np.hstack([1 - chances, chances])
        return chances

    def predict(self, fed: Federated) -> Array:
        """The most probable class, or the expected number, of each aligned row."""
        self._check_fitted()
        if self.task == "regression":
            scores = self.decision_function(fed)
            return scores[:, 0] if scores.shape[1] == 1 else scores
        chances = self.predict_proba(fed)
        if len(self.classes_) == 2 and self.shares_[self.label_[0]].state["models"] > 1:
            return np.asarray(self.classes_[(chances > 0.5).astype(int)])
        return np.asarray(self.classes_[chances.argmax(axis=1)])

    @property
    def classes_(self) -> Array:
        return np.asarray(self.shares_[self.label_[0]].state["classes"])

    def importances(self, party: str) -> pd.Series[float]:
        """How much each of a party's columns matters, by name, adding up to 1.

        The label holder knows the gain of every split; another party only how many rows its own
        splits have divided, which it counts instead.
        """
        self._check_fitted()
        share = self.shares_[party]
        bins = Bins.from_dict(share.state["bins"])
        found = dict(
            zip((column.name for column in bins.columns), share.state["importance"], strict=True)
        )
        values = pd.Series(found, dtype=float)
        return values / values.sum() if values.sum() > 0 else values

    def gain_by_party(self) -> dict[str, float]:
        """The label holder's view: how much of the total gain came from whose columns."""
        self._check_fitted()
        gains: dict[str, float] = self.shares_[self.label_[0]].state["gain by party"]
        return dict(gains)

    def dump(self, party: str) -> list[dict[str, Any]]:
        """One party's share of each tree in readable form: its own splits, nothing of others."""
        self._check_fitted()
        return readable(self.shares_[party])

    @staticmethod
    def training_scores(share: ModelShare) -> Array:
        """The label holder's scores of the training rows, in the bag or not, (rows, models).

        They need no message: all rows were followed to their leaves while the trees grew.
        """
        if share.scores is None:
            raise ConfigError("Only the label holder's fresh share knows the training scores.")
        return share.scores

    # ---- what every party runs ----------------------------------------------------------------

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator | None = None,
    ) -> ModelShare | None:
        """One party's side of training; None for the key holder, who has no part."""
        self._check()
        if self.keys == "label-holder" and roles.scheme == "bfv":
            raise ConfigError(
                "Without a key holder the scheme of trees must be 'paillier': under 'bfv' whoever "
                "opens sums sees which bins they came from. Got 'bfv' instead."
            )
        if self.packing in ("tree", "level") and roles.scheme == "bfv":
            raise ConfigError(
                f"The packing parameter of {type(self).__name__} must be 'node' or 'auto' under "
                f"'bfv', which sums rows that lie together. Got {self.packing!r} instead."
            )
        channel = channel.within(self.name, DISCLOSURES)
        program = self._program(roles)
        if channel.me == roles.key_holder:
            secret = send_fresh_key(channel, roles)
            open_for_label_holder(channel, roles, program, secret)
            return None
        if part is None:
            raise ConfigError(f"Party {channel.me!r} needs a part of the data to train on.")
        table = part.table.take(part.rows)
        bins = Bins.fit(table, self.max_bins, self.categories)
        codes = bins.transform(table)
        seen = Seen.of(part.table, part.rows)
        settings = {"model": self.name, "format": FORMAT} | self._settings()
        kept = Kept(self.checkpoints, channel.me, settings, (codes, part.target, part.weights))
        mine = Columns(bins, codes, kept)
        if channel.me != roles.label_holder:
            state = train_feature_holder(channel, roles, program, mine)
            return ModelShare(channel.me, self.name, state, seen=seen)
        if rng is None:
            raise ConfigError(f"Party {channel.me!r} holds the label and needs an rng to train.")
        seeds = draw_seeds(kept, rng)
        fitting = self._fitting(channel.me, part, np.random.default_rng([seeds[1], 0, 0]))
        fitted = train_label_holder(channel, roles, program, mine, fitting, self._penalty(), seeds)
        return ModelShare(
            channel.me,
            self.name,
            label_state(roles, bins, fitting, fitted),
            tuple(fitted.history),
            fitted.stop_reason,
            scores=fitted.scores if fitted.kept_scores is None else fitted.kept_scores,
            seen=seen,
        )

    def score_rows(
        self, channel: Channel, part: Part | None, share: ModelShare | None, *, roles: Roles
    ) -> Array | None:
        """One party's side of prediction: the scores, only at the label holder."""
        channel = channel.within(self.name).within("score", scoring.DISCLOSURES)
        if channel.me == roles.key_holder:
            return None
        if part is None or share is None:
            raise ConfigError(f"Party {channel.me!r} needs data and its share of the model.")
        bins = Bins.from_dict(share.state["bins"])
        codes = bins.transform(part.table.take(part.rows))
        if channel.me != roles.label_holder:
            scoring.answer_sides(channel, roles, bins, codes, rules_of(share))
            return None
        trees = [Tree.from_dict(tree) for tree in share.state["trees"]]
        leaf = scoring.find_leaves(channel, roles, bins, codes, trees)
        start = np.asarray(share.state["start"], dtype=np.float64)
        scores = np.tile(start, (len(codes), 1))
        for at, tree in enumerate(trees):
            scores[:, share.state["output"][at]] += np.array(tree.value)[leaf[:, at]]
        return scores

    # ---- what a strategy adds -----------------------------------------------------------------

    @abstractmethod
    def _fitting(self, party: str, part: Part, rng: np.random.Generator) -> Fitting:
        """How goals follow from labels and scores."""

    @abstractmethod
    def _penalty(self) -> Penalty: ...

    def chances(self, scores: Array, classes: int) -> Array:
        """Class probabilities behind scores: of the second class, or of all of several."""
        return np.asarray(expit(scores) if classes == 2 else softmax(scores, axis=-1))

    def _program(self, roles: Roles) -> Program:
        packing = PACKING_FOR[roles.scheme] if self.packing == "auto" else self.packing
        return Program(
            max_depth=self.max_depth,
            bins=self.max_bins,
            categories=self.categories,
            least_rows=self.min_rows,
            packing=packing,
            keys=self.keys,
        )

    def _settings(self) -> dict[str, Any]:
        skip = ("checkpoints",)
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in skip}

    def _quality(self, scores: Array, target: Array | None) -> dict[str, float]:
        state = self.shares_[self.label_[0]].state
        if target is None or state["models"] > 1:
            return {}
        values = np.asarray(target)
        known = ~pd.isna(values)
        if not known.any() or not set(values[known]) <= set(state.get("classes", values[known])):
            return {}
        if self.task == "regression":
            return {"rmse": _rmse(scores[known, 0], values[known])}
        chances = self.chances(scores[known], len(self.classes_))
        return judged_classes(chances, values[known], self.classes_)

    def work(self, feature_holders: int) -> str:
        """The kind of work that picks the scheme where it was left to "auto"."""
        return "trees without a key holder" if self.keys == "label-holder" else "trees"

    def _roles(self, fed: Federated, label_holder: str) -> Roles:
        return fed.roles(label_holder, self.work(1))

    def _everyone(self, roles: Roles) -> Sequence[str]:
        return roles.data_holders if self.keys == "label-holder" else roles.everyone

    def _check_fitted(self) -> None:
        if not hasattr(self, "shares_"):
            raise ConfigError(f"{type(self).__name__} is not fitted yet: call fit first.")

    def _check_range(self, field: str, low: float, high: float, *, open_low: bool = False) -> None:
        value = getattr(self, field)
        if not (low < value if open_low else low <= value) or not value <= high:
            least = "above" if open_low else "at least"
            most = "" if high == np.inf else f" and at most {high}"
            raise ConfigError(
                f"The {field} parameter of {type(self).__name__} must be {least} {low}{most}. "
                f"Got {value!r} instead."
            )

    def _check(self) -> None:
        me = type(self).__name__
        limits = {
            "n_estimators": (1, 1 << 20),
            "max_depth": (0, 30),
            "max_bins": (2, 255),
            "min_rows": (LEAST_ROWS, 1 << 40),
        }
        for field, (low, high) in limits.items():
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ConfigError(
                    f"The {field} parameter of {me} must be an integer from {low} to {high}. "
                    f"Got {value!r} instead."
                )
        choices = {
            "task": ("classes", "regression"),
            "categories": ("one-vs-rest", "sorted"),
            "packing": ("auto", "tree", "node", "level"),
            "keys": ("key-holder", "label-holder"),
        }
        for field, known in choices.items():
            if getattr(self, field) not in known:
                raise ConfigError(
                    f"The {field} parameter of {me} must be one of {known}. "
                    f"Got {getattr(self, field)!r} instead."
                )


def rules_of(share: ModelShare) -> dict[Node, Rule]:
    """A feature holder's own splits by tree and node."""
    return {
        Node(tree, node): (column, code, missing)
        for tree, node, column, code, missing in share.state["rules"]
    }


def readable(share: ModelShare) -> list[dict[str, Any]]:
    """Own splits as sentences' worth of data: tree, node, column and what goes left."""
    bins = Bins.from_dict(share.state["bins"])
    if "rules" in share.state:
        rules = rules_of(share)
    else:
        rules = {
            Node(at, node): rule
            for at, tree in enumerate(share.state["trees"])
            for node, rule in Tree.from_dict(tree).rules.items()
        }
    return [
        {
            "tree": node.tree,
            "node": node.number,
            **bins.columns[column].describe(code),
            "missing": "left" if missing else "right",
        }
        for node, (column, code, missing) in sorted(rules.items())
    ]


def judged_classes(chances: Array, target: Array, classes: Array) -> dict[str, float]:
    """AUC of two classes, accuracy of several."""
    values = np.asarray(target.tolist())
    if len(classes) > 2:
        return {"accuracy": float((classes[chances.argmax(axis=1)] == values).mean())}
    positive = values == classes[1]
    if positive.all() or not positive.any():
        return {}
    return {"auc": float(roc_auc_score(positive, chances[:, 0]))}


def _rmse(scores: Array, target: Array) -> float:
    return float(np.sqrt(np.mean((scores - target.astype(np.float64)) ** 2)))
