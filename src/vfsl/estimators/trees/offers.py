"""What a feature holder offers for the nodes of a level: sums of nameless candidates.

Candidates of a node are shuffled by the operating system's randomness, anew for each node, and only
those that describe enough rows are shown (candidates.py).
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vfsl.channel import Channel
from vfsl.crypto import EncryptedArray, Grouping, PublicKey, Runs
from vfsl.errors import ProtocolError
from vfsl.estimators.descent import Integers
from vfsl.estimators.exchange import load_array, unbundled
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.candidates import Candidates, rule_sides
from vfsl.estimators.trees.cells import Cells
from vfsl.estimators.trees.partition import Cut, Node, Partition, Sum
from vfsl.estimators.trees.program import Program
from vfsl.estimators.trees.sampling import choose_columns
from vfsl.parts import Roles
from vfsl.values import Array, Ciphertext, Masked

# Column, code and where missing cells go, of one's own split of a node.
Rule = tuple[int, int, int]


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


@dataclass(frozen=True)
class Own:
    """A feature holder's columns, and where they stand among all parties' columns."""

    program: Program
    bins: Bins
    codes: Array
    offset: int
    columns_in_all: int
    seed: int
    candidates: Candidates
    cells: Cells

    @cached_property
    def wide_codes(self) -> Array:
        """The codes as schemes take them; made once, since every level gathers rows of them."""
        return self.codes.astype(np.int64, order="C")

    @cached_property
    def everyone(self) -> Grouping:
        """All rows by their bins: what the root of every tree is summed by."""
        return Grouping(self.wide_codes, self.bins.width, again=True)

    def may_use(self, tree: int, node: int) -> Array:
        """Which of one's candidates stand on columns that this tree and node may use."""
        chosen = usable(self.program, self.seed, self.columns_in_all, tree, node)
        return np.asarray(chosen[self.offset + self.candidates.column])


