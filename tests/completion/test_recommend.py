"""Advice on how to train with completed columns."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import vfsl
from tests.completion.psg_cases import federation, frames
from vfsl.completion.comparing import blend_weights, row_losses, start_weights
from vfsl.completion.downstream import WAYS, Downstream, Way, make_fills
from vfsl.completion.fedpsg import FedPSG
from vfsl.completion.recommend import advise, recommend
from vfsl.errors import ConfigError
from vfsl.estimators import XGB, RandomForest

SMALL = XGB(n_estimators=12, max_depth=3, learning_rate=0.3)
FEW = tuple(way for way in WAYS if way.name in ("own columns only", "completed", "mean and mode"))


@pytest.fixture(scope="module")
def case():
    fed, truth = federation(common=150, rest=150)
    done = FedPSG(rounds=1).fit_complete(fed)
    return fed, truth, done, done.recommend(base=SMALL)


def with_label(fed, name, cells):
    """The federation with one more label at A."""
    table = fed.tables["A"].with_column(name, cells, "label")
    return fed.with_rows(fed.plan, {"A": table})


def test_losses_by_hand():
    scores = np.array([[0.0], [np.log(3.0)]])
    np.testing.assert_allclose(row_losses(scores, np.array([1, 0]), True), np.log([2.0, 4.0]))
    three = np.log(np.array([[0.5, 0.25, 0.25]]))
    np.testing.assert_allclose(row_losses(three, np.array([1]), True), [np.log(4.0)])
    np.testing.assert_allclose(row_losses(np.array([[3.0]]), np.array([5.0]), False), [4.0])


def test_blends_prefer_what_is_right_and_stay_near_equal_without_evidence():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 5000)
    good = (2 * codes - 1 + 0.5 * rng.normal(size=5000))[:, None]
    noise = rng.normal(size=(5000, 1)) * 2
    half = np.full(2, 0.5)
    found = blend_weights(np.stack([good, noise]), codes, True, half)
    assert found[0] > 0.95
    few = blend_weights(np.stack([good[:10], noise[:10]]), codes[:10], True, half, pull=1e4)
    np.testing.assert_allclose(few, [0.5, 0.5], atol=0.01)
    assert found.sum() == pytest.approx(1)


def test_ways_that_fill_alike_share_a_start():
    found = dict(zip((way.name for way in WAYS), start_weights(WAYS), strict=True))
    assert sum(found.values()) == pytest.approx(1)
    alike = ["completed", "completed, weighted", "completed where it pays"]
    assert sum(found[name] for name in alike) == pytest.approx(found["mean and mode"])
    assert found["completed by draws"] == found["own columns only"]


def test_the_advice_names_every_way(case):
    _, _, _, advice = case
    assert list(advice.table.index) == [*(way.name for way in WAYS), "blend"]
    assert advice.measure == "AUC"
    assert advice.weights.sum() == pytest.approx(1)
    assert advice.weights["common rows only"] == 0
    assert advice.table["score"].between(0.5, 1).all()
    own, blend = advice.table["score"]["own columns only"], advice.table["score"]["blend"]
    assert advice.gain == pytest.approx(blend - own)
    assert "use A's own columns only" in advice.text
    assert blend >= own - 0.02


def test_held_out_scores_are_not_training_scores(case):
    """A label that nothing predicts has a held-out AUC near one half in every way."""
    fed, _, done, _ = case
    coin = np.random.default_rng(3).integers(0, 2, len(fed.tables["A"]))
    other = with_label(fed, "coin", coin)
    advice = recommend(done, other, "A", "B", base=SMALL, label="coin", ways=FEW)
    assert advice.table["score"].between(0.35, 0.65).all()


def test_predictions_of_new_rows(case):
    fed, _, _, advice = case
    both = advice.predict(fed)
    label = fed.tables["A"].column("y").to_numpy()
    overlap = fed.plan["A"].overlap
    assert roc_auc_score(label[overlap], both) > 0.8
    single = advice.predict(fed, way="completed")
    assert not np.allclose(single, both)
    alone = advice.predict_alone(fed.tables["A"])
    assert alone.shape == (300,)
    same = advice.predict(fed, way="own columns only")
    np.testing.assert_allclose(alone[overlap], same)


def test_common_rows_of_the_training_are_not_asked(case):
    """The scores are those of the same shares when they know nothing of training rows."""
    fed, _, _, advice = case
    both = advice.predict(fed)
    assert not fed.transcript.entries
    forgetful = {
        party: {
            name: replace(way, share=way.share and replace(way.share, scores=None, seen=None))
            for name, way in ways.items()
        }
        for party, ways in advice.trained.items()
        if ways
    }
    asked = replace(advice, trained=forgetful).predict(fed)
    assert "total scores" in {entry.message for entry in fed.transcript.entries}
    assert asked == pytest.approx(both, abs=1e-5)


def test_fills_differ_on_remaining_rows_only(case):
    _, _, done, _ = case
    tables = make_fills(done, np.random.default_rng(0))
    assert set(tables) == {"completed", "mean", "nothing", "gated", "drawn"}
    common = len(done.common)
    for table in tables.values():
        first = table.frame.iloc[:common]
        assert first["income"].tolist() == done.common.frame["income"].tolist()
        assert len(table) == common + len(done.ids)
    assert tables["nothing"].frame.iloc[common:].isna().all().all()
    assert tables["mean"].frame["income"].iloc[common:].nunique() == 1
    assert (
        tables["completed"].frame["income"].iloc[common:].tolist() == done.table["income"].tolist()
    )
    wide, narrow = (
        tables[name].frame["income"].iloc[common:].std() for name in ("drawn", "completed")
    )
    assert wide > narrow
    weak = [name for name, column in done.columns.items() if not column.helps]
    gaps = tables["gated"].frame.iloc[common:].isna().all()
    assert [name for name in gaps.index if gaps[name]] == weak


def test_weights_come_from_confidence_in_tenths(case):
    fed, _, _, _ = case
    sent = fed.record.steps
    flows = [flow for step in sent if step.name == "downstream" for flow in step.flows]
    told = [flow for flow in flows if flow.message == "confidence"]
    assert {(flow.sender, flow.receiver) for flow in told} == {("B", "A")}
    assert "in tenths" in told[0].fact


def test_regression_and_several_classes():
    fed, _ = federation(common=120, rest=60)
    done = FedPSG(rounds=1).fit_complete(fed)
    table = fed.tables["A"]
    number = table.column("a0").to_numpy() + np.random.default_rng(0).normal(size=len(table))
    other = with_label(fed, "number", number)
    advice = recommend(done, other, "A", "B", label="number", base=SMALL, ways=FEW)
    assert advice.measure == "R²"
    assert advice.predict(other).shape == (120,)
    thirds = np.digitize(number, np.quantile(number, [1 / 3, 2 / 3]))
    other = with_label(fed, "third", thirds)
    advice = recommend(done, other, "A", "B", label="third", base=SMALL, ways=FEW)
    assert advice.measure == "accuracy"
    np.testing.assert_allclose(advice.predict(other).sum(axis=1), 1)


def test_what_is_refused(case):
    _, _, done, _ = case
    with pytest.raises(ConfigError, match="label parameter of recommend must be a column"):
        done.recommend(label="nothing of A")
    with pytest.raises(ConfigError, match="must be boosted trees"):
        done.recommend(base=RandomForest())


def test_a_label_at_the_missing_party_only_is_refused():
    a, b, label = frames()
    b["y"] = label
    fed = vfsl.simulate({"A": a, "B": b.iloc[:120]}, labels={"B": "y"}, scheme="plain")
    fed.align("A", "B", protocol="ecdh")
    done = FedPSG(folds=2, shift="none").fit_complete(fed)
    with pytest.raises(ConfigError, match="only B has one, and for common rows only"):
        done.recommend()


def test_advice_is_given_party_by_party(case):
    """Each party's own side: the missing one brings its completion, the given one its label."""
    fed, _, done, _ = case
    mine = replace(done, ids=np.arange(len(done.ids)), adviser=None)
    play = partial(advise, given="A", missing="B", base=SMALL, ways=FEW)
    played = fed.play(play, own={"B": {"completion": mine}})
    assert played["K"] is None
    assert set(played["B"]) == {way.name for way in FEW}
    assert set(played["A"].trained) == {"A"}  # nothing of B's is at A
    assert played["A"].label == ("A", "y")
    assert fed.steps[-1].settings["label"] == ["A", "y"]
    with pytest.raises(ConfigError, match="needs its completion"):
        fed.play(play)


def test_ways_alone_need_no_other_party(case):
    _, _, _, advice = case
    assert advice.trained["B"]["own columns only"].share is None
    assert isinstance(advice.model, Downstream)
    assert Way("own columns only", None).fill is None
