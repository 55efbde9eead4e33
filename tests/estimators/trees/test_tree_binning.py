"""Columns as codes: quantile edges, categories, missing and unseen cells, and the way to JSON."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimators.trees.tree_cases import table_of
from vfsl.data import PartyTable
from vfsl.estimators.trees import binning
from vfsl.estimators.trees.binning import Bins, Column, Histograms, cut_quantiles

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def cut(values, edges):
    """The bin of each value, one by one: how many edges lie below it."""
    return np.array([sum(value > edge for edge in edges) for value in values])


@given(st.lists(NUMBERS, min_size=1, max_size=80), st.integers(2, 12))
def test_edges_rise_keep_the_order_and_part_values(values, most):
    values = np.array(values)
    edges = cut_quantiles(values, most)
    assert len(edges) < most
    assert (np.diff(edges) > 0).all()
    assert np.isfinite(edges).all()
    bins = cut(values, edges)
    order = np.argsort(values)
    assert (np.diff(bins[order]) >= 0).all()
    # Every bin has a value in it: an edge that parts nothing would be offered in vain.
    assert set(bins) == set(range(len(edges) + 1))


@given(st.lists(NUMBERS, min_size=1, max_size=30, unique=True), st.integers(30, 255))
def test_few_values_get_a_bin_each(values, most):
    bins = cut(values, cut_quantiles(np.array(values), most))
    assert len(set(bins)) == len(values)


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        ([], []),
        ([3.0] * 5, []),
        ([1.0, 2.0], [1.5]),
        ([0.0, 10.0, 10.0, 30.0], [5.0, 20.0]),
        # Neighbours without a number between them: the edge is the lower one.
        ([1.0, np.nextafter(1.0, 2.0)], [1.0]),
        ([5e-324, 1e-323], [5e-324]),
        # Their difference does not fit a double.
        ([-1.7e308, 1.7e308], [0.0]),
        ([1e-300, 1e300], [5e299]),
    ],
)
def test_edges_by_hand(values, edges):
    assert cut_quantiles(np.array(values), 255) == edges


def test_bins_share_the_rows_evenly():
    values = np.random.default_rng(0).normal(size=10_000)
    counts = np.bincount(cut(values, cut_quantiles(values, 16)))
    assert len(counts) == 16
    assert counts.min() > 600
    assert counts.max() < 650


def test_a_frequent_value_has_a_bin_to_itself():
    rng = np.random.default_rng(1)
    values = np.concatenate([np.zeros(700), rng.normal(size=300)])
    edges = cut_quantiles(values, 8)
    bins = cut(values, edges)
    assert set(values[bins == cut([0.0], edges)[0]]) == {0.0}
    assert len(edges) == 7


def test_many_frequent_values_among_rare_ones_stay_within_the_bins():
    """Frequent and rare values take turns: not all can be alone, but no bin too many is made."""
    values = np.concatenate([np.full(24 if v % 2 else 1, float(v)) for v in range(9)])
    edges = cut_quantiles(values, 5)
    assert 1 <= len(edges) < 5


@given(
    st.lists(st.one_of(st.none(), st.integers(-50, 50)), min_size=2, max_size=60),
    st.integers(2, 20),
)
def test_codes_of_training_cells(values, most):
    values = [*values, 7]  # tables refuse a column without any value
    frame = pd.DataFrame({"x": pd.array(values, dtype="Float64"), "y": range(len(values))})
    bins = Bins.fit(table_of(frame, "B"), most, "one-vs-rest")
    found = {column.name: column for column in bins.columns}
    known = [value for value in values if value is not None]
    # A constant column without gaps says nothing.
    if len(set(known)) + (len(known) < len(values)) < 2:
        assert "x" not in found
        return
    codes = found["x"].codes(frame["x"])
    expected = cut([0 if value is None else value for value in values], found["x"].edges)
    for value, code, wanted in zip(values, codes, expected, strict=True):
        assert code == (found["x"].size if value is None else wanted)
    assert found["x"].missing == (len(known) < len(values))
    again = Bins.from_dict(json.loads(json.dumps(bins.to_dict())))
    assert again == bins
    assert (again.transform(table_of(frame, "B")) == bins.transform(table_of(frame, "B"))).all()


def test_unseen_numbers_fall_to_the_nearer_side():
    column = Column("x", [1.5, 3.0], None, True, False)
    cells = pd.Series([-1e9, 1.4, 1.5, 1.6, 3.1, 1e9, np.nan])
    assert column.codes(cells).tolist() == [0, 0, 0, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("values", "levels", "missing"),
    [
        (["b", "a", "a", None, "c"], ["a", "b", "c"], True),
        ([True, False, True], [False, True], False),
        (pd.Categorical(["lo", "hi", "mid"], ["lo", "mid", "hi"], ordered=True), None, False),
    ],
)
@pytest.mark.parametrize("categories", ["one-vs-rest", "sorted"])
def test_categories_survive_json(values, levels, missing, categories):
    frame = pd.DataFrame({"g": values, "y": range(len(values))})
    table = table_of(frame, "B")
    bins = Bins.fit(table, 8, categories)
    column = Bins.from_dict(json.loads(json.dumps(bins.to_dict()))).columns[0]
    assert column.levels == (levels or ["lo", "mid", "hi"])
    assert column.missing is missing
    assert column.ordered is (categories == "sorted")
    codes = column.codes(table.column("g"))
    read = [None if code == column.size else column.levels[code] for code in codes]
    assert read == [None if pd.isna(value) else value for value in values]


def test_unseen_and_rare_categories_are_as_missing_ones():
    frame = pd.DataFrame({"g": list("aaabbbccd"), "y": range(9)})
    column = Bins.fit(table_of(frame, "B"), 3, "one-vs-rest").columns[0]
    assert column.levels == ["a", "b", "c"]  # d is the rarest
    assert column.missing
    assert column.codes(pd.Series(["a", "d", "new", None, "c"])).tolist() == [0, 3, 3, 3, 2]


def test_equally_frequent_categories_are_kept_in_their_order():
    frame = pd.DataFrame({"g": list("dcbaabcd"), "y": range(8)})
    assert Bins.fit(table_of(frame, "B"), 2, "sorted").columns[0].levels == ["a", "b"]


def test_as_many_bins_as_a_byte_holds():
    frame = pd.DataFrame({"x": np.arange(600.0), "g": [f"level {i:03}" for i in range(600)]})
    frame.loc[599, "x"] = np.nan
    bins = Bins.fit(table_of(frame, "B"), 255, "one-vs-rest")
    assert [column.size for column in bins.columns] == [255, 255]
    codes = bins.transform(table_of(frame, "B"))
    assert codes.dtype == np.uint8
    assert codes[599].tolist() == [255, 255]
    assert bins.width == 256


def test_constant_columns_and_no_columns():
    constant = pd.DataFrame({"x": [2.0] * 4, "g": ["a"] * 4})
    bins = Bins.fit(table_of(constant, "B"), 8, "sorted")
    assert bins.columns == ()
    assert bins.transform(table_of(constant, "B")).shape == (4, 0)
    gaps = pd.DataFrame({"x": [2.0, np.nan, 2.0, 2.0]})
    assert Bins.fit(table_of(gaps, "B"), 8, "sorted").columns[0].size == 1
    label = pd.DataFrame({"id": list("abcd"), "x": range(4), "y": range(4)})
    table = PartyTable.from_frame(label, party="B", id="id", label="y")
    assert [column.name for column in Bins.fit(table, 8, "sorted").columns] == ["x"]


def test_what_goes_left_for_people():
    number = Column("age", [30.5], None, True, True)
    group = Column("job", [], ["a", "b"], False, True)
    ranked = Column("job", [], ["a", "b"], True, False)
    assert number.describe(0) == {"column": "age", "at most": 30.5}
    assert number.describe(1) == {"column": "age", "at most": None}  # known against missing
    assert group.describe(1) == {"column": "job", "equals": "b"}
    assert group.describe(2) == {"column": "job", "equals": None}
    assert ranked.describe(0) == {"column": "job", "in": ["a"]}


# ---- histograms ----


@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(1, 40))
def test_sums_by_bin_against_a_loop(seed, columns, rows):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 6, size=(rows, columns)).astype(np.uint8)
    values = rng.integers(-(2**57), 2**57, size=rows) // rows
    chosen = np.flatnonzero(rng.random(rows) < 0.6)
    cells = Histograms(codes, 6)
    sums, counts = np.zeros((columns, 6), dtype=int), np.zeros((columns, 6), dtype=int)
    for row in chosen:
        for column in range(columns):
            sums[column, codes[row, column]] += values[row]
            counts[column, codes[row, column]] += 1
    everyone = np.arange(rows)
    for nodes in ([chosen, everyone], [chosen]):
        each = [values[node] for node in nodes]
        found = cells.add_up(nodes, each)
        assert (found[0] == np.stack([sums, counts])).all()
        assert (cells.sums(nodes, each) == found[:, 0]).all()
        assert (cells.counts(nodes) == found[:, 1]).all()
    roots = cells.add_up([everyone, everyone], [values, 2 * values])
    assert (roots[:, 0].sum(axis=2) == [[values.sum()], [2 * values.sum()]]).all()
    assert (cells.counts([everyone, everyone]) == roots[:, 1]).all()


def test_places_get_the_room_that_they_need():
    """Numbers of 32 bits would wrap without a word."""
    narrow = np.zeros(2, dtype=np.int32)
    assert binning._widen(narrow, 2**31 - 1) is narrow
    assert binning._widen(narrow, 2**31).dtype == np.int64
