"""The roles of feature holders and of the key holder while trees grow.

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
answers with the side of every row of the node. Equally good handles all go to the owner, who
takes its lowest column and bin: so plain and encrypted runs grow the same trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import KeyHolder, PublicKey, SecretKey
from vfsl.errors import ProtocolError
from vfsl.estimators.exchange import announced, unbundled
from vfsl.estimators.trees.offers import OFFERS, Own, Rule
from vfsl.estimators.trees.partition import (
    Cut,
    Node,
    Partition,
    Sum,
    pack_sides,
    plan_sums,
    unpack_sides,
)
from vfsl.estimators.trees.program import Program
from vfsl.estimators.trees.releasing import side_numbers
from vfsl.parts import Roles
from vfsl.values import Array, Masked

MOST_TREES, MOST_NODES = 1 << 16, 1 << 24
NO_MORE = -1  # no further level; 0: a level that splits leaves which were looked at before


def open_for_label_holder(
    channel: Channel, roles: Roles, program: Program, secret: SecretKey
) -> None:
    """The key holder: open masked histograms, as many as the label holder announces."""
    shapes = {}
    for party in roles.feature_holders:
        came = channel.receive(party, "columns")
        numbers = expect_array(came, sender=party, name="columns", holds="integer", shape=(2,))
        shapes[party] = (int(numbers[0]), int(numbers[1]))
    batch = 0
    while announced(channel, roles.label_holder, "trees", 0, MOST_TREES):
        level = 0
        grown = channel.within(f"trees {batch}")
        while True:
            here = grown.within(f"level {level}")
            nodes = announced(here, roles.label_holder, "nodes", NO_MORE, MOST_NODES)
            if nodes == NO_MORE:
                break
            for party in roles.feature_holders:
                if not shapes[party][0] or not nodes:
                    continue
                # As many sums as the label holder asked for, and no more.
                columns, width = shapes[party]
                declared = program.requests(nodes, columns, width)
                holder = KeyHolder(secret, declared)
                requests = unbundled(here.receive(party, "histograms"), party)
                answers = [
                    holder.open(str(at), request).payload for at, request in enumerate(requests)
                ]
                here.within(party).send(roles.label_holder, "opened", Masked(answers))
            level += 1
        batch += 1


@dataclass
class FeatureHolder:
    """One feature holder's side of growing trees."""

    channel: Channel
    roles: Roles
    key: PublicKey
    own: Own

    def grow(self, batch: int, trees: int, first_tree: int) -> tuple[dict[Node, Rule], list[int]]:
        """Take part in growing trees together.

        Returns
        -------
        rules : dict by node
            One's own splits.
        divided : list of int
            How many rows each of one's columns has divided.
        """
        grown = self.channel.within(f"trees {batch}")
        leader = self.roles.label_holder
        others = [party for party in self.roles.data_holders if party != grown.me]
        partition = Partition(len(self.own.codes), trees)
        rules: dict[Node, Rule] = {}
        divided = [0] * self.own.codes.shape[1]
        make = OFFERS[self.own.program.packing]
        level = make(self.own, self.roles, self.key, partition, first_tree)
        sums = [Sum(Node(tree, 0)) for tree in range(trees)]
        wanted = [Node(tree, 0) for tree in range(trees)] if self.own.program.max_depth else []
        number = 0
        more = bool(wanted)
        while more:
            here = grown.within(f"level {number}")
            if wanted:
                level.offer(here, sums, wanted)
            chosen = _read_chosen(here.receive(leader, "chosen"), leader, partition)
            sides = []
            for node, handles in chosen:
                rule, side = level.take(node, handles)
                rules[node] = rule
                divided[rule[0]] += len(side)
                sides.append(side)
            if chosen:
                for party in others:  # the label holder passes sides on
                    here.release(party, "sides", side_numbers(sides), new=0)  # see release_binned
                here.send(leader, "sides", pack_sides(sides))
            mine = {node: side for (node, _), side in zip(chosen, sides, strict=True)}
            cuts, wanted, more = _read_partition(
                here.receive(leader, "partition"), leader, partition, mine
            )
            sums = plan_sums(partition, cuts, frozenset(wanted))
            level.forget(cuts)
            number += 1
        return rules, divided


def _read_chosen(value: Any, leader: str, partition: Partition) -> list[tuple[Node, Array]]:
    nodes, lengths, handles = (
        expect_array(value.get(name), sender=leader, name=name, holds="integer", shape=shape)
        for name, shape in (("nodes", (None, 2)), ("lengths", (None,)), ("handles", (None,)))
    )
    if len(lengths) != len(nodes) or lengths.sum() != len(handles) or (lengths < 1).any():
        raise ProtocolError(f"Party {leader!r} chose splits in no readable form.", leader)
    each = np.split(handles, np.cumsum(lengths)[:-1])
    return [
        (_known_node(pair, leader, partition), part)
        for pair, part in zip(nodes, each, strict=False)
    ]


def _known_node(pair: Array, leader: str, partition: Partition) -> Node:
    node = Node(int(pair[0]), int(pair[1]))
    if not partition.knows(node):
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
    nodes = [_known_node(pair, leader, partition) for pair in splits]
    others = [node for node in nodes if node not in mine]
    bits = expect_array(
        value.get("sides"), sender=leader, name="sides", holds="bytes", shape=(None,)
    )
    came = unpack_sides(bits, [len(partition.rows(node)) for node in others], leader)
    sides = mine | dict(zip(others, came, strict=True))
    cuts = [partition.split(node, sides[node]) for node in nodes]
    more = expect_integer(value.get("more"), sender=leader, name="more", low=0, high=1)
    return cuts, [_known_node(pair, leader, partition) for pair in wanted], bool(more)
