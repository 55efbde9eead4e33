"""CSV and Parquet: nothing is lost on the way, and every bad file is one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from vfsl.data import Kind, PartyTable, read_table, write_table
from vfsl.errors import ConfigError, DataError

BUDGET = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# NUL ends a cell for some CSV readers; "" is how a CSV file writes missing.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
# Text of a CSV column that was not declared would be read as what it looks like.
WORDS = TEXT.map(lambda text: "w" + text)


def read(path: Path, content: str | bytes, **options: object) -> PartyTable:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(path, **{"party": "A", "id": "id", **options})


@st.composite
def tables(draw: st.DrawFn) -> PartyTable:
    rows = draw(st.integers(1, 8))

    def column(cells: st.SearchStrategy[object]) -> list[object]:
        drawn = draw(st.lists(cells | st.none(), min_size=rows, max_size=rows))
        drawn[draw(st.integers(0, rows - 1))] = draw(cells)
        return drawn

    whole = st.integers(-(2**63), 2**63 - 1)
    ids = draw(st.lists(TEXT.filter(str.strip), min_size=rows, max_size=rows, unique=True))
    frame = pd.DataFrame(
        {
            "id": pd.Series(ids, dtype=object),
            "whole": pd.array(column(whole), dtype="Int64"),
            "full": draw(st.lists(whole, min_size=rows, max_size=rows)),
            "decimal": np.array(column(st.floats(allow_nan=False, allow_infinity=False)), float),
            "truth": pd.array(column(st.booleans()), dtype="boolean"),
            'text, with "marks"': pd.Series(column(TEXT), dtype=object),
            "level": pd.Categorical(column(WORDS)),
            "y": pd.Series(column(WORDS), dtype=object),
        }
    )
    kinds = {'text, with "marks"': "categorical", "level": "categorical"}
    return PartyTable.from_frame(frame, party="A", id="id", kinds=kinds, label="y")


def assert_same(found: PartyTable, wanted: PartyTable) -> None:
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.kinds == wanted.kinds
    for name in wanted.columns:
        left, right = found.column(name), wanted.column(name)
        assert left.isna().tolist() == right.isna().tolist()
        assert left.dropna().tolist() == right.dropna().tolist()


@BUDGET
@given(table=tables())
def test_csv_keeps_everything_that_is_declared(tmp_path: Path, table: PartyTable):
    write_table(table, tmp_path / "t.csv")
    found = read_table(tmp_path / "t.csv", party="A", id="id", kinds=table.kinds)
    assert_same(found, table)
    assert pd.api.types.is_integer_dtype(found.column("whole").dtype)
    assert str(found.column("full").dtype) == "int64"


@BUDGET
@given(table=tables())
def test_parquet_keeps_types_too_and_remembers_kinds(tmp_path: Path, table: PartyTable):
    write_table(table, tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet", party="A", id="id")
    assert_same(found, table)
    assert_frame_equal(found.frame, table.frame)


def test_declared_kinds_win_over_remembered_ones(tmp_path: Path):
    frame = pd.DataFrame({"id": ["a", "b"], "code": [1, 2]})
    table = PartyTable.from_frame(frame, party="A", id="id", kinds={"code": "categorical"})
    write_table(table, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", party="A", id="id").kinds["code"] is Kind.CATEGORICAL
    again = read_table(tmp_path / "t.parquet", party="A", id="id", kinds={"code": "numeric"})
    assert again.kinds["code"] is Kind.NUMERIC


def test_composite_ids_are_written_as_they_came(tmp_path: Path):
    frame = pd.DataFrame({"p": ["01", "a,b"], "q": ["x", "y"], "v": [1, 2]})
    table = PartyTable.from_frame(frame, party="A", id=["p", "q"])
    for name in ("t.csv", "t.parquet", "t.tsv"):
        write_table(table, tmp_path / name)
        again = read_table(tmp_path / name, party="A", id=["p", "q"])
        assert again.ids.tolist() == table.ids.tolist()
        assert again.id_columns == ("p", "q")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_is_found(tmp_path: Path, separator: str):
    lines = ["id|name|x", '1|"Doe, J; jr"|1.5', '2|"Roe\t"|2']
    table = read(tmp_path / "t.csv", "\n".join(lines).replace("|", separator))
    assert table.columns == ["name", "x"]
    assert table.column("name").tolist() == ["Doe, J; jr", "Roe\t"]
    assert table.column("x").tolist() == [1.5, 2.0]


def test_other_separators_are_named(tmp_path: Path):
    assert read(tmp_path / "t.csv", "id|x\na|1\n", separator="|").columns == ["x"]
    with pytest.raises(ConfigError, match=r"separator parameter .* Got '\|\|' instead"):
        read(tmp_path / "t.csv", "id||x\na||1\n", separator="||")


def test_ids_and_codes_keep_their_zeros(tmp_path: Path):
    table = read(tmp_path / "t.csv", "id,zip,n\n00123,01234,1\n00124,99999,20\n")
    assert table.ids.tolist() == ["00123", "00124"]
    assert table.column("zip").tolist() == ["01234", "99999"]
    assert table.kinds == {"zip": "categorical", "n": "numeric"}


def test_whole_numbers_with_missing_cells_stay_whole(tmp_path: Path):
    table = read(tmp_path / "t.csv", "id,n,b\na,9007199254740993,true\nb,,\nc,-2,False\n")
    assert str(table.column("n").dtype) == "Int64"
    assert table.column("n").dropna().tolist() == [9007199254740993, -2]
    assert str(table.column("b").dtype) == "boolean"
    assert table.kinds["b"] is Kind.CATEGORICAL


def test_marks_for_missing_must_be_named(tmp_path: Path):
    content = "id,job,age\na,?,31\nb,cook,?\n"
    with pytest.raises(
        DataError, match=r"'age' of party A mixes 1 number with 1 cell .*missing_val"
    ):
        read(tmp_path / "t.csv", content)
    table = read(tmp_path / "t.csv", content, missing_values=("", "?"))
    assert table.column("job").isna().tolist() == [True, False]
    assert table.column("age").dropna().tolist() == [31]
    plain = read(tmp_path / "t.csv", "id,land\na,NA\nb,?\nc,\n")
    assert plain.column("land").dropna().tolist() == ["NA", "?"]


def test_long_files_with_line_breaks_in_cells(tmp_path: Path):
    """Arrow reads a megabyte at a time; a cell with line breaks may lie across the cut."""
    texts = [f'first {row}\nsecond, "third"' * 5 for row in range(20_000)]
    frame = pd.DataFrame({"id": [f"{row:06}" for row in range(20_000)], "t": texts})
    write_table(frame, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").stat().st_size > 2**21
    found = read_table(tmp_path / "t.csv", party="A", id="id")
    assert found.column("t").tolist() == texts


def test_a_header_longer_than_a_page(tmp_path: Path):
    names = [f"a_rather_long_column_name_{place:05}" for place in range(2_000)]
    content = f"{';'.join(['id', *names])}\n{';'.join(['007', *['1'] * 2_000])}\n"
    table = read(tmp_path / "t.csv", content)
    assert table.columns == names
    assert table.ids.tolist() == ["007"]


def test_decimal_commas(tmp_path: Path):
    content = "id;x;y\na;1,5;2\nb;-2,25;3,5\n"
    with pytest.raises(DataError, match="decimal comma"):
        read(tmp_path / "t.csv", content)
    table = read(tmp_path / "t.csv", content, decimal=",")
    assert table.column("x").tolist() == [1.5, -2.25]
    assert table.column("y").tolist() == [2.0, 3.5]
    with pytest.raises(ConfigError, match="decimal must be"):
        read(tmp_path / "t.csv", content, decimal="'")


def test_a_byte_order_mark_windows_lines_and_padded_numbers(tmp_path: Path):
    table = read(tmp_path / "t.csv", b"\xef\xbb\xbfid,x\r\na, 1\r\nb, 2\r\n\r\n")
    assert table.column("x").tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"id,x\n", "has no rows"),
        (b"id,x\na,1\nsecret\n", "1 cell in line 3, but 2 columns in its header"),
        (b"id,x\na,1\nsecret,2,3\n", "3 cells in line 3, but 2 columns"),
        (b"id,x\na,\xff\xfe\n", "is not UTF-8 text in line 2"),
        (b"\x00\x01\x02\x03", "party A"),
        (b"id,x,x\na,1,2\n", "more than one column named 'x'"),
        (b"id,,x\na,1,2\n", "1 column whose name is empty"),
        (b"key,x\na,1\n", "no id column 'id'; its columns are 'key', 'x'"),
        (b"id,x\na,1\na,2\n", "1 row of 2 that repeat an id"),
        (b"id,x\na,1\n,2\n", "is empty in 1 row of 2"),
        (b"id,x\na,\nb,\n", "'x' of party A has no value"),
        (b"id,x\na,1e999\nb,2\n", "1 infinite cell"),
        (b"id,x\na,99999999999999999999\nb,2\n", "beyond 64 bits"),
        (b"id,x\na,2020-01-31\nb,2020-02-01\n", "holds dates"),
    ],
)
def test_bad_csv_files_are_one_sentence(tmp_path: Path, content: bytes, says: str):
    with pytest.raises(DataError, match=says) as caught:
        read(tmp_path / "t.csv", content)
    assert "secret" not in str(caught.value)
    assert "party a" in str(caught.value).lower()


def test_files_that_are_not_there_or_not_ours(tmp_path: Path):
    where = {"party": "A", "id": "id"}
    with pytest.raises(DataError, match="does not exist"):
        read_table(tmp_path / "none.csv", **where)
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        read_table(tmp_path / "dir.csv", **where)
    with pytest.raises(DataError, match=r"or be duckdb:///FILE\?sql=QUERY. Got .xls instead"):
        read_table(tmp_path / "t.xls", **where)
    with pytest.raises(DataError, match="Got no ending"):
        write_table(pd.DataFrame(), tmp_path / "t")
    (tmp_path / "t.parquet").write_bytes(b"id,x\na,1\n")
    with pytest.raises(DataError, match="is not a Parquet file"):
        read_table(tmp_path / "t.parquet", **where)
    (tmp_path / "e.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        read_table(tmp_path / "e.parquet", **where)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path):
    (tmp_path / "t.csv").write_text("id,x\na,1\n")
    (tmp_path / "t.csv").chmod(0)
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        read_table(tmp_path / "t.csv", party="A", id="id")


def test_a_truncated_parquet_file(tmp_path: Path):
    write_table(pd.DataFrame({"id": ["a"], "x": [1]}), tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="damaged"):
        read_table(tmp_path / "t.parquet", party="A", id="id")


def test_parquet_of_other_tools(tmp_path: Path):
    table = pa.table(
        {
            "id": pa.array([7, 8, 9], pa.int32()),
            "n": pa.array([1, None, 3], pa.int16()),
            "b": pa.array([True, None, False]),
            "level": pa.array(["u", "v", None]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet", party="A", id="id")
    assert found.ids.tolist() == ["7", "8", "9"]
    assert str(found.column("n").dtype) == "Int16"
    assert str(found.column("b").dtype) == "boolean"
    assert found.column("level").dropna().tolist() == ["u", "v"]
    pq.write_table(pa.table({"id": [1, None], "x": [1, 2]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="is empty in 1 row of 2"):
        read_table(tmp_path / "t.parquet", party="A", id="id")


def test_a_foreign_note_in_parquet_is_ignored(tmp_path: Path):
    table = pa.table({"id": ["a"], "x": [1]}).replace_schema_metadata({b"vfsl": b"[not ours"})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", party="A", id="id").kinds == {"x": "numeric"}


def test_a_frame_is_written_as_it_is(tmp_path: Path):
    frame = pd.DataFrame({"a": ["x\ry", None], "b": [0.1 + 0.2, 1e300]})
    write_table(frame, tmp_path / "new" / "t.csv")
    assert (
        (tmp_path / "new" / "t.csv").read_bytes().startswith(b'"a","b"\n"x\ry",0.30000000000000004')
    )
    write_table(frame[["b"]], tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes() == b"b\n0.30000000000000004\n1e+300\n"
    with pytest.raises(DataError, match="Got list instead"):
        write_table([1], tmp_path / "t.csv")  # type: ignore[arg-type]


FORMULAS = ["=HYPERLINK(1)", "+4930", "-1.5", "@x", "\t=1", "\r=1", "\n=1"]
HARMLESS = ["a=1", " =1", "'=1", "", "4930"]


@pytest.mark.parametrize("dtype", [object, "string", "category"])
def test_text_of_others_is_no_formula_in_a_csv_file(tmp_path: Path, dtype: str):
    cells = pd.Series([*FORMULAS, *HARMLESS, None], dtype=dtype)
    frame = pd.DataFrame({"id": cells, "own": cells, "score": -np.arange(float(len(cells)))})
    write_table(frame, tmp_path / "t.csv", foreign=["id", "score"])
    raw = pd.read_csv(tmp_path / "t.csv", dtype={"id": str, "own": str}, lineterminator="\n")
    came = [None if pd.isna(cell) else cell for cell in raw["id"]]
    assert came[: len(FORMULAS)] == [f"'{cell}" for cell in FORMULAS]
    assert came[len(FORMULAS) :] == [cell or None for cell in [*HARMLESS, None]]
    assert list(raw["own"][: len(FORMULAS)]) == FORMULAS
    assert raw["score"].tolist() == frame["score"].tolist()
    assert list(frame["id"][: len(FORMULAS)]) == FORMULAS  # the frame itself is as it was


def test_names_of_foreign_columns_are_no_formulas_either(tmp_path: Path):
    frame = pd.DataFrame([["=1", -2, "=3"]], columns=["=a", "-b", "=c"])
    write_table(frame, tmp_path / "t.csv", foreign=["=a", "-b"])
    assert (tmp_path / "t.csv").read_text() == "'=a,'-b,=c\n'=1,-2,=3\n"
    with pytest.raises(ConfigError, match="Got 'd' instead"):
        write_table(frame, tmp_path / "t.csv", foreign=["d"])


def test_parquet_keeps_text_of_others_as_it_is(tmp_path: Path):
    frame = pd.DataFrame({"id": FORMULAS})
    write_table(frame, tmp_path / "t.parquet", foreign=["id"])
    assert list(pd.read_parquet(tmp_path / "t.parquet")["id"]) == FORMULAS


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path):
    write_table(pd.DataFrame({"a": ["old"]}), tmp_path / "t.csv")
    with pytest.raises(DataError, match="cannot be written"):
        write_table(pd.DataFrame({"a": pd.Series(["\ud800"], dtype=object)}), tmp_path / "t.csv")
    mixed = pd.DataFrame({"a": pd.Series([1, "x"], dtype=object)})
    with pytest.raises(DataError, match="cannot be written"):
        write_table(mixed, tmp_path / "t.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    assert (tmp_path / "t.csv").read_text() == "a\nold\n"
