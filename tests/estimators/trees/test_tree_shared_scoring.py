"""Scores of new rows on shares: those of a walk row by row, and nothing else is opened."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimators.trees.tree_cases import (
    BFV,
    FOUR,
    PLAIN,
    Meddler,
    classes,
    close,
    parts_of,
    scores,
    splits,
    tables,
    train,
)
from vfsl.channel import Transcript, count_rounds, run_together, wire
from vfsl.errors import ProtocolError
from vfsl.estimators import XGB, Part, Roles, load_model, save_model
from vfsl.estimators.shared.fit import join
from vfsl.estimators.trees.binning import Bins, Column
from vfsl.estimators.trees.protocol import count_binned
from vfsl.estimators.trees.shared_scoring import (
    DISCLOSURES,
    WIDTH,
    Leaves,
    answer_scores,
    deal_scores,
    find_paths,
    lead_scores,
    list_places,
    read_paths,
)
from vfsl.estimators.trees.splits import find_sides
from vfsl.estimators.trees.tree import LEAF, OWN, Node, Tree

# Two columns of eight bins and a place for missing cells each; the second has categories.
BINS = Bins(
    (
        Column("ordered", [float(edge) for edge in range(7)], None, True, True),
        Column("kinds", [], list("abcdefgh"), False, True),
    )
)
PARTIES = "CBDE"  # the label holder first


def random_trees(rng, holders, trees, most):
    """Trees whose splits belong to these parties at random, and everybody's rules."""
    made, rules = [], {party: {} for party in PARTIES[:holders]}
    for at in range(trees):
        tree = Tree()
        for _ in range(int(rng.integers(most + 1))):
            leaves = [node for node, owner in enumerate(tree.owner) if owner == LEAF]
            node, owner = int(rng.choice(leaves)), int(rng.integers(holders))
            rule = int(rng.integers(2)), int(rng.integers(8)), int(rng.integers(2))
            tree.owner[node], tree.left[node] = owner, len(tree.owner)
            tree.owner += [LEAF, LEAF]
            tree.left += [LEAF, LEAF]
            if owner == OWN:
                tree.rules[node] = rule
            rules[PARTIES[owner]][Node(at, node)] = rule
        tree.value = (rng.normal(size=len(tree.owner)) * 10.0 ** rng.integers(-3, 4)).tolist()
        made.append(tree)
    return made, rules


def walk(codes, trees, rules, outputs, start):
    """The scores, row by row."""
    rows = len(codes["C"])
    found = np.tile(start, (rows, 1))
    for row in range(rows):
        for at, tree in enumerate(trees):
            node = 0
            while tree.owner[node] != LEAF:
                party = PARTIES[tree.owner[node]]
                rule = rules[party][Node(at, node)]
                node = tree.left[node] + (not find_sides(BINS, rule, codes[party], [row])[0])
            found[row, outputs[at]] += tree.value[node]
    return found


def run(codes, trees, rules, outputs, start, scheme="shares", **how):
    parties = tuple(codes)
    roles = Roles("C", parties[1:], "K", scheme)

    def play(channel):
        with join(channel, roles, None, DISCLOSURES) as session:
            if session.me == "K":
                return deal_scores(session, "C")
            own = BINS, codes[session.me]
            if session.me != "C":
                return answer_scores(session, "C", own, rules[session.me])
            return lead_scores(session, own, trees, outputs, start)

    return run_together(dict.fromkeys(roles.everyone, play), **how)["C"]


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 4),
    st.integers(1, 5),
    st.integers(0, 9),
    st.integers(0, 12),
    st.integers(1, 3),
    st.sampled_from(["shares", "plain"]),
)
def test_scores_are_those_of_a_walk_row_by_row(seed, holders, count, most, rows, kinds, scheme):
    rng = np.random.default_rng(seed)
    trees, rules = random_trees(rng, holders, count, most)
    outputs, start = rng.integers(kinds, size=count).tolist(), rng.normal(size=kinds)
    codes = {p: rng.integers(0, 9, (rows, 2)).astype(np.uint8) for p in PARTIES[:holders]}
    found = run(codes, trees, rules, outputs, start, scheme)
    off = np.abs(found - walk(codes, trees, rules, outputs, start))
    leaves = Leaves.of(trees, outputs, start)
    for output in range(kinds):
        mine = [at for at, one in enumerate(outputs) if one == output]
        allowed = len(mine) / 2 / leaves.scale[output]
        assert (off[:, output] <= allowed * 1.01 + 1e-9).all()
        spans = [np.ptp(np.array(trees[t].value)[np.array(trees[t].owner) == LEAF]) for t in mine]
        assert allowed <= (len(mine) / 2) * sum(spans) / 2 ** (WIDTH - 1) + 1e-12


