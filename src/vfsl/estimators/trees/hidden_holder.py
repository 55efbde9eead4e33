"""A feature holder's side where only its best candidates are shown; see shared_best.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.crypto.words import Words
from vfsl.errors import ProtocolError
from vfsl.estimators.trees.feature_holder import FeatureHolder
from vfsl.estimators.trees.protocol import BITS
from vfsl.estimators.trees.shared_best import PairBest, keep_columns, read_sizes
from vfsl.estimators.trees.splits import Rule, find_sides
from vfsl.estimators.trees.tree import Node
from vfsl.values import Array


def grow_hidden(
    holder: FeatureHolder, pair: PairBest, batch: int, trees: int, first_tree: int
) -> tuple[dict[Node, Rule], list[int]]:
    """Take part in growing trees together, without learning rows of their nodes.

    Returns
    -------
    rules : dict by node
        One's own splits.
    splits : list of int
        How many splits each of one's columns has made.
    """
    growing = _Growing(holder, pair, trees, first_tree)
    if pair.has_candidates and holder.growth.max_depth:
        channel = holder.channel.within(f"trees {batch}")
        level = 0
        while growing.more:
            growing.take_part(channel.within(f"level {level}"))
            level += 1
    splits = [0] * holder.codes.shape[1]
    for column, _, _ in growing.rules.values():
        splits[column] += 1
    return growing.rules, splits


class _Growing:
    """Trees that grow together, as a feature holder knows them: its own splits."""

    def __init__(self, holder: FeatureHolder, pair: PairBest, trees: int, first_tree: int) -> None:
        self._holder, self._pair, self._first_tree = holder, pair, first_tree
        self._leader, self._trees = holder.roles.label_holder, trees
        self._wanted = [Node(tree, 0) for tree in range(trees)]
        self._numbers: dict[Node, Words] = {}
        self.rules: dict[Node, Rule] = {}
        self.more = True

    def take_part(self, here: Channel) -> None:
        if self._wanted:
            self._look(here)
        came = here.receive(self._leader, "chosen")
        nodes = self._read_nodes(came.get("nodes"), "chosen")
        if nodes:
            self._split(here, nodes)
        self._go_on(here.receive(self._leader, "next"))

    def _look(self, here: Channel) -> None:
        """Let the label holder learn how good the best candidates of the wanted nodes are."""
        holder, pair, leader = self._holder, self._pair, self._leader
        sizes = read_sizes(here.receive(leader, "size classes"), leader, len(self._wanted))
        chosen = [
            holder.growth.choose_columns(
                holder.seed, holder.columns_in_all, self._first_tree + node.tree, node.number
            )
            for node in self._wanted
        ]
        if pair.layout is None:
            raise ProtocolError("A feature holder knows the layout of its candidates.")
        use = keep_columns(pair.layout, chosen, holder.offset)
        rating, number = pair.find(len(self._wanted), sizes, use)
        here.release(leader, "best candidates", len(rating), new=0)  # see release_binned
        pair.show_rating(rating)
        self._numbers |= dict(zip(self._wanted, number, strict=True))

    def _split(self, here: Channel, nodes: list[Node]) -> None:
        """Learn which candidates split these nodes, and let the label holder learn sides."""
        holder = self._holder
        unknown = [node for node in nodes if node not in self._numbers or node in self.rules]
        if unknown or len(set(nodes)) < len(nodes):
            raise ProtocolError(
                f"Party {self._leader!r} chose a split that was not offered.", self._leader
            )
        numbers = self._pair.show_number(np.array([self._numbers[node] for node in nodes]))
        if numbers is None or (numbers < 0).any() or (numbers >= len(holder.candidates)).any():
            raise ProtocolError(
                f"Party {self._leader!r} chose a split that was not offered.", self._leader
            )
        everyone = np.arange(len(holder.codes))
        left = np.zeros((len(nodes), len(everyone)), dtype=np.uint8)
        for at, (node, number) in enumerate(zip(nodes, numbers, strict=True)):
            self.rules[node] = holder.candidates.rule(int(number))
            left[at] = find_sides(holder.bins, self.rules[node], holder.codes, everyone)
        # Nodes of a tree have no row in common, so this is the most that can be seen.
        seen = len({node.tree for node in nodes}) * len(everyone)
        here.release(self._leader, "sides", -(-seen // BITS), new=0)
        self._pair.show_sides(len(nodes), left=left)

    def _go_on(self, value: Any) -> None:
        for node in self._read_nodes(value.get("dropped"), "next"):
            self.rules.pop(node, None)
        self._wanted = self._read_nodes(value.get("wanted"), "next")
        more = value.get("more")
        self.more = bool(expect_integer(more, sender=self._leader, name="more", low=0, high=1))

    def _read_nodes(self, value: Any, name: str) -> list[Node]:
        pairs: Array = expect_array(
            value, sender=self._leader, name=name, holds="integer", shape=(None, 2)
        )
        if (pairs < 0).any() or (pairs[:, 0] >= self._trees).any():
            raise ProtocolError(f"Party {self._leader!r} names nodes of no tree.", self._leader)
        return [Node(int(tree), int(number)) for tree, number in pairs]
