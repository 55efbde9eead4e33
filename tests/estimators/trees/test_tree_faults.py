"""Trees where something is odd or breaks: data, parameters, and parties that die on the way."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.estimators.trees.tree_cases import (
    ALONE,
    BFV,
    FOUR,
    PAILLIER,
    PLAIN,
    classes,
    close,
    grow,
    parts_of,
    scores,
    shape,
    splits,
    table_of,
    tables,
    train,
    train_with,
)
from vfsl.errors import ConfigError, DataError, StoreError
from vfsl.estimators import GBDT, LGB, XGB, Part, RandomForest

SCHEMES = pytest.mark.parametrize("roles", [PLAIN, PAILLIER, BFV], ids=lambda roles: roles.scheme)
TINY = XGB(n_estimators=2, max_depth=2, max_bins=5, task="regression")


def constant(rows, party):
    return table_of(pd.DataFrame({"c": np.full(rows, 3.0), "g": ["same"] * rows}), party)


def no_columns(rows, party):
    return table_of(pd.DataFrame(index=range(rows)), party)


# ---- data ----


@pytest.mark.parametrize("name", FOUR)
def test_one_class_is_refused(name):
    made, _ = tables(rows=60)
    with pytest.raises(DataError, match="at least two among the labelled aligned rows of party"):
        train(FOUR[name](), parts_of(made, np.ones(60)))


@SCHEMES
@pytest.mark.parametrize("empty", [constant, no_columns])
def test_a_feature_holder_without_a_useful_column(roles, empty):
    """The label holder trains on its own columns, and the other's share has no split."""
    made, target = tables(rows=60)
    made["B"] = empty(60, "B")
    parts = parts_of(made, target)
    shares = train(TINY, parts, roles)
    as_hidden = replace(TINY, candidates="auto" if roles.scheme == "plain" else "sums")
    alone = train(as_hidden, {"C": parts["C"]}, ALONE)
    assert shape(shares["C"]) == shape(alone["C"])
    assert shares["B"].state["rules"] == []
    assert shares["B"].state["importance"] == []
    assert close(scores(TINY, parts, shares), scores(TINY, parts, alone, ALONE))


@SCHEMES
@pytest.mark.parametrize("empty", [constant, no_columns])
def test_a_label_holder_without_a_useful_column(roles, empty):
    made, target = tables(rows=60)
    made["C"] = empty(60, "C")
    parts = parts_of(made, target)
    shares = train(TINY, parts, roles)
    assert {party for party, *_ in splits(shares).values()} == {"B"}
    assert shares["C"].state["importance"] == []
    assert len(np.unique(scores(TINY, parts, shares))) > 2


@SCHEMES
def test_nobody_has_a_useful_column(roles):
    """The model is the best constant."""
    _, target = tables(rows=60)
    made = {"C": constant(60, "C"), "B": constant(60, "B")}
    shares = train(TINY, parts_of(made, target), roles)
    found = scores(TINY, parts_of(made, target), shares)
    assert found[:, 0] == pytest.approx(target.mean())
    assert [len(tree["owner"]) for tree in shares["C"].state["trees"]] == [1, 1]


