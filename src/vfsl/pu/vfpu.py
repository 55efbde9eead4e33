"""VFPU: reliable positives from positive and unlabelled rows, across parties.

Holds   the label holder: columns and marks (+1 known positive, −1 unlabelled); feature holders:
        columns; the key holder: the secret key, no data; the positive holder: ids, after the end.
Learns  the label holder: one out-of-bag value for each row (all training scores of tree bases).
        Feature holders: with a linear base on shares nothing, else what the base shows them, and
        with ``row_lists="told"`` who the positives are. The key holder: sizes, or uniformly masked
        numbers. The positive holder: see deliver.py.

Who is positive, who trains and who is out of bag are private row weights and votes on shares, or
enter as encrypted weights and private factors of encrypted scores: all stay at the label holder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from scipy.special import expit

from vfsl.channel import Channel
from vfsl.data import PartyTable, check_labels
from vfsl.data.checks import check_choice
from vfsl.errors import ConfigError
from vfsl.estimators.alone import fit_alone, score_alone
from vfsl.estimators.base import Ask, Estimator, name_ways
from vfsl.federation import Federation
from vfsl.params import Settable, check_params, documented, param, settings_of
from vfsl.parts import ModelShare, Part, Roles, places_in_training, scores_with_kept
from vfsl.progress import OnEvent
from vfsl.pu import bases
from vfsl.pu.bases import BagLogistic
from vfsl.pu.deliver import deliver_side
from vfsl.pu.prior import Calibration, Prior
from vfsl.pu.search import PositiveSearch
from vfsl.pu.shared_tasks import score_side
from vfsl.pu.training import DISCLOSURES, BagTrainer, follow_training
from vfsl.showing import show_table
from vfsl.site import Site
from vfsl.store import Checkpoints
from vfsl.values import Array

# What a preset stands for, where a parameter is left to it.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {
        "outer": 1,
        "stop": "early",
        "promote": None,
        "row_lists": "hidden",
        "spies": False,
    },
    "paper": {
        "outer": 3,
        "stop": "outer",
        "promote": 0.02,
        "row_lists": "told",
        "spies": True,
    },
}


@documented
@dataclass
class VFPU(Settable):
    """Find reliable positives among unlabelled rows whose columns are spread over parties.

    Attributes
    ----------
    scores_ : Series
        How likely each unlabelled row is positive, by id of the label holder.
    reliable_positives_ : Series
        The promoted rows of these, most likely first.
    oob_mean_ : Series
        The raw out-of-bag score of each unlabelled row, before calibration: the mean probability
        by the bags that it is not in. Where no score of a single bag is shown (base 'lr' with
        hidden row lists), the probability of the mean logit.
    oob_score_ : float
        How often a held-out known positive ranks above an unlabelled row.
    prior_ : Prior
        Which fraction of the unlabelled rows is positive, with an interval and cross-checks.
    history_ : DataFrame
        One line per iteration.
    stop_reason_ : str
        One of `vfsl.pu.REASONS`.
    warnings_ : tuple of str
        What to beware of in this result.
    columns_ : DataFrame
        How known positives differ from unlabelled rows of the same score, by column of the label
        holder.
    shares_ : dict of ModelShare
        Each party's part of the model.
    """

    name: ClassVar[str] = "vfpu"

    base: str | Estimator = param(
        "lr", "What each bag trains: lr, rf, gbdt, xgb, lgb, or in Python an estimator."
    )
    outer: int | None = param(
        None,
        "Number of iterations: after each, the best unlabelled rows join the positives. By default "
        "1, and 3 with preset 'paper'; more than one promoted batch rather hurts.",
        ge=1,
    )
    stop: Literal["early", "outer"] | None = param(
        None,
        "'outer': exactly as many iterations as the parameter outer says, as with preset 'paper'. "
        "'early': fewer, if the promoted rows reach half of the estimated hidden positives, the "
        "ranking no longer changes, or positives would outnumber unlabelled rows.",
    )
    rounds: int = param(20, "Bags per iteration.", ge=1)
    promote: float | None = param(
        None,
        "Fraction of the unlabelled rows that each iteration promotes to reliable positives. By "
        "default half of the positives that are estimated to be hidden, and 0.02 with preset "
        "'paper'.",
        ge=0,
        le=1,
    )
    preset: Literal["default", "paper"] = param(
        "default",
        "Values of parameters that are not given: what measured best, or the whole published loop "
        "('paper').",
        formerly={"seed": "paper"},
    )
    row_lists: Literal["hidden", "told"] | None = param(
        None,
        "'hidden': nobody but the label holder learns who is positive. 'told': feature holders "
        "receive the rows of each bag, so they learn it, and each bag trains on its own rows only.",
        formerly={"seed": "told"},
    )
    spies: bool | None = param(
        None, "Draw pseudo-negatives only from reliable negatives that spies have found."
    )
    spy_share: float = param(0.15, "Fraction of the known positives that spy.", ge=0, le=1)
    spy_threshold: float = param(
        0.1, "Fraction of the spies that may score below a reliable negative.", ge=0, le=1
    )
    folds: int = param(
        5,
        "Number of parts in which known positives are held out, by models of their own in the same "
        "rounds, to estimate the prior and to calibrate.",
        ge=2,
    )
    rare_rows_per_column: float | None = param(
        None,
        "With base 'lr' in the protocol 'rounds': how many known positives each model needs per "
        "column of the widest feature holder, which could otherwise find them by solving its "
        "gradients; 1 by default. On shares it sees none.",
        ge=0,
    )

    # ---- what it says of itself -----------------------------------------------------------------

    def check(self) -> None:
        """Refuse parameters that cannot be used."""
        check_params(self)
        self.make_base()

    def settings(self) -> dict[str, Any]:
        """The parameters as all parties know them: the preset is filled in."""
        given = settings_of(self) | {"base": self.make_base().name}
        preset = PRESETS[given["preset"]]
        return given | {name: preset[name] for name in preset if given[name] is None}

    def asks(self, deliver: bool = False, scheme: str = "auto") -> tuple[Ask, ...]:
        """What every party must have allowed: ("disclosure" or "output", name in party.toml).

        ``deliver`` says whether reliable positives go to the positive holder.
        """
        asked: list[Ask] = []
        if self._listed:
            asked.append(("disclosure", "row lists"))
        base = self.make_base()
        if not bases.fits_on_shares(base) or scheme not in ("auto", *bases.SHARES):
            asked += base.asks(scheme)  # on shares bags show nothing but their sums
        if deliver:
            asked.append(("disclosure", "strangers"))
        return (*asked, ("output", "reliable positives"))

    def numbers_per_row(self) -> int:
        """The fewest exact scores of each row that the label holder sees."""
        return self.make_base().numbers_per_row()

    def make_base(self) -> Estimator:
        """What each bag trains."""
        base = bases.make_base(self.base)
        if self.rare_rows_per_column is None:
            return base
        if not isinstance(base, BagLogistic):
            raise ConfigError(
                "The rare_rows_per_column parameter of VFPU is for base 'lr'. Got base "
                f"{base.name!r} with it instead."
            )
        return replace(base, rare_rows_per_column=self.rare_rows_per_column)

    # ---- what users call ------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        """What was asked of it and how it ended, in a notebook."""
        ended = getattr(self, "stop_reason_", None)
        facts: list[tuple[str, object]] = [("stopped", ended)] if ended else []
        title = "VFPU" if ended else "VFPU, not fitted"
        return show_table(title, ("setting", "value"), [*facts, *settings_of(self).items()])

    def fit(
        self,
        fed: Federation,
        positives: str = "A",
        label_holder: str = "C",
        *,
        state: Mapping[str, Path | str] | None = None,
        on_event: OnEvent | None = None,
    ) -> Self:
        """Learn from the aligned rows of a federation; marks them first if that was not done.

        Parameters
        ----------
        fed : Federation
            Aligned; the positive holder is not part of the alignment.
        positives : str
            The party whose ids are known positives.
        label_holder : str
            The aligned party that holds the marks.
        state : mapping of party to folder, optional
            Where a party keeps finished training tasks: the same call goes on from there.
        on_event : callable, optional
            Hears by `Event` how far the bags are, where parties run in this process.
        """
        self.check()
        if fed.share(label_holder).marks is None:
            fed.mark(positives=positives, label_holder=label_holder)
        check_labels(fed.tables, fed.roles(label_holder).data_holders)
        keeping = fed.keeping(state, on_event)
        learn = replace(self).learn  # nothing of an earlier fit goes to the parties
        shares = keeping.play(partial(learn, positives=positives, label_holder=label_holder))
        for folder in (state or {}).values():
            Checkpoints(Path(folder) / self.name).clear()
        self.shares_: dict[str, ModelShare] = {
            party: share for party, share in shares.items() if share is not None
        }
        self.label_holder_, self.positive_holder_ = label_holder, positives
        self._take_in(self.shares_[label_holder], fed.sites[label_holder])
        return self

    def predict_proba(self, fed: Federation, *, rows: str = "overlap") -> Array:
        """How likely the aligned rows of a federation are positive, in the common order.

        Over trees the label holder has the scores of the training rows: nobody is asked for them.

        Parameters
        ----------
        fed : Federation
        rows : {"overlap", "all"}
            "all": all rows of the label holder in the order of its table; those that the others
            lack by a model of its own columns, which learned from the joint scores. A federation
            of the label holder alone (`Federation.of_one`) has all its rows scored so.

        Returns
        -------
        array (rows, 2)
            Not positive, positive; for rows of which one does not know whether they are marked.
        """
        self._check_fitted()
        check_choice("VFPU.predict_proba", "rows", rows, ("overlap", "all"))
        holder = self.label_holder_
        data_holders = fed.roles(holder).data_holders
        mine, held = fed.sites[holder], self.shares_[holder]
        if len(data_holders) == 1:
            alone = predict_alone(held, mine.own_table(), mine.rows().overlap)
            return np.column_stack([1 - alone, alone])
        parts = {p: Part(fed.tables[p], fed.share(p).overlap) for p in data_holders}
        places = places_in_training(self.shares_, parts, holder)
        answer = replace(self).answer  # without the shares of all parties
        answers = fed.play(
            partial(answer, label_holder=holder, asked=places < 0),
            own={party: {"share": self.shares_.get(party)} for party in data_holders},
        )
        positive = scores_with_kept(held, places, answers[holder])[:, 0]
        if rows == "all":
            alone = predict_alone(held, mine.own_table(), mine.rows().rest)
            every = np.concatenate([mine.rows().overlap, mine.rows().rest])
            positive = np.concatenate([positive, alone])[np.argsort(every)]
        return np.column_stack([1 - positive, positive])

    def predict_frame(self, fed: Federation, *, rows: str = "overlap") -> pd.DataFrame:
        """`predict_proba` with the label holder's ids, a line per row.

        Returns
        -------
        DataFrame
            The id column(s), ``probability``, and where rows could be scored in more than one way
            ``scored_by``: "joint" or "own columns".
        """
        chances, site = self.predict_proba(fed, rows=rows)[:, 1], fed.sites[self.label_holder_]
        found, more = site.rows().overlap, {}
        if rows == "all":
            found = np.sort(np.concatenate([found, site.rows().rest]))
        if rows == "all" or len(site.standing.aligned) == 1:
            more = {"scored_by": name_ways(site, found, ())}
        table = site.own_table().take(found)
        return table.to_frame()[list(table.id_columns)].assign(probability=chances, **more)

    def deliver(self, fed: Federation, consent: Sequence[str] = ()) -> pd.Series[float]:
        """Send the reliable positives to the positive holder, who receives ids of strangers.

        Parameters
        ----------
        fed : Federation
        consent : sequence of str
            The parties that have agreed; all that hold columns must.

        Returns
        -------
        Series
            What the positive holder received: scores by id.
        """
        self._check_fitted()
        holder, receiver = self.label_holder_, self.positive_holder_
        data_holders = fed.roles(holder).data_holders
        for party in consent:
            if party not in data_holders:
                raise ConfigError(
                    "The consent parameter of deliver must name parties that hold columns: "
                    f"{', '.join(data_holders)}. Got {party!r} instead."
                )
        answers = fed.play(
            partial(deliver_side, positives=receiver, label_holder=holder, consent=consent),
            own={holder: {"reliable": self.reliable_positives_}},
        )
        received: pd.Series[float] = answers[receiver]
        return received

    # ---- what every party plays -----------------------------------------------------------------

    def learn(
        self, site: Site, channel: Channel, positives: str, label_holder: str
    ) -> ModelShare | None:
        """One party's whole side of learning, wherever that party is; its share of the model.

        The label holder's aligned rows have been marked by the ids of ``positives``.
        """
        self.check()
        roles, base = self._roles(site, label_holder), self.make_base()
        if site.me not in roles.everyone:
            return None
        bases.check_scheme(base, roles)
        settings = self.settings() | {"positives": positives, "label_holder": label_holder}
        settings |= {"scheme": roles.scheme, "security": roles.security}
        with site.records(self.name, channel, settings) as outcome:
            channel = channel.within(self.name, DISCLOSURES)
            rng = site.private_rng(self.name)
            kept = site.checkpoints(self.name, settings, settings_of(base))
            if site.me != label_holder:
                return follow_training(channel, base, site.part(), roles, rng, kept)
            part = Part(site.own_table(), site.rows().overlap, site.rows().marks)
            trainer = BagTrainer(channel, base, part, roles, rng, kept)
            share = PositiveSearch(trainer, settings, rng, partial(site.tell, self.name)).run()
            share = _with_alone(share, part)
            outcome.metrics = {
                "unlabelled": len(share.state["unlabelled rows"]),
                "reliable positives": len(share.state["reliable rows"]),
                "oob score": share.state["oob score"],
                **{f"prior {name}": value for name, value in share.state["prior"].items()},
                **_judge_alone(share),
            }
            outcome.rounds, outcome.stop_reason = share.rounds, share.stop_reason
            outcome.notes, outcome.details = share.notes, share.state["picture"]
        return share

    def answer(
        self,
        site: Site,
        channel: Channel,
        label_holder: str,
        *,
        share: ModelShare | None = None,
        asked: Array | None = None,
    ) -> Array | None:
        """One party's whole side of a prediction: probabilities (rows, 1) at the label holder.

        ``asked`` says which of the aligned rows are to be scored; all by default.
        """
        roles, base = self._roles(site, label_holder), self.make_base()
        if site.me not in roles.everyone:
            return None
        settings: dict[str, Any] = {"model": self.name}
        settings |= {"scheme": roles.scheme, "security": roles.security}
        part = site.part()
        if asked is not None:
            settings["new rows"] = int(asked.sum())
            part = None if part is None else Part(part.table, part.rows[asked])
        with site.records(f"predict {self.name}", channel, settings):
            if asked is not None and not asked.any():
                return None
            models, members = self._load_members(share)
            scores = []
            for number, member in enumerate(members):
                here = channel.within(self.name).within(f"member {number}")
                if bases.on_shares(base, roles):
                    scores.append(score_side(here, part, member, base, roles, models))
                    continue
                if member is not None and not base.knows_training_scores:
                    member = bases.average_models(member, models)
                scores.append(base.score_rows(here, part, member, roles=roles))
        if site.me != label_holder or share is None:
            return None
        counted = [np.asarray(each)[:, :models] for each in scores]
        calibration = Calibration(**share.state["calibration"])
        shown = base.knows_training_scores or self._listed
        return bases.to_probabilities(base, counted, calibration, shown)

    # ---- internals ------------------------------------------------------------------------------

    @property
    def _listed(self) -> bool:
        return bool(self.settings()["row_lists"] == "told")

    def _roles(self, site: Site, label_holder: str) -> Roles:
        base, others = self.make_base(), len(site.standing.aligned) - 1
        fits = bases.fits_on_shares(base)
        return site.roles(label_holder, "linear" if fits else base.work(others, weighted=True))

    def _load_members(self, share: ModelShare | None) -> tuple[int, Sequence[ModelShare | None]]:
        """How many models of each member count, and a party's shares of them."""
        if share is not None:
            loaded = [ModelShare.from_dict(member) for member in share.state["members"]]
            return share.state["models"], loaded
        return 0, [None] * (self.rounds if self._listed else 1)

    def _take_in(self, share: ModelShare, site: Site) -> None:
        """The label holder's results as attributes, by its ids."""
        self.scores_ = scores_of(share, site)
        self.reliable_positives_ = reliable_of(share, site)
        self.oob_mean_ = raw_scores_of(share, site)
        self.oob_score_: float = share.state["oob score"]
        self.prior_ = Prior(**share.state["prior"])
        self.history_ = pd.DataFrame(list(share.rounds))
        self.stop_reason_ = share.stop_reason
        self.warnings_ = share.notes
        self.columns_ = pd.DataFrame(share.state["columns"])

    def _check_fitted(self) -> None:
        if not hasattr(self, "shares_"):
            raise ConfigError("VFPU is not fitted yet: call fit first.")


