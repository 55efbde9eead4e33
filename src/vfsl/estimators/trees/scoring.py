"""Scores of new rows where no key holder takes part: level by level, asking for sides that matter.

With a key holder, which can deal random words, nobody learns sides: see shared_scoring.py.

Holds   the label holder: shapes, leaf values and its own splits; a feature holder: its own splits.
Learns  the label holder: the score of each row, and its side at each split of another party that
        it comes to. Where two such splits of one way lie in the same column, the sides of the rows
        that come to both say how these rows are ordered by it. A feature holder: which rows come
        to each of its splits, and how its splits follow each other. With the sides that it knows,
        this says which rows the other parties' splits keep together.

All trees are asked in one message. The label holder follows rows through its own splits by itself;
so the messages to a party are as many as its splits stand below each other at most, counted with
those of other feature holders between them. Their number follows from the trees, not from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.errors import ProtocolError
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.protocol import count_sides, release_binned
from vfsl.estimators.trees.splits import Rule, find_sides
from vfsl.estimators.trees.tree import LEAF, OWN, Node, Tree, pack_sides, unpack_sides
from vfsl.parts import Roles
from vfsl.values import Array, Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "reached": Disclosure(
        dict,
        "which rows come to each of the receiver's splits, and so which rows the other parties' "
        "splits keep together",
    ),
    "sides": Disclosure(
        np.ndarray,
        "for each row that comes to a split of the sender, its side there; a chain of splits in "
        "one column orders the rows that come to all of them",
    ),
}


class _Stop(NamedTuple):
    """A split of another party, and the rows that have come to it."""

    node: Node
    rows: Array


# ---- a feature holder ---------------------------------------------------------------------------


def answer_sides(
    channel: Channel, roles: Roles, bins: Bins, codes: Array, rules: Mapping[Node, Rule]
) -> None:
    """A feature holder: the sides of rows at those of its splits that they come to."""
    leader, unasked = roles.label_holder, dict(rules)
    more = bool(rules) and len(codes) > 0
    levels = 0
    if more:
        release_binned(channel, leader, codes, bins.width)
    while more:
        if levels == len(rules):
            raise ProtocolError(f"Party {leader!r} asks for more levels than there are.", leader)
        came = channel.receive(leader, "reached")
        stops, more = _read_reached(came, leader, len(codes), unasked)
        sides = []
        for node, rows in stops:
            sides.append(find_sides(bins, unasked.pop(node), codes, rows))
        channel.release(leader, "sides", count_sides(sides), new=0)  # see release_binned
        channel.send(leader, "sides", pack_sides(sides))
        levels += 1


def _read_reached(
    value: Any, leader: str, rows: int, unasked: Mapping[Node, Rule]
) -> tuple[list[_Stop], bool]:
    """Which rows come to which splits; each split is asked once, each row once in a tree."""
    pairs = expect_array(
        value.get("nodes"), sender=leader, name="reached", holds="integer", shape=(None, 2)
    )
    bits = expect_array(
        value.get("rows"), sender=leader, name="reached", holds="bytes", shape=(None,)
    )
    more = expect_integer(value.get("more"), sender=leader, name="reached", low=0, high=1)
    stops: dict[Node, _Stop] = {}
    taken: dict[int, Array] = {}
    for pair, here in zip(pairs, unpack_sides(bits, [rows] * len(pairs), leader), strict=True):
        node = Node(int(pair[0]), int(pair[1]))
        if node not in unasked or node in stops:
            raise ProtocolError(
                f"Party {leader!r} asks for sides at the node {tuple(node)}, which is no split of "
                "ours or was asked before.",
                leader,
            )
        before = taken.get(node.tree, np.zeros(rows, dtype=bool))
        if (before & here).any():
            raise ProtocolError(
                f"Party {leader!r} asks for a row at two splits of tree {node.tree} at once.",
                leader,
            )
        taken[node.tree] = before | here
        stops[node] = _Stop(node, np.flatnonzero(here))
    return list(stops.values()), bool(more)


# ---- the label holder ---------------------------------------------------------------------------


def find_leaves(
    channel: Channel, roles: Roles, bins: Bins, codes: Array, trees: Sequence[Tree]
) -> Array:
    """The label holder: in which leaf of each tree each row ends, (rows, trees)."""
    leaf = np.zeros((len(codes), len(trees)), dtype=np.int32)
    everyone = np.arange(len(codes))
    levels = find_levels(trees) if len(codes) else {}
    parties = dict(enumerate(roles.feature_holders, start=OWN + 1))
    stops = _walk([(Node(at, 0), everyone) for at in range(len(trees))], bins, codes, trees, leaf)
    for level in range(1 + max((last for each in levels.values() for last in each), default=-1)):
        asked = {
            place: [
                stop for stop in stops if trees[stop.node.tree].owner[stop.node.number] == place
            ]
            for place, each in levels.items()
            if level in each
        }
        for place, here in asked.items():
            more = level < max(levels[place])
            channel.send(parties[place], "reached", _reached(here, len(codes), more))
        children: list[tuple[Node, Array]] = []
        for place, here in asked.items():
            came = _receive_sides(channel, parties[place], here)
            for (node, rows), left in zip(here, came, strict=True):
                children += _children(node, rows, left, trees)
        stops = _walk(children, bins, codes, trees, leaf)
    return leaf


def find_own_leaves(bins: Bins, codes: Array, trees: Sequence[Tree]) -> Array:
    """The same where all splits are the label holder's own: nobody is asked."""
    leaf = np.zeros((len(codes), len(trees)), dtype=np.int32)
    everyone = np.arange(len(codes))
    _walk([(Node(at, 0), everyone) for at in range(len(trees))], bins, codes, trees, leaf)
    return leaf


