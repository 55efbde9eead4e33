"""The PU experiment: its trials, its baselines, its goals, and a tiny run on built-in data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from benchmarks import pu, pu_baselines, pu_trials
from benchmarks.peers import PeerMissing
from vfsl.datasets import load
from vfsl.errors import DataError


def separable(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.random(rows) < 0.3
    columns = rng.normal(size=(rows, 4)) + np.where(truth, 1.5, 0.0)[:, None]
    known = truth & (rng.random(rows) < 0.4)
    return columns, truth, known


def test_a_trial_marks_a_share_of_the_rarer_class():
    data = load("breast_cancer")
    one = pu.trial("breast_cancer", data, 280, 0.3, seed=1)
    assert len(one.train) == len(one.test) == 280
    assert not (one.known & ~one.truth).any()
    assert one.known.sum() == round(0.3 * one.truth.sum())
    assert one.truth.mean() < 0.5
    assert data.label not in one.train
    assert len(one.hidden) == 280 - one.known.sum()
    other = pu.trial("breast_cancer", data, 280, 0.3, seed=2)
    assert not one.train.equals(other.train)


def test_biased_trials_prefer_high_values():
    data = load("breast_cancer")
    fair, by_b, by_c = (pu.trial("x", data, 280, 0.3, 0, biased=party) for party in ("", "B", "C"))
    first, later = fair.train.columns[0], fair.train.columns[15]
    for column, biased in ((first, by_b), (later, by_c)):
        assert biased.train[column][biased.known].mean() > fair.train[column][fair.known].mean()


@pytest.mark.parametrize("kind", ["logistic", "boosted"])
def test_pooled_baselines_rank(kind):
    columns, truth, known = separable()
    test, test_truth, _ = separable(seed=1)
    answers = {
        "naive": pu_baselines.naive(kind, columns, known, test),
        "weighted": pu_baselines.elkan_noto_weighted(kind, columns, known, test),
        "bagging": pu_baselines.bagging(kind, columns, known, test, 5, np.random.default_rng(0)),
        "oracle": pu_baselines.oracle(kind, columns, truth, test),
    }
    for name, (rank, scores) in answers.items():
        assert roc_auc_score(truth[~known], rank[~known]) > 0.75, name
        assert roc_auc_score(test_truth, scores) > 0.8, name


def test_nnpu_learns():
    columns, _, known = separable()
    test, test_truth, _ = separable(seed=1)
    _, scores = pu_baselines.nnpu(columns, known, test, 0.2, np.random.default_rng(0), epochs=40)
    assert roc_auc_score(test_truth, scores) > 0.85


@pytest.mark.parametrize("prior", [0.1, 0.9])
def test_the_gradient_of_nnpu_is_that_of_its_risk(prior):
    """Against differences, on both sides of the bend."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def risk(g):
        p, u = g[:3], g[3:]
        rest = sigmoid(u).mean() - prior * sigmoid(p).mean()
        return prior * sigmoid(-p).mean() + rest if rest >= 0 else -rest

    g = np.array([1.0, 0.5, 2.0, -1.0, 0.3])
    small = 1e-6 * np.eye(5)
    differences = [(risk(g + e) - risk(g - e)) / 2e-6 for e in small]
    np.testing.assert_allclose(pu_baselines.nnpu_gradient(g, 3, prior), differences, atol=1e-8)


def test_the_networks_gradients_are_right():
    rng = np.random.default_rng(0)
    network, columns = pu_baselines.Network(3, 5, rng), rng.normal(size=(7, 3))
    outputs = rng.normal(size=7)
    network.forward(columns)
    gradients = network.gradients(outputs)
    for weights, gradient in zip(network.weights, gradients, strict=True):
        flat, place = weights.reshape(-1), 0
        kept = flat[place]
        flat[place] = kept + 1e-6
        above = network.forward(columns) @ outputs
        flat[place] = kept - 1e-6
        below = network.forward(columns) @ outputs
        flat[place] = kept
        assert gradient.reshape(-1)[place] == pytest.approx((above - below) / 2e-6, abs=1e-6)


def test_truth_is_for_metrics_only():
    """Shuffled truth with the same known positives gives the same scores and reliable rows."""
    data = load("breast_cancer")
    one = pu.trial("x", data, 280, 0.3, 0)
    other = replace(one, truth=np.random.default_rng(0).permutation(one.truth))
    rows = [pu.vfpu(pu.VFPU(rounds=4), each) for each in (one, other)]
    for same in ("prior", "prior by best bin", "reliable"):
        assert rows[0][same] == rows[1][same]
    assert rows[0]["hidden AP"] != rows[1]["hidden AP"]


def _row(method, value, **more):
    return {"set": "census", "known": 0.1, "method": method, "test AUC": value} | more


def test_goals():
    reached = [_row("VFPU lgb", 0.873, **{"precision at k": 0.61}), _row("VFPU lr", 0.88)]
    cost = {"set": "synthetic", "method": "VFPU lr, plain", "messages": 136, "core-s": 9.0}
    lines = pu.goals([*reached, cost])
    assert len(lines) == 5
    assert all(line.endswith(": reached.") for line in lines), lines
    missed = [_row("VFPU lgb", 0.871, **{"precision at k": 0.60})]
    lines = pu.goals([*missed, cost | {"messages": 200, "core-s": 11.0}])
    assert [line.endswith("NOT reached.") for line in lines] == [True] * 4


def test_a_missing_set_and_a_missing_peer_are_notes(monkeypatch):
    def absent(*given, **named):
        raise DataError("the data folder is not there.")

    def no_peer(*given, **named):
        raise PeerMissing("no network")

    monkeypatch.setattr(pu_trials, "load", absent)
    monkeypatch.setattr(pu, "QUICK", replace(pu.QUICK, speed_rows=600))
    outcome = pu.run(True, lambda text: None)
    assert any("is left out: the data folder is not there." in note for note in outcome.notes)
    monkeypatch.setattr(pu, "peer_python", no_peer)
    notes: list[str] = []
    assert not pu._peer(pu.FULL, notes)
    assert notes == ["pulearn is left out: no network"]


@pytest.mark.slow
def test_a_quick_run_on_built_in_data():
    said: list[str] = []
    outcome = pu.run(True, said.append)
    table = pd.DataFrame(outcome.rows).set_index("method")
    assert said
    assert "VFPU lr" in table.index
    assert set(pu.ABLATION) == {
        name.removeprefix("VFPU lr, ")
        for name in table.index
        if name.startswith("VFPU lr, ")
        if "biased" not in name
    } - {"plain"}
    auc = table["test AUC"]
    assert auc["VFPU lr"] > auc["oracle, pooled logistic"] - 0.05
    assert (auc.dropna() > 0.5).all()
    assert table.loc["VFPU lr, plain", "messages"] < 200
    assert outcome.notes[-1] == "Goals are judged in the full form only."
