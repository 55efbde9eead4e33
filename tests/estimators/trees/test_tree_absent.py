"""Trees without a party: block dropout in training, and predictions for any subset of parties."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import vfsl
from tests.estimators.trees.test_tree_shared_scoring import BINS, PARTIES, random_trees, run, walk
from tests.estimators.trees.tree_cases import (
    ALONE,
    BFV,
    FOUR,
    PAILLIER,
    PLAIN,
    SHARES,
    classes,
    close,
    parts_of,
    scores,
    table_of,
    tables,
    train,
)
from vfsl.channel import Transcript
from vfsl.errors import ConfigError
from vfsl.estimators import GBDT, XGB, Part, RandomForest, Roles
from vfsl.estimators.trees.absent import draw_absent, find_present, leave_out
from vfsl.estimators.trees.splits import LEFT, RIGHT, Scale, find_sides
from vfsl.estimators.trees.state import trees_of
from vfsl.estimators.trees.training import drop_blocks
from vfsl.estimators.trees.tree import LEAF, OWN, Goal, Node, Tree

THREE = Roles("C", ("B", "D"), "K", "plain")


def small_tree():
    """C at the root, B on its left with the heavier side right, D on its right, even sides."""
    tree = Tree()
    tree.owner = [0, 1, 2, LEAF, LEAF, LEAF, LEAF]
    tree.left = [1, 3, 5, LEAF, LEAF, LEAF, LEAF]
    tree.value = [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    tree.rules = {0: (0, 3, RIGHT)}
    tree.cover = [10, 5, 5, 2, 3, 2, 2]
    return tree


# ---- trees without a party -----------------------------------------------------------------------


def test_rows_go_to_the_heavier_side_and_left_if_even():
    tree = small_tree()
    assert (tree.default(1), tree.default(2)) == (RIGHT, LEFT)
    (alone,) = leave_out([tree], [])
    assert alone.owner == [0, 0, 0, LEAF, LEAF, LEAF, LEAF]
    rows = np.arange(2)
    codes = np.array([[0, 0], [7, 0]], dtype=np.uint8)
    assert find_sides(BINS, alone.rules[1], codes, rows).tolist() == [False, False]
    assert find_sides(BINS, alone.rules[2], codes, rows).tolist() == [True, True]
    assert tree.rules == {0: (0, 3, RIGHT)}, "the model itself is as it was"


def test_the_places_of_those_who_are_there_close_up():
    assert leave_out([small_tree()], [2])[0].owner == [0, 0, 1, LEAF, LEAF, LEAF, LEAF]
    assert leave_out([small_tree()], [2, 1])[0].owner == [0, 2, 1, LEAF, LEAF, LEAF, LEAF]
    assert find_present(["C", "B", "D"], ["D", "B"]) == [2, 1]
    with pytest.raises(ConfigError, match="'E' took no part in the training"):
        find_present(["C", "B", "D"], ["E"])


def test_a_tree_of_an_earlier_version_says_that_it_cannot():
    content = small_tree().to_dict()
    del content["cover"]
    old = Tree.from_dict(content)
    assert leave_out([old], [1, 2])[0].owner == old.owner
    with pytest.raises(ConfigError, match="saved by an earlier version"):
        leave_out([old], [1])


def walk_without(codes, trees, rules, outputs, start, absent):
    """Scores row by row, where absent parties' splits send rows to the heavier side."""
    ruled = {party: dict(each) for party, each in rules.items()}
    for at, tree in enumerate(trees):
        for node, owner in enumerate(tree.owner):
            if owner > OWN and PARTIES[owner] in absent:
                ruled[PARTIES[owner]][Node(at, node)] = (-1, 0, tree.default(node))
    return walk(codes, trees, ruled, outputs, start)


