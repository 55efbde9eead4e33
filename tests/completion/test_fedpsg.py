"""FedPSG on whole federations: the result, its routes, its quality, and what it refuses."""

import dataclasses
from functools import partial

import numpy as np
import pandas as pd
import pytest

import vfsl
from tests.completion.psg_cases import federation, frames
from vfsl.completion import bases
from vfsl.completion.bases import make_pair
from vfsl.completion.columns import MEAN, USE
from vfsl.completion.ensembles import Ensemble
from vfsl.completion.fedpsg import FedPSG, JointParts
from vfsl.errors import ConfigError, DataError, ProtocolError, VfslError
from vfsl.estimators import XGB
from vfsl.lead import Leader


@pytest.fixture(scope="module")
def case():
    fed, truth = federation(common=200, rest=150)
    return fed, truth, FedPSG(rounds=3).fit_complete(fed, given="A", missing="B")


def test_the_table_is_in_the_users_units(case):
    fed, truth, done = case
    table = done.table
    rest = fed.tables["A"].ids[fed.plan["A"].rest]
    assert table.index.tolist() == rest.tolist()
    assert list(table.columns) == ["income", "visits", "colour", "noise"]
    assert table.dtypes.astype(str).to_dict() | {"colour": ""} == {
        "income": "float64",
        "visits": "int64",
        "colour": "",
        "noise": "float64",
    }
    known = fed.tables["B"].frame
    assert table["visits"].between(known["visits"].min(), known["visits"].max()).all()
    assert table["income"].between(known["income"].min(), known["income"].max()).all()
    assert set(table["colour"]) <= {"red", "blue"}
    assert np.corrcoef(table["income"], truth.loc[table.index, "income"])[0, 1] > 0.9
    assert (table["colour"] == truth.loc[table.index, "colour"]).mean() > 0.8


def test_every_cell_says_where_it_comes_from(case):
    _, _, done = case
    lines = done.provenance
    assert lines.index.equals(done.table.index)
    assert set(lines["income"]["route"]) == {"high"}
    assert set(lines["noise"]["model"]) == {"mean"}
    assert lines["income"]["round"].between(0, 3).all()
    assert lines["colour"]["confidence"].between(0.5, 1).all()
    moved = lines["colour"]["round"] > 0
    assert (lines["colour"]["confidence"][moved] >= 0.8).all()


def test_quality_and_verdicts_come_from_held_out_rows(case):
    _, truth, done = case
    quality = done.quality
    assert quality.loc["income", "verdict"] == USE
    assert quality.loc["noise", "verdict"] == MEAN
    hidden = truth.loc[done.table.index, "income"]
    error = np.sqrt(((done.table["income"] - hidden) ** 2).mean())
    assert quality.loc["income", "rmse"] == pytest.approx(error, rel=0.25)
    right = (done.table["colour"] == truth.loc[done.table.index, "colour"]).mean()
    assert quality.loc["colour", "accuracy"] == pytest.approx(right, abs=0.08)
    assert quality.loc["colour", "accuracy of mode"] < quality.loc["colour", "accuracy"]
    assert quality["shape"].between(0, 1).all()
    assert quality["coverage"].between(0.85, 0.95).all()


def test_intervals_and_sets_cover_hidden_truth(case):
    _, truth, done = case
    hidden = truth.loc[done.table.index]
    for name in ("income", "visits", "noise"):
        low, high = done.intervals[name]["low"], done.intervals[name]["high"]
        assert abs(((hidden[name] >= low) & (hidden[name] <= high)).mean() - 0.9) < 0.08
    sets = done.sets["colour"]
    inside = [sets.loc[row, hidden.loc[row, "colour"]] for row in sets.index]
    assert abs(np.mean(inside) - 0.9) < 0.08
    np.testing.assert_allclose(done.probabilities["colour"].sum(axis=1), 1)


def test_steps_and_bytes_are_in_the_ledger(case):
    fed, _, _ = case
    steps = [step.name for step in fed.record.steps]
    assert steps == ["align", "cross-fit", "vfpu-m", "shift", "completion"]
    ledger = fed.ledger
    ledger = ledger[ledger.step != "align"]
    told = ledger[(ledger.sender == "A") & (ledger.receiver == "B") & (ledger.kind == "plain")]
    assert set(told.message) <= {"size", "rows", "kept", "columns", "difference"}
    assert ledger.fact.str.len().min() > 0


