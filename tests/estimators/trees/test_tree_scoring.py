"""Scoring rows level by level: the same leaves as a walk row by row, and nothing else is asked."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vfsl
from tests.estimators.trees.tree_cases import (
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
from vfsl.align import RowPlan, RowShare
from vfsl.channel import Transcript, run_together, wire
from vfsl.data import PartyTable
from vfsl.draws import PrivateSeed
from vfsl.errors import ProtocolError
from vfsl.estimators import LGB, XGB, Part, Roles, load_model, save_model
from vfsl.estimators.trees.binning import Bins, Column
from vfsl.estimators.trees.scoring import DISCLOSURES, answer_sides, find_leaves, find_levels
from vfsl.estimators.trees.shared_scoring import WIDTH
from vfsl.estimators.trees.splits import find_sides
from vfsl.estimators.trees.tree import LEAF, Node, Tree

TWO = Roles("C", ("B", "D"), "K", "plain")
ON_SHARES = {"seed", "sizes", "announced", "paths", "masked", "dealt", "total scores"}
# Two columns of eight bins and a place for missing cells each; the second has categories.
BINS = Bins(
    (
        Column("ordered", [float(edge) for edge in range(7)], None, True, True),
        Column("kinds", [], list("abcdefgh"), False, True),
    )
)


def random_forest(rng, trees, splits):
    """Trees whose splits belong to three parties at random, and everybody's rules."""
    made, rules = [], {"C": {}, "B": {}, "D": {}}
    for at in range(trees):
        tree = Tree()
        for _ in range(int(rng.integers(splits + 1))):
            leaves = [node for node, owner in enumerate(tree.owner) if owner == LEAF]
            node, owner = int(rng.choice(leaves)), int(rng.integers(3))
            rule = int(rng.integers(2)), int(rng.integers(8)), int(rng.integers(2))
            tree.owner[node], tree.left[node] = owner, len(tree.owner)
            for grown, fill in ((tree.owner, LEAF), (tree.left, LEAF), (tree.gain, 0.0)):
                grown += [fill, fill]
            tree.value += [0.0, 0.0]
            if owner == 0:
                tree.rules[node] = rule
            rules["CBD"[owner]][Node(at, node)] = rule
        made.append(tree)
    return made, rules


def scoring(play, **known):
    """A role that speaks as scoring does."""
    return lambda channel: play(channel.within("score", DISCLOSURES), bins=BINS, **known)


def run(codes, trees, rules, **how):
    jobs = {"C": scoring(find_leaves, roles=TWO, codes=codes["C"], trees=trees)}
    for party in ("B", "D"):
        known = {"codes": codes[party], "rules": rules[party]}
        jobs[party] = scoring(answer_sides, roles=TWO, **known)
    return run_together(jobs, **how)["C"]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 9), st.integers(0, 25))
def test_leaves_are_those_of_a_walk_row_by_row(seed, count, most, rows):
    rng = np.random.default_rng(seed)
    trees, rules = random_forest(rng, count, most)
    codes = {party: rng.integers(0, 9, (rows, 2)).astype(np.uint8) for party in "CBD"}
    transcript = Transcript(keep_views=True)
    found = run(codes, trees, rules, transcript=transcript)
    reached = {"B": set(), "D": set()}
    for row in range(rows):
        for at, tree in enumerate(trees):
            node = 0
            while tree.owner[node] != LEAF:
                party = "CBD"[tree.owner[node]]
                rule = rules[party][Node(at, node)]
                if party != "C":
                    reached[party].add((at, node, row))
                node = tree.left[node] + (not find_sides(BINS, rule, codes[party], [row])[0])
            assert found[row, at] == node
    levels = find_levels(trees) if rows else {}
    for place, party in ((1, "B"), (2, "D")):
        mine = [s for s in transcript.sights if party in (s.sender, s.receiver)]
        assert len(mine) == 2 * len(levels.get(place, ()))
        asked = set()
        for sight in mine:
            value = wire.decode(sight.body)[1]
            if sight.sender == "C":
                bits = np.unpackbits(value["rows"], count=len(value["nodes"]) * rows)
                for (at, node), here in zip(
                    value["nodes"].tolist(), bits.reshape(-1, rows), strict=True
                ):
                    asked |= {(at, node, int(row)) for row in np.flatnonzero(here)}
        assert asked == reached[party]
        bytes_of_sides = sum(s.sender == party and len(wire.decode(s.body)[1]) for s in mine)
        assert bytes_of_sides <= len(asked) // 8 + len(mine)


