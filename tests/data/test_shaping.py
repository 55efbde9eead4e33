"""Columns left out, spellings united, dates and marks in numbers: in frames and in files."""

import numpy as np
import pandas as pd
import pytest

from vfsl.data import PartyTable, read_table
from vfsl.errors import ConfigError, DataError


def table_of(**columns):
    options = {name: columns.pop(name) for name in ("drop", "fold", "dates") if name in columns}
    frame = pd.DataFrame({"id": [f"r{place}" for place in range(3)], **columns})
    return PartyTable.from_frame(frame, party="A", id="id", **options)


def test_dropped_columns_may_be_in_any_state(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,x,odd,none\na,1,7,\nb,2,seven,\n")
    with pytest.raises(DataError, match="mixes"):
        read_table(path, party="A", id="id")
    assert read_table(path, party="A", id="id", drop=["odd", "none"]).columns == ["x"]
    with pytest.raises(DataError, match="drop names column 'y', which party A does not have"):
        read_table(path, party="A", id="id", drop=["y"])
    with pytest.raises(DataError, match="drop names the id column"):
        read_table(path, party="A", id="id", drop=["id"])
    assert table_of(x=[1, 2, 3], y=[1, 2, 3], drop=["y"]).columns == ["x"]


def test_folded_text_has_one_spelling():
    table = table_of(churn=["YES ", "yes", " No"], n=[1, 2, 3], fold=["churn", "n"])
    assert table.column("churn").tolist() == ["yes", "yes", "no"]
    assert table.column("n").tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "written",
    [
        ["2024-02-29", None, "2000-01-01"],
        ["29.02.2024", None, "1.1.2000"],
        ["2/29/2024", None, "1/1/2000"],
        ["2024/02/29 00:00", None, "2000/1/1 00:00"],
        pd.to_datetime(["2024-02-29", None, "2000-01-01"]),
    ],
    ids=str,
)
def test_dates_become_days_and_parts(written):
    table = table_of(joined=written, dates="both")
    days = table.column("joined").to_numpy()
    assert (days[0], days[2]) == (8825.0, 0.0)
    assert np.isnan(days[1])
    parts = [table.column(f"joined {part}")[0] for part in ("year", "month", "weekday")]
    assert parts == [2024, 2, 3]
    only = table_of(joined=written, x=[1, 2, 3], dates={"joined": "parts"})
    assert only.columns == ["joined year", "joined month", "joined weekday", "x"]


def test_dates_that_cannot_be_read_are_refused():
    with pytest.raises(DataError, match="whether the day or the month comes first"):
        table_of(joined=["1/2/2024", "3/4/2024", "5/6/2024"], dates="days")
    with pytest.raises(DataError, match="mixes days before months"):
        table_of(joined=["31/2/2024", "2/31/2024", "5/6/2024"], dates="days")
    with pytest.raises(DataError, match="1 cell of 3 that no calendar has"):
        table_of(joined=["2024-02-30", "2024-01-01", "2024-01-02"], dates="days")
    with pytest.raises(ConfigError, match="dates must be one of days, parts, both"):
        table_of(joined=["2024-02-29"] * 3, dates="weeks")
    with pytest.raises(DataError, match="a column 'joined year' already"):
        table_of(joined=["2024-02-29"] * 3, **{"joined year": [1, 2, 3]}, dates="parts")


def test_a_word_on_dates_leaves_other_columns_alone():
    table = table_of(joined=["2024-02-29"] * 3, n=[1, 2, 3], s=["a", "b", "c"], dates="days")
    assert table.columns == ["joined", "n", "s"]
    assert table.kinds["joined"] == "numeric"


@pytest.mark.parametrize(
    ("cells", "options", "numbers"),
    [
        (["1.234,5", "2", "1.000.000"], {"decimal": ",", "thousands": "."}, [1234.5, 2, 1e6]),
        (["1,234.5", "2", "12"], {"thousands": ","}, [1234.5, 2, 12]),
        (["1 234", "2", "1\u202f000"], {"thousands": " "}, [1234, 2, 1000]),
        (["1'234", "2", "1\u2019000"], {"thousands": "'"}, [1234, 2, 1000]),
    ],
    ids=str,
)
def test_marks_in_numbers(cells, options, numbers, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id;x\n" + "".join(f"r{n};{cell}\n" for n, cell in enumerate(cells)))
    assert read_table(path, party="A", id="id", **options).column("x").tolist() == numbers
    with pytest.raises(ConfigError, match="thousands must be one of"):
        read_table(path, party="A", id="id", thousands="_")


def test_files_of_other_encodings(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("id,größe\na,groß\nb,klein\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"is not UTF-8 text.*say its encoding"):
        read_table(path, party="A", id="id")
    table = read_table(path, party="A", id="id", encoding="cp1252")
    assert table.column("größe").tolist() == ["groß", "klein"]
    with pytest.raises(ConfigError, match="encoding must be the name of one"):
        read_table(path, party="A", id="id", encoding="klingon")


def test_missing_marks_add_to_empty_cells(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,x\na,1\nb,NA\nc,\nd,?\n")
    table = read_table(path, party="A", id="id", missing_values=["NA", "?"])
    assert table.column("x").isna().tolist() == [False, True, True, True]
