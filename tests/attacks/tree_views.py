"""What parties of a training of trees can put together from their messages, and attacks on it.

Everything here reads messages that a party sent or received, and what that party has itself; the
functions under "truth" read all shares, for controls and bounds.
"""

import math
import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pandas as pd

from vfsl.audit.trees import spearmans
from vfsl.channel import wire
from vfsl.data import PartyTable
from vfsl.estimators.trees.binning import Bins
from vfsl.estimators.trees.shared_scoring import Leaves
from vfsl.estimators.trees.splits import find_sides
from vfsl.estimators.trees.tree import LEAF, Node, Partition, Tree, unpack_sides
from vfsl.federation import Federation

LABEL = ("C", "y")
_LEVEL = re.compile(r"trees (\d+)/level (\d+)/(\w+)$")


# ---- a run --------------------------------------------------------------------------------------


def people(rows, seed, own=3, others=4, noise=1.0, weight_of_b=1.0):
    """Frames of C and B; the label follows from columns of both."""
    rng = np.random.default_rng(seed)
    c, b = rng.normal(size=(rows, own)), rng.normal(size=(rows, others))
    b += 0.5 * rng.normal(size=(rows, 1))  # B's columns go together, as columns do
    pull = c @ np.linspace(1.0, 0.6, own) + weight_of_b * b @ np.linspace(1.0, 0.6, others)
    score = pull + noise * rng.normal(size=rows)
    ids = [f"person-{row}" for row in range(rows)]
    frames = {
        "C": pd.DataFrame(c, columns=[f"c{j}" for j in range(own)]).assign(id=ids),
        "B": pd.DataFrame(b, columns=[f"b{j}" for j in range(others)]).assign(id=ids),
    }
    frames["C"]["y"] = np.where(score > np.median(score), "yes", "no")
    return frames


def federation(frames, scheme="plain", seed=0):
    made = {
        party: PartyTable.from_frame(
            frame, party=party, id="id", label="y" if party == "C" else None
        )
        for party, frame in frames.items()
    }
    fed = Federation(made, scheme=scheme, seed=seed, keep_views=True)
    fed.align("B", "C", protocol="ecdh")
    return fed


def read(transcript, party):
    """(scope and name, value) of all messages that a party received or sent."""
    return [
        (sight.name, wire.decode(sight.body)[1])
        for sight in transcript.sights
        if party in (sight.sender, sight.receiver)
    ]


# ---- what messages tell -------------------------------------------------------------------------


@dataclass
class Followed:
    """What messages of a training tell a data holder.

    Attributes
    ----------
    sides : dict of (tree, node) to (rows, left)
        At splits of the feature holder.
    leaves : array (rows, trees)
    """

    sides: dict
    leaves: np.ndarray


def follow_training(transcript, party, rows):
    """Let all rows take the ways that the messages of a training tell, level by level."""
    levels, order = defaultdict(dict), np.arange(rows)
    for name, value in read(transcript, party):
        if name.endswith("/order"):  # plain: nodes have their rows in this order
            order = value
        found = _LEVEL.search(name)
        if found and found[3] in ("chosen", "sides", "partition"):
            levels[int(found[1]), int(found[2])][found[3]] = value
    sides, leaves, partition = {}, {}, None
    for (tree, level), came in sorted(levels.items()):
        if level == 0:
            partition = Partition(rows, 1)  # one tree a round
        chosen = [Node(0, int(pair[1])) for pair in came["chosen"]["nodes"]]
        theirs = _sides(came.get("sides"), chosen, partition)
        for node, left in theirs.items():
            here = order[partition.rows(node)]
            rising = here.argsort()
            sides[tree, node.number] = here[rising], left[rising]
        splits = [Node(0, int(pair[1])) for pair in came["partition"]["splits"]]
        others = [node for node in splits if node not in theirs]
        every = theirs | _sides(came["partition"]["sides"], others, partition)
        for node in splits:
            partition.split(node, every[node])
        leaves[tree] = dict(partition.leaves())
    table = np.zeros((rows, len(leaves)), dtype=int)
    for tree, nodes in leaves.items():
        for node, here in nodes.items():
            table[order[here], tree] = node.number
    return Followed(sides, table)