def test_levels_count_the_others_splits_on_the_way():
    tree = Tree([0, 1, 2, LEAF, 0, LEAF, LEAF, 1, LEAF, LEAF, LEAF])
    tree.left = [1, 3, 5, LEAF, 7, LEAF, LEAF, 9, LEAF, LEAF, LEAF]
    assert find_levels([tree]) == {1: {0, 1}, 2: {0}}
    assert find_levels([Tree()]) == {}


@pytest.mark.parametrize("most", [3, 30])
def test_messages_do_not_grow_with_the_number_of_trees(most):
    made, target = tables(rows=150)
    parts = parts_of(made, classes(target))
    model = XGB(n_estimators=most, max_depth=3, keys="label-holder")
    transcript = Transcript()
    shares = train(model, parts)
    scores(model, parts, shares, transcript=transcript)
    assert sum(party == "B" for party, *_ in splits(shares).values()) >= most
    assert 2 <= len(transcript.entries) <= 2 * model.max_depth


@pytest.mark.parametrize(
    "model",
    [
        *(make() for make in FOUR.values()),
        LGB(n_estimators=2, max_leaves=12),
        XGB(n_estimators=2, max_depth=0),
    ],
    ids=lambda model: f"{model.name} {model.max_depth}",
)
@pytest.mark.parametrize("form", ["two", "three", "numbers", "models"])
def test_kept_scores_are_those_of_a_prediction_to_the_last_digit(model, form):
    """Two feature holders; classes, numbers, or several models in the same rounds."""
    made, target = tables(rows=150, parties=("B", "D"))
    label = target if form == "numbers" else classes(target, 3 if form == "three" else 2)
    weights = None
    if form == "models":
        weights = np.random.default_rng(0).integers(0, 3, (150, 2)).astype(float)
    model = replace(model, task="regression" if form == "numbers" else "classes")
    parts = parts_of(made, label, weights)
    shares, known = train(model, parts, TWO), replace(model, keys="label-holder")
    kept = model.training_scores(shares["C"])
    assert (kept == scores(known, parts, shares, TWO)).all()
    assert close(kept, scores(model, parts, shares, TWO))


def test_no_rows_need_no_message_without_a_key_holder():
    made, target = tables(rows=100)
    model = XGB(n_estimators=2, keys="label-holder")
    shares = train(model, parts_of(made, classes(target)))
    nobody = {party: Part(table, np.zeros(0, dtype=np.int64)) for party, table in made.items()}
    transcript = Transcript()
    found = scores(model, nobody, shares, transcript=transcript)
    assert found.shape == (0, 1)
    assert not transcript.entries


# ---- rows whose scores are known ----------------------------------------------------------------


def federation(rows=160, seed=3, **how):
    made, target = tables(rows=rows)
    frames = {party: table.to_frame() for party, table in made.items()}
    frames["C"]["y"] = np.where(classes(target) == 1, "yes", "no")
    fed = vfsl.simulate(frames, id="id", labels={"C": "y"}, scheme="plain", seed=seed, **how)
    fed.align("B", "C", protocol="ecdh")
    return fed


def rows_of(fed, places):
    """The same federation with these places of the common order only."""
    plan = fed.plan
    return fed.with_rows(
        RowPlan(
            {
                party: RowShare(party, plan[party].plan, plan[party].overlap[places], np.zeros(0))
                for party in plan.parties
            }
        )
    )


