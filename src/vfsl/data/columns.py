"""One column of a table: its kind, declared or inferred, and every reason to refuse it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from vfsl.data import text
from vfsl.data.checks import counted
from vfsl.errors import ConfigError, DataError


class Kind(StrEnum):
    """What a column is to a learner."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"
    LABEL = "label"


_INFERRED = {
    "string": "text",
    "boolean": "truth",
    "integer": "whole",
    "floating": "decimal",
    "mixed-integer-float": "decimal",
    "decimal": "decimal",
    "mixed-integer": "mixed",
    "mixed": "mixed",
    "empty": "empty",
    "datetime64": "date",
    "datetime": "date",
    "date": "date",
    "timedelta64": "date",
    "timedelta": "date",
    "time": "date",
    "period": "date",
    "interval": "interval",
}


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
            raise DataError(f"{where} has no value in any row; leave the column out.")
        # A table whose labels are all unknown is an ordinary table to predict for.
        return pd.Series(np.full(len(values), np.nan), index=values.index), Kind.LABEL
    family = _family(values)
    if declared is Kind.NUMERIC:
        values = _as_number(values, family, where)
    else:
        values = _as_found(values, family, where, declared)
    if types.is_numeric_dtype(values.dtype) and not types.is_bool_dtype(values.dtype):
        _check_finite(values, where)
        found = Kind.NUMERIC
    else:
        found = Kind.CATEGORICAL
    return values, Kind.LABEL if is_label else declared or found


def _family(values: pd.Series[Any]) -> str:
    """text, truth, whole, decimal, category, mixed, interval, date, or a type nobody can use."""
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        inner = _family(pd.Series(dtype.categories))
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


def _as_found(
    values: pd.Series[Any], family: str, where: str, declared: Kind | None
) -> pd.Series[Any]:
    """A column read as what it looks like; ``declared`` is None or CATEGORICAL."""
    if family == "mixed":
        if declared is None:
            raise text.mixed(where, *_count_numbers(values))
        return _relabel(values, (str(value) for value in values.dropna()))
    if family == "interval":
        if isinstance(values.dtype, pd.CategoricalDtype):
            return values.cat.rename_categories([str(part) for part in values.cat.categories])
        return _relabel(values, (str(value) for value in values.dropna()))
    if family == "date":
        raise _date(where)
    if family == "text":
        return _text(values, where, declared)
    if values.dtype == object and family in ("whole", "decimal", "truth"):
        return _typed(values, family, where)
    if family in ("category", "whole", "decimal", "truth"):
        return values
    raise DataError(
        f"{where} must hold numbers, text or truth values. Got {family} cells instead; convert "
        "them, or leave the column out."
    )


def _as_number(values: pd.Series[Any], family: str, where: str) -> pd.Series[Any]:
    """A column declared numeric: text is read, whatever is not a number is counted and refused."""
    if family == "date":
        raise _date(where)
    if family == "category":
        values = values.astype(values.cat.categories.dtype)
        family = _family(values)
    if family == "truth":
        return values.astype("Int64" if values.hasnans else "int64")
    if family in ("whole", "decimal"):
        return _typed(values, family, where) if values.dtype == object else values
    written = _relabel(values, (str(value) for value in values.dropna()))
    numbers, bad = text.numbers(text.cells_of(written), where)
    if bad:
        raise DataError(
            f"{where} is declared numeric, but {counted(bad, 'cell')} of {len(values):,} "
            f"{'is' if bad == 1 else 'are'} not; correct them, list their marks in missing_values "
            "when reading a file, or declare the column categorical."
        )
    return numbers.set_axis(values.index)


def _typed(values: pd.Series[Any], family: str, where: str) -> pd.Series[Any]:
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


def _text(values: pd.Series[Any], where: str, declared: Kind | None) -> pd.Series[Any]:
    if declared is None:
        cells = text.cells_of(values)
        if text.all_match(cells, text.DATE):
            raise _date(where)
        if text.all_match(cells, text.DECIMAL_COMMA):
            raise text.decimal_comma(where)
    return _relabel(values, values.dropna()) if values.dtype == object else values


def _relabel(values: pd.Series[Any], observed: Iterable[Any]) -> pd.Series[Any]:
    """The column with its observed cells replaced, as the text type that pandas prefers."""
    cells = np.full(len(values), None, dtype=object)
    cells[values.notna().to_numpy()] = list(observed)
    return pd.Series(cells.tolist(), index=values.index)


def _count_numbers(values: pd.Series[Any]) -> tuple[int, int]:
    observed = values.dropna()
    numeric = sum(isinstance(cell, Real) and not isinstance(cell, bool) for cell in observed)
    return numeric, len(observed) - numeric


def _check_finite(values: pd.Series[Any], where: str) -> None:
    infinite = int(np.isinf(values.to_numpy(dtype=np.float64, na_value=np.nan)).sum())
    if infinite:
        raise DataError(
            f"{where} has {counted(infinite, 'infinite cell')} among {len(values):,}; "
            "correct them, or leave them empty."
        )


def _date(where: str) -> DataError:
    return DataError(
        f"{where} holds dates or times; convert it to a number that means something, such as "
        "days since a fixed day, or declare text categorical."
    )
