"""What all estimators share: shares on disk, declared facts, and those of other packages."""

import json
import sys
from dataclasses import fields

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, r2_score

import vfsl
from tests.estimators.linear_cases import classes, tables
from vfsl.align import RowPlan, RowShare
from vfsl.errors import ConfigError
from vfsl.estimators import (
    GBDT,
    LGB,
    XGB,
    LinearRegression,
    LogisticRegression,
    RandomForest,
    load_model,
    save_model,
)
from vfsl.estimators.saved import ESTIMATORS
from vfsl.params import params_of, settings_of
from vfsl.parts import ModelShare
from vfsl.pu import BagLogistic
from vfsl.testing.estimators import ESTIMATOR_CHECKS, EstimatorCase

SIX = (LinearRegression, LogisticRegression, RandomForest, GBDT, XGB, LGB)


def test_a_share_comes_back_from_its_saved_form():
    share = ModelShare(
        "B", "linear", {"weights": [[0.5]]}, ({"loss": 0.25},), "converged", ("rare",)
    )
    assert ModelShare.from_dict(json.loads(json.dumps(share.to_dict()))) == share


def test_a_share_kept_without_its_rounds_still_comes_back():
    content = ModelShare("B", "linear", {"weights": []}).to_dict()
    del content["rounds"], content["notes"]
    assert ModelShare.from_dict(content) == ModelShare("B", "linear", {"weights": []})


@pytest.mark.parametrize("content", [{}, [], {"party": "B"}])
def test_what_is_no_share_is_refused(content):
    with pytest.raises(TypeError):
        ModelShare.from_dict(content)


# ---- declared facts ----


@pytest.mark.parametrize("kind", SIX)
def test_every_parameter_is_declared_and_recorded(kind):
    names = [field.name for field in fields(kind)]
    assert list(settings_of(kind())) == list(params_of(kind)) == names
    for name in names:
        assert f"\n{name} : " in kind.__doc__


def test_what_models_predict_and_what_their_scores_are():
    facts = {
        kind.name: (kind().predicts, kind().scores_are, kind().knows_training_scores)
        for kind in SIX
    }
    assert facts == {
        "linear": ("numbers", "value", False),
        "logistic": ("classes", "logit", False),
        "rf": ("classes", "probability", True),
        **dict.fromkeys(("gbdt", "xgb", "lgb"), ("classes", "logit", True)),
    }
    for kind in (RandomForest, XGB):
        numbers = kind(task="regression")
        assert (numbers.predicts, numbers.scores_are) == ("numbers", "value")


def test_who_takes_part_and_what_is_kept():
    assert LinearRegression().needs_key_holder
    assert XGB().needs_key_holder
    assert XGB().scores_need_key_holder
    assert not XGB(keys="label-holder").needs_key_holder
    assert not XGB(keys="label-holder").scores_need_key_holder
    assert XGB(keys="label-holder").work(1) == "trees without a key holder"
    assert [kind.keeps_checkpoints for kind in (LogisticRegression, LGB)] == [False, True]
    assert LinearRegression().work(2) == "linear"
    assert LinearRegression().work(2, weighted=True) == "linear"
    least = LinearRegression(protocol="rounds")
    assert least.work(1, weighted=True) == "linear rounds"
    assert least.work(2, weighted=True) == "linear rounds of many"
    assert LogisticRegression().work(2, weighted=True) == "linear"
    rounds = LogisticRegression(protocol="rounds")
    assert [rounds.work(count) for count in (1, 2)] == ["linear rounds", "linear rounds of many"]


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        (LinearRegression(), []),
        (LinearRegression(solver="one-shot"), ["cross-gram"]),
        (LinearRegression(weights="own"), ["own weights"]),
        (LinearRegression(rare_rows_per_column=1.0), []),
        (
            LinearRegression(weights="own", rare_rows_per_column=1.0),
            ["own weights", "rare labels"],
        ),
        (LogisticRegression(), []),
        (LogisticRegression(protocol="rounds"), ["gradients", "training scores"]),
        (LogisticRegression(protocol="rounds", refine=0), ["gradients"]),
        (
            LogisticRegression(protocol="rounds", look_noise=0.0),
            ["gradients", "training scores", "exact training scores"],
        ),
        (LogisticRegression(weights="own", label_noise=0.0), ["own weights", "rare labels"]),
        (BagLogistic(), []),
        (BagLogistic(protocol="rounds", rare_rows_per_column=0.5), ["gradients", "rare labels"]),
        (XGB(), ["tree partitions"]),
    ],
)
def test_what_a_training_asks_consent_for(model, asked):
    assert model.asks() == tuple(("disclosure", name) for name in asked)


def test_how_many_exact_scores_of_a_row_are_seen():
    assert LinearRegression().numbers_per_row() == 1
    assert LogisticRegression(refine=2).numbers_per_row() == 1
    exact = LogisticRegression(protocol="rounds", refine=2, look_noise=0.0)
    assert exact.numbers_per_row() == 3
    assert XGB().numbers_per_row() == 0


# ---- what users call ----


