"""Where tables lie: text files, plain or gzipped, Parquet, Excel sheets and DuckDB databases.

A place is always a path. That of a query in a DuckDB database is the path of the database with the
query behind its name, quoted, so that it stays one name: ``shop.db?sql=SELECT%20...``.
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from vfsl.data.columns import Kind
from vfsl.errors import ConfigError, DataError
from vfsl.store import digest, digest_file

METADATA = b"vfsl"
TEXT = {".csv", ".tsv"}
PARQUET = {".parquet", ".pq"}
EXCEL = {".xlsx", ".xlsm"}
_DUCKDB, _SQL = "duckdb:///", "?sql="
_READABLE = (
    "must end in .csv, .tsv (or .csv.gz, .tsv.gz), .parquet, .pq or .xlsx, or be "
    "duckdb:///FILE?sql=QUERY"
)
# Arrow's types of whole numbers, and those of pandas that can have missing cells.
_WHOLE = {
    pa.type_for_alias(f"{sign}int{bits}"): pd.api.types.pandas_dtype(f"{sign.upper()}Int{bits}")
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}


class Source(NamedTuple):
    """A file that is there: where, of which form (its suffix), and how errors call it."""

    path: Path
    form: str
    where: str
    query: str | None = None

    @property
    def is_text(self) -> bool:
        """Whether cells are text, whose kinds are to be guessed: CSV files and Excel sheets."""
        return self.form in TEXT | EXCEL


def locate_table(folder: Path, place: str | Path) -> Path:
    """The path of a table that a job or an option names, as seen from a folder.

    ``duckdb:///shop.db?sql=SELECT …`` is a query, its text as it is; three slashes stand before a
    relative path, four before an absolute one.
    """
    if not isinstance(place, str) or not place.startswith("duckdb:"):
        return folder / place
    file, found, query = place.removeprefix(_DUCKDB).partition(_SQL)
    if not place.startswith(_DUCKDB) or not file or not found or not query.strip():
        raise ConfigError(
            "A query of a DuckDB database must be written duckdb:///FILE?sql=QUERY. "
            f"Got {place[:80]!r} instead."
        )
    return folder / f"{file}{_SQL}{quote(query, safe='')}"


def find_form(path: Path) -> str:
    """The suffix that says what a file is; that of a gzipped one is that of its content."""
    if _SQL in path.name:
        return _DUCKDB
    suffix = path.suffix.lower()
    inner = Path(path.stem).suffix.lower()
    return inner if suffix == ".gz" and inner in TEXT else suffix


def form_of_results(path: Path) -> str:
    """The suffix of tables that are made from this one: its own where it can be written."""
    form = find_form(path)
    return form if form in TEXT | PARQUET else ".csv"


@contextmanager
def open_source(place: str | Path, party: str) -> Iterator[Source]:
    """A file, or a folder of Parquet files, that is there and not empty."""
    path = locate_table(Path(), place)
    form, query = find_form(path), None
    if form == _DUCKDB:
        name, _, quoted = path.name.partition(_SQL)
        path, query = path.with_name(name), unquote(quoted)
    where = f"The file {path} of party {party}"
    try:
        if path.is_dir():
            if not any(one.suffix.lower() in PARQUET for one in path.rglob("*")):
                raise DataError(
                    f"{where} is a folder without Parquet files; name a file, or a folder of "
                    "Parquet files."
                )
            form = ".parquet"
        elif form not in {*TEXT, *PARQUET, *EXCEL, _DUCKDB}:
            raise DataError(f"The file {path} {_READABLE}. Got {form or 'no ending'} instead.")
        elif not path.exists():
            raise DataError(f"{where} does not exist.")
        elif path.stat().st_size == 0:
            raise DataError(f"{where} is empty.")
        yield Source(path, form, where, query)
    except OSError as error:
        raise DataError(
            f"{where} cannot be read: {error.strerror or type(error).__name__}."
        ) from None


def digest_table(path: Path) -> str:
    """A fingerprint of the file or the files that a table is read from."""
    return digest(*(f"{one.name} {digest_file(one)}" for one in _files_of(path)))


def measure_table(path: Path) -> int:
    """The bytes of the file or the files that a table is read from."""
    return sum(one.stat().st_size for one in _files_of(path))


def _files_of(path: Path) -> list[Path]:
    file = path.with_name(path.name.partition(_SQL)[0]) if _SQL in path.name else path
    return sorted(one for one in file.rglob("*") if one.is_file()) if file.is_dir() else [file]


def read_typed(source: Source) -> tuple[pd.DataFrame, dict[str, Kind]]:
    """A table whose cells have types, of Parquet or DuckDB, and the kinds that vfsl noted."""
    if source.query is not None:
        return frame_from_arrow(_ask_duckdb(source)), {}
    try:
        table = pyarrow.parquet.read_table(source.path)
        frame = frame_from_arrow(table)
    except (pa.ArrowException, OSError):
        raise DataError(f"{source.where} is not a Parquet file, or is damaged.") from None
    return frame, _read_kinds(table.schema.metadata or {})


def name_typed(source: Source) -> list[str]:
    """The columns of such a table."""
    if source.query is not None:
        return list(_ask_duckdb(source).column_names)
    try:
        return list(pyarrow.parquet.ParquetDataset(source.path).schema.names)
    except (pa.ArrowException, OSError):
        raise DataError(f"{source.where} is not a Parquet file, or is damaged.") from None


def frame_from_arrow(table: pa.Table) -> pd.DataFrame:
    """The table in pandas; whole numbers with missing cells stay whole, decimals become numbers."""
    for place, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            cells = table.column(place).cast(pa.float64())
            table = table.set_column(place, field.name, cells)
        elif pa.types.is_string_view(field.type):
            cells = table.column(place).cast(pa.large_string())
            table = table.set_column(place, field.name, cells)
    frame: pd.DataFrame = table.to_pandas()
    twice = {name for name in table.column_names if table.column_names.count(name) > 1}
    for place, field in enumerate(table.schema):
        # Without this, whole numbers with missing cells turn into decimals.
        if field.type in _WHOLE and table.column(place).null_count and field.name not in twice:
            nullable = table.column(place).to_pandas(types_mapper=_WHOLE.get)
            frame[field.name] = nullable.array
    return frame


def to_frame(table: Any) -> Any:
    """An Arrow table, a polars frame, or whatever hands out Arrow data, in pandas; else itself."""
    if isinstance(table, pd.DataFrame) or not hasattr(table, "__arrow_c_stream__"):
        return table
    return frame_from_arrow(pa.table(table))


def read_sheet(source: Source) -> dict[str, pa.Array]:
    """Every cell of the first sheet of an Excel file as a CSV file would have it."""
    openpyxl = _load("openpyxl", "Excel files")
    try:
        book = openpyxl.load_workbook(source.path, read_only=True, data_only=True)
        rows = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)]
        book.close()
    except Exception:  # openpyxl passes on whatever its parsers raise
        raise DataError(f"{source.where} is not an Excel file, or is damaged.") from None
    rows = [row for row in rows if any(cell is not None for cell in row)]
    if not rows:
        raise DataError(f"{source.where} is empty: its first sheet has no cells.")
    header = ["" if cell is None else str(cell) for cell in rows[0]]
    width = max((place + 1 for place, name in enumerate(header) if name), default=0)
    if any(cell is not None for row in rows for cell in row[width:]):
        raise DataError(f"{source.where} has cells in columns without a name; name or clear them.")
    if not all(header[:width]) or len(set(header[:width])) < width:
        raise DataError(
            f"{source.where} has columns without a name, or two of one name, in the first row of "
            "its first sheet."
        )
    return {
        name: pa.array([_write_cell(row[place]) for row in rows[1:]], type=pa.large_string())
        for place, name in enumerate(header[:width])
    }


def _write_cell(cell: Any) -> str:
    """A cell of a sheet as text: whole numbers without a point, dates as ISO writes them."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if isinstance(cell, dt.datetime):
        return (cell.date() if cell.time() == dt.time() else cell).isoformat()
    return str(cell)


def _ask_duckdb(source: Source) -> pa.Table:
    """What a query answers; the database is opened for reading, and nothing beside it."""
    duckdb = _load("duckdb", "DuckDB databases")
    closed = {"enable_external_access": "false"}
    try:
        with duckdb.connect(str(source.path), read_only=True, config=closed) as database:
            answer = database.sql(source.query)
            if answer is not None:
                return answer.to_arrow_table()
    except duckdb.Error as error:
        kind = type(error).__name__.removesuffix("Exception")  # its text may quote cells
        raise DataError(
            f"{source.where} does not answer the query: {kind} error of DuckDB; try it there."
        ) from None
    raise DataError(f"{source.where} answers the query with no table; write a SELECT.")


def _load(package: str, what: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ConfigError(
            f"{what} need the package {package}, which is not installed; run: pip install "
            "'vfsl[files]'."
        ) from None


def _read_kinds(metadata: Mapping[bytes, bytes]) -> dict[str, Kind]:
    try:
        stored = json.loads(metadata.get(METADATA, b"{}"))
        return {str(name): Kind(kind) for name, kind in stored.get("kinds", {}).items()}
    except (ValueError, AttributeError):
        # Somebody else's note under our key; the kinds are then inferred.
        return {}
