"""RISA between the parties: passive ones say evidence and get its gradient back.

Holds   the label holder: columns and labels; every other party: columns of its own.
Learns  the label holder: the other parties' evidence (and, for pseudo labels, class scores) of each
        row that takes part, and how many rows they have alone. The others: which of their rows take
        part in each pass, hence which got a pseudo label and which left, and gradients from which
        most training labels can be read. No columns, no features, no ids cross, and the rows of one
        party stay nameless to the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.data import PartyTable
from vfsl.errors import ConfigError, ProtocolError, StoreError
from vfsl.evidence.blurring import Blurring
from vfsl.evidence.course import STAGES, Course, Stage, Unfinished, opinions_of, run_course
from vfsl.evidence.encoders import Columns, Recipe, columns_from
from vfsl.evidence.networks import (
    Floats,
    Inputs,
    Member,
    as_inputs,
    build_network,
    restore_weights,
    weights_of,
)
from vfsl.evidence.opinion import fuse_trusted
from vfsl.evidence.rows import UNKNOWN, Numbers, Universe, add_scores, encode_labels, find_classes
from vfsl.evidence.training import Remote, Team, receive_floats
from vfsl.lead import Follower, Leader, disclose_orders
from vfsl.mechanisms import RandomisedResponse
from vfsl.parts import ModelShare, Part, Roles
from vfsl.store import Checkpoints
from vfsl.values import Array, Disclosure, Disclosures

MODEL = "risa"
_LABELS = "the training labels of most rows, to a receiver that looks for them"
DISCLOSURES: Disclosures = {
    **disclose_orders("whether the receiver's network learns, at which rate, answers or is kept"),
    "own rows": Disclosure(int, "how many rows only the sender has"),
    "classes": Disclosure(int, "the number of classes"),
    "rows": Disclosure(
        dict,
        "which of the receiver's rows take part in a pass: which have a label or a pseudo label, "
        "and which have left",
    ),
    "evidence": Disclosure(np.ndarray, "the sender's evidence for each class, row by row"),
    "scores": Disclosure(np.ndarray, "the sender's self-training scores of each class, by row"),
    "gradient of evidence": Disclosure(np.ndarray, _LABELS),
    "gradient of scores": Disclosure(np.ndarray, _LABELS),
}
_MOST_CLASSES = 10_000
_MOST_ROWS = 1 << 40
_KEPT_EPOCHS = 2  # one that only some parties managed to keep must not be the only one


@dataclass(frozen=True)
class Side:
    """What one party brings to a training or a prediction, and the networks it makes of that."""

    channel: Channel  # speaks DISCLOSURES
    part: Part
    recipe: Recipe
    course: Course
    blurring: Blurring | None = None  # of evidence; where labels are protected only

    @property
    def me(self) -> str:
        return self.channel.me

    @property
    def table(self) -> PartyTable:
        """The overlap rows, then the others."""
        return self.part.table.take(self.part.all_rows)

    def build_members(
        self, classes: int, rng: np.random.Generator
    ) -> tuple[Columns, dict[Stage, Member]]:
        """How the party's columns are encoded, and its networks of both stages."""
        columns = self.recipe.columns.fit(self.table)
        members = {}
        for stage in STAGES:
            network = build_network(self.recipe, columns, classes, rng, self.me)
            members[stage] = self._member(network, columns, stage)
        return columns, members

    def restore_member(self, share: ModelShare) -> Member:
        """The trained network of a share, over the rows that the party has now."""
        try:
            columns = columns_from(share.state["columns"])
            width = int(share.state["width"])
            rng = np.random.default_rng(0)  # overwritten by the kept weights
            network = build_network(self.recipe, columns, width, rng, share.party)
            restore_weights(network, share.state["weights"])
        except KeyError as error:
            raise StoreError(f"The share of party {share.party!r} lacks {error}.") from None
        return self._member(network, columns, "evidence")

    def _member(self, network: Any, columns: Columns, stage: Stage) -> Member:
        inputs = as_inputs(columns.arrays(self.table), self.course.learning.device)
        return self.member_of(network, inputs, columns.levels, stage)

    def member_of(
        self, network: Any, inputs: Inputs, levels: Sequence[int], stage: Stage
    ) -> Member:
        """A network with its rows, the overlap first."""
        evidential = stage == "evidence" and self.course.switches.evidential
        form = self.course.risa.evidence if evidential else None
        return Member(network, inputs, len(self.part.rows), levels, form, self.course.learning)


@dataclass(frozen=True, eq=False)
class Problem:
    """The classes, and the label of each of the label holder's rows, the overlap first."""

    classes: list[Any]
    labels: Numbers


