"""Tables that are no plain CSV or Parquet file, and frames that are not of pandas."""

import datetime as dt
import gzip
import sys

import duckdb
import openpyxl
import pandas as pd
import polars
import pyarrow as pa
import pytest

import vfsl
from vfsl.data import PartyTable, column_names, read_ids, read_table, write_table
from vfsl.data.files import read_raw
from vfsl.data.sources import digest_table, form_of_results, locate_table, measure_table
from vfsl.errors import ConfigError, DataError

OF_A = {"party": "A", "id": "id"}
TEXT = "id,age,town,paid\n007,31,Köln,true\n008,,Bonn,false\n012,44.5,,true\n"


@pytest.fixture
def plain(tmp_path):
    (tmp_path / "a.csv").write_text(TEXT)
    return read_table(tmp_path / "a.csv", **OF_A)


def assert_same(found, plain):
    assert found.kinds == plain.kinds
    pd.testing.assert_frame_equal(found.to_frame(), plain.to_frame(), check_dtype=False)


def make_sheet(path, rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)


def make_database(path):
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE people (id VARCHAR, age DECIMAL(6,2), town VARCHAR, n INT)")
        database.execute(
            "INSERT INTO people VALUES ('007', 31, 'Köln', 4), ('008', NULL, 'Bonn', NULL), "
            "('012', 44.5, NULL, 9)"
        )


def test_gzipped_text_is_read_like_text(tmp_path, plain):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(TEXT.encode("cp1252")))
    assert_same(read_table(path, encoding="cp1252", **OF_A), plain)
    assert column_names(path, party="A") == ["id", "age", "town", "paid"]
    assert list(read_ids(path, encoding="cp1252", **OF_A).ids) == ["007", "008", "012"]
    path.write_bytes(gzip.compress(TEXT.encode())[:-20])
    with pytest.raises(DataError, match=r"a\.csv\.gz of party A"):
        read_table(path, **OF_A)
    path.write_bytes(b"id,age\n1,2\n")
    with pytest.raises(DataError, match=r"a\.csv\.gz of party A"):
        read_table(path, **OF_A)


def test_a_folder_of_parquet_files_is_one_table(tmp_path, plain):
    folder = tmp_path / "parts"
    folder.mkdir()
    with pytest.raises(DataError, match="is a folder without Parquet files"):
        read_table(folder, **OF_A)
    write_table(plain.take([0, 1]), folder / "1.parquet")
    before = digest_table(folder)
    write_table(plain.take([2]), folder / "2.parquet")
    assert digest_table(folder) != before
    assert_same(read_table(folder, **OF_A), plain)
    assert column_names(folder, party="A") == ["id", "age", "town", "paid"]
    (folder / "3.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match="is not a Parquet file, or is damaged"):
        read_table(folder, **OF_A)


def test_a_sheet_is_read_as_the_text_of_its_cells(tmp_path, plain):
    path = tmp_path / "a.xlsx"
    rows = [["id", "age", "town", "paid"], ["007", 31, "Köln", True], ["008", None, "Bonn", False]]
    make_sheet(path, [*rows, ["012", 44.5, None, True], [None, None]])
    assert_same(read_table(path, **OF_A), plain)
    assert column_names(path, party="A") == list(read_raw(path, party="A"))
    make_sheet(path, [["id", "since", "n"], [1001.0, dt.datetime(2000, 1, 11), "1.234,5"]])
    found = read_table(path, dates="days", decimal=",", thousands=".", **OF_A)
    assert list(found.ids) == ["1001"]
    assert found.to_frame().iloc[0, 1:].tolist() == [10, 1234.5]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "its first sheet has no cells"),
        ([["id", None, "b"], [1, 2, 3]], "columns without a name"),
        ([["id", "b", "b"], [1, 2, 3]], "two of one name"),
        ([["id", "b"], [1, 2, 3]], "columns without a name"),
    ],
)
def test_sheets_that_are_no_table(rows, message, tmp_path):
    make_sheet(tmp_path / "a.xlsx", rows)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / "a.xlsx", **OF_A)


