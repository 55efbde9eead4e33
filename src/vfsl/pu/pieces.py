"""Pieces of work of VFPU: train models on one set of weights, then learn one value for each row.

Holds   the label holder: marks, and with them who trains and votes; feature holders: columns.
Learns  beyond what the base estimator shows (see its file): how many pieces there are. With listed
        rows (``row_lists="seed"``) feature holders learn who the known positives are, and the label
        holder a score of each row and bag.

The label holder leads; the others do what it orders until it orders the end. A finished piece is
kept by every party in a place of its own, without keys or masks, so that a run can go on from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.draws import draw_by_number
from vfsl.errors import ConfigError, ProtocolError
from vfsl.parts import ModelShare, Part, Roles
from vfsl.pu import oob_mean
from vfsl.pu.bags import Booleans
from vfsl.pu.bases import Base, knows_training_scores, training_scores
from vfsl.store import Checkpoints
from vfsl.values import Disclosure, Disclosures, Floats, Integers

_LISTS = ("positives", "pseudo-negatives", "out-of-bag")
_MOST = 10**6

DISCLOSURES: Disclosures = {
    "finished": Disclosure(
        int, "how many pieces of work the sender has kept of an earlier attempt"
    ),
    "resume": Disclosure(int, "how many pieces of work all parties have kept"),
    "work": Disclosure(str, "what comes next: models on all rows, on listed rows, or the end"),
    "result": Disclosure(dict, "which of the trained models make up the result"),
    "positives": Disclosure(np.ndarray, "which rows are positives: B learns P"),
    "pseudo-negatives": Disclosure(np.ndarray, "which rows are drawn as negatives: B learns N"),
    "out-of-bag": Disclosure(np.ndarray, "which rows are to be scored: B learns O"),
}

ALL, LISTED, END = "all rows", "listed rows", "end"


@dataclass(frozen=True, eq=False)
class Task:
    """What the label holder wants trained, and whose scores it wants.

    ``target`` is (rows,) of 0 and 1; ``weights`` and ``voters`` are (rows, models).
    """

    target: Integers
    weights: Floats
    voters: Booleans


@dataclass(frozen=True, eq=False)
class Done:
    """A finished piece: the label holder's share, and what it learned.

    ``sums`` over each row's voters where the base shows nothing else, else ``scores`` of all models
    (of listed rows those that train or are to be scored).
    """

    share: ModelShare
    sums: Floats | None = None
    scores: Floats | None = None


class Leader:
    """The label holder's side of all pieces, in turn."""

    def __init__(
        self,
        channel: Channel,
        base: Base,
        part: Part,
        roles: Roles,
        rng: np.random.Generator,
        kept: Checkpoints | None,
    ) -> None:
        self._channel, self._base, self._part, self._roles = channel, base, part, roles
        self._random = draw_by_number(rng)
        self._kept = kept
        self.number = 0
        others = [channel.receive(party, "finished") for party in roles.feature_holders]
        counts = [
            expect_integer(count, sender=party, name="finished", low=0, high=_MOST)
            for party, count in zip(roles.feature_holders, others, strict=True)
        ]
        self._resume = min(_count(kept), *counts)
        for party in (*roles.feature_holders, roles.key_holder):
            channel.send(party, "resume", self._resume)

    def run(self, task: Task, listed: bool = False) -> Done:
        """The next piece: from an earlier attempt if all parties have kept it."""
        name, number = _name(self.number), self.number
        self.number += 1
        if number < self._resume and self._kept is not None:
            return self._restored(self._kept.load(name))
        here = self._channel.within(name)
        for party in (*self._roles.feature_holders, self._roles.key_holder):
            here.send(party, "work", LISTED if listed else ALL)
        rng = self._random(number)
        done = self._listed(here, task, rng) if listed else self._together(here, task, rng)
        if self._kept is not None:
            content = {"share": done.share.to_dict(), "sums": _listed_values(done.sums)}
            self._kept.save(name, content | {"scores": _listed_values(done.scores)})
        return done

    def end(self, pieces: list[int], models: int) -> None:
        """Tell the others which pieces, and how many models of each, make up the result."""
        for party in (*self._roles.feature_holders, self._roles.key_holder):
            self._channel.within(_name(self.number)).send(party, "work", END)
        for party in self._roles.feature_holders:
            content = {"pieces": np.array(pieces, dtype=np.int64), "models": models}
            self._channel.send(party, "result", content)

    def _together(self, channel: Channel, task: Task, rng: np.random.Generator) -> Done:
        part = replace(self._part, target=task.target, weights=task.weights)
        share = _trained(self._base.train(channel, part, roles=self._roles, rng=rng))
        if knows_training_scores(self._base):
            return Done(share, scores=training_scores(self._base, share))
        here = channel.within("out of bag", oob_mean.DISCLOSURES)
        return Done(share, oob_mean.sum_label_holder(here, part, share, task.voters, self._roles))

    def _listed(self, channel: Channel, task: Task, rng: np.random.Generator) -> Done:
        """One model as the seed has it: the row lists of P, N and O go to the feature holders."""
        counts, voters = task.weights[:, 0] > 0, task.voters[:, 0]
        lists = (counts & (task.target == 1), counts & (task.target == 0), voters)
        rows = [np.flatnonzero(one) for one in lists]
        for party in self._roles.feature_holders:
            for name, numbers in zip(_LISTS, rows, strict=True):
                channel.send(party, name, numbers)
        train = np.union1d(rows[0], rows[1])
        part = Part(
            self._part.table, self._part.rows[train], task.target[train], task.weights[train]
        )
        share = _trained(self._base.train(channel, part, roles=self._roles, rng=rng))
        scores = np.zeros((len(voters), 1))
        if knows_training_scores(self._base):
            scores[train] = training_scores(self._base, share)
        asked = _asked(self._base, train, rows[2])
        scored = Part(self._part.table, self._part.rows[asked])
        scores[asked] = self._base.score_rows(channel, scored, share, roles=self._roles)
        return Done(share, scores=scores)

    def _restored(self, content: dict[str, Any]) -> Done:
        sums, scores = (
            None if content[name] is None else np.asarray(content[name], dtype=np.float64)
            for name in ("sums", "scores")
        )
        return Done(ModelShare.from_dict(content["share"]), sums, scores)


