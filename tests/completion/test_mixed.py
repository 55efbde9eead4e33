"""The mixed encoder: round trips on ordinary and odd tables, its layout, its refusals."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from vfsl.completion.base import as_table
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.modes import MinMax, Modes, Quantiles
from vfsl.data import PartyTable
from vfsl.errors import ConfigError, DataError

NUMERIC = ("modes", "quantile", "minmax", "standard")


def rng(seed=0):
    return np.random.default_rng(seed)


def table_of(**columns):
    return as_table(pd.DataFrame(columns), "a test")


def odd_table(rows=300, seed=0):
    source = rng(seed)
    gains = np.where(source.random(rows) < 0.7, 0, source.integers(1, 50_000, rows))
    colour = np.array(["red", "green", None], dtype=object)[source.integers(0, 3, rows)]
    wealth = source.standard_t(1.5, rows) * 1e4
    wealth[source.random(rows) < 0.2] = np.nan
    return table_of(
        gains=gains,
        wealth=wealth,
        colour=colour,
        code=pd.Series(source.integers(0, 1000, rows).astype(str)),
        flag=source.random(rows) < 0.5,
        fixed=np.full(rows, 7),
        grade=pd.Categorical(["low"] * (rows - 1) + ["high"], categories=["low", "mid", "high"]),
    )


def assert_same(back, table):
    assert list(back.columns) == table.features
    for name in table.features:
        before, after = table.column(name), back[name]
        assert (before.isna().to_numpy() == after.isna().to_numpy()).all(), name
        seen = before.notna().to_numpy()
        if pd.api.types.is_float_dtype(before.dtype):
            numbers = before[seen].to_numpy(dtype=float)
            scale = max(numbers.std(), 1e-300) if len(numbers) else 1.0
            error = np.abs(after[seen].to_numpy(dtype=float) - numbers)
            assert (error <= 1e-6 * np.maximum(np.abs(numbers), scale)).all(), name
        else:
            assert before[seen].tolist() == after[seen].tolist(), name


@pytest.mark.parametrize("numeric", NUMERIC)
@pytest.mark.parametrize("special", [None, "auto", {"gains": [0, 10**9]}])
@pytest.mark.parametrize("drawn", [False, True])
def test_what_goes_in_comes_back(numeric, special, drawn):
    table = odd_table()
    encoder = MixedEncoder(numeric, special=special).fit(table, rng())
    encoded = encoder.transform(table, rng(1) if drawn else None)
    assert encoded.matrix.shape == (300, encoder.width)
    back = encoder.inverse(encoded.matrix)
    assert_same(back, table)
    assert [str(back[c].dtype) for c in back] == [str(table.frame[c].dtype) for c in back]
    again = MixedEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again.spans_ == encoder.spans_
    pd.testing.assert_frame_equal(again.inverse(encoded.matrix), back)


cells = st.one_of(
    st.none(), st.floats(-1e12, 1e12, allow_subnormal=False), st.sampled_from([0.0, 1.0, -1e-9])
)


@settings(max_examples=40, deadline=None)
@given(
    numbers=st.lists(cells, min_size=1, max_size=30),
    wholes=st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=30),
    letters=st.lists(st.sampled_from(["a", "b", "ü", "", None]), min_size=1, max_size=30),
    numeric=st.sampled_from(NUMERIC),
)
def test_round_trip_of_any_table(numbers, wholes, letters, numeric):
    rows = min(len(numbers), len(wholes), len(letters))
    table = table_of(
        x=pd.Series(numbers[:rows], dtype=float),
        n=wholes[:rows],
        c=pd.Series(letters[:rows], dtype=object),
    )
    try:
        encoder = MixedEncoder(numeric).fit(table, rng())
    except DataError:
        # Only a range beyond double precision is refused, such as 1e12 beside 1e12 + 1e-9.
        spread = np.array([n for n in numbers[:rows] if n is not None])
        assert np.ptp(spread) < 1e-9
        return
    assert_same(encoder.inverse(encoder.transform(table).matrix), table)


@pytest.mark.parametrize("numeric", NUMERIC)
@pytest.mark.parametrize(
    "columns",
    [
        {"x": [3.5], "c": ["a"]},
        {"x": [1.0, 2.0], "c": ["a", "a"]},
        {"x": [1.0, 2.0], "c": pd.Series([None, None], dtype=object)},
        {"x": [np.nan, np.nan], "c": ["a", "b"]},
        {"x": [np.nan, 5.0], "c": ["a", "b"]},
        {"x": np.exp(np.linspace(-20, 80, 500)), "c": [str(i % 1000) for i in range(500)]},
        {"x": np.arange(1000.0), "c": [f"level {i}" for i in range(1000)]},
    ],
    ids=["one row", "one category", "no category", "no number", "one number", "heavy", "1000"],
)
def test_round_trip_of_odd_tables(numeric, columns):
    table = table_of(**columns)
    encoder = MixedEncoder(numeric).fit(table, rng())
    assert_same(encoder.inverse(encoder.transform(table).matrix), table)


def test_two_modes_are_found_and_scaled_by_their_own_deviation():
    source = rng()
    numbers = np.concatenate([source.normal(-5, 0.1, 500), source.normal(5, 1.0, 500)])
    modes = Modes.fit(numbers, rng())
    chosen, scalars = modes.place(numbers, None)
    assert set(chosen[:500]).isdisjoint(chosen[500:])
    one = Modes([0.5, 0.5], [-5.0, 5.0], [0.5, 2.0])
    chosen, scalars = one.place(np.array([-4.0, 9.0]), None)
    assert chosen.tolist() == [0, 1]
    assert scalars.tolist() == [0.5, 0.5]  # (x − μ) / 4σ
    assert one.value(chosen, scalars).tolist() == [-4.0, 9.0]


def test_modes_are_drawn_by_their_posterior():
    modes = Modes([0.25, 0.75], [0.0, 0.0], [1.0, 1.0])
    chosen, _ = modes.place(np.zeros(20_000), rng())
    assert chosen.mean() == pytest.approx(0.75, abs=0.02)


def test_quantiles_are_normal_deviates_of_mid_ranks():
    scale = Quantiles.fit(np.array([1.0, 2.0, 2.0, 4.0]), rng())
    _, scalars = scale.place(np.array([1.0, 2.0, 3.0, 4.0]), None)
    # Shares of the four rows are 1/8, 3/8, 5/8, 7/8; 2 has the middle of 3/8 and 5/8.
    assert norm.cdf(scalars) == pytest.approx([0.125, 0.5, 0.75, 0.875])


def test_min_max_is_minus_one_to_one():
    _, scalars = MinMax.fit(np.array([2.0, 6.0]), rng()).place(np.array([2.0, 4.0, 6.0, 8.0]), None)
    assert scalars.tolist() == [-1.0, 0.0, 1.0, 2.0]


def test_layout_of_mixed_columns():
    table = table_of(
        gains=[0, 0, 0, 1, 2, 9], gap=[1.0, 2.0, np.nan, 4.0, 5.0, 6.0], c=list("aabbcc")
    )
    encoder = MixedEncoder("minmax", special={"gains": [0]}).fit(table, rng())
    assert [(s.column, s.kind, s.of, s.width) for s in encoder.spans_] == [
        ("gains", "scalar", "number", 1),
        ("gains", "choice", "mode", 2),
        ("gap", "scalar", "number", 1),
        ("gap", "choice", "mode", 2),
        ("c", "choice", "category", 3),
    ]
    matrix = encoder.transform(table).matrix
    assert matrix[0, :3].tolist() == [0.0, 0.0, 1.0]  # zero is a choice, not a number
    assert matrix[3, 1:3].tolist() == [1.0, 0.0]
    assert matrix[2, 3:6].tolist() == [0.0, 0.0, 1.0]  # missing is a choice
    assert encoder.owners.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_blank_cells_are_zeros_and_decode_to_a_value():
    table = table_of(x=[1.0, np.nan, 3.0], c=pd.Series(["a", None, "b"], dtype=object))
    encoder = MixedEncoder("standard", missing="blank").fit(table, rng())
    encoded = encoder.transform(table)
    assert encoded.matrix[1].tolist() == [0.0, 0.0, 0.0]
    assert encoded.observed.tolist() == [[True, True], [False, False], [True, True]]
    assert encoder.inverse(encoded.matrix)["x"].tolist() == [1.0, 2.0, 3.0]


def test_outcomes_stay_within_the_bounds_seen():
    encoder = MixedEncoder("standard").fit(table_of(x=[1.0, 2.0, 3.0]), rng())
    assert encoder.inverse(np.array([[-100.0], [100.0]]))["x"].tolist() == [1.0, 3.0]


def test_constant_columns_are_reported_and_restored():
    encoder = MixedEncoder().fit(odd_table(), rng())
    assert [(f.column, f.what) for f in encoder.findings_] == [("fixed", "constant")]
    assert "'fixed'" in str(encoder.findings_[0])


def test_refusals():
    gap = table_of(x=[1.0, np.nan, 2.0], c=["a", "b", "a"])
    with pytest.raises(DataError, match="'x' of party for a test has 1 cell missing"):
        MixedEncoder(missing="refuse").fit(gap, rng())
    encoder = MixedEncoder("minmax").fit(table_of(x=[1.0, 2.0, 3.0], c=["a", "b", "a"]), rng())
    with pytest.raises(DataError, match="none were in training"):
        encoder.transform(gap)
    with pytest.raises(DataError, match="1 cell with a category that was not"):
        encoder.transform(table_of(x=[1.0, 2.0], c=["a", "z"]))
    blank = encoder.transform(table_of(x=[1.0, 2.0], c=["a", "z"]), unseen="blank")
    assert blank.observed.tolist() == [[True, True], [True, False]]
    with pytest.raises(DataError, match="must be numeric, as in training"):
        encoder.transform(table_of(x=["a", "b"], c=["a", "b"]))
    with pytest.raises(DataError, match="must be finite with 3 columns"):
        encoder.inverse(np.zeros((2, 4)))
    with pytest.raises(ConfigError, match="The numeric parameter of MixedEncoder"):
        MixedEncoder("log").fit(gap, rng())
    with pytest.raises(ConfigError, match="call fit first"):
        _ = MixedEncoder().width
    with pytest.raises(DataError, match="not the saved state"):
        MixedEncoder.from_dict({"format": 1})


def test_tables_without_rows_or_columns_are_refused():
    with pytest.raises(DataError, match="has no rows"):
        as_table(pd.DataFrame({"x": []}), "CTGAN")
    with pytest.raises(DataError, match="must be a pandas DataFrame or a PartyTable"):
        as_table([1, 2], "CTGAN")
    labels = PartyTable.from_frame(
        pd.DataFrame({"id": [1, 2], "y": [0, 1]}), party="B", id="id", label="y"
    )
    with pytest.raises(DataError, match="no columns beside labels"):
        as_table(labels, "CTGAN")
