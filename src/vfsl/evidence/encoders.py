"""A party's encoder: how its columns become arrays, and the recipe of its network; without torch.

How columns are encoded is learned from the party's own rows and kept with its share. Numbers become
ranks: the place of a value among 129 quantiles of these rows, scaled to mean 0 and deviation 1, so
that a few huge values do not set the scale. Categories become codes; 0 stands for missing, rare and
unseen ones. Pixels share one mean and one deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from vfsl.data import Encoder, Kind, PartyTable
from vfsl.errors import ConfigError, DataError, StoreError
from vfsl.params import documented, param
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

    levels: ClassVar[tuple[int, ...]] = ()

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

    def arrays(self, table: PartyTable) -> Arrays:
        values = (_pixels(table, self.names) - self.mean) / self.deviation
        return Arrays(values.astype(np.float32), np.zeros((len(table), 0), dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "pixels", **asdict(self)}


@dataclass(frozen=True, eq=False)
class MatrixColumns:
    """Standardised numbers and one-hot categories, for a network of the user's own."""

    levels: ClassVar[tuple[int, ...]] = ()

    encoder: Encoder

    @classmethod
    def fit(cls, table: PartyTable) -> MatrixColumns:
        return cls(Encoder(missing=table.missing).fit(table))

    @property
    def width(self) -> int:
        return len(self.encoder.names)

    def arrays(self, table: PartyTable) -> Arrays:
        matrix = self.encoder.transform(table).matrix.astype(np.float32)
        return Arrays(matrix, np.zeros((len(table), 0), dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "matrix", "encoder": self.encoder.to_dict()}


Columns = MixedColumns | PixelColumns | MatrixColumns


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
    texts = values.astype(object).map(str, na_action="ignore")
    return np.asarray(pd.Index(code.levels, dtype=object).get_indexer(pd.Index(texts))) + 1


def _pixels(table: PartyTable, names: Sequence[str]) -> Array:
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


# ---- recipes -------------------------------------------------------------------------------------


@documented
@dataclass(frozen=True)
class MLP:
    """Embeddings of categories beside numbers, then fully connected layers."""

    columns: ClassVar[type[MixedColumns]] = MixedColumns

    hidden: tuple[int, ...] = param((64, 64), "Widths of the layers.", ge=1)
    embedding: int = param(6, "How many numbers stand for one category.", ge=1)


@dataclass(frozen=True)
class CNN:
    """Three blocks of convolution, normalisation, ReLU and pooling, for columns that are pixels.

    Parameters
    ----------
    shape : tuple of int
        Height and width, or channels, height and width; the columns are its cells in that order.
    width : int
        Channels of the first block; the next ones have twice and four times as many.
    """

    columns: ClassVar[type[PixelColumns]] = PixelColumns

    shape: tuple[int, ...]
    width: int = 16


@dataclass(frozen=True)
class Custom:
    """A torch module of the user's own: standardised numbers and one-hot categories in, K out."""

    columns: ClassVar[type[MatrixColumns]] = MatrixColumns

    module: Any = field(repr=False)


Recipe = MLP | CNN | Custom
_SAVED: dict[str, type[MLP] | type[CNN]] = {"mlp": MLP, "cnn": CNN}


def recipe_for(encoder: Any, party: str, mlp: MLP | None = None) -> Recipe:
    """The recipe that the ``encoder`` parameter means for one party, where "mlp" means ``mlp``."""
    chosen = encoder.get(party) if isinstance(encoder, dict) else encoder
    if chosen == "mlp":
        return mlp or MLP()
    if isinstance(chosen, MLP | CNN | Custom):
        return chosen
    if hasattr(chosen, "state_dict") and callable(chosen):
        return Custom(chosen)
    raise ConfigError(
        f"The encoder parameter of RISA must be 'mlp', an MLP, a CNN or a torch module, or a dict "
        f"of those by party. Got {chosen!r:.80} for party {party!r} instead."
    )


def save_recipe(recipe: Recipe, party: str) -> dict[str, Any]:
    """A recipe as JSON values; refused for a module of the user's own."""
    for name, kind in _SAVED.items():
        if isinstance(recipe, kind):
            return {"kind": name, **asdict(recipe)}
    raise ConfigError(
        f"The network of party {party!r} is a torch module of your own, which is not saved; keep "
        "risa.shares_ beside it."
    )


def load_recipe(content: Mapping[str, Any]) -> MLP | CNN:
    """Undo `save_recipe`."""
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in content.items()
        if name != "kind"
    }
    return _SAVED[content["kind"]](**given)
