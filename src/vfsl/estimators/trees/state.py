"""What a party's share of a tree model holds: trees at the label holder, own splits elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vfsl.estimators.trees.absent import find_present, leave_out
from vfsl.estimators.trees.splits import Rule
from vfsl.estimators.trees.tree import Node, Tree
from vfsl.parts import ModelShare, Roles
from vfsl.values import Array


def trees_of(share: ModelShare) -> list[Tree]:
    """The label holder's trees."""
    return [Tree.from_dict(tree) for tree in share.state["trees"]]


def add_leaves(share: ModelShare, trees: Sequence[Tree], leaf: Array) -> Array:
    """The scores of rows that end in these leaves, (rows, trees)."""
    scores = np.tile(np.asarray(share.state["start"], dtype=np.float64), (len(leaf), 1))
    for at, tree in enumerate(trees):
        scores[:, share.state["output"][at]] += np.array(tree.value)[leaf[:, at]]
    return scores


def trees_for(share: ModelShare, roles: Roles) -> list[Tree]:
    """The label holder's trees for the feature holders that are there."""
    names = share.state.get("parties") or list(share.state["gain by party"])
    return leave_out(trees_of(share), find_present(names, roles.feature_holders))


def rules_of(share: ModelShare) -> dict[Node, Rule]:
    """A feature holder's own splits by tree and node."""
    return {
        Node(tree, node): (column, code, missing)
        for tree, node, column, code, missing in share.state["rules"]
    }
