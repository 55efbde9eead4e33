"""VFPU-M: predict the other party's columns from one's own, and learn from confident predictions.

Holds   the missing party: its columns for common rows; the given party: its columns for common and
        remaining rows; the key holder: the secret key, no data.
Learns  the missing party: in each round predictions of its own columns for the given party's
        remaining rows, one per column (per class but one of a category). Of a linear base they are
        linear combinations of the given party's columns: as many of them as the given party has
        columns show its table up to a linear map. The given party: nothing beyond what the base
        shows it. See pieces.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vfsl.channel import Channel, expect_integer
from vfsl.completion.bases import ROWS_PER_COLUMN, Pair, as_chances, as_values, make_pair
from vfsl.completion.calibrating import ClassScale, ErrorScale
from vfsl.completion.found import (
    ALL_MOVED,
    NOBODY,
    STOPPED,
    Found,
    Outcome,
    nothing_yet,
    pose_targets,
    split_by_target,
)
from vfsl.completion.pieces import (
    ALL,
    CLASSES,
    DISCLOSURES,
    NUMBERS,
    OVERLAP,
    REST,
    Leader,
    follow,
)
from vfsl.completion.selection import (
    Floats,
    class_confidence,
    spread_confidence,
    step,
    value_confidence,
)
from vfsl.completion.sides import Components, Side, context_table, principal
from vfsl.completion.targets import Target
from vfsl.data import PartyTable
from vfsl.data.checks import check_choice, check_count, check_share
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.parts import ModelShare, Part, Roles
from vfsl.store import Checkpoints
from vfsl.values import Array

# Which columns are next, how many are done, of how many.
OnColumns = Callable[[Sequence[str], int, int], None]
# True ends the loop of a column: its rounds so far, the last one last.
Stop = Callable[[Sequence[Mapping[str, Any]]], bool]

CONFIDENCES = ("seed", "spread")
CONTEXTS = ("none", "preliminary")


@dataclass
class VFPUM:
    """Self-training across parties for columns that one of them lacks.

    Parameters
    ----------
    base : {"linear", "rf", "gbdt", "xgb", "lgb"} or Pair
        The federated estimator; a linear base trains all columns in the same rounds.
    alpha : float
        Least confidence of a pseudo-label (α).
    k : float
        The share of the confident rows that a round takes, rounded up.
    rounds : int
        Maximum number of rounds (T). 1 is a direct model of the common rows. Every further round
        shows the missing party one more prediction per remaining row and column.
    confidence : {"seed", "spread"}
        For numbers: 1 − |ŷ − μ|/σ of the seeds, which favours predictions near the mean, or how
        small an error is to be expected of the prediction (``errors`` of ``train``). Categories
        use their largest probability.
    context : {"none", "preliminary"}
        Whether the missing party's other columns take part, on remaining rows by a first fill.
    stop : callable, optional
        A further rule: gets a column's rounds so far and says whether to end.
    """

    name: ClassVar[str] = "vfpu-m"

    base: str | Pair = "linear"
    alpha: float = 0.8
    k: float = 0.1
    rounds: int = 1
    confidence: str = "seed"
    context: str = "none"
    stop: Stop | None = None

    def train(
        self,
        channel: Channel,
        side: Side | None,
        *,
        roles: Roles,
        rng: np.random.Generator,
        columns: Sequence[str] = (),
        context: PartyTable | None = None,
        errors: Mapping[str, ErrorScale] | None = None,
        scales: Mapping[str, ClassScale] | None = None,
        kept: Checkpoints | None = None,
        on_columns: OnColumns | None = None,
    ) -> Outcome:
        """One party's side.

        Parameters
        ----------
        side : Side or None
            The party's table and rows; None at the key holder.
        columns : sequence of str
            At the missing party: the columns to predict.
        context : PartyTable, optional
            At the missing party: its columns for all rows, those of remaining rows preliminary.
        errors : mapping, optional
            At the missing party: how large an error to expect of a prediction, by numeric column.
        scales : mapping, optional
            At the missing party: how linear scores of a category become probabilities; without one
            they count as probabilities themselves.
        kept : Checkpoints, optional
            Where this party keeps finished groups of columns, to go on from after a failure.
        on_columns : callable, optional
            At the missing party: hears which columns are next, how many are done, of how many.
        """
        self.check()
        pair = make_pair(self.base)
        channel = channel.within(self.name, DISCLOSURES)
        if channel.me == roles.label_holder:
            if side is None:
                raise ConfigError(f"Party {channel.me!r} needs its table to complete it.")
            leader = Leader(channel, pair, roles, rng, len(side.overlap), kept)
            learned = _Learned(errors or {}, scales or {})
            return self._lead(leader, side, columns, context, learned, on_columns)
        components = None
        if side is not None:
            side, components = prepared(side, pair)
        return Outcome({}, follow(channel, pair, side, roles, rng, kept), [], components)

    def score_rows(
        self,
        channel: Channel,
        table: PartyTable | None,
        outcome: Outcome,
        *,
        roles: Roles,
    ) -> dict[str, Floats]:
        """One party's side of predicting new rows of the given party.

        Parameters
        ----------
        table : PartyTable or None
            At the given party the new rows; None elsewhere.
        outcome : Outcome
            What this party has from training; the key holder's is empty.

        Returns
        -------
        dict by column
            At the missing party: numbers (rows,) or probabilities (rows, classes), by the last
            model of each column.
        """
        self.check()
        if self.context != "none":
            raise ConfigError(
                "VFPUM can predict new rows only with context='none': the missing party has no "
                "columns for them."
            )
        pair = make_pair(self.base)
        channel = channel.within(self.name, DISCLOSURES)
        given = roles.feature_holders[0]
        if channel.me == roles.label_holder:
            return self._ask(channel, pair, outcome, roles)
        rows = 0
        if table is not None:
            table = table if outcome.components is None else outcome.components.transform(table)
            rows = len(table)
        groups = sorted(outcome.shares)
        if channel.me == given:
            for party in (roles.label_holder, roles.key_holder):
                channel.send(party, "rows", rows)
                channel.send(party, "finished", len(groups))
        else:
            groups = list(range(_announced(channel, given)[1]))
        for group in groups:
            share = outcome.shares.get(group)
            part = None if table is None else Part(table, np.arange(rows, dtype=np.int64))
            order = channel.within(f"group {group}").receive(roles.label_holder, "work")
            base = pair.of(classes=order.get("task") == CLASSES)
            base.score_rows(channel.within(f"group {group}"), part, share, roles=roles)
        return {}

    def _ask(
        self, channel: Channel, pair: Pair, outcome: Outcome, roles: Roles
    ) -> dict[str, Floats]:
        given = roles.feature_holders[0]
        rows, count = _announced(channel, given)
        if count != len(outcome.groups):
            raise ProtocolError(
                f"Party {given!r} has {count} models; expected {len(outcome.groups)}.", given
            )
        answers: dict[str, Floats] = {}
        for group, names in enumerate(outcome.groups):
            here = channel.within(f"group {group}")
            found = [outcome.found[name] for name in names]
            classes = found[0].target.classes and not pair.linear
            for party in (given, roles.key_holder):
                here.send(party, "work", {"task": CLASSES if classes else NUMBERS})
            share = outcome.shares[group]
            table = context_table(channel.me, None, rows, [], placeholder=not pair.linear)
            part = Part(table, np.arange(rows, dtype=np.int64))
            scores = np.asarray(pair.of(classes=classes).score_rows(here, part, share, roles=roles))
            for one, answer in zip(found, answers_of(pair, share, scores, found), strict=True):
                answers[one.target.name] = answer if one.target.classes else answer[:, 0]
        return answers

    def _lead(
        self,
        leader: Leader,
        side: Side,
        columns: Sequence[str],
        context: PartyTable | None,
        learned: _Learned,
        on_columns: OnColumns | None,
    ) -> Outcome:
        targets = leader.targets_of(side.table.take(side.overlap), columns)
        too_rare = sorted(set(columns) - {target.name for target in targets})
        if too_rare:
            raise DataError(
                f"Columns {', '.join(map(repr, too_rare))} of party {side.table.party} have values "
                f"in too few common rows for a linear model of {leader.columns} columns, whose "
                "gradients could tell the other party which rows these are; use trees, or complete "
                "them locally."
            )
        outcome = Outcome({}, {}, groups_of(targets, leader.pair, together=self.context == "none"))
        by_name = {target.name: target for target in targets}
        for number, names in enumerate(outcome.groups):
            if on_columns is not None:
                on_columns(names, len(outcome.found), len(targets))
            group = [by_name[name] for name in names]
            if number < leader.resume and leader.kept is not None:
                content = leader.kept.load(f"group {number}")
                found = [
                    Found.from_dict(one, target)
                    for one, target in zip(content["found"], group, strict=True)
                ]
                outcome.shares[number] = ModelShare.from_dict(content["share"])
            else:
                found, share = self._loop(leader, side, group, context, learned, number)
                outcome.shares[number] = share
                if leader.kept is not None:
                    content = {
                        "found": [one.to_dict() for one in found],
                        "share": share.to_dict(),
                        "pieces": leader.pieces,
                    }
                    leader.kept.save(f"group {number}", content)
            outcome.found |= {one.target.name: one for one in found}
        leader.end()
        return outcome

    def _loop(
        self,
        leader: Leader,
        side: Side,
        group: Sequence[Target],
        context: PartyTable | None,
        learned: _Learned,
        number: int,
    ) -> tuple[list[Found], ModelShare]:
        """All rounds of columns that train together."""
        linear = leader.pair.linear
        classes = group[0].classes and not linear
        own = None if self.context == "none" else context
        table = context_table(
            side.table.party,
            own,
            leader.common + leader.others,
            [target.name for target in group],
            placeholder=not linear,
        )
        if own is not None and linear:
            most = columns_for(leader.common)
            table = Components.fit(table, leader.common, most).transform(table)
        found = [
            nothing_yet(target, leader.others, learned.scales.get(target.name)) for target in group
        ]
        open_: list[Found] = list(found)
        share: ModelShare | None = None
        for turn in range(1, self.rounds + 1):
            moved = any(one.moves.moved.any() for one in found)
            target, weights = pose_targets(found, linear=linear)
            share, scores = leader.fit(
                table,
                target,
                weights if moved or (weights[: leader.common] != 1).any() else None,
                classes=classes,
                train=ALL if moved else OVERLAP,
                score=REST,
                group=number,
            )
            answers = answers_of(leader.pair, share, scores, found)
            for one, answer in zip(found, answers, strict=True):
                if one in open_:
                    self._round(one, turn, answer, learned.errors.get(one.target.name))
            open_ = [one for one in open_ if not self._ended(one, turn)]
            if not open_:
                break
        if share is None:
            raise ConfigError("VFPU-M needs at least one round.")
        return found, share

    def _round(self, one: Found, number: int, answer: Floats, errors: ErrorScale | None) -> None:
        """Confidence, candidates, choice and pseudo-labels of one round for one column."""
        waiting = one.moves.waiting
        if one.target.classes:
            guess = answer.argmax(axis=1).astype(np.float64)
            sure = class_confidence(answer)
            if one.chances is not None:
                one.chances[waiting] = answer[waiting]
            now = sure[waiting]
        else:
            guess = answer[:, 0]
            if self.confidence == "spread" and errors is not None:
                sure = spread_confidence(errors.expected(guess), one.target.deviation)
                now = sure[waiting]
            else:
                now = value_confidence(guess[waiting])
        one.predicted = guess
        one.confidence[waiting] = now
        picked = step(one.moves, number, guess[waiting], now, self.alpha, self.k)
        one.rounds.append(
            {
                "round": number,
                "waiting": len(waiting),
                "confident": len(picked.candidates),
                "chosen": len(picked.chosen),
                "least confidence": float(now.min()) if len(now) else None,
            }
        )

    def _ended(self, one: Found, number: int) -> bool:
        last = one.rounds[-1]
        if not len(one.moves.waiting):
            one.stop_reason = ALL_MOVED
        elif not last["chosen"]:
            # The same model on the same rows would choose nobody again.
            one.stop_reason = NOBODY
        elif self.stop is not None and self.stop(one.rounds):
            one.stop_reason = STOPPED
        else:
            return number >= self.rounds
        return True

    def check(self) -> None:
        """Refuse parameters that make no sense."""
        make_pair(self.base)
        check_share("VFPUM", "alpha", self.alpha)
        check_share("VFPUM", "k", self.k)
        if self.k == 0:
            raise ConfigError("The k parameter of VFPUM must be above 0. Got 0 instead.")
        check_count("VFPUM", "rounds", self.rounds, 1)
        check_choice("VFPUM", "confidence", self.confidence, CONFIDENCES)
        check_choice("VFPUM", "context", self.context, CONTEXTS)


def _announced(channel: Channel, given: str) -> tuple[int, int]:
    """How many rows and models the given party has."""
    rows, models = (
        expect_integer(channel.receive(given, name), sender=given, name=name, low=0, high=1 << 40)
        for name in ("rows", "finished")
    )
    return rows, models


def prepared(side: Side, pair: Pair) -> tuple[Side, Components | None]:
    """The given party's columns as its base takes them."""
    if not pair.linear:
        return side, None
    return principal(side, columns_for(len(side.overlap)))


