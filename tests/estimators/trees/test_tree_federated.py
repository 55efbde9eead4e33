"""Federated trees are the pooled ones, under every scheme and in every arrangement of parties."""

import json

import numpy as np
import pytest

import vfsl
from tests.estimators.trees.tree_cases import (
    ALONE,
    BFV,
    FOUR,
    PAILLIER,
    PLAIN,
    alone,
    classes,
    close,
    parts_of,
    pooled,
    scores,
    shape,
    splits,
    table_of,
    tables,
    train,
)
from vfsl.channel import Transcript
from vfsl.errors import ConfigError, VfslError
from vfsl.estimators import GBDT, LGB, XGB, Part, RandomForest, Roles
from vfsl.estimators.saved import load_model, save_model

TWO = Roles("C", ("B", "D"), "K", "plain")
TASKS = {"two classes": 2, "three classes": 3, "numbers": 0}


def goal(target, task):
    return classes(target, TASKS[task]) if TASKS[task] else target


def kind(task):
    return "classes" if TASKS[task] else "regression"


def same_rules(shares, share, widths):
    """Whether the parties' splits are those of the pooled table, whose columns lie in a row."""
    offsets = dict(zip(widths, np.cumsum([0, *list(widths.values())[:-1]]), strict=True))
    found = {
        place: (int(offsets[party] + column), code, missing)
        for place, (party, column, code, missing) in splits(shares).items()
    }
    together = {
        place: (column, code, missing)
        for place, (_, column, code, missing) in splits({"C": share}).items()
    }
    return found == together


@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("categories", ["one-vs-rest", "sorted"])
def test_federated_trees_are_the_pooled_ones(name, task, categories):
    made, target = tables(rows=240)
    label = goal(target, task)
    model = FOUR[name](task=kind(task), categories=categories)
    parts = parts_of(made, label)
    shares = train(model, parts)
    together, whole = alone(model, made, label)
    assert shape(shares["C"]) == shape(together)
    widths = {party: len(shares[party].state["bins"]) for party in ("C", "B")}
    assert same_rules(shares, together, widths)
    assert {party for party, *_ in splits(shares).values()} == {"B", "C"}
    assert close(scores(model, parts, shares), scores(model, whole, {"C": together}, ALONE))
    assert shares["C"].rounds == together.rounds
    assert shares["C"].state["oob"] == together.state["oob"]


@pytest.mark.parametrize("name", FOUR)
def test_two_feature_holders(name):
    made, target = tables(rows=260, parties=("B", "D"), seed=4)
    label = classes(target)
    model = FOUR[name]()
    parts = parts_of(made, label)
    shares = train(model, parts, TWO)
    together, whole = alone(model, made, label)
    assert shape(shares["C"]) == shape(together)
    widths = {party: len(shares[party].state["bins"]) for party in ("C", "B", "D")}
    assert same_rules(shares, together, widths)
    assert {party for party, *_ in splits(shares).values()} == {"B", "C", "D"}
    ours = scores(model, parts, shares, TWO)
    assert close(ours, scores(model, whole, {"C": together}, ALONE))


def test_a_tie_between_parties_goes_to_the_first_in_order():
    """The same column at everybody: the label holder's own is used, then the first one's."""
    made, target = tables(rows=200)
    column = made["C"].frame[["C0"]]
    same = {party: table_of(column.rename(columns={"C0": "x"}), party) for party in "CBD"}
    model = XGB(n_estimators=2, max_depth=3, task="regression")
    found = splits(train(model, parts_of(same, target), TWO))
    assert {party for party, *_ in found.values()} == {"C"}
    none_at_c = same | {"C": table_of(column * 0, "C")}
    found = splits(train(model, parts_of(none_at_c, target), TWO))
    assert {party for party, *_ in found.values()} == {"B"}


def test_a_tie_within_a_party_goes_to_its_lowest_column():
    made, target = tables(rows=200)
    x = made["B"].frame["B0"]
    copies = table_of(x.to_frame("a").assign(b=x * 2, c=x), "B")
    parts = parts_of({"C": table_of(x.to_frame() * 0, "C"), "B": copies}, target)
    model = XGB(n_estimators=2, max_depth=3, task="regression")
    for _ in range(3):  # the shuffle differs in every run
        found = splits(train(model, parts))
        assert len(found) > 4
        assert {column for _, column, _, _ in found.values()} == {0}


