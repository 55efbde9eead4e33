"""Can the label holder of trees find the same candidate in a node and in its children?

With ``candidates="sums"`` it sees sums of (g, h) of nameless candidates of at least ten rows,
shuffled anew for each node. Sums are exact: what a candidate sends to the left in a node is the sum
of what it sends to the left in both children. So the label holder can look for sums that add up,
and follow each candidate down the tree. If a child does not show a candidate, because it describes
fewer than ten of its rows, the difference to the other child's sum tells these rows after all: the
label holder knows the (g, h) of every row. That is the control. By default it learns one number per
node, how good the best candidate is, and there is nothing to match.
"""

from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations

import numpy as np
import pytest

from tests.attacks.tree_views import LABEL, federation, people
from vfsl.audit.trees import match
from vfsl.crypto.fixed import unfold
from vfsl.estimators import XGB
from vfsl.estimators.trees.candidate_sums import SharedSums
from vfsl.estimators.trees.hidden_offers import HiddenOffers
from vfsl.estimators.trees.offers import SharedOffers
from vfsl.estimators.trees.shared_best import PairBest
from vfsl.estimators.trees.shared_sums import PairSums, Runs
from vfsl.estimators.trees.splits import FOLD_BITS
from vfsl.estimators.trees.tree import LEAF

ROWS = 600


@dataclass
class View:
    """What the label holder knows of one tree; the last two only the feature holder does.

    Attributes
    ----------
    values : array (rows, 2)
        (g, h) of all rows.
    sums : dict of node to array (candidates, 2)
    rows : dict of node to its rows
    children : dict of node to its children, where all three were looked at
    names : dict of node to array (candidates,)
        Which of the feature holder's candidates were shown.
    left : boolean array (rows, candidates)
        Which rows they send to the left.
    """

    values: np.ndarray | None = None
    sums: dict = field(default_factory=dict)
    rows: dict = field(default_factory=dict)
    children: dict = field(default_factory=dict)
    names: dict = field(default_factory=dict)
    left: np.ndarray | None = None


@cache
def watch():
    """A training on shares of one tree for a number."""
    view = View()
    collect, offer = SharedOffers.collect, SharedSums.offer

    def see(self, channel, planned, wanted, values):
        offers = collect(self, channel, planned, wanted, values)
        if view.values is None:  # at the root, which has all rows
            view.values = unfold(values(1, wanted[0]), 2, FOLD_BITS)
        for node, (shown, _) in zip(wanted, offers[0], strict=True):
            view.sums[node.number], view.rows[node.number] = shown, self._partition.rows(node)
        return offers

    def tell(self, channel, planned, wanted):
        offer(self, channel, planned, wanted)
        view.names.update({node.number: self._offered[node] for node in wanted})
        runs = Runs.of(self._holder.candidates)
        view.left = runs.find(self._holder.codes)[:, runs.parts[:, 0]].astype(bool)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedOffers, "collect", see)
        patch.setattr(SharedSums, "offer", tell)
        model = fit(candidates="sums")
    first_child = model.shares_["C"].state["trees"][0]["left"]
    for node, at in enumerate(first_child):
        if at != LEAF and {node, at, at + 1} <= view.sums.keys():
            view.children[node] = at, at + 1
    return view


def fit(**how):
    frames = people(ROWS, seed=0)
    noise = np.random.default_rng(1).normal(size=ROWS)
    frames["C"]["y"] = frames["C"]["c0"] + frames["B"]["b0"] + frames["B"]["b1"] + noise
    model = XGB(n_estimators=1, max_depth=4, max_bins=32, task="regression", **how)
    return model.fit(federation(frames, "auto"), label=LABEL)


# ---- the attack: from the label holder's view alone ---------------------------------------------


