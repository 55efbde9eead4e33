"""Fidelity measures: hand-computed values, limits, and what a copy or a leak looks like."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp
from scipy.stats.contingency import association

from vfsl.completion.fidelity import (
    contingency_similarity,
    correlation_similarity,
    cramers_v,
    ks_complement,
    learning_efficiency,
    nearest_records,
    quality,
    tv_complement,
)
from vfsl.errors import DataError


def frame(rows, seed, gap=1.0):
    rng = np.random.default_rng(seed)
    colour = rng.choice(["red", "green", "blue"], rows, p=[0.5, 0.3, 0.2])
    x = gap * (colour == "red") + 0.3 * rng.normal(size=rows)
    return pd.DataFrame({"x": x, "y": 2 * x + rng.normal(size=rows), "colour": colour})


def test_ks_complement_by_hand_and_against_scipy():
    # Distribution functions at 2: 2/3 against 1/3.
    assert ks_complement(pd.Series([1, 2, 3]), pd.Series([2, 3, np.nan, 3])) == pytest.approx(2 / 3)
    one, two = frame(200, 0)["x"], frame(150, 1)["x"] + 0.2
    assert ks_complement(one, two) == pytest.approx(1 - ks_2samp(one, two).statistic)


def test_tv_complement_by_hand():
    real = pd.Series(["a", "a", "b", None])
    made = pd.Series(["a", "c", "c", "c"])
    # ½ (|2/3 − 1/4| + |1/3 − 0| + |0 − 3/4|) = 0.75
    assert tv_complement(real, made) == pytest.approx(0.25)


def test_correlation_similarity_by_hand():
    real = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]})
    made = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [3.0, 2.0, 1.0]})
    assert correlation_similarity(real, made) == pytest.approx(0.0)
    assert correlation_similarity(real, real) == pytest.approx(1.0)
    assert np.isnan(correlation_similarity(real, made.assign(y=1.0)))


def test_contingency_similarity_by_hand():
    real = pd.DataFrame({"a": list("xxyy"), "b": list("ppqq")})
    made = pd.DataFrame({"a": list("xxyy"), "b": ["p", "q", "q", None]})
    # Shares (x,p) ½ ¼, (y,q) ½ ¼, (x,q) 0 ¼, (y,missing) 0 ¼.
    assert contingency_similarity(real, made) == pytest.approx(0.5)


def test_cramers_v_is_scipys():
    rng = np.random.default_rng(0)
    one = rng.integers(0, 4, 300)
    two = (one + rng.integers(0, 2, 300)) % 3
    counts = pd.crosstab(one, two).to_numpy()
    assert cramers_v(one, two) == pytest.approx(association(counts, method="cramer"))


def test_quality_of_a_copy_is_one_and_pairs_see_what_shapes_do_not():
    real = frame(500, 0).assign(alone=np.random.default_rng(9).normal(size=500))
    same = quality(real, real)
    assert (same.shape, same.pair, same.overall) == (1.0, pytest.approx(1.0), pytest.approx(1.0))
    rng = np.random.default_rng(1)
    shuffled = real.apply(lambda column: rng.permutation(column.to_numpy()))
    apart = quality(real, shuffled)
    assert apart.shape == 1.0
    assert apart.strong_pair() < 0.7
    assert apart.strong_pair() < apart.pair < 0.9  # pairs with the lone column stay right
    assert apart.numeric.loc[("x", "y")]
    assert not apart.numeric.loc[("x", "colour")]


def test_a_number_beside_a_category_is_cut_into_ten_bins_of_its_own_range():
    real = pd.DataFrame({"x": [0.0, 10.0, 10.0, 0.0], "c": list("aabb")})
    stretched = real.assign(x=real["x"] * 5)
    assert quality(real, stretched).pairs["x", "c"] == pytest.approx(1.0)


def test_learning_efficiency_falls_when_the_dependence_is_lost():
    train, test = frame(600, 0), frame(400, 1)
    rng = np.random.default_rng(2)
    lost = train.assign(colour=rng.permutation(train["colour"].to_numpy()))
    kept = learning_efficiency(train, frame(600, 3), test, "colour")
    gone = learning_efficiency(train, lost, test, "colour")
    assert kept.measure == "macro F1"
    assert kept.real == gone.real > 0.5
    assert kept.ratio > 0.9 > gone.ratio + 0.2
    number = learning_efficiency(train, frame(600, 3), test, "y")
    assert number.measure == "R²"
    assert number.made > 0.15


def test_nearest_records_find_copies():
    train, held, made = frame(300, 0), frame(300, 1), frame(300, 2)
    honest = nearest_records(train, made, held)
    leaked = nearest_records(train, pd.concat([train.iloc[:150], made.iloc[:150]]), held)
    assert honest.copies == 0.0
    assert honest.nearer == pytest.approx(0.5, abs=0.1)
    assert leaked.copies == pytest.approx(0.5)
    assert leaked.nearer > 0.7
    assert leaked.distance < 1e-9 < honest.distance


def test_bad_input_is_one_sentence():
    real = frame(20, 0)
    with pytest.raises(DataError, match="the second lacks 1 column: 'colour'"):
        quality(real, real[["x", "y"]])
    with pytest.raises(DataError, match="target of learning_efficiency must be a column"):
        learning_efficiency(real, real, real, "z")
