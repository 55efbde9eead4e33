"""The label holder's side of growing trees: it finds the best split of every node.

It holds labels and (g, h) of all rows. Of others' columns it sees the sums of nameless candidates
only; its own columns it sums in the clear. Without any feature holder this is the pooled grower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vfsl.channel import Channel
from vfsl.estimators.trees.binning import Bins, Histograms
from vfsl.estimators.trees.hidden_offers import HiddenOffers, Rated
from vfsl.estimators.trees.judging import Judge, find_best_ratings, make_judge
from vfsl.estimators.trees.offers import News, Offer, Offers
from vfsl.estimators.trees.protocol import NO_MORE, Growth
from vfsl.estimators.trees.splits import (
    Candidates,
    Penalty,
    compute_gains,
    find_best,
    find_sides,
)
from vfsl.estimators.trees.tree import (
    LEAF,
    OWN,
    Cut,
    Goal,
    Node,
    Partition,
    Sum,
    Tree,
    keep_live,
    note_sums,
    plan_sums,
)
from vfsl.parts import Roles
from vfsl.values import Array, Integers

_TINY = 1e-10  # a gain below this is rounding


class _Best(NamedTuple):
    """The best split of an open node: whose, by which of its handles, and how good."""

    gain: float
    party: int
    handles: Array


@dataclass
class LabelHolder:
    """The label holder's columns, and how it grows trees with the others."""

    channel: Channel
    roles: Roles
    offers: Callable[[Partition], Offers]  # how others' candidates reach it
    growth: Growth
    penalty: Penalty
    bins: Bins
    codes: Array
    columns_in_all: int
    seed: int
    order: Array  # of rows, for rounding

    def __post_init__(self) -> None:
        self.candidates = Candidates.of(self.bins)
        self.histograms = Histograms(self.codes, self.bins.width)

    def grow(self, batch: int, goals: Sequence[Goal], first_tree: int) -> tuple[list[Tree], Array]:
        """Grow one tree for each goal, all in the same rounds.

        Returns
        -------
        trees : list of Tree
            Without leaf values.
        leaf : integer array of shape (rows, trees)
            In which leaf each row ends, in the bag or not.
        """
        growing = _GrowingTrees(self, self.channel.within(f"trees {batch}"), goals, first_tree)
        growing.split_all()
        return growing.trees, growing.leaf_of_row()


