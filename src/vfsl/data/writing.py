"""Tables to CSV and Parquet files; nobody ever sees half a file."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from vfsl.data.sources import METADATA, PARQUET, TEXT
from vfsl.data.table import PartyTable
from vfsl.errors import ConfigError, DataError
from vfsl.store import replacing

# Spreadsheets take a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_table(
    table: PartyTable | pd.DataFrame, path: str | Path, *, foreign: Collection[str] = ()
) -> None:
    """Write a table to a CSV or Parquet file, by its suffix; nobody ever sees half a file.

    A CSV file holds text only: kinds must be declared again, and empty text reads as missing. A
    Parquet file keeps the kinds and types of a :class:`PartyTable`.

    Parameters
    ----------
    table : PartyTable or DataFrame
    path : str or Path
    foreign : collection of str
        Columns whose cells or names another party has sent. A spreadsheet would run such a text as
        a formula if it begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break; in a CSV file
        it gets an apostrophe in front. Numbers stay numbers, and Parquet files are not changed.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in TEXT | PARQUET:
        raise DataError(
            f"The file {path} must end in .csv, .tsv, .parquet or .pq. "
            f"Got {suffix or 'no ending'} instead."
        )
    if isinstance(table, PartyTable):
        frame, kinds = table.to_frame(), {name: str(kind) for name, kind in table.kinds.items()}
    elif isinstance(table, pd.DataFrame):
        frame, kinds = table, None
    else:
        raise DataError(
            f"Only a PartyTable or a DataFrame can be written to {path}. "
            f"Got {type(table).__name__} instead."
        )
    unknown = [name for name in foreign if name not in frame.columns]
    if unknown:
        raise ConfigError(
            "The foreign parameter of write_table must name columns of the table. "
            f"Got {unknown[0]!r} instead."
        )
    try:
        if suffix in PARQUET:
            _write_parquet(frame, kinds, path)
        else:
            _write_csv(_disarm_frame(frame, foreign), path, "\t" if suffix == ".tsv" else ",")
    except (pa.ArrowException, UnicodeEncodeError) as error:
        raise DataError(
            f"The table cannot be written to {path}: {type(error).__name__}; its cells must be "
            "numbers, truth values or valid text."
        ) from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or 'input/output error'}."
        ) from None


def _write_parquet(frame: pd.DataFrame, kinds: Mapping[str, str] | None, path: Path) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if kinds is not None:
        note = json.dumps({"kinds": kinds}).encode()
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), METADATA: note})
    with replacing(path) as file:
        pyarrow.parquet.write_table(table, file)


def _write_csv(frame: pd.DataFrame, path: Path, separator: str) -> None:
    # The csv module of Python 3.11 leaves a lone carriage return unquoted, which ends a line.
    quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if _has_return(frame) else csv.QUOTE_MINIMAL
    with replacing(path) as file:
        words = io.TextIOWrapper(file, encoding="utf-8", newline="")
        frame.to_csv(words, index=False, sep=separator, lineterminator="\n", quoting=quoting)
        words.flush()
        words.detach()


def _disarm_frame(frame: pd.DataFrame, foreign: Collection[str]) -> pd.DataFrame:
    """The frame with an apostrophe before text of others that a spreadsheet would run."""
    disarmed = frame.copy(deep=False)
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        if name in foreign and not pd.api.types.is_numeric_dtype(column.dtype):
            cells = pd.array([_disarm(cell) for cell in column], dtype=object)
            disarmed.isetitem(place, cells)
    return disarmed.rename(columns={name: _disarm(name) for name in foreign})


def _disarm(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def _has_return(frame: pd.DataFrame) -> bool:
    """Whether a name or a cell of text holds a carriage return."""
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
    texts = [
        column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
        for column in columns
        if not pd.api.types.is_numeric_dtype(column.dtype)
    ]
    every: Iterable[object] = itertools.chain(frame.columns, *texts)
    return any(isinstance(cell, str) and "\r" in cell for cell in every)
