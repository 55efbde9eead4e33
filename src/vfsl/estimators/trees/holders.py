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

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import EncryptedArray, KeyHolder, PublicKey, Runs, SecretKey
from vfsl.errors import ProtocolError
from vfsl.estimators.base import Roles
from vfsl.estimators.descent import Integers
from vfsl.estimators.exchange import announced, load_array, unbundled
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.candidates import Candidates
from vfsl.estimators.trees.cells import Cells
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
from vfsl.estimators.trees.sampling import choose_columns
from vfsl.values import Array, Ciphertext, Masked

MOST_TREES, MOST_NODES = 1 << 16, 1 << 24
NO_MORE = -1  # no further level; 0: a level that splits leaves which were looked at before
# Column, code and where missing cells go, of one's own split of a node.
Rule = tuple[int, int, int]


def open_for_label_holder(channel: Channel, roles: Roles, secret: SecretKey) -> None:
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
                # One answer for each node that the label holder asked for, and no more.
                declared = {str(at): shapes[party] for at in range(nodes)}
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
    """One feature holder's side of growing trees: its columns, and what it sums."""

    channel: Channel
    roles: Roles
    key: PublicKey
    program: Program
    bins: Bins
    codes: Array
    offset: int = 0
    columns_in_all: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        self._candidates = Candidates.of(self.bins)
        self._cells = Cells(self.codes, self.bins.width)

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
        rows = len(self.codes)
        partition = Partition(rows, trees)
        rules: dict[Node, Rule] = {}
        divided = [0] * self.codes.shape[1]
        level = _Level(self, partition, first_tree)
        sums = [Sum(Node(tree, 0)) for tree in range(trees)]
        wanted = [Node(tree, 0) for tree in range(trees)] if self.program.max_depth else []
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
                here.send(leader, "sides", pack_sides(sides))
            mine = {node: side for (node, _), side in zip(chosen, sides, strict=True)}
            cuts, wanted, more = _read_partition(
                here.receive(leader, "partition"), leader, partition, mine
            )
            sums = plan_sums(partition, cuts, frozenset(wanted))
            level.forget(cuts)
            number += 1
        return rules, divided

    def may_use(self, tree: int, node: int) -> Array:
        """Which of one's candidates stand on columns that this tree and node may use."""
        chosen = usable(self.program, self.seed, self.columns_in_all, tree, node)
        return np.asarray(chosen[self.offset + self._candidates.column])


def usable(program: Program, seed: int, columns: int, tree: int, node: int) -> Array:
    """Which of all parties' columns a node of a tree may use; everybody draws the same."""
    chosen = np.ones(columns, dtype=bool)
    if program.columns_by_tree < 1:
        chosen &= choose_columns(columns, program.columns_by_tree, (seed, tree))
    if program.columns_by_node < 1:
        allowed = np.flatnonzero(chosen)
        share = program.columns_by_node or 1 / np.sqrt(max(columns, 1))
        picked = choose_columns(len(allowed), share, (seed, tree, node))
        chosen = np.zeros(columns, dtype=bool)
        chosen[allowed[picked]] = True
    return chosen


