"""Predictions of every round: the missing party rebuilds the given party's columns from them."""

import numpy as np
import pytest

from tests.attacks.completion_views import Opened, federation, people
from vfsl.completion.fedpsg import FedPSG

AUX = 30  # rows of the given party that the attacker knows anyway


def recovered(opened, fed, a):
    """R² of A's columns on remaining rows that B does not know, from all that B was shown."""
    views = [values for scope, values in opened.scores_of("B") if "/ask/" in scope]
    seen = np.hstack(views)
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
    done = FedPSG(rounds=8, alpha=0.3, k=0.5, tau=0.0, confidence="seed").fit_complete(fed)
    views, found = recovered(opened, fed, a)
    assert views > 8
    assert np.sort(found)[-4:].min() > 0.99
    assert any("over 8 rounds" in note and "up to a linear map" in note for note in done.notes)
