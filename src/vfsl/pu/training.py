"""Training tasks of VFPU: train models on one set of weights, then learn one value for each row.

Holds   the label holder: marks, and with them who trains and votes; feature holders: columns; the
        key holder: the secret key, no data.
Learns  beyond what the base estimator shows (see its file): everybody how many tasks there are.
        The label holder: with a linear base the sum of each row's voters' total scores, else all
        training scores. The key holder: uniformly masked numbers, how many rows there are. With
        listed rows (``row_lists="told"``) feature holders learn who the known positives are, and
        the label holder a score of each row and bag.

The label holder leads, and the others follow. Every party keeps its finished tasks in a place of
its own, without keys or masks, so that a search can go on from them.

On shares all models of a task are trained in one exchange (shared_bags.py), and their sums are all
that is opened. Under the other schemes the base trains by itself, and the sums follow here.

T scores of a row would be T linear combinations of the other party's columns: with as many bags as
columns, its whole table up to a linear map. So the feature holders send encrypted scores of all
linear models, the label holder multiplies them by its private votes and adds up over the models. No
single bag's score is opened, and feature holders learn nothing, not even who votes. With one
feature holder the sum also tells that party's part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import EncryptedArray, KeyHolder, PublicKey
from vfsl.crypto.fixed import decode, encode
from vfsl.draws import draw_by_number
from vfsl.errors import ConfigError, ProtocolError
from vfsl.estimators.base import Estimator
from vfsl.estimators.exchange import (
    bundle,
    load_array,
    receive_count,
    receive_key,
    send_fresh_key,
    unbundle,
)
from vfsl.estimators.linear import LogisticRegression, encode_columns
from vfsl.lead import Follower, Leader, disclose_orders
from vfsl.parts import ModelShare, Part, Roles, Seen
from vfsl.pu.bags import Booleans, average_sums
from vfsl.pu.bases import average_logits, cut_part, on_shares
from vfsl.pu.shared_tasks import train_side
from vfsl.store import Checkpoints
from vfsl.values import Ciphertext, Disclosure, Disclosures, Floats, Integers, Masked

ALL, LISTED = "all rows", "listed rows"
_LISTS = ("positives", "pseudo-negatives", "out-of-bag")
_MOST = 10**6

DISCLOSURES: Disclosures = {
    **disclose_orders(
        "what comes next: models on all rows, on listed rows, or the end, and which of the trained "
        "models make up the result"
    ),
    "positives": Disclosure(np.ndarray, "which rows are the positives P: membership is told"),
    "pseudo-negatives": Disclosure(
        np.ndarray, "which rows are drawn as negatives N: membership is told"
    ),
    "out-of-bag": Disclosure(
        np.ndarray, "which rows are out of bag, O, and scored: membership is told"
    ),
}
SUM_DISCLOSURES: Disclosures = {
    "public key": Disclosure(dict, "the public key of this run"),
    "rows": Disclosure(int, "how many rows take part"),
    "bag scores": Disclosure(Ciphertext, "nothing without the secret key"),
    "sum": Disclosure(Ciphertext, "uniformly masked sums of scores"),
    "opened sum": Disclosure(
        Masked, "one out-of-bag sum of total scores for each row, to the label holder"
    ),
}

SCORE_BITS = 24
# Scores stay below 2^16; their sums over a thousand models fit every scheme.
_BOUND = 1 << 40


@dataclass(frozen=True, eq=False)
class TrainedModels:
    """A finished task: the label holder's share, and what it learned.

    ``sums`` over each row's voters where the base shows nothing else, else ``scores`` of all models
    (of listed rows, those that train or are to be scored); then bags vote by probability.
    """

    share: ModelShare
    sums: Floats | None = None
    scores: Floats | None = None

    def average(self, base: Estimator, voters: Booleans) -> Floats:
        """One logit for each row by its voters; NaN for a row without one."""
        if self.scores is not None:
            return average_logits(base, self.scores, voters)
        return average_sums(np.asarray(self.sums), voters)


class BagTrainer:
    """The label holder's side of all training tasks, in turn."""

    def __init__(
        self,
        channel: Channel,
        base: Estimator,
        part: Part,
        roles: Roles,
        rng: np.random.Generator,
        kept: Checkpoints,
    ) -> None:
        self.me, self.base, self.part = channel.me, base, part
        self._roles, self._kept = roles, kept
        self._draw = draw_by_number(rng)
        self._leader = Leader(
            channel, roles.feature_holders, (roles.key_holder,), _finished_tasks(kept)
        )
        self.number = 0

    def train(
        self, target: Integers, weights: Floats, voters: Booleans, listed: bool
    ) -> TrainedModels:
        """Do the next task, or take it from an earlier attempt if all parties have kept it.

        Parameters
        ----------
        target : array (rows,) of 0 and 1
        weights : array (rows, models)
        voters : array (rows, models)
            Whose scores are wanted.
        listed : bool
            Train one model on its own rows, which the feature holders are told.
        """
        number = self.number
        self.number += 1
        if number < self._leader.resumed:
            arrays = self._kept.load_arrays(_name(number))
            return TrainedModels(_load_share(self._kept, number), **arrays)
        self._kept.forget(_name(number))  # pieces of another attempt fit nobody's
        here, rng = self._leader.order(LISTED if listed else ALL), self._draw(number)
        part = replace(self.part, target=target, weights=weights)
        done = (self._train_listed if listed else self._train_all)(here, part, voters, rng)
        learned = {"sums": done.sums, "scores": done.scores}
        arrays = {name: values for name, values in learned.items() if values is not None}
        self._kept.save(_name(number), {"share": done.share.to_dict()}, arrays)
        return done

    def end(self, tasks: list[int], models: int) -> None:
        """Tell the others which tasks, and how many models of each, make up the result."""
        self._leader.end(tasks=np.array(tasks, dtype=np.int64), models=models)

    def _train_all(
        self, channel: Channel, part: Part, voters: Booleans, rng: np.random.Generator
    ) -> TrainedModels:
        if on_shares(self.base, self._roles):
            share, sums = self._train_on_shares(channel, self.base, part, voters, rng)
            return TrainedModels(share, sums)
        share = self._train_base(channel, part, rng)
        if self.base.knows_training_scores:
            return TrainedModels(share, scores=self.base.training_scores(share))
        here = channel.within("out of bag", SUM_DISCLOSURES)
        return TrainedModels(share, sum_label_holder(here, part, share, voters, self._roles))

    def _train_listed(
        self, channel: Channel, part: Part, voters: Booleans, rng: np.random.Generator
    ) -> TrainedModels:
        """One model, for which the row lists of P, N and O go to the feature holders."""
        target, weights = np.asarray(part.target), np.asarray(part.weights)
        counts, voted = weights[:, 0] > 0, voters[:, 0]
        lists = (counts & (target == 1), counts & (target == 0), voted)
        rows = [np.flatnonzero(one) for one in lists]
        for party in self._roles.feature_holders:
            for name, numbers in zip(_LISTS, rows, strict=True):
                channel.send(party, name, numbers)
        train = np.union1d(rows[0], rows[1])
        scores = np.zeros((len(voted), 1))
        if on_shares(self.base, self._roles):
            used = np.union1d(train, rows[2])
            listed = Part(part.table, part.rows[used], target[used], weights[used])
            share, sums = self._train_on_shares(channel, self.base, listed, voters[used], rng)
            scores[used, 0] = sums
            return TrainedModels(share, scores=scores)
        listed = Part(part.table, part.rows[train], target[train], weights[train])
        share = self._train_base(channel, listed, rng)
        if self.base.knows_training_scores:
            scores[train] = self.base.training_scores(share)
        asked = _find_unscored(self.base, train, rows[2])
        scored = Part(part.table, part.rows[asked])
        scores[asked] = self.base.score_rows(channel, scored, share, roles=self._roles)
        return TrainedModels(share, scores=scores)

    def _train_on_shares(
        self,
        channel: Channel,
        base: LogisticRegression,
        part: Part,
        voters: Booleans,
        rng: np.random.Generator,
    ) -> tuple[ModelShare, Floats]:
        trained = train_side(channel, part, base, self._roles, rng, voters)
        if trained is None or trained.sums is None:
            raise ConfigError("The label holder of VFPU got no sums.")
        return trained.share, trained.sums

    def _train_base(self, channel: Channel, part: Part, rng: np.random.Generator) -> ModelShare:
        share = self.base.train(channel, part, roles=self._roles, rng=rng)
        if share is None:
            raise ConfigError("The base of VFPU gave the label holder no share of the model.")
        return share