def read_problem(
    side: Side, peers: Sequence[str], own_labels: bool, rng: np.random.Generator
) -> Problem:
    """What the label holder's target is; randomised where that was asked for."""
    part = side.part
    if part.target is None or part.rest_target is None:
        raise ConfigError(f"Party {side.me!r} holds the label but was given no target.")
    rest_target = part.rest_target if own_labels else np.full(len(part.rest), None)
    classes = find_classes(side.me, part.target, rest_target)
    target = np.concatenate([part.target, rest_target])
    labels = encode_labels(side.me, target, classes)
    epsilon = side.course.risa.label_epsilon
    if epsilon is not None:
        mechanism = RandomisedResponse(epsilon, len(classes))
        once = hashlib.sha256(labels.tobytes() + repr(rng.bit_generator.state).encode()).digest()
        labels = side.channel.release_noisy(
            peers, "labels", labels, mechanism, rng, about="label", once=once
        )
    return Problem(classes, labels)


# ---- training: the label holder ------------------------------------------------------------------


def lead_training(
    side: Side,
    roles: Roles,
    rng: np.random.Generator,
    kept: Checkpoints,
    own_labels: bool = True,
    tell: Callable[[int], None] | None = None,
) -> ModelShare:
    """Lead the course and keep the label holder's share."""
    channel, part, course = side.channel, side.part, side.course
    problem = read_problem(side, roles.feature_holders, own_labels, rng)
    classes = problem.classes
    own = {side.me: len(part.rest)}
    for party in roles.feature_holders:
        said = channel.receive(party, "own rows")
        own[party] = expect_integer(said, sender=party, name="own rows", low=0, high=_MOST_ROWS)
        channel.send(party, "classes", len(classes))
    universe = Universe(roles.data_holders, len(part.rows), own)
    labels = np.full(universe.total, UNKNOWN, dtype=np.int64)
    labels[: len(problem.labels)] = problem.labels
    columns, members = side.build_members(len(classes), rng)
    leader = Leader(channel, roles.feature_holders, marks=kept.numbers("epoch"))
    unfinished = None
    if leader.resumed:
        unfinished = Unfinished(*_load_epoch(kept, leader.resumed, members["evidence"]))

    def keep(now: Unfinished) -> None:
        epoch = len(now.rounds)
        leader.order("keep", epoch=epoch)
        _keep_epoch(kept, epoch, members["evidence"], now.rounds, now.arrays)

    noisy = course.risa.label_epsilon is not None
    teams = {
        stage: Team(
            universe,
            {side.me: members[stage]}
            | {p: Remote(p, stage, len(classes), noisy) for p in roles.feature_holders},
            leader,
            stage,
        )
        for stage in STAGES
    }
    learned = run_course(
        teams,
        labels,
        len(classes),
        course,
        rng,
        unfinished=unfinished,
        keep=None if kept.folder is None else keep,
        tell=tell,
    )
    fills = [[0.0] * len(classes)] * len(universe.parties)
    if course.objective("evidence", len(classes)).fills:
        nobodys = np.array([-1])  # all parties are absent and say what they say of their mean row
        fills = [said[0].tolist() for said in teams["evidence"].answer(nobodys, with_fill=True)]
    leader.end()
    state = {
        **network_state(columns, members["evidence"], len(classes)),
        **learned.to_state(course.switches.removal),
        "classes": classes,
        "parties": list(universe.parties),
        "own rows": own,
        "fills": dict(zip(universe.parties, fills, strict=True)),
    }
    reason = f"{len(learned.rounds)} epochs done"
    rounds, notes = tuple(learned.rounds), tuple(learned.notes)
    return ModelShare(side.me, MODEL, state, rounds, reason, notes)


# ---- training: the other parties -----------------------------------------------------------------


def follow_training(
    side: Side, roles: Roles, rng: np.random.Generator, kept: Checkpoints
) -> ModelShare:
    """Do what the label holder orders until it is done, and keep this party's share."""
    leader = roles.label_holder
    side.channel.send(leader, "own rows", len(side.part.rest))
    said = side.channel.receive(leader, "classes")
    classes = expect_integer(said, sender=leader, name="classes", low=2, high=_MOST_CLASSES)
    columns, members = side.build_members(classes, rng)
    obey_orders(side.channel, leader, members, kept)
    return ModelShare(side.me, MODEL, network_state(columns, members["evidence"], classes))