def anew(model, fed, folder):
    """Scores by a model that was saved and read back: it knows no training scores."""
    save_model(model, folder, force=True)
    return load_model(folder).decision_function(fed)


@pytest.mark.parametrize("on", ["memory", "processes"])
def test_training_rows_are_predicted_without_a_message(on, tmp_path):
    fed = federation(on=on)
    model = FOUR["xgb"]().fit(fed, label=("C", "y"))
    found = model.decision_function(fed)
    assert not fed.transcript.entries
    assert fed.steps[-1].name == "predict xgb"
    assert fed.steps[-1].settings["new rows"] == 0
    assert fed.steps[-1].metrics["auc"] > 0.8
    assert close(found, anew(model, fed, tmp_path))
    assert {entry.message for entry in fed.transcript.entries} == ON_SHARES
    assert fed.steps[-1].settings["new rows"] == 160


@pytest.mark.parametrize("name", FOUR)
def test_only_new_rows_are_asked(name, tmp_path):
    fed = federation()
    model = FOUR[name]().fit(rows_of(fed, np.arange(100)), label=("C", "y"))
    order = np.random.default_rng(0).permutation(160)
    mixed = rows_of(fed, order)
    mixed._keep_views = True
    found = model.decision_function(mixed)
    assert mixed.steps[-1].settings["new rows"] == 60
    seen = [(s.name, wire.decode(s.body)[1]) for s in mixed.transcript.sights]
    assert {value["rows"] for name, value in seen if name.endswith("sizes")} == {60}
    (opened,) = (value for name, value in seen if name.endswith("total scores"))
    assert len(opened.payload) == 60 * WIDTH // 8
    assert close(found, anew(model, mixed, tmp_path))
    some = rows_of(fed, np.arange(90, 20, -1))
    assert close(model.decision_function(some), anew(model, some, tmp_path))


@pytest.mark.parametrize("party", ["B", "C"])
def test_a_row_with_other_cells_is_a_new_row(party, tmp_path):
    """Whoever's cells have changed; the number of the row is the same."""
    fed = federation()
    model = FOUR["xgb"]().fit(fed, label=("C", "y"))
    before = model.decision_function(fed)
    table = fed.tables[party]
    frame = table.to_frame()
    row = fed.plan[party].overlap[7]
    changed = [name for name in table.features if table.kinds[name].value == "numeric"]
    frame.loc[row, changed] = -frame.loc[row, changed] * 3 + 1
    label = "y" if party == "C" else None
    other = PartyTable.from_frame(frame, party=party, id="id", label=label)
    fed = fed.with_rows(fed.plan, {**fed.tables, party: other})
    found = model.decision_function(fed)
    assert fed.steps[-1].settings["new rows"] == 1
    assert np.flatnonzero(found != before).tolist() == [7]
    assert close(found, anew(model, fed, tmp_path))


def test_other_people_of_the_same_label_holder_are_new_rows(tmp_path):
    """The label holder's table is the same, the others' is not."""
    fed = federation()
    model = FOUR["xgb"]().fit(fed, label=("C", "y"))
    table = fed.tables["B"]
    mixed = table.take(np.random.default_rng(1).permutation(len(table)))
    other = fed.with_rows(fed.plan, {**fed.tables, "B": mixed})
    found = model.decision_function(other)
    assert other.steps[-1].settings["new rows"] > 150
    assert close(found, anew(model, other, tmp_path))


