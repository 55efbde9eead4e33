"""The label holder recovers the other's columns from its looks at scores, and from predictions."""

import numpy as np
import pytest

from tests.attacks.linear_views import LABEL, federation, watch
from tests.estimators.linear_cases import LogisticInRounds
from vfsl.audit.columns import recover_columns
from vfsl.estimators import LogisticRegression

EXACT = {"refine": 4, "look_noise": 0.0, "label_noise": 0.0}


def people(classes, rows=1200, seed=0):
    """Ten unrelated columns of B and three of C that decide the class together."""
    rng = np.random.default_rng([seed, classes])
    theirs, own = rng.normal(size=(rows, 10)), rng.normal(size=(rows, 3))
    slopes = rng.normal(size=(13, classes)) * 0.7
    chances = np.hstack([theirs, own]) @ slopes + rng.gumbel(size=(rows, classes))
    return {"B": theirs, "C": own}, chances.argmax(axis=1)


def views(monkeypatch, classes, penalties=(1e-3,), **settings):
    """The other's scores as C sees them in one job for each penalty, and the truth."""
    frames, label = people(classes)
    with watch(monkeypatch) as seen:
        for job, penalty in enumerate(penalties):
            # Noise is fresh in every job: a private generator for each.
            fed = federation(frames, label, seed=job)
            LogisticInRounds(l2=penalty, **settings).fit(fed, LABEL).decision_function(fed)
    looks, predictions = seen["C"].looks, np.hstack(seen["C"].predictions)
    return looks, predictions, seen["B"].columns, frames["C"]


def recovered(views, aux=30, predictions_only=False):
    """Mean R² of B's columns, over three choices of known rows."""
    looks, predictions, truth, own = views
    blocks = [predictions] if predictions_only else [np.hstack([*looks, predictions]), predictions]
    found = [recover_columns(blocks, truth, aux, np.random.default_rng(s), own) for s in range(3)]
    return float(np.mean(found))


@pytest.mark.parametrize(("classes", "penalties"), [(4, (1e-3,)), (2, (1e-3, 0.03, 0.3))])
def test_exact_looks_give_all_columns_away(classes, penalties, monkeypatch):
    assert recovered(views(monkeypatch, classes, penalties, **EXACT)) > 0.95


@pytest.mark.parametrize("aux", [15, 30, 100])
def test_looks_of_one_job_add_nothing_to_its_predictions(aux, monkeypatch):
    """Two classes: one prediction is one of ten directions."""
    seen = views(monkeypatch, 2)
    assert len(seen[0]) == 2
    alone = recovered(seen, aux, predictions_only=True)
    assert recovered(seen, aux) < alone + 0.03
    assert alone < 0.2


@pytest.mark.parametrize(("classes", "penalties"), [(4, (1e-3,)), (2, (1e-3, 0.03, 0.3))])
def test_looks_of_classes_and_jobs_add_little_to_their_predictions(classes, penalties, monkeypatch):
    seen = views(monkeypatch, classes, penalties)
    assert recovered(seen) < recovered(seen, predictions_only=True) + 0.1


@pytest.mark.parametrize("classes", [2, 4])
def test_training_on_shares_shows_the_label_holder_no_score(classes):
    """Scores come by predictions only, which are counted; own weights if they are asked for."""
    frames, label = people(classes)
    fed = federation(frames, label, scheme="auto")
    size = frames["C"].shape[1] + 1
    outputs = 1 if classes == 2 else classes
    LogisticRegression(rare_rows_per_column=0, weights="own").fit(fed, LABEL)
    shown = [one for one in fed.transcript.releases if one.receiver == "C"]
    assert {(one.what, one.numbers) for one in shown} == {("own weights", size * outputs)}
    model = LogisticRegression().fit(fed, LABEL)
    assert not fed.transcript.releases
    model.predict_proba(fed)
    counted = [one for one in fed.transcript.releases if one.what == "total scores"]
    assert [one.counted for one in counted] == [len(label) * outputs]


def test_two_jobs_of_one_federation_have_noise_of_their_own(monkeypatch):
    """The same noise twice is none: the difference of two looks is exact."""
    frames, label = people(2)
    fed = federation(frames, label)
    with watch(monkeypatch) as seen:
        for penalty in (0.001, 0.3):
            LogisticInRounds(l2=penalty, refine=1).fit(fed, LABEL)
    one, other = seen["C"].looks
    columns = np.column_stack([seen["B"].columns, np.ones(len(label))])
    difference = one - other
    left = difference - columns @ np.linalg.lstsq(columns, difference, rcond=None)[0]
    assert left.std() > 0.1