def test_routing_by_association_and_by_the_best_tau():
    fed, _ = federation(common=200, rest=60)
    strict = FedPSG(tau=0.5, rounds=2, low="mean").fit_complete(fed)
    by = {route.column: route for route in strict.routes}
    assert by["noise"].route == "low"
    assert all((route.measure > 0.5) == (route.route == "high") for route in strict.routes)
    assert {column.model for column in strict.columns.values() if column.route == "low"} == {"mean"}
    auto = FedPSG(tau="auto", rounds=2).fit_complete(fed)
    high = {route.column for route in auto.routes if route.route == "high"}
    assert {"income", "visits", "colour"} <= high
    everything = FedPSG(tau=1.0, rounds=2).fit_complete(fed)
    assert {route.route for route in everything.routes} == {"low"}
    # Below τ, yet a direct model is better than the mean out of fold: low="auto" finds it.
    assert everything.columns["income"].model == "direct linear"
    assert everything.columns["noise"].model == "mean"


def test_the_papers_preset():
    fed, _ = federation(common=200, rest=60)
    done = FedPSG(preset="paper", tau=0.2, rounds=2, low="hot-deck").fit_complete(fed)
    income = done.columns["income"]
    assert income.model == "vfpu-m linear"
    settings = next(step for step in fed.steps if step.name == "vfpu-m").settings
    assert settings["context"] == "preliminary"
    assert settings["confidence"] == "paper"
    assert settings["shrink"] is False
    assert FedPSG(preset="paper").resolve().low == "tabddpm"
    assert FedPSG().resolve().low == "auto"


def test_local_methods_complete_the_low_route():
    fed, _ = federation(common=200, rest=60)
    deck = FedPSG(tau=0.45, rounds=1, low="hot-deck").fit_complete(fed)
    low = [name for name, column in deck.columns.items() if column.route == "low"]
    assert "noise" in low
    assert {deck.columns[name].model for name in low} == {"hot-deck"}
    assert deck.quality.loc["noise", "verdict"] == MEAN  # a random donor is worse than the mean
    mixed = FedPSG(
        tau=0.45, rounds=1, low=lambda: Ensemble(["mean", "hot-deck"], how="stacking")
    ).fit_complete(fed)
    assert set(mixed.table["noise"].notna()) == {True}


def test_what_never_qualified_can_be_left_or_filled_locally():
    fed, _ = federation(common=200, rest=60)
    left = FedPSG(rounds=2, confidence="paper", remainder="leave").fit_complete(fed)
    cells = left.provenance["income"]["round"] > 0
    assert 0 < cells.sum() < 60
    assert (left.table["income"].notna() == cells).all()
    local = FedPSG(rounds=2, confidence="paper", remainder="mean").fit_complete(fed)
    mean = fed.tables["B"].frame["income"].mean()
    np.testing.assert_allclose(local.table["income"][~cells], mean)
    assert local.columns["income"].model == "vfpu-m linear, else mean"


def test_the_same_seed_gives_the_same_table():
    tables = []
    for _ in range(2):
        fed, _ = federation(common=120, rest=60)
        tables.append(FedPSG(rounds=2).fit_complete(fed).table)
    pd.testing.assert_frame_equal(*tables)


@pytest.mark.slow
def test_the_best_of_several_bases_is_taken():
    fed, _ = federation(common=120, rest=40)
    done = FedPSG(base=("linear", "xgb"), rounds=1).fit_complete(fed)
    assert done.columns["income"].model in ("direct linear", "direct xgb")
    assert [step.name for step in fed.record.steps].count("cross-fit") == 2


