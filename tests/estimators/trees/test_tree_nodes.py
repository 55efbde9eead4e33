"""Partitions, bitmaps, and trees as data."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfsl.errors import ProtocolError
from vfsl.estimators.trees.tree import (
    LEAF,
    Cut,
    Node,
    Partition,
    Sum,
    Tree,
    pack_sides,
    plan_sums,
    unpack_sides,
)


@given(st.lists(st.integers(0, 20), max_size=6), st.integers(0, 2**32 - 1))
def test_bitmaps_come_back(lengths, seed):
    rng = np.random.default_rng(seed)
    sides = [rng.random(length) < 0.5 for length in lengths]
    bits = pack_sides(sides)
    assert bits.dtype == np.uint8
    assert len(bits) == (sum(lengths) + 7) // 8
    back = unpack_sides(bits, lengths, "B")
    assert len(back) == len(sides)
    assert all((one == two).all() for one, two in zip(sides, back, strict=True))


def test_a_bitmap_of_another_length_names_its_sender():
    with pytest.raises(ProtocolError, match="'B' sent a bitmap of 1 bytes; expected 2"):
        unpack_sides(pack_sides([np.ones(8, dtype=bool)]), [9], "B")


def test_children_are_numbered_in_the_order_of_splits_tree_by_tree():
    partition = Partition(6, 2)
    left = np.array([True, False, True, False, False, False])
    one = partition.split(Node(1, 0), left)
    assert one == Cut(Node(1, 0), Node(1, 1), Node(1, 2))
    two = partition.split(Node(1, 2), np.array([True, False, False, True]))
    assert (two.left, two.right) == (Node(1, 3), Node(1, 4))
    assert partition.rows(Node(1, 3)).tolist() == [1, 5]
    assert partition.rows(Node(0, 0)).tolist() == list(range(6))
    assert Node(1, 2) not in partition.leaves()
    covered = np.concatenate([rows for node, rows in partition.leaves().items() if node.tree == 1])
    assert sorted(covered) == list(range(6))


def test_the_smaller_child_is_summed():
    partition = Partition(5, 1)
    cut = partition.split(Node(0, 0), np.array([True, True, True, False, False]))
    left, right = cut.left, cut.right
    assert plan_sums(partition, [cut], frozenset({left, right})) == [Sum(right, cut.parent, left)]
    assert plan_sums(partition, [cut], frozenset({left})) == [Sum(right, cut.parent, left)]
    assert plan_sums(partition, [cut], frozenset({right})) == [Sum(right, cut.parent, None)]
    assert plan_sums(partition, [cut], frozenset()) == []


# ---- trees ----


def random_tree(rng, splits):
    tree = Tree()
    for _ in range(splits):
        leaves = [node for node, owner in enumerate(tree.owner) if owner == LEAF]
        node = int(rng.choice(leaves))
        tree.owner[node], tree.left[node] = int(rng.integers(0, 3)), len(tree.owner)
        for grown, fill in ((tree.owner, LEAF), (tree.left, LEAF), (tree.gain, 0.0)):
            grown += [fill, fill]
        tree.value += rng.normal(size=2).tolist()
        if tree.owner[node] == 0:
            tree.rules[node] = (1, int(rng.integers(9)), 0)
    return tree


@given(st.integers(0, 2**32 - 1), st.integers(0, 8))
def test_trees_survive_json(seed, splits):
    tree = random_tree(np.random.default_rng(seed), splits)
    assert Tree.from_dict(json.loads(json.dumps(tree.to_dict()))) == tree
