"""Party tables from files; vfsl.data.writing writes them."""

from __future__ import annotations

import codecs
import csv
import gzip
import itertools
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from vfsl.data.checks import counted
from vfsl.data.columns import (
    DECIMAL_COMMA,
    THOUSANDS,
    TRUTH,
    Kind,
    all_match,
    guess_column,
    kind_from,
    read_texts,
    read_truths,
)
from vfsl.data.shaping import Dates, check_columns
from vfsl.data.sources import EXCEL, Source, name_typed, open_source, read_sheet, read_typed
from vfsl.data.table import PartyTable
from vfsl.errors import ConfigError, DataError

_SEPARATORS = (",", ";", "\t")
FILE_ROW = "row in the file"


def read_table(
    path: str | Path,
    *,
    party: str,
    id: str | Sequence[str],
    kinds: Mapping[str, Kind | str] | None = None,
    label: str | Literal[False] | None = None,
    duplicates: str = "error",
    drop: Collection[str] = (),
    fold: Collection[str] = (),
    dates: Dates | Mapping[str, Dates] | None = None,
    separator: str | None = None,
    decimal: str = ".",
    thousands: str = "",
    missing_values: Collection[str] = ("",),
    encoding: str = "utf-8",
) -> PartyTable:
    """Read a party's table from a file, a folder of Parquet files, or a DuckDB database.

    CSV (``.csv``, ``.tsv``, also gzipped: ``.csv.gz``), Parquet (``.parquet``, ``.pq``), the first
    sheet of Excel (``.xlsx``), or ``duckdb:///shop.db?sql=SELECT …``. The last two need packages of
    the extra ``files``.

    In a CSV file, and in a sheet, which is read as the CSV file of its cells, ids are text, so
    leading zeros stay. A column is numeric when every cell is a number, truth values when every
    cell is true or false, else text; a column with a whole number such as ``007`` stays text, and
    so does one declared categorical. A Parquet file that vfsl wrote remembers its kinds; declared
    kinds win.

    Parameters
    ----------
    path : str or Path
    party, id, kinds, label, duplicates, drop, fold, dates
        As in :meth:`PartyTable.from_frame`.
    separator : str, optional
        One character between CSV cells; by default comma, semicolon or tab, whichever fits.
    decimal : {".", ","}
        The decimal mark of numbers in a CSV file.
    thousands : {"", ",", ".", " ", "'"}
        The mark between groups of three digits in a CSV file.
    missing_values : collection of str
        CSV cells that mean missing; an empty one always does. ``"?"`` or ``"NA"`` mean themselves
        unless listed here.
    encoding : str
        Of a CSV file: "utf-8", "latin-1", "cp1252", "utf-16", "gb18030" and so on.

    Raises
    ------
    DataError
        One sentence: what is wrong with the file, or with which column.
    """
    ids = [id] if isinstance(id, str) else list(id)
    declared = {name: kind_from(kind, name) for name, kind in (kinds or {}).items()}
    with open_source(path, party) as source:
        if not source.is_text:
            frame, stored = read_typed(source)
            usable = set(frame.columns) - set(ids)
            declared = {**{n: k for n, k in stored.items() if n in usable}, **declared}
        else:
            raw = _read_source(source, separator, ids, encoding)
            check_columns(raw, party, "drop", drop, ids)
            raw = {name: cells for name, cells in raw.items() if name not in drop}
            drop = ()
            frame = _read_columns(raw, party, ids, declared, decimal, thousands, missing_values)
    return PartyTable.from_frame(
        frame,
        party=party,
        id=id,
        kinds=declared,
        label=label,
        duplicates=duplicates,
        drop=drop,
        fold=fold,
        dates=dates,
    )


