"""Prior, calibration, spies, stopping and bias: pure functions against known truth."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from vfsl.data import PartyTable
from vfsl.errors import DataError
from vfsl.pu import bias, stopping
from vfsl.pu.calibration import Calibration, calibrate, finite_logit, label_frequency, least_slope
from vfsl.pu.prior import best_bin, dedpul, elkan_noto, estimate_prior, top_ratio
from vfsl.pu.spies import choose_spies, reliable_negatives, spy_weights


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
    assert Calibration.from_dict(fitted.to_dict()) == fitted


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


def test_spies_are_a_share_and_never_all():
    known = np.arange(40) < 20
    spies = choose_spies(known, 0.15, np.random.default_rng(0))
    assert spies.sum() == 3
    assert not spies[20:].any()
    assert choose_spies(known[:21], 1.0, np.random.default_rng(0)).sum() == 19
    assert choose_spies(np.array([True, True, False]), 0.0, np.random.default_rng(0)).sum() == 1
    weights = spy_weights(known, spies)
    assert weights[known & ~spies].sum() == pytest.approx(weights[~known | spies].sum())


def test_reliable_negatives_by_hand():
    scores = np.array([9.0, 1.0, 2.0, 3.0, 0.5, 0.9, 1.5, 2.5])
    spies = np.array([0, 1, 1, 1, 0, 0, 0, 0], dtype=bool)
    unlabelled = np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=bool)
    assert reliable_negatives(scores, unlabelled, spies, 0.0).tolist() == [False] * 4 + [1, 1, 0, 0]
    assert reliable_negatives(scores, unlabelled, spies, 0.5).tolist() == [False] * 4 + [1, 1, 1, 0]
    with pytest.raises(DataError, match=r"^0 unlabelled rows .* no reliable negatives"):
        reliable_negatives(scores + 9.0 * unlabelled, unlabelled, spies, 0.0)
    with pytest.raises(DataError, match=r"^1 unlabelled rows "):
        reliable_negatives(scores + 0.2 * unlabelled, unlabelled, spies, 0.0)


def test_how_many_are_promoted():
    assert stopping.hidden_positives(0.1, 2000) == 200
    assert stopping.promotion_size(0.02, 1010, 200, 0) == 21
    assert stopping.promotion_size(0.0, 1000, 200, 0) == 1
    assert stopping.promotion_size(1.0, 10, 200, 0) == 10
    assert stopping.promotion_size(None, 1000, 200, 30) == 70
    assert stopping.promotion_size(None, 1000, 0, 30) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"iteration": 3}, "outer"),
        ({"promoted": 100}, "hidden"),
        ({"stability": 0.999}, "stable"),
        ({"positives": 950}, "sizes"),
    ],
)
def test_reasons_to_stop(change, reason):
    state = {"iteration": 2, "outer": 3, "promoted": 50, "hidden": 200, "stability": 0.9}
    state |= {"positives": 100, "unlabelled": 900} | change
    assert stopping.why_stop(**state) == reason
    assert reason is None or reason in stopping.REASONS


def test_ranks_and_separation():
    one, two = np.array([1.0, 2.0, 3.0, 9.0]), np.array([0.0, 5.0, 4.0, 8.0])
    assert stopping.ranking_stability(one, two) == pytest.approx(spearmanr(one, two)[0])
    assert stopping.ranking_stability(one[:1], two[:1]) == 1.0
    positive, unlabelled = np.array([1.0, 2.0, 2.0]), np.array([0.0, 2.0, 3.0, -1.0])
    expected = roc_auc_score([1] * 3 + [0] * 4, np.concatenate([positive, unlabelled]))
    assert stopping.separation(positive, unlabelled) == pytest.approx(expected)
    assert stopping.drifted(0.9, 0.88)
    assert not stopping.drifted(0.9, 0.895)


def picked(biased, rows=6000, seed=0):
    """A table, who is marked and scores that know nothing of the column "reason"."""
    rng = np.random.default_rng(seed)
    positive = rng.random(rows) < 0.3
    reason = rng.normal(size=rows)
    chance = 0.3 if not biased else 0.9 * (reason > 0.6)
    known = positive & (rng.random(rows) < chance)
    scores = np.where(positive, 1.0, -1.0) + rng.normal(size=rows)
    frame = pd.DataFrame({"reason": reason, "same": rng.normal(size=rows)})
    frame["group"] = np.where(reason > 0.6, "high", "low") if biased else rng.choice(["x"], rows)
    frame.loc[3, "same"] = np.nan
    frame["id"] = np.arange(rows).astype(str)
    return PartyTable.from_frame(frame, party="C", id="id"), known, scores


def test_a_column_that_decided_who_is_known_is_named():
    found = bias.differences(*picked(True), np.random.default_rng(0))
    assert [one.column for one in found if one.large] == ["reason", "group"]
    text = bias.warning(found)
    assert "'reason', 'group'" in text
    assert "random sample" in text


def test_random_positives_pass():
    found = bias.differences(*picked(False), np.random.default_rng(0))
    assert {one.column for one in found} == {"reason", "same", "group"}
    assert bias.warning(found) is None


def test_matching_weights_compare_within_strata():
    known = np.array([True, False, False, True, False, True])
    strata = np.array([0, 0, 0, 1, 1, 2])  # nobody to match in the last
    weights = bias.matching_weights(known, strata)
    assert weights.tolist() == pytest.approx([0.5, -0.25, -0.25, 0.5, -0.5, 0.0])
    column = np.array([4.0, 1.0, 3.0, 10.0, 6.0, 99.0])
    assert weights @ column == pytest.approx(((4 - 2) + (10 - 6)) / 2)
