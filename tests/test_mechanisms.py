"""Mechanisms of differential privacy and what they spend."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from vfsl.draws import KeyedNormal
from vfsl.errors import ConfigError
from vfsl.mechanisms import ORDERS, GaussianNoise, RandomisedResponse, add_up, find_epsilon


def exact_delta(epsilon, deviation):
    """Theorem 8 of Balle and Wang, "Improving the Gaussian Mechanism", at sensitivity 1."""
    left, right = 0.5 / deviation, epsilon * deviation
    return norm.cdf(left - right) - math.exp(epsilon) * norm.cdf(-left - right)


def test_noise_spends_what_the_papers_say():
    spent = GaussianNoise(2.0, 1.0).spend()
    assert spent[ORDERS.index(8)] == pytest.approx(1.0)  # α Δ² / (2σ²), Mironov, corollary 3
    # Balle and Wang's deviation for ε = 1 and δ = 1e-5.
    assert exact_delta(1.0, 3.730632) == pytest.approx(1e-5, rel=1e-4)
    assert 1.0 <= find_epsilon(GaussianNoise(3.730632, 1.0).spend(), 1e-5) < 1.15


@pytest.mark.parametrize("deviation", [0.4, 1.0, 5.0])
@pytest.mark.parametrize("times", [1, 4])
def test_epsilon_lies_between_the_exact_one_and_the_classical_bound(deviation, times):
    spent = add_up([GaussianNoise(deviation, 1.0).spend().tolist()] * times)
    found, rho = find_epsilon(spent, 1e-6), times / (2 * deviation**2)
    assert exact_delta(found, deviation / math.sqrt(times)) <= 1e-6
    # Bun and Steinke, "Concentrated Differential Privacy", proposition 1.3; orders are a grid.
    assert found <= 1.02 * (rho + 2 * math.sqrt(rho * math.log(1e6)))


def test_nothing_spent_is_nothing_and_no_noise_is_no_promise():
    assert find_epsilon(()) == find_epsilon(add_up([(), ()])) == 0.0
    assert find_epsilon(GaussianNoise(0.0, 1.0).spend()) == math.inf
    with pytest.raises(ConfigError, match="Got 2 instead"):
        find_epsilon([1.0, 1.0])


def test_randomised_response_by_hand():
    mechanism = RandomisedResponse(math.log(3), 2)
    assert mechanism.kept == pytest.approx(0.75)
    # Order 2: log(0.75² / 0.25 + 0.25² / 0.75), Mironov, proposition 5.
    assert mechanism.spend()[ORDERS.index(2)] == pytest.approx(math.log(7 / 3))
    three = RandomisedResponse(math.log(2), 3)  # ½, ¼, ¼
    assert three.kept == pytest.approx(0.5)
    assert three.spend()[ORDERS.index(2)] == pytest.approx(math.log(1 + 1 / 8 + 1 / 4))
    assert find_epsilon(mechanism.spend()) == pytest.approx(math.log(3), abs=0.06)


def test_randomised_response_changes_as_many_labels_as_it_says():
    codes = np.repeat([0, 1, 2, -1], 10_000)
    made = RandomisedResponse(1.0, 3).apply(codes, np.random.default_rng(0))
    counts = np.array([np.bincount(made[codes == k], minlength=3) for k in range(3)]) / 10_000
    expected = np.where(np.eye(3) == 1, math.e, 1.0) / (math.e + 2)
    assert np.abs(counts - expected).max() < 0.03
    assert (made[codes < 0] == -1).all()


def test_the_noise_of_a_row_is_its_own_and_stays():
    draw = KeyedNormal(b"k", [b"one", b"two", b"one"]).standard_normal((3, 2000))
    again = KeyedNormal(b"k", [b"two"]).standard_normal((1, 2000))
    assert np.array_equal(draw[0], draw[2])
    assert np.array_equal(draw[1], again[0])
    assert abs(np.corrcoef(draw[0], draw[1])[0, 1]) < 0.1
    other = KeyedNormal(b"l", [b"one"]).standard_normal((1, 2000))
    assert abs(np.corrcoef(draw[0], other[0])[0, 1]) < 0.1
    assert draw[0].std() == pytest.approx(1, abs=0.1)