def read_ids(
    path: str | Path,
    *,
    party: str,
    id: str | Sequence[str],
    duplicates: str = "error",
    empty: Literal["error", "drop"] = "error",
    separator: str | None = None,
    encoding: str = "utf-8",
) -> PartyTable:
    """Read only the ids of a file, whatever state its other columns are in.

    Parameters
    ----------
    path, party, id, duplicates, separator, encoding
        As in :func:`read_table`.
    empty : {"error", "drop"}
        Refuse rows without an id, or leave them out.

    Returns
    -------
    PartyTable
        With one column, ``FILE_ROW``: the number of the row in the file, from 1, below the header.
    """
    if empty not in ("error", "drop"):
        raise ConfigError(
            f"The empty parameter of read_ids must be 'error' or 'drop'. Got {empty!r} instead."
        )
    ids = [id] if isinstance(id, str) else list(id)
    with open_source(path, party) as source:
        if not source.is_text:
            frame, _ = read_typed(source)
        else:
            raw = _read_source(source, separator, ids, encoding)
            wanted = {name: cells for name, cells in raw.items() if name in ids}
            frame = (
                _read_columns(wanted, party, ids, {}, ".", "", ("",))
                if wanted
                else pd.DataFrame(raw)
            )
    missing = [name for name in ids if name not in frame.columns]
    if not missing:
        frame = frame[ids].assign(**{FILE_ROW: range(1, len(frame) + 1)})
        if empty == "drop":
            frame = frame.dropna(subset=ids)
    return PartyTable.from_frame(frame, party=party, id=id, duplicates=duplicates)


def read_raw(
    path: str | Path,
    *,
    party: str,
    ids: Sequence[str] = (),
    separator: str | None = None,
    encoding: str = "utf-8",
) -> dict[str, pa.Array]:
    """Every cell of a file as text, in whatever state it is; those of Parquet as Arrow writes them.

    Parameters
    ----------
    path, party, separator, encoding
        As in :func:`read_table`.
    ids : sequence of str
        Columns that are known to be there: they help to find the separator.
    """
    with open_source(path, party) as source:
        if source.is_text:
            return _read_source(source, separator, ids, encoding)
        frame, _ = read_typed(source)
    return {
        name: pa.array(
            [None if pd.isna(cell) else str(cell) for cell in frame[name]], type=pa.large_string()
        )
        for name in frame.columns
    }


def column_names(
    path: str | Path, *, party: str, separator: str | None = None, encoding: str = "utf-8"
) -> list[str]:
    """The columns of a file, in its order; of its rows only the first few are looked at."""
    with open_source(path, party) as source:
        if not source.is_text:
            return name_typed(source)
        if source.form in EXCEL:
            return list(read_sheet(source))
        found = _find_separator(source.path, source.form, separator, [], encoding)
        first = _read_first_rows(source.path, found, 1, encoding)
    if not first:
        raise DataError(f"{source.where} is not a CSV file.")
    return first[0]


def _read_source(
    source: Source, separator: str | None, ids: Sequence[str], encoding: str
) -> dict[str, pa.Array]:
    """Every cell of a CSV file or an Excel sheet as text."""
    if source.form in EXCEL:
        return read_sheet(source)
    found = _find_separator(source.path, source.form, separator, ids, encoding)
    return read_cells(source.path, source.where, found, encoding)


def _find_separator(
    path: Path, suffix: str, asked: str | None, ids: Sequence[str], encoding: str = "utf-8"
) -> str:
    """The character between cells: asked for, a tab in .tsv, else the one that fits best."""
    if asked is not None:
        if len(asked) != 1:
            raise ConfigError(
                "The separator parameter of read_table must be one character. "
                f"Got {asked!r} instead."
            )
        return asked
    if suffix == ".tsv":
        return "\t"

    def fitness(separator: str) -> tuple[int, bool, int]:
        rows = _read_first_rows(path, separator, 100, encoding)
        header = rows[0] if rows else []
        even = all(len(row) == len(header) for row in rows)
        return sum(name in header for name in ids), even, len(header)

    return max(_SEPARATORS, key=fitness)


def read_cells(
    path: Path, where: str, separator: str, encoding: str = "utf-8"
) -> dict[str, pa.Array]:
    """Every cell as raw text, by column name. Strict: each line has as many cells as the header."""
    first = _read_first_rows(path, separator, 1, encoding)
    if not first:
        raise DataError(f"{where} is not a CSV file.")
    names = [f"f{place}" for place in range(len(first[0]))]
    try:
        table = pyarrow.csv.read_csv(
            path,
            # One thread, so that an error knows its line.
            read_options=pyarrow.csv.ReadOptions(
                autogenerate_column_names=True, use_threads=False, encoding=encoding
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False
            ),
        )
    except (pa.ArrowInvalid, UnicodeError) as error:
        raise _csv_error(where, str(error), encoding) from None
    columns = [column.combine_chunks() for column in table.columns]
    columns = [
        pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
        for column in columns
    ]
    header = [str(column[0].as_py()) for column in columns]
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        listed = ", ".join(repr(name) for name in sorted(twice))
        raise DataError(f"{where} has more than one column named {listed}; rename or drop them.")
    return {name: column.slice(1) for name, column in zip(header, columns, strict=True)}


