"""The sides of feature holders and of the key holder while trees grow.

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
its lowest column and bin: so plain and encrypted trainings grow the same trees.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto import EncryptedArray, Grouping, KeyHolder, PrefixSums, PublicKey, SecretKey
from vfsl.errors import ProtocolError
from vfsl.estimators.exchange import load_array, receive_count, unbundle
from vfsl.estimators.trees.binning import Bins, Histograms
from vfsl.estimators.trees.protocol import (
    MOST_NODES,
    MOST_TREES,
    NO_MORE,
    Growth,
    count_sides,
)
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
from vfsl.values import Array, Ciphertext, Integers, Masked


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
    key: PublicKey
    growth: Growth
    bins: Bins
    codes: Array
    offset: int
    columns_in_all: int
    seed: int

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
            How many rows each of one's columns has divided.
        """
        grown = self.channel.within(f"trees {batch}")
        leader = self.roles.label_holder
        others = [party for party in self.roles.data_holders if party != grown.me]
        partition = Partition(len(self.codes), trees)
        rules: dict[Node, Rule] = {}
        divided = [0] * self.codes.shape[1]
        kind = SumsByLevel if self.growth.packing == "level" else SumsByNode
        level = kind(self, partition, first_tree)
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
                divided[rules[node][0]] += len(sides[node])
            if chosen:
                told = list(sides.values())
                for party in others:  # the label holder passes sides on
                    here.release(party, "sides", count_sides(told), new=0)  # see release_binned
                here.send(leader, "sides", pack_sides(told))
            came = here.receive(leader, "partition")
            cuts, wanted, more = _read_partition(came, leader, partition, sides)
            sums = plan_sums(partition, cuts, frozenset(wanted))
            level.forget(cuts)
            number += 1
        return rules, divided


# ---- sums of nameless candidates -----------------------------------------------------------------


class CandidateSums(ABC):
    """What a feature holder offers for the nodes of a level: sums of nameless candidates.

    Candidates of a node are shuffled by the operating system's randomness, anew for each node, and
    only those that describe enough rows are shown (splits.py). The label holder knows a candidate
    by its place in this order.
    """

    def __init__(self, holder: FeatureHolder, partition: Partition, first_tree: int) -> None:
        self._holder, self._partition, self._first_tree = holder, partition, first_tree
        self._offered: dict[Node, Array] = {}
        self._gradients: list[EncryptedArray] = []

    def offer(self, channel: Channel, sums: list[Sum], wanted: list[Node]) -> None:
        """Sum what this level needs and let the label holder see the candidates."""
        holder, growth = self._holder, self._holder.growth
        leader = holder.roles.label_holder
        lengths = self._lengths(sums)
        if lengths is not None:
            self._gradients = self._receive(channel, lengths)
        if not holder.codes.shape[1]:
            return
        counts = self._sum(sums, wanted)
        shown = holder.candidates.allowed(counts, growth.least_rows)
        if min(growth.columns_by_tree, growth.columns_by_node) < 1:
            tree = self._first_tree
            shown &= np.stack([holder.may_use(tree + node.tree, node.number) for node in wanted])
        # The order protects, so it comes from the operating system.
        random = np.frombuffer(secrets.token_bytes(8 * shown.size), dtype=np.uint64)
        order = random.reshape(shown.shape).argsort(axis=1)
        shown = np.take_along_axis(shown, order, axis=1)
        for node, places, seen in zip(wanted, order, shown, strict=True):
            self._offered[node] = places[seen]
        hidden = self._hide(wanted, order, shown)
        masks = {"masks": [mask for _, mask in hidden], "shown": shown.sum(axis=1)}
        numbers = 2 * int(shown.sum())
        channel.release(leader, "sums of candidates", numbers, new=0)  # see release_binned
        channel.send(leader, "masks", Masked(masks))
        requests = Ciphertext([request for request, _ in hidden])
        channel.send(growth.secret_holder(holder.roles), "histograms", requests)

    def take(self, node: Node, handles: Array) -> Rule:
        """One's own split behind the best handles."""
        offered = self._offered.get(node, np.zeros(0, dtype=np.int64))
        if not len(handles) or handles.min() < 0 or handles.max() >= len(offered):
            leader = self._holder.roles.label_holder
            raise ProtocolError(f"Party {leader!r} chose a split that was not offered.", leader)
        return self._holder.candidates.rule(int(offered[handles].min()))

    def forget(self, cuts: list[Cut]) -> None:
        """Drop what is not needed any more once these nodes are split."""
        open_nodes = self._partition.leaves()
        self._offered = {node: order for node, order in self._offered.items() if node in open_nodes}

    def _receive(self, channel: Channel, lengths: list[int]) -> list[EncryptedArray]:
        """Encrypted (g, h), in arrays of these lengths."""
        leader = self._holder.roles.label_holder
        came = unbundle(channel.receive(leader, "gradients"), leader)
        if len(came) != len(lengths):
            raise ProtocolError(
                f"Party {leader!r} sent {len(came)} encrypted arrays; expected {len(lengths)}.",
                leader,
            )
        return [
            load_array(self._holder.key, one, leader, (length,))
            for one, length in zip(came, lengths, strict=True)
        ]

    @abstractmethod
    def _lengths(self, sums: list[Sum]) -> list[int] | None:
        """Of the arrays that come at this level; None if none do."""

    @abstractmethod
    def _sum(self, sums: list[Sum], wanted: list[Node]) -> Integers:
        """Form the encrypted sums; how many rows each bin of the wanted nodes has."""

    @abstractmethod
    def _hide(self, wanted: list[Node], order: Array, shown: Array) -> list[tuple[Any, Any]]:
        """Masked requests with their masks, for the candidates of each node in this order."""


