"""The sigmoid as a sum of waves, against the sigmoid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from vfsl.estimators.shared.sigmoid import ERROR, find_tail, from_numbers, make_series, to_numbers

PERIODS = [32.0, 64.0, 128.0, 256.0]


def angles_of(series, scores):
    return np.outer(scores, 2 * np.pi * np.array(series.frequencies) / series.period)


@pytest.mark.parametrize("period", PERIODS)
def test_the_series_is_the_sigmoid_within_reach(period):
    series = make_series(period)
    scores = np.linspace(-series.reach, series.reach, 4001)
    found = np.sin(angles_of(series, scores)) @ series.sigmoid
    assert np.abs(found - (expit(scores) - 0.5)).max() < 2 * ERROR


@pytest.mark.parametrize("period", PERIODS)
def test_the_tail_bounds_what_is_left_out(period):
    short, long = make_series(period), 400
    count = len(short.sigmoid)
    angular = 2 * np.pi * np.arange(1, 2 * long, 2) / period
    with np.errstate(over="ignore"):
        every = 4 * np.pi / period / np.sinh(np.pi * angular)
    assert every[count:].sum() <= find_tail(period, count) < ERROR <= find_tail(period, count - 1)


@pytest.mark.parametrize("period", PERIODS)
def test_slope_and_loss_are_derivative_and_integral(period):
    series = make_series(period)
    scores = np.linspace(-series.reach, series.reach, 40001)
    angles = angles_of(series, scores)
    sigmoid = np.sin(angles) @ series.sigmoid
    slope = np.cos(angles) @ series.slope
    loss = series.constant + np.cos(angles) @ series.loss
    np.testing.assert_allclose(np.gradient(loss, scores)[1:-1], sigmoid[1:-1], atol=1e-6)
    np.testing.assert_allclose(np.gradient(sigmoid, scores)[1:-1], slope[1:-1], atol=1e-5)
    assert series.constant + series.loss.sum() == pytest.approx(np.log(2))
    # The mean error is small too: waves left out do not add up over a row's way from 0.
    assert np.abs(loss - np.logaddexp(scores / 2, -scores / 2)).max() < 5 * ERROR


def test_beyond_reach_the_series_is_another_function():
    series = make_series(32.0)
    assert np.sin(angles_of(series, [16.0])) @ series.sigmoid == pytest.approx(0, abs=1e-9)


def test_numbers_carry_the_series():
    series = make_series(64.0)
    again = from_numbers(64.0, to_numbers(series))
    np.testing.assert_array_equal(again.slope, series.slope)
    assert again.constant == series.constant
    assert again.frequencies == series.frequencies
