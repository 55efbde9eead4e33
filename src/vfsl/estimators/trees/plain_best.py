"""The best candidates under plain, which hides nothing: the trees of shares, for experiments.

The label holder sends r and h of the rows of all nodes of a level (judging.py). A feature holder
sums them by its bins and answers how good its best candidate of each node is. Both have the rows in
the label holder's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.errors import ProtocolError
from vfsl.estimators.trees.candidate_sums import CandidateSums
from vfsl.estimators.trees.judging import Judges, pick_best, read_marks
from vfsl.estimators.trees.offers import BestOffers
from vfsl.estimators.trees.splits import Rule
from vfsl.estimators.trees.tree import Node, Partition, Sum
from vfsl.parts import Roles
from vfsl.values import Array, Integers

if TYPE_CHECKING:
    from vfsl.estimators.trees.feature_holder import FeatureHolder


def receive_order(channel: Channel, leader: str, rows: int) -> Array:
    """All rows in the order in which the label holder rounds."""
    came = channel.receive(leader, "order")
    order = expect_array(came, sender=leader, name="order", holds="integer", shape=(rows,))
    if (np.sort(order) != np.arange(rows)).any():
        raise ProtocolError(f"Party {leader!r} sent an order that has not each row once.", leader)
    return order


class PlainOffers(BestOffers):
    """The label holder's side; ``columns`` is how many every feature holder has."""

    def __init__(self, partition: Partition, *, roles: Roles, columns: Mapping[str, int]) -> None:
        super().__init__(partition, roles)
        self._columns = columns

    def announce(self, channel: Channel, nodes: int, sums: int = 0) -> None:
        pass  # there is no key

    def rate(
        self,
        channel: Channel,
        wanted: list[Node],
        judges: Sequence[Judges],
        columns: Sequence[Array],
    ) -> list[Integers]:
        for (party, count), one in zip(self._columns.items(), judges, strict=True):
            if count:
                channel.send(party, "judged", {"values": one.folded, "marks": one.marks})
        found, each = [], (len(wanted),)
        for party, count in self._columns.items():
            came: Any = np.zeros(len(wanted), dtype=np.int64)
            if count:
                came = channel.receive(party, "best")
            found.append(expect_array(came, sender=party, name="best", holds="integer", shape=each))
        return found


class PlainBest(CandidateSums):
    """A feature holder's side; what it offers of a node is its best candidate."""

    def __init__(self, holder: FeatureHolder, partition: Partition, first_tree: int) -> None:
        super().__init__(holder, partition, first_tree)
        self._best: dict[Node, int] = {}

    def offer(self, channel: Channel, sums: list[Sum], wanted: list[Node]) -> None:
        holder, leader = self._holder, self._holder.roles.label_holder
        if not holder.codes.shape[1]:
            return
        came = channel.receive(leader, "judged")
        rows = [self._partition.rows(node) for node in wanted]
        ends = np.cumsum([len(each) for each in rows])
        shape = (int(ends[-1]),)
        values = expect_array(
            came.get("values"), sender=leader, name="judged", holds="integer", shape=shape
        )
        marks = read_marks(came.get("marks"), leader, len(wanted))
        found = holder.histograms.sums(rows, np.split(values, ends[:-1]))
        left = holder.candidates.sum_left(found.reshape(len(wanted), -1))
        usable = None
        if holder.growth.samples_columns:
            tree = self._first_tree
            usable = [holder.may_use(tree + node.tree, node.number) for node in wanted]
        ratings, best = pick_best(left, marks, usable)
        self._best |= dict(zip(wanted, best.tolist(), strict=True))
        channel.release(leader, "best candidates", len(ratings), new=0)  # see release_binned
        channel.send(leader, "best", ratings)

    def take(self, node: Node, handles: Array) -> Rule:
        if node not in self._best:
            leader = self._holder.roles.label_holder
            raise ProtocolError(f"Party {leader!r} chose a split that was not offered.", leader)
        return self._holder.candidates.rule(self._best.pop(node))