class Offers(ABC):
    """The candidates of open nodes, in the order in which the label holder knows them."""

    def __init__(
        self, own: Own, roles: Roles, key: PublicKey, partition: Partition, first_tree: int
    ) -> None:
        self._own, self._roles, self._key = own, roles, key
        self._partition, self._first_tree = partition, first_tree
        self._offered: dict[Node, Array] = {}
        self._gradients: list[EncryptedArray] = []

    def offer(self, channel: Channel, sums: list[Sum], wanted: list[Node]) -> None:
        """Sum what this level needs and let the label holder see the candidates."""
        own, leader = self._own, self._roles.label_holder
        lengths = self._lengths(sums)
        if lengths is not None:
            self._gradients = self._receive(channel, lengths)
        if not own.codes.shape[1]:
            return
        counts = self._sum(sums, wanted)
        shown = own.candidates.allowed(counts, own.program.least_rows)
        if min(own.program.columns_by_tree, own.program.columns_by_node) < 1:
            tree = self._first_tree
            shown &= np.stack([own.may_use(tree + node.tree, node.number) for node in wanted])
        # The order protects, so it comes from the operating system.
        random = np.frombuffer(secrets.token_bytes(8 * shown.size), dtype=np.uint64)
        order = random.reshape(shown.shape).argsort(axis=1)
        shown = np.take_along_axis(shown, order, axis=1)
        for node, places, seen in zip(wanted, order, shown, strict=True):
            self._offered[node] = places[seen]
        hidden = self._hide(wanted, order, shown)
        masks = {"masks": [mask for _, mask in hidden], "shown": shown.sum(axis=1)}
        channel.release(
            leader, "sums of candidates", 2 * int(shown.sum()), new=0
        )  # see release_binned
        channel.send(leader, "masks", Masked(masks))
        requests = Ciphertext([request for request, _ in hidden])
        channel.send(own.program.keeper(self._roles), "histograms", requests)

    def take(self, node: Node, handles: Array) -> tuple[Rule, Array]:
        """One's own split behind the best handles, and who goes left."""
        offered = self._offered.get(node, np.zeros(0, dtype=np.int64))
        if not len(handles) or handles.min() < 0 or handles.max() >= len(offered):
            leader = self._roles.label_holder
            raise ProtocolError(f"Party {leader!r} chose a split that was not offered.", leader)
        own = self._own
        rule = own.candidates.rule(int(offered[handles].min()))
        cells = own.codes[self._partition.rows(node), rule[0]]
        return rule, rule_sides(own.bins, *rule, cells)

    def forget(self, cuts: list[Cut]) -> None:
        """Drop what is not needed any more once these nodes are split."""
        open_nodes = self._partition.leaves()
        self._offered = {node: order for node, order in self._offered.items() if node in open_nodes}

    def _receive(self, channel: Channel, lengths: list[int]) -> list[EncryptedArray]:
        """Encrypted (g, h), in arrays of these lengths."""
        leader = self._roles.label_holder
        came = unbundled(channel.receive(leader, "gradients"), leader)
        if len(came) != len(lengths):
            raise ProtocolError(
                f"Party {leader!r} sent {len(came)} encrypted arrays; expected {len(lengths)}.",
                leader,
            )
        return [
            load_array(self._key, one, leader, (length,))
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


class NodeOffers(Offers):
    """Sums node by node: for the smaller child, and by difference for its sibling."""

    def __init__(
        self, own: Own, roles: Roles, key: PublicKey, partition: Partition, first_tree: int
    ) -> None:
        super().__init__(own, roles, key, partition, first_tree)
        self._sums: dict[Node, EncryptedArray] = {}
        self._counts: dict[Node, Integers] = {}

    def _lengths(self, sums: list[Sum]) -> list[int] | None:
        if self._own.program.packing == "node":
            return [len(self._partition.rows(one.node)) for one in sums]
        return None if self._gradients else [len(self._own.codes)] * len(sums)

    def _sum(self, sums: list[Sum], wanted: list[Node]) -> Integers:
        own = self._own
        counted = own.cells.counts([self._partition.rows(one.node) for one in sums])
        for at, one in enumerate(sums):
            rows = self._partition.rows(one.node)
            if own.program.packing == "node":
                gradients = self._gradients[at]
            else:
                gradients = self._gradients[one.node.tree].take(rows)
            groups = own.everyone if one.parent is None else own.wide_codes[rows]
            self._counts[one.node] = counted[at]
            self._sums[one.node] = gradients.sum_by_many(groups, own.bins.width)
            if one.parent is not None and one.sibling is not None:
                parent, sibling = one.parent, one.sibling
                self._counts[sibling] = self._counts[parent] - self._counts[one.node]
                self._sums[sibling] = self._sums[parent].without(self._sums[one.node])
        return np.stack([self._counts[node] for node in wanted])

    def _hide(self, wanted: list[Node], order: Array, shown: Array) -> list[tuple[Any, Any]]:
        each = self._own.candidates
        hidden = []
        for node, places, seen in zip(wanted, order, shown, strict=True):
            runs = Runs(each.start[places], each.stop[places], each.extra[places])
            request, mask = self._sums[node].masked(runs, seen)
            hidden.append((request.payload, mask.to_wire().payload))
        return hidden

    def forget(self, cuts: list[Cut]) -> None:
        super().forget(cuts)
        # The sums of a node serve once more after its split, for the sibling of the next level.
        live = {cut.parent for cut in cuts} | set(self._partition.leaves())
        self._sums = {node: sums for node, sums in self._sums.items() if node in live}
        self._counts = {node: counts for node, counts in self._counts.items() if node in live}


class LevelOffers(Offers):
    """Sums of all nodes of a level in one array: the fewest steps where adding is cheap."""

    def _lengths(self, sums: list[Sum]) -> list[int] | None:
        return None if self._gradients else [len(self._own.codes) * len(sums)]

    def _sum(self, sums: list[Sum], wanted: list[Node]) -> Integers:
        own = self._own
        rows = [self._partition.rows(node) for node in wanted]
        trees = np.repeat([node.tree for node in wanted], [len(each) for each in rows])
        gradients = self._gradients[0].take(trees * len(own.codes) + np.concatenate(rows))
        width = own.bins.width
        grouping = own.cells.grouping(rows)
        self._level = gradients.sum_by_many(grouping, grouping.n, stretch=width)
        return grouping.counts.reshape(-1, len(wanted), width).swapaxes(0, 1)

    def _hide(self, wanted: list[Node], order: Array, shown: Array) -> list[tuple[Any, Any]]:
        each, width = self._own.candidates, self._own.bins.width
        # Columns of all nodes lie side by side: column by column, in it node by node.
        shift = each.column * (len(wanted) - 1) * width
        shift = shift[order] + (np.arange(len(wanted)) * width)[:, None]
        extra = each.extra[order]
        runs = Runs(
            (each.start[order] + shift).ravel(),
            (each.stop[order] + shift).ravel(),
            np.where(extra >= 0, extra + shift, -1).ravel(),
        )
        request, mask = self._level.masked(runs, shown.ravel())
        return [(request.payload, mask.to_wire().payload)]


OFFERS: dict[str, type[Offers]] = {"tree": NodeOffers, "node": NodeOffers, "level": LevelOffers}
