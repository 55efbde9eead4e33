"""The two data holders' sides of a whole training: agree on a start, then round after round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import PublicKey, SecretKey, scheme
from vfsl.draws import draw_announced_seed, draw_private_seed
from vfsl.estimators.exchange import announced
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.candidates import Candidates
from vfsl.estimators.trees.cells import Cells
from vfsl.estimators.trees.fitting import Fitted, Fitting
from vfsl.estimators.trees.gains import Penalty
from vfsl.estimators.trees.growth import LabelHolder
from vfsl.estimators.trees.holders import MOST_TREES, FeatureHolder
from vfsl.estimators.trees.offers import Own
from vfsl.estimators.trees.program import Program
from vfsl.estimators.trees.releasing import release_binned
from vfsl.estimators.trees.state import Kept
from vfsl.parts import Roles
from vfsl.values import Array

MOST_COLUMNS, MOST_ROUNDS = 1 << 20, 1 << 40


@dataclass(frozen=True)
class Columns:
    """A party's binned columns, and what it kept of an earlier attempt."""

    bins: Bins
    codes: Array
    kept: Kept


def train_feature_holder(
    channel: Channel, roles: Roles, program: Program, mine: Columns
) -> dict[str, Any]:
    """Take part in all rounds; the state of one's own share."""
    leader, keeper = roles.label_holder, program.keeper(roles)
    bins, codes, kept = mine.bins, mine.codes, mine.kept
    key = scheme(roles.scheme, roles.security).load_public(channel.receive(keeper, "public key"))
    size = np.array([codes.shape[1], bins.width], dtype=np.int64)
    for party in dict.fromkeys((leader, keeper)):
        channel.send(party, "columns", size)
    channel.send(leader, "finished", kept.finished)
    setup = channel.receive(leader, "setup")
    offset, in_all, seed, done, grown = (
        expect_integer(setup.get(name), sender=leader, name=name, low=0, high=1 << 62)
        for name in ("offset", "columns", "seed", "finished", "trees")
    )
    candidates, cells = Candidates.of(bins), Cells(codes, bins.width)
    own = Own(program, bins, codes, offset, in_all, seed, candidates, cells)
    for party in roles.data_holders:
        if party != channel.me:
            release_binned(channel, party, codes, bins.width)
    holder = FeatureHolder(channel, roles, key, own)
    rounds = [kept.load(number) for number in range(done)]
    while trees := announced(channel, leader, "trees", 0, MOST_TREES):
        rules, divided = holder.grow(len(rounds) - done, trees, grown)
        found = [[node.tree + grown, node.number, *rule] for node, rule in sorted(rules.items())]
        rounds.append({"rules": found, "divided": divided})
        kept.save(len(rounds) - 1, rounds[-1])
        grown += trees
    rounds = rounds[: announced(channel, leader, "keep", 0, len(rounds))]
    divided_in_all = np.sum([each["divided"] for each in rounds], axis=0, dtype=np.int64)
    return {
        "bins": bins.to_dict(),
        "rules": [rule for each in rounds for rule in each["rules"]],
        "importance": np.broadcast_to(divided_in_all, codes.shape[1]).tolist(),
    }


def draw_seeds(kept: Kept, rng: np.random.Generator) -> tuple[int, int]:
    """For columns, which everybody is told, and for rows, which nobody else may know.

    A later attempt takes those of the first.
    """
    if kept.finished:
        announced_seed, private_seed = kept.load(0)["seeds"]
        return announced_seed, private_seed
    return draw_announced_seed(rng), draw_private_seed(rng)


