"""The two seams of completion: what completers and generators take and give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd

from vfsl.data import Kind, PartyTable
from vfsl.data.checks import check_rng, counted
from vfsl.errors import DataError
from vfsl.values import Array

# A party's table, or a DataFrame whose column kinds are inferred.
Table = PartyTable | pd.DataFrame
# Conditions of a sample: a value for all rows, or one row a sample with free cells left empty.
Given = Mapping[str, Any] | pd.DataFrame | PartyTable


@dataclass(frozen=True, eq=False)
class Completed:
    """A completed table, and how sure each filled cell is.

    Attributes
    ----------
    values : pandas.DataFrame
        The table with no cell missing that could be filled, in the user's units and types:
        conditional means, rounded where the column is whole, and most probable categories.
    means : pandas.DataFrame
        Numeric columns before rounding, to be averaged with those of other methods.
    spread : pandas.DataFrame
        Numeric columns: one standard deviation of a filled cell, in the column's units; 0 where
        the cell was known, NaN where the method cannot say.
    probabilities : dict of str to DataFrame
        Categorical columns: rows × categories; known cells have a 1.
    confidence : pandas.DataFrame
        Every cell, 0 to 1: the largest probability; for numbers 1 − spread / deviation of the
        column, at least 0; 1 where the cell was known, NaN where the method cannot say.
    filled : pandas.DataFrame
        Which cells were filled.
    """

    values: pd.DataFrame
    means: pd.DataFrame
    spread: pd.DataFrame
    probabilities: dict[str, pd.DataFrame]
    confidence: pd.DataFrame
    filled: pd.DataFrame


class Completer(Protocol):
    """Fills the missing cells of a table."""

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Learn from a table; cells may be missing."""
        ...

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """The table with its missing cells filled."""
        ...


class Generator(Protocol):
    """Makes up rows that look like those of a table."""

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Learn from a table."""
        ...

    def sample(self, n: int, rng: np.random.Generator, given: Given | None = None) -> pd.DataFrame:
        """``n`` rows; those cells that ``given`` names have the values that it names."""
        ...


@dataclass(eq=False)
class Filling:
    """Collects what was found for each column, and makes it a :class:`Completed`."""

    table: PartyTable
    values: dict[str, pd.Series[Any]] = field(default_factory=dict)
    means: dict[str, Array] = field(default_factory=dict)
    spread: dict[str, Array] = field(default_factory=dict)
    probabilities: dict[str, pd.DataFrame] = field(default_factory=dict)
    confidence: dict[str, Array] = field(default_factory=dict)

    def number(
        self, name: str, restored: pd.Series[Any], mean: Array, spread: Array, deviation: float
    ) -> None:
        """A numeric column: ``restored`` is ``mean`` in the column's own type."""
        known = self.table.column(name)
        missing = known.isna().to_numpy()
        numbers = known.to_numpy(dtype=np.float64, na_value=np.nan)
        self.values[name] = _merge(known, restored, missing)
        self.means[name] = np.where(missing, mean, numbers)
        self.spread[name] = np.where(missing, spread, 0.0)
        scale = deviation if deviation > 0 else 1.0
        self.confidence[name] = np.where(missing, np.clip(1.0 - spread / scale, 0.0, 1.0), 1.0)

    def category(
        self, name: str, restored: pd.Series[Any], levels: list[Any], probabilities: Array
    ) -> None:
        """A categorical column: ``restored`` are the most probable of ``levels``."""
        known = self.table.column(name)
        missing = known.isna().to_numpy()
        chances = np.array(probabilities, dtype=np.float64)
        cells = known.astype(object).to_numpy()
        for place, level in enumerate(levels):
            chances[~missing, place] = cells[~missing] == level
        self.values[name] = _merge(known, restored, missing)
        self.probabilities[name] = pd.DataFrame(chances, columns=pd.Index(levels, dtype=object))
        best = chances.max(axis=1) if levels else np.full(len(chances), np.nan)
        self.confidence[name] = np.where(missing, best, 1.0)

    def done(self) -> Completed:
        """All columns together."""
        index = pd.RangeIndex(len(self.table))
        order = [name for name in self.table.features if name in self.values]
        filled = {name: self.table.column(name).isna().to_numpy() for name in order}
        return Completed(
            pd.DataFrame({name: self.values[name] for name in order}, index=index),
            pd.DataFrame(self.means, index=index),
            pd.DataFrame(self.spread, index=index),
            self.probabilities,
            pd.DataFrame({name: self.confidence[name] for name in order}, index=index),
            pd.DataFrame(filled, index=index),
        )


