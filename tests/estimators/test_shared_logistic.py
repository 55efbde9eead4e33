"""Logistic regression on shares: the pooled model on weak and separable tables, and bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression as Pooled
from sklearn.metrics import roc_auc_score

from vfsl.channel import Transcript, run_together
from vfsl.channel.rounds import count_rounds
from vfsl.crypto import shares
from vfsl.crypto.shares import Session
from vfsl.errors import BoundExceeded
from vfsl.estimators.shared import logistic as shared_logistic
from vfsl.estimators.shared.logistic import LogisticPlan, fit_logistic, to_floats
from vfsl.values import Disclosure, Masked

L2 = 1e-3
SPEAKS = {
    **shares.DISCLOSURES,
    **shared_logistic.DISCLOSURES,
    "weights": Disclosure(Masked, "the receiver's weights"),
}


def people(rows, sizes, strength, seed=0, outputs=1, rare=0.3):
    """Columns with common factors, one skewed and one rare; the label and a constant are C's."""
    rng = np.random.default_rng([seed, rows])
    factors = rng.normal(size=(rows, 3))
    columns = {
        party: 0.5 * factors @ rng.normal(size=(3, size)) + rng.normal(size=(rows, size))
        for party, size in sizes.items()
    }
    columns["B"][:, 0] = np.exp(columns["B"][:, 0])
    columns["C"][:, 0] = rng.random(rows) < 0.05
    columns = {party: (x - x.mean(axis=0)) / x.std(axis=0) for party, x in columns.items()}
    scores = (
        strength
        * np.hstack(list(columns.values()))
        @ rng.normal(size=(sum(sizes.values()), outputs))
    )
    scores -= np.quantile(scores, 1 - rare, axis=0)
    columns["C"] = np.column_stack([columns["C"], np.ones(rows)])
    return columns, (rng.random(scores.shape) < expit(scores)).astype(float)


def plan_of(columns, label, **facts):
    sizes = {party: x.shape[1] for party, x in columns.items()}
    return LogisticPlan(
        rows=len(label), columns=sizes, label_holder="C", l2=L2, outputs=label.shape[1], **facts
    )


def fit_plain(columns, label, weights=None, angles=None, **facts):
    plan = plan_of(columns, label, **facts)
    session = Session.plain(angles)
    fitted = fit_logistic(session, columns, label, weights, plan=plan)
    found = {
        party: to_floats(one.open(party, name="weights"), fitted.back[party])
        for party, one in fitted.weights.items()
    }
    return fitted, found


def fit_shared(columns, label, weights=None, transcript=None, **facts):
    """What each party gets, and the dealer's masks of the waves."""
    plan = plan_of(columns, label, **facts)
    angles = []

    def play(channel):
        me = channel.me
        inner = channel.within("fit", SPEAKS)
        with Session.join(inner, list(columns), "K") as session:
            if me == "K":
                session.angles = angles
            mine = {me: columns[me]} if me != "K" else {}
            held = (label, weights) if me == "C" else (None, None)
            fitted = fit_logistic(session, mine, *held, plan=plan)
            found = None
            for party, one in fitted.weights.items():
                opened = one.open(party, name="weights")
                if opened is not None:
                    found = to_floats(opened, fitted.back[party])
            return replace(fitted, weights={}), found

    results = run_together(
        dict.fromkeys([*columns, "K"], play), transcript=transcript or Transcript(), timeout=60
    )
    return results["C"][0], {party: results[party][1] for party in columns}, angles


def fit_pooled(columns, label, weights=None):
    """By party, as the shared fit."""
    everything = np.hstack([columns[party] for party in columns if party != "C"] + [columns["C"]])
    found = []
    for k in range(label.shape[1]):
        model = Pooled(C=1 / (len(label) * L2), tol=1e-10, max_iter=500, solver="newton-cholesky")
        model.fit(everything[:, :-1], label[:, k], weights)
        found.append(np.append(model.coef_[0], model.intercept_))
    joined, at, result = np.column_stack(found), 0, {}
    for party in [p for p in columns if p != "C"] + ["C"]:
        result[party] = joined[at : at + columns[party].shape[1]]
        at += columns[party].shape[1]
    return result


def judge(columns, label, found, weights=None):
    """AUC, log-loss and the largest score."""
    scores = sum(columns[party] @ found[party] for party in columns)
    loss = np.logaddexp(0, scores) - label * scores
    auc = np.mean([roc_auc_score(label[:, k], scores[:, k]) for k in range(label.shape[1])])
    rows = np.ones(len(label)) if weights is None else weights
    return float(auc), float((rows[:, None] * loss).mean()), float(np.abs(scores).max())


