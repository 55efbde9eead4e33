"""Encoder: what goes in comes out, statistics come from training rows only, nothing is hidden."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.data import Encoder, Kind, PartyTable
from vfsl.errors import ConfigError, DataError

WHOLE = st.integers(-(2**40), 2**40)
# Beyond this range of sizes the spread itself leaves double precision, and fit says so.
DECIMAL = st.floats(-1e12, 1e12, allow_subnormal=False).map(lambda number: round(number, 6))


def table(frame: dict[str, object], **options: object) -> PartyTable:
    rows = len(next(iter(frame.values())))  # type: ignore[arg-type]
    content = pd.DataFrame({"id": [str(row) for row in range(rows)], **frame})
    return PartyTable.from_frame(content, **{"party": "A", "id": "id", **options})


@st.composite
def tables(draw: st.DrawFn, gaps: bool) -> PartyTable:
    rows = draw(st.integers(1, 12))

    def column(cells: st.SearchStrategy[object]) -> list[object]:
        may = cells | st.none() if gaps else cells
        drawn = draw(st.lists(may, min_size=rows, max_size=rows))
        drawn[draw(st.integers(0, rows - 1))] = draw(cells)
        return drawn

    levels = st.sampled_from(["red", "green", "blue", "a=b", "é"])
    frame = {
        "whole": pd.array(column(WHOLE), dtype="Int64"),
        "small": pd.array(column(st.integers(0, 255)), dtype="UInt8"),
        "plain": draw(st.lists(WHOLE, min_size=rows, max_size=rows)),
        "decimal": np.array(column(DECIMAL), dtype=float),
        "truth": pd.array(column(st.booleans()), dtype="boolean"),
        "switch": draw(st.lists(st.booleans(), min_size=rows, max_size=rows)),
        "text": pd.Series(column(levels), dtype=object),
        "code": pd.array(column(st.integers(0, 3)), dtype="Int64"),
        "grade": pd.Categorical(column(st.sampled_from("xyz")), list("zyxw"), ordered=True),
    }
    return table(frame, kinds={"code": "categorical"})


def assert_restored(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    assert list(found.columns) == list(wanted.columns)
    assert [str(kind) for kind in found.dtypes] == [str(kind) for kind in wanted.dtypes]
    for name in wanted:
        left, right = found[name], wanted[name]
        assert left.isna().tolist() == right.isna().tolist(), name
        if name == "decimal":
            scale = right.abs().max()
            assert (left.dropna() - right.dropna()).abs().max() <= 1e-9 * scale
        else:
            assert left.dropna().tolist() == right.dropna().tolist(), name
    if "grade" in wanted:
        assert found["grade"].dtype == wanted["grade"].dtype


@settings(max_examples=40, deadline=None)
@given(given_table=tables(gaps=True))
def test_kept_gaps_and_all_values_come_back(given_table: PartyTable):
    encoder = Encoder(missing="keep").fit(given_table)
    encoded = encoder.transform(given_table)
    assert encoded.matrix.dtype == np.float64
    assert encoded.matrix.shape == (len(given_table), len(encoded.names))
    assert_restored(encoder.inverse(encoded.matrix), given_table.frame)


@settings(max_examples=30, deadline=None)
@given(given_table=tables(gaps=False), missing=st.sampled_from(["impute", "drop"]))
def test_complete_tables_come_back(given_table: PartyTable, missing: str):
    encoder = Encoder(missing=missing).fit(given_table)
    encoded = encoder.transform(given_table)
    assert encoded.rows.tolist() == list(range(len(given_table)))
    assert np.isfinite(encoded.matrix).all()
    assert_restored(encoder.inverse(encoded.matrix), given_table.frame)


@settings(max_examples=30, deadline=None)
@given(given_table=tables(gaps=True), missing=st.sampled_from(["impute", "keep"]))
def test_the_saved_state_is_json_and_does_the_same(given_table: PartyTable, missing: str):
    encoder = Encoder(missing=missing).fit(given_table)
    state = json.dumps(encoder.to_dict(), allow_nan=False)
    again = Encoder.from_dict(json.loads(state))
    first, second = encoder.transform(given_table), again.transform(given_table)
    np.testing.assert_array_equal(first.matrix, second.matrix)
    assert first.names == second.names
    assert first.groups == second.groups
    pd.testing.assert_frame_equal(encoder.inverse(first.matrix), again.inverse(first.matrix))


def test_numbers_are_standardised_by_training_rows_only():
    full = table({"x": [1.0, 3.0, 5.0, 1000.0], "c": ["u", "v", "u", "w"]})
    encoded = Encoder().fit_transform(full, rows=[0, 1, 2])
    train = np.array([1.0, 3.0, 5.0])
    want = (np.array([1.0, 3.0, 5.0, 1000.0]) - train.mean()) / train.std()
    np.testing.assert_allclose(encoded.matrix[:, 0], want, rtol=1e-12)
    assert encoded.names == ["x", "c=u", "c=v"]
    assert encoded.groups == {"x": slice(0, 1), "c": slice(1, 3)}
    assert encoded.kinds == {"x": Kind.NUMERIC, "c": Kind.CATEGORICAL}
    # The test row's category was never seen: zeros, and a report.
    assert encoded.matrix[3, 1:].tolist() == [0.0, 0.0]
    assert [(f.column, f.what, f.count) for f in encoded.findings] == [
        ("c", "unseen categories", 1)
    ]


def test_changing_a_row_outside_training_changes_no_other_row():
    one = {"x": [1.0, 3.0, 5.0, 7.0], "c": ["u", "v", "u", "v"]}
    two = {"x": [1.0, 3.0, 5.0, -99.0], "c": ["u", "v", "u", "zzz"]}
    first, second = (Encoder().fit_transform(table(frame), rows=[0, 1, 2]) for frame in (one, two))
    np.testing.assert_array_equal(first.matrix[:3], second.matrix[:3])
    assert not np.array_equal(first.matrix[3], second.matrix[3])


def test_labels_are_never_features():
    given_table = table({"x": [1, 2, 3], "y": [0, 1, None]}, label="y")
    encoder = Encoder(missing="drop").fit(given_table)
    encoded = encoder.transform(given_table)
    assert encoded.names == ["x"]
    # An unknown label is no missing feature cell.
    assert encoded.rows.tolist() == [0, 1, 2]
    assert "y" not in encoder.inverse(encoded.matrix)
    assert encoder.transform(given_table.without("y")).matrix.shape == (3, 1)


def test_imputing_takes_the_mean_and_the_mode():
    given_table = table({"x": [1.0, None, 4.0], "c": ["v", "v", None], "tie": ["b", "a", None]})
    encoder = Encoder(missing="impute").fit(given_table)
    encoded = encoder.transform(given_table)
    back = encoder.inverse(encoded.matrix)
    assert back["x"].tolist() == [1.0, 2.5, 4.0]
    assert back["c"].tolist() == ["v", "v", "v"]
    assert back["tie"].tolist() == ["b", "a", "a"]
    assert {(f.column, f.what, f.count) for f in encoded.findings} == {
        ("x", "imputed", 1),
        ("c", "imputed", 1),
        ("tie", "imputed", 1),
    }


def test_dropping_says_which_rows_stay():
    given_table = table({"x": [1.0, None, 4.0, 100.0], "c": ["u", "v", "w", None]})
    encoder = Encoder(missing="drop").fit(given_table)
    encoded = encoder.transform(given_table)
    assert encoded.rows.tolist() == [0, 2]
    assert encoded.matrix.shape == (2, 3)
    # Statistics are those of the rows that stay: mean 2.5, levels u and w.
    assert encoded.matrix[:, 0].tolist() == [-1.0, 1.0]
    assert [(f.what, f.count) for f in encoded.findings] == [("dropped rows", 2)]
    with pytest.raises(DataError, match="every row has a missing cell"):
        Encoder(missing="drop").fit(given_table, rows=[1, 3])


def test_keeping_leaves_a_block_of_nan():
    given_table = table({"x": [1.0, None], "c": ["u", None], "d": ["u", "v"]})
    encoded = Encoder(missing="keep").fit_transform(given_table)
    assert encoded.names == ["x", "c=u", "d=u", "d=v"]
    assert np.isnan(encoded.matrix[1, :2]).all()
    assert encoded.matrix[1, 2:].tolist() == [0.0, 1.0]
    assert encoded.findings == []


@pytest.mark.parametrize("missing", ["impute", "drop", "keep"])
def test_constant_columns_are_reported_dropped_and_restored(missing: str):
    given_table = table({"n": [7, 7, 7], "x": [1.5, 2.5, 3.5], "c": ["u"] * 3, "b": [True] * 3})
    encoder = Encoder(missing=missing).fit(given_table)
    assert [(f.column, f.what) for f in encoder.findings_] == [
        ("n", "constant"),
        ("c", "constant"),
        ("b", "constant"),
    ]
    encoded = encoder.transform(given_table)
    assert encoded.names == ["x"]
    assert encoded.groups["n"] == slice(0, 0)
    assert_restored(encoder.inverse(encoded.matrix), given_table.frame)


def test_a_constant_that_changes_later_is_reported():
    encoder = Encoder().fit(table({"n": [7, 7], "c": ["u", "u"], "x": [1, 2]}))
    encoded = encoder.transform(table({"n": [7, 8], "c": ["u", "v"], "x": [1, 2]}))
    assert {(f.column, f.what, f.count) for f in encoded.findings} == {
        ("n", "no longer constant", 1),
        ("c", "unseen categories", 1),
    }


@pytest.mark.parametrize("missing", ["impute", "keep"])
def test_a_column_without_a_training_value(missing: str):
    given_table = table({"x": [None, None, 3.0], "c": [None, None, "u"], "z": [1, 2, 3]})
    encoder = Encoder(missing=missing).fit(given_table, rows=[0, 1])
    assert [(f.column, f.what) for f in encoder.findings_] == [
        ("x", "empty in training"),
        ("c", "empty in training"),
    ]
    back = encoder.inverse(encoder.transform(given_table).matrix)
    assert back[["x", "c"]].isna().all(axis=None)
    assert back["z"].tolist() == [1, 2, 3]


def test_predicted_matrices_become_valid_values():
    given_table = table(
        {
            "n": pd.array([0, 100, 200], dtype="uint8"),
            "x": [0.0, 1.0, 2.0],
            "c": ["u", "v", "w"],
        }
    )
    encoder = Encoder().fit(given_table)
    matrix = np.array([[-9.0, 9.0, 0.2, 0.5, 0.3], [9.0, -9.0, 0.0, 0.0, 0.0], [0.004, 0, 1, 0, 0]])
    back = encoder.inverse(matrix)
    # A byte cannot go below 0 or above 255, asked or not.
    assert back["n"].tolist() == [0, 255, 100]
    assert str(back["n"].dtype) == "uint8"
    assert back["x"][0] > 2
    assert back["c"].isna().tolist() == [False, True, False]
    assert back["c"][0] == "v"
    clipped = encoder.inverse(matrix, clip=True)
    assert clipped["n"].tolist() == [0, 200, 100]
    assert clipped["x"].tolist() == [2.0, 0.0, 1.0]


def test_plain_types_make_room_for_missing_predictions():
    given_table = table(
        {"n": [1, 2, 3], "b": [True, False, True], "k": [1, 2, 1]}, kinds={"k": "categorical"}
    )
    encoder = Encoder().fit(given_table)
    back = encoder.inverse(np.full((1, 5), np.nan))
    assert [str(kind) for kind in back.dtypes] == ["Int64", "boolean", "Int64"]
    assert back.isna().all(axis=None)


def test_huge_predictions_do_not_wrap_around():
    encoder = Encoder().fit(table({"n": [-(2**62), 2**62]}))
    back = encoder.inverse(np.array([[1e9], [-1e9]]))
    assert back["n"][0] > 2**62
    assert back["n"][1] < -(2**62)


def test_other_types_come_back():
    frame = {
        "f": np.array([0.1, 0.2], dtype="float32"),
        "g": pd.array([1.5, None], dtype="Float64"),
        "s": pd.array(["a", None], dtype="string"),
        "a": pd.array([1, None], dtype="int64[pyarrow]"),
    }
    given_table = table(frame)
    encoder = Encoder(missing="keep").fit(given_table)
    back = encoder.inverse(encoder.transform(given_table).matrix)
    assert [str(kind) for kind in back.dtypes] == [str(k) for k in given_table.frame.dtypes]
    assert back.isna().equals(given_table.frame.isna())
    np.testing.assert_allclose(back["f"], frame["f"], rtol=1e-6)


def test_a_table_of_ids_only():
    encoded = Encoder().fit_transform(
        PartyTable.from_frame(pd.DataFrame({"id": ["a"]}), party="A", id="id")
    )
    assert encoded.matrix.shape == (1, 0)


@pytest.mark.parametrize("values", [[-1.7e308, 1.7e308], [0.0, 5e-324]])
def test_ranges_beyond_double_precision_are_refused(values: list[float]):
    with pytest.raises(DataError, match=r"'x' of party A spans too"):
        Encoder().fit(table({"x": values}))


def test_what_does_not_fit_is_refused():
    given_table = table({"x": [1.0, 2.0], "c": ["u", "v"]})
    encoder = Encoder().fit(given_table)
    with pytest.raises(DataError, match=r"lacks 1 feature .*'c'"):
        encoder.transform(given_table.without("c"))
    with pytest.raises(DataError, match=r"'x' of party A must be numeric.*Got categorical"):
        encoder.transform(given_table.with_column("x", ["1", "2"], "categorical"))
    with pytest.raises(DataError, match=r"must have 3 columns. Got shape \(2, 2\)"):
        encoder.inverse(np.zeros((2, 2)))
    with pytest.raises(DataError, match="1 infinite cell"):
        encoder.inverse(np.array([[np.inf, 0, 0]]))
    with pytest.raises(ConfigError, match=r"missing parameter of Encoder .* Got 'median' instead"):
        Encoder(missing="median").fit(given_table)
    with pytest.raises(ConfigError, match="call fit first"):
        Encoder().transform(given_table)
    with pytest.raises(DataError, match="no training row"):
        Encoder().fit(given_table, rows=[])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("columns"),
        lambda state: state.update(format=99),
        lambda state: state["columns"][0].pop("mean"),
        lambda state: state["columns"][0].update(kind="label"),
    ],
)
def test_a_spoilt_state_is_refused(spoil: object):
    state = Encoder().fit(table({"x": [1.0, 2.0]})).to_dict()
    spoil(state)  # type: ignore[operator]
    with pytest.raises(DataError, match="not the saved state of an Encoder"):
        Encoder.from_dict(state)
