"""The two seams of completion: what completers and generators take and give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd

from vfsl.data import Encoder, Kind, PartyTable, codes
from vfsl.data.codes import CategoryCode, NumericCode
from vfsl.errors import DataError
from vfsl.values import Array

# A party's table, or a DataFrame whose column kinds are inferred.
Table = PartyTable | pd.DataFrame
# Conditions of a sample: a value for all rows, or one row per sample with free cells left empty.
Given = Mapping[str, Any] | pd.DataFrame | PartyTable

_ROW = "row number of vfsl"


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


class Filling:
    """Collects what was found for each column of a table, and makes it a :class:`Completed`."""

    def __init__(self, table: PartyTable) -> None:
        self.table = table
        self._values: dict[str, pd.Series[Any]] = {}
        self._means: dict[str, Array] = {}
        self._spread: dict[str, Array] = {}
        self._probabilities: dict[str, pd.DataFrame] = {}
        self._confidence: dict[str, Array] = {}

    def fill_number(
        self,
        code: NumericCode,
        means: Array,
        spread: Array | float,
        values: pd.Series[Any] | None = None,
    ) -> None:
        """Fill a numeric column; ``values`` are the means in its own type, by default rounded."""
        known = self.table.column(code.name)
        missing = known.isna().to_numpy()
        if values is None:
            block = ((means - code.mean) / code.deviation)[:, None]
            values = codes.restore_numbers(block, code, clip=True)
        self._values[code.name] = _merge(known, values, missing)
        self._means[code.name] = np.where(missing, means, codes.as_floats(known))
        self._spread[code.name] = np.where(missing, spread, 0.0)
        scale = code.deviation if code.deviation > 0 else 1.0
        sure = np.clip(1.0 - spread / scale, 0.0, 1.0)
        self._confidence[code.name] = np.where(missing, sure, 1.0)

    def fill_category(
        self,
        code: CategoryCode,
        chances: Array,
        values: pd.Series[Any] | None = None,
        *,
        sure: bool = True,
    ) -> None:
        """Fill a categorical column by chances of its levels; ``values`` are the likeliest ones.

        Where the method cannot say how sure it is, ``sure`` is False.
        """
        known = self.table.column(code.name)
        missing = known.isna().to_numpy()
        if values is None:
            values = restore_likeliest(chances, code)
        self._values[code.name] = _merge(known, values, missing)
        table = np.array(chances, dtype=np.float64)
        cells = known.astype(object).to_numpy()
        for place, level in enumerate(code.levels):
            table[~missing, place] = cells[~missing] == level
        levels = pd.Index(list(code.levels), dtype=object)
        self._probabilities[code.name] = pd.DataFrame(table, columns=levels)
        best = table.max(axis=1) if code.levels and sure else np.nan
        self._confidence[code.name] = np.where(missing, best, 1.0)

    def finish(self) -> Completed:
        """All columns together, in the order of the table."""
        index = pd.RangeIndex(len(self.table))
        order = [name for name in self.table.features if name in self._values]
        filled = {name: self.table.column(name).isna().to_numpy() for name in order}
        return Completed(
            pd.DataFrame({name: self._values[name] for name in order}, index=index),
            pd.DataFrame(self._means, index=index),
            pd.DataFrame(self._spread, index=index),
            self._probabilities,
            pd.DataFrame({name: self._confidence[name] for name in order}, index=index),
            pd.DataFrame(filled, index=index),
        )


def columns_to_fill(encoder: Encoder, asked: PartyTable) -> list[NumericCode | CategoryCode]:
    """The learned columns that a table has; its other columns are refused."""
    known = {code.name: code for code in encoder.codes_}
    for name in asked.features:
        if name not in known:
            raise DataError(f"Column {name!r} was not in the table that the completer learned.")
        # A column without any cell has the kind that pandas happened to give it.
        learned = known[name].kind
        if asked.kinds[name] is not learned and asked.column(name).notna().any():
            raise DataError(
                f"Column {name!r} of party {asked.party} must be {learned}, as in training. Got "
                f"{asked.kinds[name]} instead; declare its kind."
            )
    found = [known[name] for name in asked.features]
    return [code for code in found if isinstance(code, NumericCode | CategoryCode)]


def restore_likeliest(chances: Array, code: CategoryCode) -> pd.Series[Any]:
    """The most probable category of each row, in the column's type."""
    if not code.used:
        return codes.restore_categories(np.empty((len(chances), 0)), code)
    hot = np.zeros_like(chances)
    hot[np.arange(len(chances)), chances.argmax(axis=1)] = 1.0
    return codes.restore_categories(hot, code)


def as_table(table: Table, what: str) -> PartyTable:
    """A party's table, or a DataFrame as one, with row numbers for ids; refuses what is empty."""
    if isinstance(table, pd.DataFrame):
        if not len(table):
            raise DataError(f"The table for {what} has no rows.")
        twice = table.columns[table.columns.duplicated()]
        if len(twice):
            raise DataError(f"The table for {what} has the column {str(twice[0])!r} twice.")
        made = _from_frame(table, f"for {what}")
    elif isinstance(table, PartyTable):
        made = table
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


def _from_frame(source: pd.DataFrame, party: str) -> PartyTable:
    """A DataFrame as a party's table; columns without a value may be what is to be completed."""
    source = source.reset_index(drop=True)
    empty = [name for name in source.columns if source[name].isna().all()]
    numbers = pd.Series(np.arange(len(source)), index=source.index, name=_ROW)
    numbered = pd.concat([numbers, source.drop(columns=empty)], axis=1)
    made = PartyTable.from_frame(numbered, party=party, id=_ROW)
    if not empty:
        return made
    frame = made.frame.copy()
    kinds = dict(made.kinds)
    for name in empty:
        values = source[name]
        number = pd.api.types.is_numeric_dtype(values.dtype) and values.dtype != bool
        frame[name] = values
        kinds[str(name)] = Kind.NUMERIC if number else Kind.CATEGORICAL
    order = [str(name) for name in source.columns]
    return PartyTable(party, made.ids, frame[order], {name: kinds[name] for name in order})


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
