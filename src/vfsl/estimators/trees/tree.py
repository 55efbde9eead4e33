"""Trees and their nodes: shapes as the label holder knows them, rows as every data holder does.

All parties number nodes alike: the root is 0, the two children of a split get the next two numbers
of their tree in the order of the splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from vfsl.errors import ConfigError, ProtocolError
from vfsl.estimators.trees.splits import LEFT, RIGHT, Rule, Scale
from vfsl.values import Array, Floats, Integers

LEAF, OWN = -1, 0


@dataclass
class Tree:
    """A tree as the label holder knows it: who splits where, and what the leaves say.

    ``owner`` is LEAF, OWN, or the place of a feature holder, from 1 on; a split's children are
    ``left`` and ``left`` + 1. ``cover`` is the training weight Σh of a node, in integer steps;
    models that earlier versions saved have none.
    """

    owner: list[int] = field(default_factory=lambda: [LEAF])
    left: list[int] = field(default_factory=lambda: [LEAF])
    value: list[float] = field(default_factory=lambda: [0.0])
    gain: list[float] = field(default_factory=lambda: [0.0])
    rules: dict[int, Rule] = field(default_factory=dict)
    cover: list[int] = field(default_factory=list)

    def default(self, node: int) -> int:
        """Where rows go that cannot be asked at a split: to the heavier side, the left if even."""
        if len(self.cover) != len(self.owner):
            raise ConfigError(
                "The model was saved by an earlier version, which did not keep where rows go that "
                "lack a party's cells. Train it again to predict without one."
            )
        left = self.left[node]
        return LEFT if self.cover[left] >= self.cover[left + 1] else RIGHT

    def to_dict(self) -> dict[str, Any]:
        rules = [[node, *rule] for node, rule in sorted(self.rules.items())]
        return {
            "owner": self.owner,
            "left": self.left,
            "value": self.value,
            "gain": self.gain,
            "rules": rules,
            "cover": self.cover,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Tree:
        rules = {rule[0]: (rule[1], rule[2], rule[3]) for rule in content["rules"]}
        owner, left, value, gain = (content[name] for name in ("owner", "left", "value", "gain"))
        return cls(owner, left, value, gain, rules, content.get("cover", []))


@dataclass(frozen=True)
class Goal:
    """What one tree is to fit.

    Attributes
    ----------
    values : integer array of shape (rows, 2)
        The (g, h) that splits are judged by, zero outside the bag.
    scale : Scale
    first, second : array
        The (g, h) that its leaf values follow from.
    output : int
        Which score its leaves move.
    absent : boolean array of shape (rows, feature holders), optional
        Rows that this tree is to do without a feature holder's block for.
    """

    values: Integers
    scale: Scale
    first: Floats
    second: Floats
    output: int
    absent: Array | None = None

    def values_for(self, place: int, rows: Array) -> Integers:
        """(g, h) of some rows where this party's columns are summed: zero without its block."""
        values = self.values[rows]
        if self.absent is None or place == OWN:
            return values
        return np.asarray(values * ~self.absent[rows, place - 1 : place])

    def reorder(self, order: Array) -> Goal:
        """The same for rows in another order."""
        absent = None if self.absent is None else self.absent[order]
        first, second = self.first[order], self.second[order]
        return Goal(self.values[order], self.scale, first, second, self.output, absent)


class Node(NamedTuple):
    """A node of one of the trees that grow together."""

    tree: int
    number: int


class Cut(NamedTuple):
    """A node that was split, and its children."""

    parent: Node
    left: Node
    right: Node


