"""Whose columns move the score of a row, on shares: by party, or by column at their owner.

Holds   the label holder: shapes, leaf values, covers and its own splits; a feature holder: its own
        splits; the dealer: seeds.
Learns  by party: the label holder one number per row, party and score, which add up to the score.
        By column: the owner of the columns one number per row, column and score, and a power of two
        that bounds them. A feature holder: what it learns in a prediction, and how many splits each
        of the others has. The dealer: how many rows, splits, scores and columns there are.

By party the numbers are exact Shapley values. The worth of a set of parties is the expected score
of a row if only their splits are followed; at the others' splits both sides count, by their
training weight: the path-dependent worth of Lundberg et al., "From Local Explanations to Global
Understanding with Explainable AI for Trees". With few parties all sets are looked at. The worth of
a set is linear in products of its members' private bits, with words that the label holder works
out, as a score is (shared_scoring.py). So is a Shapley value, and nothing but that is opened.

By column the numbers are changes of the expected score along the way of a row, as in Saabas,
"Interpreting Random Forests": at each split of the column the mean of the side that the row takes,
less the mean of the node. They are not Shapley values, for which all sets of columns would be
needed. The owner adds them up by column as a product with a private matrix, so the label holder
does not learn which splits share a column. They tell the owner means of the label in groups of
rows, and which rows the other parties' splits keep together, as far as sums by column show it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from vfsl.channel import expect_integer
from vfsl.crypto import shares
from vfsl.crypto.choosing import Choose, Offer, sum_chosen
from vfsl.crypto.shares import Session
from vfsl.errors import ConfigError
from vfsl.estimators.shared.scoring import check_rows
from vfsl.estimators.trees.protocol import count_binned
from vfsl.estimators.trees.shared_scoring import (
    Own,
    find_bits,
    find_last,
    read_counts,
    read_paths,
    send_paths,
)
from vfsl.estimators.trees.splits import Rule, find_sides
from vfsl.estimators.trees.tree import LEAF, OWN, Node, Tree
from vfsl.values import Array, Disclosure, Disclosures, Floats, Integers, Masked

DISCLOSURES: Disclosures = {
    **shares.DISCLOSURES,
    "paths": Disclosure(
        dict,
        "how the receiver's splits follow each other, how many splits of other feature holders "
        "stand below each side of them, and how many there are of each",
    ),
    "unit": Disclosure(int, "a power of two above the contributions of the receiver's columns"),
    "contributions": Disclosure(
        Masked, "what each party adds to the score of each row, to the label holder"
    ),
    "column contributions": Disclosure(
        Masked, "what the receiver's own columns add to the score of each row"
    ),
}

WIDTH = 32  # of a word: sums of rounded words are off by less than a millionth
MOST_PARTIES = 6  # all sets of them are looked at


# ---- what a set of parties is worth --------------------------------------------------------------


def weigh_sets(parties: int) -> Floats:
    """How each set's worth counts in each party's Shapley value, (parties, 2^parties).

    Bit p of a set's number says whether party p is in it.
    """
    table = np.zeros((parties, 1 << parties))
    for members in range(1 << parties):
        size = members.bit_count()
        for party in range(parties):
            inside = members >> party & 1
            before = size - inside
            if before < parties:
                weight = 1 / (parties * math.comb(parties - 1, before))
                table[party, members] = weight if inside else -weight
    return table


def find_worth(
    tree: Tree, sides: Mapping[int, Array], members: int
) -> tuple[Floats, dict[int, Floats]]:
    """The expected value of a tree for a set of parties, if rows go right at others' splits in it.

    And for each of these splits of feature holders what a row that comes there and goes left has
    more: the word that their bits choose. ``sides`` are the label holder's at its own splits.
    """
    value, cover, owners = tree.value, tree.cover, tree.owner
    comes: dict[int, Floats] = {0: np.ones(1)}
    for node, owner in enumerate(owners):
        if owner == LEAF:
            continue
        first, here = tree.left[node], comes[node]
        if not members >> owner & 1:
            part = cover[first] / cover[node]
            comes[first], comes[first + 1] = here * part, here * (1 - part)
        elif owner == OWN:
            comes[first], comes[first + 1] = here * sides[node], here * ~sides[node]
        else:
            comes[first] = comes[first + 1] = here
    ends: dict[int, Floats] = {}
    words: dict[int, Floats] = {}
    for node in reversed(range(len(owners))):
        if owners[node] == LEAF:
            ends[node] = np.full(1, value[node])
            continue
        first = tree.left[node]
        left, right = ends.pop(first), ends.pop(first + 1)
        if not members >> owners[node] & 1:
            part = cover[first] / cover[node]
            ends[node] = part * left + (1 - part) * right
        elif owners[node] == OWN:
            ends[node] = np.where(sides[node], left, right)
        else:
            words[node] = (left - right) * comes[node]
            ends[node] = right
    return ends[0], words


def find_means(tree: Tree) -> Floats:
    """The expected value below each node, by training weight."""
    means = np.array(tree.value, dtype=np.float64)
    for node in reversed(range(len(tree.owner))):
        if tree.owner[node] != LEAF:
            first = tree.left[node]
            part = tree.cover[first] / tree.cover[node]
            means[node] = part * means[first] + (1 - part) * means[first + 1]
    return means


def find_own_sides(own: Own, tree: Tree, rows: Array) -> dict[int, Array]:
    """The sides of rows at the label holder's own splits of a tree."""
    bins, codes = own
    return {node: find_sides(bins, rule, codes, rows) for node, rule in tree.rules.items()}


