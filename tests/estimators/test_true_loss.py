"""What records call the loss is the true one: against scikit-learn, under encryption, ledgered."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import log_loss, mean_squared_error

from tests.estimators.linear_cases import (
    BFV,
    EXACT,
    PLAIN,
    classes,
    fitted,
    in_units,
    parts_of,
    tables,
    train,
)
from vfsl.channel import Transcript
from vfsl.estimators import LinearRegression, LogisticRegression, Roles

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
    assert all("loss" not in line for line in shares["C"].rounds[:-1])
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
    assert plain["C"].rounds[-1]["loss"] == hidden["C"].rounds[-1]["loss"]


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
    train(model, parts_of(made, classes(target)), transcript=transcript)
    (shown,) = [e for e in transcript.entries if e.name.endswith("loss/opened total")]
    assert (shown.sender, shown.receiver) == ("K", "C")
    assert "exact total score of each training row" in shown.fact
    (told,) = [r for r in transcript.releases if r.what == "total scores"]
    assert (told.sender, told.receiver, told.numbers) == ("B", "C", len(target))
    names = [name for _, name in model.asks()]
    assert {"training scores", "exact training scores"} <= set(names)
    assert model.numbers_per_row() == 2
    quiet = LogisticRegression(refine=0, protocol="rounds")
    assert "training scores" not in [name for _, name in quiet.asks()]
    assert quiet.numbers_per_row() == 1
    # Without being asked for, nothing is opened and no line claims to be a loss.
    transcript = Transcript()
    shares = train(quiet, parts_of(made, classes(target)), transcript=transcript)
    assert not [e for e in transcript.entries if "/loss/" in e.name]
    assert all("loss" not in line for line in shares["C"].rounds)


def test_on_shares_the_loss_is_near_the_true_one():
    """With the penalty in it: the stated tolerance is 1 % and that penalty."""
    made, target = tables(rows=400)
    label = classes(target)
    model = LogisticRegression(show_loss=True, l2=1e-6, **EXACT)
    roles = Roles("C", ("B",), "K", "shares")
    shares, found = fitted(model, parts_of(made, label), roles)
    expected = log_loss(label, expit(found[:, 0]))
    assert shares["C"].rounds[-1]["loss"] == pytest.approx(expected, rel=1e-2)