@SCHEMES
def test_a_feature_holder_whose_splits_never_win(roles):
    """Its one column is a weaker copy of the label holder's."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    made = {
        "C": table_of(pd.DataFrame({"x": x}), "C"),
        "B": table_of(pd.DataFrame({"noise": rng.integers(0, 2, 80)}), "B"),
    }
    model = XGB(n_estimators=1, max_depth=1, max_bins=5, task="regression")
    shares = train(model, parts_of(made, np.sign(x)), roles)
    assert {party for party, *_ in splits(shares).values()} == {"C"}
    assert shares["B"].state["rules"] == []
    assert shares["B"].state["importance"] == [0]


@SCHEMES
@pytest.mark.parametrize("rows", [12, 19, 20])
def test_few_rows(roles, rows):
    """Where sums are shown, under twenty rows no split leaves ten on each side: a constant."""
    x = np.arange(float(rows))
    made = {
        "C": table_of(pd.DataFrame({"a": -x}), "C"),
        "B": table_of(pd.DataFrame({"b": x}), "B"),
    }
    how = {"n_estimators": 1, "max_depth": 2, "max_bins": 4, "task": "regression"}
    shares = train(XGB(**how, candidates="sums"), parts_of(made, x), roles)
    assert len(splits(shares)) == (1 if rows >= 20 else 0)
    if roles.scheme == "plain":
        assert len(splits(train(XGB(**how), parts_of(made, x), roles))) == 3
        few = train(XGB(**how, min_rows=10), parts_of(made, x), roles)
        assert len(splits(few)) <= (1 if rows >= 20 else 0)


@SCHEMES
@pytest.mark.parametrize("name", FOUR)
def test_depth_zero_is_a_constant(name, roles):
    made, target = tables(rows=60)
    model = FOUR[name](max_depth=0, task="regression", n_estimators=2)
    if name == "rf":
        model.bootstrap = False
    else:
        model.subsample = 1.0
    if name == "lgb":
        model.goss = False
    parts = parts_of(made, target)
    found = scores(model, parts, train(model, parts, roles))
    assert found[:, 0] == pytest.approx(target.mean())


def test_more_bins_than_values():
    made, target = tables(rows=100)
    model = XGB(n_estimators=2, max_bins=255, task="regression")
    parts = parts_of(made, target)
    shares = train(model, parts)
    assert max(len(c["edges"]) for c in shares["B"].state["bins"]) <= 99
    assert splits(shares)


@pytest.mark.parametrize("name", FOUR)
def test_rows_without_a_label_count_nowhere(name):
    """They only fill nodes: the trees are those of rows with a label but without weight."""
    made, target = tables(rows=120)
    label = classes(target).astype(object)
    model = FOUR[name]()
    hidden, weights = label.copy(), np.ones(120)
    hidden[::4] = None
    weights[::4] = 0.0
    known = label[weights > 0]
    for seed in range(3):
        # The same weights for both: they are taken relative to their mean over all rows.
        without = train(model, parts_of(made, hidden, weights), seed=seed)["C"]
        weightless = train(model, parts_of(made, label, weights), seed=seed)["C"]
        assert without.state["classes"] == sorted(set(known))
        assert shape(without) == shape(weightless)
    assert train(model, parts_of(made, hidden))["C"].state["classes"] == sorted(set(known))


def test_infinite_cells_are_refused_before_training():
    with pytest.raises(DataError, match="infinite cell"):
        table_of(pd.DataFrame({"x": [1.0, np.inf]}), "B")


def test_a_column_that_is_missing_altogether_in_the_aligned_rows():
    """Its only value lies in a row that is not aligned."""
    made, target = tables(rows=60)
    frame = made["B"].frame.assign(hole=[1.0] + [np.nan] * 59)
    made["B"] = table_of(frame, "B")
    rows = np.arange(1, 60)
    parts = {
        party: Part(table, rows, target[1:] if party == "C" else None)
        for party, table in made.items()
    }
    shares = train(TINY, parts)
    names = [column["name"] for column in shares["B"].state["bins"]]
    used = {names[column] for party, column, *_ in splits(shares).values() if party == "B"}
    assert "hole" not in used


def test_new_rows_with_unseen_categories_and_missing_cells():
    """They go where training rows without a value went."""
    rng = np.random.default_rng(0)
    group = np.array(["a", "b", None] * 40, dtype=object)
    target = np.select([group == "a", group == "b"], [5.0, -5.0], 9.0) + rng.normal(size=120)
    model = XGB(n_estimators=5, task="regression", l2=0.0, learning_rate=1.0)
    share, _ = grow(model, pd.DataFrame({"g": group}), target)
    new = table_of(pd.DataFrame({"g": ["a", "b", None, "never seen"]}), "C")
    found = scores(model, {"C": Part(new, np.arange(4))}, {"C": share}, ALONE)[:, 0]
    expected = [target[[g is wanted for g in group]].mean() for wanted in ("a", "b", None, None)]
    assert found == pytest.approx(expected, abs=1e-3)


def test_missing_cells_go_the_better_way():
    """Once with the small numbers, once with the large ones, and once by themselves."""
    x = np.concatenate([np.zeros(40), np.ones(40), np.full(40, np.nan)])
    base = np.concatenate([np.zeros(40), np.full(40, 9.0)])
    for filler, unique in ((0.0, 2), (9.0, 2), (4.0, 3)):
        target = np.concatenate([base, np.full(40, filler)])
        model = XGB(n_estimators=1, max_depth=2, task="regression", l2=0.0, learning_rate=1.0)
        _, found = grow(model, pd.DataFrame({"x": x}), target)
        assert found[:, 0] == pytest.approx(target, abs=1e-4)
        assert len(np.unique(found)) == unique


def test_training_cells_without_gaps_and_new_ones_with():
    """A column that had no gaps sends later ones to the right."""
    frame = pd.DataFrame({"x": np.repeat([0.0, 1.0], 20)})
    target = np.repeat([0.0, 8.0], 20)
    model = XGB(n_estimators=1, max_depth=1, task="regression", l2=0.0, learning_rate=1.0)
    share, _ = grow(model, frame, target)
    new = table_of(pd.DataFrame({"x": [0.0, 1.0, np.nan]}), "C")
    found = scores(model, {"C": Part(new, np.arange(3))}, {"C": share}, ALONE)[:, 0]
    assert found == pytest.approx([0.0, 8.0, 8.0], abs=1e-4)


def test_a_constant_target_for_a_regression():
    made, _ = tables(rows=60)
    shares = train(TINY, parts_of(made, np.full(60, 4.0)))
    assert scores(TINY, parts_of(made, np.full(60, 4.0)), shares)[:, 0] == pytest.approx(4.0)
    assert not splits(shares)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(59), "Row weights must be 60 finite numbers"),
        (-np.ones(60), "Row weights must be 60 finite numbers of at least 0"),
        (np.zeros(60), "must not all be 0"),
    ],
)
def test_bad_weights(weights, message):
    made, target = tables(rows=60)
    with pytest.raises(DataError, match=message):
        train(TINY, parts_of(made, target, weights))


# ---- parameters ----


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: XGB(n_estimators=0), "n_estimators"),
        (lambda: XGB(n_estimators=2.5), "n_estimators"),
        (lambda: GBDT(n_estimators=True), "n_estimators"),
        (lambda: XGB(max_depth=-1), "max_depth"),
        (lambda: XGB(max_bins=1), "max_bins"),
        (lambda: XGB(max_bins=256), "max_bins"),
        (lambda: LGB(min_rows=0), "min_rows"),
        (lambda: LGB(candidates="all"), "candidates"),
        (lambda: XGB(task="ranking"), "task"),
        (lambda: XGB(categories="all"), "categories"),
        (lambda: XGB(packing="row"), "packing"),
        (lambda: XGB(keys="nobody"), "keys"),
        (lambda: XGB(learning_rate=0.0), "learning_rate"),
        (lambda: GBDT(learning_rate=1.5), "learning_rate"),
        (lambda: XGB(learning_rate=float("nan")), "learning_rate"),
        (lambda: XGB(subsample=0.0), "subsample"),
        (lambda: XGB(validation=0.95), "validation"),
        (lambda: XGB(patience=0), "patience"),
        (lambda: XGB(l2=-1.0), "l2"),
        (lambda: XGB(gamma=-0.1), "gamma"),
        (lambda: XGB(min_child_weight=-1.0), "min_child_weight"),
        (lambda: XGB(colsample=0.0), "colsample"),
        (lambda: GBDT(colsample=1.1), "colsample"),
        (lambda: LGB(max_leaves=1), "max_leaves"),
        (lambda: LGB(goss=True, top=0.9, other=0.2), "top"),
        (lambda: LGB(other=0.0), "other"),
        (lambda: RandomForest(columns="half"), "columns"),
        (lambda: RandomForest(columns=0.0), "columns"),
        (lambda: RandomForest(together=0), "together"),
        (lambda: RandomForest(min_child_weight=0.0), "min_child_weight"),
    ],
)
def test_bad_parameters_are_named_in_one_sentence(make, name):
    made, target = tables(rows=60)
    with pytest.raises(ConfigError, match=rf"{name}.*[Gg]ot .* instead\.$") as caught:
        train(make(), parts_of(made, target))
    assert type(make()).__name__ in str(caught.value)


@pytest.mark.parametrize("name", FOUR)
def test_unfitted_models_say_so(name):
    model = FOUR[name]()
    for use in (
        lambda: model.predict(None),
        lambda: model.predict_proba(None),
        lambda: model.decision_function(None),
        lambda: model.importances("B"),
        lambda: model.gain_by_party(),
        lambda: model.dump("C"),
    ):
        with pytest.raises(ConfigError, match="is not fitted yet: call fit first"):
            use()


def test_a_part_and_a_generator_are_needed():
    made, target = tables(rows=60)
    parts = parts_of(made, target)
    with pytest.raises(ConfigError, match="'B' needs a part of the data"):
        train(TINY, {"C": parts["C"]})
    with pytest.raises(ConfigError, match="'C' holds the label and needs an rng"):
        train_with("nobody", None, _Seedless(n_estimators=1), parts)


class _Seedless(XGB):
    def train(self, channel, part, *, roles, rng=None, **how):
        return super().train(channel, part, roles=roles, rng=None, **how)


# ---- dying and going on ----


class Died(Exception):
    """What the test lets a party die of."""


def dying(message, at):
    """A change that lets a party die when it is about to send a message the at-th time."""
    left = [at]

    def change(name, value):
        if name == message:
            left[0] -= 1
            if left[0] < 0:
                raise Died
        return value

    return change


@pytest.mark.parametrize("name", FOUR)
@pytest.mark.parametrize(
    ("party", "message", "at"),
    [
        ("C", "trees", 3),
        ("C", "partition", 5),
        ("B", "best", 5),
        ("B", "masks", 5),
        ("K", "opened", 4),
    ],
)
def test_a_training_goes_on_after_a_party_died(name, party, message, at, tmp_path):
    """From the rounds that all have finished, to the model that was to be."""
    made, target = tables(rows=120)
    parts = parts_of(made, classes(target))
    settings = {"n_estimators": 4, "max_depth": 2}
    if name == "rf":
        settings["together"] = 1
    if message in ("masks", "opened"):
        settings["candidates"] = "sums"
    whole = train(FOUR[name](**settings), parts)
    model = FOUR[name](**settings)
    with pytest.raises(Died):
        train_with(party, dying(message, at), model, parts, keep=tmp_path)
    kept = sorted(path.name for path in (tmp_path / "C" / "rounds").glob("round-*.json"))
    assert kept
    resumed = train(model, parts, keep=tmp_path)
    assert resumed["C"].state == whole["C"].state
    assert resumed["B"].state == whole["B"].state
    assert resumed["C"].rounds == whole["C"].rounds
    assert (resumed["C"].scores == whole["C"].scores).all()


@pytest.mark.parametrize("behind", ["B", "C"])
@pytest.mark.parametrize("name", FOUR)
def test_a_party_that_is_a_round_behind_sets_the_start(name, behind, tmp_path):
    made, target = tables(rows=120)
    parts = parts_of(made, classes(target))
    settings = {"n_estimators": 4, "max_depth": 2}
    if name == "rf":
        settings["together"] = 1
    model = FOUR[name](**settings)
    whole = train(model, parts, keep=tmp_path)
    for number in (2, 3):
        (tmp_path / behind / "rounds" / f"round-{number}.json").unlink()
    resumed = train(model, parts, keep=tmp_path)
    assert resumed["C"].state == whole["C"].state
    assert resumed["B"].state == whole["B"].state


def test_a_finished_training_is_not_repeated(tmp_path):
    made, target = tables(rows=120)
    parts = parts_of(made, target)
    model = XGB(n_estimators=2, max_depth=2, task="regression")
    whole = train(model, parts, keep=tmp_path)
    sent = []

    def listen(name, value):
        sent.append(name)
        return value

    again = train_with("C", listen, model, parts, keep=tmp_path)
    assert again["C"].state == whole["C"].state
    assert "gradients" not in sent


def test_early_stopping_resumes_to_the_same_end(tmp_path):
    made, target = tables(rows=200)
    parts = parts_of(made, target)
    settings = {"n_estimators": 12, "max_depth": 3, "task": "regression", "learning_rate": 1.0}
    settings |= {"validation": 0.3, "patience": 2}
    whole = train(XGB(**settings), parts)
    assert whole["C"].stop_reason.startswith("no better")
    model = XGB(**settings)
    with pytest.raises(Died):
        train_with("C", dying("trees", 3), model, parts, keep=tmp_path)
    resumed = train(model, parts, keep=tmp_path)
    assert resumed["C"].state == whole["C"].state
    assert resumed["C"].stop_reason == whole["C"].stop_reason


def kept_run(folder, rows=80):
    made, target = tables(rows=rows)
    model = XGB(n_estimators=2, max_depth=2, task="regression")
    train(model, parts_of(made, target), keep=folder)
    return made, target


@pytest.mark.parametrize("change", ["settings", "cells", "labels", "weights"])
def test_checkpoints_of_another_training_are_refused(change, tmp_path):
    made, target = kept_run(tmp_path)
    settings = {"n_estimators": 2, "max_depth": 2, "task": "regression"}
    weights = None
    if change == "settings":
        settings["learning_rate"] = 0.1
    if change == "cells":
        made["B"] = table_of(
            made["B"].frame.assign(B0=made["B"].frame["B0"].iloc[::-1].values), "B"
        )
    if change == "labels":
        target = target[::-1]
    if change == "weights":
        weights = np.arange(80.0)
    with pytest.raises(StoreError, match="kept by another job"):
        train(XGB(**settings), parts_of(made, target, weights), keep=tmp_path)


def test_damaged_checkpoints_are_refused(tmp_path):
    made, target = kept_run(tmp_path)
    (tmp_path / "B" / "rounds" / "round-1.json").write_text("{")
    model = XGB(n_estimators=2, max_depth=2, task="regression")
    with pytest.raises(StoreError, match="damaged"):
        train(model, parts_of(made, target), keep=tmp_path)


def test_checkpoints_hold_no_key_and_nothing_of_others(tmp_path):
    made, target = tables(rows=80)
    frame = made["B"].frame.rename(columns={"B0": "MARKER"})
    made["B"] = table_of(frame, "B")
    model = XGB(n_estimators=2, max_depth=2, task="regression")
    train(model, parts_of(made, target), keep=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["B", "C"]
    for path in (tmp_path / "C" / "rounds").iterdir():
        assert b"MARKER" not in path.read_bytes()
    of_b = {path.name for path in (tmp_path / "B" / "rounds").iterdir()}
    assert of_b == {"round-0.json", "round-1.json"}
    shutil.rmtree(tmp_path / "B")
    # B has none: all start afresh.
    assert splits(train(model, parts_of(made, target), keep=tmp_path))