def _sides(bits, nodes, partition):
    if not nodes:
        return {}
    lengths = [len(partition.rows(node)) for node in nodes]
    return dict(zip(nodes, unpack_sides(bits, lengths, "B"), strict=True))


def follow_prediction(transcript, party, rows):
    """The sides at splits of the feature holder that a prediction tells, as in a training."""
    questions, answers = (
        [value for name, value in read(transcript, party) if name.endswith(f"score/{message}")]
        for message in ("reached", "sides")
    )
    sides = {}
    for question, bits in zip(questions, answers, strict=True):
        nodes = [tuple(pair) for pair in question["nodes"].tolist()]
        asked = [
            np.flatnonzero(here) for here in unpack_sides(question["rows"], [rows] * len(nodes), "")
        ]
        came = unpack_sides(bits, [len(here) for here in asked], "B")
        for node, here, left in zip(nodes, asked, came, strict=True):
            sides[node] = here, left
    return sides


def follow_shown_bits(transcript, model, rows):
    """The sides that the bits of a prediction on shares would tell, were they not masked.

    The label holder knows how the feature holder's splits follow each other: each bit says whether
    these let a row come to a split and go left there.
    """
    came = {
        (sight.sender, sight.name.rsplit("/", 1)[-1]): wire.decode(sight.body)[1]
        for sight in transcript.sights
        if "C" in (sight.sender, sight.receiver)
    }
    paths, nodes = came["C", "paths"], sorted(thresholds(model))
    bits = np.unpackbits(came["B", "masked"].payload, count=rows * len(nodes))
    last = np.ones((2 * len(nodes) + 1, rows), dtype=bool)
    sides = {}
    for at, shown in enumerate(bits.reshape(rows, -1).T.astype(bool)):
        comes = last[paths["above"][at]]
        last[2 * at], last[2 * at + 1] = comes & shown, comes & ~shown
        here = np.flatnonzero(comes)
        sides[nodes[at]] = here, shown[here]
    return sides


def together(*found):
    """Sides from several runs over the same rows; of one split they are put together."""
    merged = {}
    for sides in found:
        for node, (rows, left) in sides.items():
            known = merged.setdefault(node, {})
            known.update(zip(rows.tolist(), left.tolist(), strict=True))
    return {
        node: (np.array(sorted(known), dtype=int), np.array([known[row] for row in sorted(known)]))
        for node, known in merged.items()
    }


def count(sides):
    return sum(len(rows) for rows, _ in sides.values())


def same_sides(one, other):
    """Whether two accounts of sides say the same of the same rows at the same splits."""
    one, other = together(one), together(other)
    return one.keys() == other.keys() and all(
        np.array_equal(one[node][0], other[node][0])
        and np.array_equal(one[node][1], other[node][1])
        for node in one
    )


# ---- truth, from all shares ---------------------------------------------------------------------


def sides_of_all(model, fed, reached):
    """Sides at B's splits by the shares of both parties: of rows that come there, or of all."""
    parts = fed.parts(model.label_)
    found, codes = {}, {}
    for party in ("B", "C"):
        found[party] = Bins.from_dict(model.shares_[party].state["bins"])
        codes[party] = found[party].transform(parts[party].table.take(parts[party].rows))
    theirs = {(at, node): rule for at, node, *rule in model.shares_["B"].state["rules"]}
    sides, everyone = {}, np.arange(len(codes["C"]))
    for at, content in enumerate(model.shares_["C"].state["trees"]):
        tree = Tree.from_dict(content)
        here = {0: everyone}
        for node, owner in enumerate(tree.owner):
            if owner == LEAF:
                continue
            party = "C" if owner == 0 else "B"
            rule = tree.rules[node] if owner == 0 else theirs[at, node]
            rows = here[node]
            left = find_sides(found[party], rule, codes[party], everyone)
            here[tree.left[node]] = rows[left[rows]]
            here[tree.left[node] + 1] = rows[~left[rows]]
            if party == "B":
                asked = rows if reached else everyone
                if len(asked):
                    sides[at, node] = asked, left[asked]
    return sides