@pytest.mark.parametrize(
    ("settings", "income", "red", "cells", "sure"),
    [
        ({}, 89248.59439887675, 43, 16, 224.40515873506044),
        ({"rounds": 3}, 89233.98853008614, 42, 44, 223.18728991849594),
        ({"base": "xgb"}, 89556.1080286303, 44, 16, 219.9748839413259),
        ({"base": "xgb", "rounds": 2}, 89199.03265221752, 43, 31, 221.76233241049215),
        ({"tau": 0.45, "rounds": 2}, 89230.84766881865, 42, 31, 223.16529270386243),
        ({"tau": 0.45, "low": "hot-deck"}, 89248.59439887675, 43, 16, 158.68403960225515),
        ({"tau": 0.5, "methods": ["hot-deck"]}, 89248.59439887677, 43, 16, 224.40515873506044),
        (
            {"preset": "paper", "tau": 0.2, "rounds": 2, "low": "auto"},
            88758.37797280686,
            40,
            16,
            109.56903003,
        ),
        (
            {"rounds": 2, "confidence": "paper", "remainder": "hot-deck"},
            85296.10551330609,
            40,
            19,
            18.806664789233793,
        ),
    ],
)
def test_the_cells_are_those_of_the_first_release(settings, income, red, cells, sure, monkeypatch):
    """The sum of a number, how often a category is filled in, pseudo-labels, and confidence.

    Trees judged splits by exact sums then.
    """
    made = bases._TREES["xgb"]
    monkeypatch.setitem(
        bases._TREES, "xgb", lambda task: dataclasses.replace(made(task), candidates="sums")
    )
    fed, _ = federation(common=150, rest=90)
    done = FedPSG(**settings).fit_complete(fed)
    lines = done.provenance
    # Trees open the scores of remaining rows rounded. Networks count in 32 bits, and processors
    # differ in the order in which they add.
    rounded = settings.get("base") == "xgb" or settings.get("preset") == "paper"
    rel = 1e-6 if rounded else 1e-9
    assert done.table["income"].sum() == pytest.approx(income, rel=rel)
    assert (done.table["colour"] == "red").sum() == red
    assert sum((lines[name]["round"] > 0).sum() for name in done.table) == cells
    total = sum(lines[name]["confidence"].sum() for name in done.table)
    assert total == pytest.approx(sure, rel=rel)


# ---- party by party ------------------------------------------------------------------------------


def test_every_party_plays_its_own_side(case):
    """The missing party has numbers in place of the other's ids; the others have nothing."""
    _, _, whole = case
    fed, _ = federation(common=200, rest=150)
    played = fed.play(partial(FedPSG(rounds=3).play, given="A", missing="B"))
    assert played["A"] is None
    assert played["K"] is None
    done = played["B"]
    assert done.table.index.tolist() == list(range(150))
    pd.testing.assert_frame_equal(
        done.table.reset_index(drop=True), whole.table.reset_index(drop=True)
    )
    assert [step.name for step in fed.steps] == [
        "align",
        "cross-fit",
        "vfpu-m",
        "shift",
        "completion",
    ]
    assert fed.steps[-1].notes == whole.notes


def test_a_party_without_a_role_sends_nothing():
    a, b, _ = frames()
    fed = vfsl.simulate({"A": a, "B": b.iloc[:120], "C": b}, scheme="plain")
    fed.align("A", "B", protocol="ecdh")
    done = FedPSG(shift="none").fit_complete(fed)
    assert len(done.table) == 80
    assert not any("C" in (flow.sender, flow.receiver) for flow in fed.steps[-1].flows)


@pytest.mark.parametrize("wrong", ["everything", "shift", "association", "vfpu-m", "vf-gain"])
def test_what_the_settings_do_not_ask_for_is_not_done(monkeypatch, wrong):
    """The others refuse an order that no party of the run has agreed to."""
    original = Leader.order

    def order(self, do, **facts):
        return original(self, wrong if do == "cross-fit" else do, **facts)

    monkeypatch.setattr(Leader, "order", order)
    fed, _ = federation(common=60, rest=20)
    with pytest.raises(ProtocolError, match="'B' ordered unknown work"):
        FedPSG(shift="none").fit_complete(fed)


def test_what_a_completion_asks_for():
    plain = ("output", "completed columns")
    assert FedPSG(shift="none").asks() == (plain,)
    assert FedPSG().asks() == (("disclosure", "row differences"), plain)
    assert ("disclosure", "embeddings") in FedPSG(low="vfgain").asks()
    papers = [name for _, name in FedPSG(preset="paper", base=("linear", "xgb")).asks()]
    assert papers == [
        "repeated predictions",
        "gradients",
        "tree partitions",
        "associations",
        "row differences",
        "completed columns",
    ]
    rounds = FedPSG(rounds=3, shift="none")
    assert rounds.asks() == rounds.asks("shares") == (plain,)
    assert [name for _, name in rounds.asks("bfv")][:2] == ["repeated predictions", "gradients"]
    assert ("disclosure", "repeated predictions") in FedPSG(rounds=3, base="xgb").asks()


def test_shares_complete_as_well_as_what_opens_more(case):
    _, truth, whole = case
    fed, _ = federation(common=200, rest=150, scheme="auto")
    done = FedPSG().fit_complete(fed)
    assert [route.route for route in done.routes] == [route.route for route in whole.routes]
    for name in ("income", "visits"):
        scale = truth[name].std()
        np.testing.assert_allclose(
            done.table[name].astype(float), whole.table[name].astype(float), atol=0.01 * scale
        )
        assert done.quality.loc[name, "skill"] == pytest.approx(
            whole.quality.loc[name, "skill"], abs=5e-3
        )
        low, high = (done.intervals[name][side] for side in ("low", "high"))
        inside = truth.loc[done.ids, name].between(low, high).mean()
        assert 0.8 < inside < 0.98
    right = [(one.table["colour"] == truth.loc[one.ids, "colour"]).mean() for one in (done, whole)]
    assert right[0] > right[1] - 0.03