class _Level:
    """A feature holder's encrypted sums of open nodes, and the order in which it offered them."""

    def __init__(self, holder: FeatureHolder, partition: Partition, first_tree: int) -> None:
        self._holder, self._partition, self._first_tree = holder, partition, first_tree
        self._sums: dict[Node, EncryptedArray] = {}
        self._counts: dict[Node, Integers] = {}
        self._offered: dict[Node, Array] = {}
        self._gradients: list[EncryptedArray] = []

    def offer(self, channel: Channel, sums: list[Sum], wanted: list[Node]) -> None:
        """Sum what this level needs and let the label holder see the candidates."""
        holder = self._holder
        by_node = holder.program.packing == "node"
        if by_node or not self._gradients:
            self._receive(channel, [self._partition.rows(one.node) for one in sums], by_node)
        if not holder.codes.shape[1]:
            return
        for at, one in enumerate(sums):
            self._add_up(one, self._gradients[at] if by_node else None)
        counts = np.stack([self._counts[node] for node in wanted])
        allowed = holder._candidates.allowed(counts, holder.program.least_rows)
        requests, masks = [], []
        for node, shown in zip(wanted, allowed, strict=True):
            shown = shown & holder.may_use(self._first_tree + node.tree, node.number)
            request, mask = self._hide(node, shown)
            requests.append(request)
            masks.append(mask)
        channel.send(holder.roles.label_holder, "masks", Masked(masks))
        channel.send(holder.program.keeper(holder.roles), "histograms", Ciphertext(requests))

    def _receive(self, channel: Channel, rows: list[Array], by_node: bool) -> None:
        """Encrypted (g, h): of these rows node by node, or of all rows tree by tree."""
        holder = self._holder
        leader = holder.roles.label_holder
        came = unbundled(channel.receive(leader, "gradients"), leader)
        lengths = [len(each) for each in rows] if by_node else [len(holder.codes)] * len(rows)
        if len(came) != len(lengths):
            raise ProtocolError(
                f"Party {leader!r} sent {len(came)} encrypted arrays; expected {len(lengths)}.",
                leader,
            )
        self._gradients = [
            load_array(holder.key, one, leader, (length,))
            for one, length in zip(came, lengths, strict=True)
        ]

    def _add_up(self, one: Sum, gradients: EncryptedArray | None) -> None:
        cells = self._holder._cells
        rows = self._partition.rows(one.node)
        if gradients is None:
            whole = self._gradients[one.node.tree]
            gradients = whole if len(rows) == whole.shape[0] else whole.take(rows)
        codes = self._holder.codes[rows].astype(np.int64)
        self._counts[one.node] = cells.counts(rows)
        self._sums[one.node] = gradients.sum_by_many(codes, cells.shape[1])
        if one.parent is not None and one.sibling is not None:
            parent, sibling = one.parent, one.sibling
            self._counts[sibling] = self._counts[parent] - self._counts[one.node]
            self._sums[sibling] = self._sums[parent].without(self._sums[one.node])

    def _hide(self, node: Node, shown: Array) -> tuple[Any, Any]:
        """A node's candidates in a fresh order, hidden from whoever carries them."""
        candidates = self._holder._candidates
        # The order protects, so it comes from the operating system.
        order = np.frombuffer(secrets.token_bytes(8 * len(candidates)), dtype=np.uint64).argsort()
        self._offered[node] = order[shown[order]]
        request, mask = self._sums[node].masked(_runs(candidates, order), shown[order])
        return request.payload, mask.to_wire().payload

    def take(self, node: Node, handles: Array) -> tuple[Rule, Array]:
        """One's own split behind the best handles, and who goes left."""
        offered = self._offered[node]
        if not len(handles) or handles.min() < 0 or handles.max() >= len(offered):
            leader = self._holder.roles.label_holder
            raise ProtocolError(f"Party {leader!r} chose a split that was not offered.", leader)
        best = int(offered[handles].min())
        candidates = self._holder._candidates
        rule = tuple(int(part[best]) for part in _parts(candidates))
        codes = self._holder.codes[self._partition.rows(node)]
        return (rule[0], rule[1], rule[2]), candidates.goes_left(best, codes)

    def forget(self, cuts: list[Cut]) -> None:
        """Drop what was only needed for nodes that were split two levels ago."""
        self._offered = {
            node: order for node, order in self._offered.items() if self._partition.knows(node)
        }
        live = {cut.parent for cut in cuts} | set(self._partition.leaves())
        self._sums = {node: sums for node, sums in self._sums.items() if node in live}
        self._counts = {node: counts for node, counts in self._counts.items() if node in live}


def _parts(candidates: Candidates) -> tuple[Array, Array, Array]:
    return candidates.column, candidates.code, candidates.missing


def _runs(candidates: Candidates, order: Array) -> Runs:
    return Runs(candidates.start[order], candidates.stop[order], candidates.extra[order])


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