def single_out(view, node):
    """(child, rows, place in the node): a candidate sends just these one or two rows of a child to
    the left. What the node's sum has beyond the other child's is the (g, h) of these rows."""
    found = []
    trio = match(*(view.sums[each] for each in (node, *view.children[node])))
    for at, child in enumerate(view.children[node]):
        other = view.children[node][1 - at]
        known, used = {one[0] for one in trio}, {one[2 - at] for one in trio}
        few = {}
        for rows in chain(combinations(view.rows[child], 1), combinations(view.rows[child], 2)):
            few.setdefault(tuple(view.values[list(rows)].sum(axis=0)), []).append(rows)
        for here in set(range(len(view.sums[node]))) - known:
            for there in set(range(len(view.sums[other]))) - used:
                rows = few.get(tuple(view.sums[node][here] - view.sums[other][there]), ())
                if len(rows) == 1:
                    found.append((child, rows[0], here))
    return found


# ---- how well it works: with the feature holder's knowledge -------------------------------------


def share_matched(view):
    """Of the candidates that a node and both children show: how many are found, and how many of
    those found are right."""
    found, right, all_there = 0, 0, 0
    for node, children in view.children.items():
        names = [view.names[each] for each in (node, *children)]
        all_there += len(set(names[0]) & set(names[1]) & set(names[2]))
        for places in match(*(view.sums[each] for each in (node, *children))):
            found += 1
            right += len({of[place] for of, place in zip(names, places, strict=True)}) == 1
    return right / all_there, right / max(found, 1)


def count_few_rows(view):
    """How often the attack names one or two rows on a candidate's left, and how often rightly."""
    found = [(node, *one) for node in view.children for one in single_out(view, node)]
    right = [
        set(view.rows[child][view.left[view.rows[child], view.names[node][here]]]) == set(rows)
        for node, child, rows, here in found
    ]
    return len(found), sum(right)


def test_the_tree_is_worth_an_attack():
    view = watch()
    assert len(view.children) >= 4
    assert all(len(view.sums[node]) >= 20 for node in view.children)


def test_every_candidate_is_found_in_both_children():
    assert share_matched(watch()) == (1.0, 1.0)


def test_candidates_that_a_child_does_not_show_single_out_rows():
    found, right = count_few_rows(watch())
    assert found >= 2
    assert right == found


def test_sums_of_other_nodes_do_not_add_up():
    """The attack at chance: a node with the children of another one."""
    view = watch()
    (first, one), (second, two) = list(view.children.items())[1:3]
    assert not match(view.sums[first], *(view.sums[child] for child in two))
    assert not match(view.sums[second], *(view.sums[child] for child in one))


# ---- by default ---------------------------------------------------------------------------------


@cache
def watch_best():
    """What the label holder is shown of each node by default, and of which nodes."""
    shown, nodes = [], []
    show, rate = PairBest.show_rating, HiddenOffers.rate

    def see(self, piece):
        opened = show(self, piece)
        if opened is not None:
            shown.append(opened)
        return opened

    def look(self, channel, wanted, *rest):
        nodes.append([node.number for node in wanted])
        return rate(self, channel, wanted, *rest)

    def refuse(*_):
        raise AssertionError("sums of candidates were shown")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PairBest, "show_rating", see)
        patch.setattr(HiddenOffers, "rate", look)
        patch.setattr(SharedOffers, "collect", refuse)
        patch.setattr(PairSums, "show", refuse)
        model = fit()
    ratings = dict(zip(np.concatenate(nodes).tolist(), np.concatenate(shown), strict=True))
    return model, ratings


def test_the_label_holder_sees_one_number_per_node():
    model, ratings = watch_best()
    assert len(model.shares_["B"].state["rules"]) >= 3
    assert len(ratings) >= 9
    assert all(np.ndim(one) == 0 for one in ratings.values())


def test_what_it_sees_of_a_node_does_not_add_up_from_its_children():
    """The attack on all that is shown: as often right as for a node and children of another."""
    model, ratings = watch_best()
    first_child = model.shares_["C"].state["trees"][0]["left"]
    children = {
        node: (at, at + 1)
        for node, at in enumerate(first_child)
        if at != LEAF and {node, at, at + 1} <= ratings.keys()
    }
    assert len(children) >= 3
    for node, pair in children.items():
        parent, left, right = (np.array([[ratings[each], 0]]) for each in (node, *pair))
        assert not match(parent, left, right)
