"""What records call the loss is the true one: against scikit-learn, under encryption, ledgered."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logsumexp, softmax
from sklearn.metrics import log_loss, mean_squared_error

from tests.estimators.linear_cases import (
    BFV,
    EXACT,
    PLAIN,
    classes,
    fitted,
    in_units,
    parts_of,
    scores,
    tables,
    train,
)
from vfsl.channel import Transcript
from vfsl.crypto.fixed import encode
from vfsl.crypto.shares import Session, Shared
from vfsl.crypto.words import to_words
from vfsl.estimators import LinearRegression, LogisticRegression, Roles
from vfsl.estimators.shared.true_loss import SCORE_BITS, LossPlan, Truth, open_losses

ROUNDS = {"protocol": "rounds", "show_loss": True, "max_rounds": 12}


@pytest.mark.parametrize("refine", [0, 2])
@pytest.mark.parametrize("count", [2, 3])
def test_the_log_loss_is_that_of_scikit_learn(refine, count):
    """The surrogate of degree 1 is several times as large, and noise is in neither score."""
    made, target = tables()
    label = classes(target, count)
    shares, found = fitted(LogisticRegression(refine=refine, **ROUNDS), parts_of(made, label))
    chances = expit(found[:, 0]) if count == 2 else softmax(found, axis=1)
    last = shares["C"].rounds[-1]
    assert last["loss"] == pytest.approx(log_loss(label, chances), abs=1e-6)
    losses = [line["loss"] for line in shares["C"].rounds]
    assert len(losses) > 3
    assert losses[0] > 1.05 * min(losses[1:])
    if refine == 0 and count == 2:
        assert last["objective"] > 1.5 * last["loss"]
    assert not shares["B"].rounds


def test_weighted_rows_count_as_they_did_in_training():
    made, target = tables()
    label, weights = classes(target), np.linspace(0.5, 2, len(target))
    model = LogisticRegression(refine=0, **ROUNDS)
    shares, found = fitted(model, parts_of(made, label, weights=weights))
    expected = log_loss(label, expit(found[:, 0]), sample_weight=weights)
    assert shares["C"].rounds[-1]["loss"] == pytest.approx(expected, abs=1e-6)


def test_several_feature_holders_and_one_shot():
    made, target = tables(rows=300, parties=("B", "D"))
    label = classes(target)
    roles = Roles("C", ("B", "D"), "K", "plain")
    shares, found = fitted(LogisticRegression(refine=0, **ROUNDS), parts_of(made, label), roles)
    expected = log_loss(label, expit(found[:, 0]))
    assert shares["C"].rounds[-1]["loss"] == pytest.approx(expected, abs=1e-6)
    made, target = tables()
    model = LogisticRegression(refine=0, solver="one-shot", **ROUNDS)
    shares, found = fitted(model, parts_of(made, classes(target)))
    expected = log_loss(classes(target), expit(found[:, 0]))
    assert shares["C"].rounds[-1]["loss"] == pytest.approx(expected, abs=1e-6)


def test_it_is_the_same_under_encryption():
    made, target = tables(rows=120)
    model = LogisticRegression(refine=0, **ROUNDS | {"max_rounds": 2})
    plain, hidden = (train(model, parts_of(made, classes(target)), roles) for roles in (PLAIN, BFV))
    first, second = ([line["loss"] for line in one["C"].rounds] for one in (plain, hidden))
    assert first == pytest.approx(second, abs=1e-6)


def test_squared_errors_are_in_units_of_the_target():
    made, target = tables()
    model = LinearRegression(protocol="rounds", max_rounds=60)
    shares, found = fitted(model, parts_of(made, target))
    losses = [line["loss"] for line in shares["C"].rounds]
    expected = mean_squared_error(target, in_units(found, shares["C"]))
    assert losses[-1] == pytest.approx(expected, rel=1e-6)
    assert losses == sorted(losses, reverse=True)
    ridge = train(LinearRegression(protocol="rounds", l2=0.1), parts_of(made, target))
    assert "loss" not in ridge["C"].rounds[-1]  # the objective has the penalty in it


def test_what_it_shows_is_declared():
    made, target = tables()
    transcript = Transcript()
    model = LogisticRegression(refine=0, **ROUNDS)
    shares = train(model, parts_of(made, classes(target)), transcript=transcript)
    shown = [e for e in transcript.entries if e.name.endswith("loss/on shares/loss")]
    assert {(e.sender, e.receiver) for e in shown} == {("B", "C")}
    assert "the log-loss of the training rows" in shown[0].fact
    told = [r for r in transcript.releases if r.what == "loss"]
    assert sum(one.numbers for one in told) == len(shares["C"].rounds)
    assert not [e for e in transcript.entries if "opened total" in e.name]
    quiet = LogisticRegression(refine=0, protocol="rounds")
    assert model.asks() == quiet.asks()
    assert model.numbers_per_row() == quiet.numbers_per_row() == 1
    # Without being asked for, nothing is opened and no line claims to be a loss.
    transcript = Transcript()
    shares = train(quiet, parts_of(made, classes(target)), transcript=transcript)
    assert not [e for e in transcript.entries if "/loss/" in e.name]
    assert all("loss" not in line for line in shares["C"].rounds)


@pytest.mark.parametrize("count", [2, 3])
def test_on_shares_each_step_shows_the_true_loss(count):
    """Without the penalty; nothing but these numbers is opened to the label holder."""
    made, target = tables(rows=400)
    label = classes(target, count)
    model = LogisticRegression(show_loss=True, weights="own", l2=0.05, **EXACT)
    roles, transcript = Roles("C", ("B",), "K", "shares"), Transcript()
    parts = parts_of(made, label)
    shares = train(model, parts, roles, transcript=transcript)
    found = scores(model, parts, shares, roles)
    chances = expit(found[:, 0]) if count == 2 else softmax(found, axis=1)
    losses = [line["loss"] for line in shares["C"].rounds]
    # White cells have 20 bits behind the point, and own weights 16.
    assert losses[-1] == pytest.approx(log_loss(label, chances), abs=1e-6)
    assert losses[0] > losses[-1]
    told = [r for r in transcript.releases if r.receiver == "C" and r.what == "loss"]
    assert sum(one.numbers for one in told) == len(losses)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    outputs=st.integers(1, 4),
    softmax_of=st.booleans(),
    weighted=st.booleans(),
    scale=st.sampled_from([0.1, 1.0, 8.0]),
)
def test_any_scores(seed, outputs, softmax_of, weighted, scale):
    """Against the formula, in one place: series that must be made longer too."""
    several = softmax_of and outputs > 1
    rng = np.random.default_rng(seed)
    totals = scale * rng.normal(size=(50, outputs))
    codes = rng.integers(0, outputs if several else 2, 50)
    hot = np.eye(outputs)[codes] if several else np.tile(codes[:, None] * 1.0, (1, outputs))
    weights = rng.uniform(0.1, 2.0, (50, 1)) if weighted else np.ones((50, 1))
    weights = np.tile(weights / weights.mean(), (1, outputs))
    session = Session.plain()
    shared = Shared(session, to_words(encode(totals, SCORE_BITS)))
    plan = LossPlan(50, outputs, several, "C", 2 if weighted else None)
    (found,) = open_losses(session, [shared], Truth(hot, weights if weighted else None), plan)
    if several:
        each = weights[:, :1] * (logsumexp(totals, axis=1) - (hot * totals).sum(axis=1))[:, None]
    else:
        each = weights * (np.logaddexp(0, totals) - hot * totals)
    assert found == pytest.approx(each.mean(), abs=1e-6)
