"""KS, Gini, bands, confusion and residuals, each against scipy or scikit-learn."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, precision_score, r2_score, recall_score, roc_auc_score

from vfsl.model_selection.figures import (
    count_outcomes,
    cut_bands,
    describe_residuals,
    describe_scores,
    find_ks,
    is_positive,
    list_bands,
    rate_outcomes,
)


def make_scores(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.random(rows)
    return rng.random(rows) < scores, scores


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=60))
def test_ks_is_that_of_scipy(rows):
    positive = np.array([row[0] for row in rows])
    scores = np.array([row[1] / 6 for row in rows])
    found, at = find_ks(positive, scores)
    if positive.all() or not positive.any():
        assert np.isnan(found)
        assert np.isnan(at)
        return
    with warnings.catch_warnings():  # of a p-value that scipy cannot compute for few rows
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = ks_2samp(scores[positive], scores[~positive]).statistic
    assert found == pytest.approx(expected)
    apart = abs((scores[positive] <= at).mean() - (scores[~positive] <= at).mean())
    assert apart == pytest.approx(expected)


def test_gini_and_counts():
    positive, scores = make_scores()
    found = describe_scores(positive, scores)
    assert found["Gini"] == pytest.approx(2 * roc_auc_score(positive, scores) - 1)
    assert found["rows"] == 400
    assert found["positives"] == positive.sum()


def test_confusion_precision_and_recall():
    positive, scores = make_scores(seed=1)
    flagged = scores > 0.4
    counts = count_outcomes(positive, flagged)
    [[left, alarms], [misses, hits]] = confusion_matrix(positive, flagged)
    names = {"hits": hits, "false alarms": alarms, "misses": misses, "rightly left": left}
    assert counts == names
    rates = rate_outcomes(counts)
    assert rates["precision"] == pytest.approx(precision_score(positive, flagged))
    assert rates["recall"] == pytest.approx(recall_score(positive, flagged))
    assert rates["flagged"] == pytest.approx(flagged.mean())
    assert np.isnan(rate_outcomes(count_outcomes(positive, np.zeros(400, bool)))["precision"])


def test_bands_calibrate_as_scikit_learn_and_lift_by_definition():
    positive, scores = make_scores(seed=2)
    bands = list_bands(positive, scores, 10)
    rates, expected = calibration_curve(positive, scores, n_bins=10, strategy="quantile")
    assert [band["rate"] for band in bands][::-1] == pytest.approx(rates.tolist())
    assert [band["expected"] for band in bands][::-1] == pytest.approx(expected.tolist())
    third = np.sort(scores)[-120:].min()
    inside = positive[scores >= third]
    assert bands[2]["captured"] == pytest.approx(inside.sum() / positive.sum())
    assert bands[2]["lift"] == pytest.approx(inside.mean() / positive.mean())
    assert bands[-1]["captured"] == 1
    assert bands[-1]["lift"] == pytest.approx(1)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=150), st.integers(2, 20))
def test_every_row_is_in_one_band_equal_scores_together_ten_rows_each(values, count):
    scores = np.array(values, dtype=float)
    bands = cut_bands(scores, count)
    assert sorted(np.concatenate(bands).tolist()) == list(range(len(scores)))
    assert all(len(band) >= 10 for band in bands) or len(bands) == 1
    assert len(bands) <= count
    edges = [(scores[band].min(), scores[band].max()) for band in bands]
    assert all(low > high for (low, _), (_, high) in itertools.pairwise(edges))


def test_residuals_by_prediction():
    rng = np.random.default_rng(3)
    values = rng.normal(size=500)
    truth = values + rng.normal(size=500)
    found = describe_residuals(truth, values, 5)
    assert found["R²"] == pytest.approx(r2_score(truth, values))
    assert found["mean residual"] == pytest.approx((truth - values).mean())
    first = found["bands"][0]
    chosen = values <= first["to"]
    assert first["rows"] == chosen.sum() == 100
    assert first["mean residual"] == pytest.approx((truth - values)[chosen].mean())
    assert first["90 %"] == pytest.approx(np.percentile((truth - values)[chosen], 90))
    assert sum(found["histogram"]["counts"][0]) == 500
    assert np.isnan(describe_residuals(np.ones(20), np.ones(20))["R²"])


def test_positive_is_the_second_class():
    labels = np.array(["no", "yes", "yes"], dtype=object)
    assert is_positive(labels, np.array(["no", "yes"])).tolist() == [False, True, True]
