"""Pieces of work between the missing party, who leads, and the given party: fit, then score.

Holds   the label holder (the missing party): the columns to be predicted, for common rows only; the
        feature holder (the given party): its columns for common and remaining rows; the key holder:
        the secret key, no data.
Learns  the label holder: how many remaining rows there are, and beyond what the base estimator
        shows (see its file) one prediction for each scored row, column and piece. The feature
        holder: what the base shows it, and how many pieces there are. Which rows train a model
        (the parts of a cross-fit of trees, remaining rows with a pseudo-label) enters as encrypted
        row weights only.

Common rows come first in both parties' order, so "overlap" and "all" need no list of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_integer
from vfsl.completion import leave_one_out
from vfsl.completion.bases import Pair, fresh_scores, penalty_of, rare_rows_of
from vfsl.completion.selection import Floats, Places
from vfsl.completion.sides import Side
from vfsl.completion.targets import Target, merge_rare, targets_of
from vfsl.data import PartyTable
from vfsl.draws import draw_by_number
from vfsl.errors import ConfigError, ProtocolError
from vfsl.estimators.base import Estimator
from vfsl.parts import ModelShare, Part, Roles
from vfsl.store import Checkpoints
from vfsl.values import Array, Disclosure, Disclosures

_MOST = 1 << 40

DISCLOSURES: Disclosures = {
    "rows": Disclosure(int, "how many rows the sender has that are not common"),
    "columns": Disclosure(int, "how many columns the sender brings to its models"),
    "finished": Disclosure(int, "how many models of groups of columns the sender has"),
    "kept": Disclosure(
        list, "how many pieces of work an earlier attempt had done when it kept each group"
    ),
    "resume": Disclosure(
        dict, "how many groups of columns all parties have finished, by how many pieces of work"
    ),
    "work": Disclosure(
        dict,
        "whether numbers or classes are predicted next, whether common or all rows train, and "
        "whether common or remaining rows are scored: the leader then has a prediction for "
        "each of them",
    ),
}

NUMBERS, CLASSES, END = "numbers", "classes", "end"
# Rows that train: the common ones, or all. Rows that are scored: nobody, the remaining ones, the
# common ones by a base that knows their scores, or those held out of a linear model, one by one.
OVERLAP, ALL, REST, HELD_OUT, NONE = "overlap", "all", "rest", "held out", "none"


def places_of(rows: str, common: int, others: int) -> Places:
    """Places of these rows in the order of common rows, then the others."""
    if rows == ALL:
        return np.arange(common + others)
    if rows == REST:
        return np.arange(common, common + others)
    return np.arange(0 if rows == NONE else common)


@dataclass(eq=False)
class Leader:
    """The missing party's side of all pieces.

    Parameters
    ----------
    channel : Channel
    pair : Pair
    roles : Roles
    rng : numpy.random.Generator
    common : int
        How many rows are common.
    kept : Checkpoints, optional
    """

    channel: Channel
    pair: Pair
    roles: Roles
    rng: np.random.Generator
    common: int
    kept: Checkpoints | None = None
    others: int = field(init=False)
    columns: int = field(init=False)  # of the given party
    resume: int = field(init=False)  # groups
    pieces: int = field(init=False)  # done so far, those of earlier attempts included

    def __post_init__(self) -> None:
        given = self.roles.feature_holders[0]
        self.others, self.columns = (
            expect_integer(
                self.channel.receive(given, name), sender=given, name=name, low=0, high=_MOST
            )
            for name in ("rows", "columns")
        )
        theirs, mine = self.channel.receive(given, "kept"), pieces_kept(self.kept)
        self.resume = common_groups(mine, theirs)
        self.pieces = mine[self.resume - 1] if self.resume else 0
        for party in self._told:
            order = {"groups": self.resume, "pieces": self.pieces}
            self.channel.send(party, "resume", order)
        self._random = draw_by_number(self.rng)

    def targets_of(self, common: PartyTable, columns: Sequence[str]) -> list[Target]:
        """Columns as the base may predict them; those whose values are too rare are left out.

        Of a linear base the given party sees sums of its rows by value: a value that few rows have
        is predicted together with others, or not at all.
        """
        targets = targets_of(common, columns)
        if not self.pair.linear:
            return targets
        least = math.ceil(rare_rows_of(self.pair.numbers) * self.columns)
        return [one for target in targets if (one := merge_rare(target, least)) is not None]

    @property
    def _told(self) -> tuple[str, ...]:
        return (*self.roles.feature_holders, self.roles.key_holder)

    def fit(
        self,
        table: PartyTable,
        target: Array,
        weights: Floats | None,
        *,
        classes: bool,
        train: str,
        score: str,
        group: int,
    ) -> tuple[ModelShare, Array]:
        """Train on some rows and score others.

        Parameters
        ----------
        table : PartyTable
            The leader's own columns for all rows, common ones first.
        target, weights
            Of all rows; those outside ``train`` are not used.
        group : int
            Whose model this is: the last one of a group is its result.

        Returns
        -------
        share : ModelShare
        scores : array
            Of the scored rows, as the base gives them; of held-out rows in units of the target.
        """
        base = self.pair.of(classes=classes)
        here = self.channel.within(f"piece {self.pieces}")
        task = CLASSES if classes else NUMBERS
        for party in self._told:
            here.send(party, "work", {"task": task, "train": train, "score": score, "group": group})
        trained = places_of(train, self.common, self.others)
        part = Part(table, trained, target[trained], None if weights is None else weights[trained])
        rng = self._random(self.pieces)
        self.pieces += 1
        share = base.train(here, part, roles=self.roles, rng=rng)
        if share is None:
            raise ConfigError("The base of VFPU-M gave the label holder no share of the model.")
        if score == HELD_OUT:
            known = np.ones(target[trained].shape, dtype=bool) if weights is None else weights > 0
            apart = here.within("held out", leave_one_out.DISCLOSURES)
            return share, leave_one_out.hold_out_missing(
                apart, target[trained], known[: len(trained)], share, self.roles
            )
        scored = places_of(score, self.common, self.others)
        if knows_scores(base, train, score):
            return share, fresh_scores(base, share)[scored]
        if not len(scored):
            return share, np.zeros((0, 1))
        answer = base.score_rows(here.within("ask"), Part(table, scored), share, roles=self.roles)
        return share, np.asarray(answer)

    def end(self) -> None:
        """Tell the others that all is done."""
        for party in self._told:
            self.channel.within(f"piece {self.pieces}").send(party, "work", {"task": END})


def follow(
    channel: Channel,
    pair: Pair,
    side: Side | None,
    roles: Roles,
    rng: np.random.Generator,
    kept: Checkpoints | None = None,
) -> dict[int, ModelShare]:
    """The given party's or the key holder's side of all pieces: its last share of each group."""
    leader, shares = roles.label_holder, {}
    if side is not None:
        channel.send(leader, "rows", len(side.rest))
        channel.send(leader, "columns", len(side.table.features))
        channel.send(leader, "kept", pieces_kept(kept))
    order = channel.receive(leader, "resume")
    # Piece numbers go on where they were: what is drawn for a piece depends on its number.
    resume, number = (
        expect_integer(order.get(name), sender=leader, name=name, low=0, high=_MOST)
        for name in ("groups", "pieces")
    )
    if kept is not None and side is not None:
        shares = {n: ModelShare.from_dict(kept.load(_name(n))["share"]) for n in range(resume)}
    random = draw_by_number(rng)
    while True:
        here = channel.within(f"piece {number}")
        order = here.receive(leader, "work")
        if order.get("task") == END:
            return shares
        base, train, score, group = _ordered(order, pair, leader)
        share = base.train(here, _part(side, train), roles=roles, rng=random(number))
        number += 1
        _follow_score(here, base, side, share, train, score, roles)
        if share is not None and side is not None:
            shares[group] = share
            if kept is not None:
                kept.save(_name(group), {"share": share.to_dict(), "pieces": number})


def _follow_score(
    channel: Channel,
    base: Estimator,
    side: Side | None,
    share: ModelShare | None,
    train: str,
    score: str,
    roles: Roles,
) -> None:
    """The given party's or the key holder's side of scoring what the leader has ordered."""
    if score == HELD_OUT:
        apart = channel.within("held out", leave_one_out.DISCLOSURES)
        part = _part(side, train)
        if part is None or share is None:
            leave_one_out.hold_out_key_holder(apart, roles)
        else:
            leave_one_out.hold_out_given(apart, part, share, penalty_of(base), roles)
        return
    if knows_scores(base, train, score) or score == NONE:
        return
    part = _part(side, score)
    if part is None or len(part.rows):
        base.score_rows(channel.within("ask"), part, share, roles=roles)


def knows_scores(base: Estimator, train: str, score: str) -> bool:
    """Whether the scored rows are training rows of a base that knows their scores anyway."""
    among = train == ALL or train == score == OVERLAP
    return among and base.knows_training_scores


def _ordered(order: Mapping[str, Any], pair: Pair, leader: str) -> tuple[Estimator, str, str, int]:
    """The estimator, the rows that train, those that are scored, and the group of an order."""
    task, train, score = (order.get(name) for name in ("task", "train", "score"))
    if task not in (NUMBERS, CLASSES) or (task == CLASSES and pair.classes is None):
        raise ProtocolError(f"Party {leader!r} ordered unknown work.", leader)
    base = pair.of(classes=task == CLASSES)
    allowed = (REST, NONE, HELD_OUT) if pair.linear else (REST, NONE, OVERLAP)
    if train not in (OVERLAP, ALL) or score not in allowed:
        raise ProtocolError(f"Party {leader!r} ordered rows in no readable form.", leader)
    group = expect_integer(order.get("group"), sender=leader, name="group", low=0, high=_MOST)
    return base, train, score, group


def _part(side: Side | None, rows: str) -> Part | None:
    if side is None:
        return None
    return Part(side.table, side.rows[places_of(rows, len(side.overlap), len(side.rest))])


def pieces_kept(kept: Checkpoints | None) -> list[int]:
    """How many pieces a party had done when it last kept each group, from the first on."""
    found: list[int] = []
    while kept is not None and (content := kept.load(_name(len(found)))) is not None:
        found.append(int(content["pieces"]))
    return found


def common_groups(mine: list[int], theirs: list[Any]) -> int:
    """How many groups, from the first on, both parties kept after the same piece of work.

    The given party keeps its share after each piece, so its last group may be an unfinished one.
    """
    pairs = zip(mine, theirs, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _name(group: int) -> str:
    return f"group {group}"