def follow(
    channel: Channel,
    base: Base,
    part: Part | None,
    roles: Roles,
    rng: np.random.Generator,
    kept: Checkpoints | None,
) -> tuple[list[ModelShare], int]:
    """A feature holder's or key holder's side of all pieces: its shares of the result.

    Returns
    -------
    shares : list of ModelShare
        Of the pieces that make up the result; empty at the key holder.
    models : int
        How many models of each count; 0 at the key holder.
    """
    leader, holds_key = roles.label_holder, channel.me == roles.key_holder
    if not holds_key:
        channel.send(leader, "finished", _count(kept))
    number = expect_integer(
        channel.receive(leader, "resume"), sender=leader, name="resume", low=0, high=_MOST
    )
    shares = [] if kept is None or holds_key else [_kept_share(kept, n) for n in range(number)]
    random = draw_by_number(rng)
    while True:
        here = channel.within(_name(number))
        order = here.receive(leader, "work")
        if order == END:
            break
        if order not in (ALL, LISTED):
            raise ProtocolError(f"Party {leader!r} ordered unknown work {order!r:.60}.", leader)
        share = _follow_piece(here, base, part, roles, random(number), order == LISTED)
        if share is not None:
            shares.append(share)
            if kept is not None:
                kept.save(_name(number), {"share": share.to_dict()})
        number += 1
    if holds_key:
        return [], 0
    content = channel.receive(leader, "result")
    models = expect_integer(content.get("models"), sender=leader, name="result", low=1, high=_MOST)
    chosen = _rows(content.get("pieces"), leader, "result", len(shares))
    return [shares[piece] for piece in chosen], models


def _follow_piece(
    channel: Channel,
    base: Base,
    part: Part | None,
    roles: Roles,
    rng: np.random.Generator,
    listed: bool,
) -> ModelShare | None:
    trained, scored = part, part
    if listed and part is not None:
        leader = roles.label_holder
        came = [channel.receive(leader, name) for name in _LISTS]
        lists = [
            _rows(value, leader, name, len(part.rows))
            for name, value in zip(_LISTS, came, strict=True)
        ]
        train = np.union1d(lists[0], lists[1])
        trained = replace(part, rows=part.rows[train])
        scored = replace(part, rows=part.rows[_asked(base, train, lists[2])])
    share = base.train(channel, trained, roles=roles, rng=rng)
    if listed:
        base.score_rows(channel, scored, share, roles=roles)
    elif not knows_training_scores(base):
        here = channel.within("out of bag", oob_mean.DISCLOSURES)
        if part is None or share is None:
            oob_mean.sum_key_holder(here, roles)
        else:
            oob_mean.sum_feature_holder(here, part, share, roles)
    return share


def _asked(base: Base, train: Integers, listed: Integers) -> Integers:
    """The listed rows whose scores the label holder does not have from training."""
    return np.setdiff1d(listed, train) if knows_training_scores(base) else listed


def _rows(value: Any, sender: str, name: str, rows: int) -> Integers:
    """Row numbers that a peer sent."""
    numbers = expect_array(value, sender=sender, name=name, holds="integer", shape=(None,))
    if numbers.size and (numbers.min() < 0 or numbers.max() >= rows):
        raise ProtocolError(f"Party {sender!r} sent {name!r} outside the {rows} there are.", sender)
    return numbers.astype(np.int64)


def _name(number: int) -> str:
    return f"piece {number}"


def _count(kept: Checkpoints | None) -> int:
    count = 0
    while kept is not None and kept.load(_name(count)) is not None:
        count += 1
    return count


def _kept_share(kept: Checkpoints, number: int) -> ModelShare:
    return ModelShare.from_dict(kept.load(_name(number))["share"])


def _listed_values(values: Floats | None) -> list[Any] | None:
    return None if values is None else values.tolist()


def _trained(share: ModelShare | None) -> ModelShare:
    if share is None:
        raise ConfigError("The base of VFPU gave the label holder no share of the model.")
    return share
