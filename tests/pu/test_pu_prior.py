"""Prior and calibration: pure functions against known truth."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from vfsl.pu.prior import (
    Calibration,
    best_bin,
    calibrate,
    dedpul,
    elkan_noto,
    estimate_prior,
    finite_logit,
    label_frequency,
    least_slope,
    separation,
    top_ratio,
)


def mixture(share, positives=4000, unlabelled=20_000, gap=4.0, seed=0):
    """Scores where positives are N(gap/2, 1) and negatives N(−gap/2, 1), and who is what in U."""
    rng = np.random.default_rng(seed)
    truth = rng.random(unlabelled) < share
    return (
        rng.normal(gap / 2, 1, positives),
        rng.normal(np.where(truth, gap / 2, -gap / 2), 1),
        truth,
    )


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_priors_of_separated_classes(share):
    positive, unlabelled, truth = mixture(share)
    assert best_bin(positive, unlabelled) == pytest.approx(truth.mean(), abs=0.02)
    assert dedpul(positive, unlabelled) == pytest.approx(truth.mean(), abs=0.03)
    assert top_ratio(positive, unlabelled) == pytest.approx(truth.mean(), rel=0.15)


def test_positives_that_score_far_above_all_others():
    """No unlabelled row lies near a positive: none of them is positive, and nothing is divided."""
    positive, unlabelled = np.full(6, 2.6), np.linspace(-3, 1.6, 60)
    assert dedpul(positive, unlabelled) == 0.0
    prior = estimate_prior(positive, unlabelled, np.random.default_rng(0))
    assert (prior.value, prior.low, prior.high) == (0.0, 0.0, 0.0)
    found = calibrate(positive, unlabelled, prior.value).of_unlabelled(unlabelled)
    assert np.isfinite(found).all()
    assert (np.diff(found) > 0).all()


def test_best_bin_by_hand():
    """Two thresholds above which U has 1 of 4 and 2 of 4, P half and all."""
    positive, unlabelled = np.array([1.0, 3.0]), np.array([0.0, 0.5, 1.0, 3.0])
    slack = np.sqrt(np.log(40) / 8) + np.sqrt(np.log(40) / 4)
    bounds = {0.5: 0.5 + 1.01 * slack, 0.25 / 0.5: 0.5 + 1.01 / 0.5 * slack}
    assert min(bounds, key=lambda ratio: bounds[ratio]) == 0.5
    assert best_bin(positive, unlabelled) == 0.5


def test_the_mean_of_elkan_and_noto_is_an_upper_check():
    """Right where balanced scores are calibrated and pure, too high where classes overlap."""
    positive, unlabelled, truth = mixture(0.1, gap=2.0)
    # The balanced logit of P against U, from the true densities.
    both = [np.log(_density(x, 1.0) / (0.1 * _density(x, 1.0) + 0.9 * _density(x, -1.0))) for x in
            (positive, unlabelled)]  # fmt: skip
    assert elkan_noto(*both) > 1.5 * truth.mean()
    assert best_bin(*both) < elkan_noto(*both)


def _density(x, centre):
    return np.exp(-0.5 * (x - centre) ** 2)


def test_the_interval_covers_and_narrows():
    small = estimate_prior(*mixture(0.2, 200, 1000)[:2], np.random.default_rng(0))
    large = estimate_prior(*mixture(0.2)[:2], np.random.default_rng(0))
    for prior in (small, large):
        assert prior.low <= prior.value <= prior.high
        assert prior.cautious == min(prior.low, prior.top)
    assert large.high - large.low < small.high - small.low
    assert large.low <= 0.22
    assert large.high >= 0.18
    assert set(small.to_dict()) == {"value", "low", "high", "best_bin", "upper", "top"}


def test_useless_scores_say_that_all_may_be_positive():
    rng = np.random.default_rng(0)
    assert best_bin(rng.normal(size=2000), rng.normal(size=5000)) > 0.8


def test_calibrated_probabilities_are_frequencies():
    positive, unlabelled, truth = mixture(0.3, gap=3.0)
    fitted = calibrate(positive, unlabelled, 0.3)
    p = fitted.of_unlabelled(unlabelled)
    assert p.mean() == pytest.approx(0.3, abs=0.01)
    for low in np.arange(0, 1, 0.2):
        here = (p >= low) & (p < low + 0.2)
        assert p[here].mean() == pytest.approx(truth[here].mean(), abs=0.05)
    # Two normals of equal spread: the true logit is gap·z + log odds of all rows together.
    everybody = (4000 + 0.3 * 20_000) / 24_000
    assert fitted.slope == pytest.approx(3.0, rel=0.1)
    assert fitted.intercept == pytest.approx(finite_logit(np.array(everybody)), abs=0.15)
    assert fitted.frequency == label_frequency(0.3, 4000, 20_000) == 0.4


def test_calibration_keeps_the_order_and_comes_back_from_json():
    positive, unlabelled, _ = mixture(0.1, 50, 400, gap=1.0)
    fitted = calibrate(positive, unlabelled, 0.1)
    assert spearmanr(fitted.of_unlabelled(unlabelled), unlabelled)[0] == pytest.approx(1.0)
    assert Calibration(**json.loads(json.dumps(asdict(fitted)))) == fitted


@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 60),
    st.integers(0, 400),
    st.floats(-3, 3),
    st.sampled_from([0.0, 1e-6, 0.05, 0.3, 0.9, 1.0]),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.sampled_from(["normal", "heavy", "skewed"]),
    st.integers(0, 1000),
)
@example(2, 74, 2.0, 0.0, 0.001, "skewed", 74)  # a prior of 0 asks for the steepest slope
def test_no_ranking_is_flattened(positives, more, gap, prior, scale, tails, seed):
    """Whatever the prior is taken for, and whichever way the held-out positives rank."""
    rng = np.random.default_rng(seed)
    draw = {
        "normal": rng.standard_normal,
        "heavy": lambda size: rng.standard_t(2, size),
        "skewed": rng.standard_exponential,
    }[tails]
    unlabelled = draw(positives + more) + gap * (rng.random(positives + more) < 0.3)
    positive = draw(positives) + gap
    fitted = calibrate(scale * positive, scale * unlabelled, prior)
    order = np.sort(scale * unlabelled)
    for p in (fitted.of_unlabelled(order), fitted.of_all(order)):
        assert (np.diff(p) > 0).all()
        assert (p > 0).all()
        assert (p < 1).all()


def test_the_least_slope_is_below_the_true_one():
    """Two normals of equal spread, whose true slope is their gap."""
    for share, gap in ((0.05, 1.0), (0.3, 1.0), (0.3, 3.0), (0.7, 2.0)):
        positive, unlabelled, _ = mixture(share, gap=gap)
        least = least_slope(positive, unlabelled) / np.concatenate([positive, unlabelled]).std()
        assert 0 < least < gap
        fitted = calibrate(positive, unlabelled, share)
        assert fitted.slope == pytest.approx(gap, rel=0.15)


def test_scores_against_the_sense_say_little_and_keep_their_order():
    positive, unlabelled, _ = mixture(0.2, gap=3.0)
    fitted = calibrate(-positive, -unlabelled, 0.2)
    p = fitted.of_unlabelled(-unlabelled)
    assert spearmanr(p, -unlabelled)[0] == pytest.approx(1.0)
    assert p.mean() == pytest.approx(0.2, abs=0.02)
    # As steep as a standard error of a chance ranking: the larger the sample, the flatter.
    assert np.ptp(p) < 0.03
    few = calibrate(-positive[:20], -unlabelled[:100], 0.2)
    assert few.slope > 5 * fitted.slope


def test_logit_is_finite_and_inverse():
    z = np.array([-3.0, 0.0, 5.0])
    np.testing.assert_allclose(finite_logit(expit(z)), z)
    assert np.isfinite(finite_logit(np.array([0.0, 1.0]))).all()


def test_separation_is_an_auc():
    positive, unlabelled = np.array([1.0, 2.0, 2.0]), np.array([0.0, 2.0, 3.0, -1.0])
    expected = roc_auc_score([1] * 3 + [0] * 4, np.concatenate([positive, unlabelled]))
    assert separation(positive, unlabelled) == pytest.approx(expected)


# ---- scores that say little or nothing -----------------------------------------------------------

_SCORES = st.one_of(
    st.sampled_from([-700.0, -1.0, 0.0, 1e-12, 1.0, 20.7, 700.0]),
    st.floats(-50, 50, allow_nan=False, allow_subnormal=False),
)


@given(
    positive=st.lists(_SCORES, min_size=1, max_size=30),
    unlabelled=st.lists(_SCORES, min_size=1, max_size=60),
    seed=st.integers(0, 9),
)
@example(positive=[0.3], unlabelled=[0.3], seed=0)  # one row each, equal
@example(positive=[0.3] * 20, unlabelled=[0.3] * 50, seed=0)  # all scores equal
@example(positive=[5.0], unlabelled=[-1.0, -1.0, 0.0], seed=0)  # one positive, above all
@example(positive=[-9.0, -8.0], unlabelled=[5.0, 6.0, 7.0], seed=0)  # no overlap, below all
@example(positive=[9.0, 8.0], unlabelled=[-5.0, -6.0, -7.0], seed=0)  # no overlap, above all
@example(positive=[0.0, 0.0, 0.0, 1e-300], unlabelled=[0.0, 1.0], seed=0)
@example(positive=[-700.0, 700.0], unlabelled=[-700.0, 700.0], seed=0)
@settings(max_examples=60, deadline=None)
def test_a_prior_of_any_scores_is_a_fraction(positive, unlabelled, seed):
    """Warnings are errors here: nothing is divided by nothing, whatever the scores are."""
    one, other = np.array(positive), np.array(unlabelled)
    prior = estimate_prior(one, other, np.random.default_rng(seed), repeats=5)
    assert 0 <= prior.low <= prior.value <= prior.high <= 1
    for name in ("best_bin", "upper", "top", "cautious"):
        assert 0 <= getattr(prior, name) <= 1, name
    found = calibrate(one, other, prior.value)
    for chances in (found.of_all(other), found.of_unlabelled(other)):
        assert ((chances >= 0) & (chances <= 1)).all()


@given(
    scores=st.lists(st.floats(-20, 20, allow_subnormal=False), min_size=3, max_size=40),
    known=st.integers(1, 5),
    prior=st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_scores_that_differ_never_become_equal_probabilities(scores, known, prior):
    values = np.round(np.array(scores), 3)
    found = calibrate(values[: min(known, 2)], values[2:], prior)
    assert found.slope > 0
    logits = found.slope * values + found.intercept
    assert (np.diff(logits[np.argsort(values)]) >= 0).all()
    assert len(np.unique(logits)) == len(np.unique(values))