@dataclass(frozen=True)
class _Learned:
    """What the missing party knows of a base from held-out rows, by column."""

    errors: Mapping[str, ErrorScale]
    scales: Mapping[str, ClassScale]


def answers_of(
    pair: Pair, share: ModelShare, scores: Array, found: Sequence[Found]
) -> list[Floats]:
    """Predictions of columns that trained together: numbers (rows, 1), or probabilities."""
    if pair.linear:
        blocks = split_by_target(found, as_values(pair.numbers, share, scores))
        return [
            one.chances_of(block) if one.target.classes else block
            for one, block in zip(found, blocks, strict=True)
        ]
    (one,) = found
    base = pair.of(classes=one.target.classes)
    if one.target.classes:
        return [as_chances(base, share, scores, len(one.target.levels))]
    return [as_values(base, share, scores)]


def columns_for(common: int) -> int:
    """How many columns a party may bring to a linear model."""
    return max(common // ROWS_PER_COLUMN, 1)


def groups_of(targets: Sequence[Target], pair: Pair, *, together: bool = True) -> list[list[str]]:
    """Which columns train in the same rounds: all of a linear base, else each alone.

    Those with unknown cells apart: they have row weights, which cost the others.
    """
    if not pair.linear or not together:
        return [[target.name] for target in targets]
    whole = [target.name for target in targets if target.known.all()]
    holed = [target.name for target in targets if not target.known.all()]
    return [group for group in (whole, holed) if group]
