"""Contributions on shares: brute force over all sets of parties, and walks row by row."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vfsl
from tests.estimators.trees.test_tree_shared_scoring import BINS, PARTIES, random_trees, walk
from tests.estimators.trees.tree_cases import classes, tables
from vfsl.channel import Transcript, run_together, wire
from vfsl.errors import ConfigError
from vfsl.estimators import XGB, Roles
from vfsl.estimators.shared.fit import join
from vfsl.estimators.trees.explaining import (
    DISCLOSURES,
    answer_columns,
    answer_contributions,
    deal_columns,
    deal_contributions,
    find_means,
    lead_columns,
    lead_contributions,
    weigh_sets,
)
from vfsl.estimators.trees.splits import find_sides
from vfsl.estimators.trees.tree import LEAF, Node


def covered(rng, trees):
    """Random training weights that add up."""
    for tree in trees:
        tree.cover = [0] * len(tree.owner)
        for node in reversed(range(len(tree.owner))):
            first = tree.left[node]
            tree.cover[node] = (
                int(rng.integers(1, 9))
                if tree.owner[node] == LEAF
                else tree.cover[first] + tree.cover[first + 1]
            )


def case(seed, holders=3, count=3, most=7, rows=6, kinds=1):
    rng = np.random.default_rng(seed)
    trees, rules = random_trees(rng, holders, count, most)
    covered(rng, trees)
    codes = {p: rng.integers(0, 9, (rows, 2)).astype(np.uint8) for p in PARTIES[:holders]}
    return trees, rules, codes, rng.integers(kinds, size=count).tolist(), rng.normal(size=kinds)


def play(codes, trees, rules, outputs, start, owner=None, scheme="shares", **how):
    """By party at C, or by column at an owner."""
    roles = Roles("C", tuple(codes)[1:], "K", scheme)

    def take_part(channel):
        with join(channel, roles, None, DISCLOSURES) as session:
            me = session.me
            own = (BINS, codes[me]) if me != "K" else None
            if owner is None:
                if me == "K":
                    return deal_contributions(session, "C")
                if me != "C":
                    return answer_contributions(session, "C", own, rules[me])
                return lead_contributions(session, own, trees, outputs, start)
            if me == "K":
                return deal_columns(session, "C", owner)
            if me != "C":
                return answer_columns(session, "C", own, rules[me], owner)
            return lead_columns(session, own, trees, outputs, len(start), owner)

    return run_together(dict.fromkeys(roles.everyone, take_part), **how)


def worth(trees, rules, codes, outputs, start, members, row):
    """The expected scores of a row, following only the splits of some parties."""

    def expect(at, node):
        tree = trees[at]
        if tree.owner[node] == LEAF:
            return tree.value[node]
        first, party = tree.left[node], PARTIES[tree.owner[node]]
        if party in members:
            left = find_sides(BINS, rules[party][Node(at, node)], codes[party], [row])[0]
            return expect(at, first if left else first + 1)
        share = tree.cover[first] / tree.cover[node]
        return share * expect(at, first) + (1 - share) * expect(at, first + 1)

    total = np.array(start, dtype=float)
    for at, output in enumerate(outputs):
        total[output] += expect(at, 0)
    return total


def shapley(parties, value):
    """By the definition: the mean of what a party adds to those before it, in all orders."""
    found = []
    for party in parties:
        others = [p for p in parties if p != party]
        total = 0.0
        for size in range(len(parties)):
            weight = 1 / (len(parties) * comb(len(parties) - 1, size))
            for before in combinations(others, size):
                total = total + weight * (value({*before, party}) - value({*before}))
        found.append(total)
    return np.stack(found, axis=-1)


def spans(trees):
    return sum(np.ptp(tree.value) for tree in trees) + 1e-6


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 4),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from(["shares", "plain"]),
)
def test_by_party_they_are_shapley_values_of_all_sets(seed, holders, count, kinds, scheme):
    trees, rules, codes, outputs, start = case(seed, holders, count, kinds=kinds, rows=4)
    base, found = play(codes, trees, rules, outputs, start, scheme=scheme)["C"]
    parties = PARTIES[:holders]
    for row in range(4):
        value = lambda members, row=row: worth(trees, rules, codes, outputs, start, members, row)  # noqa: E731
        assert np.abs(found[row] - shapley(parties, value)).max() < 1e-6 * spans(trees)
        assert base == pytest.approx(value(set()))
    whole = walk(codes, trees, rules, outputs, start)
    assert np.abs(base + found.sum(axis=2) - whole).max() < 1e-6 * spans(trees)


def test_weights_of_two_parties_by_hand():
    """φ_0 = ½ (v(0) − v(∅)) + ½ (v(01) − v(1)); sets are ∅, 0, 1, 01."""
    assert weigh_sets(2).tolist() == [[-0.5, 0.5, -0.5, 0.5], [-0.5, -0.5, 0.5, 0.5]]
    assert weigh_sets(3).sum(axis=0)[[0, 7]].tolist() == pytest.approx([-1, 1])
    assert weigh_sets(3).sum(axis=0)[1:7] == pytest.approx(np.zeros(6))


def steps_of(trees, rules, codes, outputs, count, party):
    """Changes of the mean along the way of each row, by column of one party."""
    rows = len(codes["C"])
    found = np.zeros((rows, count, 2))
    for at, tree in enumerate(trees):
        means = find_means(tree)
        for row in range(rows):
            node = 0
            while tree.owner[node] != LEAF:
                whose = PARTIES[tree.owner[node]]
                rule = rules[whose][Node(at, node)]
                right = not find_sides(BINS, rule, codes[whose], [row])[0]
                child = tree.left[node] + right
                if whose == party:
                    found[row, outputs[at], rule[0]] += means[child] - means[node]
                node = child
    return found


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(1, 2), st.sampled_from("CBD"))
def test_by_column_they_are_changes_of_the_mean_along_the_way(seed, holders, kinds, owner):
    trees, rules, codes, outputs, start = case(seed, holders, kinds=kinds, rows=5)
    owner = owner if owner in codes else "B"
    found = play(codes, trees, rules, outputs, start, owner)
    expected = steps_of(trees, rules, codes, outputs, kinds, owner)
    assert np.abs(found.pop(owner) - expected).max() < 1e-6 * spans(trees)
    assert set(map(type, found.values())) == {type(None)}, "nobody else learns anything"


def test_steps_of_all_columns_add_up_to_the_score():
    trees, rules, codes, outputs, start = case(5)
    each = [play(codes, trees, rules, outputs, start, owner)[owner] for owner in codes]
    base = start + sum(find_means(tree)[0] for tree in trees)
    whole = walk(codes, trees, rules, outputs, start)
    assert np.abs(base + sum(one.sum(axis=2) for one in each) - whole).max() < 1e-6 * spans(trees)


# ---- what is shown -------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [None, "B", "C"])
def test_nothing_but_the_contributions_is_opened(owner):
    """Masked messages are uniform; numbers are counted for those whose data they tell of."""
    trees, rules, codes, outputs, start = case(3, count=12, rows=60)
    transcript = Transcript(keep_views=True)
    play(codes, trees, rules, outputs, start, owner, transcript=transcript)
    result = "contributions" if owner is None else "column contributions"
    readable = {"seed", "sizes", "announced", "paths", "unit", result}
    for sight in transcript.sights:
        value, message = wire.decode(sight.body)[1], sight.name.rsplit("/", 1)[-1]
        if message in ("masked", "dealt"):
            bits = np.unpackbits(value.payload)
            assert abs(bits.mean() - 0.5) < 6 * 0.5 / np.sqrt(len(bits))
        else:
            assert message in readable
            assert message != result or sight.receiver == (owner or "C")
    shown = {(r.sender, r.receiver, r.about): r.numbers for r in transcript.releases}
    if owner == "B":
        assert shown == dict.fromkeys(
            [("C", "B", "columns"), ("C", "B", "label"), ("D", "B", "columns")], 120
        )
    else:
        numbers = 60 * (3 if owner is None else 2)
        assert shown == dict.fromkeys([("B", "C", "columns"), ("D", "C", "columns")], numbers)


def test_the_label_holder_cannot_tell_which_splits_share_a_column():
    """What C reads is the same whatever columns B's splits stand on."""
    trees, rules, codes, outputs, start = case(8, holders=2, count=4, rows=8)
    other = dict(rules, B={node: (1 - rule[0], *rule[1:]) for node, rule in rules["B"].items()})
    seen = []
    for mine in (rules, other):
        transcript = Transcript(keep_views=True)
        play(codes, trees, mine, outputs, start, "B", transcript=transcript)
        seen.append(
            [
                (s.name, repr(wire.decode(s.body)[1]) if s.kind == "plain" else len(s.body))
                for s in sorted(transcript.sights, key=lambda s: (s.receiver, s.sender))
                if s.receiver in ("C", "K") and not s.name.endswith("seed")
            ]
        )
    assert seen[0] == seen[1]


