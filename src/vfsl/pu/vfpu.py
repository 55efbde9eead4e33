"""VFPU: reliable positives from positive and unlabelled rows, across parties (seed 004, 3.3).

Holds   the label holder: columns and marks (+1 known positive, −1 unlabelled); feature holders:
        columns; the key holder: the secret key, no data; the positive holder: ids, after the end.
Learns  the label holder: one out-of-bag value for each row (all training scores of tree bases).
        Feature holders: what the base shows them, and with ``row_lists="seed"`` who the positives
        are. The key holder: uniformly masked numbers. The positive holder: see deliver.py.

Who is positive enters the base's training as encrypted row weights only, and who is out of bag as
private factors of encrypted scores, so both stay at the label holder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from vfsl.channel import Channel
from vfsl.data import check_labels
from vfsl.data.checks import check_choice, check_count, check_share
from vfsl.errors import ConfigError
from vfsl.federation import Federation
from vfsl.parts import ModelShare, Part, Roles, Seen, places_in_training, scores_with_kept
from vfsl.pu.bases import (
    BagLogistic,
    Base,
    check_base,
    first_models,
    knows_training_scores,
    make_base,
    mean_as_logit,
    votes,
    work_of,
)
from vfsl.pu.calibration import Calibration
from vfsl.pu.deliver import deliver_feature_holder, deliver_label_holder, deliver_positive_holder
from vfsl.pu.loop import Outcome, Progress, Settings, search
from vfsl.pu.marked import keeper_of
from vfsl.pu.pieces import DISCLOSURES, Leader, follow
from vfsl.pu.prior import Prior
from vfsl.store import Checkpoints
from vfsl.values import Array

OnProgress = Callable[[Progress], None]

# What a preset stands for, where a parameter is left to it.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {"outer": 1, "promote": None, "row_lists": "hidden", "spies": False},
    "seed": {"outer": 3, "promote": 0.02, "row_lists": "seed", "spies": True},
}


@dataclass
class VFPU:
    """Find reliable positives among unlabelled rows whose columns are spread over parties.

    Parameters
    ----------
    base : {"lr", "rf", "gbdt", "xgb", "lgb"} or an estimator
        What each bag trains.
    outer : int, optional
        Iterations M: after each the best unlabelled rows join the positives. 1 by default, 3 in the
        seed's preset; more than one promoted batch rather hurts.
    rounds : int
        Bags T of each iteration.
    promote : float, optional
        The share of the unlabelled rows that becomes reliable positives in an iteration (θ); 0.02
        in the seed's preset. Without it half of the positives that are estimated to be hidden.
    preset : {"default", "seed"}
        What parameters that are not given stand for: what measured best, or the seed's whole loop.
    row_lists : {"hidden", "seed"}, optional
        "hidden": nobody but the label holder learns who is positive. "seed": feature holders
        receive the row lists of P, N and O; each bag trains on its own rows only.
    spies : bool, optional
        Draw pseudo-negatives from reliable negatives that spies have found.
    spy_share : float
        The share of the known positives that spy.
    spy_threshold : float
        The share of the spies that may score below a reliable negative.
    rare_rows_per_column : float, optional
        Of base "lr": how many known positives each model needs per column of the widest feature
        holder, which could otherwise find them by solving its gradients; 1 by default.
    folds : int
        Known positives are held out in so many parts, by models of their own in the same rounds,
        to estimate the prior and to calibrate.

    Attributes
    ----------
    scores_ : Series
        By id of the label holder, for each unlabelled row: how likely it is positive.
    reliable_positives_ : Series
        The promoted rows of these, most likely first.
    oob_score_ : float
        How often a held-out known positive ranks above an unlabelled row.
    prior_ : Prior
        Which share of the unlabelled rows is positive, with an interval and cross-checks.
    history_ : DataFrame
        A line for each iteration.
    stop_reason_ : str
        One of `vfsl.pu.REASONS`.
    warnings_ : tuple of str
        What to beware of in this run.
    columns_ : DataFrame
        How known positives differ from unlabelled rows of the same score, by column of the label
        holder.
    shares_ : dict of ModelShare
        Each party's part of the model.
    """

    name: ClassVar[str] = "vfpu"
    scores_are: ClassVar[str] = "probability"

    base: str | Base = "lr"
    outer: int | None = None
    rounds: int = 20
    promote: float | None = None
    preset: str = "default"
    row_lists: str | None = None
    spies: bool | None = None
    spy_share: float = 0.15
    spy_threshold: float = 0.1
    folds: int = 5
    rare_rows_per_column: float | None = None

    # ---- what users call --------------------------------------------------------------------

    def fit(
        self,
        fed: Federation,
        positives: str = "A",
        label_holder: str = "C",
        *,
        state: Mapping[str, Path | str] | None = None,
        on_event: OnProgress | None = None,
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
            Where a party keeps finished pieces of work: the same call goes on from there.
        on_event : callable, optional
            Hears `Progress`; must pickle if the federation runs on processes.
        """
        settings, base = self._settings(), self._base()
        if fed.share(label_holder).marks is None:
            fed.mark(positives=positives, label_holder=label_holder)
        roles, parts = self._arranged(fed, label_holder, base)
        check_labels(fed.tables, parts)
        marked = replace(parts[label_holder], target=fed.share(label_holder).marks)
        public = {**self._public(settings, base), "label_holder": label_holder}
        public |= {"scheme": roles.scheme, "security": roles.security}
        kept = {party: keeper_of(fed, party, state, public) for party in roles.data_holders}
        jobs: dict[str, Callable[[Channel], Any]] = {
            party: partial(
                self.train,
                part=marked if party == label_holder else parts.get(party),
                roles=roles,
                rng=fed.private_rng(party, "vfpu"),
                kept=kept.get(party),
                on_event=on_event if party == label_holder else None,
            )
            for party in roles.everyone
        }
        shares, report = fed.run("vfpu", jobs, public)
        for keeper in kept.values():
            if keeper is not None:
                keeper.clear()
        self.shares_: dict[str, ModelShare] = {
            party: share for party, share in shares.items() if share is not None
        }
        self.label_holder_, self.positive_holder_ = label_holder, positives
        self._take_in(self.shares_[label_holder], fed)
        report(
            metrics={
                "unlabelled": len(self.scores_),
                "reliable positives": len(self.reliable_positives_),
                "oob score": self.oob_score_,
                **{f"prior {name}": value for name, value in self.prior_.to_dict().items()},
            },
            rounds=self.shares_[label_holder].rounds,
            stop_reason=self.stop_reason_,
            notes=self.warnings_,
            details=self.shares_[label_holder].state["picture"],
        )
        return self

    def predict_proba(self, fed: Federation) -> Array:
        """How likely the aligned rows of a federation are positive, in the common order.

        Over trees the label holder has the scores of the training rows: nobody is asked for them.

        Returns
        -------
        array (rows, 2)
            Not positive, positive; for rows of which one does not know whether they are marked.
        """
        self._check_fitted()
        base = self._base()
        roles, parts = self._arranged(fed, self.label_holder_, base)
        places = places_in_training(self.shares_, parts, self.label_holder_)
        held, new = self.shares_[self.label_holder_], places < 0
        parts = {party: Part(part.table, part.rows[new]) for party, part in parts.items()}
        jobs = {
            party: partial(
                self.score_rows, part=parts.get(party), share=self.shares_.get(party), roles=roles
            )
            for party in (roles.everyone if new.any() or held.scores is None else ())
        }
        settings = {"model": self.name, "scheme": roles.scheme, "security": roles.security}
        settings["new rows"] = int(new.sum())
        answers, report = fed.run("predict vfpu", jobs, settings)
        report()
        positive = scores_with_kept(held, places, answers.get(self.label_holder_))
        return np.hstack([1 - positive, positive])

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
        roles = fed.roles(holder, work_of(self._base(), 1))
        for party in consent:
            if party not in roles.data_holders:
                raise ConfigError(
                    "The consent parameter of deliver must name parties that hold columns: "
                    f"{', '.join(roles.data_holders)}. Got {party!r} instead."
                )
        jobs: dict[str, Callable[[Channel], Any]] = {
            party: partial(deliver_feature_holder, roles=roles, agrees=party in consent)
            for party in roles.feature_holders
        }
        jobs[holder] = partial(
            deliver_label_holder,
            roles=roles,
            receiver=receiver,
            reliable=self.reliable_positives_,
            agrees=holder in consent,
        )
        jobs[receiver] = partial(deliver_positive_holder, roles=roles)
        answers, report = fed.run("deliver", jobs, {"to": receiver, "consent": sorted(consent)})
        received: pd.Series[float] = answers[receiver]
        report(metrics={"reliable positives": len(received)})
        return received

    # ---- what every party runs --------------------------------------------------------------

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator | None = None,
        kept: Checkpoints | None = None,
        on_event: OnProgress | None = None,
    ) -> ModelShare | None:
        """One party's side; the label holder's part has the marks as target.

        ``kept`` is where this party keeps finished pieces, to go on from after a failure.
        """
        settings, base = self._settings(), self._base()
        check_base(base, roles)
        channel = channel.within(self.name, DISCLOSURES)
        rng = np.random.default_rng() if rng is None else rng
        if channel.me != roles.key_holder and part is None:
            raise ConfigError(f"Party {channel.me!r} needs a part of the data to learn from.")
        if channel.me == roles.label_holder and part is not None:
            return self._lead(channel, base, part, roles, settings, rng, kept, on_event)
        shares, models = follow(channel, base, part, roles, rng, kept)
        if channel.me == roles.key_holder:
            return None
        members = [share.to_dict() for share in shares]
        seen = None if part is None else Seen.of(part.table, part.rows)
        return ModelShare(channel.me, self.name, {"members": members, "models": models}, seen=seen)

    def score_rows(
        self, channel: Channel, part: Part | None, share: ModelShare | None, *, roles: Roles
    ) -> Array | None:
        """One party's side of prediction: probabilities (rows, 1), only at the label holder."""
        base = self._base()
        settings = self._settings()
        channel = channel.within(self.name)
        members: list[ModelShare | None] = [None] * (settings.rounds if settings.listed else 1)
        models = 0
        if share is not None:
            members = [ModelShare.from_dict(member) for member in share.state["members"]]
            models = share.state["models"]
        answers = []
        for number, member in enumerate(members):
            here = channel.within(f"member {number}")
            own = member
            if own is not None and not knows_training_scores(base):
                own = first_models(own, models)
            answer = base.score_rows(here, part, own, roles=roles)
            if answer is not None:
                answers.append(np.asarray(answer)[:, :models])
        if channel.me != roles.label_holder or share is None:
            return None
        return _chances(base, answers, Calibration.from_dict(share.state["calibration"]))

    # ---- internals --------------------------------------------------------------------------

    def _lead(
        self,
        channel: Channel,
        base: Base,
        part: Part,
        roles: Roles,
        settings: Settings,
        rng: np.random.Generator,
        kept: Checkpoints | None,
        on_event: OnProgress | None,
    ) -> ModelShare:
        leader = Leader(channel, base, part, roles, rng, kept)
        outcome: Outcome = search(leader, base, part, settings, rng, on_event)
        scores = seen = None
        if outcome.scores:
            scores = _chances(base, outcome.scores, outcome.calibration)
            seen = Seen.of(part.table, part.rows)
        return ModelShare(
            channel.me,
            self.name,
            outcome.state(),
            tuple(outcome.found.history),
            outcome.stop_reason,
            tuple(outcome.found.warnings),
            scores=scores,
            seen=seen,
        )

    def _take_in(self, share: ModelShare, fed: Federation) -> None:
        """The label holder's results as attributes, by its ids."""
        state, holder = share.state, share.party
        ids = fed.tables[holder].ids[fed.share(holder).overlap]
        rows = np.asarray(state["unlabelled rows"], dtype=np.int64)
        index = pd.Index(ids[rows], name="id", dtype=object)
        self.scores_ = pd.Series(state["probabilities"], index=index, name="score", dtype=float)
        best = np.asarray(state["reliable rows"], dtype=np.int64)
        self.reliable_positives_ = self.scores_.loc[pd.Index(ids[best], dtype=object)]
        self.oob_score_: float = state["oob score"]
        self.prior_ = Prior(**state["prior"])
        self.history_ = pd.DataFrame(list(share.rounds))
        self.stop_reason_ = share.stop_reason
        self.warnings_ = share.notes
        self.columns_ = pd.DataFrame(state["columns"])

    def _base(self) -> Base:
        base = make_base(self.base)
        if self.rare_rows_per_column is None:
            return base
        if not isinstance(base, BagLogistic):
            raise ConfigError(
                "The rare_rows_per_column parameter of VFPU is for base 'lr'. Got base "
                f"{base.name!r} with it instead."
            )
        return replace(base, rare_rows_per_column=self.rare_rows_per_column)

    def _arranged(
        self, fed: Federation, label_holder: str, base: Base
    ) -> tuple[Roles, dict[str, Part]]:
        roles = fed.roles(label_holder, "linear")
        roles = fed.roles(label_holder, work_of(base, len(roles.feature_holders)))
        parts = {
            party: Part(fed.tables[party], fed.share(party).overlap) for party in roles.data_holders
        }
        return roles, parts

    def _settings(self) -> Settings:
        """Checked, with the preset filled in."""
        check_choice("VFPU", "preset", self.preset, tuple(PRESETS))
        preset = PRESETS[self.preset]
        outer = preset["outer"] if self.outer is None else self.outer
        promote = preset["promote"] if self.promote is None else self.promote
        row_lists = preset["row_lists"] if self.row_lists is None else self.row_lists
        spies = preset["spies"] if self.spies is None else self.spies
        check_choice("VFPU", "row_lists", row_lists, ("hidden", "seed"))
        for name, value, least in (
            ("outer", outer, 1),
            ("rounds", self.rounds, 1),
            ("folds", self.folds, 2),
        ):
            check_count("VFPU", name, value, least)
        if promote is not None:
            check_share("VFPU", "promote", promote)
        check_share("VFPU", "spy_share", self.spy_share)
        check_share("VFPU", "spy_threshold", self.spy_threshold)
        return Settings(
            outer,
            self.rounds,
            promote,
            row_lists == "seed",
            bool(spies),
            self.spy_share,
            self.spy_threshold,
            self.folds,
        )

    def _public(self, settings: Settings, base: Base) -> dict[str, Any]:
        """For the run record."""
        return {"base": base.name, "preset": self.preset, **asdict(settings)}

    def _check_fitted(self) -> None:
        if not hasattr(self, "shares_"):
            raise ConfigError("VFPU is not fitted yet: call fit first.")


def _chances(base: Base, members: Sequence[Array], calibration: Calibration) -> Array:
    """How likely rows are positive, (rows, 1), by the scores of all members' models."""
    counted = [votes(base, scores) for scores in members]
    total = sum(each.sum(axis=1) for each in counted)
    count = sum(each.shape[1] for each in counted)
    return calibration.of_all(mean_as_logit(base, np.asarray(total / count)))[:, None]