@pytest.mark.parametrize(
    ("how", "scheme"),
    [
        ({}, "shares"),
        ({"rounds": 3}, "shares"),
        ({"protocol": "rounds"}, "bfv"),
        ({"stop": len}, "bfv"),
        ({"context": "preliminary"}, "bfv"),
        ({"preset": "paper"}, "bfv"),
    ],
)
def test_what_is_done_on_shares(how, scheme):
    fed, _ = federation(scheme="auto")
    parts = JointParts(FedPSG(**how).resolve(), fed.sites["B"], None, "A", "B")
    assert parts.roles_of(make_pair("linear")).scheme == scheme
    assert parts.roles_of(make_pair("xgb")).scheme == "shares"


@pytest.mark.slow
def test_parties_may_be_processes(case):
    _, _, whole = case
    fed, _ = federation(common=200, rest=150, on="processes")
    done = FedPSG(rounds=3).fit_complete(fed)
    pd.testing.assert_frame_equal(done.table, whole.table)
    assert done.recommend(base=XGB(n_estimators=2, max_depth=2)).measure == "AUC"


# ---- what is refused or noted --------------------------------------------------------------------


def made(a, b, **labels):
    fed = vfsl.simulate({"A": a, "B": b}, id="id", labels=labels, scheme="plain")
    fed.align("A", "B", protocol="ecdh")
    return fed


def test_few_common_rows_are_refused_with_advice():
    a, b, _ = frames()
    with pytest.raises(DataError, match="have 29 rows in common; completion needs at least 30"):
        FedPSG().fit_complete(made(a, b.iloc[:29]))


def test_no_overlap_is_refused():
    a, b, _ = frames()
    b["id"] = [f"stranger-{row}" for row in range(len(b))]
    with pytest.raises(DataError, match="has 0 rows, but the parties want at least 1"):
        FedPSG().fit_complete(made(a, b))


def test_nothing_to_complete():
    a, b, _ = frames()
    with pytest.raises(DataError, match="there is nothing to complete"):
        FedPSG().fit_complete(made(a, b))


def test_a_party_without_columns():
    a, b, _ = frames()
    fed = made(a, b.iloc[:100][["id", "colour"]], B="colour")
    with pytest.raises(DataError, match="Party B has no columns of its own"):
        FedPSG().fit_complete(fed)


def test_a_constant_column_is_completed_with_its_value_and_said():
    a, b, _ = frames()
    b.loc[:99, "noise"] = 7.5
    done = FedPSG(rounds=1).fit_complete(made(a, b.iloc[:120].drop(index=range(100, 120))))
    assert set(done.table["noise"]) == {7.5}
    assert done.columns["noise"].route == "constant"
    assert done.quality.loc["noise", "verdict"] == MEAN
    assert "'noise' of party B has one value in all common rows" in done.notes[0]


def test_categories_that_no_common_row_has_are_said():
    a, b, _ = frames()
    only = b.iloc[:60].copy()
    only["id"] = [f"of-b-{row}" for row in range(60)]
    only["colour"] = "green"
    done = FedPSG(rounds=1).fit_complete(made(a, pd.concat([b.iloc[:100], only])))
    assert set(done.table["colour"]) <= {"red", "blue"}
    assert any("1 category that no common row has" in note for note in done.notes)


def test_a_linear_map_of_the_given_columns_is_said():
    a, b, _ = frames()
    done = FedPSG(rounds=1).fit_complete(made(a[["id", "a0", "a1"]], b.iloc[:120]))
    assert any("up to a linear map" in note for note in done.notes)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tau": 1.5}, "The tau parameter of FedPSG must be a number from 0 to 1 or one of"),
        (
            {"tau": -0.1},
            "The tau parameter of FedPSG must be a number from 0 to 1 or one of",
        ),
        (
            {"tau": True},
            "The tau parameter of FedPSG must be a number from 0 to 1 or one of",
        ),
        (
            {"tau": "best"},
            "The tau parameter of FedPSG must be a number from 0 to 1 or one of",
        ),
        ({"preset": "papers"}, "The preset parameter of FedPSG must be one of"),
        ({"base": ()}, "must name at least one estimator"),
        ({"folds": 1}, "The folds parameter of FedPSG must be a whole number of at least 2"),
        ({"alpha": 2}, "The alpha parameter of FedPSG must be a number from 0 to 1"),
    ],
)
def test_bad_parameters(settings, text):
    with pytest.raises(ConfigError, match=text):
        FedPSG(**settings).resolve()