def obey_orders(
    channel: Channel, leader: str, members: Mapping[Stage, Member], kept: Checkpoints
) -> None:
    """Train, answer and keep checkpoints as the label holder orders."""
    follower = Follower(channel, leader, kept.numbers("epoch"))
    if follower.resumed:
        _load_epoch(kept, follower.resumed, members["evidence"])
    for _, here, order in follower:
        if order.get("do") == "keep" and isinstance(order.get("epoch"), int):
            _keep_epoch(kept, order["epoch"], members["evidence"], [], {})
            continue
        known = order.get("do") in ("train", "answer") and order.get("stage") in members
        if not known or not isinstance(order.get("rate", 0.0), float):
            raise ProtocolError(f"Party {leader!r} sent a task that RISA does not know.", leader)
        says: Stage = order["stage"]
        member = members[says]
        batches = _receive_batches(here, leader, len(member.inputs))
        fill = bool(order.get("fill"))
        if order["do"] == "answer":
            rows = np.concatenate([np.zeros(0, dtype=np.int64), *batches])
            _say(here, leader, says, member.answer(rows, fill))
            continue
        member.plan(order.get("rate", 0.0), batches, fill)
        while member.unfinished:
            outputs = member.outputs()
            _say(here, leader, says, outputs)
            member.learn(receive_floats(here, leader, f"gradient of {says}", outputs.shape))


def _say(channel: Channel, leader: str, says: str, outputs: Floats) -> None:
    channel.release(leader, says, outputs.size)
    channel.send(leader, says, outputs)


def _receive_batches(channel: Channel, leader: str, count: int) -> list[Numbers]:
    """The rows of each batch, which must be among this party's."""
    said = channel.receive(leader, "rows")
    rows, ends = (
        expect_array(said.get(name), sender=leader, name="rows", holds="integer", shape=(None,))
        for name in ("rows", "ends")
    )
    if len(rows) and not (rows.min() >= 0 and rows.max() < count):
        raise ProtocolError(
            f"Party {leader!r} asked for rows that are not among the {count} of this party.", leader
        )
    if not len(ends) and not len(rows):
        return []
    if not len(ends) or (np.diff(ends) < 0).any() or ends[-1] != len(rows) or ends[0] < 0:
        raise ProtocolError(f"Party {leader!r} sent batches that do not fit their rows.", leader)
    return np.split(rows.astype(np.int64), ends[:-1])


# ---- prediction ----------------------------------------------------------------------------------


def say_opinions(side: Side, share: ModelShare, roles: Roles) -> None:
    """A passive party's side of prediction: its evidence for the common rows."""
    outputs = side.restore_member(share).answer(np.arange(len(side.part.rows)))
    _say(side.channel, roles.label_holder, "evidence", outputs)


def hear_opinion(side: Side, party: str, shape: tuple[int, int]) -> Floats:
    """The evidence of another party for the common rows."""
    return receive_floats(side.channel, party, "evidence", shape)


def fuse_opinions(
    side: Side,
    share: ModelShare,
    hear: Callable[[str, tuple[int, int]], Floats],
    offline: Sequence[str] = (),
) -> Array:
    """The label holder's prediction: beliefs and, last, the uncertainty of all of its rows."""
    course, member = side.course, side.restore_member(share)
    overlap, total = len(side.part.rows), len(side.part.all_rows)
    outputs = []
    for party in share.state["parties"]:
        fill = np.asarray(share.state["fills"][party], dtype=np.float32)
        mean = course.switches.absent == "mean"
        full = np.tile(fill if mean else np.zeros_like(fill), (total, 1))
        if party == side.me:
            full = member.answer(np.arange(total))
        elif party not in offline:
            shape = (overlap, len(fill))
            full[:overlap] = hear(party, shape)
        outputs.append(full)
    if not course.switches.evidential:
        chances = add_scores(outputs)
        return np.column_stack([chances, 1 - chances.max(axis=1)])
    trust = share.state["trust"].values()
    fused = fuse_trusted(opinions_of(outputs), trust, course.switches.fusion)
    return np.column_stack([fused.belief, fused.uncertainty])


# ---- what is kept --------------------------------------------------------------------------------


def network_state(columns: Columns, member: Member, classes: int) -> dict[str, Any]:
    """What a party keeps of its network."""
    return {
        "columns": columns.to_dict(),
        "weights": weights_of(member.network),
        "width": classes,
    }


def _keep_epoch(
    kept: Checkpoints,
    epoch: int,
    member: Member,
    rounds: list[dict[str, Any]],
    arrays: Mapping[str, Array],
) -> None:
    kept.save(f"epoch-{epoch}", rounds, {**arrays, **member.to_arrays()})
    for old in kept.numbers("epoch")[:-_KEPT_EPOCHS]:
        kept.forget(f"epoch-{old}")


def _load_epoch(
    kept: Checkpoints, epoch: int, member: Member
) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """The rounds and arrays that were kept after an epoch; the network is as it was then."""
    rounds = kept.load(f"epoch-{epoch}")  # first: it refuses work of another job
    arrays = kept.load_arrays(f"epoch-{epoch}")
    member.load_arrays(arrays)
    return rounds, arrays
