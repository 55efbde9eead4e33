"""One party's side of RISA, from its part of the data to its share of the model, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_integer
from vfsl.errors import ConfigError, ProtocolError, StoreError
from vfsl.evidence import protocol
from vfsl.evidence.columns import KINDS, Columns, columns_from
from vfsl.evidence.course import STAGES, Learned, Settings, Tell, run_course, stage_objective
from vfsl.evidence.encoders import Recipe, build_network
from vfsl.evidence.keeping import Folder, Keeper
from vfsl.evidence.member import Member, as_inputs, restore_weights, weights_of
from vfsl.evidence.opinion import Opinion, discount, fuse
from vfsl.evidence.picture import doubts
from vfsl.evidence.rows import (
    UNKNOWN,
    Numbers,
    Universe,
    WholePart,
    check_overlap,
    class_codes,
)
from vfsl.evidence.selftrain import self_trained
from vfsl.evidence.training import Local, Peer, opinions_from
from vfsl.parts import ModelShare, Roles
from vfsl.values import Array

_MOST_CLASSES = 10_000
MODEL = "risa"


@dataclass(frozen=True)
class Side:
    """What one party brings to training beside its channel."""

    part: WholePart
    recipe: Recipe
    settings: Settings
    rng: np.random.Generator
    own_labels: bool = True
    checkpoints: Path | str | None = None
    checkpoint_every: int = 5


def train_label_holder(channel: Channel, side: Side, roles: Roles, tell: Tell | None) -> ModelShare:
    """Lead the course and keep the label holder's share."""
    channel = channel.within(MODEL, protocol.DISCLOSURES)
    check_overlap(roles.data_holders, len(side.part.rows))
    classes, labels = _labels(channel.me, side)
    presence = {p: _presence(channel.receive(p, "presence"), p) for p in roles.feature_holders}
    own = {channel.me: len(side.part.own)} | {p: rows for p, (rows, _) in presence.items()}
    universe = Universe(roles.data_holders, len(side.part.rows), own)
    columns, members = _members(channel.me, side, len(classes))
    folder = _folder(side, channel.me)
    resume = 0
    if folder is not None:
        common = set(folder.epochs()).intersection(*(kept for _, kept in presence.values()))
        resume = max(common, default=0)
    for party in roles.feature_holders:
        channel.send(party, "terms", {"classes": len(classes), "resume": resume})
    keeper = None
    if folder is not None:
        if resume:
            members["evidence"].load_arrays(folder.load(resume))
        keeper = Keeper(
            folder,
            members["evidence"].to_arrays,
            lambda epoch: protocol.keep(channel, roles.feature_holders, epoch),
            side.checkpoint_every,
            resume,
        )
    peers = {
        stage: {channel.me: Local(members[stage])}
        | {p: protocol.Remote(channel, p, stage, len(classes)) for p in roles.feature_holders}
        for stage in STAGES
    }
    all_labels = np.full(universe.total, UNKNOWN, dtype=np.int64)
    all_labels[: len(labels)] = labels
    learned = run_course(
        peers, universe, all_labels, len(classes), side.settings, side.rng, keeper, tell
    )
    fills = _fills(peers["evidence"], side.settings, len(classes))
    protocol.end(channel, roles.feature_holders)
    if folder is not None:
        folder.clear()
    state = _state(columns, members["evidence"], len(classes))
    removal = side.settings.switches.removal
    state |= _facts(classes, universe, learned, fills, removal)
    notes = tuple(learned.notes)
    reason = f"{len(learned.rounds)} epochs done"
    return ModelShare(channel.me, MODEL, state, tuple(learned.rounds), reason, notes)


def train_feature_holder(channel: Channel, side: Side, roles: Roles) -> ModelShare:
    """Answer the label holder until it is done, and keep this party's share."""
    channel = channel.within(MODEL, protocol.DISCLOSURES)
    folder = _folder(side, channel.me)
    kept = [] if folder is None else folder.epochs()
    channel.send(roles.label_holder, "presence", {"own rows": len(side.part.own), "kept": kept})
    terms = channel.receive(roles.label_holder, "terms")
    classes = expect_integer(
        terms.get("classes"), sender=roles.label_holder, name="terms", low=2, high=_MOST_CLASSES
    )
    resume = expect_integer(
        terms.get("resume"), sender=roles.label_holder, name="terms", low=0, high=1 << 40
    )
    columns, members = _members(channel.me, side, classes)
    if resume and folder is not None:
        members["evidence"].load_arrays(folder.load(resume))
    protocol.serve(channel, roles.label_holder, members, folder)
    if folder is not None:
        folder.clear()
    return ModelShare(channel.me, MODEL, _state(columns, members["evidence"], classes))