def test_paths_name_the_last_own_side_on_the_way():
    """B has the root and its right child's left child; D the root's left child."""
    tree = Tree()
    tree.owner = [1, 2, 0, LEAF, LEAF, 1, LEAF, LEAF, LEAF]
    tree.left = [1, 3, 5, LEAF, LEAF, 7, LEAF, LEAF, LEAF]
    (places,) = list_places([tree], [0], 1)
    assert places == [Node(0, 0), Node(0, 1), Node(0, 5)]
    for_b, for_d = (find_paths([tree], party, places) for party in (1, 2))
    assert for_b.above.tolist() == [-1, 1]
    assert for_b.needed.tolist() == [0, 0, 2]
    assert for_d.above.tolist() == [-1]
    assert for_d.needed.tolist() == [-1, 0, -1]


# ---- messages ------------------------------------------------------------------------------------


def test_rounds_do_not_depend_on_trees_and_only_scores_are_opened():
    """After seeds and sizes: bits, words, the scores."""
    made, target = tables(rows=150)
    parts, counts = parts_of(made, classes(target)), set()
    for most in (3, 30):
        model, transcript = XGB(n_estimators=most, max_depth=3), Transcript()
        shares = train(model, parts)
        scores(model, parts, shares, BFV, transcript=transcript)
        counts.add((len(transcript.entries), count_rounds(transcript)))
        own = sum(party == "B" for party, *_ in splits(shares).values())
        crossed = sum(entry.bytes for entry in transcript.entries)
        assert own >= most
        # A bit and a word per split, a word dealt and one opened per row; paths and framing.
        assert crossed <= 150 * (own * (1 + WIDTH) / 8 + 2 * WIDTH / 8) + 8 * own + 1500
    assert counts == {(13, 5)}


@pytest.mark.parametrize("name", FOUR)
def test_what_crosses_is_uniform_or_known_to_all(name):
    """B's and C's masked messages do not depend on rows; only sizes and paths are readable."""
    made, target = tables(rows=120)
    parts, model = parts_of(made, classes(target, 3)), FOUR[name]()
    shares, transcript = train(model, parts), Transcript(keep_views=True)
    scores(model, parts, shares, BFV, transcript=transcript)
    for sight in transcript.sights:
        value, message = wire.decode(sight.body)[1], sight.name.rsplit("/", 1)[-1]
        if message in ("masked", "dealt"):
            bits = np.unpackbits(value.payload)
            assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))
        else:
            assert message in ("seed", "sizes", "announced", "paths", "total scores")


def test_a_feature_holder_learns_nothing_of_leaf_values_and_of_other_columns():
    """Its readable messages are the same if C's rows and all leaf values are others."""
    made, target = tables(rows=100)
    parts = parts_of(made, classes(target))
    model = XGB(n_estimators=3, max_depth=3)
    shares = train(model, parts)
    state = dict(shares["C"].state)
    state["trees"] = [dict(tree, value=[-3 * v for v in tree["value"]]) for tree in state["trees"]]
    other = dict(shares, C=replace(shares["C"], state=state))
    turned = dict(parts, C=Part(parts["C"].table, parts["C"].rows[::-1]))
    seen = []
    for share, part in ((shares, parts), (other, turned)):
        transcript = Transcript(keep_views=True)
        scores(model, part, share, BFV, transcript=transcript)
        lines = [
            (s.name, repr(wire.decode(s.body)[1]) if s.kind == "plain" else len(s.body))
            for s in sorted(transcript.sights, key=lambda sight: (sight.receiver, sight.sender))
            if s.receiver in ("B", "K") and not s.name.endswith("seed")
        ]
        seen.append(lines)
    assert seen[0] == seen[1]