class Chosen(NamedTuple):
    """A word of a set of feature holders: one of their splits, and the set as a number."""

    members: int
    place: Node


def list_chosen(
    trees: Sequence[Tree], outputs: Sequence[int], count: int, parties: int
) -> list[list[Chosen]]:
    """By score the splits of feature holders, once for each set of them that has the owner."""
    listed: list[list[Chosen]] = [[] for _ in range(count)]
    for members in range(2, 1 << parties, 2):  # without the label holder, who is bit 0
        for at, (tree, output) in enumerate(zip(trees, outputs, strict=True)):
            listed[output] += [
                Chosen(members, Node(at, node))
                for node, owner in enumerate(tree.owner)
                if owner > OWN and members >> owner & 1
            ]
    return listed


# ---- by party ------------------------------------------------------------------------------------


def lead_contributions(
    session: Session, own: Own, trees: Sequence[Tree], outputs: Sequence[int], start: Floats
) -> tuple[Floats, Floats]:
    """The label holder: the expected score (outputs,), and what each party adds to it.

    (rows, outputs, parties); for each row base and contributions add up to the score.
    """
    check_covers(trees)
    rows, parties, count = len(own[1]), len(session.parties), len(start)
    if parties > MOST_PARTIES:
        raise ConfigError(f"Scores can be explained for up to {MOST_PARTIES} parties.")
    listed, weights = list_chosen(trees, outputs, count, parties), weigh_sets(parties)
    for place, party in enumerate(session.list_others(), start=OWN + 1):
        above, last = find_last(trees, place)
        needed = [
            last[one.place.tree][trees[one.place.tree].left[one.place.number]]
            if one.members >> place & 1
            else -1
            for group in listed
            for one in group
        ]
        send_paths(session, party, above, needed)
    counts = [len(group) for group in listed for _ in range(parties)]
    session.announce(session.me, np.array(counts, dtype=np.int64))
    check_rows(session.agree({"rows": rows}))
    reach = [float(np.ptp(_leaf_values(tree))) for tree in trees]
    scale = _find_scales(reach, outputs, [len(g) + 1 for g in listed], count)

    def offer(chunk: slice) -> tuple[Integers, Integers]:
        here = np.arange(rows)[chunk]
        always = np.zeros((len(here), count, parties))
        words: dict[Chosen, Floats] = {}
        for at, (tree, output) in enumerate(zip(trees, outputs, strict=True)):
            sides = find_own_sides(own, tree, here)
            for members in range(1 << parties):
                root, found = find_worth(tree, sides, members)
                each = weights[:, members]
                always[:, output] += root[:, None] * each
                for node, word in found.items():
                    key = Chosen(members & ~1, Node(at, node))
                    words[key] = words.get(key, 0.0) + word[:, None] * each  # (rows or 1, parties)
        columns = [
            np.broadcast_to(np.rint(words[one][:, party] * scale[output]), len(here))
            for output, group in enumerate(listed)
            for party in range(parties)
            for one in group
        ]
        offered = np.stack(columns, axis=1) if columns else np.zeros((len(here), 0))
        whole = np.rint(always * scale[:, None]).reshape(len(here), -1)
        return offered.astype(np.int64), whole.astype(np.int64)

    sums: Array
    if rows and sum(counts):
        opened = sum_chosen(session, rows, counts, WIDTH, {}, offer)
        sums = np.asarray(opened.open(session.me, name="contributions"))
    else:
        sums = offer(slice(0, rows))[1]
    base = np.array(start, dtype=np.float64)
    for tree, output in zip(trees, outputs, strict=True):
        base[output] += find_means(tree)[0]
    return base, sums.reshape(rows, count, parties) / scale[:, None]


