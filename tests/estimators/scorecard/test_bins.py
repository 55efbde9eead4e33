"""Bins of a scorecard beside loops over everything that could be."""

from itertools import combinations, pairwise
from math import log

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.data import PartyTable
from vfsl.estimators.scorecard.binning import BinTerms, bin_alone
from vfsl.estimators.scorecard.bins import (
    LEAST,
    BinnedColumn,
    cut_finely,
    find_ends,
    find_information,
    find_stability,
    find_woe,
    join_bins,
)


def draw_counts(seed, size):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 60, size)
    return rows, rng.binomial(rows, rng.uniform(0.1, 0.9, size))


def test_woe_and_information_by_hand():
    rows, positives = np.array([100, 50]), np.array([20, 30])
    ones, others = (20.5 / 51, 30.5 / 51), (80.5 / 101, 20.5 / 101)
    expected = [log(one / other) for one, other in zip(ones, others, strict=True)]
    np.testing.assert_allclose(find_woe(rows, positives), expected)
    information = sum(
        (one - other) * woe for one, other, woe in zip(ones, others, expected, strict=True)
    )
    assert find_information(rows, positives).sum() == pytest.approx(information)


def test_stability_index_by_hand():
    first, second = np.array([50, 30, 20]), np.array([5, 3, 2])
    assert find_stability(first, second) == pytest.approx(0.0)
    moved = 0.3 * log(0.8 / 0.5) + (0.1 - 0.3) * log(0.1 / 0.3) + (0.1 - 0.2) * log(0.1 / 0.2)
    assert find_stability(first, np.array([8, 1, 1])) == pytest.approx(moved)
    assert np.isfinite(find_stability(first, np.array([0, 0, 7])))


@given(seed=st.integers(0, 10**6), size=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_every_shown_bin_has_enough_of_both_classes(seed, size):
    rows, positives = draw_counts(seed, size)
    ends = find_ends(rows, positives)
    assert ends[-1] == size
    starts = [0, *ends[:-1]]
    if len(ends) == 1:
        return
    for start, end in zip(starts, ends, strict=True):
        found = positives[start:end].sum()
        assert found >= LEAST
        assert rows[start:end].sum() - found >= LEAST


def best_by_trying(rows, positives, most, least, monotone):
    """The greatest information of all ways to join neighbours."""
    size, best = len(rows), -np.inf
    for count in range(min(most, size)):
        for inner in combinations(range(1, size), count):
            cuts = [0, *inner, size]
            pairs = list(pairwise(cuts))
            counted = np.array([rows[start:end].sum() for start, end in pairs])
            found = np.array([positives[start:end].sum() for start, end in pairs])
            if (counted < max(least, 1)).any():
                continue
            steps = np.diff(found / counted)
            if monotone and not ((steps >= 0).all() or (steps <= 0).all()):
                continue
            best = max(best, value_of(counted, found))
    return best


def value_of(rows, positives):
    ones, others = positives / positives.sum(), (rows - positives) / (rows - positives).sum()
    return float(((ones - others) * np.log((ones + 1e-12) / (others + 1e-12))).sum())


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 8),
    most=st.integers(2, 5),
    least=st.sampled_from([0, 25]),
    monotone=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_joined_bins_are_the_best_of_all(seed, size, most, least, monotone):
    rows, positives = draw_counts(seed, size)
    rows, positives = rows + 2, positives + 1
    ends = join_bins(rows, positives, rows.sum(), positives.sum(), most, least, monotone)
    starts = [0, *ends[:-1]]
    pairs = list(zip(starts, ends, strict=True))
    counted = np.array([rows[start:end].sum() for start, end in pairs])
    found = np.array([positives[start:end].sum() for start, end in pairs])
    best = best_by_trying(rows, positives, most, least, monotone)
    if np.isfinite(best):
        assert value_of(counted, found) == pytest.approx(best, abs=1e-9)
    else:
        assert ends == [size]


def people(rows=600, seed=0):
    rng = np.random.default_rng(seed)
    income, town = rng.normal(size=rows), rng.choice(["n", "s", "w"], rows)
    target = (rng.random(rows) < 1 / (1 + np.exp(-income - (town == "n")))).astype(np.int64)
    frame = pd.DataFrame({"id": np.arange(rows).astype(str), "income": income, "town": town})
    frame.loc[::9, "income"] = np.nan
    return PartyTable.from_frame(frame, party="A", id="id", label=False), target


def test_cells_get_the_weight_of_their_bin_and_unseen_ones_none():
    table, target = people()
    income, town = bin_alone(table, target, BinTerms())
    for column in (income, town):
        places = column.find_bins(table.column(column.name))
        assert np.bincount(places).tolist() == column.rows
        found = np.bincount(places, weights=target)
        assert np.abs(found - column.positives).max() <= 4  # counts come in fours
        again = BinnedColumn.from_dict(column.to_dict())
        assert again == column
    assert "missing" in income.describe()
    odd = pd.Series(["n", "x"], dtype=object)
    assert town.transform(odd)[1] == 0.0
    rates = np.array(income.positives[1:]) / np.array(income.rows[1:])
    assert (np.diff(rates) >= 0).all()


@pytest.mark.parametrize("seed", range(6))
def test_how_finely_columns_are_cut_does_not_change_how_many_there_are(seed):
    rng = np.random.default_rng(seed)
    values = {
        f"x{at}": rng.choice(rng.normal(size=size), 80, p=rng.dirichlet(np.full(size, 0.3)))
        for at, size in enumerate((1, 2, 3, 5, 20, 60))
    }
    frame = pd.DataFrame({"id": np.arange(80).astype(str), **values})
    table = PartyTable.from_frame(frame, party="A", id="id", label=False)
    counts = {len(cut_finely(table, most)) for most in range(2, 21)}
    assert len(counts) == 1
