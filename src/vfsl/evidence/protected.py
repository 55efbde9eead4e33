"""RISA with protected labels: every feature holder's evidence comes from a head on shares.

Holds   the label holder: columns, labels and the only network that learns from labels; every other
        party: features of its own columns, learned without labels; the dealer: seeds.
Learns  the label holder: what a head says of each common row, with noise where that was asked for.
        The others: which common rows have a label, and which of these a head was trained without.
        Nobody learns a head's weights; all a power of two above the sum of their squares. No
        gradient, label or evidence reaches a feature holder.

A head is ridge regression from one party's features to the classes. For labelled rows the label
holder hears heads that were trained without them (cross-fitting), so what it then learns about how
far to believe a head holds for new rows too. From there on it is alone: RISA's course runs in its
own process, and what the heads said stands for the other parties' columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from vfsl.channel import Channel, expect_array
from vfsl.errors import ConfigError, DataError, ProtocolError, StoreError
from vfsl.estimators.shared import fit as shared_fit
from vfsl.estimators.shared.scoring import Accuracy, open_shared_scores
from vfsl.evidence.blurring import Blurring, name_rows
from vfsl.evidence.course import STAGES, Stage, Unfinished, run_course
from vfsl.evidence.encoders import Arrays
from vfsl.evidence.features import Features
from vfsl.evidence.networks import Inputs, Member, Reader, restore_weights, weights_of
from vfsl.evidence.protocol import MODEL, Problem, Side, network_state, read_problem
from vfsl.evidence.rows import UNKNOWN, Numbers, Universe
from vfsl.evidence.training import Team
from vfsl.lead import Follower, Leader, disclose_orders
from vfsl.parts import ModelShare, Roles
from vfsl.store import Checkpoints
from vfsl.values import Array, Disclosure, Disclosures, Floats

DISCLOSURES: Disclosures = {
    **disclose_orders("which head comes next, and when the label holder has ended an epoch"),
    "folds": Disclosure(
        np.ndarray,
        "which aligned rows have a known label, and which of these a head is trained without",
    ),
}
FOLDS = 5
# The penalty of a head. Squares of features add up to 1 in the mean over rows, so this is the
# fraction of a row's whole variance that a direction must have to count. Chosen on folds of
# the training rows of census and Criteo, so tables on these two are not a fair judge of it.
L2 = 1e-3
# Evidence off by 1/256 of its own deviation changes no opinion that counts.
ACCURACY = Accuracy(2.0**-8, 1)
_NOTHING = np.zeros(0, dtype=np.int64)


class Head(NamedTuple):
    """One task: the head of a party, trained without a fold; ``fold`` FOLDS is without none."""

    party: str
    fold: int


def list_heads(roles: Roles) -> list[Head]:
    return [Head(party, fold) for party in roles.feature_holders for fold in range(FOLDS + 1)]


def draw_folds(labels: Numbers, rng: np.random.Generator) -> Numbers:
    """The fold of each common row; UNKNOWN where it has no label."""
    rows = np.flatnonzero(labels != UNKNOWN)
    if len(rows) < 2 * FOLDS:
        raise DataError(
            f"RISA with protected labels needs at least {2 * FOLDS} labelled overlap rows; there "
            f"are {len(rows)}. Use protect='none' if the other parties may know the labels."
        )
    folds = np.full(len(labels), UNKNOWN, dtype=np.int64)
    folds[rng.permutation(rows)] = np.arange(len(rows)) % FOLDS
    return folds


def code_classes(labels: Numbers, classes: int) -> tuple[Floats, Floats, Floats]:
    """Targets of deviation 1, and the mean and deviation of each; one target for two classes."""
    hot = np.eye(classes)[labels]
    hot = hot[:, 1:] if classes == 2 else hot
    mean, spread = hot.mean(axis=0), hot.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return (hot - mean) / spread, mean, spread


def read_scores(scores: Floats, mean: Floats, spread: Floats) -> Floats:
    """What a head says of each class: K · probability − 1; 0 for all if it knows nothing."""
    chances = scores * spread + mean
    if chances.shape[1] == 1:
        chances = np.column_stack([1 - chances, chances])
    return np.asarray(chances.shape[1] * chances - 1)


# ---- one head ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """What one party brings to all heads; the dealer brings nothing.

    ``columns`` are features and a column of ones, at the label holder these alone; ``blurring`` is
    the noise that was asked for, with its key at the feature holder, which also has ``names`` of
    its rows for it.
    """

    roles: Roles
    columns: Floats | None = None
    rng: np.random.Generator | None = None
    blurring: Blurring | None = None
    names: Sequence[bytes] | None = None

    def fit(self, channel: Channel, party: str, rows: Array, target: Floats | None) -> Any:
        """Train one head on these rows; this party's pieces of its weights."""
        roles, columns = self._two(party), self._take(rows)
        with shared_fit.join(channel.within("fit"), roles, self.rng, shared_fit.FIT) as session:
            solved = shared_fit.solve_one_side(session, columns, target, roles.label_holder, L2)
            solved = replace(solved, accuracy=ACCURACY)
            return solved.keep(session, columns, roles.label_holder)

    def say(
        self, channel: Channel, party: str, rows: Array, state: Mapping[str, Any]
    ) -> Floats | None:
        """What a head says of these rows, at the label holder."""
        roles, columns = self._two(party), self._take(rows)
        with shared_fit.join(channel.within("say"), roles, self.rng, shared_fit.SCORE) as session:
            blur = None
            if self.blurring is not None:
                names = None if self.names is None else [self.names[row] for row in rows]
                blur = self.blurring.prepare(
                    session, party, columns, names, state, roles.label_holder
                )
            return open_shared_scores(
                session, columns, state, ACCURACY, roles.label_holder, blur=blur
            )

    def _two(self, party: str) -> Roles:
        return replace(self.roles, feature_holders=(party,))

    def _take(self, rows: Array) -> Floats | None:
        return None if self.columns is None else self.columns[rows]