def answer_contributions(
    session: Session, leader: str, own: Own, rules: Mapping[Node, Rule]
) -> None:
    """A feature holder: choose words by the ways of its rows, the same for every party."""
    came, rows = session.link.receive(leader, "paths"), len(own[1])
    counts = read_counts(session, leader)
    check_rows(session.agree({"rows": rows}))
    parties, ordered = len(session.parties), [rule for _, rule in sorted(rules.items())]
    once = counts[::parties]
    paths = read_paths(came, leader, len(ordered), sum(once))
    ends = np.cumsum([0, *once])
    again = np.concatenate(
        [np.tile(np.arange(low, high), parties) for low, high in pairwise(ends)]
    ).astype(np.int64)

    def choose(chunk: slice) -> Array:
        return find_bits(own, ordered, paths, np.arange(rows)[chunk])[:, again]

    if rows and sum(counts):
        total = sum_chosen(session, rows, counts, WIDTH, {session.me: choose}, None)
        # However many there are: they follow from the binned columns.
        new = min(total.size, count_binned(rows, own[1].shape[1], own[0].width))
        session.link.release(leader, "contributions", total.size, new=new)
        total.open(leader, name="contributions")


def deal_contributions(session: Session, leader: str) -> None:
    """The dealer: random words for as many rows and splits as there are."""
    counts = read_counts(session, leader)
    rows = check_rows(session.agree())
    if rows and sum(counts):
        sum_chosen(session, rows, counts, WIDTH, {}, None).open(leader, name="contributions")


# ---- by column, at their owner -------------------------------------------------------------------


class Step(NamedTuple):
    """A side of a split of the columns' owner; the label holder's own splits have one step."""

    place: Node
    side: int  # 0 for left, 1 for right


def list_steps(
    trees: Sequence[Tree], outputs: Sequence[int], count: int, owner: int
) -> list[list[Step]]:
    """By score the sides of an owner's splits."""
    steps: list[list[Step]] = [[] for _ in range(count)]
    for at, (tree, output) in enumerate(zip(trees, outputs, strict=True)):
        for node, whose in enumerate(tree.owner):
            if whose == owner:
                sides = (0,) if owner == OWN else (0, 1)
                steps[output] += [Step(Node(at, node), side) for side in sides]
    return steps


def lead_columns(
    session: Session,
    own: Own,
    trees: Sequence[Tree],
    outputs: Sequence[int],
    count: int,
    owner: str,
) -> Floats | None:
    """The label holder: let the owner see what its columns add; (rows, outputs, columns) there."""
    check_covers(trees)
    rows, place = len(own[1]), session.parties.index(owner)
    steps = list_steps(trees, outputs, count, place)
    every = [step for group in steps for step in group]
    for number, party in enumerate(session.list_others(), start=OWN + 1):
        above, last = find_last(trees, number)
        needed = [last[one.tree][trees[one.tree].left[one.number] + side] for one, side in every]
        send_paths(session, party, above, needed)
    session.announce(session.me, np.array([len(group) for group in steps], dtype=np.int64))
    means = [find_means(tree) for tree in trees]
    reach = [_longest_way(tree, mean) for tree, mean in zip(trees, means, strict=True)]
    scales = _find_scales(reach, outputs, [len(group) + 1 for group in steps], count)
    unit = int(np.floor(np.log2(scales.min()))) if len(scales) else 0
    if owner != session.me:
        session.link.send(owner, "unit", unit)

    def offer(chunk: slice) -> tuple[Integers, Integers]:
        here = np.arange(rows)[chunk]
        found: dict[Step, Integers] = {}
        for at, (tree, mean) in enumerate(zip(trees, means, strict=True)):
            found |= _find_steps(own, at, tree, mean * 2.0**unit, place, here)
        words = np.stack([found[step] for step in every], axis=1)
        return words, np.zeros_like(words)

    columns = None
    if owner == session.me:
        columns = [trees[one.tree].rules[one.number][0] for one, _ in every]
    counts = [len(group) for group in steps]
    opened = _add_columns(session, owner, own, counts, {}, offer, columns)
    return None if opened is None else opened / 2.0**unit