def follow_training(
    channel: Channel,
    base: Estimator,
    part: Part | None,
    roles: Roles,
    rng: np.random.Generator,
    kept: Checkpoints,
) -> ModelShare | None:
    """The side of a feature holder, and of the key holder, who has no part and gets no share."""
    leader = roles.label_holder
    follower = Follower(channel, leader, None if part is None else _finished_tasks(kept))
    shares = [] if part is None else [_load_share(kept, n) for n in range(follower.resumed)]
    draw = draw_by_number(rng)
    for number, here, order in follower:
        if order.get("do") not in (ALL, LISTED):
            raise ProtocolError(
                f"Party {leader!r} ordered unknown work {order.get('do')!r:.60}.", leader
            )
        kept.forget(_name(number))  # pieces of another attempt fit nobody's
        share = _follow_task(here, base, part, roles, draw(number), order["do"] == LISTED)
        if share is not None:
            shares.append(share)
            kept.save(_name(number), {"share": share.to_dict()})
    if part is None:
        return None
    last = follower.last
    models = expect_integer(last.get("models"), sender=leader, name="order", low=1, high=_MOST)
    chosen = _expect_numbers(last.get("tasks"), leader, "order", len(shares))
    state = {"members": [shares[task].to_dict() for task in chosen], "models": models}
    return ModelShare(channel.me, "vfpu", state, seen=Seen.of(part.table, part.rows))