@pytest.mark.parametrize("absent", ["B", "D", "BD", "DE", "BDE"])
@pytest.mark.parametrize("scheme", ["plain", "shares"])
def test_scores_without_parties_are_those_of_a_walk(absent, scheme):
    rng = np.random.default_rng(len(absent))
    trees, rules = random_trees(rng, 4, 6, 8)
    for tree in trees:
        tree.cover = rng.integers(1, 5, len(tree.owner)).tolist()
    codes = {party: rng.integers(0, 9, (20, 2)).astype(np.uint8) for party in PARTIES}
    outputs, start = [0] * 6, np.zeros(1)
    present = {party: one for party, one in codes.items() if party not in absent}
    left = leave_out(trees, find_present(list(PARTIES), [p for p in present if p != "C"]))
    expected = walk_without(codes, trees, rules, outputs, start, absent)
    if len(present) > 1:
        found = run(present, left, rules, outputs, start, scheme)
        spans = sum(np.ptp(tree.value) for tree in trees)
        assert np.abs(found - expected).max() < 1e-6 * spans
    every = {party: dict(each) for party, each in rules.items()}
    every["C"] |= {
        Node(at, n): rule for at, tree in enumerate(left) for n, rule in tree.rules.items()
    }
    names = ["C", *(p for p in present if p != "C")]
    for at, tree in enumerate(left):
        for row in range(20):
            node = 0
            while tree.owner[node] != LEAF:
                party = names[tree.owner[node]]
                rule = every[party][Node(at, node)]
                node = tree.left[node] + (not find_sides(BINS, rule, codes[party], [row])[0])
            expected[row, 0] -= tree.value[node]
    assert np.abs(expected).max() < 1e-9


# ---- block dropout -------------------------------------------------------------------------------


def test_only_used_rows_lose_blocks_and_parties_lose_them_apart():
    used = np.arange(4000) % 4 > 0
    drawn = draw_absent(used, 2, 0.3, np.random.default_rng(0))
    assert not drawn[~used].any()
    assert np.abs(drawn[used].mean(axis=0) - 0.3).max() < 0.03
    assert abs((drawn[used, 0] & drawn[used, 1]).mean() - 0.09) < 0.02


def test_each_tree_draws_anew_and_validation_rows_keep_their_blocks():
    weights = np.ones(100)
    weights[:10] = 0
    goal = Goal(np.ones((100, 2), np.int64), Scale(1.0, 1.0), weights, weights, 0)
    growth = XGB(block_dropout=0.5)._growth(PLAIN)
    one, two = drop_blocks([goal, goal], growth, ["B"], 5, 0)
    (again,) = drop_blocks([goal], growth, ["B"], 5, 1)
    assert (two.absent == again.absent).all()
    assert (one.absent != two.absent).any()
    assert not one.absent[:10].any()
    assert drop_blocks([goal], growth, [], 5, 0) == [goal]
    assert goal.values_for(OWN, np.arange(100)).sum() == 200
    assert one.values_for(1, np.arange(100)).sum() == 2 * (~one.absent).sum()


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        *((name, SHARES) for name in FOUR),
        ("xgb", BFV),
        pytest.param("xgb", PAILLIER, marks=pytest.mark.slow),
    ],
    ids=lambda one: getattr(one, "scheme", one),
)
def test_plain_and_hidden_trainings_drop_the_same_blocks(name, roles):
    made, target = tables(rows=120)
    parts = parts_of(made, classes(target))
    model = replace(FOUR[name](), block_dropout=0.4)
    if roles is not SHARES:
        model = replace(model, candidates="sums")
    plain, hidden = train(model, parts, PLAIN), train(model, parts, roles)
    assert hidden["C"].state["trees"] == plain["C"].state["trees"]
    assert hidden["B"].state == plain["B"].state
    without = train(replace(model, block_dropout=0.0), parts, PLAIN)
    assert without["C"].state["trees"] != plain["C"].state["trees"]


def test_nothing_is_dropped_by_default_and_where_there_is_nobody():
    made, target = tables(rows=150)
    parts = parts_of(made, classes(target))
    one = train(XGB(n_estimators=2, max_depth=3), parts)
    none = train(XGB(n_estimators=2, max_depth=3, block_dropout=0.0), parts)
    assert one["C"].state == none["C"].state
    only = {"C": parts["C"]}
    first, second = (
        train(XGB(n_estimators=2, block_dropout=d), only, ALONE)["C"].state for d in (0.0, 0.5)
    )
    assert first == second