def assert_pooled(columns, label, found, weights=None):
    pooled = judge(columns, label, fit_pooled(columns, label, weights), weights)
    shared = judge(columns, label, found, weights)
    assert abs(shared[0] - pooled[0]) < 5e-4
    assert abs(shared[1] / pooled[1] - 1) < 5e-3
    return pooled


@pytest.mark.parametrize("strength", [0.1, 0.5, 2.0])
def test_the_model_is_the_pooled_one(strength):
    columns, label = people(3000, {"B": 4, "C": 3}, strength)
    fitted, found = fit_plain(columns, label)
    assert_pooled(columns, label, found)
    assert fitted.stop_reason == "tolerance"
    assert fitted.losses == []


@pytest.mark.parametrize("rows", [300, 3000])
def test_separable_tables_with_large_scores(rows):
    columns, label = people(rows, {"B": 5, "C": 4}, 20.0, seed=1)
    fitted, found = fit_plain(columns, label)
    auc, _, largest = assert_pooled(columns, label, found)
    assert auc > 0.99
    assert largest > 25  # beyond the first two series
    assert fitted.stop_reason == "tolerance"


def test_rare_positives():
    columns, label = people(3000, {"B": 4, "C": 3}, 1.0, seed=2, rare=0.02)
    _, found = fit_plain(columns, label)
    assert_pooled(columns, label, found)


def test_columns_of_one_party_in_another():
    columns, label = people(2000, {"B": 4, "C": 3}, 1.0, seed=3)
    columns["B"] = np.column_stack([columns["B"], columns["C"][:, 1], columns["B"][:, 0]])
    _, found = fit_plain(columns, label)
    assert_pooled(columns, label, found)


def test_row_weights():
    columns, label = people(3000, {"B": 4, "C": 3}, 1.0, seed=4)
    weights = np.random.default_rng(0).exponential(size=len(label))
    weights /= weights.mean()
    peak = int(np.ceil(np.log2(weights.max())))
    _, found = fit_plain(columns, label, weights, peak=peak)
    assert_pooled(columns, label, found, weights)
    unweighted = judge(columns, label, fit_pooled(columns, label), weights)
    assert judge(columns, label, found, weights)[1] < unweighted[1]


def test_several_outputs_are_several_models():
    columns, label = people(2000, {"B": 3, "C": 3}, 1.0, seed=5, outputs=3)
    _, found = fit_plain(columns, label)
    pooled = fit_pooled(columns, label)
    for party in columns:
        np.testing.assert_allclose(found[party], pooled[party], atol=0.02)


@pytest.mark.parametrize("parties", ["BC", "CB", "ABC", "BCDA"])
def test_between_parties_as_in_one_place(parties):
    columns, label = people(400, dict.fromkeys(sorted(parties), 2), 1.0, seed=6)
    columns = {party: columns[party] for party in parties}
    fitted, found, angles = fit_shared(columns, label)
    again, plain = fit_plain(columns, label, angles=angles)
    assert fitted.rounds == again.rounds
    assert fitted.stop_reason == "tolerance"
    for party in parties:
        np.testing.assert_array_equal(found[party], plain[party])
    assert_pooled(columns, label, found)


def test_between_parties_with_weights_and_outputs():
    columns, label = people(300, {"B": 2, "C": 2}, 3.0, seed=7, outputs=2)
    weights = np.random.default_rng(0).uniform(0.1, 1.9, size=label.shape)
    weights /= weights.mean(axis=0)
    _, found, angles = fit_shared(columns, label, weights, peak=1)
    _, plain = fit_plain(columns, label, weights, angles=angles, peak=1)
    for party in columns:
        np.testing.assert_array_equal(found[party], plain[party])


def test_the_loss_is_shown_to_the_label_holder_if_asked_for():
    columns, label = people(500, {"B": 2, "C": 2}, 1.0, seed=8)
    transcript = Transcript()
    fitted, found, _ = fit_shared(columns, label, transcript=transcript, show_loss=True)
    assert len(fitted.losses) == fitted.rounds
    assert fitted.losses[0] > fitted.losses[-1]
    assert fitted.losses[-1] == pytest.approx(judge(columns, label, found)[1], abs=1e-6)
    shown = [entry for entry in transcript.entries if entry.name.endswith("loss")]
    assert {entry.receiver for entry in shown} == {"C"}


