"""Scores of new rows by trees, on shares: only the scores are opened.

Holds   the label holder: shapes, leaf values and its own splits; a feature holder: its own splits;
        the dealer: seeds.
Learns  the label holder: the score of each row, rounded to `WIDTH` bits of what it could be. A
        feature holder: how its own splits follow each other, and above how many splits of other
        feature holders each side of them stands; which splits move the same score. The dealer: how
        many rows, splits and scores there are. What else crosses is uniformly random, see
        crypto/session.py.

The label holder works out where each row would end if it went right at all splits of others:
V(leaf) is the leaf's value, V(node) = V(left) or V(right) by its own columns at its own split, and
V(right) at another's. A row that comes to a split of another and goes left there ends with
V(left) − V(right) more. So its score is V(root) + Σ c · b · (V(left) − V(right)) over the splits of
others, where c says whether the label holder's own splits let it come there, and b is the product
of a private bit of each feature holder: whether its own splits let it come there and, if the split
is its own, go left. That is one word per split of the feature holders, chosen by bits
(crypto/choosing.py).

A score is a sum of leaf values: of a single tree it tells the leaf. The more trees, the less it
tells about each. It counts as one number in the budget of each feature holder; all scores of a row
together count no more than its binned cells, from which they follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vfsl.channel import expect_array
from vfsl.crypto import shares
from vfsl.crypto.choosing import sum_chosen
from vfsl.crypto.shares import Session
from vfsl.errors import ProtocolError
from vfsl.estimators.shared.scoring import check_rows
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.protocol import count_binned
from vfsl.estimators.trees.splits import Rule, find_sides
from vfsl.estimators.trees.tree import LEAF, OWN, Node, Tree
from vfsl.values import Array, Disclosure, Disclosures, Floats, Integers, Masked

DISCLOSURES: Disclosures = {
    **shares.DISCLOSURES,
    "paths": Disclosure(
        dict,
        "how the receiver's splits follow each other, and how many splits of other feature "
        "holders stand below each side of them",
    ),
    "total scores": Disclosure(Masked, "the score of each row, to the label holder"),
}

# Bits of a word. A score is a sum of rounded leaf values, each off by half a step at the most, and
# 2^24 steps span all that it could be: with 50 trees it is off by less than 3 millionths of that.
WIDTH = 24
_LARGEST_SCALE = 2.0**60
_LEFT = 0  # the side of a path; the right one is 1
_MOST_SPLITS = 1 << 30

Own = tuple[Bins, Array]  # a party's cuts, and the codes of its rows


class Paths(NamedTuple):
    """What a feature holder needs to know of the trees.

    A side of one of its splits is written 2 · number of the split + 0 for left, + 1 for right, and
    −1 where none of its splits stands above. Splits are numbered by tree and node.
    """

    above: Integers  # for each of its splits the last side of its own on the way there
    needed: Integers  # for each split of any feature holder: its last side on the way to the left


# ---- what the label holder knows of the trees ----------------------------------------------------


def list_places(trees: Sequence[Tree], outputs: Sequence[int], count: int) -> list[list[Node]]:
    """The splits of feature holders, by the score that they move."""
    places: list[list[Node]] = [[] for _ in range(count)]
    for at, (tree, output) in enumerate(zip(trees, outputs, strict=True)):
        places[output] += [Node(at, node) for node, owner in enumerate(tree.owner) if owner > OWN]
    return places


def find_last(trees: Sequence[Tree], party: int) -> tuple[list[int], list[list[int]]]:
    """For each split of a feature holder, and for each node, its last side on the way there."""
    above: list[int] = []
    lasts: list[list[int]] = []
    for tree in trees:
        last = [-1] * len(tree.owner)
        for node, owner in enumerate(tree.owner):  # children come after their parents
            if owner == LEAF:
                continue
            left, right = last[node], last[node]
            if owner == party:
                left, right = 2 * len(above), 2 * len(above) + 1
                above.append(last[node])
            last[tree.left[node]], last[tree.left[node] + 1] = left, right
        lasts.append(last)
    return above, lasts


def find_paths(trees: Sequence[Tree], party: int, places: Sequence[Node]) -> Paths:
    """What to tell the feature holder in this place, from 1 on."""
    above, lasts = find_last(trees, party)
    needed = [lasts[tree][trees[tree].left[node]] for tree, node in places]
    return Paths(np.array(above, dtype=np.int64), np.array(needed, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Leaves:
    """Leaf values as integers: score = offset + sum / scale.

    Values of a tree are taken from the middle of their range, and the sum of all trees' ranges
    fits `WIDTH` bits; only the label holder needs to know the scale.
    """

    values: list[Integers]  # by tree, for all nodes
    scale: Floats
    offset: Floats

    @classmethod
    def of(cls, trees: Sequence[Tree], outputs: Sequence[int], start: Floats) -> Leaves:
        values = [np.asarray(tree.value, dtype=np.float64) for tree in trees]
        leaves = [one[np.array(t.owner) == LEAF] for one, t in zip(values, trees, strict=True)]
        middles = np.array([one.min() / 2 + one.max() / 2 for one in leaves])
        reach = np.array([one.max() / 2 - one.min() / 2 for one in leaves])
        count, at = len(start), np.asarray(outputs, dtype=np.int64)
        bound = np.bincount(at, weights=reach, minlength=count)
        rounding = np.bincount(at, minlength=count) / 2
        most = 2.0 ** (WIDTH - 1) - 1 - rounding
        scale = np.minimum(most / np.maximum(bound, 1e-300), _LARGEST_SCALE)
        offset = start + np.bincount(at, weights=middles, minlength=count)
        rounded = [
            np.rint((one - middle) * scale[output]).astype(np.int64)
            for one, middle, output in zip(values, middles, at, strict=True)
        ]
        return cls(rounded, scale, offset)


def find_words(
    own: Own, trees: Sequence[Tree], values: Sequence[Integers], rows: Array
) -> tuple[list[dict[int, Integers]], list[Integers]]:
    """By tree: the word of each split of others for these rows, and V(root)."""
    bins, codes = own
    words: list[dict[int, Integers]] = []
    roots: list[Integers] = []
    for tree, leaf in zip(trees, values, strict=True):
        comes = {0: np.ones(len(rows), dtype=bool)}
        sides: dict[int, Array] = {}
        for node, owner in enumerate(tree.owner):
            if owner == LEAF:
                continue
            first, here = tree.left[node], comes[node]
            comes[first] = comes[first + 1] = here
            if owner == OWN:
                sides[node] = find_sides(bins, tree.rules[node], codes, rows)
                comes[first], comes[first + 1] = here & sides[node], here & ~sides[node]
        ends: dict[int, Integers] = {}
        found: dict[int, Integers] = {}
        for node in reversed(range(len(tree.owner))):
            if tree.owner[node] == LEAF:
                ends[node] = np.full(len(rows), leaf[node])
                continue
            left, right = ends.pop(tree.left[node]), ends.pop(tree.left[node] + 1)
            if tree.owner[node] == OWN:
                ends[node] = np.where(sides[node], left, right)
            else:
                found[node] = (left - right) * comes[node]
                ends[node] = right
        words.append(found)
        roots.append(ends[0])
    return words, roots


# ---- what a feature holder knows -----------------------------------------------------------------


def find_bits(own: Own, rules: Sequence[Rule], paths: Paths, rows: Array) -> Array:
    """Whether one's own splits let rows come to each split and, at one's own, left; (rows, splits).

    ``rules`` are in the order of their numbers.
    """
    bins, codes = own
    last = np.ones((2 * len(rules) + 1, len(rows)), dtype=np.uint8)  # at −1: no split above
    for number, (rule, above) in enumerate(zip(rules, paths.above, strict=True)):
        left = find_sides(bins, rule, codes, rows)
        last[2 * number] = last[above] & left
        last[2 * number + 1] = last[above] & ~left
    return last[paths.needed].T


def send_paths(
    session: Session, party: str, above: Sequence[int] | Array, needed: Sequence[int] | Array
) -> None:
    """Tell a feature holder what it needs to know, in few bytes."""
    narrow = np.int16 if 2 * max(len(above), 1) < 1 << 15 else np.int32
    told = {"above": np.asarray(above, narrow), "needed": np.asarray(needed, narrow)}
    session.link.send(party, "paths", told)


def read_paths(value: Any, sender: str, rules: int, places: int) -> Paths:
    """Paths as the label holder sent them."""
    above, needed = (
        expect_array(value.get(name), sender=sender, name="paths", holds="integer", shape=(size,))
        for name, size in (("above", rules), ("needed", places))
    )
    early = (above >= -1) & (above < 2 * np.arange(rules))
    if not early.all() or ((needed < -1) | (needed >= 2 * rules)).any():
        raise ProtocolError(f"Party {sender!r} sent paths through splits that do not fit.", sender)
    return Paths(above.astype(np.int64), needed.astype(np.int64))


# ---- the protocol --------------------------------------------------------------------------------


def lead_scores(
    session: Session, own: Own, trees: Sequence[Tree], outputs: Sequence[int], start: Floats
) -> Floats:
    """The label holder: the scores of all rows, (rows, outputs)."""
    rows, leaves = len(own[1]), Leaves.of(trees, outputs, start)
    places = list_places(trees, outputs, len(start))
    every = [place for group in places for place in group]
    counts = [len(group) for group in places]
    for number, party in enumerate(session.list_others(), start=OWN + 1):
        send_paths(session, party, *find_paths(trees, number, every))
    session.announce(session.me, np.array(counts, dtype=np.int64))
    check_rows(session.agree({"rows": rows}))

    def offer(chunk: slice) -> tuple[Integers, Integers]:
        here = np.arange(rows)[chunk]
        words, roots = find_words(own, trees, leaves.values, here)
        always = np.zeros((len(here), len(start)), dtype=np.int64)
        for output, root in zip(outputs, roots, strict=True):
            always[:, output] += root
        chosen = [words[place.tree][place.number] for place in every]
        return np.stack(chosen, axis=1) if chosen else np.zeros((len(here), 0), np.int64), always

    if rows and every:
        total = sum_chosen(session, rows, counts, WIDTH, {}, offer)
        sums = total.open(session.me, name="total scores")
    else:
        sums = offer(slice(0, rows))[1]
    return np.asarray(leaves.offset + np.asarray(sums) / leaves.scale)


def answer_scores(session: Session, leader: str, own: Own, rules: Mapping[Node, Rule]) -> None:
    """A feature holder: choose words by the ways of its rows."""
    came, rows = session.link.receive(leader, "paths"), len(own[1])
    counts = read_counts(session, leader)
    check_rows(session.agree({"rows": rows}))
    ordered = [rule for _, rule in sorted(rules.items())]
    paths = read_paths(came, leader, len(ordered), sum(counts))

    def choose(chunk: slice) -> Array:
        return find_bits(own, ordered, paths, np.arange(rows)[chunk])

    if rows and sum(counts):
        total = sum_chosen(session, rows, counts, WIDTH, {session.me: choose}, None)
        # However many scores there are: they follow from the binned columns.
        new = min(total.size, count_binned(rows, own[1].shape[1], own[0].width))
        session.link.release(leader, "total scores", total.size, new=new)
        total.open(leader, name="total scores")


def deal_scores(session: Session, leader: str) -> None:
    """The dealer: random words for as many rows and splits as there are."""
    counts = read_counts(session, leader)
    rows = check_rows(session.agree())
    if rows and sum(counts):
        sum_chosen(session, rows, counts, WIDTH, {}, None).open(leader, name="total scores")


def read_counts(session: Session, leader: str) -> list[int]:
    """How many words each sum has, as the label holder announced."""
    came = session.announce(leader, None)
    counts = expect_array(came, sender=leader, name="announced", holds="integer", shape=(None,))
    if not len(counts) or counts.min() < 0 or counts.sum() > _MOST_SPLITS:
        raise ProtocolError(f"Party {leader!r} announced splits that cannot be.", leader)
    return [int(count) for count in counts]
