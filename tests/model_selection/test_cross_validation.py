"""Folds, cross-validation and search, against scikit-learn's on pooled rows and the same folds."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LinearRegression as Pooled
from sklearn.linear_model import LogisticRegression as PooledLogistic
from sklearn.model_selection import PredefinedSplit, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import vfsl
from tests.model_selection.conftest import make_fed
from vfsl.errors import ConfigError
from vfsl.estimators import ESTIMATORS, GBDT, LinearRegression, LogisticRegression
from vfsl.model_selection import GridSearch, cross_validate
from vfsl.model_selection.cross_validation import split_rows

LABEL = ("A", "bad")


def pool(fed, label):
    """All feature columns of the aligned rows in one place, and the label."""
    frames = [fed.tables[p].to_frame().iloc[fed.share(p).overlap] for p in "AB"]
    columns = pd.concat([one.reset_index(drop=True) for one in frames], axis=1)
    names = ["income", "age", "basket", "visits", *(["amount"] if label == "bad" else [])]
    return columns[names].to_numpy(), columns[label].to_numpy()


@given(st.integers(2, 12), st.integers(0, 60), st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_folds_have_every_row_once_and_even_sizes(folds, more, seed):
    drawn = split_rows(folds + more, folds, np.random.default_rng(seed))
    sizes = np.bincount(drawn, minlength=folds)
    assert len(drawn) == folds + more
    assert sizes.max() - sizes.min() <= 1


def test_logistic_regression_is_judged_as_on_pooled_rows(fed):
    found = cross_validate(LogisticRegression(l2=0.01, tolerance=1e-6), fed, LABEL, folds=4)
    x, y = pool(fed, "bad")
    pooled = make_pipeline(StandardScaler(), PooledLogistic(C=1 / (0.01 * 180)))
    split = PredefinedSplit(found.folds)
    chances = cross_val_predict(pooled, x, y, cv=split, method="predict_proba")
    assert np.abs(found.probabilities - chances).max() < 0.02
    for measure, name in (("auc", "roc_auc"), ("log_loss", "neg_log_loss")):
        theirs = np.abs(cross_val_score(pooled, x, y, cv=split, scoring=name))
        assert found.measures[measure].to_numpy() == pytest.approx(theirs, abs=0.01)
    truth = pd.Series(y == found.predictions).groupby(found.folds).mean()
    assert found.test_score == pytest.approx(truth.to_numpy())
    assert "in 4 folds of 240 rows: score 0." in repr(found)


def test_numbers_are_judged_as_on_pooled_rows(fed):
    wide = LinearRegression()
    found = cross_validate(wide, fed, ("A", "amount"), folds=3)
    x, y = pool(fed, "amount")
    theirs = cross_val_score(Pooled(), x, y, cv=PredefinedSplit(found.folds), scoring="r2")
    assert found.test_score == pytest.approx(theirs, abs=1e-3)
    assert not hasattr(wide, "shares_")


def test_others_hear_of_folds_and_the_ledger_says_so(fed):
    before = len(fed.steps)
    found = cross_validate(LogisticRegression(), fed, LABEL, folds=2)
    names = [step.name for step in fed.steps[before:]]
    assert names == ["draw folds", *["train logistic", "predict logistic"] * 2]
    told = fed.ledger[fed.ledger["step"] == "draw folds"]
    assert told[["sender", "receiver"]].to_numpy().tolist() == [["A", "B"]]
    # Drawn anew each time, and not by the public seed.
    again = cross_validate(LogisticRegression(), fed, LABEL, folds=2)
    assert (again.folds != found.folds).any()


def test_rows_without_a_label_are_in_no_fold():
    fed = make_fed(rows=120, unknown=20)
    found = cross_validate(LogisticRegression(), fed, LABEL, folds=3)
    assert (found.folds == -1).sum() == 20
    assert found.measures["rows"].sum() == 100
    assert np.isnan(found.probabilities[found.folds == -1]).all()


@pytest.mark.slow
def test_jobs_change_no_figure():
    found = [
        cross_validate(GBDT(n_estimators=3), make_fed(), LABEL, folds=2, n_jobs=jobs)
        for jobs in (None, 2)
    ]
    pd.testing.assert_frame_equal(found[0].measures, found[1].measures)


def test_a_search_finds_the_best_settings_and_trains_them(fed):
    search = GridSearch(
        LogisticRegression(), {"l2": [1e-3, 30.0]}, folds=3, measure="log_loss"
    ).fit(fed, LABEL)
    assert search.best_params_ == {"l2": 1e-3}
    assert search.best_score_ == search.results_["mean log_loss"].min()
    assert search.results_["l2"].tolist() == [1e-3, 30.0]
    assert search.score(fed) == search.best_estimator_.score(fed) > 0.7
    assert len(search.best_estimator_.predict_proba(fed)) == 240


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda fed: cross_validate(LogisticRegression(), fed, LABEL, folds=1), "from 2 to"),
        (lambda fed: cross_validate(vfsl.VFPU(), fed, LABEL), "models of a label. Got VFPU"),
        (lambda fed: GridSearch().fit(fed, LABEL), "must be Estimator"),
        (
            lambda fed: GridSearch(LogisticRegression(), {"l3": [1]}).fit(fed, LABEL),
            "LogisticRegression has no parameter 'l3'; it has l2, max_rounds",
        ),
        (
            lambda fed: GridSearch(LogisticRegression(), {"l2": [1]}, folds=2, measure="rmse").fit(
                fed, LABEL
            ),
            "must be one of score, auc, log_loss for this label",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(act, words, fed):
    with pytest.raises(ConfigError, match=words):
        act(fed)


@pytest.mark.parametrize(
    "model",
    [
        *[ESTIMATORS.find(name)() for name in sorted(ESTIMATORS)],
        vfsl.VFPU(rounds=3, base=LogisticRegression(l2=0.5)),
        vfsl.FedPSG(folds=3),
        vfsl.RISA(epochs=2),
        GridSearch(LogisticRegression(l2=0.5), {"l2": [1.0]}),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_method_has_settings_that_clone_copies(model):
    copied = clone(model)
    assert type(copied) is type(model)
    assert copied is not model
    plain = {n: v for n, v in model.get_params().items() if not hasattr(v, "get_params")}
    found = {n: v for n, v in copied.get_params().items() if not hasattr(v, "get_params")}
    assert found == plain
    name = next(iter(model.get_params(deep=False)))
    assert copied.set_params(**{name: None}) is copied
    assert getattr(copied, name) is None
    with pytest.raises(ConfigError, match="has no parameter 'nothing'"):
        copied.set_params(nothing=1)


def test_settings_of_settings_are_set_by_name():
    model = vfsl.VFPU(base=LogisticRegression())
    model.set_params(base__l2=3.0, rounds=2)
    assert (model.base.l2, model.rounds) == (3.0, 2)
    assert model.get_params()["base__l2"] == 3.0
