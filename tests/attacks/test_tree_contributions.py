"""What do explanations of trees tell: the label holder about sides, a feature holder about labels?

By party, the label holder gets one number more per row than the score, for each party but one. It
knows all trees and tries every set of sides that the other party's splits could have. A score tells
of splits that the row comes to; a contribution also of splits that it does not come to.

By column, a feature holder gets what its columns add to the score: it can rank rows by that.
"""

from itertools import product

import numpy as np
from sklearn.metrics import roc_auc_score

from tests.attacks.tree_views import LABEL, federation, people, true_columns
from vfsl.estimators import XGB
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.explaining import find_own_sides, find_worth, weigh_sets
from vfsl.estimators.trees.state import trees_of


def tell_apart(fed, model, row, by_party):
    """How many bits of B's sides at all its splits remain open to C for a row.

    C tries all sets of sides and keeps those that give what it was shown.
    """
    held, trees = model.shares_["C"], trees_of(model.shares_["C"])
    bins, part = Bins.from_dict(held.state["bins"]), fed.parts(LABEL)["C"]
    own = bins, bins.transform(part.table.take(part.rows[[row]]))
    weights, found = weigh_sets(2)[1], []
    for tree in trees:
        splits = [node for node, owner in enumerate(tree.owner) if owner == 1]
        sides = find_own_sides(own, tree, np.zeros(1, dtype=np.int64))
        each = {members: find_worth(tree, sides, members) for members in range(4)}
        lines = []
        for left in product((False, True), repeat=len(splits)):
            goes = dict(zip(splits, left, strict=True))
            worth = [float(each[m][0][0]) for m in range(4)]
            for members in (2, 3):
                for node in splits:
                    comes = all(
                        goes[at] == (child == tree.left[at])
                        for at, child in way(tree, node)
                        if tree.owner[at] == 1
                    )
                    if comes and goes[node]:
                        worth[members] += float(each[members][1][node][0])
            lines.append((worth[3], float(np.dot(weights, worth))))
        found.append(np.array(lines))
    totals = np.zeros((1, 2))
    for lines in found:
        totals = (totals[:, None] + lines[None]).reshape(-1, 2)
    shown = np.array(by_party)
    fits = np.abs(totals - shown) < 1e-5
    splits = sum(tree.owner.count(1) for tree in trees)
    return splits, [np.log2(fits[:, 0].sum()), np.log2(fits.all(axis=1).sum())]


def way(tree, node):
    """Splits above a node, each with the child that leads there."""
    found = []
    while node:
        above = next(
            a for a, first in enumerate(tree.left) if first in (node - 1, node) and first > 0
        )
        found.append((above, node))
        node = above
    return found


def test_contributions_tell_of_splits_that_rows_do_not_come_to():
    """Positive control: the score alone leaves those open, and the truth is among what fits."""
    left = []
    for seed in range(2, 6):
        fed = federation(people(120, seed=seed, own=2, others=2))
        model = XGB(n_estimators=2, max_depth=3).fit(fed, label=LABEL)
        explained = model.explain(fed)
        score = explained.sum(axis=1).to_numpy() - model.shares_["C"].state["start"][0]
        for row in range(10):
            splits, bits = tell_apart(fed, model, row, [score[row], explained["B"][row]])
            assert np.isfinite(bits).all()
            assert bits[1] <= bits[0]
            left.append([splits, *bits])
    whole, by_score, by_contribution = np.mean(left, axis=0)
    assert whole > by_score + 1
    assert by_contribution < by_score - 0.3  # of 6.2 bits 3.0 and 1.8 remain open


def test_contributions_of_own_columns_rank_labels():
    """A known leak: results that the label holder grants. Shuffled labels are a control."""
    fed = federation(people(400, seed=1, others=3))
    model = XGB(n_estimators=15, max_depth=3).fit(fed, label=LABEL)
    truth = fed.parts(LABEL)["C"].target == "yes"
    total = model.explain(fed, party="B").sum(axis=1).to_numpy()
    columns = true_columns(model, fed)
    alone = np.mean([roc_auc_score(truth, column) for column in np.asarray(columns).T])
    shuffled = np.random.default_rng(0).permutation(truth)
    assert roc_auc_score(truth, total) > alone + 0.05  # 0.90 and 0.74
    assert abs(roc_auc_score(shuffled, total) - 0.5) < 0.1