def play_head(
    bench: Bench, here: Channel, head: Head, folds: Numbers, target: Floats | None, says: bool
) -> tuple[dict[str, Any], Floats | None]:
    """One party's side of one head: its pieces, and at the label holder what the head says."""
    learned = np.flatnonzero((folds != UNKNOWN) & (folds != head.fold))
    state = bench.fit(here, head.party, learned, target)
    said = None
    if says:
        said = bench.say(here, head.party, told_rows(folds, head.fold), state)
    return state, said


def told_rows(folds: Numbers, fold: int) -> Numbers:
    """The rows of which a head speaks: its fold, or those without a label."""
    return np.flatnonzero(folds == (UNKNOWN if fold == FOLDS else fold))


# ---- training: the label holder ------------------------------------------------------------------


def lead_training(
    side: Side,
    roles: Roles,
    rng: np.random.Generator,
    kept: Checkpoints,
    own_labels: bool = True,
    tell: Callable[[int], None] | None = None,
) -> ModelShare:
    """Lead the heads, then run the course alone, and keep the label holder's share."""
    problem = read_problem(side, roles.feature_holders, own_labels, rng)
    overlap = len(side.part.rows)
    folds = draw_folds(problem.labels[:overlap], rng)
    for party in roles.feature_holders:
        side.channel.send(party, "folds", folds)
    leader = Leader(
        side.channel, roles.feature_holders, (roles.key_holder,), marks=kept.numbers("head")
    )
    bench = Bench(roles, np.ones((overlap, 1)), rng, side.blurring)
    heads, said = _lead_heads(bench, leader, problem, folds, kept)
    universe = Universe(
        roles.data_holders,
        overlap,
        {party: len(side.part.rest) if party == side.me else 0 for party in roles.data_holders},
    )
    columns, own = side.build_members(len(problem.classes), rng)
    members = {
        stage: {side.me: own[stage]}
        | {party: _reader(side, said[party], stage) for party in roles.feature_holders}
        for stage in STAGES
    }
    learned, fills = _run_alone(side, universe, members, problem, rng, kept, leader, tell)
    leader.end()
    evidence = members["evidence"]
    state = {
        **network_state(columns, evidence[side.me], len(problem.classes)),
        **learned.to_state(side.course.switches.removal),
        "classes": problem.classes,
        "parties": list(universe.parties),
        "own rows": {side.me: len(side.part.rest)},
        "fills": fills,
        "heads": heads,
        "readers": {party: weights_of(evidence[party].network) for party in heads},
    }
    reason = f"{len(learned.rounds)} epochs done"
    notes = list(learned.notes)
    if side.blurring is not None:
        notes.append(side.blurring.describe(len(problem.classes)))
    # What an attack by this party would start from: all that it heard of each common row.
    heard = np.concatenate([said[party] for party in roles.feature_holders], axis=1)
    return ModelShare(
        side.me, MODEL, state, tuple(learned.rounds), reason, tuple(notes), scores=heard
    )