def as_table(table: Table, what: str) -> PartyTable:
    """A party's table, or a DataFrame as one, with row numbers for ids; refuses what is empty."""
    if isinstance(table, PartyTable):
        made = table
    elif isinstance(table, pd.DataFrame):
        if not len(table):
            raise DataError(f"The table for {what} has no rows.")
        twice = table.columns[table.columns.duplicated()]
        if len(twice):
            raise DataError(f"The table for {what} has the column {str(twice[0])!r} twice.")
        empty = [name for name in table.columns if table[name].isna().all()]
        kept = table.drop(columns=empty).reset_index(drop=True)
        numbers = pd.Series(np.arange(len(kept)), index=kept.index, name=_ROW)
        made = PartyTable.from_frame(
            pd.concat([numbers, kept], axis=1), party=f"for {what}", id=_ROW
        )
        made = _with_empty(made, table, empty)
    else:
        raise DataError(
            f"The table for {what} must be a pandas DataFrame or a PartyTable. "
            f"Got {type(table).__name__} instead."
        )
    if not len(made):
        raise DataError(f"The table for {what} has no rows.")
    if not made.features:
        raise DataError(f"The table for {what} has no columns beside labels.")
    return made


_ROW = "row number of vfsl"


def _with_empty(made: PartyTable, source: pd.DataFrame, empty: list[str]) -> PartyTable:
    """The columns without any value, in their places: they may be what is to be completed."""
    if not empty:
        return made
    frame = made.frame.copy()
    kinds = dict(made.kinds)
    for name in empty:
        values = source[name].reset_index(drop=True)
        number = pd.api.types.is_numeric_dtype(values.dtype) and values.dtype != bool
        frame[name] = values
        kinds[str(name)] = Kind.NUMERIC if number else Kind.CATEGORICAL
    order = [str(name) for name in source.columns]
    return PartyTable(made.party, made.ids, frame[order], {name: kinds[name] for name in order})


def check_sample(where: str, n: int, rng: np.random.Generator) -> None:
    """The arguments of every ``sample``."""
    check_rng(where, rng)
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise DataError(
            f"The n parameter of {where} must be a whole number of at least 0. Got {n!r}."
        )


def given_frame(given: Given, n: int, kinds: Mapping[str, Kind], where: str) -> pd.DataFrame:
    """Conditions as a frame of ``n`` rows; unknown columns and wrong lengths are refused."""
    if isinstance(given, PartyTable):
        frame = given.frame
    elif isinstance(given, pd.DataFrame):
        frame = given.reset_index(drop=True)
    elif isinstance(given, Mapping):
        frame = pd.DataFrame({name: [value] * n for name, value in given.items()})
        frame.index = pd.RangeIndex(n)
    else:
        raise DataError(
            f"The given parameter of {where} must be a dict of column to value or a table. "
            f"Got {type(given).__name__} instead."
        )
    for name in frame.columns:
        if name not in kinds:
            known = ", ".join(repr(column) for column in list(kinds)[:12])
            raise DataError(
                f"{where} has learned no column {name!r} to be given; its columns are {known}."
            )
    if len(frame) != n:
        raise DataError(
            f"The given parameter of {where} must have {counted(n, 'row')}, one for each sample. "
            f"Got {len(frame):,} instead."
        )
    return frame


def _merge(known: pd.Series[Any], restored: pd.Series[Any], missing: Array) -> pd.Series[Any]:
    """Known cells as they are, missing ones from ``restored``, in the known column's type."""
    if not missing.any():
        return known
    if missing.all():
        return restored
    dtype = restored.dtype if restored.notna().all() else known.dtype
    cells = known.astype(object).to_numpy().copy()
    cells[missing] = restored.astype(object).to_numpy()[missing]
    cells[pd.isna(cells)] = None
    if isinstance(dtype, pd.CategoricalDtype):
        return pd.Series(pd.Categorical(cells, dtype=dtype))
    if pd.api.types.is_float_dtype(dtype):
        return pd.Series(np.array([np.nan if c is None else c for c in cells], dtype=np.float64))
    return pd.Series(cells.tolist(), dtype=dtype)
