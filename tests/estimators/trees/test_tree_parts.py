"""Draws of rows and columns, partitions, bitmaps, histograms, trees as data, leaves of rows."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vfsl.estimators.trees.cells import Cells
from vfsl.estimators.trees.partition import (
    Cut,
    Node,
    Partition,
    Sum,
    pack_sides,
    plan_sums,
    unpack_sides,
)
from vfsl.estimators.trees.sampling import bootstrap, choose_columns, goss, subsample

from vfsl.crypto import Grouping
from vfsl.errors import ProtocolError
from vfsl.estimators.trees import cells
from vfsl.estimators.trees.tree import LEAF, Tree

# ---- draws ----


def test_goss_keeps_the_large_and_is_unbiased():
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=500)
    strength = np.abs(gradients)
    strength[:50] = 0.0  # rows outside the bag
    top = np.argsort(-strength)[:90]  # 0.2 of 450
    sums = []
    for _ in range(400):
        factors = goss(strength, 0.2, 0.1, rng)
        assert (factors[top] == 1).all()
        assert not factors[:50].any()
        others = factors[np.setdiff1d(np.arange(500), top)]
        assert (others > 0).sum() == 45
        assert set(others[others > 0]) == {360 / 45}
        sums.append((gradients * factors).sum())
    true = gradients[50:].sum()
    assert abs(np.mean(sums) - true) < 4 * np.std(sums) / 20
    assert np.std(sums) > 1  # it does draw


def test_goss_at_its_limits():
    rng = np.random.default_rng(0)
    strength = np.array([3.0, 1.0, 2.0])
    assert goss(strength, 1.0, 0.5, rng).tolist() == [1, 1, 1]
    assert goss(np.zeros(3), 0.2, 0.1, rng).tolist() == [0, 0, 0]
    # Equal gradients: the first rows count as the largest, on every machine.
    assert goss(np.ones(4), 0.5, 0.25, rng)[:2].tolist() == [1, 1]


def test_bootstrap_draws_as_often_as_rows_count():
    weights = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0], [1.0, 1.0]])
    drawn = bootstrap(weights, np.random.default_rng(0))
    times = np.divide(drawn, weights, out=np.zeros_like(drawn), where=weights > 0)
    assert times.sum(axis=0).tolist() == [3, 3]
    assert not drawn[weights == 0].any()
    left_out = [
        (bootstrap(np.ones((400, 1)), np.random.default_rng(seed)) == 0).mean()
        for seed in range(20)
    ]
    assert np.mean(left_out) == pytest.approx(np.exp(-1), abs=0.02)


def test_subsample_takes_a_share():
    taken = subsample(10_000, 0.3, np.random.default_rng(0))
    assert taken.mean() == pytest.approx(0.3, abs=0.02)


def test_columns_are_drawn_alike_by_everybody_and_anew_for_each_node():
    one, again = (choose_columns(20, 0.25, (7, 3, 2)) for _ in range(2))
    assert (one == again).all()
    assert one.sum() == 5
    others = [choose_columns(20, 0.25, (7, 3, node)) for node in range(30)]
    assert np.all([other.any() for other in others])
    assert len({other.tobytes() for other in others}) > 20
    assert np.sum(others, axis=0).min() > 0
    assert choose_columns(3, 0.01, (0,)).sum() == 1
    assert choose_columns(0, 0.5, (0,)).shape == (0,)
    assert choose_columns(3, 1.0, (0,)).all()


# ---- histograms ----


@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(1, 40))
def test_sums_by_bin_against_a_loop(seed, columns, rows):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 6, size=(rows, columns)).astype(np.uint8)
    values = rng.integers(-(2**27), 2**27, size=(rows, 3))
    chosen = np.flatnonzero(rng.random(rows) < 0.6)
    cells = Cells(codes, 6)
    sums, counts = np.zeros((columns, 6, 3), dtype=int), np.zeros((columns, 6), dtype=int)
    for row in chosen:
        for column in range(columns):
            sums[column, codes[row, column]] += values[row]
            counts[column, codes[row, column]] += 1
    everyone = np.arange(rows)
    both, whole = cells.sums([chosen, everyone], [values, values]), values.sum(axis=0)
    assert (both[0] == sums).all()
    assert (both[1].sum(axis=1) == whole).all()
    assert (cells.counts([everyone, chosen])[1] == counts).all()
    if len(chosen) and columns:  # the same for schemes: nodes side by side in every column
        made = cells.grouping([everyone, chosen])
        assert (made.counts.reshape(columns, 2, 6)[:, 1] == counts).all()
        wanted = Grouping(np.vstack([codes, codes[chosen] + 6]).astype(np.int64), 12)
        assert (made.codes == wanted.codes).all()
        assert (made.counts == wanted.counts).all()


def test_places_get_the_room_that_they_need():
    """Numbers of 32 bits would wrap without a word."""
    narrow = np.zeros(2, dtype=np.int32)
    assert cells._room(narrow, 2**31 - 1) is narrow
    assert cells._room(narrow, 2**31).dtype == np.int64


# ---- partitions and bitmaps ----


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
    assert not partition.knows(Node(1, 2))
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