def _lead_heads(
    bench: Bench, leader: Leader, problem: Problem, folds: Numbers, kept: Checkpoints
) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Train all heads; the pieces of the last one of each party, and what heads said of rows."""
    classes, tasks = len(problem.classes), list_heads(bench.roles)
    heads: dict[str, Any] = {}
    said = {party: np.zeros((len(folds), classes)) for party in bench.roles.feature_holders}
    if leader.resumed:
        heads = kept.load(f"head-{leader.resumed}")
        said = {p: np.array(a) for p, a in kept.load_arrays(f"head-{leader.resumed}").items()}
    for number, head in enumerate(tasks[leader.resumed :], start=leader.resumed + 1):
        rows = told_rows(folds, head.fold)
        learned = (folds != UNKNOWN) & (folds != head.fold)
        target, mean, spread = code_classes(problem.labels[: len(folds)][learned], classes)
        here = leader.order("head", party=head.party, fold=head.fold, says=bool(len(rows)))
        state, scores = play_head(bench, here, head, folds, target, bool(len(rows)))
        if scores is not None:
            said[head.party][rows] = read_scores(scores, mean, spread)
        if head.fold == FOLDS:
            heads[head.party] = {**state, "mean": mean.tolist(), "spread": spread.tolist()}
        kept.save(f"head-{number}", heads, said)
        kept.forget(f"head-{number - 2}")  # one that only some parties managed to keep
    return heads, said


def _reader(side: Side, said: Floats, stage: Stage) -> Member:
    """The label holder's network that reads what another party's head says."""
    inputs = Inputs(
        torch.as_tensor(said, dtype=torch.float32),
        torch.zeros(len(said), 0, dtype=torch.int64),
    )
    return side.member_of(Reader(), inputs, (), stage)


def _run_alone(
    side: Side,
    universe: Universe,
    members: Mapping[Stage, Mapping[str, Member]],
    problem: Problem,
    rng: np.random.Generator,
    kept: Checkpoints,
    leader: Leader,
    tell: Callable[[int], None] | None,
) -> tuple[Any, dict[str, list[float]]]:
    """RISA's course in this process; the others hear of each epoch, so that they go on waiting."""
    course, evidence = side.course, members["evidence"]
    teams = {stage: Team(universe, members[stage]) for stage in STAGES}
    marks, unfinished = kept.numbers("epoch"), None
    if marks and leader.resumed:
        rounds = kept.load(f"epoch-{marks[-1]}")
        arrays = kept.load_arrays(f"epoch-{marks[-1]}")
        for party, member in evidence.items():
            member.load_arrays(_strip(arrays, party))
        unfinished = Unfinished(rounds, arrays)

    def keep(now: Unfinished) -> None:
        arrays = dict(now.arrays)
        for party, member in evidence.items():
            arrays |= {f"{party}/{name}": one for name, one in member.to_arrays().items()}
        kept.save(f"epoch-{len(now.rounds)}", now.rounds, arrays)
        for old in kept.numbers("epoch")[:-1]:
            kept.forget(f"epoch-{old}")

    def hear(epoch: int) -> None:
        leader.order("wait", epoch=epoch)
        if tell is not None:
            tell(epoch)

    learned = run_course(
        teams,
        problem.labels,
        len(problem.classes),
        course,
        rng,
        unfinished=unfinished,
        keep=None if kept.folder is None else keep,
        tell=hear,
    )
    fills = {party: [0.0] * len(problem.classes) for party in universe.parties}
    if course.objective("evidence", len(problem.classes)).fills:
        answers = teams["evidence"].answer(np.array([-1]), with_fill=True)
        fills = {p: a[0].tolist() for p, a in zip(universe.parties, answers, strict=True)}
    return learned, fills


def _strip(arrays: Mapping[str, Array], party: str) -> dict[str, Array]:
    start = f"{party}/"
    return {n.removeprefix(start): one for n, one in arrays.items() if n.startswith(start)}


# ---- training: the other parties -----------------------------------------------------------------