def thresholds(model):
    """The column of each of B's splits, and the code up to which rows go left."""
    rules = model.shares_["B"].state["rules"]
    return {(at, node): (column, code) for at, node, column, code, _ in rules}


def true_columns(model, fed):
    """B's columns as numbers, in the common order."""
    part = fed.parts(model.label_)["B"]
    names = [column["name"] for column in model.shares_["B"].state["bins"]]
    return part.table.take(part.rows).frame[names].to_numpy(dtype=float)


# ---- the attack on columns ----------------------------------------------------------------------

# Two splits are in one column if one of their four groups of rows is empty although so many were to
# be expected in it by chance.
_SURPRISE = 8.0


def read_columns_with_help(sides, truth, model):
    """The same by an attacker that is told column and code of every split: what sides can tell at
    most, as bins have about as many rows each."""
    known, columns = thresholds(model), defaultdict(list)
    for node in sides:
        columns[known[node][0]].append(node)
    made = []
    for column, nodes in columns.items():
        low = np.full(len(truth), 0.0)
        high = np.full(len(truth), max(code for at, code in known.values() if at == column) + 1.0)
        for node in nodes:
            here, left = sides[node]
            code = known[node][1]
            low[here[~left]] = np.maximum(low[here[~left]], code + 1)
            high[here[left]] = np.minimum(high[here[left]], code)
        made.append((low + high) / 2)
    return spearmans(truth, made)


def exact_share(sides, rows, model):
    """For each column the share of rows that are known to lie between two neighbouring thresholds
    of the trees, by an attacker that is told column and code of every split."""
    known, shares = thresholds(model), []
    for column in sorted({column for column, _ in known.values()}):
        codes = sorted({code for at, code in known.values() if at == column})
        chain = sorted((known[node][1], node) for node in sides if known[node][0] == column)
        low, high = np.zeros(rows), np.full(rows, len(codes))
        for code, node in chain:
            here, left = sides[node]
            height = codes.index(code)
            low[here[~left]] = np.maximum(low[here[~left]], height + 1)
            high[here[left]] = np.minimum(high[here[left]], height)
        shares.append(float((low == high).mean()))
    return np.array(shares)


def count_fitting_leaves(model, fed, scores, rows, most=1 << 18):
    """For some rows: how many combinations of leaves there are, and how many fit the score.

    The label holder knows leaf values and its own sides; it tries the leaves that a row could
    reach. Nothing is tried beyond ``most`` combinations.
    """
    share, part = model.shares_["C"], fed.parts(model.label_)["C"]
    bins = Bins.from_dict(share.state["bins"])
    codes = bins.transform(part.table.take(part.rows))
    trees = [Tree.from_dict(tree) for tree in share.state["trees"]]
    leaves = Leaves.of(trees, share.state["output"], np.array(share.state["start"]))
    sums = np.rint((scores[:, 0] - leaves.offset[0]) * leaves.scale[0])
    found = []
    for row in rows:
        options = [
            values[_reachable(tree, bins, codes, row)]
            for tree, values in zip(trees, leaves.values, strict=True)
        ]
        count, tried = math.prod(len(one) for one in options), np.zeros(1)
        if count > most:
            found.append((count, None))
            continue
        for one in options:
            tried = (tried[:, None] + one).ravel()
        found.append((count, int((tried == sums[row]).sum())))
    return found


def _reachable(tree, bins, codes, row):
    """Leaves that a row could reach, whatever the others' sides are."""
    waiting, leaves = [0], []
    while waiting:
        node = waiting.pop()
        first = tree.left[node]
        if tree.owner[node] == LEAF:
            leaves.append(node)
        elif tree.owner[node] == 0:
            left = find_sides(bins, tree.rules[node], codes, [row])[0]
            waiting.append(first if left else first + 1)
        else:
            waiting += [first, first + 1]
    return leaves


# ---- the attack on labels -----------------------------------------------------------------------
