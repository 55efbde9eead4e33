"""The label holder's side of growing trees: it finds the best split of every node.

It holds labels and (g, h) of all rows. Of others' columns it sees the sums of nameless candidates
only; its own columns it sums in the clear. Without any feature holder this is the pooled grower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from vfsl.channel import Channel
from vfsl.crypto.fixed import fold, unfold
from vfsl.estimators.trees.binning import Bins, Histograms
from vfsl.estimators.trees.hidden_offers import HiddenOffers, Rated
from vfsl.estimators.trees.judging import Judge, make_judge, rate_splits
from vfsl.estimators.trees.offers import News, Offer, Offers
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
    order: Array  # all rows, in the order in which rounding carries errors over

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
        self._ordered = Partition(rows, len(goals), holder.order)
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
            if wanted and self._growth.best:
                self._look_for_best(here, level, sums, wanted)
            elif wanted:
                self._look_at_sums(here, level, sums, wanted)
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
            leaf[node.tree][rows] = node.number
        return leaf.T

    # ---- candidates by their sums ---------------------------------------------------------------

    def _look_at_sums(
        self, channel: Channel, level: int, sums: list[Sum], wanted: list[Node]
    ) -> None:
        """The best split of each wanted node, of all that are shown."""
        self._offers.ask_sums(channel, level, sums, self._values_for)
        self._sum_own(sums)
        own = self._own_offers(wanted)
        others = self._offers.collect(channel, sums, wanted, self._values_for)
        for place, offers in enumerate(others, start=1):
            channel.note_opened(
                "sums of candidates",
                {node: (place, shown) for node, (shown, _) in zip(wanted, offers, strict=True)},
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

    def _look_for_best(
        self, channel: Channel, level: int, sums: list[Sum], wanted: list[Node]
    ) -> None:
        """The best split of each wanted node, judged in small integers."""
        judges = [self._make_judges(wanted, OWN)] * (1 + len(self._others))
        if self._growth.block_dropout > 0:
            judges[1:] = [self._make_judges(wanted, at) for at in range(1, len(judges))]
        if isinstance(self._offers, HiddenOffers):
            columns, offset = [self._usable(node) for node in wanted], self._holder.codes.shape[1]
            others = self._offers.rate(channel, wanted, judges[1:], columns, offset)
            rated = [self._rate_own(wanted, judges[OWN]), *others]
        else:

            def values(place: int, node: Node) -> Integers:
                return judges[place][node].folded

            self._offers.ask_sums(channel, level, sums, values)
            rated = [self._rate_own(wanted, judges[OWN])]
            shown = self._offers.collect(channel, sums, wanted, values)
            rated += [_rate(wanted, *each) for each in zip(judges[1:], shown, strict=True)]
        for at, node in enumerate(wanted):
            # Between parties the first in order wins a tie.
            gains = [judges[place][node].gain(each[at][0]) for place, each in enumerate(rated)]
            party = int(np.argmax(gains))
            if gains[party] > max(self._holder.penalty.least_gain, _TINY):
                self._open[node] = _Best(gains[party], party, rated[party][at][1])

    def _make_judges(self, wanted: list[Node], place: int) -> dict[Node, Judge]:
        """How a party's splits of each node are judged; rounding follows the order of rows."""
        holder, judges = self._holder, {}
        folded = np.zeros(len(holder.codes), dtype=np.int64)
        for node in wanted:
            ordered = self._ordered.rows(node)
            g, h = (each.take(ordered) for each in self._gradients[node.tree])
            absent = self._goals[node.tree].absent
            if absent is not None and place != OWN:
                there = ~absent[ordered, place - 1]
                g, h = g * there, h * there
            judge = make_judge(g, h, holder.penalty, len(holder.codes))
            folded[ordered] = judge.folded
            judges[node] = replace(judge, folded=folded.take(self._partition.rows(node)))
        return judges

    def _rate_own(self, wanted: list[Node], judges: Mapping[Node, Judge]) -> list[Rated]:
        each = self._holder.candidates
        rows = [self._partition.rows(node) for node in wanted]
        sums = self._holder.histograms.sums(rows, [judges[node].folded for node in wanted])
        left = unfold(each.sum_left(sums.reshape(len(wanted), -1)), 2, FOLD_BITS)
        places = [np.arange(len(each))] * len(wanted)
        if self._growth.samples_columns:
            places = [np.flatnonzero(self._usable(node)[each.column]) for node in wanted]
        offers = [(left[at, chosen], chosen) for at, chosen in enumerate(places)]
        return _rate(wanted, judges, offers)

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
        cuts = [self._cut(node) for node in nodes if node not in dropped]
        channel.note_opened("children", {cut.parent: (cut.left, cut.right) for cut in cuts})
        return cuts, dropped

    def _cut(self, node: Node) -> Cut:
        left = np.zeros(len(self._holder.codes), dtype=bool)
        left[self._partition.rows(node)] = self._sides[node]
        self._ordered.split(node, left.take(self._ordered.rows(node)))
        cut = self._partition.split(node, self._sides[node])
        small, large = self._partition.smaller_first(cut)
        folded = self._folded[node.tree].take(self._partition.rows(small)).sum()
        self._totals[small] = unfold(folded, 2, FOLD_BITS)
        self._totals[large] = self._totals[node] - self._totals[small]
        self._depth[cut.left] = self._depth[cut.right] = self._depth[node] + 1
        self._note(cut, self._open[node])
        return cut

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


def _rate(wanted: list[Node], judges: Mapping[Node, Judge], offers: Sequence[Offer]) -> list[Rated]:
    """Of each node how good the best of a party's candidates is, and its handles of those."""
    lengths = [len(handles) for _, handles in offers]
    left = np.concatenate([sums for sums, _ in offers])
    ratings = rate_splits([judges[node] for node in wanted], left, lengths)
    starts = np.cumsum(lengths) - lengths
    best, ties = find_best(ratings.astype(np.float64), starts)
    tied = np.split(ties, starts[1:])
    return [
        (max(int(most), 0) if len(handles) else 0, handles[at])
        for most, at, (_, handles) in zip(best, tied, offers, strict=True)
    ]


def _count_smaller(left: Array) -> int:
    count = int(np.count_nonzero(left))
    return min(count, len(left) - count)