def _read_first_rows(
    path: Path, separator: str, count: int, encoding: str = "utf-8"
) -> list[list[str]]:
    """The first lines that are not blank, cut into cells; none if they cannot be."""
    try:
        codec = codecs.lookup(encoding).name
    except LookupError:
        raise ConfigError(
            f"encoding must be the name of one, such as 'utf-8' or 'cp1252'. Got {encoding!r} "
            "instead."
        ) from None
    known = "utf-8-sig" if codec == "utf-8" else codec
    try:
        with (
            gzip.open(path, "rt", encoding=known, errors="replace", newline="")
            if path.suffix.lower() == ".gz"
            else path.open(encoding=known, errors="replace", newline="")
        ) as lines:
            rows = (row for row in csv.reader(lines, delimiter=separator) if row)
            return list(itertools.islice(rows, count))
    except (csv.Error, UnicodeError, EOFError, zlib.error):
        return []


def _csv_error(where: str, message: str, encoding: str) -> DataError:
    # Arrow's message quotes the line; only its number may be repeated.
    line = re.search(r"Row #(\d+)", message)
    at = f" in line {int(line[1]):,}" if line else ""
    wrong = re.search(r"Expected (\d+) columns, got (\d+)", message)
    if any(word in message for word in ("UTF8", "UTF-8", "codec", "decode")):
        return DataError(
            f"{where} is not {encoding.upper()} text{at}; say its encoding, such as 'cp1252', or "
            "save it as UTF-8."
        )
    if wrong:
        return DataError(
            f"{where} is not a table: {counted(int(wrong[2]), 'cell')}{at}, but {wrong[1]} columns "
            "in its header; correct it, or name its separator."
        )
    return DataError(f"{where} is not a CSV file{at}.")


def _read_columns(
    raw: Mapping[str, pa.Array],
    party: str,
    ids: Collection[str],
    declared: Mapping[str, Kind],
    decimal: str,
    thousands: str,
    missing_values: Collection[str],
) -> pd.DataFrame:
    if decimal not in (".", ","):
        raise ConfigError(f"decimal must be '.' or ','. Got {decimal!r} instead.")
    if thousands and (thousands not in THOUSANDS or thousands == decimal):
        known = ", ".join(repr(mark) for mark in THOUSANDS)
        raise ConfigError(
            f"thousands must be one of {known}, and not the decimal mark. Got {thousands!r} "
            "instead."
        )
    if isinstance(missing_values, str):
        missing_values = [missing_values]
    marks = pa.array(list({"", *missing_values}), type=pa.large_string())
    columns: dict[str, pd.Series[Any]] = {}
    for name, cells in raw.items():
        cells = pc.if_else(pc.is_in(cells, marks), pa.scalar(None, cells.type), cells)
        kind = declared.get(name)
        where = f"Column {name!r} of party {party}"
        if name not in ids and kind is not Kind.CATEGORICAL:
            cells = read_marks(cells, decimal, thousands)
        if name in ids or kind is Kind.NUMERIC:
            # Ids stay as written; from_frame reads declared numbers and counts what is not one.
            columns[name] = read_texts(cells)
        elif kind is Kind.CATEGORICAL:
            truth = len(cells) > cells.null_count and all_match(cells, TRUTH)
            columns[name] = read_truths(cells) if truth else read_texts(cells)
        else:
            columns[name] = guess_column(cells, where)
    return pd.DataFrame(columns)


def read_marks(cells: pa.Array, decimal: str, thousands: str) -> pa.Array:
    """Cells whose numbers have a decimal point and no marks between groups of digits."""
    if thousands:
        grouped = pc.match_substring_regex(cells, THOUSANDS[thousands])
        same = {" ": " \u00a0\u202f", "'": "'\u2019"}.get(thousands, thousands)
        joined = cells
        for mark in same:
            joined = pc.replace_substring(joined, mark, "")
        cells = pc.if_else(grouped, joined, cells)
    if decimal == ",":
        comma = pc.match_substring_regex(cells, DECIMAL_COMMA)
        cells = pc.if_else(comma, pc.replace_substring(cells, ",", "."), cells)
    return cells
