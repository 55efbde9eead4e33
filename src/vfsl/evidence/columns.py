"""A party's columns as arrays for its network: learned from its own rows, kept with its share.

Numbers become ranks: the place of a value among 129 quantiles of the party's own rows, scaled to
mean 0 and deviation 1, so that a few huge values do not set the scale. Categories become codes; 0
stands for missing, rare and unseen ones. Pixels share one mean and one deviation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from vfsl.data import Encoder, Kind, PartyTable
from vfsl.errors import DataError, StoreError
from vfsl.values import Array

_QUANTILES = 129
LEAST_COUNT = 4
MOST_LEVELS = 512


class Arrays(NamedTuple):
    """Rows as a network reads them: numbers (rows, p) and category codes (rows, c)."""

    numbers: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class NumberCode:
    """How one numeric column becomes one or two network inputs."""

    name: str
    knots: list[float]
    mean: float
    deviation: float
    flags_missing: bool


@dataclass(frozen=True)
class LevelCode:
    """How one categorical column becomes a code from 0 to the number of levels."""

    name: str
    levels: list[str]


@dataclass(frozen=True)
class MixedColumns:
    """Numbers and categories of a table."""

    numbers: tuple[NumberCode, ...]
    categories: tuple[LevelCode, ...]

    @classmethod
    def fit(cls, table: PartyTable) -> MixedColumns:
        names = {kind: [n for n in table.features if table.kinds[n] is kind] for kind in Kind}
        numbers = [_fit_number(table.column(name), name) for name in names[Kind.NUMERIC]]
        categories = [_fit_levels(table.column(name), name) for name in names[Kind.CATEGORICAL]]
        kept = tuple(code for code in numbers if code is not None)
        used = tuple(code for code in categories if code.levels)
        if not kept and not used:
            raise DataError(f"Party {table.party!r} has no column with two different values.")
        return cls(kept, used)

    @property
    def width(self) -> int:
        return len(self.numbers) + sum(code.flags_missing for code in self.numbers)

    @property
    def levels(self) -> tuple[int, ...]:
        """How many codes each categorical column has, 0 included."""
        return tuple(len(code.levels) + 1 for code in self.categories)

    def arrays(self, table: PartyTable) -> Arrays:
        blocks = [_ranks(table.column(code.name), code) for code in self.numbers]
        numbers = np.hstack(blocks) if blocks else np.zeros((len(table), 0))
        codes = [_places(table.column(code.name), code) for code in self.categories]
        stacked = np.column_stack(codes) if codes else np.zeros((len(table), 0))
        return Arrays(numbers.astype(np.float32), stacked.astype(np.int64))

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "mixed",
            "numbers": [asdict(code) for code in self.numbers],
            "categories": [asdict(code) for code in self.categories],
        }


@dataclass(frozen=True)
class PixelColumns:
    """Columns that are pixels of one picture, in row-major order."""

    names: tuple[str, ...]
    mean: float
    deviation: float

    @classmethod
    def fit(cls, table: PartyTable) -> PixelColumns:
        values = _pixels(table, table.features)
        return cls(tuple(table.features), float(values.mean()), float(values.std()) or 1.0)

    @property
    def width(self) -> int:
        return len(self.names)

    @property
    def levels(self) -> tuple[int, ...]:
        return ()

    def arrays(self, table: PartyTable) -> Arrays:
        values = (_pixels(table, self.names) - self.mean) / self.deviation
        return Arrays(values.astype(np.float32), np.zeros((len(table), 0), dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "pixels", **asdict(self)}


@dataclass(frozen=True, eq=False)
class MatrixColumns:
    """Standardised numbers and one-hot categories, for a network of the user's own."""

    encoder: Encoder

    @classmethod
    def fit(cls, table: PartyTable) -> MatrixColumns:
        return cls(Encoder(missing="impute").fit(table))

    @property
    def width(self) -> int:
        return len(self.encoder.names)

    @property
    def levels(self) -> tuple[int, ...]:
        return ()

    def arrays(self, table: PartyTable) -> Arrays:
        matrix = self.encoder.transform(table).matrix.astype(np.float32)
        return Arrays(matrix, np.zeros((len(table), 0), dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "matrix", "encoder": self.encoder.to_dict()}


Columns = MixedColumns | PixelColumns | MatrixColumns
KINDS: dict[str, type[MixedColumns] | type[PixelColumns] | type[MatrixColumns]] = {
    "mixed": MixedColumns,
    "pixels": PixelColumns,
    "matrix": MatrixColumns,
}


def columns_from(state: Mapping[str, Any]) -> Columns:
    """Undo ``to_dict``."""
    try:
        if state["kind"] == "mixed":
            return MixedColumns(
                tuple(NumberCode(**code) for code in state["numbers"]),
                tuple(LevelCode(**code) for code in state["categories"]),
            )
        if state["kind"] == "pixels":
            return PixelColumns(tuple(state["names"]), state["mean"], state["deviation"])
        return MatrixColumns(Encoder.from_dict(state["encoder"]))
    except (KeyError, TypeError):
        raise StoreError("This share of RISA is damaged: its columns do not fit.") from None


def _fit_number(values: pd.Series[Any], name: str) -> NumberCode | None:
    """None for a column without two different values."""
    cells = values.to_numpy(dtype=np.float64, na_value=np.nan)
    seen = cells[~np.isnan(cells)]
    if not seen.size or seen.min() == seen.max():
        return None
    knots = np.unique(np.quantile(seen, np.linspace(0, 1, _QUANTILES)))
    ranks = np.interp(seen, knots, np.linspace(0, 1, len(knots)))
    deviation = float(ranks.std()) or 1.0
    return NumberCode(name, knots.tolist(), float(ranks.mean()), deviation, seen.size < cells.size)


def _ranks(values: pd.Series[Any], code: NumberCode) -> Array:
    cells = values.to_numpy(dtype=np.float64, na_value=np.nan)
    missing = np.isnan(cells)
    knots = np.asarray(code.knots)
    ranks = np.interp(np.where(missing, knots[0], cells), knots, np.linspace(0, 1, len(knots)))
    scaled = np.where(missing, 0.0, (ranks - code.mean) / code.deviation)
    return np.column_stack([scaled, missing]) if code.flags_missing else scaled[:, None]


def _fit_levels(values: pd.Series[Any], name: str) -> LevelCode:
    counts = values.dropna().astype(str).value_counts()
    frequent = counts[counts >= LEAST_COUNT].iloc[:MOST_LEVELS]
    return LevelCode(name, sorted(frequent.index.tolist()))


def _places(values: pd.Series[Any], code: LevelCode) -> Array:
    texts = values.astype(object).where(values.notna(), None).map(_text)
    return np.asarray(pd.Index(code.levels, dtype=object).get_indexer(pd.Index(texts))) + 1


def _text(cell: Any) -> str | None:
    return None if cell is None else str(cell)


def _pixels(table: PartyTable, names: Any) -> Array:
    for name in names:
        if table.kinds.get(name) is not Kind.NUMERIC:
            raise DataError(
                f"Column {name!r} of party {table.party!r} must be a numeric pixel for a CNN "
                "encoder; use the MLP encoder for mixed tables."
            )
    cells = table.frame[list(names)].to_numpy(dtype=np.float32, na_value=np.nan)
    if np.isnan(cells).any():
        raise DataError(f"The pictures of party {table.party!r} have missing pixels.")
    return np.asarray(cells)