def answer_columns(
    session: Session, leader: str, own: Own, rules: Mapping[Node, Rule], owner: str
) -> Floats | None:
    """A feature holder: choose words; the owner sees what its columns add."""
    came, rows = session.link.receive(leader, "paths"), len(own[1])
    counts, ordered = read_counts(session, leader), [rule for _, rule in sorted(rules.items())]
    paths = read_paths(came, leader, len(ordered), sum(counts))
    unit, columns = 0, None
    if owner == session.me:
        told = session.link.receive(leader, "unit")
        unit = expect_integer(told, sender=leader, name="unit", low=-1100, high=1100)
        columns = [ordered[side // 2][0] for side in paths.needed.tolist()]

    def choose(chunk: slice) -> Array:
        return find_bits(own, ordered, paths, np.arange(rows)[chunk])

    opened = _add_columns(session, owner, own, counts, {session.me: choose}, None, columns)
    return None if opened is None else opened / 2.0**unit


def deal_columns(session: Session, leader: str, owner: str) -> None:
    """The dealer: random words for as many rows, splits and columns as there are."""
    _add_columns(session, owner, None, read_counts(session, leader), {}, None, None)


def _add_columns(
    session: Session,
    owner: str,
    own: Own | None,
    counts: Sequence[int],
    bits: Mapping[str, Choose],
    offer: Offer | None,
    columns: Sequence[int] | None,
) -> Floats | None:
    """Steps of the owner's splits, added up by its columns and opened to it.

    ``columns`` says at the owner which column each step stands on; (rows, outputs, columns) there.
    """
    sizes = {} if own is None else {"rows": len(own[1]), "columns": own[1].shape[1]}
    told = session.agree(sizes if session.holds else None)
    rows, width = check_rows(told), told[owner]["columns"]
    shape = (len(counts) * width, sum(counts))
    if not rows or not sum(counts):
        return np.zeros((rows, len(counts), width)) if columns is not None else None
    matrix = None
    if columns is not None:
        matrix = np.zeros(shape, dtype=np.int64)
        outputs = np.repeat(np.arange(len(counts)), counts)
        matrix[outputs * width + np.asarray(columns), np.arange(shape[1])] = 1
    steps = sum_chosen(session, rows, [1] * shape[1], WIDTH, bits, offer)
    summed = session.private(owner, matrix, shape, WIDTH) @ steps.T
    about = ("columns", "label") if session.me == session.parties[0] else ("columns",)
    opened = summed.open(owner, name="column contributions", about=about)
    if opened is None:
        return None
    each = np.asarray(opened, dtype=np.float64).reshape(-1, width, rows)
    return np.ascontiguousarray(np.moveaxis(each, 2, 0))


def _find_steps(
    own: Own, at: int, tree: Tree, means: Floats, owner: int, rows: Array
) -> dict[Step, Integers]:
    """By step what it adds, where the label holder's own splits let a row come there."""
    comes = {0: np.ones(len(rows), dtype=bool)}
    found: dict[Step, Integers] = {}
    sides = find_own_sides(own, tree, rows)
    for node, whose in enumerate(tree.owner):
        if whose == LEAF:
            continue
        first, here = tree.left[node], comes[node]
        comes[first] = comes[first + 1] = here
        if whose == OWN:
            comes[first], comes[first + 1] = here & sides[node], here & ~sides[node]
        if whose != owner:
            continue
        left, right = np.rint(means[first : first + 2] - means[node]).astype(np.int64)
        if owner == OWN:
            found[Step(Node(at, node), 0)] = np.where(sides[node], left, right) * here
        else:
            found[Step(Node(at, node), 0)] = left * here
            found[Step(Node(at, node), 1)] = right * here
    return found


# ---- sizes ---------------------------------------------------------------------------------------


def check_covers(trees: Sequence[Tree]) -> None:
    """Refuse trees that do not know the training weight of their nodes."""
    if any(len(tree.cover) != len(tree.owner) for tree in trees):
        raise ConfigError(
            "The model was saved by an earlier version, which did not keep the training weight of "
            "nodes. Train it again to explain its scores."
        )


def _leaf_values(tree: Tree) -> Floats:
    return np.asarray(np.array(tree.value)[np.array(tree.owner) == LEAF])


def _longest_way(tree: Tree, means: Floats) -> float:
    """The most that steps of one way can add up to."""
    far = np.zeros(len(means))
    for node, owner in enumerate(tree.owner):
        if owner != LEAF:
            for child in (tree.left[node], tree.left[node] + 1):
                far[child] = far[node] + abs(means[child] - means[node])
    return float(far.max())


def _find_scales(
    reach: Sequence[float], outputs: Sequence[int], words: Sequence[int], count: int
) -> Floats:
    """How many steps make 1 in each score, so that sums of that many rounded words fit."""
    bound = np.bincount(np.asarray(outputs, np.int64), weights=reach, minlength=count)
    most = 2.0 ** (WIDTH - 1) - 1 - np.asarray(words, dtype=np.float64)
    return np.asarray(most / np.maximum(bound, 2.0**-29))