def test_a_resumed_training_knows_its_scores(tmp_path):
    fed = federation()
    keeping = fed.keeping({party: tmp_path / party for party in ("B", "C")})
    model = XGB(n_estimators=4, max_depth=2, validation=0.3, patience=2)
    whole = model.fit(keeping, label=("C", "y")).decision_function(fed)
    for party in ("B", "C"):
        (tmp_path / party / "xgb" / "rounds" / "round-3.json").unlink()
    again = XGB(n_estimators=4, max_depth=2, validation=0.3, patience=2)
    # What an attempt draws anew must not matter: the first one's draws are kept.
    keeping.sites["C"].private = PrivateSeed.of_simulation("C", 99)
    found = again.fit(keeping, label=("C", "y")).decision_function(fed)
    assert not fed.transcript.entries
    assert (found == whole).all()
    assert close(found, anew(again, fed, tmp_path / "saved"))


# ---- parties that do not keep to it -------------------------------------------------------------


def score_with(meddling, change, rows=100):
    made, target = tables(rows=rows)
    parts = parts_of(made, classes(target))
    model = XGB(n_estimators=3, max_depth=3, keys="label-holder")
    shares = train(model, parts)

    def job(channel, party):
        on = Meddler(channel, partial(change, shares)) if party == meddling else channel
        return model.score_rows(on, parts[party], shares[party], roles=PLAIN)

    return run_together({party: partial(job, party=party) for party in PLAIN.data_holders})


def ask_a_strange_node(shares, name, value):
    return value | {"nodes": value["nodes"] + 99} if name == "reached" else value


def ask_every_row_everywhere(shares, name, value):
    if name != "reached":
        return value
    nodes = np.array([rule[:2] for rule in shares["B"].state["rules"]])
    bits = np.packbits(np.ones(len(nodes) * 100, dtype=bool))
    return {"nodes": nodes, "rows": bits, "more": 0}


def say_less(shares, name, value):
    return value[:-1] if name == "sides" else value


@pytest.mark.parametrize(
    ("party", "change", "message"),
    [
        ("C", ask_a_strange_node, "'C' asks for sides at the node .* no split of ours"),
        ("C", ask_every_row_everywhere, "'C' asks for a row at two splits of tree 0 at once"),
        ("B", say_less, "'B' sent a bitmap of"),
    ],
    ids=["strange node", "every row everywhere", "too few sides"],
)
def test_who_asks_or_says_something_else_is_named(party, change, message):
    with pytest.raises(ProtocolError, match=message):
        score_with(party, change)


def answer(questions, rules=None, rows=8):
    """What a feature holder says to a label holder that asks just this."""
    rules = {Node(0, 0): (0, 3, 0), Node(0, 1): (0, 1, 0)} if rules is None else rules

    def ask(channel, bins):
        for question in questions:
            channel.send("B", "reached", question)
            channel.receive("B", "sides")

    codes = np.zeros((rows, 2), dtype=np.uint8)
    roles = scoring(answer_sides, roles=PLAIN, codes=codes, rules=rules)
    return run_together({"C": scoring(ask), "B": roles})


def question(nodes, more, rows=8):
    nodes = np.array(nodes, dtype=np.int64).reshape(-1, 2)
    return {"nodes": nodes, "rows": np.full(len(nodes) * rows // 8, 255, np.uint8), "more": more}


def test_a_split_is_asked_once():
    answer([question([[0, 0]], 1), question([[0, 1]], 0)])
    with pytest.raises(ProtocolError, match=r"node \(0, 0\), which is no split of ours or was"):
        answer([question([[0, 0]], 1), question([[0, 0]], 0)])


def test_there_are_no_more_levels_than_splits():
    with pytest.raises(ProtocolError, match="more levels than there are"):
        answer([question([], 1)] * 3)


@pytest.mark.parametrize(
    "broken",
    [
        {"rows": np.zeros(1, np.uint8), "more": 0},
        question([[0, 0]], 7),
        question([[0, 0]], 0) | {"rows": np.zeros(9, np.uint8)},
        question([[0, 0]], 0) | {"nodes": np.zeros((1, 3), dtype=np.int64)},
    ],
    ids=["no nodes", "more", "long bitmap", "triples"],
)
def test_an_unreadable_question_is_refused(broken):
    with pytest.raises(ProtocolError, match="'C' sent"):
        answer([broken])