def drawless(name):
    """Strategies without any random draw."""
    return {
        "rf": RandomForest(n_estimators=2, together=2, max_depth=3, bootstrap=False, columns="all"),
        "gbdt": GBDT(n_estimators=2),
        "xgb": XGB(n_estimators=2, max_depth=3),
        "lgb": LGB(n_estimators=2, max_leaves=6, max_depth=3),
    }[name]


@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize("count", [2, 3])
def test_batched_weights_are_single_fits(name, count):
    """Three models in the same rounds are the three models one by one."""
    made, target = tables(rows=240)
    label = classes(target, count)
    weights = np.random.default_rng(1).integers(0, 3, size=(240, 3)).astype(float)
    model, parts = drawless(name), parts_of(made, label, weights)
    shares = train(model, parts)
    together = scores(model, parts, shares)
    assert shares["C"].state["models"] == 3
    outputs = together.shape[1] // 3
    for at in range(3):
        single = parts_of(made, label, weights[:, at])
        one = train(model, single)
        mine = [n for n, o in enumerate(shares["C"].state["output"]) if o // outputs == at]
        batch = shape(shares["C"])
        for tree, alike in zip([batch[n] for n in mine], shape(one["C"]), strict=True):
            assert tree["left"] == alike["left"]
        rules = {
            (mine.index(tree), node): rule
            for (tree, node), rule in splits(shares).items()
            if tree in mine
        }
        assert rules == splits(one)
        # Sums over rows of a matrix and of a column differ in the last digit.
        found = scores(model, single, one)
        assert together[:, at * outputs : (at + 1) * outputs] == pytest.approx(found, abs=1e-9)


def test_batched_weights_share_their_messages():
    made, target = tables(rows=200)
    label = classes(target)
    counts = []
    for models in (1, 4):
        transcript = Transcript()
        parts = parts_of(made, label, np.ones((200, models)))
        train(XGB(n_estimators=2, max_depth=2), parts, transcript=transcript)
        counts.append(len(transcript.entries))
    assert counts[0] == counts[1]


def test_a_weight_of_two_is_a_row_that_counts_twice():
    """Bins and the ten-row rule follow rows, so the doubled rows stand beside weightless ones."""
    made, target = tables(rows=150)
    label = classes(target)
    model = XGB(n_estimators=2, max_depth=3)
    rows = np.concatenate([np.arange(150), np.arange(150)])
    weights = np.random.default_rng(0).integers(0, 3, 150).astype(float)
    halves = np.concatenate([np.minimum(weights, 1), np.maximum(weights - 1, 0)])
    whole = np.concatenate([weights, np.zeros(150)])

    def fit(row_weights):
        parts = {party: Part(table, rows) for party, table in made.items()}
        parts["C"] = Part(made["C"], rows, label[rows], row_weights)
        return train(model, parts)

    one, two = fit(halves), fit(whole)
    assert splits(one) == splits(two)
    values = [[tree["value"] for tree in share["C"].state["trees"]] for share in (one, two)]
    assert np.concatenate(values[0]) == pytest.approx(np.concatenate(values[1]), abs=1e-9)


@pytest.mark.parametrize("roles", [PAILLIER, BFV], ids=["paillier", "bfv"])
@pytest.mark.parametrize("name", FOUR)
def test_encrypted_trees_are_the_plain_ones(name, roles):
    made, target = tables(rows=90, missing=0.2)
    label = classes(target)
    model = FOUR[name](n_estimators=2, max_depth=2, max_bins=6, candidates="sums")
    parts = parts_of(made, label)
    plain, hidden = train(model, parts), train(model, parts, roles)
    assert hidden["C"].state == plain["C"].state
    assert hidden["B"].state == plain["B"].state
    assert {party for party, *_ in splits(plain).values()} == {"B", "C"}


def test_several_classes_under_encryption():
    made, target = tables(rows=90)
    model = XGB(n_estimators=1, max_depth=2, max_bins=5, candidates="sums")
    parts = parts_of(made, classes(target, 3))
    assert train(model, parts)["C"].state == train(model, parts, BFV)["C"].state


@pytest.mark.parametrize("roles", [PLAIN, PAILLIER], ids=lambda roles: roles.scheme)
@pytest.mark.parametrize("candidates", ["auto", "sums"])
def test_packing_changes_no_tree(roles, candidates):
    made, target = tables(rows=80)
    parts = parts_of(made, classes(target))
    small = {"n_estimators": 1, "max_depth": 2, "max_bins": 5, "candidates": candidates}
    ways = ("tree", "node", "auto")
    tree, node, auto = (train(XGB(**small, packing=how), parts, roles) for how in ways)
    for party in ("B", "C"):
        assert tree[party].state == node[party].state == auto[party].state


def test_bfv_packs_by_node_only():
    made, target = tables(rows=80)
    with pytest.raises(VfslError, match="must be 'node' or 'auto' under 'bfv'"):
        train(XGB(n_estimators=1, packing="tree"), parts_of(made, classes(target)), BFV)


@pytest.mark.parametrize("roles", [PLAIN, PAILLIER], ids=lambda roles: roles.scheme)
def test_no_key_holder_is_needed(roles):
    made, target = tables(rows=80)
    parts = parts_of(made, classes(target))
    small = {"n_estimators": 1, "max_depth": 2, "max_bins": 5, "candidates": "sums"}
    transcript = Transcript()
    with_holder = train(XGB(**small), parts, roles)
    without = train(XGB(**small, keys="label-holder"), parts, roles, transcript=transcript)
    assert without["C"].state == with_holder["C"].state
    assert without["B"].state == with_holder["B"].state
    assert {entry.sender for entry in transcript.entries} == {"B", "C"}


def test_without_a_key_holder_bfv_is_refused():
    made, target = tables(rows=80)
    with pytest.raises(ConfigError, match="must be 'paillier'"):
        train(XGB(keys="label-holder"), parts_of(made, classes(target)), BFV)


@pytest.mark.parametrize("roles", [PAILLIER, BFV], ids=["paillier", "bfv"])
def test_the_best_candidate_is_found_on_shares_only(roles):
    made, target = tables(rows=80)
    with pytest.raises(ConfigError, match="must be 'sums' or 'auto'"):
        train(XGB(candidates="best"), parts_of(made, classes(target)), roles)


@pytest.mark.slow
def test_memory_and_processes_agree():
    made, target = tables(rows=120)
    model = LGB(n_estimators=2, max_leaves=5, goss=True)
    parts = parts_of(made, classes(target))
    one, two = (train(model, parts, on=on) for on in ("memory", "processes"))
    assert one["C"].state == two["C"].state
    assert one["B"].state == two["B"].state
    assert (scores(model, parts, one) == scores(model, parts, two, on="processes")).all()


def test_sealed_channels_change_nothing():
    made, target = tables(rows=100)
    model, parts = XGB(n_estimators=1, max_depth=2), parts_of(made, classes(target))
    assert train(model, parts)["C"].state == train(model, parts, sealed=True)["C"].state


def test_the_seed_decides_all_draws():
    made, target = tables(rows=200)
    parts = parts_of(made, classes(target))
    model = RandomForest(n_estimators=3, max_depth=3)
    one, again, other = (train(model, parts, seed=seed)["C"].state for seed in (0, 0, 1))
    assert one == again
    assert one["trees"] != other["trees"]


@pytest.mark.parametrize("name", FOUR)
def test_training_scores_are_those_of_a_prediction(name):
    made, target = tables(rows=200)
    model, parts = FOUR[name](), parts_of(made, classes(target))
    shares = train(model, parts)
    assert close(model.training_scores(shares["C"]), scores(model, parts, shares))
    with pytest.raises(ConfigError, match="Only the label holder's fresh share"):
        model.training_scores(shares["B"])


def test_new_rows_are_scored_alike_with_pooled_columns():
    made, target = tables(rows=300)
    label = classes(target)
    model = XGB(n_estimators=4)
    old, new = np.arange(200), np.arange(200, 300)

    def parts(rows, of):
        return {
            party: Part(table, rows, label[rows] if party == "C" else None)
            for party, table in of.items()
        }

    shares = train(model, parts(old, made))
    whole = {"C": pooled(made)}
    together = train(model, parts(old, whole), ALONE)
    found = scores(model, parts(new, made), shares)
    assert close(found, scores(model, parts(new, whole), together, ALONE))
    assert found[:, 0].std() > 0.1


# ---- through a federation ----


@pytest.fixture
def federation():
    made, target = tables(rows=160)
    frames = {party: table.to_frame() for party, table in made.items()}
    frames["C"]["y"] = np.where(classes(target) == 1, "yes", "no")
    fed = vfsl.simulate(frames, id="id", labels={"C": "y"}, scheme="plain", seed=3)
    fed.align("B", "C", protocol="ecdh")
    return fed


@pytest.mark.parametrize("name", FOUR)
def test_fit_and_predict_on_a_federation(federation, name, tmp_path):
    model = FOUR[name]().fit(federation, label=("C", "y"))
    chances = model.predict_proba(federation)
    assert chances.shape == (160, 2)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert list(model.classes_) == ["no", "yes"]
    truth = federation.parts(("C", "y"))["C"].target
    assert (model.predict(federation) == truth).mean() > 0.75
    step = federation.record.steps[-1]
    assert step.name == f"predict {name}"
    assert step.metrics["auc"] > 0.8
    for party in ("B", "C"):
        shares = model.importances(party)
        assert shares.sum() == pytest.approx(1)
        assert set(shares.index) <= set(federation.tables[party].features)
    assert set(model.gain_by_party()) == {"B", "C"}
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert close(again.decision_function(federation), model.decision_function(federation))


def test_an_unlabelled_column_as_target_is_no_feature(federation):
    amount = np.square(federation.tables["C"].frame["C0"]) + federation.tables["C"].frame["C2"]
    federation.sites["C"].table = federation.tables["C"].with_column("amount", amount, "numeric")
    model = XGB(n_estimators=3, max_depth=2, task="regression").fit(federation, ("C", "amount"))
    assert "amount" not in model.importances("C").index
    found = model.predict(federation)
    truth = federation.parts(("C", "amount"))["C"].target.astype(float)
    assert np.corrcoef(found, truth)[0, 1] > 0.7
    assert federation.record.steps[-1].metrics["rmse"] < truth.std()
    with pytest.raises(ConfigError, match="use predict"):
        model.predict_proba(federation)


def test_several_models_on_a_federation(federation):
    weights = np.random.default_rng(0).integers(0, 3, size=(160, 2)).astype(float)
    model = XGB(n_estimators=2).fit(federation, ("C", "y"), weights)
    assert model.predict_proba(federation).shape == (160, 2)
    assert set(model.predict(federation).ravel()) == {"no", "yes"}


def test_a_dump_has_ones_own_splits_only(federation):
    model = XGB(n_estimators=2, max_depth=3).fit(federation, ("C", "y"))
    for party, other in (("B", "C"), ("C", "B")):
        dump = model.dump(party)
        assert json.loads(json.dumps(dump)) == dump
        assert dump
        own = set(federation.tables[party].features)
        assert {line["column"] for line in dump} <= own
        assert not own & set(federation.tables[other].features)


def test_the_scheme_is_chosen_and_recorded():
    made, target = tables(rows=60)
    frames = {party: table.to_frame() for party, table in made.items()}
    frames["C"]["y"] = classes(target)
    fed = vfsl.simulate(frames, id="id", labels={"C": "y"}, security=112)
    fed.align("B", "C", protocol="ecdh")
    XGB(n_estimators=1, max_depth=1, max_bins=3).fit(fed, ("C", "y"))
    assert fed.record.steps[-1].settings["scheme"] == "shares"
    XGB(n_estimators=1, max_depth=1, max_bins=3, keys="label-holder").fit(fed, ("C", "y"))
    assert fed.record.steps[-1].settings["scheme"] == "paillier"