def federation(count=2):
    """B's and C's columns, and C's label "y"; a number where there are no classes."""
    made, target = tables(rows=160)
    label = target if count == 0 else classes(target, count).astype(object)
    made["C"] = made["C"].with_column("y", label, "label")
    fed = vfsl.simulate(made, scheme="plain", seed=0)
    rows = np.arange(160)
    fed.plan = RowPlan({party: RowShare(party, "p", rows, rows[:0]) for party in ("C", "B")})
    return fed


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (LinearRegression(), 0),
        (XGB(n_estimators=2, task="regression"), 0),
        (LogisticRegression(), 2),
        (RandomForest(n_estimators=2), 3),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_score_is_accuracy_or_r_squared(model, count):
    fed = federation(count)
    model.fit(fed, ("C", "y"))
    truth, found = fed.parts(("C", "y"))["C"].target.tolist(), model.predict(fed)
    expected = accuracy_score(truth, found) if count else r2_score(truth, found)
    assert model.score(fed) == pytest.approx(expected)
    if not count:
        assert fed.steps[-1].metrics["r2"] == pytest.approx(expected)


def test_numbers_have_no_probabilities():
    fed = federation(0)
    with pytest.raises(ConfigError, match="use predict"):
        LinearRegression().fit(fed, ("C", "y")).predict_proba(fed)


# ---- estimators of other packages ----

MODULE = '''
from dataclasses import dataclass

import numpy as np

from vfsl.estimators import Estimator, ModelShare
from vfsl.params import documented, param
from vfsl.values import Aggregate, Disclosure

SAYS = {"means": Disclosure(Aggregate, "the mean of each row's numbers")}


@documented
@dataclass(kw_only=True)
class Nearest(Estimator):
    """The class whose mean is nearest, by one number per row and party. It hides nothing."""

    name = "nearest"
    predicts = "classes"
    scores_are = "logit"
    needs_key_holder = scores_need_key_holder = False

    sharpness: float = param(1.0, "How fast chances fall with the distance.", gt=0)

    def train(self, channel, part, *, roles, rng=None, kept=None):
        self.check()
        sums = self._sums(channel, part, roles)
        if sums is None:
            return ModelShare(channel.me, self.name, {})
        target = np.asarray(part.target)
        classes = sorted({value for value in target if value is not None})
        means = [float(sums[target == one].mean()) for one in classes]
        return ModelShare(channel.me, self.name, {"classes": classes, "means": means})

    def score_rows(self, channel, part, share, *, roles):
        sums = self._sums(channel, part, roles)
        if sums is None:
            return None
        low, high = share.state["means"]
        return self.sharpness * (np.abs(sums - low) - np.abs(sums - high))[:, None]

    def _sums(self, channel, part, roles):
        channel = channel.within(self.name, SAYS)
        own = part.table.take(part.rows).frame[list(part.table.features)]
        own = own.select_dtypes("number").fillna(0).to_numpy().mean(axis=1)
        if channel.me != roles.label_holder:
            channel.send(roles.label_holder, "means", Aggregate(own))
            return None
        return own + sum(channel.receive(one, "means").payload for one in roles.feature_holders)
'''


@pytest.fixture
def nearest(tmp_path, monkeypatch):
    """A package of somebody else with one file and one entry point, as pip would leave it."""
    (tmp_path / "toy_estimators.py").write_text(MODULE)
    info = tmp_path / "toy_estimators-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-estimators\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[vfsl.estimators]\nnearest = toy_estimators:Nearest\nxgb = toy_estimators:Nearest\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda **settings: ESTIMATORS.find("nearest")(**settings)
    sys.modules.pop("toy_estimators", None)


def test_ours_are_listed_without_importing_others(nearest):
    ours = ["linear", "logistic", "rf", "gbdt", "xgb", "lgb"]
    assert ESTIMATORS.names()[:6] == ours
    assert "nearest" in ESTIMATORS.names()
    assert "toy_estimators" not in sys.modules
    assert ESTIMATORS.find("xgb") is XGB


def test_an_estimator_of_another_package_does_all_that_ours_do(nearest, tmp_path):
    fed = federation()
    model = nearest(sharpness=2.0).fit(fed, ("C", "y"))
    assert fed.steps[-1].name == "train nearest"
    assert fed.steps[-1].settings["sharpness"] == 2.0
    found = model.predict_proba(fed)
    assert found.shape == (160, 2)
    assert model.score(fed) > 0.6
    assert fed.steps[-1].metrics["auc"] > 0.6
    save_model(model, tmp_path / "saved")
    again = load_model(tmp_path / "saved")
    assert again == model
    assert (again.predict(fed) == model.predict(fed)).all()
    with pytest.raises(ConfigError, match="The sharpness parameter of Nearest must be a number"):
        nearest(sharpness=0).fit(fed, ("C", "y"))


@pytest.mark.parametrize("check", ["repeats", "follows_rows", "answers_the_label_holder_only"])
def test_the_contract_takes_estimators_of_other_packages(nearest, check):
    ESTIMATOR_CHECKS[check](EstimatorCase(nearest, weights=False, tolerance=1e-9))


def test_a_model_whose_package_is_gone_is_named(nearest, tmp_path):
    fed = federation()
    save_model(nearest().fit(fed, ("C", "y")), tmp_path / "saved")
    page = tmp_path / "saved" / "model.json"
    page.write_text(page.read_text().replace('"nearest"', '"farthest"'))
    with pytest.raises(ConfigError, match="There is no estimator 'farthest'"):
        load_model(tmp_path / "saved")