class _GrowingTrees:
    """Trees that grow together, level by level."""

    def __init__(
        self, holder: LabelHolder, channel: Channel, goals: Sequence[Goal], first_tree: int
    ) -> None:
        self._holder, self._channel = holder, channel
        self._goals, self._first_tree = goals, first_tree
        self._growth, self._others = holder.growth, holder.roles.feature_holders
        rows = len(holder.codes)
        self.trees = [Tree() for _ in goals]
        self._partition = Partition(rows, len(goals))
        self._offers = holder.offers(self._partition)
        self._depth = {Node(tree, 0): 0 for tree in range(len(goals))}
        self._totals = {Node(at, 0): goal.values.sum(axis=0) for at, goal in enumerate(goals)}
        self._open: dict[Node, _Best] = {}
        self._sums: dict[Node, Integers] = {}
        self._sides: dict[Node, Array] = {}
        # (g, h) and a one for each row: counts come with the sums.
        one = np.ones((rows, 1), dtype=np.int64)
        self._counted = [np.hstack([goal.values, one]) for goal in goals]

    def split_all(self) -> None:
        """Level by level, until no node is worth splitting."""
        wanted = list(self._depth) if self._growth.max_depth > 0 else []
        sums = [Sum(node) for node in wanted]
        level = 0
        more = bool(wanted)
        while more:
            here = self._channel.within(f"level {level}")
            self._offers.announce(here, len(wanted), len(sums))
            if wanted and self._growth.best:
                self._look_for_best(here, level, sums, wanted)
            elif wanted:
                values = [goal.values for goal in self._goals]
                others = self._offers.collect(here, level, sums, wanted, values)
                self._sum_own(sums)
                self._judge(wanted, [self._own_offers(wanted), *others])
            cuts, dropped = self._split(here, self._choose_nodes())
            wanted = self._find_next(cuts)
            sums = plan_sums(self._partition, cuts, wanted, alone=self._growth.best)
            more = bool(wanted) or self._leaves_wait(cuts)
            owner = {cut.parent: self._open[cut.parent].party for cut in cuts}
            self._offers.tell(here, News(cuts, self._sides, owner, dropped, wanted, more))
            self._forget(cuts, dropped)
            level += 1
        self._offers.announce(self._channel.within(f"level {level}"), NO_MORE)

    def _leaves_wait(self, cuts: list[Cut]) -> bool:
        """Leaf by leaf: whether a leaf judged before can still be split, if no new one can."""
        if self._growth.max_leaves is None:
            return False
        split, full = {cut.parent for cut in cuts}, self._full()
        return any(node not in split and node.tree not in full for node in self._open)

    def _full(self) -> set[int]:
        """Trees that have all the leaves they may have."""
        most = self._growth.max_leaves
        if most is None:
            return set()
        # Every split adds two nodes and one leaf.
        leaves = [(len(tree.owner) + 1) // 2 for tree in self.trees]
        return {at for at, count in enumerate(leaves) if count >= most}

    def leaf_of_row(self) -> Array:
        leaf = np.zeros((len(self._holder.codes), len(self.trees)), dtype=np.int32)
        for node, rows in self._partition.leaves().items():
            leaf[rows, node.tree] = node.number
        return leaf

    # ---- sums -----------------------------------------------------------------------------------

    def _sum_own(self, sums: list[Sum]) -> None:
        """Histograms of one's own columns: of the smaller child, and of the other by difference."""
        rows = [self._partition.rows(one.node) for one in sums]
        three = self._holder.histograms.sums(rows, [self._counted[one.node.tree] for one in sums])
        for one, summed in zip(sums, three, strict=True):
            note_sums(self._sums, one, summed)

    def _own_offers(self, wanted: list[Node]) -> list[Offer]:
        """Own candidates of each node: the sums on their left, and which candidates they are."""
        each = self._holder.candidates
        sums = np.stack([self._sums[node] for node in wanted])
        allowed = each.allowed(sums[:, :, :, 2], self._growth.least_rows)
        left = each.sum_left(sums[:, :, :, :2].reshape(len(wanted), -1, 2))
        offers = []
        for at, node in enumerate(wanted):
            places = np.flatnonzero(allowed[at] & self._usable(node)[each.column])
            offers.append((left[at, places], places))
        return offers

    # ---- splits ---------------------------------------------------------------------------------

    def _judge(self, wanted: list[Node], offers: Sequence[Sequence[Offer]]) -> None:
        """The best split of each wanted node; between parties the first in order wins a tie."""
        nodes, parties = len(wanted), len(offers)
        # Node by node and party by party, so that the candidates of each pair lie together.
        groups = [offers[party][at][0] for at in range(nodes) for party in range(parties)]
        lengths = np.array([len(group) for group in groups])
        by_node = lengths.reshape(nodes, parties).sum(axis=1)
        total = np.repeat([self._totals[node] for node in wanted], by_node, axis=0)
        steps = np.repeat([self._goals[node.tree].scale for node in wanted], by_node, axis=0)
        penalty = self._holder.penalty
        values = compute_gains(np.concatenate(groups), total, steps, penalty)
        starts = np.cumsum(lengths) - lengths
        best, ties = find_best(values, starts)
        first = best.reshape(nodes, parties).argmax(axis=1)
        for at, node in enumerate(wanted):
            group = at * parties + int(first[at])
            if best[group] > max(penalty.least_gain, _TINY):
                tied = np.flatnonzero(ties[starts[group] : starts[group] + lengths[group]])
                handles = offers[first[at]][at][1][tied]
                self._open[node] = _Best(float(best[group]), int(first[at]), handles)

    def _look_for_best(
        self, channel: Channel, level: int, sums: list[Sum], wanted: list[Node]
    ) -> None:
        """The best split of each wanted node, judged in small integers."""
        judges, values = self._make_judges(wanted)
        columns = [self._usable(node) for node in wanted]
        if isinstance(self._offers, HiddenOffers):
            offset = self._holder.codes.shape[1]
            others = self._offers.rate(channel, wanted, judges, values, columns, offset)
        else:
            shown = self._offers.collect(channel, level, sums, wanted, values)
            others = [
                [_rate(judge, offer) for judge, offer in zip(judges, offers, strict=True)]
                for offers in shown
            ]
        rated = [self._rate_own(wanted, judges, values, columns), *others]
        for at, (node, judge) in enumerate(zip(wanted, judges, strict=True)):
            # Between parties the first in order wins a tie.
            ratings = [each[at][0] for each in rated]
            party = int(np.argmax(ratings))
            gain = judge.gain(ratings[party])
            if gain > max(self._holder.penalty.least_gain, _TINY):
                self._open[node] = _Best(gain, party, rated[party][at][1])

    def _make_judges(self, wanted: list[Node]) -> tuple[list[Judge], list[Integers]]:
        """How splits of each node are judged, and what is summed for that, by tree."""
        rows = len(self._holder.codes)
        values = [np.zeros((rows, 2), dtype=np.int64) for _ in self._goals]
        judges = []
        for node in wanted:
            here, goal = self._partition.rows(node), self._goals[node.tree]
            here = here[np.argsort(self._holder.order[here])]
            g, h = (goal.values[here] / goal.scale).T
            judges.append(make_judge(g, h, self._holder.penalty, rows))
            values[node.tree][here] = judges[-1].values
        return judges, values

    def _rate_own(
        self,
        wanted: list[Node],
        judges: list[Judge],
        values: list[Integers],
        columns: list[Array],
    ) -> list[Rated]:
        holder, each = self._holder, self._holder.candidates
        rows = [self._partition.rows(node) for node in wanted]
        sums = holder.histograms.sums(rows, [values[node.tree] for node in wanted])
        left = each.sum_left(sums.reshape(len(wanted), -1, 2))
        rated = []
        for at, judge in enumerate(judges):
            places = np.flatnonzero(columns[at][each.column])
            rated.append(_rate(judge, (left[at, places], places)))
        return rated

    def _usable(self, node: Node) -> Array:
        """Which columns of all parties a node may use."""
        holder = self._holder
        return self._growth.choose_columns(
            holder.seed, holder.columns_in_all, self._first_tree + node.tree, node.number
        )

    def _choose_nodes(self) -> list[Node]:
        """All open nodes with a gain, or of each tree the one with the largest."""
        if self._growth.max_leaves is None:
            return sorted(self._open)
        best: dict[int, Node] = {}
        full = self._full()
        for node in sorted(node for node in self._open if node.tree not in full):
            rival = best.get(node.tree)
            if rival is None or self._open[node].gain > self._open[rival].gain:
                best[node.tree] = node
        return [best[tree] for tree in sorted(best)]

    def _split(self, channel: Channel, nodes: list[Node]) -> tuple[list[Cut], list[Node]]:
        """Let owners split these nodes, let the rows follow, and note it in the trees.

        A node stays a leaf if a side has too few rows: whoever sees no rows could not know.
        """
        self._sides = {node: self._own_side(node) for node in nodes if self._whose(node) == OWN}
        for place in range(1, len(self._others) + 1):
            asked = [node for node in nodes if self._whose(node) == place]
            handles = [self._open[node].handles for node in asked]
            self._sides |= self._offers.ask(channel, place, asked, handles)
        least = self._growth.least_rows
        dropped = [node for node in nodes if _count_smaller(self._sides[node]) < least]
        return [self._cut(node) for node in nodes if node not in dropped], dropped

    def _cut(self, node: Node) -> Cut:
        cut = self._partition.split(node, self._sides[node])
        small, large = self._partition.smaller_first(cut)
        values = self._goals[node.tree].values
        self._totals[small] = values[self._partition.rows(small)].sum(axis=0)
        self._totals[large] = self._totals[node] - self._totals[small]
        self._depth[cut.left] = self._depth[cut.right] = self._depth[node] + 1
        self._note(cut, self._open[node])
        return cut

    def _whose(self, node: Node) -> int:
        return self._open[node].party

    def _own_side(self, node: Node) -> Array:
        holder = self._holder
        rule = holder.candidates.rule(int(self._open[node].handles.min()))
        return find_sides(holder.bins, rule, holder.codes, self._partition.rows(node))

    def _note(self, cut: Cut, best: _Best) -> None:
        tree = self.trees[cut.parent.tree]
        if best.party == OWN:
            rule = self._holder.candidates.rule(int(best.handles.min()))
            tree.rules[cut.parent.number] = rule
        tree.owner[cut.parent.number] = best.party
        tree.left[cut.parent.number] = cut.left.number
        tree.gain[cut.parent.number] = best.gain
        tree.owner += [LEAF, LEAF]
        tree.left += [LEAF, LEAF]
        tree.value += [0.0, 0.0]
        tree.gain += [0.0, 0.0]

    def _find_next(self, cuts: list[Cut]) -> list[Node]:
        """Children that may be split further; the one that is summed before its sibling.

        The sibling's sums can then be a difference of what the key holder has opened.
        """
        growth, full = self._growth, self._full()
        wanted = []
        for cut in cuts:
            for child in self._partition.smaller_first(cut):
                weight = self._totals[child][1] / self._goals[child.tree].scale.h
                if (
                    child.tree not in full
                    and self._depth[child] < growth.max_depth
                    and len(self._partition.rows(child)) >= 2 * growth.least_rows
                    and weight >= 2 * self._holder.penalty.least_weight
                ):
                    wanted.append(child)
        return wanted

    def _forget(self, cuts: list[Cut], dropped: list[Node]) -> None:
        """Split nodes are not open any more; their sums serve once more, for the siblings."""
        split = {cut.parent for cut in cuts} | set(dropped)
        self._open = {node: best for node, best in self._open.items() if node not in split}
        if self._growth.max_leaves is None:
            self._open = {}  # a level is split whole; what is left of it stays a leaf
        self._sums = keep_live(self._sums, self._partition, cuts)
        self._offers.forget(cuts)


def _rate(judge: Judge, offer: Offer) -> Rated:
    """How good the best of a party's candidates is, and its handles of those that are."""
    best, tied = find_best_ratings(judge.rate(offer[0]))
    return best, offer[1][tied]


def _count_smaller(left: Array) -> int:
    count = int(np.count_nonzero(left))
    return min(count, len(left) - count)