def test_a_tree_by_hand_with_a_dropped_block():
    """B's column tells the label; rows without B's block go to the heavier side of its split.

    The leaves' covers and values are those of the rows that the draw leaves on each side.
    """
    rows = 200
    y = np.arange(rows) < 80
    made = {
        "C": table_of(pd.DataFrame({"c": np.zeros(rows)}), "C"),
        "B": table_of(pd.DataFrame({"b": y.astype(float)}), "B"),
    }
    model = GBDT(n_estimators=1, max_depth=1, block_dropout=0.4, task="regression", learning_rate=1)
    shares = train(model, parts_of(made, y.astype(float)))
    (tree,) = trees_of(shares["C"])
    assert tree.owner == [1, LEAF, LEAF]
    # The split sends b = 0 to the left, the heavier side: there all rows without a block go.
    assert tree.default(0) == LEFT
    weight = tree.cover[0] / rows
    right = round(tree.cover[2] / weight)
    assert 0 < right < 80
    assert abs(right - 0.6 * 80) < 5 * np.sqrt(80 * 0.24)
    mean = y.mean()
    assert tree.value[2] == pytest.approx(1 - mean)
    assert tree.value[1] == pytest.approx((80 - right) / (rows - right) - mean)


def test_a_later_attempt_drops_the_same_blocks(tmp_path):
    """C's and B's last two rounds are lost; what is done again is the same."""
    made, target = tables(rows=150)
    parts = parts_of(made, classes(target))
    model = XGB(n_estimators=4, max_depth=3, block_dropout=0.4)
    first = train(model, parts, keep=tmp_path)
    lost = [path for path in tmp_path.rglob("*") if path.name.startswith(("round-2", "round-3"))]
    assert len(lost) >= 4
    for path in lost:
        path.unlink()
    again = train(model, parts, keep=tmp_path, seed=1)
    assert again["C"].state == first["C"].state
    assert again["B"].state == first["B"].state


def test_training_scores_are_not_taken_for_predictions():
    """A row that lost a block in training has another score than the model gives it."""
    made, target = tables(rows=200)
    parts = parts_of(made, classes(target))
    assert XGB().knows_training_scores
    model = XGB(n_estimators=3, block_dropout=0.3)
    assert not model.knows_training_scores
    assert train(model, parts)["C"].scores is None


# ---- predictions without a party -----------------------------------------------------------------


@pytest.fixture(scope="module")
def three():
    made, target = tables(rows=240, parties=("B", "D"))
    frames = {p: t.frame.assign(id=[f"p{i}" for i in range(240)]) for p, t in made.items()}
    frames["C"]["y"] = classes(target)
    frames["B"] = frames["B"][20:]
    fed = vfsl.simulate(frames, id="id", labels={"C": "y"}, seed=0)
    fed.align(protocol="ecdh")
    model = XGB(n_estimators=4, max_depth=3, block_dropout=0.3).fit(fed, label=("C", "y"))
    return fed, model, frames


def test_absent_parties_take_no_part_in_a_session(three):
    fed, model, _ = three
    every = model.decision_function(fed)
    assert {e.sender for e in fed.transcript.entries} == {"B", "C", "D", "K"}
    without = model.decision_function(fed, offline=["B"])
    assert {e.sender for e in fed.transcript.entries} == {"C", "D", "K"}
    assert fed.steps[-1].settings["offline"] == ["B"]
    alone = model.decision_function(fed, offline=["B", "D"])
    assert not fed.transcript.entries
    assert not close(every, without)
    assert not close(without, alone)
    # A federation that lacks B gives the same, once B is said to be offline.
    two = vfsl.simulate({p: t for p, t in fed.tables.items() if p != "B"}, id="id", seed=0)
    two.plan = type(fed.plan)({p: s for p, s in fed.plan.shares.items() if p != "B"})
    with pytest.raises(ConfigError, match="trained with party 'B'"):
        model.predict(two)
    assert close(model.decision_function(two, offline=["B"]), without)


def test_rows_that_others_lack_are_predicted_by_the_label_holder_alone(three):
    fed, model, _ = three
    every = model.predict_proba(fed, rows="all")
    assert every.shape == (240, 2)
    mine = fed.plan["C"]
    assert close(every[mine.overlap], model.predict_proba(fed))
    gone = vfsl.simulate(dict(fed.tables), id="id", seed=0)
    gone.plan = type(fed.plan)(
        {
            party: replace(share, overlap=mine.rest if party == "C" else share.overlap[:20])
            for party, share in fed.plan.shares.items()
        }
    )
    assert close(every[mine.rest], model.predict_proba(gone, offline=["B", "D"]))


