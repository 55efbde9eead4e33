"""A feature holder reads labels from what a training on shares shows it: its own weights, or none.

By default weights stay shared, and tell nothing, whatever rows are rare. Own weights, if they are
asked for, tell about labels as every result does: where rare rows are many enough and labels carry
noise, no more than a lean.
"""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from tests.attacks.linear_views import LABEL, federation
from tests.attacks.rare_labels import make_columns
from vfsl.audit.solvers import solve_labels
from vfsl.crypto.words import to_signed
from vfsl.errors import DataError
from vfsl.estimators import LogisticRegression, linear

OPEN = {"weights": "own", "rare_rows_per_column": 0.0, "label_noise": 0.0}


def people(rows, size, positives, seed=0):
    """Gaussian columns of B, two of C, and a label that has nothing to do with them."""
    rng = np.random.default_rng([seed, rows, size, positives])
    label = np.zeros(rows, dtype=np.int64)
    label[rng.permutation(rows)[:positives]] = 1
    return {"B": make_columns("gaussian", rows, size, rng), "C": rng.normal(size=(rows, 2))}, label


def run(model, rows, size, positives, seed=0):
    """B's columns and weights after a real run, and the truth. Where weights stay shared, B takes
    its pieces for weights."""
    frames, label = people(rows, size, positives, seed)
    fed = federation(frames, label, scheme="auto", seed=seed)
    model.fit(fed, LABEL)
    state = model.shares_["B"].state
    columns = linear.encode_columns(fed.parts(LABEL)["B"], model.shares_["B"])
    if "weights" in state:
        return columns, np.asarray(state["weights"])[:, 0], label == 1
    pieces = to_signed(np.asarray(state["pieces"]["B"], dtype=np.uint64), 64)[:, 0]
    return columns, np.asarray(state["back"]) @ (pieces / 2.0**62), label == 1


def guess_sums(columns, weights, positives, l2=1e-3):
    """Σ x over the positive rows, as if the label holder's columns said nothing.

    At the optimum Xᵀ(p − y) + n l2 w = 0; B knows all but the constant, which fits the number of
    positives.
    """
    rows, scores = len(columns), columns @ weights
    start = brentq(lambda c: expit(scores + c).sum() - positives, -80, 80)
    return columns.T @ expit(scores + start) + rows * l2 * weights


def test_rare_labels_are_read_from_exact_weights_where_the_rule_and_the_noise_are_off():
    columns, weights, label = run(LogisticRegression(**OPEN), 1000, 60, 5)
    found = solve_labels(columns, guess_sums(columns, weights, 5), 5, slack=0.2, seconds=10)
    assert label[found].mean() >= 0.8


def test_with_own_weights_few_rare_rows_are_refused():
    with pytest.raises(DataError, match="its weights could tell it which rows these are"):
        run(LogisticRegression(weights="own"), 1000, 60, 5)


def test_by_default_rare_labels_are_not_read_and_nothing_is_refused():
    """The control's table: 5 rare rows and 60 columns. B sees its pieces, which are uniform."""
    columns, pieces, label = run(LogisticRegression(), 1000, 60, 5)
    found = solve_labels(columns, guess_sums(columns, pieces, 5), 5, slack=0.2, seconds=3)
    assert label[found].sum() <= 1  # by chance two: 2e-4
    best = np.argsort(-(columns @ pieces))[:5]
    assert label[best].sum() <= 1


def test_by_default_weights_do_not_even_lean():
    """40 rare rows and 30 columns: with own weights this would be refused."""
    found, scores = [], []
    for seed in range(3):
        columns, pieces, label = run(LogisticRegression(), 600, 30, 40, seed)
        found.append(label[np.argsort(-(columns @ pieces))[:40]].mean())
        scores.append(roc_auc_score(label, columns @ pieces))
    assert np.mean(found) < 40 / 600 + 0.1  # four deviations
    assert abs(np.mean(scores) - 0.5) < 0.11


def test_where_own_weights_are_allowed_they_are_no_more_than_a_lean():
    """2 rare rows per column, labels with noise: solving does not beat the fitted scores."""
    solved, leaning = [], []
    for seed in range(3):
        columns, weights, label = run(LogisticRegression(weights="own"), 1000, 10, 20, seed)
        sums = guess_sums(columns, weights, 20)
        solved.append(label[solve_labels(columns, sums, 20, slack=1.0, seconds=5)].mean())
        leaning.append(label[np.argsort(-(columns @ weights))[:20]].mean())
    assert np.mean(solved) < max(np.mean(leaning), 0.02) + 0.1
    assert np.mean(solved) < 0.3


# ---- malicious: unit vectors as columns ----------------------------------------------------------


def lie_with_unit_vectors(model, asked, monkeypatch, rows=600):
    """What B would say of the labels of the rows that it asks about, and the truth of all rows."""
    rng = np.random.default_rng(3)
    label = (rng.random(rows) < 0.4).astype(int)
    fed = federation(
        {"B": rng.normal(size=(rows, 2)), "C": rng.normal(size=(rows, 2))}, label, scheme="auto"
    )
    encode = linear.fit_encoder

    def lie(part, chosen, missing=None):
        state, columns = encode(part, chosen, missing)
        return state, np.eye(rows)[:, asked] if part.table.party == "B" else columns

    with monkeypatch.context() as patch:
        patch.setattr(linear, "fit_encoder", lie)
        model.fit(fed, LABEL)
    state = model.shares_["B"].state
    if "weights" in state:
        return np.asarray(state["weights"])[:, 0] > 0, label == 1
    pieces = np.asarray(state["pieces"]["B"], dtype=np.uint64)[:, 0]
    return np.asarray(state["back"]) @ to_signed(pieces, 64) > 0, label == 1


def test_own_weights_are_capped_at_one_row_in_ten(monkeypatch):
    """Each weight is one number: so many rows can be read, by a party that lies, and no more."""
    asked = np.arange(0, 600, 15)
    own = LogisticRegression(weights="own")
    guess, label = lie_with_unit_vectors(own, asked, monkeypatch)
    assert (guess == label[asked]).mean() > 0.9  # the control: the attack is a good one
    with pytest.raises(DataError, match="its weights would reveal single rows"):
        lie_with_unit_vectors(own, np.arange(0, 600, 9), monkeypatch)


def test_the_default_ends_it(monkeypatch):
    guess, label = lie_with_unit_vectors(LogisticRegression(), np.arange(0, 600, 6), monkeypatch)
    assert abs((guess == label[np.arange(0, 600, 6)]).mean() - 0.5) < 0.2  # four deviations