# ---- of a model ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    made, target = tables(rows=150)
    frames = {p: t.frame.assign(id=[f"p{i}" for i in range(150)]) for p, t in made.items()}
    frames["C"]["y"] = classes(target)
    fed = vfsl.simulate(frames, id="id", labels={"C": "y"}, seed=0)
    fed.align(protocol="ecdh")
    return fed, XGB(n_estimators=4, max_depth=3).fit(fed, label=("C", "y"))


def test_a_model_explains_by_party_and_by_column(fitted):
    fed, model = fitted
    by_party = model.explain(fed)
    assert list(by_party) == ["base", "C", "B"]
    scored = model.decision_function(fed)[:, 0]
    assert by_party.sum(axis=1).to_numpy() == pytest.approx(scored, abs=1e-5)
    own, theirs = (model.explain(fed, party=party) for party in "CB")
    assert list(theirs) == ["B0", "B1", "B2", "B-group"]
    whole = by_party["base"] + own.sum(axis=1) + theirs.sum(axis=1)
    assert whole.to_numpy() == pytest.approx(scored, abs=1e-5)
    assert fed.steps[-1].name == "explain xgb"
    assert fed.steps[-1].settings["party"] == "B"


def test_what_cannot_be_explained_is_refused(fitted):
    fed, model = fitted
    with pytest.raises(ConfigError, match="must be one of C, B"):
        model.explain(fed, party="Q")
    other = XGB(keys="label-holder")
    other.shares_, other.label_ = model.shares_, model.label_
    with pytest.raises(ConfigError, match="key holder who deals"):
        other.explain(fed)