def follow_training(
    side: Side, roles: Roles, rng: np.random.Generator, kept: Checkpoints, width: int
) -> ModelShare:
    """Make features, take part in the heads of this party, and keep its share."""
    overlap, leader = len(side.part.rows), roles.label_holder
    folds = expect_array(
        side.channel.receive(leader, "folds"),
        sender=leader,
        name="folds",
        holds="integer",
        shape=(overlap,),
    ).astype(np.int64)
    columns = side.recipe.columns.fit(side.table)
    arrays = columns.arrays(side.table)
    features = Features.fit(columns, arrays, width, rng)
    blurring = None if side.blurring is None else side.blurring.with_key(rng)
    common = Arrays(arrays.numbers[:overlap], arrays.codes[:overlap])
    names = name_rows(side.part.table.ids[side.part.rows], common)
    bench = Bench(roles, add_constant(features.of(common)), rng, blurring, names)
    follower = Follower(side.channel, leader, kept.numbers("head"))
    state: Any = kept.load(f"head-{follower.resumed}") if follower.resumed else {}
    for number, here, order in follower:
        head = _read_order(order, roles)
        if head is None:
            continue
        if head.party == side.me:
            state, _ = play_head(bench, here, head, folds, None, order["says"])
        kept.save(f"head-{number + 1}", state)
        kept.forget(f"head-{number - 1}")
    more = {} if blurring is None else {"noise key": blurring.key}
    return ModelShare(side.me, MODEL, {"features": features.to_dict(), "head": state, **more})


def deal_training(
    channel: Channel, roles: Roles, rng: np.random.Generator, blurring: Blurring | None
) -> None:
    """The dealer's side."""
    bench = Bench(roles, rng=rng, blurring=blurring)
    for _, here, order in Follower(channel, roles.label_holder):
        head = _read_order(order, roles)
        if head is not None:
            play_head(bench, here, head, _NOTHING, None, order["says"])


def _read_order(order: Mapping[str, Any], roles: Roles) -> Head | None:
    """The head that is ordered; None: to wait."""
    if order.get("do") == "wait":
        return None
    head = Head(str(order.get("party")), order.get("fold", -1))
    if order.get("do") != "head" or head not in list_heads(roles) or "says" not in order:
        raise ProtocolError(
            f"Party {roles.label_holder!r} sent a task that RISA does not know.",
            roles.label_holder,
        )
    return head


# ---- prediction ----------------------------------------------------------------------------------


def hear_head(
    side: Side, share: ModelShare, roles: Roles, party: str, shape: tuple[int, int]
) -> Array:
    """The evidence of a party's head for the common rows, at the label holder."""
    try:
        state, weights = share.state["heads"][party], share.state["readers"][party]
    except KeyError:
        raise StoreError(f"The share of party {side.me!r} has no head of {party!r}.") from None
    overlap = len(side.part.rows)
    bench = Bench(roles, np.ones((overlap, 1)), None, side.blurring)
    scores = bench.say(_place(side.channel, party), party, np.arange(overlap), state)
    said = read_scores(np.asarray(scores), np.asarray(state["mean"]), np.asarray(state["spread"]))
    reader = _reader(side, said, "evidence")
    restore_weights(reader.network, weights)
    return reader.answer(np.arange(overlap))


def say_head(side: Side, share: ModelShare, roles: Roles) -> None:
    """A feature holder's side of prediction."""
    features = Features.from_dict(share.state["features"])
    overlap = np.arange(len(side.part.rows))
    arrays = features.columns.arrays(side.part.table.take(side.part.rows))
    blurring = side.blurring
    if blurring is not None:
        blurring = replace(blurring, key=share.state["noise key"])
    names = name_rows(side.part.table.ids[side.part.rows], arrays)
    bench = Bench(roles, add_constant(features.of(arrays)), None, blurring, names)
    bench.say(_place(side.channel, side.me), side.me, overlap, share.state["head"])


def deal_heads(channel: Channel, roles: Roles, blurring: Blurring | None) -> None:
    """The dealer's side of prediction."""
    for party in roles.feature_holders:
        Bench(roles, blurring=blurring).say(_place(channel, party), party, _NOTHING, {})


def add_constant(features: Floats) -> Floats:
    """Features with a last column of ones, which centres them."""
    return np.column_stack([features, np.ones(len(features))])


def _place(channel: Channel, party: str) -> Channel:
    return channel.within(f"head of {party}")


def check_scheme(roles: Roles) -> None:
    """Refuse a run whose scheme is not shares."""
    if roles.scheme not in ("shares", "plain"):
        raise ConfigError(
            f"RISA with protected labels computes on shares, but the run has "
            f"scheme={roles.scheme!r}; use scheme='auto', or protect='none'."
        )
