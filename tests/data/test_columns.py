"""Cells of text: numbers are read exactly, and only what is a number."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.data.columns import guess_column, read_numbers, to_cells
from vfsl.errors import DataError


def cells(*values: str | None) -> pa.Array:
    return to_cells(pd.Series(values, dtype=object))


@settings(max_examples=200, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimals_survive_to_the_last_digit(number: float):
    found, bad = read_numbers(cells(repr(number), "0.5"), "here")
    assert bad == 0
    assert found[0] == number


@pytest.mark.parametrize("written", ["5", "+5", " 5 ", "-0", "5.", ".5", "1e5", "1E+05", "-2.5e-3"])
def test_what_is_a_number(written: str):
    found, bad = read_numbers(cells(written), "here")
    assert bad == 0
    assert found[0] == float(written)


@pytest.mark.parametrize(
    "written", ["1_000", "nan", "inf", "1,5", "0x10", "--1", "1e", ".", "one", "１"]
)
def test_what_is_not_a_number(written: str):
    assert read_numbers(cells(written, "1"), "here")[1] == 1


def test_whole_numbers_stay_whole():
    assert str(read_numbers(cells("1", "-2"), "here")[0].dtype) == "int64"
    assert str(read_numbers(cells("1", None), "here")[0].dtype) == "Int64"
    assert str(read_numbers(cells("1", "2.0"), "here")[0].dtype) == "float64"


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (("1", "2"), [1, 2]),
        (("1", "2.5"), [1.0, 2.5]),
        (("true", "False"), [True, False]),
        (("007", "8"), ["007", "8"]),
        (("a", "b"), ["a", "b"]),
        (("0", "0.5"), [0.0, 0.5]),
    ],
)
def test_undeclared_cells_are_guessed(written: tuple[str, ...], wanted: list[object]):
    assert guess_column(cells(*written), "here").tolist() == wanted


def test_an_empty_column_is_guessed_as_missing_text():
    assert guess_column(cells(None, None), "here").isna().all()


def test_a_guess_refuses_a_mixture():
    with pytest.raises(DataError, match="here mixes 2 numbers with 1 cell"):
        guess_column(cells("1", "2.5", "x", None), "here")
