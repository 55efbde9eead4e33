"""One column of a table: its kind, what its cells of text say, and every reason to refuse it."""

from __future__ import annotations

from enum import StrEnum
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api import types

from vfsl.data.checks import counted
from vfsl.errors import ConfigError, DataError

WHOLE = r"^[+-]?[0-9]+$"
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
LEADING_ZERO = r"^[+-]?0[0-9]+$"
# Days with the year first or last; see vfsl.data.shaping for how they are read.
DATE = (
    r"^([0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4})"
    r"([ T][0-9:.]+.*)?$"
)
DECIMAL_COMMA = r"^[+-]?[0-9]+,[0-9]+$"
# Groups of three digits with a mark between them that is not the decimal one.
THOUSANDS = {
    ",": r"^[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?$",
    ".": r"^[+-]?[0-9]{1,3}(\.[0-9]{3})+(,[0-9]+)?$",
    " ": r"^[+-]?[0-9]{1,3}([ \x{00A0}\x{202F}][0-9]{3})+([.,][0-9]+)?$",
    "'": r"^[+-]?[0-9]{1,3}(['\x{2019}][0-9]{3})+([.,][0-9]+)?$",
}
TRUTH = r"^([Tt]rue|TRUE|[Ff]alse|FALSE)$"


class Kind(StrEnum):
    """What a column is to a learner."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"
    LABEL = "label"


# What pandas infers, by what it means here; other names, such as "interval", mean themselves.
_FAMILIES = {
    "text": "string",
    "truth": "boolean",
    "whole": "integer",
    "decimal": "floating mixed-integer-float decimal",
    "mixed": "mixed-integer mixed",
    "date": "datetime64 datetime date timedelta64 timedelta time period",
}
_INFERRED = {name: family for family, names in _FAMILIES.items() for name in names.split()}


def kind_from(value: Kind | str, column: str) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        allowed = ", ".join(repr(kind.value) for kind in Kind)
        raise ConfigError(
            f"The kind of column {column!r} must be one of {allowed}. Got {value!r} instead."
        ) from None


def clean_column(
    values: pd.Series[Any],
    *,
    party: str,
    name: str,
    declared: Kind | None = None,
    is_label: bool = False,
) -> tuple[pd.Series[Any], Kind]:
    """The column with a proper type, and its kind; a column that cannot be used raises.

    A label's kind is LABEL; ``declared`` then only says how to read its cells.
    """
    where = f"{'Label' if is_label else 'Column'} {name!r} of party {party}"
    if declared is Kind.LABEL:
        declared = None
    if bool(values.isna().all()):
        if not is_label:
            raise DataError(f"{where} has no value in any row; name the column in drop.")
        # A table whose labels are all unknown is an ordinary table to predict for.
        return pd.Series(np.full(len(values), np.nan), index=values.index), Kind.LABEL
    family = _find_family(values)
    if declared is Kind.NUMERIC:
        values = _read_as_number(values, family, where)
    else:
        values = _read_as_found(values, family, where, declared)
    if types.is_numeric_dtype(values.dtype) and not types.is_bool_dtype(values.dtype):
        _check_finite(values, where)
        found = Kind.NUMERIC
    else:
        found = Kind.CATEGORICAL
    return values, Kind.LABEL if is_label else declared or found


def _find_family(values: pd.Series[Any]) -> str:
    """text, truth, whole, decimal, category, mixed, interval, date, or a type nobody can use."""
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        inner = _find_family(pd.Series(dtype.categories))
        return inner if inner in ("mixed", "date", "interval") else "category"
    if types.is_bool_dtype(dtype):
        return "truth"
    if types.is_complex_dtype(dtype):
        return "complex"
    if types.is_integer_dtype(dtype):
        return "whole"
    if types.is_numeric_dtype(dtype):
        return "decimal"
    inferred = types.infer_dtype(values, skipna=True)
    return _INFERRED.get(inferred, inferred)


def _read_as_found(
    values: pd.Series[Any], family: str, where: str, declared: Kind | None
) -> pd.Series[Any]:
    """A column read as what it looks like; ``declared`` is None or CATEGORICAL."""
    if family == "mixed":
        if declared is None:
            observed = values.dropna()
            numeric = sum(isinstance(one, Real) and not isinstance(one, bool) for one in observed)
            raise mixed_error(where, numeric, len(observed) - numeric)
        return _write_out(values)
    if family == "interval":
        if isinstance(values.dtype, pd.CategoricalDtype):
            return values.cat.rename_categories([str(part) for part in values.cat.categories])
        return _write_out(values)
    if family == "date":
        raise _date_error(where)
    if family == "text":
        return _check_text(values, where, declared)
    if values.dtype == object and family in ("whole", "decimal", "truth"):
        return _to_type(values, family, where)
    if family in ("category", "whole", "decimal", "truth"):
        return values
    raise DataError(
        f"{where} must hold numbers, text or truth values. Got {family} cells instead; convert "
        "them, or leave the column out."
    )


def _read_as_number(values: pd.Series[Any], family: str, where: str) -> pd.Series[Any]:
    """A column declared numeric: text is read, whatever is not a number is counted and refused."""
    if family == "date":
        raise _date_error(where)
    if family == "category":
        values = values.astype(values.cat.categories.dtype)
        family = _find_family(values)
    if family == "truth":
        return values.astype("Int64" if values.hasnans else "int64")
    if family in ("whole", "decimal"):
        return _to_type(values, family, where) if values.dtype == object else values
    written = _write_out(values)
    numbers, bad = read_numbers(to_cells(written), where)
    if bad:
        raise DataError(
            f"{where} is declared numeric, but {counted(bad, 'cell')} of {len(values):,} "
            f"{'is' if bad == 1 else 'are'} not; correct them, list their marks in missing_values "
            "when reading a file, or declare the column categorical."
        )
    return numbers.set_axis(values.index)


def _to_type(values: pd.Series[Any], family: str, where: str) -> pd.Series[Any]:
    """Python objects of one family as a typed column."""
    missing = bool(values.isna().any())
    if family == "truth":
        return values.astype("boolean" if missing else "bool")
    if family == "decimal":
        return values.astype("float64")
    try:
        return values.astype("Int64" if missing else "int64")
    except (OverflowError, TypeError, ValueError):
        raise DataError(
            f"{where} holds whole numbers beyond 64 bits; declare it categorical after converting "
            "it to text, or divide it."
        ) from None


def _check_text(values: pd.Series[Any], where: str, declared: Kind | None) -> pd.Series[Any]:
    if declared is None:
        cells = to_cells(values)
        if all_match(cells, DATE):
            raise _date_error(where)
        if all_match(cells, DECIMAL_COMMA):
            raise decimal_comma_error(where)
    return _write_out(values) if values.dtype == object else values


def _write_out(values: pd.Series[Any]) -> pd.Series[Any]:
    """The column with its observed cells as text, of the text type that pandas prefers."""
    cells = np.full(len(values), None, dtype=object)
    cells[values.notna().to_numpy()] = [str(cell) for cell in values.dropna()]
    return pd.Series(cells.tolist(), index=values.index)


def _check_finite(values: pd.Series[Any], where: str) -> None:
    infinite = int(np.isinf(values.to_numpy(dtype=np.float64, na_value=np.nan)).sum())
    if infinite:
        raise DataError(
            f"{where} has {counted(infinite, 'infinite cell')} among {len(values):,}; "
            "correct them, or leave them empty."
        )


def _date_error(where: str) -> DataError:
    return DataError(
        f"{where} holds dates or times; say dates = 'days' (a number), 'parts' (year, month, "
        "weekday) or 'both', or name it in drop."
    )


# ---- cells of text --------------------------------------------------------------------------


def to_cells(values: pd.Series[Any]) -> pa.Array:
    """The cells of a text column as an Arrow array; missing cells are null."""
    cells = pa.array(values.astype(object), type=pa.large_string(), from_pandas=True)
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def count_matches(cells: pa.Array, pattern: str) -> int:
    """How many cells match; missing cells never do."""
    return int(pc.sum(pc.match_substring_regex(cells, pattern)).as_py() or 0)


def count_observed(cells: pa.Array) -> int:
    """How many cells are not missing."""
    return len(cells) - int(cells.null_count)


def all_match(cells: pa.Array, pattern: str) -> bool:
    return count_matches(cells, pattern) == count_observed(cells)


def read_numbers(cells: pa.Array, where: str) -> tuple[pd.Series[Any], int]:
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


def read_truths(cells: pa.Array) -> pd.Series[Any]:
    """Read cells that all match TRUTH as booleans (nullable when cells are missing)."""
    truth = pc.equal(pc.utf8_lower(cells), "true")
    column: pd.Series[Any] = truth.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get)
    return column if truth.null_count else column.astype("bool")


def read_texts(cells: pa.Array) -> pd.Series[Any]:
    """Cells as a pandas text column of the default text type."""
    return pd.Series(cells.to_pylist(), dtype=object if cells.null_count == len(cells) else None)


def guess_column(cells: pa.Array, where: str) -> pd.Series[Any]:
    """Read the cells of an undeclared file column as truth values, numbers or text."""
    filled = count_observed(cells)
    if not filled:
        return read_texts(cells)
    if all_match(cells, TRUTH):
        return read_truths(cells)
    # '00123' is a code whose zeros matter; as a number it would lose them.
    if count_matches(cells, LEADING_ZERO):
        return read_texts(cells)
    numeric = count_matches(pc.utf8_trim_whitespace(cells), NUMBER)
    commas = count_matches(cells, DECIMAL_COMMA)
    if commas and commas + numeric == filled:
        raise decimal_comma_error(where)
    if numeric == 0:
        return read_texts(cells)
    if numeric < filled:
        raise mixed_error(where, numeric, filled - numeric)
    return read_numbers(cells, where)[0]


def mixed_error(where: str, numeric: int, other: int) -> DataError:
    return DataError(
        f"{where} mixes {counted(numeric, 'number')} with {counted(other, 'cell')} of text or "
        "another type; correct them, list their marks in missing_values, or declare the column "
        "categorical in kinds."
    )


def decimal_comma_error(where: str) -> DataError:
    return DataError(
        f"{where} looks like numbers with a decimal comma; say decimal = ',', or declare the "
        "column categorical in kinds."
    )
