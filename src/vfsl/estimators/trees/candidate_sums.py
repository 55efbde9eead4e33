"""What a feature holder offers for the nodes of a level: sums of nameless candidates.

Candidates of a node are shuffled anew for each node, and only those that describe enough rows are
shown (splits.py). The label holder knows a candidate by its place in this order. Sums are formed of
encrypted (g, h), or in shares (shared_sums.py).
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from vfsl.channel import Channel
from vfsl.crypto import EncryptedArray, PrefixSums
from vfsl.crypto.plain import read_plain
from vfsl.crypto.words import Words
from vfsl.errors import ProtocolError
from vfsl.estimators.exchange import load_array, unbundle
from vfsl.estimators.trees.splits import Rule, row_bound
from vfsl.estimators.trees.tree import Cut, Node, Partition, Sum, keep_live, note_sums
from vfsl.values import Array, Ciphertext, Integers, Masked

if TYPE_CHECKING:
    from vfsl.estimators.trees.feature_holder import FeatureHolder


class CandidateSums(ABC):
    """Which candidates were offered in which order, and the splits that were taken of them."""

    def __init__(self, holder: FeatureHolder, partition: Partition, first_tree: int) -> None:
        self._holder, self._partition, self._first_tree = holder, partition, first_tree
        self._offered: dict[Node, Array] = {}

    @abstractmethod
    def offer(self, channel: Channel, sums: list[Sum], wanted: list[Node]) -> None:
        """Sum what this level needs and let the label holder see the candidates."""

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

    def _note_offered(
        self, channel: Channel, wanted: list[Node], counts: Integers, order: Array
    ) -> Array:
        """Which candidates of each node are shown, in this order, by the rows in its bins."""
        holder, growth = self._holder, self._holder.growth
        shown = holder.candidates.allowed(counts, growth.least_rows)
        if growth.samples_columns:
            tree = self._first_tree
            shown &= np.stack([holder.may_use(tree + node.tree, node.number) for node in wanted])
        shown = np.take_along_axis(shown, order, axis=1)
        for node, places, seen in zip(wanted, order, shown, strict=True):
            self._offered[node] = places[seen]
        numbers = 2 * int(shown.sum())
        leader = holder.roles.label_holder
        channel.release(leader, "sums of candidates", numbers, new=0)  # see release_binned
        return shown


# ---- of encrypted (g, h) -------------------------------------------------------------------------


class EncryptedSums(CandidateSums):
    """Sums of (g, h) that the label holder has encrypted, which the key holder opens masked."""

    def __init__(self, holder: FeatureHolder, partition: Partition, first_tree: int) -> None:
        super().__init__(holder, partition, first_tree)
        self._gradients: list[EncryptedArray] = []

    def offer(self, channel: Channel, sums: list[Sum], wanted: list[Node]) -> None:
        holder = self._holder
        lengths = self._lengths(sums)
        if lengths is not None:
            self._gradients = self._receive(channel, lengths)
        if not holder.codes.shape[1]:
            return
        counts = self._sum(sums, wanted)
        # The order protects, so it comes from the operating system.
        size = len(wanted) * len(holder.candidates)
        random = np.frombuffer(secrets.token_bytes(8 * size), dtype=np.uint64)
        order = random.reshape(len(wanted), -1).argsort(axis=1)
        shown = self._note_offered(channel, wanted, counts, order)
        hidden = self._hide(wanted, order, shown)
        # The request first: the key holder opens it while the masks are on their way.
        requests = Ciphertext([request for request, _ in hidden])
        channel.send(holder.growth.secret_holder(holder.roles), "histograms", requests)
        masks = {"masks": [mask for _, mask in hidden], "shown": shown.sum(axis=1)}
        channel.send(holder.roles.label_holder, "masks", Masked(masks))

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
            load_array(self._holder.public_key, one, leader, (length,))
            for one, length in zip(came, lengths, strict=True)
        ]

    @abstractmethod
    def _lengths(self, sums: list[Sum]) -> list[int] | None:
        """Of the arrays that come at this level; None if none do."""

    @abstractmethod
    def _sum(self, sums: list[Sum], wanted: list[Node]) -> Integers:
        """Form the encrypted sums; how many rows each bin of wanted nodes has."""

    @abstractmethod
    def _hide(self, wanted: list[Node], order: Array, shown: Array) -> list[tuple[Any, Any]]:
        """Masked requests with their masks, for the candidates of each node in this order."""


class SumsByNode(EncryptedSums):
    """Sums node by node: for the smaller child, and by difference for its sibling."""

    def __init__(self, holder: FeatureHolder, partition: Partition, first_tree: int) -> None:
        super().__init__(holder, partition, first_tree)
        self._sums: dict[Node, EncryptedArray] = {}
        self._counts: dict[Node, Integers] = {}

    def _lengths(self, sums: list[Sum]) -> list[int] | None:
        if self._holder.growth.sends_each_level:
            return [len(self._partition.rows(one.node)) for one in sums]
        return None if self._gradients else [len(self._holder.codes)] * len(sums)

    def _sum(self, sums: list[Sum], wanted: list[Node]) -> Integers:
        holder = self._holder
        counted = holder.histograms.counts([self._partition.rows(one.node) for one in sums])
        for at, one in enumerate(sums):
            rows = self._partition.rows(one.node)
            if holder.growth.sends_each_level:
                gradients = self._gradients[at]
            else:
                gradients = self._gradients[one.node.tree].take(rows)
            every = len(rows) == len(holder.codes)
            groups = holder.all_rows if every else holder.wide_codes[rows]
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
        self._sums = keep_live(self._sums, self._partition, cuts)
        self._counts = keep_live(self._counts, self._partition, cuts)


class SumsByLevel(EncryptedSums):
    """Sums of all nodes of a level in one array, under a scheme that hides nothing."""

    def __init__(self, holder: FeatureHolder, partition: Partition, first_tree: int) -> None:
        super().__init__(holder, partition, first_tree)
        self._sums: dict[Node, Integers] = {}  # and counts, as Histograms adds them up
        self._level: Integers = np.zeros((0, 0, 0), dtype=np.int64)
        self._folded: Integers = np.zeros((0, 0), dtype=np.int64)

    def _lengths(self, sums: list[Sum]) -> list[int] | None:
        return None if self._gradients else [len(self._holder.codes) * len(sums)]

    def _sum(self, sums: list[Sum], wanted: list[Node]) -> Integers:
        histograms = self._holder.histograms
        rows = [self._partition.rows(one.node) for one in sums]
        came = read_plain(self._gradients[0])
        if sums and sums[0].parent is None:
            self._folded = came.reshape(len(sums), -1)
        values = [self._folded[one.node.tree].take(at) for one, at in zip(sums, rows, strict=True)]
        for one, summed in zip(sums, histograms.add_up(rows, values), strict=True):
            note_sums(self._sums, one, summed)
        both = np.stack([self._sums[node] for node in wanted])
        self._level = both[:, 0]
        return both[:, 1]

    def _hide(self, wanted: list[Node], order: Array, shown: Array) -> list[tuple[Any, Any]]:
        holder = self._holder
        left = holder.candidates.sum_left(self._level.reshape(len(wanted), -1))
        ordered = np.take_along_axis(left, order, axis=1).ravel()
        bound = row_bound(len(holder.codes)) * len(holder.codes)
        each = np.arange(len(ordered))
        single = PrefixSums(each, each + 1, np.full(len(each), -1))
        request, mask = holder.public_key.encrypt(ordered, use="any", bound=bound).mask(
            single, shown.ravel()
        )
        return [(request.payload, mask.to_wire().payload)]

    def forget(self, cuts: list[Cut]) -> None:
        super().forget(cuts)
        self._sums = keep_live(self._sums, self._partition, cuts)


# ---- in shares -----------------------------------------------------------------------------------


class SharedSums(CandidateSums):
    """Sums in shares with the label holder, who sees shuffled candidates of them."""

    def __init__(self, holder: FeatureHolder, partition: Partition, first_tree: int) -> None:
        super().__init__(holder, partition, first_tree)
        self._words: dict[Node, Words] = {}
        self._counts: dict[Node, Integers] = {}

    def offer(self, channel: Channel, sums: list[Sum], wanted: list[Node]) -> None:
        holder, pair = self._holder, self._holder.pair
        if pair is None:
            raise ProtocolError("Sums in shares need a session with the label holder.")
        if not holder.codes.shape[1]:
            return
        counted = holder.histograms.counts([self._partition.rows(one.node) for one in sums])
        for one, words, counts in zip(sums, pair.sum(len(sums)), counted, strict=True):
            note_sums(self._words, one, words)
            note_sums(self._counts, one, counts)
        words, order = pair.shuffle(np.stack([self._words[node] for node in wanted]))
        counts = np.stack([self._counts[node] for node in wanted])
        pair.show(words, self._note_offered(channel, wanted, counts, order))

    def forget(self, cuts: list[Cut]) -> None:
        super().forget(cuts)
        self._words = keep_live(self._words, self._partition, cuts)
        self._counts = keep_live(self._counts, self._partition, cuts)