def train_label_holder(
    channel: Channel,
    roles: Roles,
    program: Program,
    mine: Columns,
    fitting: Fitting,
    penalty: Penalty,
    seeds: tuple[int, int],
) -> Fitted:
    """Lead all rounds, from the last one that every data holder has finished.

    ``seeds`` are for columns, which everybody learns, and for rows, which nobody else may know.
    """
    others = roles.feature_holders
    key, secret = _keys(channel, roles, program)
    sizes = {party: _size(channel, party) for party in others}
    finished = [announced(channel, party, "finished", 0, MOST_ROUNDS) for party in others]
    done = min([mine.kept.finished, *finished])
    seed, draws = seeds
    fitted = fitting.begin(mine.kept, done)
    offset = mine.codes.shape[1]
    columns = offset + sum(size[0] for size in sizes.values())
    for party in others:
        release_binned(channel, party, mine.codes, mine.bins.width)
        setup = {"offset": offset, "columns": columns, "seed": seed, "finished": done}
        channel.send(party, "setup", setup | {"trees": fitted.trees_grown})
        offset += sizes[party][0]
    asked = {party: size for party, size in sizes.items() if size[0]}
    holder = LabelHolder(
        channel, roles, key, secret, program, penalty, mine.bins, mine.codes, columns, seed, asked
    )
    _grow(holder, fitting, fitted, mine.kept, draws)
    for party in others:
        channel.send(party, "keep", fitted.rounds_kept)
    return fitted


def label_state(roles: Roles, bins: Bins, fitting: Fitting, fitted: Fitted) -> dict[str, Any]:
    """The state of the label holder's share."""
    trees, outputs = fitted.kept()
    gains = np.zeros(len(roles.data_holders))
    importance = np.zeros(len(bins.columns))
    for tree in trees:
        for node, owner in enumerate(tree.owner):
            if owner >= 0:
                gains[owner] += tree.gain[node]
        for node, rule in tree.rules.items():
            importance[rule[0]] += tree.gain[node]
    return {
        "bins": bins.to_dict(),
        "trees": [tree.to_dict() for tree in trees],
        "output": outputs,
        "start": fitted.start.tolist(),
        "models": fitting.models,
        "importance": importance.tolist(),
        "gain by party": dict(zip(roles.data_holders, gains.tolist(), strict=True)),
        "oob": fitting.oob_score(),
        **fitting.objective.facts(),
    }


def _grow(holder: LabelHolder, fitting: Fitting, fitted: Fitted, kept: Kept, draws: int) -> None:
    """All rounds: set goals, grow, give leaves their values, until enough or no better."""
    told: tuple[str, ...] = holder.roles.feature_holders
    if told and holder.secret is None:
        told = (*told, holder.roles.key_holder)
    done = len(fitted.rounds)
    while fitted.stop_reason is None:
        number = len(fitted.rounds)
        aims = fitting.aims(fitted, number, np.random.default_rng([draws, 1, number]))
        for party in told:
            holder.channel.send(party, "trees", len(aims))
        # The key holder, who keeps no rounds, counts those of this attempt.
        trees, leaf = holder.grow(number - done, [aim.goal for aim in aims], fitted.trees_grown)
        arrays = fitting.settle(fitted, aims, trees, leaf)
        value = {"trees": [tree.to_dict() for tree in trees], "outputs": fitted.outputs[-1]}
        kept.save(number, value | {"seeds": [holder.seed, draws]}, arrays)
    for party in told:
        holder.channel.send(party, "trees", 0)


def _keys(channel: Channel, roles: Roles, program: Program) -> tuple[PublicKey, SecretKey | None]:
    """The public key of the key holder, or a pair of one's own if there is none."""
    made = scheme(roles.scheme, roles.security)
    if roles.feature_holders and program.keys == "key-holder":
        return made.load_public(channel.receive(roles.key_holder, "public key")), None
    public, secret = made.generate()
    for party in roles.feature_holders:
        channel.send(party, "public key", public.to_wire())
    return public, secret


def _size(channel: Channel, party: str) -> tuple[int, int]:
    """How many columns a party has, and how many codes a column."""
    came = channel.receive(party, "columns")
    sizes = expect_array(came, sender=party, name="columns", holds="integer", shape=(2,))
    columns, width = (
        expect_integer(int(size), sender=party, name="columns", low=0, high=MOST_COLUMNS)
        for size in sizes
    )
    return columns, width
