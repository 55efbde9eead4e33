"""The label holder's side of growing trees: it finds the best split of every node.

It holds labels and (g, h) of all rows. Of others' columns it sees the sums of nameless candidates
only; its own columns it sums in the clear. Without any feature holder this is the pooled grower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vfsl.channel import Channel, expect_array
from vfsl.crypto import PublicKey, SecretKey
from vfsl.crypto.slots import fold, unfold
from vfsl.errors import ProtocolError
from vfsl.estimators.descent import Integers
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.candidates import Candidates, rule_sides
from vfsl.estimators.trees.cells import Cells
from vfsl.estimators.trees.gains import (
    FOLD_BITS,
    Penalty,
    best_of_each,
    gains,
    row_bound,
)
from vfsl.estimators.trees.holders import NO_MORE
from vfsl.estimators.trees.offers import usable
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
from vfsl.estimators.trees.releasing import side_numbers
from vfsl.estimators.trees.tree import LEAF, OWN, Goal, Tree
from vfsl.parts import Roles
from vfsl.values import Array, Ciphertext, Masked

# A gain below this is rounding.
_TINY = 1e-10


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
    key: PublicKey
    secret: SecretKey | None
    program: Program
    penalty: Penalty
    bins: Bins
    codes: Array
    columns_in_all: int
    seed: int
    asked: Mapping[str, tuple[int, int]]  # columns and codes of feature holders that have any

    def __post_init__(self) -> None:
        self.candidates = Candidates.of(self.bins)
        self.cells = Cells(self.codes, self.bins.width)

    def grow(self, batch: int, goals: Sequence[Goal], first_tree: int) -> tuple[list[Tree], Array]:
        """Grow one tree for each goal, all in the same rounds.

        Returns
        -------
        trees : list of Tree
            Without leaf values.
        leaf : integer array of shape (rows, trees)
            In which leaf each row ends, in the bag or not.
        """
        batch_channel = self.channel.within(f"trees {batch}")
        growing = _Growing(self, batch_channel, goals, first_tree)
        growing.run()
        return growing.trees, growing.leaf_of_row()


class _Growing:
    """Trees that grow together, level by level."""

    def __init__(
        self, me: LabelHolder, channel: Channel, goals: Sequence[Goal], first_tree: int
    ) -> None:
        self._me, self._channel, self._goals, self._first_tree = me, channel, goals, first_tree
        rows = len(me.codes)
        self.trees = [Tree() for _ in goals]
        self._partition = Partition(rows, len(goals))
        self._depth = {Node(tree, 0): 0 for tree in range(len(goals))}
        self._totals = {Node(at, 0): goal.values.sum(axis=0) for at, goal in enumerate(goals)}
        self._open: dict[Node, _Best] = {}
        self._sums: dict[Node, Integers] = {}
        self._sides: dict[Node, Array] = {}
        # (g, h) and a one for each row: counts come with the sums.
        one = np.ones((rows, 1), dtype=np.int64)
        self._counted = [np.hstack([goal.values, one]) for goal in goals]

    def run(self) -> None:
        me = self._me
        wanted = list(self._depth) if me.program.max_depth > 0 else []
        sums = [Sum(node) for node in wanted]
        level = 0
        more = bool(wanted)
        while more:
            here = self._channel.within(f"level {level}")
            self._announce(here, len(wanted))
            if wanted:
                self._send_gradients(here, sums, level)
                self._add_up(sums)
                self._judge(wanted, [self._own(wanted), *self._foreign(here, wanted)])
            cuts = self._split(here, self._to_split())
            wanted = self._next(cuts)
            sums = plan_sums(self._partition, cuts, frozenset(wanted))
            more = bool(wanted) or self._leaves_wait(cuts)
            self._tell(here, cuts, wanted, more)
            self._forget(cuts)
            level += 1
        self._announce(self._channel.within(f"level {level}"), NO_MORE)

    def _announce(self, channel: Channel, nodes: int) -> None:
        """Tell the key holder how many nodes it will see sums of."""
        if self._me.roles.feature_holders and self._me.secret is None:
            channel.send(self._me.roles.key_holder, "nodes", nodes)

    def _leaves_wait(self, cuts: list[Cut]) -> bool:
        """Leaf by leaf: whether a leaf judged before can still be split, if no new one can."""
        if self._me.program.max_leaves is None:
            return False
        split, full = {cut.parent for cut in cuts}, self._full()
        return any(node not in split and node.tree not in full for node in self._open)

    def _full(self) -> set[int]:
        """Trees that have all the leaves they may have."""
        most = self._me.program.max_leaves
        if most is None:
            return set()
        # Every split adds two nodes and one leaf.
        leaves = [(len(tree.owner) + 1) // 2 for tree in self.trees]
        return {at for at, count in enumerate(leaves) if count >= most}

    def leaf_of_row(self) -> Array:
        leaf = np.zeros((len(self._me.codes), len(self.trees)), dtype=np.int32)
        for node, rows in self._partition.leaves().items():
            leaf[rows, node.tree] = node.number
        return leaf

    # ---- sums -----------------------------------------------------------------------------------

    def _send_gradients(self, channel: Channel, sums: list[Sum], level: int) -> None:
        me = self._me
        packing = me.program.packing
        if not me.roles.feature_holders or (level and packing != "node"):
            return
        bound = row_bound(len(me.codes))
        parts = [self._goals[one.node.tree].values for one in sums]
        if packing == "node":
            rows = [self._partition.rows(one.node) for one in sums]
            parts = [values[at] for values, at in zip(parts, rows, strict=True)]
        elif packing == "level":
            parts = [np.concatenate(parts)]
        arrays = []
        for part in parts:
            encrypted = me.key.encrypt(fold(part, FOLD_BITS), use="sum_by", bound=bound)
            arrays.append(encrypted.to_wire(bound=bound).payload)
        for party in me.roles.feature_holders:
            channel.send(party, "gradients", Ciphertext(arrays))

    def _add_up(self, sums: list[Sum]) -> None:
        rows = [self._partition.rows(one.node) for one in sums]
        three = self._me.cells.sums(rows, [self._counted[one.node.tree] for one in sums])
        for one, summed in zip(sums, three, strict=True):
            self._sums[one.node] = summed
            if one.parent is not None and one.sibling is not None:
                self._sums[one.sibling] = self._sums[one.parent] - summed

    def _own(self, wanted: list[Node]) -> list[tuple[Integers, Array]]:
        """Own candidates of each node: the sums on their left, and which candidates they are."""
        me = self._me
        sums = np.stack([self._sums[node] for node in wanted])
        allowed = me.candidates.allowed(sums[:, :, :, 2], me.program.least_rows)
        flat = sums[:, :, :, :2].reshape(len(wanted), -1, 2)
        padded = np.concatenate([np.zeros((len(wanted), 1, 2), dtype=np.int64), flat], axis=1)
        runs = np.cumsum(padded, axis=1)
        each = me.candidates
        left = runs[:, each.stop] - runs[:, each.start]
        left += np.where((each.extra >= 0)[None, :, None], flat[:, each.extra], 0)
        offers = []
        for at, node in enumerate(wanted):
            use = usable(
                me.program, me.seed, me.columns_in_all, self._first_tree + node.tree, node.number
            )
            places = np.flatnonzero(allowed[at] & use[each.column])
            offers.append((left[at, places], places))
        return offers

    def _foreign(self, channel: Channel, wanted: list[Node]) -> list[list[tuple[Integers, Array]]]:
        """The same of every feature holder; its candidates are only numbered."""
        nothing = [(np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64))] * len(wanted)
        return [
            self._from(channel, party, wanted) if party in self._me.asked else nothing
            for party in self._me.roles.feature_holders
        ]

    def _from(
        self, channel: Channel, party: str, wanted: list[Node]
    ) -> list[tuple[Integers, Array]]:
        me = self._me
        declared = list(me.program.requests(len(wanted), *me.asked[party]).values())
        masks, shown = _read_masks(channel.receive(party, "masks"), party, declared, len(wanted))
        if me.secret is None:
            keeper = me.roles.key_holder
            opened = channel.within(party).receive(keeper, "opened")
            answers = _listed(opened.payload, keeper, len(declared))
        else:
            requests = _listed(channel.receive(party, "histograms").payload, party, len(declared))
            answers = [
                me.secret.open(Ciphertext(one), shape).payload
                for one, shape in zip(requests, declared, strict=True)
            ]
        folded = np.concatenate(
            [
                me.key.load_mask(Masked(mask)).remove(Masked(answer))
                for mask, answer in zip(masks, answers, strict=True)
            ]
        )
        if len(folded) != shown.sum():
            raise ProtocolError(f"Party {party!r} shows other sums than it says.", party)
        each = np.split(unfold(folded, 2, FOLD_BITS), np.cumsum(shown)[:-1])
        return [(sums, np.arange(len(sums))) for sums in each]

    # ---- splits ---------------------------------------------------------------------------------

    def _judge(
        self, wanted: list[Node], offers: Sequence[Sequence[tuple[Integers, Array]]]
    ) -> None:
        """The best split of each wanted node; between parties the first in order wins a tie."""
        nodes, parties = len(wanted), len(offers)
        # Node by node and party by party, so that each pair is one run of candidates.
        runs = [offers[party][at][0] for at in range(nodes) for party in range(parties)]
        lengths = np.array([len(run) for run in runs])
        by_node = lengths.reshape(nodes, parties).sum(axis=1)
        total = np.repeat([self._totals[node] for node in wanted], by_node, axis=0)
        steps = np.repeat([self._goals[node.tree].scale for node in wanted], by_node, axis=0)
        values = gains(np.concatenate(runs), total, steps, self._me.penalty)
        starts = np.cumsum(lengths) - lengths
        best, ties = best_of_each(values, starts)
        first = best.reshape(nodes, parties).argmax(axis=1)
        for at, node in enumerate(wanted):
            run = at * parties + int(first[at])
            if best[run] > max(self._me.penalty.least_gain, _TINY):
                tied = np.flatnonzero(ties[starts[run] : starts[run] + lengths[run]])
                handles = offers[first[at]][at][1][tied]
                self._open[node] = _Best(float(best[run]), int(first[at]), handles)

    def _to_split(self) -> list[Node]:
        """All open nodes with a gain, or of each tree the one with the largest."""
        if self._me.program.max_leaves is None:
            return sorted(self._open)
        best: dict[int, Node] = {}
        full = self._full()
        for node in sorted(node for node in self._open if node.tree not in full):
            rival = best.get(node.tree)
            if rival is None or self._open[node].gain > self._open[rival].gain:
                best[node.tree] = node
        return [best[tree] for tree in sorted(best)]

    def _split(self, channel: Channel, nodes: list[Node]) -> list[Cut]:
        """Let owners split these nodes, let the rows follow, and tell everybody."""
        self._sides = {node: self._own_side(node) for node in nodes if self._whose(node) == OWN}
        for place, party in enumerate(self._me.roles.feature_holders, start=1):
            self._ask(channel, party, [node for node in nodes if self._whose(node) == place])
        cuts = []
        for node in nodes:
            cut = self._partition.split(node, self._sides[node])
            self._weigh(cut)
            self._depth[cut.left] = self._depth[cut.right] = self._depth[node] + 1
            self._note(cut, self._open[node])
            cuts.append(cut)
        return cuts

    def _weigh(self, cut: Cut) -> None:
        """The sums of (g, h) over all rows of the two children."""
        left, right = (self._partition.rows(child) for child in (cut.left, cut.right))
        small, large = (cut.left, cut.right) if len(left) <= len(right) else (cut.right, cut.left)
        values = self._goals[cut.parent.tree].values
        self._totals[small] = values[self._partition.rows(small)].sum(axis=0)
        self._totals[large] = self._totals[cut.parent] - self._totals[small]

    def _whose(self, node: Node) -> int:
        return self._open[node].party

    def _own_side(self, node: Node) -> Array:
        me = self._me
        rule = me.candidates.rule(int(self._open[node].handles.min()))
        self.trees[node.tree].rules[node.number] = rule
        return rule_sides(me.bins, *rule, me.codes[self._partition.rows(node), rule[0]])

    def _ask(self, channel: Channel, party: str, nodes: list[Node]) -> None:
        """Tell a feature holder which of its handles are best, and learn the sides of rows."""
        handles = [self._open[node].handles for node in nodes]
        chosen = {
            "nodes": np.array(nodes, dtype=np.int64).reshape(-1, 2),
            "lengths": np.array([len(each) for each in handles], dtype=np.int64),
            "handles": np.concatenate([*handles, np.zeros(0, dtype=np.int64)]),
        }
        channel.send(party, "chosen", chosen)
        if not nodes:
            return
        bits = expect_array(
            channel.receive(party, "sides"),
            sender=party,
            name="sides",
            holds="bytes",
            shape=(None,),
        )
        lengths = [len(self._partition.rows(node)) for node in nodes]
        self._sides |= dict(zip(nodes, unpack_sides(bits, lengths, party), strict=True))

    def _note(self, cut: Cut, best: _Best) -> None:
        tree = self.trees[cut.parent.tree]
        tree.owner[cut.parent.number] = best.party
        tree.left[cut.parent.number] = cut.left.number
        tree.gain[cut.parent.number] = best.gain
        for grown, fill in ((tree.owner, LEAF), (tree.left, LEAF), (tree.value, 0.0)):
            grown += [fill, fill]
        tree.gain += [0.0, 0.0]

    def _next(self, cuts: list[Cut]) -> list[Node]:
        """Children that may be split further; the one that is summed before its sibling.

        The sibling's sums can then be a difference of what the key holder has opened.
        """
        program, penalty = self._me.program, self._me.penalty
        full = self._full()
        wanted = []
        for cut in cuts:
            for child in self._partition.smaller_first(cut):
                rows = self._partition.rows(child)
                weight = self._totals[child][1] / self._goals[child.tree].scale.h
                if (
                    child.tree not in full
                    and self._depth[child] < program.max_depth
                    and len(rows) >= 2 * program.least_rows
                    and weight >= 2 * penalty.least_weight
                ):
                    wanted.append(child)
        return wanted

    def _tell(self, channel: Channel, cuts: list[Cut], wanted: list[Node], more: bool) -> None:
        """Every feature holder learns where the rows went, except by its own splits."""
        for place, party in enumerate(self._me.roles.feature_holders, start=1):
            others = [cut.parent for cut in cuts if self._whose(cut.parent) != place]
            news = {
                "splits": np.array([cut.parent for cut in cuts], dtype=np.int64).reshape(-1, 2),
                "sides": pack_sides([self._sides[node] for node in others]),
                "wanted": np.array(wanted, dtype=np.int64).reshape(-1, 2),
                "more": int(more),
            }
            own = [self._sides[node] for node in others if self._whose(node) == OWN]
            channel.release(party, "sides", side_numbers(own), new=0)  # see release_binned
            channel.send(party, "partition", news)

    def _forget(self, cuts: list[Cut]) -> None:
        """Split nodes are not open any more; their sums serve once more, for the siblings."""
        split = {cut.parent for cut in cuts}
        self._open = {node: best for node, best in self._open.items() if node not in split}
        if self._me.program.max_leaves is None:
            self._open = {}  # a level is split whole; what is left of it stays a leaf
        live = split | set(self._partition.leaves())
        self._sums = {node: sums for node, sums in self._sums.items() if node in live}


def _read_masks(
    value: Masked, party: str, declared: list[tuple[int, int]], nodes: int
) -> tuple[list[Any], Array]:
    """The masks of all requests, and how many candidates of each node they uncover."""
    content = value.payload if isinstance(value.payload, dict) else {}
    shown = expect_array(
        content.get("shown"), sender=party, name="masks", holds="integer", shape=(nodes,)
    )
    if (shown < 0).any():
        raise ProtocolError(f"Party {party!r} shows a negative number of sums.", party)
    return _listed(content.get("masks"), party, len(declared)), shown


def _listed(value: Any, sender: str, count: int) -> list[Any]:
    """The parts of a message, as many as were asked for."""
    if not isinstance(value, list) or len(value) != count:
        raise ProtocolError(f"Party {sender!r} did not answer {count} requests.", sender)
    return value
