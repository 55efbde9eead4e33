"""Attacks on training of trees: chains of splits, candidates that add up, leaves and labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from vfsl.values import Array, Booleans, Floats, Integers

Sides = Mapping[Any, tuple[Array, Array]]  # by split: the rows that come there, who goes left

# Two splits are in one column if one of their four groups of rows is empty although so many were to
# be expected in it by chance.
_SURPRISE = 8.0


def chains(sides: Sides, rows: int) -> list[list[Any]]:
    """Splits that belong together, each chain from the lowest threshold to the highest.

    Two splits of one column are nested: all rows left of the lower one are left of the higher one.
    Splits of different columns are not, if enough rows come to both. Chains are merged from the
    surest pair on, as long as no pair of them contradicts.
    """
    nodes = list(sides)
    left, right = (np.zeros((len(nodes), rows), dtype=np.float32) for _ in range(2))
    for at, node in enumerate(nodes):
        here, goes = sides[node]
        left[at, here[goes]] = 1
        right[at, here[~goes]] = 1
    # [s, t]: rows that come to both, and go left at s and right at t. None: s lies below t.
    crossing = left @ right.T
    both = left + right
    total = np.maximum(both @ both.T, 1)
    expected = (left @ both.T) * (both @ right.T) / total
    below = (crossing == 0) & (expected >= _SURPRISE)
    against = (crossing > 0) & (crossing.T > 0)
    cluster = {at: [at] for at in range(len(nodes))}
    belongs = list(range(len(nodes)))
    sure = np.where(below, expected, 0)
    sure = np.maximum(sure, sure.T)
    pairs = [(s, t) for s in range(len(nodes)) for t in range(s) if sure[s, t] > 0]
    for s, t in sorted(pairs, key=lambda pair: -sure[pair]):
        one, other = belongs[s], belongs[t]
        if one == other or against[np.ix_(cluster[one], cluster[other])].any():
            continue
        cluster[one] += cluster.pop(other)
        for at in cluster[one]:
            belongs[at] = one
    found = []
    for members in cluster.values():
        inside = below[np.ix_(members, members)]
        height = inside.sum(axis=0) - inside.sum(axis=1)
        found.append([nodes[members[at]] for at in np.argsort(height, kind="stable")])
    return sorted(found, key=len, reverse=True)


def pseudo_column(sides: Sides, chain: Sequence[Any], rows: int) -> Floats:
    """How high each row stands on a chain: between the last split that sends it right and the
    first that sends it left. Where all sides are known, how many send it right."""
    low, high = np.zeros(rows), np.full(rows, float(len(chain)))
    for height, node in enumerate(chain):
        here, left = sides[node]
        low[here[~left]] = np.maximum(low[here[~left]], height + 1)
        high[here[left]] = np.minimum(high[here[left]], height)
    return np.asarray((low + high) / 2)


def spearmans(truth: Floats, columns: Sequence[Floats]) -> Floats:
    """For each true column the largest |Spearman| with one of the columns that were made up."""
    usable = [column for column in columns if np.ptp(column) > 0]
    return np.array(
        [
            max((abs(spearmanr(column, true).statistic) for column in usable), default=0.0)
            for true in truth.T
        ]
    )


def read_columns(sides: Sides, truth: Floats) -> Floats:
    """The attack: |Spearman| of each column with the best pseudo-column of a chain."""
    rows = len(truth)
    return spearmans(truth, [pseudo_column(sides, chain, rows) for chain in chains(sides, rows)])


def match(parent: Integers, left: Integers, right: Integers) -> list[tuple[int, int, int]]:
    """(place in the parent, in the left child, in the right child) of all sums that add up."""
    at: dict[tuple[int, ...], list[int]] = {}
    for place, pair in enumerate(right.tolist()):
        at.setdefault(tuple(pair), []).append(place)
    return [
        (here, first, second)
        for here, whole in enumerate(parent)
        for first, rest in enumerate((whole - left).tolist())
        for second in at.get(tuple(rest), ())
    ]


def auc(scores: Floats, truth: Booleans) -> float:
    """The area under the ROC curve, ties by half."""
    order = pd.Series(scores).rank().to_numpy()
    positives = int(truth.sum())
    above = order[truth].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(truth) - positives)))


def nearness(leaves: Integers) -> Floats:
    """In which share of trees two rows end in the same leaf."""
    same = np.zeros((len(leaves), len(leaves)), dtype=np.float32)
    for tree in leaves.T:
        same += tree[:, None] == tree[None, :]
    return np.asarray(same / leaves.shape[1])


def guess_labels(near: Floats, known: Integers, labels: Booleans) -> Floats:
    """Of each row, how much nearer it is to known positives than to known negatives."""
    gap = near[:, known[labels]].mean(axis=1) - near[:, known[~labels]].mean(axis=1)
    return np.asarray(gap)


def gain_of_partition(
    leaves: Integers,
    own: Floats,
    truth: Booleans,
    seed: int = 0,
    known: int = 20,
    draws: int = 20,
) -> tuple[float, float]:
    """AUC on rows of unknown label by leaves, and by one's own columns, from 20 known labels.

    By own columns it is the better one of a linear model and of nearness of standardised columns;
    the mean over many draws of the known labels.
    """
    rng = np.random.default_rng(seed)
    scaled = (own - own.mean(axis=0)) / own.std(axis=0)
    far = ((scaled[:, None, :] - scaled[None, :, :]) ** 2).mean(axis=2)
    near = {"leaves": nearness(leaves), "near columns": np.exp(-far)}
    found = defaultdict(list)
    for _ in range(draws):
        half = [rng.choice(np.flatnonzero(truth == side), known // 2, False) for side in (0, 1)]
        seen = np.concatenate(half)
        hidden = np.setdiff1d(np.arange(len(truth)), seen)
        for name, each in near.items():
            guess = guess_labels(each, seen, truth[seen])
            found[name].append(auc(guess[hidden], truth[hidden]))
        linear = LogisticRegression().fit(scaled[seen], truth[seen])
        found["linear"].append(auc(linear.decision_function(scaled[hidden]), truth[hidden]))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    return means["leaves"], max(means["linear"], means["near columns"])
