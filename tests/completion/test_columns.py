"""Completed columns: shrinkage, baselines, verdicts, types and bounds."""

import numpy as np
import pandas as pd
import pytest

from vfsl.completion.calibration import log_errors
from vfsl.completion.columns import (
    CARE,
    MEAN,
    USE,
    Filled,
    Fold,
    draw_in,
    fill_by_baseline,
    fit_fraction,
    make_baseline_fold,
    make_target,
    merge_rare,
    shrink,
    skill,
    verdict,
)
from vfsl.data import PartyTable
from vfsl.errors import DataError


def target(values, kinds=None):
    frame = pd.DataFrame({"id": [str(n) for n in range(len(values))], "x": values})
    frame["other"] = np.arange(len(frame))
    return make_target(PartyTable.from_frame(frame, party="B", id="id", kinds=kinds), "x")


def test_the_kept_fraction_is_a_regression_slope_in_bounds():
    base, truth = np.zeros((4, 1)), np.array([[1.0], [2.0], [3.0], [4.0]])
    assert fit_fraction(2 * truth, base, truth) == pytest.approx(0.5)
    assert fit_fraction(0.5 * truth, base, truth) == 1.0
    assert fit_fraction(-truth, base, truth) == 0.0
    assert fit_fraction(base, base, truth) == 0.0


def test_shrinking_makes_a_useless_model_the_mean():
    rng = np.random.default_rng(0)
    column = target(rng.normal(size=300))
    base = make_baseline_fold(column, 5).baseline
    useless = Fold(column, base + 2 * rng.normal(size=300), base)
    drawn, share = shrink(useless, 5)
    assert share < 0.1
    assert skill(useless)[0] < -1
    assert skill(drawn)[0] > -0.05
    good = Fold(column, column.filled + 0.1 * rng.normal(size=300), base)
    drawn, share = shrink(good, 5)
    assert share > 0.95
    assert skill(drawn)[0] > 0.95


def test_probabilities_shrink_to_frequencies():
    rng = np.random.default_rng(0)
    column = target(rng.choice(["u", "v", "w"], 300, p=[0.6, 0.3, 0.1]))
    base = make_baseline_fold(column, 5)
    guess = rng.dirichlet(np.ones(3), size=300)
    drawn, share = shrink(Fold(column, guess.argmax(1).astype(float), base.baseline, guess), 5)
    assert share < 0.15
    np.testing.assert_allclose(drawn.chances.sum(axis=1), 1)


def filled(column, fold, model="vfpu-m linear"):
    base = fill_by_baseline(column, 4, 5, "high", model)
    return Filled(
        column, "high", model, base.values, base.present, base.round, base.confidence, None, fold
    )


def test_draws_are_as_wide_as_the_real_column():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=2000)
    column = target(truth)
    base = make_baseline_fold(column, 5).baseline
    half = Fold(column, 0.5 * truth, base)
    made = filled(column, half)
    wide = Filled(
        column,
        "high",
        "m",
        0.5 * rng.normal(size=2000),
        np.ones(2000, dtype=bool),
        np.zeros(2000, dtype=np.int64),
        np.zeros(2000),
        None,
        half,
    ).draw(rng)
    assert wide.cells.std() == pytest.approx(np.sqrt(0.5), rel=0.1)  # 0.25 + 0.25 of variance
    assert made.draw(rng).cells.std() > 0
    letters = target(rng.choice(["u", "v", "w"], 300, p=[0.6, 0.3, 0.1]))
    drawn = fill_by_baseline(letters, 5000, 5, "low", "mean").draw(rng)
    counts = np.bincount(drawn.cells.astype(int), minlength=3) / 5000
    known = np.bincount(letters.filled.astype(int), minlength=3) / 300
    np.testing.assert_allclose(counts, known, atol=0.03)


def test_verdicts():
    rng = np.random.default_rng(0)
    column = target(rng.normal(size=400))
    base = make_baseline_fold(column, 5).baseline
    good = Fold(column, column.filled + 0.3 * rng.normal(size=400), base)
    weak = Fold(column, base + 0.03 * (column.filled - base), base)  # 1 − 0.97² = 0.06
    bad = Fold(column, -column.filled, base)
    assert filled(column, good).verdict == USE
    assert filled(column, weak).verdict == CARE
    assert filled(column, bad).verdict == MEAN
    assert filled(column, good, "mean").verdict == MEAN
    assert filled(column, good).helps
    assert not filled(column, bad).helps
    assert not filled(column, good, "mean").helps