def test_the_record_says_whether_a_model_was_trained_for_it(three):
    fed, model, _ = three
    model.predict(fed, offline=["D"])
    assert fed.steps[-1].notes == ()
    other = XGB(n_estimators=2, max_depth=2).fit(fed, label=("C", "y"))
    other.predict(fed, offline=["D"])
    assert "was not trained to do without D" in fed.steps[-1].notes[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"offline": ["Q"]}, "must name parties without the label, B, D. Got 'Q'"),
        ({"offline": ["C"]}, "must name parties without the label, B, D. Got 'C'"),
        ({"rows": "some"}, "must be 'overlap' or 'all'. Got 'some'"),
    ],
)
def test_who_cannot_be_offline_is_named(three, given, message):
    fed, model, _ = three
    with pytest.raises(ConfigError, match=message):
        model.predict(fed, **given)


def test_sides_without_a_party_where_nobody_deals():
    made, target = tables(rows=120, parties=("B", "D"))
    parts = parts_of(made, classes(target))
    model = XGB(n_estimators=3, max_depth=3, keys="label-holder")
    shares = train(model, parts, THREE)
    two = Roles("C", ("D",), "K", "plain")
    transcript = Transcript()
    by_sides = scores(model, parts, shares, two, transcript=transcript)
    assert {e.sender for e in transcript.entries} == {"C", "D"}
    on_shares = scores(replace(model, keys="key-holder"), parts, shares, two)
    assert close(by_sides, on_shares)


def test_quality_is_stated_for_every_subset(three):
    fed, model, _ = three
    found = model.score_subsets(fed)
    assert list(found.index) == ["C, B, D", "C, D", "C, B", "C"]
    target = fed.parts(model.label_)["C"].target.astype(int)
    for offline, auc in zip(((), ("B",), ("D",), ("B", "D")), found["auc"], strict=True):
        scored = model.decision_function(fed, offline=offline)[:, 0]
        assert auc == pytest.approx(roc_auc_score(target, scored))
    with pytest.raises(ConfigError, match="fit with validation above 0"):
        _ = model.subset_scores_


def test_validation_rows_say_what_absence_costs():
    made, target = tables(rows=300)
    y = classes(target)
    parts = parts_of(made, y)
    model = XGB(n_estimators=3, max_depth=3, validation=0.3, patience=3, block_dropout=0.3)
    share = train(model, parts)["C"]
    found = share.state["subset scores"]
    assert set(found) == {"all", "alone"}
    assert 0.5 < found["alone"]["auc"] < found["all"]["auc"] < 1
    assert model.training_metrics(share)["auc on validation rows, alone"] == found["alone"]["auc"]
    assert train(replace(model, validation=0.0), parts)["C"].state["subset scores"] == {}


# ---- what it is worth ----------------------------------------------------------------------------


def made_up(seed, rows=2000):
    """B knows clearly what C knows vaguely: where B is there, trees ask B."""
    rng = np.random.default_rng(seed)
    cause = rng.normal(size=(rows, 3))
    vague, clear = (cause + spread * rng.normal(size=(rows, 3)) for spread in (0.8, 0.2))
    score = 2 * cause[:, 0] + 1.5 * cause[:, 1] * (cause[:, 0] > 0) + cause[:, 2] ** 2
    y = (score + rng.logistic(size=rows) > 0.3).astype(int)
    made = {
        party: table_of(pd.DataFrame(values, columns=[f"{party}{j}" for j in range(3)]), party)
        for party, values in (("C", vague), ("B", clear))
    }
    return made, y


def measure(kind, made, y):
    """AUC on the second half of the rows: with B, and without."""
    half = len(y) // 2
    parts = [
        {p: Part(t, rows, y[rows] if p == "C" else None) for p, t in made.items()}
        for rows in (np.arange(half), np.arange(half, len(y)))
    ]
    model = kind()
    shares = train(model, parts[0])
    found = [
        scores(model, parts[1], shares)[:, 0],
        scores(model, {"C": parts[1]["C"]}, {"C": shares["C"]}, ALONE)[:, 0],
    ]
    return [roc_auc_score(y[half:], one) for one in found]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "gained"),
    [
        (partial(XGB, n_estimators=30, max_depth=4, learning_rate=0.15), 0.02),
        (partial(RandomForest, n_estimators=20, max_depth=6), 0.0),
    ],
    ids=["xgb", "rf"],
)
def test_block_dropout_helps_without_the_party_and_costs_little_with_it(kind, gained):
    plain, dropped = (
        np.mean([measure(partial(kind, block_dropout=d), *made_up(s)) for s in range(5)], axis=0)
        for d in (0.0, 0.3)
    )
    assert dropped[1] > plain[1] + gained
    assert dropped[0] > plain[0] - 0.01