def scores_of(share: ModelShare, site: Site) -> pd.Series[float]:
    """How likely each unlabelled row is positive, by the label holder's share and its ids."""
    rows = np.asarray(share.state["unlabelled rows"], dtype=np.int64)
    index = pd.Index(_common_ids(site)[rows], name="id", dtype=object)
    return pd.Series(share.state["probabilities"], index=index, name="score", dtype=float)


def _with_alone(share: ModelShare, part: Part) -> ModelShare:
    """The label holder's share with a model of its own columns, for rows that nobody else has.

    It learns how likely each aligned row is positive: known positives are, for the others the joint
    model has said it. Its figure is how often a known positive that was held out ranks above an
    unlabelled row.
    """
    chances = np.ones(len(part.rows))
    chances[np.asarray(share.state["unlabelled rows"], dtype=np.int64)] = share.state[
        "probabilities"
    ]
    marked = (np.asarray(part.target) == 1).astype(np.float64)
    made = fit_alone(part.table, part.rows, chances, classes=2, judged_by=marked)
    return replace(share, state={**share.state, "alone": made})


def _judge_alone(share: ModelShare) -> dict[str, float]:
    """Its figure, where there are enough known positives for one."""
    quality = share.state["alone"]["quality"]
    return {"oob score of own columns": quality["AUC"]} if quality else {}