def test_unknown_parties(case):
    fed, _, _ = case
    with pytest.raises(ConfigError, match="missing parameter of fit_complete must be a party"):
        FedPSG().fit_complete(fed, given="A", missing="C")
    with pytest.raises(ConfigError, match="must be different"):
        FedPSG().fit_complete(fed, given="A", missing="A")


def test_unknown_low_methods_are_named(case):
    fed, _, _ = case
    with pytest.raises(ConfigError, match="Got 'tabdpm' instead; did you mean 'tabddpm'"):
        FedPSG(tau=1.0, low="tabdpm", rounds=1).fit_complete(fed)


def test_few_rows_bring_fewer_columns():
    """A linear base on 30 rows may see three columns of A, which has more."""
    fed, _ = federation(common=30, rest=40)
    assert len(fed.tables["A"].features) > 3
    done = FedPSG(folds=2).fit_complete(fed, given="A", missing="B")
    assert len(done.table) == 40


def test_values_that_few_rows_have_are_not_learned_by_a_linear_base():
    """Of a rare value the given party could solve its gradients for the rows that have it."""
    a, b, _ = frames(common=200, rest=50)
    b["seldom"] = np.where(np.arange(250) % 40 == 0, 7.0, 0.0)
    b["kind"] = np.where(np.arange(250) % 50 == 0, "odd", np.where(b["noise"] > 0, "up", "down"))
    fed = vfsl.simulate({"A": a, "B": b.iloc[:200]}, scheme="plain", seed=0)
    fed.align("A", "B", protocol="ecdh")
    done = FedPSG().fit_complete(fed)
    routes = {route.column: (route.route, route.by) for route in done.routes}
    assert routes["seldom"] == ("low", "rare values")
    assert routes["kind"][1] == "skill"
    assert any("'seldom'" in note and "which rows these are" in note for note in done.notes)
    assert set(done.probabilities["kind"].columns) == {"odd", "up", "down"}
    trees = FedPSG(base="rf").fit_complete(fed)
    assert "rare values" not in {route.by for route in trees.routes}


HANDSHAKE = {
    "rows",
    "columns",
    "kept",
    "resume",
    "order",
}  # what is said where nothing is left to do


class Stopped(Exception):
    """Somebody pressed Ctrl-C."""


@pytest.mark.parametrize("stop_at", [1, 2])
def test_an_interrupted_completion_goes_on(case, tmp_path, stop_at):
    """Stopped before any column of any step; what was finished is not done again."""
    _, _, whole = case
    state = {party: tmp_path / party for party in "AB"}
    heard = []

    def stop(event):
        if event.total is None:
            return  # begins and ends of parts, and their tasks
        heard.append(event)
        if len(heard) == stop_at:
            raise Stopped

    def again(on_event):
        fed, _ = federation(common=200, rest=150)
        return FedPSG(rounds=3).fit_complete(fed, state=state, on_event=on_event), fed

    with pytest.raises((Stopped, VfslError)):
        again(stop)
    done, fed = again(None)
    pd.testing.assert_frame_equal(done.table, whole.table)
    pd.testing.assert_frame_equal(done.quality, whole.quality)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    sent = {
        step.name: {flow.message for flow in step.flows}
        for step in fed.record.steps
        if step.name in ("cross-fit", "vfpu-m")
    }
    trained = {name: not said <= HANDSHAKE for name, said in sent.items()}
    # Events are: all columns of the cross-fit, then those of VFPU-M.
    assert trained == {"cross-fit": stop_at < 2, "vfpu-m": True}


def test_a_class_of_few_rows_is_completed_locally_on_shares_too():
    a, b, _ = frames(common=100, rest=40)
    b["flag"] = np.where(np.arange(140) % 25 == 0, "yes", "no")
    tables = {"A": a, "B": b.iloc[:100]}
    fed = vfsl.simulate(tables, id="id", scheme="auto", labels={"A": None, "B": None})
    fed.align("A", "B", protocol="ecdh")
    done = FedPSG(shift="none").fit_complete(fed)
    (route,) = (one for one in done.routes if one.column == "flag")
    assert (route.route, route.by) == ("low", "rare values")
    assert any("'flag'" in note and "to learn from" in note for note in done.notes)
