"""What all tree models share: parameters, a party's sides, what people ask of a fitted model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from vfsl.channel import Channel
from vfsl.crypto import SCHEMES
from vfsl.crypto.shares import Session
from vfsl.errors import ConfigError
from vfsl.estimators.base import NOTHING_KEPT, Ask, Estimator
from vfsl.estimators.exchange import send_fresh_key
from vfsl.estimators.shared import fit as shared_fit
from vfsl.estimators.trees import explaining, scoring, shared_scoring
from vfsl.estimators.trees.absent import leave_out
from vfsl.estimators.trees.binning import MOST_BINS, Bins
from vfsl.estimators.trees.explanation import play_explanation
from vfsl.estimators.trees.feature_holder import open_for_label_holder
from vfsl.estimators.trees.hidden_offers import deal_best
from vfsl.estimators.trees.protocol import DISCLOSURES, LEAST_ROWS, Growth, choose_packing
from vfsl.estimators.trees.shared_sums import deal_sums, join_pairs
from vfsl.estimators.trees.state import add_leaves, rules_of, trees_for, trees_of
from vfsl.estimators.trees.training import (
    Label,
    Strategy,
    draw_seeds,
    label_state,
    read_label,
    train_feature_holder,
    train_label_holder,
)
from vfsl.estimators.trees.tree import Node, Tree
from vfsl.federation import Federation
from vfsl.params import param, settings_of
from vfsl.parts import ModelShare, Part, Roles, Seen
from vfsl.site import Site
from vfsl.store import Checkpoints
from vfsl.values import Array

# Of kept rounds: an attempt does not go on from rounds that were kept in another form.
FORMAT = 4


@dataclass(kw_only=True)
class TreeModel(Estimator):
    """Trees over the aligned rows of several parties; rows without a label only fill nodes.

    Attributes
    ----------
    shares_ : dict of ModelShare by party
    n_rounds_ : int
    stop_reason_ : str
    classes_ : array
        Of a classifier.
    """

    keeps_checkpoints = True
    class_scores_are: ClassVar[Literal["logit", "probability"]] = "logit"

    n_estimators: int = param(
        50,
        "Number of trees, or rounds of boosting; with several classes each round has a tree per "
        "class.",
        ge=1,
    )
    max_depth: int = param(5, "Maximum depth of a tree; 0 is a constant.", ge=0, le=30)
    max_bins: int = param(
        32,
        "Maximum number of bins per column; a frequent value gets one to itself.",
        ge=2,
        le=MOST_BINS,
    )
    task: Literal["classes", "regression"] = param("classes", "What the label is.")
    categories: Literal["one-vs-rest", "sorted"] = param(
        "one-vs-rest",
        "Whether a split on a categorical column sends one category to the left, or all categories "
        "up to one in their natural order.",
    )
    min_rows: int = param(
        1,
        "Fewest rows on each side of a split: a node whose best split leaves fewer is a leaf. "
        "With candidates='sums' also of every bin, and at least ten, whatever is set here: this "
        "protects rows.",
        ge=1,
    )
    candidates: Literal["auto", "best", "sums"] = param(
        "auto",
        "What the label holder learns of feature holders' candidates: 'best', on shares and under "
        "plain, how good the best one of each node is; 'sums' the sums of all, nameless and "
        "shuffled, and then every feature holder learns the sides of all rows. That is faster, and "
        "the only way under schemes that encrypt. 'auto' is 'best' where that is possible.",
    )
    block_dropout: float = param(
        0.0,
        "Fraction of rows that train as if a feature holder had no cells for them, so that the "
        "model can predict without that party; 0 for none.",
        ge=0,
        le=0.9,
    )
    packing: Literal["auto", "tree", "node"] = param(
        "auto",
        "How gradients are encrypted and summed: once per tree, or again for the nodes of each "
        "level; 'auto' takes what suits the scheme. On shares and under 'plain' nothing is packed. "
        "Trees are the same.",
    )
    keys: Literal["key-holder", "label-holder"] = param(
        "key-holder",
        "Who holds the secret key. With 'label-holder' no third party is needed, and predictions "
        "show the label holder the sides that new rows take.",
    )

    # ---- declared facts -------------------------------------------------------------------------

    @property
    def predicts(self) -> Literal["classes", "numbers"]:
        return "numbers" if self.task == "regression" else "classes"

    @property
    def scores_are(self) -> Literal["logit", "probability", "value"]:
        return "value" if self.task == "regression" else self.class_scores_are

    @property
    def knows_training_scores(self) -> bool:
        # All rows are followed to their leaves while the trees grow, as if nobody were absent only
        # if nobody is.
        return self.block_dropout == 0

    @property
    def needs_key_holder(self) -> bool:
        return self.keys == "key-holder"

    @property
    def scores_need_key_holder(self) -> bool:
        return self.keys == "key-holder"

    @property
    def predicts_without(self) -> bool:
        return True

    def work(self, feature_holders: int, weighted: bool = False) -> str:
        return "trees" if self.needs_key_holder else "trees without a key holder"

    def rounds_planned(self) -> int:
        return self.n_estimators

    def asks(self, scheme: str = "auto") -> tuple[Ask, ...]:
        return (("disclosure", "tree partitions"),)

    def numbers_per_row(self) -> int:
        return 0  # training shows sides of rows, counted as what they say of binned columns

    # ---- what people ask of a fitted model ------------------------------------------------------

    def importances(self, party: str) -> pd.Series[float]:
        """How much each of a party's columns matters, by name, adding up to 1.

        The label holder knows the gain of every split. Another party does not: it counts its own
        splits, or with ``candidates="sums"`` the rows that they have divided.
        """
        self.check_fitted()
        return _read_importances(self.shares_[party])

    def tell_columns(self, share: ModelShare) -> tuple[str, pd.DataFrame | None]:
        found = _read_importances(share).sort_values(ascending=False, kind="stable")
        return "importances", found.rename("importance").rename_axis("column").to_frame()

    def rate_parties(self, share: ModelShare) -> dict[str, float]:
        gains = dict(share.state.get("gain by party", {}))
        total = sum(gains.values())
        return {party: gain / total for party, gain in gains.items()} if total > 0 else {}

    def gain_by_party(self) -> dict[str, float]:
        """The label holder's view: how much of the total gain came from whose columns."""
        return dict(self.held_share.state["gain by party"])

    def score_subsets(self, fed: Federation) -> pd.DataFrame:
        """How good predictions are with all parties, without each one, and without all others.

        Ask for rows that the model was not trained on. On shares every line but the last one shows
        the label holder one more score per row and output.

        Returns
        -------
        DataFrame
            A line per set of parties; AUC, accuracy, or R² and root mean squared error.
        """
        parts = fed.parts(self.label_)
        target = parts[self.label_[0]].target
        roles = fed.roles(self.label_[0], self.work(len(parts) - 1))
        lines = {
            ", ".join(roles.without(offline).data_holders): self.measure_quality(
                self.held_share, self.decision_function(fed, offline=offline), target
            )
            for offline in roles.list_absences()
        }
        return pd.DataFrame.from_dict(lines, orient="index")

    @property
    def subset_scores_(self) -> dict[str, dict[str, float]]:
        """How good the model is on its validation rows with "all" parties, and "alone".

        No further message is needed for these two; `score_subsets` asks for the others.
        """
        found = self.held_share.state.get("subset scores")
        if not found:
            raise ConfigError(
                "Only a model with validation rows knows how good it is without others: fit with "
                "validation above 0, or call score_subsets on rows that it was not trained on."
            )
        return dict(found)

    def explain(self, fed: Federation, party: str | None = None) -> pd.DataFrame:
        """What moves the score of each aligned row: whose columns, or which of a party's columns.

        Parameters
        ----------
        fed : Federation
        party : str, optional
            The party that learns what each of its own columns adds. By default the label holder
            learns what each party adds: exact Shapley values, which with the base add up to the
            score. By column, numbers are changes of the expected score along the way of the row.

        Returns
        -------
        DataFrame
            A line per row; with several classes under their names. The mean of absolute values says
            what matters in all: ``explain(fed).abs().mean()``.
        """
        self.check_fitted()
        holder, roles = self.label_[0], fed.roles(self.label_[0])
        if party is not None and party not in roles.data_holders:
            raise ConfigError(
                f"The party parameter of explain must be one of {', '.join(roles.data_holders)}. "
                f"Got {party!r} instead."
            )
        if self.keys != "key-holder":
            raise ConfigError("Scores are explained on shares, which needs a key holder who deals.")
        if self.held_share.state["models"] > 1:
            raise ConfigError("Only one model can be explained, not several trained together.")
        absent = self.find_offline(roles.data_holders, ())
        if absent:
            raise ConfigError(
                "Scores are explained with all parties of the training; "
                f"{', '.join(absent)} must be aligned."
            )
        found = fed.play(
            partial(self.explain_rows, label=self.label_, party=party),
            own={name: {"share": share} for name, share in self.shares_.items()},
            parties=roles.everyone,
        )
        frame: pd.DataFrame = found[party or holder]
        return frame

    def explain_rows(
        self,
        site: Site,
        channel: Channel,
        label: tuple[str, str],
        *,
        party: str | None = None,
        share: ModelShare | None = None,
    ) -> pd.DataFrame | None:
        """One party's side of `explain`: the frame at the party that it is for."""
        roles = site.roles(label[0], self.work(len(site.standing.aligned) - 1))
        settings = {"model": self.name, "party": party, "scheme": roles.scheme}
        with (
            site.records(f"explain {self.name}", channel, settings),
            shared_fit.join(
                channel.within(self.name), roles, None, explaining.DISCLOSURES
            ) as session,
        ):
            return play_explanation(session, site.part(label), share, roles, party)

    def dump(self, party: str) -> list[dict[str, Any]]:
        """One party's own splits in readable form: tree, node, column and what goes left."""
        self.check_fitted()
        share = self.shares_[party]
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

    def training_metrics(self, share: ModelShare) -> dict[str, float]:
        oob, subsets = share.state.get("oob"), share.state.get("subset scores", {})
        found = {} if oob is None else {"oob": oob}
        for who, measured in subsets.items():
            found |= {f"{name} on validation rows, {who}": one for name, one in measured.items()}
        return found

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

        Each data holder keeps its finished rounds, and a later attempt goes on from the last one
        that all of them have.
        """
        self.check()
        scheme = SCHEMES.find(roles.scheme)
        if self.keys == "label-holder" and scheme.opener_sees_places:
            raise ConfigError(
                f"Without a key holder the scheme of trees must be 'paillier': under "
                f"{scheme.name!r} whoever opens sums sees which bins they came from. "
                f"Got {scheme.name!r} instead."
            )
        if self.packing == "tree" and scheme.rows_together:
            raise ConfigError(
                f"The packing parameter of {type(self).__name__} must be 'node' or 'auto' under "
                f"{scheme.name!r}, which sums rows that lie together. Got {self.packing!r} instead."
            )
        if self.candidates == "best" and not self._finds_best(roles):
            raise ConfigError(
                f"The candidates parameter of {type(self).__name__} must be 'sums' or 'auto' under "
                f"{scheme.name!r} and without a key holder: the best candidate is found on shares. "
                f"Got 'best' instead."
            )
        channel = channel.within(self.name, DISCLOSURES)
        growth = self._growth(roles)
        if channel.me == roles.key_holder:
            if growth.hides:
                deal_best(channel, roles, rng)
            elif growth.on_shares:
                deal_sums(channel, roles, rng)
            elif not growth.best:  # without a key where nothing is hidden
                open_for_label_holder(channel, roles, growth, send_fresh_key(channel, roles))
            return None
        if part is None:
            raise ConfigError(f"Party {channel.me!r} needs a part of the data to train on.")
        if not growth.on_shares:
            return self._train_part(channel, part, roles, growth, rng, kept, {})
        with join_pairs(channel, roles, rng) as sessions:
            return self._train_part(channel, part, roles, growth, rng, kept, sessions)

    def _train_part(
        self,
        channel: Channel,
        part: Part,
        roles: Roles,
        growth: Growth,
        rng: np.random.Generator | None,
        kept: Checkpoints,
        sessions: Mapping[str, Session],
    ) -> ModelShare:
        """A data holder's side; ``sessions`` are those in which sums are shared."""
        table = part.table.take(part.rows)
        bins = Bins.fit(table, self.max_bins, self.categories)
        codes = bins.transform(table)
        seen = Seen.of(part.table, part.rows)
        facts = {"model": self.name, "format": FORMAT} | settings_of(self)
        kept = kept.within("rounds", facts, codes, part.target, part.weights)
        if channel.me != roles.label_holder:
            state = train_feature_holder(channel, roles, growth, bins, codes, kept, sessions)
            return ModelShare(channel.me, self.name, state, seen=seen)
        if rng is None:
            raise ConfigError(f"Party {channel.me!r} holds the label and needs an rng to train.")
        seeds = draw_seeds(kept, rng)
        label = read_label(channel.me, part, self.task)
        strategy = self._strategy(label, np.random.default_rng([seeds[1], 0, 0]))
        # Rounding errors go from row to row: by their ids, so that no order of rows matters.
        order = np.argsort(np.asarray(table.ids).astype(str), kind="stable")
        ensemble = train_label_holder(
            channel, roles, growth, bins, codes, kept, strategy, seeds, sessions, order
        )
        share = ModelShare(
            channel.me,
            self.name,
            label_state(roles, bins, label, strategy, ensemble),
            tuple(ensemble.history),
            ensemble.stop_reason,
            scores=ensemble.final_scores if self.knows_training_scores else None,
            seen=seen,
        )
        subsets = self._judge_subsets(share, part, strategy.judges, ensemble.final_scores)
        return replace(share, state={**share.state, "subset scores": subsets})

    def _judge_subsets(
        self, share: ModelShare, part: Part, judges: Array | None, scores: Array
    ) -> dict[str, Any]:
        """How good the model is on its validation rows, with all parties and alone."""
        if judges is None:
            return {}
        target = np.asarray(part.target)[judges]
        alone = self.score_alone(Part(part.table, part.rows[judges]), share)
        return {
            "all": self.measure_quality(share, scores[judges], target),
            "alone": self.measure_quality(share, alone, target),
        }

    def score_rows(
        self, channel: Channel, part: Part | None, share: ModelShare | None, *, roles: Roles
    ) -> Array | None:
        """One party's side of scoring: the scores, only at the label holder.

        With a key holder, who deals random words, nothing but the scores is opened. With
        ``keys="label-holder"`` nobody can deal, and sides of rows are shown level by level.
        """
        channel = channel.within(self.name)
        if channel.me != roles.key_holder and (part is None or share is None):
            raise ConfigError(f"Party {channel.me!r} needs data and its share of the model.")
        if not roles.feature_holders or not self.scores_need_key_holder:
            return self._score_by_sides(channel, part, share, roles)
        with shared_fit.join(channel, roles, None, shared_scoring.DISCLOSURES) as session:
            return self._score_on_shares(session, part, share, roles)

    def _score_on_shares(
        self, session: Session, part: Part | None, share: ModelShare | None, roles: Roles
    ) -> Array | None:
        if part is None or share is None:
            shared_scoring.deal_scores(session, roles.label_holder)
            return None
        bins = Bins.from_dict(share.state["bins"])
        own = bins, bins.transform(part.table.take(part.rows))
        if session.me != roles.label_holder:
            shared_scoring.answer_scores(session, roles.label_holder, own, rules_of(share))
            return None
        trees, outputs = trees_for(share, roles), share.state["output"]
        start = np.asarray(share.state["start"], dtype=np.float64)
        return shared_scoring.lead_scores(session, own, trees, outputs, start)

    def _score_by_sides(
        self, channel: Channel, part: Part | None, share: ModelShare | None, roles: Roles
    ) -> Array | None:
        channel = channel.within("score", scoring.DISCLOSURES)
        if part is None or share is None:
            return None
        bins = Bins.from_dict(share.state["bins"])
        codes = bins.transform(part.table.take(part.rows))
        if channel.me != roles.label_holder:
            scoring.answer_sides(channel, roles, bins, codes, rules_of(share))
            return None
        trees = trees_for(share, roles)
        leaf = scoring.find_leaves(channel, roles, bins, codes, trees)
        return add_leaves(share, trees, leaf)

    def check_alone(self, share: ModelShare) -> None:
        """Every tree can: rows go to the heavier side at the splits of others."""

    def score_alone(self, part: Part, share: ModelShare) -> Array:
        """The scores of rows by the label holder alone, without a message."""
        bins, trees = Bins.from_dict(share.state["bins"]), leave_out(trees_of(share), [])
        leaf = scoring.find_own_leaves(bins, bins.transform(part.table.take(part.rows)), trees)
        return add_leaves(share, trees, leaf)

    def note_offline(self, offline: Sequence[str]) -> tuple[str, ...]:
        if not offline or self.block_dropout > 0:
            return ()
        return (
            f"The model was not trained to do without {' and '.join(offline)} (block_dropout is "
            "0): rows go to the heavier side at each split of theirs.",
        )

    # ---- what a strategy adds -------------------------------------------------------------------

    @abstractmethod
    def _strategy(self, label: Label, rng: np.random.Generator) -> Strategy:
        """How trees follow each other; computed at the label holder."""

    def _growth(self, roles: Roles) -> Growth:
        """How trees grow; all parties know it."""
        best = self.candidates != "sums" and self._finds_best(roles)
        return Growth(
            max_depth=self.max_depth,
            block_dropout=self.block_dropout,
            least_rows=self.min_rows if best else max(self.min_rows, LEAST_ROWS),
            best=best,
            packing=choose_packing(SCHEMES.find(roles.scheme))
            if self.packing == "auto"
            else self.packing,
            keys=self.keys,
            on_shares=roles.scheme == "shares",
        )

    def _finds_best(self, roles: Roles) -> bool:
        """Whether the best candidates can be found: on shares, or where nothing is hidden."""
        return self.keys == "key-holder" and roles.scheme in ("shares", "plain")


def _read_importances(share: ModelShare) -> pd.Series[float]:
    names = [column.name for column in Bins.from_dict(share.state["bins"]).columns]
    values = pd.Series(dict(zip(names, share.state["importance"], strict=True)), dtype=float)
    return values / values.sum() if values.sum() > 0 else values