def test_a_skill_within_two_errors_of_nothing_is_not_shown():
    assert verdict("direct", 0.05, 0.02) == CARE
    assert verdict("direct", 0.04, 0.02) == MEAN
    assert verdict("direct", 0.5, 0.1) == USE
    assert verdict("constant", 0.5, 0.1) == MEAN
    rng = np.random.default_rng(1)
    column = target(rng.normal(size=40))
    base = make_baseline_fold(column, 5).baseline
    luck = filled(column, Fold(column, base + 0.3 * rng.normal(size=40), base))
    assert 0 < skill(luck.fold)[0] < 2 * skill(luck.fold)[1]
    assert luck.verdict == MEAN
    assert luck.helps


def test_whole_numbers_stay_whole_and_within_bounds():
    column = target(np.array([1, 2, 3, 9], dtype=np.int64))
    series = column.restore(np.array([-4.0, 2.4, 99.0]))
    assert series.tolist() == [1, 2, 9]
    assert str(series.dtype) == "int64"
    partly = column.restore(np.array([2.4, 3.0]), np.array([True, False]))
    assert partly.isna().tolist() == [False, True]
    assert str(partly.dtype) == "Int64"


@pytest.mark.parametrize(
    "values",
    [
        ["u", "v", "u", "u"],
        [True, False, True, True],
        pd.Categorical(["u", "v", "u", "u"], categories=["w", "v", "u"], ordered=True),
    ],
    ids=["text", "truth", "ordered"],
)
def test_categories_keep_names_and_types(values):
    column = target(values)
    places = np.array([column.levels.index(column.levels[0]), 1.0])
    series = column.restore(places)
    assert series.tolist() == [column.levels[0], column.levels[1]]
    assert series.dtype == pd.Series(values).dtype
    left = column.restore(places, np.array([False, True]))
    assert left.isna().tolist() == [True, False]


def test_one_class_and_one_number():
    only = target(["u"] * 30)
    assert only.constant
    done = fill_by_baseline(only, 3, 5, "constant", "constant")
    assert only.restore(done.values, done.present).tolist() == ["u"] * 3
    assert done.confidence.tolist() == [1.0] * 3
    seven = target(np.full(30, 7.0))
    done = fill_by_baseline(seven, 2, 5, "constant", "constant")
    assert seven.restore(done.values, done.present).tolist() == [7.0, 7.0]
    assert done.verdict == MEAN


def test_far_cells_are_drawn_in():
    numbers = np.concatenate([np.linspace(-1, 1, 2000), [1e9]])
    calm = draw_in(numbers)
    assert np.abs(calm - calm.mean()).max() <= 20.001 * calm.std()
    assert (calm[:2000] == numbers[:2000]).all()
    assert np.isnan(draw_in(np.array([1.0, np.nan, 2.0]))).tolist() == [False, True, False]


def test_an_empty_column_is_refused():
    frame = pd.DataFrame({"id": ["1", "2", "3"], "x": [np.nan, np.nan, 5.0], "z": [1, 2, 3]})
    table = PartyTable.from_frame(frame, party="B", id="id")
    with pytest.raises(DataError, match="'x' of party B has no value in the common rows"):
        make_target(table.take([0, 1]), "x")


def test_errors_are_floored_before_the_logarithm():
    found = log_errors(np.array([1.0, 0.0, -3.0]))
    np.testing.assert_allclose(found, np.log([1.0, 0.05 * 4 / 3, 3.0]))


def test_rare_categories_are_predicted_together():
    counts = {"u": 50, "v": 30, "w": 12, "x": 5, "y": 3}
    cells = np.repeat(list(counts), list(counts.values()))
    frame = pd.DataFrame({"id": np.arange(100).astype(str), "c": cells, "n": np.arange(100.0)})
    frame["mostly"] = np.where(np.arange(100) < 92, 0.0, np.arange(100))
    table = PartyTable.from_frame(frame, party="B", id="id")
    column = make_target(table, "c")
    assert (column.width, merge_rare(column, 1).width) == (4, 4)
    ten = merge_rare(column, 10)  # x and y have 8 rows together, so w hides them
    assert ten.groups.tolist() == [0, 1, 2, 2, 2]
    assert ten.numbers(np.array([0.0, 1.0, 3.0])).tolist() == [[0, 0], [1, 0], [0, 1]]
    eight = merge_rare(column, 8)
    assert eight.groups.tolist() == [0, 1, 2, 3, 3]
    made = ten.plain_chances(np.array([[0.2, 0.4]]))
    np.testing.assert_allclose(made, [[0.4, 0.2, 0.4 * 0.6, 0.4 * 0.25, 0.4 * 0.15]])
    assert merge_rare(column, 50).groups.tolist() == [0, 1, 1, 1, 1]
    assert merge_rare(column, 51) is None
    assert merge_rare(make_target(table, "n"), 99) is not None
    assert merge_rare(make_target(table, "mostly"), 8) is not None
    assert merge_rare(make_target(table, "mostly"), 9) is None
