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
from vfsl.crypto.fixed import fold, unfold
from vfsl.estimators.trees.binning import Bins, Histograms
from vfsl.estimators.trees.judging import Judges, make_judges, pick_best
from vfsl.estimators.trees.offers import BestOffers, News, Offer, Offers, SumOffers
from vfsl.estimators.trees.protocol import NO_MORE, Growth
from vfsl.estimators.trees.splits import (
    FOLD_BITS,
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
_THE_BEST = np.zeros(1, dtype=np.int64)  # the handle where one candidate is offered


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
    order: Array  # which row each of the codes belongs to: rounding carries errors over in it

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
        ordered = [goal.reorder(self.order) for goal in goals]
        growing = _GrowingTrees(self, self.channel.within(f"trees {batch}"), ordered, first_tree)
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
        self._open: dict[Node, _Best] = {}
        self._sums: dict[Node, Integers] = {}
        self._sides: dict[Node, Array] = {}
        self._gradients = [np.ascontiguousarray((goal.values / goal.scale).T) for goal in goals]
        self._folded = [fold(goal.values, FOLD_BITS) for goal in goals]
        self._totals = {
            Node(at, 0): unfold(each.sum(), 2, FOLD_BITS) for at, each in enumerate(self._folded)
        }
        for node, total in self._totals.items():
            self.trees[node.tree].cover = [int(total[1])]

    def split_all(self) -> None:
        """Level by level, until no node is worth splitting."""
        wanted = list(self._depth) if self._growth.max_depth > 0 else []
        sums = [Sum(node) for node in wanted]
        level = 0
        more = bool(wanted)
        while more:
            here = self._channel.within(f"level {level}")
            self._offers.announce(here, len(wanted), len(sums))
            if wanted and isinstance(self._offers, BestOffers):
                self._look_for_best(here, self._offers, wanted)
            elif wanted and isinstance(self._offers, SumOffers):
                self._look_at_sums(here, self._offers, level, sums, wanted)
            cuts, dropped = self._split(here, self._choose_nodes())
            wanted = self._find_next(cuts)
            sums = plan_sums(self._partition, cuts, wanted, alone=self._growth.best)
            more = bool(wanted) or self._leaves_wait(cuts)
            owner = {cut.parent: self._open[cut.parent].party for cut in cuts}
            moved = self._growth.block_dropout > 0
            news = News(cuts, self._sides, owner, dropped, wanted, more, moved)
            self._offers.tell(here, news)
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
        leaf = np.zeros((len(self.trees), len(self._holder.codes)), dtype=np.int32)
        for node, rows in self._partition.leaves().items():
            leaf[node.tree][self._holder.order.take(rows)] = node.number
        return leaf.T

    # ---- candidates by their sums ---------------------------------------------------------------

    def _look_at_sums(
        self, channel: Channel, offers: SumOffers, level: int, sums: list[Sum], wanted: list[Node]
    ) -> None:
        """The best split of each wanted node, of all that are shown."""
        offers.ask_sums(channel, level, sums, self._values_for)
        self._sum_own(sums)
        own = self._own_offers(wanted)
        others = offers.collect(channel, sums, wanted, self._values_for)
        for place, came in enumerate(others, start=1):
            channel.note_opened(
                "sums of candidates",
                {node: (place, shown) for node, (shown, _) in zip(wanted, came, strict=True)},
            )
        self._judge(wanted, [own, *others])

    def _values_for(self, place: int, node: Node) -> Integers:
        """(g, h) of a node's rows, folded, where this party's columns are summed."""
        rows, absent = self._partition.rows(node), self._goals[node.tree].absent
        folded = self._folded[node.tree].take(rows)
        if absent is None or place == OWN:
            return folded
        return np.where(absent[rows, place - 1], 0, folded)

    def _sum_own(self, sums: list[Sum]) -> None:
        """Histograms of one's own columns: of the smaller child, and of the other by difference."""
        rows = [self._partition.rows(one.node) for one in sums]
        folded = [self._values_for(OWN, one.node) for one in sums]
        found = self._holder.histograms.add_up(rows, folded)
        for one, summed in zip(sums, found, strict=True):
            note_sums(self._sums, one, summed)

    def _own_offers(self, wanted: list[Node]) -> list[Offer]:
        """Own candidates of each node: the sums on their left, and which candidates they are."""
        each = self._holder.candidates
        sums = np.stack([self._sums[node] for node in wanted])  # folded (g, h), and counts
        flat = sums.reshape(2 * len(wanted), -1)
        left = each.sum_left(flat).reshape(len(wanted), 2, -1)
        allowed = each.allowed(sums[:, 1], self._growth.least_rows, left[:, 1])
        if self._growth.samples_columns:
            allowed &= np.stack([self._usable(node) for node in wanted])[:, each.column]
        ends = np.cumsum(allowed.sum(axis=1))[:-1]
        shown = np.split(unfold(left[:, 0][allowed], 2, FOLD_BITS), ends)
        places = np.split(np.nonzero(allowed)[1], ends)
        return list(zip(shown, places, strict=True))

    def _judge(self, wanted: list[Node], offers: Sequence[Sequence[Offer]]) -> None:
        """The best split of each wanted node; between parties the first in order wins a tie."""
        nodes, parties = len(wanted), len(offers)
        # Node by node and party by party, so that the candidates of each pair lie together.
        groups = [offers[party][at][0] for at in range(nodes) for party in range(parties)]
        lengths = np.array([len(group) for group in groups])
        by_node = lengths.reshape(nodes, parties).sum(axis=1)
        total = np.repeat(
            np.concatenate([self._totals_of(node) for node in wanted]), lengths, axis=0
        )
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

    def _totals_of(self, node: Node) -> Integers:
        """Of each party (g, h) summed over the rows of a node that have its block, (parties, 2)."""
        goal = self._goals[node.tree]
        totals = np.tile(self._totals[node], (1 + len(self._others), 1))
        if goal.absent is not None:
            rows = self._partition.rows(node)
            totals[1:] -= goal.absent[rows].T.astype(np.int64) @ goal.values[rows]
        return totals

    # ---- the best candidates --------------------------------------------------------------------

    def _look_for_best(self, channel: Channel, offers: BestOffers, wanted: list[Node]) -> None:
        """The best split of each wanted node, judged in small integers."""
        judges = [self._make_judges(wanted, OWN)] * (1 + len(self._others))
        if self._growth.block_dropout > 0:
            judges[1:] = [self._make_judges(wanted, at) for at in range(1, len(judges))]
        columns = [self._usable(node) for node in wanted]
        others = offers.rate(channel, wanted, judges[1:], columns)
        own, places = self._rate_own(wanted, judges[OWN], columns)
        gains = np.stack(
            [judge.gain(each) for judge, each in zip(judges, [own, *others], strict=True)]
        )
        first = gains.argmax(axis=0)  # between parties the first in order wins a tie
        least = max(self._holder.penalty.least_gain, _TINY)
        for at, (node, party) in enumerate(zip(wanted, first.tolist(), strict=True)):
            if gains[party, at] > least:
                handles = places[at : at + 1] if party == OWN else _THE_BEST
                self._open[node] = _Best(float(gains[party, at]), party, handles)

    def _make_judges(self, wanted: list[Node], place: int) -> Judges:
        """How a party's splits of each node are judged."""
        rows = [self._partition.rows(node) for node in wanted]
        each = [
            self._gradients[node.tree].take(here, axis=1)
            for node, here in zip(wanted, rows, strict=True)
        ]
        if place != OWN:
            for node, here, pair in zip(wanted, rows, each, strict=True):
                absent = self._goals[node.tree].absent
                if absent is not None:
                    pair *= ~absent[here, place - 1]
        g, h = np.concatenate(each, axis=1)
        lengths = np.array([len(here) for here in rows])
        return make_judges(g, h, lengths, self._holder.penalty, len(self._holder.codes))

    def _rate_own(
        self, wanted: list[Node], judges: Judges, columns: Sequence[Array]
    ) -> tuple[Integers, Array]:
        """How good the best of one's own candidates of each node is, and which it is."""
        each = self._holder.candidates
        rows = [self._partition.rows(node) for node in wanted]
        sums = self._holder.histograms.sums(rows, judges.split())
        left = each.sum_left(sums.reshape(len(wanted), -1))
        usable = [chosen[each.column] for chosen in columns]
        return pick_best(left, judges.marks, usable if self._growth.samples_columns else None)

    def _usable(self, node: Node) -> Array:
        """Which columns of all parties a node may use."""
        holder = self._holder
        return self._growth.choose_columns(
            holder.seed, holder.columns_in_all, self._first_tree + node.tree, node.number
        )

    # ---- splits ---------------------------------------------------------------------------------

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
            came = self._offers.ask_sides(channel, place, asked, handles)
            self._sides |= came
            rows = {node: self._partition.rows(node) for node in came}
            told = {node: (place, rows[node], left) for node, left in came.items()}
            channel.note_opened("sides", told)
        for node in nodes:
            self._lead_absent(node)
        least = self._growth.least_rows
        dropped = [node for node in nodes if _count_smaller(self._sides[node]) < least]
        split = [node for node in nodes if node not in dropped]
        cuts = self._partition.split_all(split, [self._sides[node] for node in split])
        for cut in cuts:
            self._note_totals(cut)
            self._depth[cut.left] = self._depth[cut.right] = self._depth[cut.parent] + 1
            self._note(cut, self._open[cut.parent])
        channel.note_opened("children", {cut.parent: (cut.left, cut.right) for cut in cuts})
        return cuts, dropped

    def _note_totals(self, cut: Cut) -> None:
        small, large = self._partition.smaller_first(cut)
        folded = self._folded[small.tree].take(self._partition.rows(small)).sum()
        self._totals[small] = unfold(folded, 2, FOLD_BITS)
        self._totals[large] = self._totals[cut.parent] - self._totals[small]

    def _lead_absent(self, node: Node) -> None:
        """Rows without the owner's block go where the others weigh more, to the left if even."""
        goal, place = self._goals[node.tree], self._whose(node)
        if goal.absent is None or place == OWN:
            return
        rows, left = self._partition.rows(node), self._sides[node]
        weight = goal.values_for(place, rows)[:, 1]
        heavier = weight[left].sum() >= weight[~left].sum()
        self._sides[node] = np.where(goal.absent[rows, place - 1], heavier, left)

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
        tree.cover += [int(self._totals[child][1]) for child in (cut.left, cut.right)]

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


def _count_smaller(left: Array) -> int:
    count = int(np.count_nonzero(left))
    return min(count, len(left) - count)