def _follow_task(
    channel: Channel,
    base: Estimator,
    part: Part | None,
    roles: Roles,
    rng: np.random.Generator,
    listed: bool,
) -> ModelShare | None:
    trained, scored = part, part
    if listed and part is not None:
        leader = roles.label_holder
        came = {name: channel.receive(leader, name) for name in _LISTS}
        lists = [
            _expect_numbers(value, leader, name, len(part.rows)) for name, value in came.items()
        ]
        train = np.union1d(lists[0], lists[1])
        if on_shares(base, roles):
            train = np.union1d(train, lists[2])
        trained = replace(part, rows=part.rows[train])
        scored = replace(part, rows=part.rows[_find_unscored(base, train, lists[2])])
    if on_shares(base, roles):
        done = train_side(channel, trained, base, roles, rng)
        return None if done is None else done.share
    share = base.train(channel, trained, roles=roles, rng=rng)
    if listed:
        base.score_rows(channel, scored, share, roles=roles)
    elif not base.knows_training_scores:
        here = channel.within("out of bag", SUM_DISCLOSURES)
        if part is None or share is None:
            sum_key_holder(here, roles)
        else:
            sum_feature_holder(here, part, share, roles)
    return share


def _find_unscored(base: Estimator, train: Integers, listed: Integers) -> Integers:
    """The listed rows whose scores the label holder does not have from training."""
    return np.setdiff1d(listed, train) if base.knows_training_scores else listed


def _expect_numbers(value: Any, sender: str, name: str, below: int) -> Integers:
    """Numbers of rows or tasks that a peer sent."""
    numbers = expect_array(value, sender=sender, name=name, holds="integer", shape=(None,))
    if numbers.size and (numbers.min() < 0 or numbers.max() >= below):
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} outside the {below} there are.", sender
        )
    return numbers.astype(np.int64)


def _name(number: int) -> str:
    return f"task-{number}"


def _finished_tasks(kept: Checkpoints) -> list[int]:
    """After how many tasks this party could go on."""
    marks: list[int] = []
    while kept.load(_name(len(marks))) is not None:
        marks.append(len(marks) + 1)
    return marks


def _load_share(kept: Checkpoints, number: int) -> ModelShare:
    content: Mapping[str, Any] = kept.load(_name(number))
    return ModelShare.from_dict(content["share"])


# ---- one out-of-bag sum of scores for each row, formed under encryption --------------------------


def sum_key_holder(channel: Channel, roles: Roles) -> None:
    """Make a fresh key and open one masked sum for each row."""
    secret = send_fresh_key(channel, roles)
    rows = receive_count(channel, roles.label_holder, "rows", 1, 1 << 40)
    holder = KeyHolder(secret, {"sum": (rows,)})
    request = channel.receive(roles.label_holder, "sum")
    channel.send(roles.label_holder, "opened sum", holder.open("sum", request))


def sum_feature_holder(channel: Channel, part: Part, share: ModelShare, roles: Roles) -> None:
    """Send encrypted scores of all models."""
    key = receive_key(channel, roles)
    scores = encode(score_columns(part, share), SCORE_BITS, bound=_BOUND)
    arrays = [key.encrypt(column, bound=_BOUND) for column in scores.T]
    channel.release(roles.label_holder, "out-of-bag sums", len(scores))
    channel.send(roles.label_holder, "bag scores", bundle(arrays))


def sum_label_holder(
    channel: Channel, part: Part, share: ModelShare, voters: Booleans, roles: Roles
) -> Floats:
    """For each row the sum of its voters' total scores."""
    key = receive_key(channel, roles)
    channel.send(roles.key_holder, "rows", len(voters))
    own = encode(score_columns(part, share, constant=True), SCORE_BITS, bound=_BOUND)
    theirs = [_receive_scores(channel, party, key, own.shape) for party in roles.feature_holders]
    chosen = np.flatnonzero(voters.any(axis=0))
    products = (
        reduce(add, (arrays[model] for arrays in theirs)) * voters[:, model].astype(np.int64)
        for model in chosen
    )
    total = reduce(add, products) + (own * voters).sum(axis=1)
    request, mask = total.mask()
    channel.send(roles.key_holder, "sum", request)
    opened = decode(mask.remove(channel.receive(roles.key_holder, "opened sum")), SCORE_BITS)
    channel.note_opened("out-of-bag sums", opened)
    return opened


def score_columns(part: Part, share: ModelShare, constant: bool = False) -> Floats:
    """A party's summand of the scores of a linear share, (rows, models)."""
    columns = encode_columns(cut_part(part, share.state.get("limits", {})), share)
    if constant:
        columns = np.column_stack([columns, np.ones(len(columns))])
    weights = np.asarray(share.state["weights"], dtype=np.float64)
    return np.asarray(columns @ weights.reshape(columns.shape[1], share.state["models"]))


def _receive_scores(
    channel: Channel, party: str, key: PublicKey, shape: tuple[int, ...]
) -> list[EncryptedArray]:
    came = unbundle(channel.receive(party, "bag scores"), party)
    rows, models = shape
    if len(came) != models:
        raise ProtocolError(
            f"Party {party!r} sent scores of {len(came)} models; expected {models}.", party
        )
    return [load_array(key, one, party, (rows,)) for one in came]
