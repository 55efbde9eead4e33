"""The sides of feature holders and of the key holder while trees grow on encrypted (g, h).

Holds   a feature holder: columns; the label holder: columns, labels, row weights; the key holder:
        the secret key, no data.
Learns  a feature holder: which nodes its splits won, the shape of the trees and to which side each
        row goes. The label holder: for each node the sums of (g, h) of nameless candidates of at
        least ten rows, in an order that is shuffled anew for each node, and to which side of a
        chosen split each row goes; never a column, a threshold or a value. The key holder: masked
        sums, how many columns, bins and nodes there are.

For each level (1) the label holder sends encrypted (g, h) of rows, zero outside the bag; (2) a
feature holder sums them by bin, for the smaller of two siblings, and takes the difference for the
other; (3) it masks the sums; the key holder opens them, still masked, for the label holder, to whom
the mask goes; (4) the label holder finds the best split and tells its owner the handle, the owner
answers with the side of every row of the node. Equally good handles all go to the owner, who takes
its lowest column and bin: so plain and hidden trainings grow the same trees.

On shares with candidates="sums" the sums are formed otherwise, and the key holder sees none
(shared_sums.py); step (4) is the same. By default nothing of this is shown (shared_best.py); under
plain, which hides nothing, plain_best.py has the same trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import Grouping, KeyHolder, PublicKey, SecretKey
from vfsl.errors import ConfigError, ProtocolError
from vfsl.estimators.exchange import receive_count, unbundle
from vfsl.estimators.trees.binning import Bins, Histograms
from vfsl.estimators.trees.candidate_sums import (
    CandidateSums,
    SharedSums,
    SumsByLevel,
    SumsByNode,
)
from vfsl.estimators.trees.plain_best import PlainBest
from vfsl.estimators.trees.protocol import (
    MOST_NODES,
    MOST_TREES,
    NO_MORE,
    Growth,
    count_sides,
)
from vfsl.estimators.trees.shared_sums import PairSums
from vfsl.estimators.trees.splits import Candidates, Rule, find_sides
from vfsl.estimators.trees.tree import (
    Cut,
    Node,
    Partition,
    Sum,
    pack_sides,
    plan_sums,
    unpack_sides,
)
from vfsl.parts import Roles
from vfsl.values import Array, Masked


def open_for_label_holder(
    channel: Channel, roles: Roles, growth: Growth, secret: SecretKey
) -> None:
    """The key holder: open masked histograms, as many as the label holder announces."""
    shapes = {}
    for party in roles.feature_holders:
        came = channel.receive(party, "columns")
        numbers = expect_array(came, sender=party, name="columns", holds="integer", shape=(2,))
        shapes[party] = (int(numbers[0]), int(numbers[1]))
    batch = 0
    while receive_count(channel, roles.label_holder, "trees", 0, MOST_TREES):
        level = 0
        while True:
            here = channel.within(f"trees {batch}").within(f"level {level}")
            nodes = receive_count(here, roles.label_holder, "nodes", NO_MORE, MOST_NODES)
            if nodes == NO_MORE:
                break
            for party, (columns, width) in shapes.items():
                if columns and nodes:
                    # As many sums as the label holder asked for, and no more.
                    declared = enumerate(growth.requests(nodes, columns, width))
                    holder = KeyHolder(secret, {str(at): shape for at, shape in declared})
                    requests = unbundle(here.receive(party, "histograms"), party)
                    answers = [holder.open(str(at), one).payload for at, one in enumerate(requests)]
                    here.within(party).send(roles.label_holder, "opened", Masked(answers))
            level += 1
        batch += 1


@dataclass(frozen=True)
class FeatureHolder:
    """One feature holder's columns, and where they stand among all parties' columns."""

    channel: Channel
    roles: Roles
    key: PublicKey | None  # None where sums are shared
    growth: Growth
    bins: Bins
    codes: Array
    offset: int
    columns_in_all: int
    seed: int
    pair: PairSums | None = None  # with the label holder, where sums are shared

    @cached_property
    def candidates(self) -> Candidates:
        return Candidates.of(self.bins)

    @cached_property
    def histograms(self) -> Histograms:
        return Histograms(self.codes, self.bins.width)

    @cached_property
    def wide_codes(self) -> Array:
        """The codes as schemes take them; made once, since every level gathers rows of them."""
        return self.codes.astype(np.int64, order="C")

    @cached_property
    def all_rows(self) -> Grouping:
        """All rows by their bins: what the root of every tree is summed by."""
        return Grouping(self.wide_codes, self.bins.width, again=True)

    @property
    def public_key(self) -> PublicKey:
        if self.key is None:
            raise ConfigError("Sums in shares have no public key.")
        return self.key

    def _choose_sums(self) -> type[CandidateSums]:
        if self.growth.best:
            return PlainBest
        if self.growth.on_shares:
            return SharedSums
        return SumsByLevel if self.growth.packing == "level" else SumsByNode

    def may_use(self, tree: int, node: int) -> Array:
        """Which of one's candidates stand on columns that this tree and node may use."""
        chosen = self.growth.choose_columns(self.seed, self.columns_in_all, tree, node)
        return np.asarray(chosen[self.offset + self.candidates.column])

    def grow(self, batch: int, trees: int, first_tree: int) -> tuple[dict[Node, Rule], list[int]]:
        """Take part in growing trees together.

        Returns
        -------
        rules : dict by node
            One's own splits.
        divided : list of int
            How many rows each of one's columns has divided; where only the best candidates are
            looked at, how many splits it has made.
        """
        grown = self.channel.within(f"trees {batch}")
        leader = self.roles.label_holder
        others = [party for party in self.roles.data_holders if party != grown.me]
        partition = Partition(len(self.codes), trees)
        rules: dict[Node, Rule] = {}
        divided = [0] * self.codes.shape[1]
        level = self._choose_sums()(self, partition, first_tree)
        sums = [Sum(Node(tree, 0)) for tree in range(trees)]
        wanted = [Node(tree, 0) for tree in range(trees)] if self.growth.max_depth else []
        number = 0
        more = bool(wanted)
        while more:
            here = grown.within(f"level {number}")
            if wanted:
                level.offer(here, sums, wanted)
            chosen = _read_chosen(here.receive(leader, "chosen"), leader, partition)
            sides = {}
            for node, handles in chosen:
                rules[node] = level.take(node, handles)
                sides[node] = find_sides(self.bins, rules[node], self.codes, partition.rows(node))
                divided[rules[node][0]] += 1 if self.growth.best else len(sides[node])
            if chosen:
                told = list(sides.values())
                for party in others:  # the label holder passes sides on
                    here.release(party, "sides", count_sides(told), new=0)  # see release_binned
                here.send(leader, "sides", pack_sides(told))
            came = here.receive(leader, "partition")
            # Where rows are treated as if they had no block here, own sides come back changed.
            mine = {} if self.growth.block_dropout > 0 else sides
            cuts, wanted, more = _read_partition(came, leader, partition, mine)
            for node in set(sides) - {cut.parent for cut in cuts}:  # a side had too few rows
                divided[rules.pop(node)[0]] -= 1 if self.growth.best else len(sides[node])
            sums = plan_sums(partition, cuts, wanted, alone=self.growth.best)
            level.forget(cuts)
            number += 1
        grown.note_opened("leaves", dict(partition.leaves()))
        return rules, divided