class SumsByNode(CandidateSums):
    """Sums node by node: for the smaller child, and by difference for its sibling."""

    def __init__(self, holder: FeatureHolder, partition: Partition, first_tree: int) -> None:
        super().__init__(holder, partition, first_tree)
        self._sums: dict[Node, EncryptedArray] = {}
        self._counts: dict[Node, Integers] = {}

    def _lengths(self, sums: list[Sum]) -> list[int] | None:
        if self._holder.growth.packing == "node":
            return [len(self._partition.rows(one.node)) for one in sums]
        return None if self._gradients else [len(self._holder.codes)] * len(sums)

    def _sum(self, sums: list[Sum], wanted: list[Node]) -> Integers:
        holder = self._holder
        counted = holder.histograms.counts([self._partition.rows(one.node) for one in sums])
        for at, one in enumerate(sums):
            rows = self._partition.rows(one.node)
            if holder.growth.packing == "node":
                gradients = self._gradients[at]
            else:
                gradients = self._gradients[one.node.tree].take(rows)
            groups = holder.all_rows if one.parent is None else holder.wide_codes[rows]
            self._counts[one.node] = counted[at]
            self._sums[one.node] = gradients.sum_by_many(groups, holder.bins.width)
            if one.parent is not None and one.sibling is not None:
                parent, sibling = one.parent, one.sibling
                self._counts[sibling] = self._counts[parent] - self._counts[one.node]
                self._sums[sibling] = self._sums[parent].without(self._sums[one.node])
        return np.stack([self._counts[node] for node in wanted])

    def _hide(self, wanted: list[Node], order: Array, shown: Array) -> list[tuple[Any, Any]]:
        each = self._holder.candidates
        hidden = []
        for node, places, seen in zip(wanted, order, shown, strict=True):
            sums = PrefixSums(each.start[places], each.stop[places], each.extra[places])
            request, mask = self._sums[node].mask(sums, seen)
            hidden.append((request.payload, mask.to_wire().payload))
        return hidden

    def forget(self, cuts: list[Cut]) -> None:
        super().forget(cuts)
        # The sums of a node serve once more after its split, for the sibling of the next level.
        live = {cut.parent for cut in cuts} | set(self._partition.leaves())
        self._sums = {node: sums for node, sums in self._sums.items() if node in live}
        self._counts = {node: counts for node, counts in self._counts.items() if node in live}


class SumsByLevel(CandidateSums):
    """Sums of all nodes of a level in one array: the fewest steps where adding is cheap."""

    def _lengths(self, sums: list[Sum]) -> list[int] | None:
        return None if self._gradients else [len(self._holder.codes) * len(sums)]

    def _sum(self, sums: list[Sum], wanted: list[Node]) -> Integers:
        holder, width = self._holder, self._holder.bins.width
        rows = [self._partition.rows(node) for node in wanted]
        trees = np.repeat([node.tree for node in wanted], [len(each) for each in rows])
        gradients = self._gradients[0].take(trees * len(holder.codes) + np.concatenate(rows))
        grouping = holder.histograms.grouping(rows)
        self._level = gradients.sum_by_many(grouping, grouping.n, stretch=width)
        return grouping.counts.reshape(-1, len(wanted), width).swapaxes(0, 1)

    def _hide(self, wanted: list[Node], order: Array, shown: Array) -> list[tuple[Any, Any]]:
        each, width = self._holder.candidates, self._holder.bins.width
        # Columns of all nodes lie side by side: column by column, in it node by node.
        shift = each.column * (len(wanted) - 1) * width
        shift = shift[order] + (np.arange(len(wanted)) * width)[:, None]
        extra = each.extra[order]
        sums = PrefixSums(
            (each.start[order] + shift).ravel(),
            (each.stop[order] + shift).ravel(),
            np.where(extra >= 0, extra + shift, -1).ravel(),
        )
        request, mask = self._level.mask(sums, shown.ravel())
        return [(request.payload, mask.to_wire().payload)]


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
    cuts = [partition.split(node, sides[node]) for node in nodes]
    more = expect_integer(value.get("more"), sender=leader, name="more", low=0, high=1)
    return cuts, [_read_node(pair, leader, partition) for pair in wanted], bool(more)
