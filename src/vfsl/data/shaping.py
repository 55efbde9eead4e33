"""Columns as a learner can use them: some left out, spellings united, dates as numbers.

The options have the same names in Python, in job files and on the command line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api import types

from vfsl.data.checks import counted
from vfsl.data.columns import all_match, count_matches, count_observed, to_cells
from vfsl.errors import ConfigError, DataError

Dates = Literal["days", "parts", "both"]
DATES: tuple[Dates, ...] = ("days", "parts", "both")
_EPOCH = pd.Timestamp("2000-01-01")
_TIME = r"([ T][0-9]{1,2}:[0-9:.]+.*)?$"
# How a day is written, and how pandas reads it.
_YEAR_FIRST = {
    r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}" + _TIME: "-",
    r"^[0-9]{4}/[0-9]{1,2}/[0-9]{1,2}" + _TIME: "/",
    r"^[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,2}" + _TIME: ".",
}
_YEAR_LAST = {
    r"^[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}" + _TIME: ".",
    r"^[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}" + _TIME: "/",
    r"^[0-9]{1,2}-[0-9]{1,2}-[0-9]{4}" + _TIME: "-",
}


def looks_like_days(cells: pa.Array) -> bool:
    """Whether every cell of text that is not missing is written as a day."""
    return count_observed(cells) > 0 and any(
        all_match(cells, form) for form in (*_YEAR_FIRST, *_YEAR_LAST)
    )


def shape_columns(
    frame: pd.DataFrame,
    party: str,
    drop: Collection[str] = (),
    fold: Collection[str] = (),
    dates: Dates | Mapping[str, Dates] | None = None,
    ids: Collection[str] = (),
) -> pd.DataFrame:
    """The frame without some columns, with united spellings, and with dates as numbers.

    Parameters
    ----------
    drop : collection of str
        Columns to leave out.
    fold : collection of str
        Columns of text in which case and white space around a word mean nothing: YES is yes.
    dates : {"days", "parts", "both"} or mapping of column to one of them, optional
        Days since 2000-01-01; year, month and weekday (0: Monday) as three columns; or all four. A
        word is for every column that holds dates.
    """
    for what, names in (("drop", drop), ("fold", fold)):
        check_columns(frame.columns, party, what, names, ids)
    frame = frame.drop(columns=list(drop))
    for name in fold:
        if name in frame:
            frame = frame.assign(**{name: _fold(frame[name])})
    return _write_dates(frame, party, dates, ids)


def check_columns(
    known: Iterable[str], party: str, what: str, names: Collection[str], ids: Collection[str]
) -> None:
    """Refuse names of columns that a party lacks, or that are its id."""
    if isinstance(names, str):
        raise ConfigError(f"{what} must be a list of columns. Got the text {names!r} instead.")
    known = list(known)
    for name in names:
        if name in ids:
            raise DataError(f"{what} names the id column {name!r} of party {party}.")
        if name not in known:
            listed = ", ".join(map(repr, known[:12]))
            raise DataError(
                f"{what} names column {name!r}, which party {party} does not have; it has {listed}."
            )


def _fold(values: pd.Series[Any]) -> pd.Series[Any]:
    if types.is_numeric_dtype(values.dtype):
        return values
    texts = values.astype(object)
    written = texts.map(lambda cell: cell.strip().casefold() if isinstance(cell, str) else cell)
    known = written.map(lambda cell: cell != "")
    folded: pd.Series[Any] = written.where(known & written.notna(), None)
    return folded


def _write_dates(
    frame: pd.DataFrame,
    party: str,
    dates: Dates | Mapping[str, Dates] | None,
    ids: Collection[str],
) -> pd.DataFrame:
    if dates is None:
        return frame
    for word in [dates] if isinstance(dates, str) else dates.values():
        if word not in DATES:
            raise ConfigError(f"dates must be one of {', '.join(DATES)}. Got {word!r} instead.")
    if not isinstance(dates, str):
        check_columns(frame.columns, party, "dates", dates, ids)
    columns: dict[str, Any] = {}
    for name in frame.columns:
        values = frame[name]
        form = dates if isinstance(dates, str) else dates.get(name)
        if name in ids or form is None or (isinstance(dates, str) and not holds_days(values)):
            columns[name] = values
            continue
        made = _numbers_of(read_days(values, f"Column {name!r} of party {party}"), name, form)
        for new in made:
            if new != name and new in frame.columns:
                raise DataError(f"Party {party} has a column {new!r} already; rename one of them.")
        columns |= made
    return pd.DataFrame(columns, index=frame.index)


def holds_days(values: pd.Series[Any]) -> bool:
    """Whether a column holds dates, as dates or as text."""
    if types.is_datetime64_any_dtype(values.dtype):
        return True
    if types.is_numeric_dtype(values.dtype):
        return False
    found = types.infer_dtype(values, skipna=True)
    if found in ("datetime64", "datetime", "date"):
        return True
    return found == "string" and looks_like_days(to_cells(values))


def read_days(values: pd.Series[Any], where: str) -> pd.Series[Any]:
    """A column's moments; where the year is last, the rows must show what is the month."""
    if not values.notna().any() or types.infer_dtype(values, skipna=True) != "string":
        try:
            return pd.to_datetime(values)
        except (TypeError, ValueError):
            raise DataError(f"{where} holds no dates, so dates says nothing of it.") from None
    cells = pc.utf8_trim_whitespace(to_cells(values))
    texts = pd.Series(cells.to_pylist(), index=values.index, dtype=object)
    form = _find_form(cells, where)
    texts = texts.map(lambda text: text.replace("T", " ").split(" ")[0] if text else None)
    read = pd.to_datetime(texts, format=form, errors="coerce")
    bad = int((read.isna() & texts.notna()).sum())
    if bad:
        raise DataError(
            f"{where} has {counted(bad, 'cell')} of {len(values):,} that no calendar has; correct "
            "them, or leave them empty."
        )
    return read


def _find_form(cells: pa.Array, where: str) -> str:
    for pattern, mark in _YEAR_FIRST.items():
        if all_match(cells, pattern):
            return f"%Y{mark}%m{mark}%d"
    for pattern, mark in _YEAR_LAST.items():
        if not all_match(cells, pattern):
            continue
        big = r"(1[3-9]|[23][0-9])"
        first = count_matches(cells, rf"^{big}")
        second = count_matches(cells, rf"^[0-9]{{1,2}}[./-]{big}")
        if first and second:
            raise DataError(f"{where} mixes days before months with months before days.")
        if not first and not second and mark != ".":
            raise DataError(
                f"{where} does not show whether the day or the month comes first; write its dates "
                "as 2026-03-31."
            )
        return f"%m{mark}%d{mark}%Y" if second else f"%d{mark}%m{mark}%Y"
    raise DataError(f"{where} holds cells that are no dates; write all of them as 2026-03-31.")


def _numbers_of(moments: pd.Series[Any], name: str, form: Dates) -> dict[str, pd.Series[Any]]:
    """Dates as columns of numbers; missing ones are missing."""
    naive = moments.dt.tz_localize(None)
    days = (naive - _EPOCH).dt.total_seconds() / 86_400
    made: dict[str, pd.Series[Any]] = {name: days} if form in ("days", "both") else {}
    if form in ("parts", "both"):
        made |= {
            f"{name} year": naive.dt.year.astype("float64"),
            f"{name} month": naive.dt.month.astype("float64"),
            f"{name} weekday": naive.dt.day_of_week.astype("float64"),
        }
    return made
