"""Linear models on real data, federated against pooled scikit-learn, over ten random splits."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression as PooledLogistic
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

import vfsl
from vfsl.data import halves
from vfsl.datasets import available, load

SEEDS = range(10)


def frames_of(name):
    """Two parties' frames with a common id, and (party, column) of the label."""
    if name not in available():
        pytest.skip(f"the data set {name} is not here")
    data = load(name)
    if data.tables:
        tables = {party: table.to_frame() for party, table in data.tables.items()}
        ids = data.tables["guest"].id_columns[0]
        renamed = {party: frame.rename(columns={ids: "id"}) for party, frame in tables.items()}
        return renamed, ("guest", data.label)
    frame = data.frame.drop(columns=[c for c in data.frame if c == "id"])
    frame.insert(0, "id", [f"r{i}" for i in range(len(frame))])
    features = [c for c in frame if c not in ("id", data.label)]
    one, two = halves(features)
    return {"guest": frame[["id", data.label, *one]], "host": frame[["id", *two]]}, (
        "guest",
        data.label,
    )


def federation(frames, label, ids):
    chosen = {party: frame[frame["id"].isin(ids)] for party, frame in frames.items()}
    fed = vfsl.simulate(chosen, id="id", labels={label[0]: label[1]}, scheme="plain", security=112)
    # Alignment has its own tests; here it would only cost time, so both keep one order of ids.
    order = {party: np.argsort(fed.tables[party].ids.astype(str)) for party in chosen}
    fed.plan = vfsl.align.RowPlan(
        {
            party: vfsl.align.RowShare(party, "test", rows, np.zeros(0, dtype=np.int64))
            for party, rows in order.items()
        }
    )
    return fed


def split(frames, label, seed):
    ids = np.sort(frames[label[0]]["id"].to_numpy().astype(str))
    order = np.random.RandomState(seed).permutation(len(ids))
    cut = int(0.8 * len(ids))
    return [federation(frames, label, set(ids[part])) for part in (order[:cut], order[cut:])]


def pooled(fed, encoders=None):
    """All parties' encoded columns side by side, and the encoders that made them."""
    encoders = encoders or {
        party: vfsl.data.Encoder().fit(table.take(fed.plan[party].overlap))
        for party, table in fed.tables.items()
    }
    parts = [
        encoders[party].transform(table.take(fed.plan[party].overlap)).matrix
        for party, table in fed.tables.items()
    ]
    return np.hstack(parts), encoders


def target_of(fed, label):
    return np.array(fed.parts(label)[label[0]].target.tolist())


def compare(name, model, reference, judge):
    """The gap between pooled and federated, one number a seed."""
    frames, label = frames_of(name)
    gaps = []
    for seed in SEEDS:
        training, test = split(frames, label, seed)
        matrix, encoders = pooled(training)
        truth = target_of(test, label)
        ours = judge(truth, model(len(matrix)).fit(training, label=label), test)
        peer = reference(len(matrix)).fit(matrix, target_of(training, label))
        theirs = judge(truth, peer, pooled(test, encoders)[0])
        gaps.append(theirs - ours)
    return np.array(gaps)


def auc(truth, model, rows):
    scores = np.asarray(model.decision_function(rows))
    scores = scores[:, 0] if scores.ndim == 2 else scores
    return roc_auc_score(truth == np.unique(truth)[1], scores)


def accuracy(truth, model, rows):
    return float((model.predict(rows) == truth).mean())


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["fate-breast", "fate-default_credit", "census"])
def test_logistic_auc_is_the_pooled_one(name):
    gaps = compare(
        name,
        lambda n: vfsl.estimators.LogisticRegression(l2=1 / n, refine=4, protocol="rounds"),
        lambda n: PooledLogistic(max_iter=2000),
        auc,
    )
    assert abs(gaps.mean()) <= 0.002, gaps


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["fate-breast", "fate-default_credit", "census"])
def test_the_default_is_near_the_pooled_one(name):
    gaps = compare(
        name,
        lambda n: vfsl.estimators.LogisticRegression(l2=1 / n),
        lambda n: PooledLogistic(max_iter=2000),
        auc,
    )
    assert abs(gaps.mean()) <= 0.0005, gaps


@pytest.mark.data
@pytest.mark.slow
def test_multi_class_accuracy_is_the_pooled_one():
    gaps = compare(
        "fate-vehicle",
        lambda n: vfsl.estimators.LogisticRegression(l2=1 / n),
        lambda n: PooledLogistic(max_iter=5000),
        accuracy,
    )
    assert abs(gaps.mean()) <= 0.005, gaps


@pytest.mark.data
@pytest.mark.parametrize("name", ["fate-motor", "fate-student"])
def test_ridge_predictions_are_the_pooled_ones(name):
    frames, label = frames_of(name)
    training, test = split(frames, label, 0)
    model = vfsl.estimators.LinearRegression(l2=0.01).fit(training, label=label)
    matrix, encoders = pooled(training)
    matrix_test, _ = pooled(test, encoders)
    centre = matrix.mean(axis=0)
    target = target_of(training, label).astype(float)
    peer = Ridge(alpha=0.01 * len(matrix)).fit(matrix - centre, target)
    predicted = pd.Series(model.predict(test))
    difference = np.abs(predicted - peer.predict(matrix_test - centre)).max()
    assert difference / target.std() < 1e-3


@pytest.mark.parametrize(
    "name",
    [
        "diabetes",
        pytest.param("fate-student", marks=pytest.mark.data),
        pytest.param("fate-dvisits", marks=pytest.mark.data),
    ],
)
def test_ridge_coefficients_are_the_pooled_ones_where_they_are_well_determined(name):
    frames, label = frames_of(name)
    training, _ = split(frames, label, 0)
    matrix, _ = pooled(training)
    matrix = matrix - matrix.mean(axis=0)
    gram = matrix.T @ matrix / len(matrix) + 1e-3 * np.eye(matrix.shape[1])
    assert np.linalg.cond(gram) < 1e3
    target = target_of(training, label).astype(float)
    standardised = (target - target.mean()) / target.std()
    wanted = np.linalg.solve(gram, matrix.T @ standardised / len(matrix))
    model = vfsl.estimators.LinearRegression(l2=1e-3, weights="own").fit(training, label=label)
    found = []
    for party in training.tables:
        weights = model.weights_[party][:, 0]
        found.append(weights[:-1] if party == label[0] else weights)  # without the intercept
    np.testing.assert_allclose(np.concatenate(found), wanted, atol=1e-3)