class Partition:
    """The rows of every open node of every tree, all rows, in a bag or not; they rise."""

    def __init__(self, rows: int, trees: int) -> None:
        everyone = np.arange(rows, dtype=np.int32 if rows < 1 << 31 else np.int64)
        self._rows = {Node(tree, 0): everyone for tree in range(trees)}
        self._used = [1] * trees

    def rows(self, node: Node) -> Array:
        return self._rows[node]

    def split(self, node: Node, left: Array) -> Cut:
        """Send some of a node's rows to the left, given as a boolean for each of them."""
        return self.split_all([node], [left])[0]

    def split_all(self, nodes: Sequence[Node], sides: Sequence[Array]) -> list[Cut]:
        """As :meth:`split` for several nodes, in their order."""
        if not nodes:
            return []
        left = np.concatenate(sides)
        rows = np.concatenate([self._rows.pop(node) for node in nodes])
        on_left, on_right = rows.compress(left), rows.compress(~left)
        cuts, end, other_end = [], 0, 0
        for node, side in zip(nodes, sides, strict=True):
            start, other_start = end, other_end
            end += int(np.count_nonzero(side))
            other_end += len(side) - (end - start)
            first = self._used[node.tree]
            self._used[node.tree] += 2
            cut = Cut(node, Node(node.tree, first), Node(node.tree, first + 1))
            self._rows[cut.left] = on_left[start:end]
            self._rows[cut.right] = on_right[other_start:other_end]
            cuts.append(cut)
        return cuts

    def smaller_first(self, cut: Cut) -> tuple[Node, Node]:
        """The children of a split, the one with fewer rows first; the left one if they are even."""
        even = len(self._rows[cut.left]) <= len(self._rows[cut.right])
        return (cut.left, cut.right) if even else (cut.right, cut.left)

    def leaves(self) -> dict[Node, Array]:
        """The rows of all nodes that are not split."""
        return self._rows


@dataclass(frozen=True)
class Sum:
    """Sum the rows of ``node``; ``sibling`` gets what is left of the sums of ``parent``."""

    node: Node
    parent: Node | None = None
    sibling: Node | None = None


def plan_sums(
    partition: Partition, cuts: Sequence[Cut], wanted: Sequence[Node], alone: bool = False
) -> list[Sum]:
    """What to sum for the wanted children of these cuts: the smaller child of each, always.

    ``alone``: each wanted child by itself, where what is summed is another thing in each node.
    """
    if alone:
        return [Sum(node) for node in wanted]
    sums = []
    for cut in cuts:
        if not {cut.left, cut.right} & set(wanted):
            continue
        small, large = partition.smaller_first(cut)
        sums.append(Sum(small, cut.parent, large if large in wanted else None))
    return sums


Kept = TypeVar("Kept")
Summed = TypeVar("Summed", bound=npt.NDArray[Any])


def note_sums(sums: dict[Node, Summed], one: Sum, summed: Summed) -> None:
    """Keep the sums of a node, and of its sibling what is left of the parent's."""
    sums[one.node] = summed
    if one.parent is not None and one.sibling is not None:
        sums[one.sibling] = sums[one.parent] - summed


def keep_live(
    sums: dict[Node, Kept], partition: Partition, cuts: Sequence[Cut]
) -> dict[Node, Kept]:
    """Those of open nodes, and of split ones: these serve once more, for the next siblings."""
    live = {cut.parent for cut in cuts} | set(partition.leaves())
    return {node: each for node, each in sums.items() if node in live}


def pack_sides(sides: Sequence[Array]) -> Array:
    """Sides of several splits as one bitmap."""
    flat = np.concatenate([*sides, np.zeros(0, dtype=bool)])
    return np.packbits(flat)


def unpack_sides(bits: Array, lengths: Sequence[int], sender: str) -> list[Array]:
    """The sides behind :func:`pack_sides`, one for each length."""
    total = sum(lengths)
    if len(bits) != (total + 7) // 8:
        raise ProtocolError(
            f"Party {sender!r} sent a bitmap of {len(bits)} bytes; expected {(total + 7) // 8}.",
            sender,
        )
    flat = np.unpackbits(bits, count=total).astype(bool)
    return np.split(flat, np.cumsum(lengths)[:-1]) if len(lengths) else []