def predict_alone(share: ModelShare, table: PartyTable, rows: Array) -> Array:
    """How likely rows are positive by the label holder's own columns, without a message."""
    if "alone" not in share.state:
        raise ConfigError(
            f"This VFPU has no model of the columns of {share.party!r} alone: it comes from an "
            "earlier version; train it again."
        )
    return np.asarray(expit(score_alone(share.state["alone"], table, rows)[:, 0]))


def scores_alone(share: ModelShare, site: Site) -> pd.Series[float]:
    """Scores of the rows that only the label holder has, by id."""
    rows, table = site.rows().rest, site.own_table()
    index = pd.Index(table.ids[rows], name="id", dtype=object)
    return pd.Series(predict_alone(share, table, rows), index=index, name="score", dtype=float)


def raw_scores_of(share: ModelShare, site: Site) -> pd.Series[float]:
    """The out-of-bag scores behind `scores_of`: mean probabilities over bags, not calibrated."""
    means = expit(np.asarray(share.state["logits"], dtype=np.float64))
    return pd.Series(means, index=scores_of(share, site).index, name="oob_mean")


def reliable_of(share: ModelShare, site: Site) -> pd.Series[float]:
    """The scores of the reliable positives, most likely first."""
    rows = np.asarray(share.state["reliable rows"], dtype=np.int64)
    return scores_of(share, site).loc[pd.Index(_common_ids(site)[rows], dtype=object)]


def _common_ids(site: Site) -> Array:
    return site.own_table().ids[site.rows().overlap]
