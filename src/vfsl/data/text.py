"""What cells of text say: numbers, truth values, dates, codes with leading zeros."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from vfsl.data.checks import counted
from vfsl.errors import DataError

WHOLE = r"^[+-]?[0-9]+$"
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
LEADING_ZERO = r"^[+-]?0[0-9]+$"
DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.]+.*)?$"
DECIMAL_COMMA = r"^[+-]?[0-9]+,[0-9]+$"
TRUTH = r"^([Tt]rue|TRUE|[Ff]alse|FALSE)$"


def cells_of(values: pd.Series[Any]) -> pa.Array:
    """The cells of a text column as an Arrow array; missing cells are null."""
    cells = pa.array(values.astype(object), type=pa.large_string(), from_pandas=True)
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def how_many(cells: pa.Array, pattern: str) -> int:
    """How many cells match; missing cells never do."""
    return int(pc.sum(pc.match_substring_regex(cells, pattern)).as_py() or 0)


def observed(cells: pa.Array) -> int:
    """How many cells are not missing."""
    return len(cells) - int(cells.null_count)


def all_match(cells: pa.Array, pattern: str) -> bool:
    return how_many(cells, pattern) == observed(cells)


def numbers(cells: pa.Array, where: str) -> tuple[pd.Series[Any], int]:
    """Read text as numbers: the column, and how many cells are not numbers (those go missing).

    Whole numbers stay whole (nullable when cells are missing). Arrow reads decimals exactly, as
    Python does; the last digit survives.
    """
    cells = pc.utf8_trim_whitespace(cells)
    matches = pc.match_substring_regex(cells, NUMBER)
    bad = int(pc.sum(pc.invert(matches)).as_py() or 0)
    good = pc.if_else(pc.fill_null(matches, False), cells, pa.scalar(None, cells.type))
    if all_match(good, WHOLE):
        try:
            whole = pc.cast(pc.utf8_ltrim(good, "+"), pa.int64())
        except pa.ArrowInvalid:
            raise DataError(
                f"{where} holds whole numbers beyond 64 bits; declare it categorical, or divide it."
            ) from None
        column = whole.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        return (column if whole.null_count else column.astype("int64")), bad
    return pc.cast(good, pa.float64()).to_pandas(), bad


def truths(cells: pa.Array) -> pd.Series[Any]:
    """Read cells that all match TRUTH as booleans (nullable when cells are missing)."""
    truth = pc.equal(pc.utf8_lower(cells), "true")
    column: pd.Series[Any] = truth.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get)
    return column if truth.null_count else column.astype("bool")


def texts(cells: pa.Array) -> pd.Series[Any]:
    """Cells as a pandas text column of the default text type."""
    return pd.Series(cells.to_pylist(), dtype=object if cells.null_count == len(cells) else None)


def guess(cells: pa.Array, where: str) -> pd.Series[Any]:
    """Read the cells of an undeclared file column as truth values, numbers or text."""
    filled = observed(cells)
    if not filled:
        return texts(cells)
    if all_match(cells, TRUTH):
        return truths(cells)
    # '00123' is a code whose zeros matter; as a number it would lose them.
    if how_many(cells, LEADING_ZERO):
        return texts(cells)
    numeric = how_many(pc.utf8_trim_whitespace(cells), NUMBER)
    commas = how_many(cells, DECIMAL_COMMA)
    if commas and commas + numeric == filled:
        raise decimal_comma(where)
    if numeric == 0:
        return texts(cells)
    if numeric < filled:
        raise mixed(where, numeric, filled - numeric)
    return numbers(cells, where)[0]


def mixed(where: str, numeric: int, other: int) -> DataError:
    return DataError(
        f"{where} mixes {counted(numeric, 'number')} with {counted(other, 'cell')} of text or "
        "another type; correct them, list their marks in missing_values when reading a file, or "
        "declare the column categorical."
    )


def decimal_comma(where: str) -> DataError:
    return DataError(
        f"{where} looks like numbers with a decimal comma; read the file with decimal=',', or "
        "declare the column categorical."
    )