def test_only_declared_words_cross():
    columns, label = people(300, {"B": 2, "C": 2}, 1.0, seed=9)
    transcript = Transcript()
    fitted, _, _ = fit_shared(columns, label, transcript=transcript)
    names = {entry.name.rsplit("/", 1)[-1] for entry in transcript.entries}
    assert names == {"seed", "announced", "masked", "dealt", "goes on", "decision", "weights"}
    # Five bits per point are opened, no more: an opened bit has a word of 64.
    opened = [e for e in transcript.entries if e.name.endswith("goes on") and e.sender == "B"]
    assert len(opened) == fitted.rounds
    assert count_rounds(transcript) < 60 * fitted.rounds


def test_bytes_grow_with_rows_as_said():
    """About 1.3 KB per row for a weak table of 2 + 3 columns: three points, two curvatures."""
    columns, label = people(4000, {"B": 2, "C": 2}, 0.1, seed=10)
    transcript = Transcript()
    fitted, _, _ = fit_shared(columns, label, transcript=transcript)
    assert fitted.rounds <= 4
    assert sum(entry.bytes for entry in transcript.entries) < 1300 * 4000


def test_steps_that_raise_the_loss_are_halved(monkeypatch):
    columns, label = people(500, {"B": 3, "C": 3}, 1.0, seed=11)
    right = shared_logistic.invert_curvature
    monkeypatch.setattr(shared_logistic, "invert_curvature", lambda *given: 3 * right(*given))
    fitted, found = fit_plain(columns, label, tolerance=1e-3, max_rounds=40)
    _, usual = fit_plain(columns, label)
    # A last step that is three times too long goes past the minimum by twice its distance.
    auc, loss, _ = judge(columns, label, found)
    assert fitted.stop_reason == "tolerance"
    assert auc == pytest.approx(judge(columns, label, usual)[0], abs=2e-3)
    assert loss == pytest.approx(judge(columns, label, usual)[1], rel=5e-3)


def test_too_many_points_end_the_fit():
    columns, label = people(300, {"B": 3, "C": 3}, 20.0, seed=1)
    fitted, _ = fit_plain(columns, label, max_rounds=3)
    assert fitted.stop_reason == "max_rounds"
    assert fitted.rounds == 3


def test_scores_that_no_series_covers_end_the_fit(monkeypatch):
    monkeypatch.setattr(shared_logistic, "_LONGEST_PERIOD", 32)
    columns, label = people(300, {"B": 3, "C": 3}, 20.0, seed=1)
    assert fit_plain(columns, label)[0].stop_reason == "scores beyond reach"


@pytest.mark.parametrize(("rows", "peak"), [(1 << 33, None), (1 << 24, 12)])
def test_what_does_not_fit_is_refused_before_the_start(rows, peak):
    with pytest.raises(BoundExceeded, match="64 bits"):
        LogisticPlan(rows=rows, columns={"B": 2, "C": 2}, label_holder="C", peak=peak)


@pytest.mark.parametrize("rows", [1, 2, 300, 70_000])
@pytest.mark.parametrize("peak", [None, 0, 4])
def test_a_rehearsal_finds_no_bound_exceeded(rows, peak):
    plan = LogisticPlan(
        rows=rows, columns={"B": 2, "C": 3}, label_holder="C", peak=peak, outputs=2, max_rounds=2
    )
    fitted = fit_logistic(Session.rehearse(("B", "C")), {}, None, None, plan=plan)
    assert {party: one.shape for party, one in fitted.weights.items()} == {"B": (2, 2), "C": (3, 2)}


@pytest.mark.parametrize("rows", [100, 5000, 24_000, 10**6])
@pytest.mark.parametrize("peak", [None, 0, 3])
def test_bits_are_enough_whatever_the_size(rows, peak):
    plan = LogisticPlan(rows=rows, columns={"B": 2, "C": 2}, label_holder="C", peak=peak)
    assert plan.dealt_bits >= 8
    assert plan.residual_bits - plan.dealt_bits - plan.row_weight_bits >= 6
    assert plan.slope_bits - plan.dealt_bits - plan.row_weight_bits >= 7
    assert plan.loss_bits - plan.dealt_bits - plan.row_weight_bits >= 7
    assert plan.gradient_bound < 1 << (plan.width - 2)
    assert plan.width == 48 or rows > 65_536 or peak is not None
