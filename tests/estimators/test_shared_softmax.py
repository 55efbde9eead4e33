"""Classes that exclude each other on shares: the pooled softmax, and the algebra behind it."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression as Pooled
from sklearn.metrics import log_loss

import vfsl
from tests.crypto.share_cases import SPEAKS
from vfsl.channel import run_together
from vfsl.crypto.shares import Session
from vfsl.estimators import LogisticRegression
from vfsl.estimators.shared import logistic
from vfsl.estimators.shared.logistic import LogisticPlan, fit_logistic, to_floats
from vfsl.estimators.shared.softmax import find_lean, find_means

L2 = 1e-3


def people(rows, classes, strength, seed=0):
    rng = np.random.default_rng([seed, rows, classes])
    x = rng.normal(size=(rows, 6))
    label = (
        strength * x @ rng.normal(size=(6, classes)) + rng.gumbel(size=(rows, classes))
    ).argmax(1)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return {"B": x[:, :3], "C": np.column_stack([x[:, 3:], np.ones(rows)])}, label


def plan_of(columns, classes, **facts):
    sizes = {party: x.shape[1] for party, x in columns.items()}
    rows = len(columns["C"])
    return LogisticPlan(rows, sizes, "C", l2=L2, outputs=classes, softmax=True, **facts)


def weights_of(found, opened):
    return np.concatenate([to_floats(opened[party], found.back[party]) for party in opened])


@pytest.mark.parametrize("classes", [3, 4, 5])
def test_pairs_add_up_to_the_logarithm_of_all_others(classes):
    """Each pair: ½ (a + b) + log 2 cosh(½ (a − b)), in real numbers, as the shares go about it."""
    scores = np.random.default_rng(0).normal(size=(4, classes)) * 3
    means, rest = find_means(classes), np.zeros(scores.shape)
    for number in range(classes - 2):
        following = np.roll(np.eye(classes), number + 2, axis=0)
        difference = scores @ (means[number] / 2**number - following) + rest
        rest = rest / 2 + np.log(2 * np.cosh(difference / 2))
    found = scores @ (means[-1] / 2 ** (classes - 2)) + rest
    for k in range(classes):
        others = np.delete(scores, k, axis=1)
        np.testing.assert_allclose(found[:, k], logsumexp(others, axis=1), atol=1e-12)
    difference = scores[:, 0] - found[:, 0]
    everything = scores @ find_lean(classes) + rest[:, 0] / 2 + np.log(2 * np.cosh(difference / 2))
    np.testing.assert_allclose(everything, logsumexp(scores, axis=1), atol=1e-12)


@pytest.mark.parametrize(
    ("classes", "strength", "within"),
    [(3, 0.3, 1e-3), (3, 1.0, 1e-3), (4, 1.0, 2e-3), (5, 2.0, 1e-2)],
)
def test_it_is_the_pooled_softmax(classes, strength, within):
    columns, label = people(600, classes, strength)
    hot = np.eye(classes)[label]
    plan = plan_of(columns, classes)
    found = fit_logistic(Session.plain(), columns, hot, None, plan=plan)
    opened = {party: one.open(name="x") for party, one in found.weights.items()}
    x = np.hstack(list(columns.values()))
    ours = softmax(x @ weights_of(found, opened), axis=1)
    pooled = Pooled(C=1 / (600 * L2), tol=1e-8, max_iter=5000).fit(x[:, :-1], label)
    theirs = pooled.predict_proba(x[:, :-1])
    assert log_loss(label, ours) < (1 + within) * log_loss(label, theirs)
    assert (ours.argmax(axis=1) == theirs.argmax(axis=1)).mean() > 0.98


@pytest.mark.parametrize("order", [("B", "C"), ("C", "A", "B")])
def test_parties_find_the_integers_of_one_place(order):
    columns, label = people(120, 3, 1.0)
    columns = {party: columns.get(party, columns["B"][:, ::-1] ** 2) for party in order}
    hot, plan, angles = np.eye(3)[label], plan_of(columns, 3, max_rounds=2), []

    def play(channel):
        inner = channel.within("step", SPEAKS | logistic.DISCLOSURES)
        with Session.join(inner, order, "K") as session:
            if channel.me == "K":
                session.angles = angles
            own = {channel.me: columns.get(channel.me)}
            found = fit_logistic(session, own, hot if channel.me == "C" else None, None, plan=plan)
            return {party: one.open("C", name="result") for party, one in found.weights.items()}

    shared = run_together(dict.fromkeys((*order, "K"), play))["C"]
    found = fit_logistic(Session.plain(angles), columns, hot, None, plan=plan)
    for party, one in found.weights.items():
        np.testing.assert_array_equal(one.open(name="x"), shared[party])


def test_a_model_of_three_classes_gives_probabilities_of_a_softmax():
    columns, label = people(300, 3, 1.0)
    names = np.array(["low", "middle", "high"])
    tables = {
        party: pd.DataFrame(x[:, :3], columns=[f"{party}{i}" for i in range(3)])
        for party, x in columns.items()
    }
    tables = {party: table.assign(id=np.arange(300)) for party, table in tables.items()}
    tables["C"]["y"] = names[label]
    fed = vfsl.simulate(tables, id="id", labels={"C": "y"}, seed=0)
    fed.align("B", "C", protocol="ecdh")
    model = LogisticRegression(weights="shared").fit(fed, ("C", "y"))
    chances = model.predict_proba(fed)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_allclose(chances, softmax(model.decision_function(fed), axis=1), atol=1e-6)
    order = fed.tables["C"].ids[fed.share("C").overlap].astype(int)
    x = np.hstack([columns["B"], columns["C"][:, :3]])[order]
    pooled = Pooled(C=1 / (300 * L2), tol=1e-8, max_iter=5000).fit(x, names[label][order])
    assert np.abs(chances - pooled.predict_proba(x)).max() < 0.02
