"""Scores of new rows by trees, in one message from each feature holder.

Holds   the label holder: shapes, leaf values and its own splits; a feature holder: its own splits.
Learns  the label holder: the score of each row, and to which side of each of the others' splits it
        would go, whether it comes there or not. Feature holders: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.estimators.base import Roles
from vfsl.estimators.descent import Floats
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.candidates import rule_sides
from vfsl.estimators.trees.offers import Rule
from vfsl.estimators.trees.partition import Node, pack_sides, unpack_sides
from vfsl.estimators.trees.tree import LEAF, OWN, Tree
from vfsl.values import Array, Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "sides": Disclosure(
        np.ndarray, "for each row, its side at each split of the sender, reached or not"
    ),
}


def send_sides(
    channel: Channel, roles: Roles, bins: Bins, codes: Array, rules: Mapping[Node, Rule]
) -> None:
    """A feature holder: the sides of all rows at all of its splits, in the order of nodes."""
    sides = [rule_sides(bins, *rules[node], codes[:, rules[node][0]]) for node in sorted(rules)]
    channel.send(roles.label_holder, "sides", pack_sides(sides))


def receive_sides(
    channel: Channel, roles: Roles, bins: Bins, codes: Array, trees: Sequence[Tree]
) -> dict[Node, Array]:
    """The label holder: who goes left at every split of every tree."""
    rows = len(codes)
    sides: dict[Node, Array] = {
        Node(at, node): rule_sides(bins, *rule, codes[:, rule[0]])
        for at, tree in enumerate(trees)
        for node, rule in tree.rules.items()
    }
    for place, party in enumerate(roles.feature_holders, start=OWN + 1):
        nodes = [
            Node(at, node)
            for at, tree in enumerate(trees)
            for node, owner in enumerate(tree.owner)
            if owner == place
        ]
        bits = expect_array(
            channel.receive(party, "sides"),
            sender=party,
            name="sides",
            holds="bytes",
            shape=(None,),
        )
        came = unpack_sides(bits, [rows] * len(nodes), party)
        sides |= dict(zip(nodes, came, strict=True))
    return sides


def leaf_values(tree: Tree, at: int, sides: Mapping[Node, Array], rows: int) -> Floats:
    """The value of the leaf in which each row ends."""
    values = np.zeros(rows)
    waiting = [(0, np.arange(rows))]
    while waiting:
        node, here = waiting.pop()
        if tree.owner[node] == LEAF:
            values[here] = tree.value[node]
            continue
        left = sides[Node(at, node)][here]
        waiting += [(tree.left[node], here[left]), (tree.left[node] + 1, here[~left])]
    return values
