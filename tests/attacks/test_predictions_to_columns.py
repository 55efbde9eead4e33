"""Predictions of every round: the missing party rebuilds the given party's columns from them."""

import numpy as np
import pytest

from tests.attacks.completion_views import Opened, Words, federation, people
from vfsl.completion.fedpsg import FedPSG

AUX = 30  # rows of the given party that the attacker knows anyway


def recovered(opened, fed, a):
    """R² of A's columns on remaining rows that B does not know, from all that B was shown."""
    views = [values for scope, values in opened.scores_of("B") if "/ask/" in scope]
    return fit_columns(np.hstack(views), fed, a)


def fit_columns(seen, fed, a):
    """How many numbers per row B has, and the R² of A's columns as linear functions of them."""
    truth = a.drop(columns="id").to_numpy()[fed.plan["A"].rest]
    design = np.column_stack([seen, np.ones(len(seen))])
    slopes = np.linalg.lstsq(design[:AUX], truth[:AUX], rcond=1e-12)[0]
    errors = (design[AUX:] @ slopes - truth[AUX:]) ** 2
    return seen.shape[1], 1 - errors.sum(axis=0) / ((truth[AUX:] - truth[AUX:].mean(0)) ** 2).sum(0)


@pytest.fixture
def case(monkeypatch):
    a, b = people(300, columns=8, rest=200)
    return a, federation(a, b, 300), Opened(monkeypatch)


def test_one_prediction_per_row_and_column_reaches_the_missing_party(case):
    a, fed, opened = case
    done = FedPSG().fit_complete(fed)
    views, found = recovered(opened, fed, a)
    high = [route.column for route in done.routes if route.route == "high"]
    assert views == len(high) < 8
    assert found.max() < 0.9
    assert any(f"{views} exact prediction" in note for note in done.notes)


def test_predictions_of_every_round_show_the_table(case):
    """The control: self-training whose rounds are opened, as one may ask for."""
    a, fed, opened = case
    done = FedPSG(rounds=8, alpha=0.3, k=0.5, tau=0.0, confidence="paper").fit_complete(fed)
    views, found = recovered(opened, fed, a)
    assert views > 8
    assert np.sort(found)[-4:].min() > 0.99
    assert any("over 8 rounds" in note and "up to a linear map" in note for note in done.notes)


def test_on_shares_rounds_add_no_prediction(monkeypatch):
    words = Words(monkeypatch)
    a, b = people(300, columns=8, rest=200)
    fed = federation(a, b, 300, scheme="auto")
    done = FedPSG(rounds=8, alpha=0.6, k=0.5, tau=0.0, confidence="paper").fit_complete(fed)
    high = [route.column for route in done.routes if route.route == "high"]
    assert len(high) == 3
    (shown,) = words.opened_to("B", "predictions")
    assert shown.shape == (200, 3)
    views, found = fit_columns(shown.astype(float), fed, a)
    assert views == 3
    assert found.max() < 0.9
    assert any("3 exact predictions" in note and "rounds" not in note for note in done.notes)


def test_on_shares_nothing_else_that_reaches_the_missing_party_fits_the_columns(monkeypatch):
    """Of single words each, since more columns than known rows would fit anything."""
    a, b = people(300, columns=8, rest=200)
    truth = a.drop(columns="id").to_numpy()
    best = {}
    for hide in (True, False):
        with monkeypatch.context() as patch:
            words = Words(patch, hide)
            fed = federation(a, b, 300, scheme="auto")
            FedPSG(rounds=3, alpha=0.6, k=0.5, confidence="paper").fit_complete(fed)
        columns = words.columns("B", 300)
        columns = columns[:, columns.std(axis=0) > 0]
        mine = truth[fed.plan["A"].overlap]
        both = np.corrcoef(columns.T, mine.T)[: columns.shape[1], columns.shape[1] :]
        best[hide] = np.abs(both).max(), columns.shape[1]
    luck = np.sqrt(2 * np.log(2 * 8 * best[True][1])) + 1.5
    assert best[True][0] < luck / np.sqrt(300)
    assert best[False][0] > 0.6  # the control: without masks turned columns are there
