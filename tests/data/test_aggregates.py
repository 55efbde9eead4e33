"""Aggregates that may be shown: right sums, round bounds, and no small count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfsl.data.aggregates import (
    OTHERS,
    capture_curve,
    histogram,
    level_counts,
    merge_small,
    round_edges,
    round_up,
)


def test_histogram_by_hand():
    values = np.repeat([1.0, 2.0, 9.0], [12, 15, 11])
    made = histogram(values, bins=4)
    assert made == {"edges": [2.0, 4.0, 6.0, 8.0], "counts": [[12, 15, 0, 0, 11]]}


def test_small_bins_join_the_emptier_neighbour():
    edges, counts = merge_small(np.array([1.0, 2.0, 3.0]), np.array([[20, 3, 12, 10]]), 10)
    assert edges.tolist() == [1.0, 3.0]
    assert counts.tolist() == [[20, 15, 10]]


def test_bounds_are_not_the_values_of_rows():
    values = np.concatenate([np.linspace(0.123, 0.987, 200), [1e6], [-1e6]])
    made = histogram(values)
    assert not set(made["edges"]) & set(values)
    assert max(made["edges"]) < 1
    assert min(made["edges"]) > 0.1
    assert sum(made["counts"][0]) == len(values)


def test_too_few_rows_show_nothing():
    assert histogram(np.arange(9.0)) == {}
    assert histogram(np.arange(50.0), np.arange(3.0)) == {}
    assert level_counts({"a": 5, "b": 4}) == {}
    assert capture_curve(np.arange(9.0), np.arange(100.0)) == []


def test_one_value_is_one_bin():
    assert histogram(np.full(30, 7.0)) == {"edges": [], "counts": [[30]]}
    assert histogram(np.r_[np.full(30, np.nan), np.full(12, 1e300)])["counts"] == [[12]]


@given(
    st.lists(
        st.lists(st.floats(-1e9, 1e9) | st.just(float("nan")), max_size=80), min_size=1, max_size=3
    )
)
def test_every_count_is_none_or_many(samples):
    made = histogram(*map(np.array, samples))
    known = [int(np.isfinite(np.array(sample)).sum()) for sample in samples]
    if min(known) < 10:
        assert made == {}
        return
    assert [sum(counts) for counts in made["counts"]] == known
    assert all(count == 0 or count >= 10 for counts in made["counts"] for count in counts)
    assert all(len(counts) == len(made["edges"]) + 1 for counts in made["counts"])
    assert made["edges"] == sorted(set(made["edges"]))


@pytest.mark.parametrize(
    ("width", "step"), [(1, 1), (1.1, 2), (3, 5), (0.07, 0.1), (0.02, 0.02), (600, 1000)]
)
def test_round_steps(width, step):
    assert round_up(width) == pytest.approx(step)


def test_round_edges_read_well():
    assert round_edges(0.0, 1.0, 10).tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert round_edges(3.0, 3.0, 10).tolist() == []


def test_rare_levels_are_one_line():
    made = level_counts({"a": 50, "b": 30, "c": 6, "d": 5}, {"a": 40, "b": 20})
    assert made == {"levels": ["a", "b", OTHERS], "counts": [[50, 30, 11], [40, 20, 0]]}
    # 3 rare rows alone would show: the rarest other level joins them.
    made = level_counts({"a": 50, "b": 30, "c": 3})
    assert made == {"levels": ["a", OTHERS], "counts": [[50, 33]]}


@given(st.lists(st.dictionaries(st.integers(0, 30), st.integers(0, 40)), min_size=1, max_size=2))
def test_levels_keep_their_sum_and_hide_few(samples):
    made = level_counts(*samples)
    if min(sum(sample.values()) for sample in samples) < 10:
        assert made == {}
        return
    assert [sum(counts) for counts in made["counts"]] == [sum(s.values()) for s in samples]
    assert all(count == 0 or count >= 10 for counts in made["counts"] for count in counts)
    assert len(made["levels"]) <= 13


def test_curve_by_hand():
    found = np.arange(100.0, 140.0)  # 40 that are wanted, the best 20 above all others
    among = np.arange(20.0, 120.0)
    curve = capture_curve(found, among)
    assert curve == [[0, 0], [30, 10], [40, 100]]


@given(st.integers(10, 300), st.integers(10, 300), st.integers(0, 1 << 30))
def test_curve_steps_are_large(first, second, seed):
    rng = np.random.default_rng(seed)
    curve = np.array(capture_curve(rng.normal(1, 1, first), rng.normal(0, 1, second).round(1)))
    assert curve[0].tolist() == [0, 0]
    assert curve[-1].tolist() == [first, second]
    assert (np.diff(curve, axis=0) >= 10).all()