# ---- what the label holder says ------------------------------------------------------------------


def _read_chosen(value: Any, leader: str, partition: Partition) -> list[tuple[Node, Array]]:
    """Which nodes one's splits have won, and by which handles."""
    nodes, lengths, handles = (
        expect_array(value.get(name), sender=leader, name=name, holds="integer", shape=shape)
        for name, shape in (("nodes", (None, 2)), ("lengths", (None,)), ("handles", (None,)))
    )
    if len(lengths) != len(nodes) or lengths.sum() != len(handles) or (lengths < 1).any():
        raise ProtocolError(f"Party {leader!r} chose splits in no readable form.", leader)
    each = np.split(handles, np.cumsum(lengths)[:-1])
    return [
        (_read_node(pair, leader, partition), part) for pair, part in zip(nodes, each, strict=False)
    ]


def _read_node(pair: Array, leader: str, partition: Partition) -> Node:
    node = Node(int(pair[0]), int(pair[1]))
    if node not in partition.leaves():
        raise ProtocolError(f"Party {leader!r} names the node {tuple(node)}, which is not open.")
    return node


def _read_partition(
    value: Any, leader: str, partition: Partition, mine: dict[Node, Array]
) -> tuple[list[Cut], list[Node], bool]:
    """Apply the splits of a level, one's own sides and those that came; what comes next."""
    splits, wanted = (
        expect_array(value.get(name), sender=leader, name=name, holds="integer", shape=(None, 2))
        for name in ("splits", "wanted")
    )
    nodes = [_read_node(pair, leader, partition) for pair in splits]
    others = [node for node in nodes if node not in mine]
    bits = expect_array(
        value.get("sides"), sender=leader, name="sides", holds="bytes", shape=(None,)
    )
    came = unpack_sides(bits, [len(partition.rows(node)) for node in others], leader)
    sides = mine | dict(zip(others, came, strict=True))
    cuts = partition.split_all(nodes, [sides[node] for node in nodes])
    more = expect_integer(value.get("more"), sender=leader, name="more", low=0, high=1)
    return cuts, [_read_node(pair, leader, partition) for pair in wanted], bool(more)