def test_what_is_no_excel_file_is_refused(tmp_path):
    (tmp_path / "a.xlsx").write_text("id,age\n")
    with pytest.raises(DataError, match="is not an Excel file"):
        read_table(tmp_path / "a.xlsx", **OF_A)


def test_a_query_is_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_database(tmp_path / "shop.db")
    query = "SELECT id, n // 2 AS half, town, n FROM people WHERE town IS NULL OR town LIKE 'K%'"
    place = f"duckdb:///shop.db?sql={query}"
    table = vfsl.read_table(place, **OF_A)
    assert list(table.ids) == ["007", "012"]
    assert table.to_frame()["n"].tolist() == [4, 9]
    assert table.to_frame()["half"].tolist() == [2, 4]
    assert column_names(place, party="A") == ["id", "half", "town", "n"]
    assert list(read_raw(place, party="A")["id"].to_pylist()) == ["007", "012"]
    located = locate_table(tmp_path, place)
    assert located.parent == tmp_path
    assert digest_table(located) == digest_table(tmp_path / "shop.db")
    assert measure_table(located) == (tmp_path / "shop.db").stat().st_size
    assert list(read_table(str(located), **OF_A).ids) == ["007", "012"]
    absolute = f"duckdb:///{tmp_path}/shop.db?sql=SELECT id, n FROM people"
    assert len(read_table(absolute, **OF_A)) == 3


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nothing FROM people", "does not answer the query: Binder error"),
        ("DROP TABLE people", "does not answer the query"),
        ("SET threads = 1", "with no table|has no id column"),
        ("COPY people TO 'out.csv'", "does not answer the query: Permission error"),
    ],
)
def test_a_query_only_reads(query, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_database(tmp_path / "shop.db")
    with pytest.raises(DataError, match=message):
        read_table(f"duckdb:///shop.db?sql={query}", **OF_A)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("place", ["duckdb:shop.db", "duckdb:///shop.db", "duckdb:///?sql=SELECT"])
def test_a_place_that_is_no_query(place):
    with pytest.raises(ConfigError, match=r"must be written duckdb:///FILE\?sql=QUERY"):
        read_table(place, **OF_A)


@pytest.mark.parametrize(
    ("name", "package", "what"),
    [("a.xlsx", "openpyxl", "Excel files"), ("a.db?sql=SELECT", "duckdb", "DuckDB databases")],
)
def test_a_package_that_is_not_there_is_named(name, package, what, tmp_path, monkeypatch):
    (tmp_path / name.partition("?")[0]).write_text("x")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"^{what} need the package {package}.*'vfsl\[files\]'"):
        read_table(tmp_path / name, **OF_A)


def test_frames_of_polars_and_arrow(plain):
    columns = {
        "id": ["007", "008", "012"],
        "age": [31, None, 44.5],
        "town": ["Köln", "Bonn", None],
        "paid": [True, False, True],
    }
    for made in (polars.DataFrame(columns, strict=False), pa.table(columns)):
        assert_same(PartyTable.from_frame(made, **OF_A), plain)
    whole = pa.table({"id": [10**17 + 1, 10**17 + 3], "n": pa.array([1, None])})
    found = PartyTable.from_frame(whole, **OF_A)
    assert list(found.ids) == [str(10**17 + 1), str(10**17 + 3)]
    fed = vfsl.simulate({"A": polars.DataFrame(columns, strict=False), "B": pa.table(columns)})
    assert {party: len(table) for party, table in fed.tables.items()} == {"A": 3, "B": 3}


def test_results_are_written_as_the_table_or_as_csv():
    places = ["a.tsv", "a.pq", "a.csv.gz", "a.xlsx", "a.db?sql=SELECT"]
    forms = [form_of_results(locate_table(vfsl.data.files.Path(), one)) for one in places]
    assert forms == [".tsv", ".pq", ".csv", ".csv", ".csv"]