def ask_opinions(
    channel: Channel,
    member: Member,
    part_rows: tuple[int, int],
    share: ModelShare,
    settings: Settings,
    asked: Sequence[str],
) -> Array:
    """The label holder's prediction: fused beliefs and, last, the uncertainty of each row.

    ``part_rows`` counts overlap and own rows; parties that are not asked are absent.
    """
    channel = channel.within(MODEL, protocol.DISCLOSURES)
    overlap, own = part_rows
    classes = share.state["width"]
    rows = np.arange(overlap, dtype=np.int64)
    mean = settings.switches.absent == "mean"
    outputs = []
    for party in share.state["parties"]:
        fill = np.asarray(share.state["fills"][party], dtype=np.float32)
        full = np.tile(fill if mean else np.zeros_like(fill), (overlap + own, 1))
        if party == channel.me:
            full = member.answer(np.arange(overlap + own))
        elif party in asked:
            remote = protocol.Remote(channel, party, "evidence", classes)
            full[:overlap] = remote.answer(rows, False)
        outputs.append(full)
    protocol.end(channel, asked)
    if not settings.switches.evidential:
        chances = self_trained(outputs)
        return np.column_stack([chances, 1 - chances.max(axis=1)])
    fused = fuse_trusted(opinions_from(outputs), share.state["trust"], settings)
    return np.column_stack([fused.belief, fused.uncertainty])


def answer_opinions(channel: Channel, member: Member, roles: Roles) -> None:
    """A passive party's prediction."""
    channel = channel.within(MODEL, protocol.DISCLOSURES)
    protocol.serve(channel, roles.label_holder, {"evidence": member})


def fuse_trusted(
    opinions: Sequence[Opinion], trust: Mapping[str, float], settings: Settings
) -> Opinion:
    """Opinions in their fixed order, each as far as it is trusted."""
    heard = [discount(o, level) for o, level in zip(opinions, trust.values(), strict=True)]
    return fuse(heard, settings.switches.fusion)


def restored(part: WholePart, recipe: Recipe, settings: Settings, share: ModelShare) -> Member:
    """The trained network of a share, over the rows of a part."""
    try:
        columns = columns_from(share.state["columns"])
        width = int(share.state["width"])
        rng = np.random.default_rng(0)  # overwritten by the kept weights
        network = build_network(recipe, columns, width, rng, share.party)
        restore_weights(network, share.state["weights"])
    except KeyError as error:
        raise StoreError(f"The share of party {share.party!r} lacks {error}.") from None
    return _member(network, part, columns, "evidence", settings)


def _labels(party: str, side: Side) -> tuple[list[Any], Numbers]:
    if side.part.target is None or side.part.own_target is None:
        raise ConfigError(f"Party {party!r} holds the label but was given no target.")
    own = side.part.own_target if side.own_labels else np.full(len(side.part.own), None)
    return class_codes(party, side.part.target, own)


def _presence(value: Any, party: str) -> tuple[int, list[int]]:
    rows = expect_integer(value.get("own rows"), sender=party, name="presence", low=0, high=1 << 40)
    kept = value.get("kept")
    if not isinstance(kept, list) or not all(isinstance(epoch, int) for epoch in kept):
        raise ProtocolError(f"Party {party!r} sent epochs that are not whole numbers.", party)
    return rows, kept


def _members(party: str, side: Side, classes: int) -> tuple[Columns, dict[str, Member]]:
    table = side.part.table.take(side.part.all_rows)
    columns = KINDS[side.recipe.columns].fit(table)
    members = {}
    for stage in STAGES:
        network = build_network(side.recipe, columns, classes, side.rng, party)
        members[stage] = _member(network, side.part, columns, stage, side.settings)
    return columns, members


def _member(
    network: Any, part: WholePart, columns: Columns, stage: str, settings: Settings
) -> Member:
    inputs = as_inputs(columns.arrays(part.table.take(part.all_rows)), settings.learning.device)
    evidential = stage == "evidence" and settings.switches.evidential
    form = settings.evidence if evidential else None
    return Member(network, inputs, len(part.rows), columns.levels, form, settings.learning)


def _folder(side: Side, party: str) -> Folder | None:
    if side.checkpoints is None:
        return None
    facts = (asdict(side.settings), party, len(side.part.rows), len(side.part.own))
    text = repr((facts, side.rng.bit_generator.state))
    return Folder(side.checkpoints, hashlib.sha256(text.encode()).hexdigest())


def _fills(peers: Mapping[str, Peer], settings: Settings, classes: int) -> dict[str, list[float]]:
    """What each party says of its mean row, where absent parties are to say that."""
    if not stage_objective(settings, "evidence", classes).fills:
        return {party: [0.0] * classes for party in peers}
    nothing = np.zeros(0, dtype=np.int64)
    return {party: peer.answer(nothing, True)[0].tolist() for party, peer in peers.items()}


def _state(columns: Columns, member: Member, classes: int) -> dict[str, Any]:
    return {
        "columns": columns.to_dict(),
        "weights": weights_of(member.network),
        "width": classes,
    }


def _facts(
    classes: list[Any],
    universe: Universe,
    learned: Learned,
    fills: dict[str, list[float]],
    removal: str,
) -> dict[str, Any]:
    """What only the label holder keeps."""
    known = learned.labels != UNKNOWN
    return {
        "classes": classes,
        "parties": list(universe.parties),
        "own rows": dict(universe.own),
        "trust": learned.trust,
        "fills": fills,
        "left": learned.left,
        "doubts": doubts(learned.scores, [line["row"] for line in learned.left], removal),
        "pseudo labels": int((known & ~learned.labelled).sum()),
    }