def find_levels(trees: Sequence[Tree]) -> dict[int, set[int]]:
    """By feature holder the levels of its splits: how many splits of others stand above them."""
    found: dict[int, set[int]] = {}
    for tree in trees:
        above = [0] * len(tree.owner)
        for node, owner in enumerate(tree.owner):  # children come after their parents
            if owner == LEAF:
                continue
            if owner > OWN:
                found.setdefault(owner, set()).add(above[node])
            below = above[node] + (owner > OWN)
            above[tree.left[node]] = above[tree.left[node] + 1] = below
    return dict(sorted(found.items()))


def _walk(
    start: Sequence[tuple[Node, Array]],
    bins: Bins,
    codes: Array,
    trees: Sequence[Tree],
    leaf: Array,
) -> list[_Stop]:
    """Follow rows through one's own splits; where they stop at another party's."""
    waiting, stops = list(start), []
    while waiting:
        node, rows = waiting.pop()
        tree = trees[node.tree]
        owner = tree.owner[node.number]
        if not len(rows):
            continue
        if owner == LEAF:
            leaf[rows, node.tree] = node.number
        elif owner == OWN:
            left = find_sides(bins, tree.rules[node.number], codes, rows)
            waiting += _children(node, rows, left, trees)
        else:
            stops.append(_Stop(node, rows))
    return sorted(stops, key=lambda stop: stop.node)


def _children(
    node: Node, rows: Array, left: Array, trees: Sequence[Tree]
) -> list[tuple[Node, Array]]:
    first = trees[node.tree].left[node.number]
    return [(Node(node.tree, first), rows[left]), (Node(node.tree, first + 1), rows[~left])]


def _reached(stops: Sequence[_Stop], rows: int, more: bool) -> dict[str, Any]:
    bits = np.zeros((len(stops), rows), dtype=bool)
    for at, stop in enumerate(stops):
        bits[at, stop.rows] = True
    nodes = np.array([stop.node for stop in stops], dtype=np.int64).reshape(-1, 2)
    return {"nodes": nodes, "rows": np.packbits(bits), "more": int(more)}


def _receive_sides(channel: Channel, party: str, stops: Sequence[_Stop]) -> list[Array]:
    bits = expect_array(
        channel.receive(party, "sides"), sender=party, name="sides", holds="bytes", shape=(None,)
    )
    return unpack_sides(bits, [len(stop.rows) for stop in stops], party)