@pytest.mark.parametrize(("kinds", "models", "numbers"), [(2, 1, 1), (3, 1, 3), (2, 6, 6)])
@pytest.mark.parametrize("parties", ["B", "BD"])
def test_a_number_per_row_and_score_is_shown_and_no_more_than_bins_count(
    kinds, models, numbers, parties
):
    """Each feature holder has 4 columns of up to 33 codes: 20 bits per row."""
    made, target = tables(rows=90, parties=tuple(parties))
    weights = np.random.default_rng(0).integers(0, 3, (90, models)).astype(float)
    parts, roles = parts_of(made, classes(target, kinds), weights), Roles("C", tuple(parties), "K")
    model, transcript = XGB(n_estimators=2, max_depth=2), Transcript()
    shares = train(model, parts, replace(roles, scheme="plain"))
    scores(model, parts, shares, roles, transcript=transcript)
    assert {released.sender for released in transcript.releases} == set(parties)
    for released in transcript.releases:
        width = Bins.from_dict(shares[released.sender].state["bins"]).width
        assert (released.receiver, released.about) == ("C", "columns")
        assert released.numbers == 90 * numbers
        assert released.counted == min(90 * numbers, count_binned(90, 4, width))


def test_no_rows_cross_where_there_are_none():
    made, target = tables(rows=100)
    model = XGB(n_estimators=2)
    shares = train(model, parts_of(made, classes(target)))
    nobody = {party: Part(table, np.zeros(0, dtype=np.int64)) for party, table in made.items()}
    transcript = Transcript()
    found = scores(model, nobody, shares, BFV, transcript=transcript)
    assert found.shape == (0, 1)
    assert {e.message for e in transcript.entries} == {"seed", "sizes", "announced", "paths"}


def test_a_model_that_was_saved_before_scores_on_shares(tmp_path):
    """Shares of 0.1 hold nothing of paths, and neither do ours: they go with each prediction."""
    made, target = tables(rows=120)
    model, parts = XGB(n_estimators=3, max_depth=3), parts_of(made, classes(target))
    model.shares_, model.label_ = train(model, parts), ("C", "y")
    model.shares_ = {party: share for party, share in model.shares_.items() if share is not None}
    assert set(model.shares_["B"].state) == {"bins", "rules", "importance"}
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    assert close(model.training_scores(model.shares_["C"]), scores(loaded, parts, loaded.shares_))


# ---- parties that do not keep to it --------------------------------------------------------------


def score_with(meddling, change):
    made, target = tables(rows=60)
    parts = parts_of(made, classes(target))
    model = XGB(n_estimators=2, max_depth=3)
    shares = train(model, parts)

    def job(channel, party):
        on = Meddler(channel, change) if party == meddling else channel
        return model.score_rows(on, parts.get(party), shares.get(party), roles=PLAIN)

    return run_together({party: partial(job, party=party) for party in PLAIN.everyone}, timeout=10)


def changed(name, change):
    return lambda message, value: change(value) if message == name else value


@pytest.mark.parametrize(
    ("party", "change", "message"),
    [
        ("C", changed("paths", lambda v: v | {"above": v["above"] + 90}), "'C' sent paths through"),
        ("C", changed("paths", lambda v: v | {"needed": v["needed"] + 90}), "'C' sent paths thro"),
        ("C", changed("paths", lambda v: v | {"above": v["above"][1:]}), "'C' sent 'paths' with"),
        ("C", changed("announced", lambda v: -v), "'C' announced splits that cannot be"),
        ("B", changed("sizes", lambda v: {"rows": 7}), "different numbers of rows"),
    ],
    ids=["late sides", "strange sides", "too few", "no splits", "rows"],
)
def test_who_says_something_else_is_named(party, change, message):
    with pytest.raises(ProtocolError, match=message):
        score_with(party, change)


def test_paths_lead_from_earlier_splits_only():
    fine = {"above": np.array([-1, 1]), "needed": np.array([0, 3, -1])}
    assert read_paths(fine, "C", 2, 3).above.tolist() == [-1, 1]
    for wrong in ({"above": np.array([0, 1])}, {"above": np.array([-1, 2])}, {"above": None}):
        with pytest.raises(ProtocolError, match="'C' sent"):
            read_paths(fine | wrong, "C", 2, 3)
