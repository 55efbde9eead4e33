"""RISA with protected labels: heads on shares, their features, and noise."""

import hashlib
import json
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import KernelCenterer

from vfsl.channel import wire
from vfsl.draws import KeyedNormal
from vfsl.errors import ConfigError, DataError
from vfsl.evidence.encoders import Arrays
from vfsl.evidence.features import Features
from vfsl.evidence.rows import UNKNOWN
from vfsl.federation import Federation

torch = pytest.importorskip("torch")

from vfsl.evidence import RISA, blurring, protected  # noqa: E402

SHORT = {"epochs": 2, "batch_size": 32, "self_steps": 5, "features": 6}


def test_features_are_the_components_of_the_kernel():
    rng = np.random.default_rng(0)
    rows = Arrays(rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 3, (40, 1)))
    made = Features.fit(None, rows, 40, np.random.default_rng(1))
    hot = np.hstack([rows.numbers.astype(float), np.eye(3)[rows.codes[:, 0]]])
    kernel = KernelCenterer().fit_transform(rbf_kernel(hot, gamma=made.rate))
    found = made.of(rows)
    assert np.allclose(found @ found.T, kernel * len(kernel) / np.trace(kernel), atol=1e-5)
    few = Features.fit(None, rows, 5, np.random.default_rng(1))
    assert few.width == 5
    assert (few.of(rows) ** 2).sum(axis=1).mean() == pytest.approx(1)


def test_classes_as_targets_by_hand():
    target, mean, spread = protected.code_classes(np.array([0, 1, 1, 1]), 2)
    assert target.ravel() == pytest.approx([-math.sqrt(3), *[1 / math.sqrt(3)] * 3])
    assert protected.read_scores(target, mean, spread)[:2] == pytest.approx(
        np.array([[1.0, -1.0], [-1.0, 1.0]])
    )
    target, mean, spread = protected.code_classes(np.array([0, 1, 2]), 3)
    said = protected.read_scores(target, mean, spread)
    assert said == pytest.approx(3 * np.eye(3) - 1)
    assert protected.read_scores(0 * target, mean, spread) == pytest.approx(np.zeros((3, 3)))


def test_folds_depend_on_who_has_a_label_and_on_no_label():
    labels = np.array([0, 1, UNKNOWN] * 8)
    one = protected.draw_folds(labels, np.random.default_rng(0))
    other = protected.draw_folds(np.where(labels == UNKNOWN, UNKNOWN, 1), np.random.default_rng(0))
    assert np.array_equal(one, other)
    assert np.array_equal(one == UNKNOWN, labels == UNKNOWN)
    assert np.bincount(one[one != UNKNOWN]).tolist() == [4, 3, 3, 3, 3]
    with pytest.raises(DataError, match="at least 10 labelled overlap rows; there are 2"):
        protected.draw_folds(labels[:3], np.random.default_rng(0))


def fit(cases, protect, classes=2):
    """A model with views; every fifth common row has no label."""
    made = cases.frames(classes=classes)
    made["A"]["y"] = made["A"]["y"].astype("Int64").mask(made["A"].index % 5 == 0, pd.NA)
    simulated = cases.federation(made)
    fed = Federation(simulated.tables, keep_views=True)
    fed.plan = simulated.plan
    return fed, RISA(protect=protect, **SHORT).fit(fed, cases.label)


def ridge(features, labels, learned, rows, classes):
    """Least squares in closed form, on rows that are learned from: scores of others."""
    target, mean, spread = protected.code_classes(labels[learned], classes)
    design = np.column_stack([np.ones(len(learned)), features[learned]])
    penalty = protected.L2 * np.diag([0.0, *[1.0] * features.shape[1]])
    weights = np.linalg.solve(
        design.T @ design / len(learned) + penalty, design.T @ target / len(learned)
    )
    return np.column_stack([np.ones(len(rows)), features[rows]]) @ weights, mean, spread


def common_features(fed, risa):
    features = Features.from_dict(risa.shares_["B"].state["features"])
    table = fed.tables["B"].take(fed.plan.shares["B"].overlap)
    return features.of(features.columns.arrays(table))


