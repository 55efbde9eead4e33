"""Can a feature holder of trees tell labels from how the trees part the rows?

It knows in which leaf of each tree each training row ends, and here the labels of 20 rows. Rows
that often end in a leaf together with known positives are guessed to be positive. Takahashi, Liu
and Liu ("Eliminating Label Leakage in Tree-Based Vertical Federated Learning") join rows of a leaf
in a graph and look for its communities; this is simpler, and strong enough to show the leak.
"""

from functools import cache

import numpy as np
import pytest

from tests.attacks.tree_views import (
    LABEL,
    federation,
    follow_training,
    gain_of_partition,
    people,
    true_columns,
)
from vfsl.estimators import XGB

ROWS = 400
REASON = "Trees in kilobytes: sides are still shown to feature holders"


@cache
def training(rows=ROWS, trees=15, depth=3):
    """Leaves as B can tell them from its messages, B's columns, and the labels, which C holds."""
    fed = federation(people(rows, seed=1, others=3, weight_of_b=0.3))
    model = XGB(n_estimators=trees, max_depth=depth).fit(fed, label=LABEL)
    leaves = follow_training(fed.transcript, "B", rows).leaves
    return leaves, true_columns(model, fed), fed.parts(LABEL)["C"].target == "yes", model


def test_leaves_are_those_of_the_label_holder():
    """The attacker's leaves are the right ones: with their values they give the training scores."""
    leaves, _, _, model = training()
    held = model.shares_["C"]
    values = [np.array(tree["value"]) for tree in held.state["trees"]]
    scores = held.state["start"][0] + sum(value[leaves[:, at]] for at, value in enumerate(values))
    np.testing.assert_allclose(scores, held.scores[:, 0])


def test_of_labels_that_have_nothing_to_do_with_the_trees_leaves_tell_nothing():
    leaves, own, truth, _ = training()
    rng = np.random.default_rng(0)
    found = [
        gain_of_partition(leaves, own, rng.permutation(truth), seed=draw, draws=4)
        for draw in range(8)
    ]
    by_leaves, by_columns = np.mean(found, axis=0)
    assert abs(by_leaves - 0.5) < 0.03
    assert by_leaves - by_columns < 0.02


@pytest.mark.xfail(strict=True, reason=REASON)
def test_leaves_tell_no_more_of_labels_than_own_columns():
    leaves, own, truth, _ = training()
    by_leaves, by_columns = gain_of_partition(leaves, own, truth)
    assert by_leaves - by_columns < 0.02


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason=REASON)
def test_leaves_tell_no_more_of_labels_than_own_columns_on_more_rows():
    leaves, own, truth, _ = training(rows=2000, trees=30, depth=5)
    by_leaves, by_columns = gain_of_partition(leaves, own, truth)
    assert by_leaves - by_columns < 0.02
