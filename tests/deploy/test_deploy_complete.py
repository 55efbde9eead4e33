"""Completion between organisations: the same cells as in memory, resume, consent, privacy."""

import threading

import pandas as pd
import pytest

from vfsl.channel import relayed
from vfsl.completion import bases
from vfsl.completion.vfpum import VFPUM
from vfsl.estimators.trees import RandomForest
from vfsl.lead import Leader
from vfsl.record import RunRecord

# Nothing is drawn towards the mean, which would hide what forests draw.
TREES = 'base = ["rf"]\ntau = 0.05\nfolds = 2\nshift = "none"\nshrink = false\n'
SAME_TREES = dict(rounds=3, base=["rf"], tau=0.05, folds=2, shift="none", shrink=False)


def complete_only(kit, more=""):
    return kit.align + kit.complete + more


@pytest.fixture
def small_forests(monkeypatch):
    """Forests that draw rows and columns, but few trees: encryption is not what is tried here."""

    def forest(task):
        return RandomForest(task=task, n_estimators=2, max_depth=2, columns=0.5)

    monkeypatch.setitem(bases._TREES, "rf", forest)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(relayed, "_PROBE_EVERY", 0.05)
    monkeypatch.setattr(relayed, "_GONE_SECONDS", 0.2)


def test_completed_cells_are_those_of_the_same_run_in_memory(world, kit):
    engine, errors = world.attempt(job=complete_only(kit))
    assert errors == {}
    done = kit.assert_same_completion(
        world.read(), world.results, world.folder / "plans", 2, {"rounds": 3}
    )
    assert {route.route for route in done.routes} == {"high"}
    assert list(done.table.columns) == ["MARKER-b1", "MARKER-b2"]
    assert len(done.table) == 10
    carried = b"\n".join(envelope for _, _, envelope in engine.seen)
    for marker in (b"MARKER", b"vfpu-m", b"numbers"):
        assert marker not in carried
    quality = pd.read_csv(world.results("B") / "quality-2.csv")
    assert list(quality["column"]) == list(done.table.columns)


def test_what_a_completion_told_is_in_each_ledger(world, kit):
    world.attempt(job=complete_only(kit))
    flows = {party: RunRecord.load(world.results(party)).ledger for party in "BCK"}
    told = {flow.message for flow in flows["C"] if flow.receiver == "B"}
    assert {"size", "masked", "predictions", "difference"} <= told
    orders = [flow for flow in flows["B"] if flow.message == "order"]
    assert {flow.receiver for flow in orders} == {"C", "K"}
    step = RunRecord.load(world.results("B")).steps[-1]
    assert (step.metrics["rows"], step.metrics["columns"]) == (10, 2)
    assert step.details["missing"] == "B"
    assert RunRecord.load(world.results("C")).steps[-1].metrics == {}
    words = " ".join(RunRecord.load(world.results("A")).steps[0].notes)
    for name in ("completed columns", "row differences"):
        assert name in words
    assert "repeated predictions" not in words  # only the last ones are opened


@pytest.mark.slow
def test_forests_and_associations_give_the_same_cells_too(world, kit, small_forests):
    _, errors = world.attempt(job=complete_only(kit, TREES))
    assert errors == {}
    kit.assert_same_completion(world.read(), world.results, world.folder / "plans", 2, SAME_TREES)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["B", "C", "K"])
def test_a_completion_goes_on_from_the_columns_that_were_finished(
    world, kit, small_forests, impatient, monkeypatch, victim
):
    """Forests draw from the numbers of their tasks: a resumed run must draw the same."""
    groups, engine = [], world.engine()
    original = VFPUM._train_group

    def train(self, fitting, group, context, folds, number):
        groups.append(number)
        if groups == [0, 1]:
            engine.gone.add(victim)
        return original(self, fitting, group, context, folds, number)

    monkeypatch.setattr(VFPUM, "_train_group", train)
    _, errors = world.attempt(job=complete_only(kit, TREES), engine=engine)
    assert groups == [0, 1]
    assert set(errors) == set("ABCK")
    for party in "ABCK".replace(victim, ""):
        assert world.kept(party).status().party == victim
    _, errors = world.attempt(number=2)
    assert errors == {}
    assert groups == [0, 1, 1]
    groups.append("in memory")
    kit.assert_same_completion(world.read(), world.results, world.folder / "plans", 2, SAME_TREES)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("completed columns", ""),
        ("row differences", ""),
        ("repeated predictions", 'protocol = "rounds"\n'),
        ("gradients", 'protocol = "rounds"\n'),
    ],
)
def test_a_completion_needs_the_consent_of_both_parties(world, kit, name, more):
    for party in "BC":
        text = kit.party_text(party).replace(f', "{name}"', "").replace(f'"{name}", ', "")
        assert name not in text
        world.write_party(party, text)
    world.attempt(job=complete_only(kit, more))
    sentence = world.kept("C").status().sentence
    assert world.kept("C").status().state == "refused"
    for party in "BC":
        assert f"'{party}' has not allowed the " in sentence
    assert f"{name!r}" in sentence
    assert "'A'" not in sentence


def test_a_leader_that_orders_unknown_work_is_refused_and_named(world, kit, monkeypatch):
    once = threading.Event()
    original = Leader.order

    def order(self, do, **facts):
        wrong = "everything" if not once.is_set() else do
        once.set()
        return original(self, wrong, **facts)

    monkeypatch.setattr(Leader, "order", order)
    _, errors = world.attempt(job=complete_only(kit))
    assert "ordered unknown work" in str(errors["C"])
    assert errors["C"].party == "B"