@pytest.mark.parametrize("classes", [2, 3])
def test_heads_are_ridge_regression_on_rows_they_did_not_see(cases, classes):
    fed, risa = fit(cases, "labels", classes)
    features = common_features(fed, risa)
    label = fed.tables["A"].column("y").iloc[:60]
    labels = label.map({one: k for k, one in enumerate(risa.classes_)}).fillna(UNKNOWN)
    labels = labels.to_numpy(dtype=np.int64)
    seen = dict(wire.decode(one.body) for one in fed.transcript.sights if one.receiver == "B")
    folds = next(value for name, value in seen.items() if name.endswith("/folds"))
    heard = risa.shares_["A"].scores
    for fold in range(protected.FOLDS + 1):
        learned = np.flatnonzero((folds != UNKNOWN) & (folds != fold))
        rows = protected.told_rows(folds, fold)
        expected = protected.read_scores(*ridge(features, labels, learned, rows, classes))
        assert np.abs(heard[rows] - expected).max() < 0.05


def test_noisy_evidence_is_held_within_limits_and_has_the_noise_it_says(cases):
    fed, risa = fit(cases, "both")
    own, head = risa.shares_["B"].state, risa.shares_["A"].state["heads"]["B"]
    rows = np.flatnonzero(fed.tables["A"].column("y").iloc[:60].isna())
    columns = Features.from_dict(own["features"]).columns
    cells = columns.arrays(fed.tables["B"].take(rows))
    digest = hashlib.sha256(json.dumps(own["head"]["pieces"], sort_keys=True).encode()).digest()
    names = blurring.name_rows(fed.tables["B"].ids[rows], cells)
    noise = 1.5 * KeyedNormal(bytes.fromhex(own["noise key"]) + digest, names).standard_normal(
        (len(rows), 1)
    )
    unit = 2.0 ** (head["power"] / 2)
    heard = risa.shares_["A"].scores[rows, 1]  # 2 · probability − 1
    scores = ((heard + 1) / 2 - head["mean"][0]) / head["spread"][0]
    held = scores / unit - noise.ravel()
    assert np.abs(held).max() <= blurring.LIMIT + 0.02
    assert np.abs(held).max() > 0.01  # and something is said
    assert np.abs(noise).max() > 1.5
    notes = " ".join(risa.shares_["A"].notes)
    assert "ε = " in notes
    shown = [one for one in fed.record.shown if one.sender == "B"]
    assert [one.what for one in shown] == ["evidence"]
    assert shown[0].counted == 0
    assert shown[0].epsilon > 10


def test_the_same_rows_get_the_same_noisy_answer(cases):
    fed, risa = fit(cases, "both")
    assert np.array_equal(risa.predict_proba(fed), risa.predict_proba(fed))


def test_randomised_labels_are_for_the_open_way(cases):
    with pytest.raises(ConfigError, match="needs protect='none'"):
        RISA(label_epsilon=1.0).check()
    assert RISA(protect="none").discloses_labels
    assert not RISA(protect="none", label_epsilon=1.0).discloses_labels
    assert not RISA().discloses_labels
    fed = cases.federation()
    RISA(protect="none", label_epsilon=1.0, epochs=1, self_steps=2).fit(fed, cases.label)
    shown = {one.what: one for one in fed.record.shown if one.sender == "A"}
    assert shown["labels"].counted == shown["gradient of evidence"].counted == 0
    assert shown["labels"].epsilon == pytest.approx(1.0, abs=0.06)


def test_an_unfinished_training_on_shares_goes_on(cases, tmp_path):
    def fitted(folder, stop_at=None):
        fed = cases.federation()

        def listen(event):
            if stop_at is not None and event.stage == stop_at:
                raise KeyboardInterrupt

        risa = RISA(checkpoint_every=1, protect="both", **{**SHORT, "epochs": 3})
        state = {party: tmp_path / folder / party for party in "AB"}
        return risa.fit(fed, cases.label, state=state, on_event=listen).predict_proba(fed)

    with pytest.raises(KeyboardInterrupt):
        fitted("stopped", "epoch 2")
    assert np.array_equal(fitted("stopped"), fitted("whole"))
