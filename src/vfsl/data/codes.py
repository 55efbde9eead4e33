"""How one column becomes matrix columns and back: standardised numbers, one-hot categories."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pandas.api import types

from vfsl.data.columns import Kind
from vfsl.errors import DataError
from vfsl.values import Array


@dataclass(frozen=True)
class Code(ABC):
    """What a column was in the training rows; only plain values, so that it saves as JSON."""

    kind: ClassVar[Kind]
    name: str
    dtype: str

    @property
    @abstractmethod
    def width(self) -> int:
        """How many matrix columns; 0 for a column that said nothing in the training rows."""

    @property
    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether no training row had a value."""

    @abstractmethod
    def encode(self, values: pd.Series[Any], *, fill: str = "") -> tuple[Array, dict[str, int]]:
        """Matrix columns, and how many cells something happened to, by what.

        ``fill`` is what missing cells become: "impute", "mean" or "zero"; else they stay NaN.
        """

    @abstractmethod
    def restore(self, block: Array, *, clip: bool = False) -> pd.Series[Any]:
        """Matrix columns back in the user's units and type."""

    def to_dict(self) -> dict[str, Any]:
        return {"kind": str(self.kind), **asdict(self)}


@dataclass(frozen=True)
class NumericCode(Code):
    """Standardised by mean and population deviation; bounds are those of the training rows."""

    kind = Kind.NUMERIC
    mean: float
    deviation: float
    low: float
    high: float
    seen: bool
    used: bool

    @property
    def width(self) -> int:
        return int(self.used)

    @property
    def names(self) -> list[str]:
        return [self.name] * self.width

    def is_empty(self) -> bool:
        return not self.seen

    def encode(self, values: pd.Series[Any], *, fill: str = "") -> tuple[Array, dict[str, int]]:
        numbers = as_floats(values)
        missing = np.isnan(numbers)
        imputed = int(missing.sum()) if fill and self.seen else 0
        if not self.used:
            changed = int((~missing & (numbers != self.mean)).sum())
            return np.empty((len(numbers), 0)), {"imputed": imputed, "no longer constant": changed}
        block = ((numbers - self.mean) / self.deviation)[:, np.newaxis]
        if imputed:
            block[missing] = -self.mean / self.deviation if fill == "zero" else 0.0
        return block, {"imputed": imputed}

    def restore(self, block: Array, *, clip: bool = False) -> pd.Series[Any]:
        return restore_numbers(block, self, clip=clip)


@dataclass(frozen=True)
class CategoryCode(Code):
    """One matrix column per level; levels are those of the training rows, in a fixed order."""

    kind = Kind.CATEGORICAL
    levels: list[Any]
    mode: int | None
    used: bool
    categories: list[Any] | None
    ordered: bool
    frequencies: list[float] | None = None  # of the levels; None in what earlier versions saved

    @property
    def width(self) -> int:
        return len(self.levels) if self.used else 0

    @property
    def names(self) -> list[str]:
        return [f"{self.name}={level}" for level in self.levels] if self.used else []

    def is_empty(self) -> bool:
        return not self.levels

    def encode(self, values: pd.Series[Any], *, fill: str = "") -> tuple[Array, dict[str, int]]:
        missing = values.isna().to_numpy()
        places = positions(values, self.levels)
        places[missing] = -1
        unseen = int(((places < 0) & ~missing).sum())
        imputed = missing if fill and self.mode is not None else np.zeros_like(missing)
        if fill == "impute":
            places[imputed] = self.mode or 0
        block = np.empty((len(values), 0))
        if self.used:
            block = one_hot(places, missing & ~imputed, self.width)
            if fill == "mean" and self.frequencies is not None:
                block[imputed] = self.frequencies
        return block, {"unseen categories": unseen, "imputed": int(imputed.sum())}

    def restore(self, block: Array, *, clip: bool = False) -> pd.Series[Any]:
        return restore_categories(block, self)


def as_floats(values: pd.Series[Any]) -> Array:
    """Numbers as float64, missing cells as NaN."""
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def fit_numeric(values: pd.Series[Any], *, keep_missing: bool, where: str) -> NumericCode:
    numbers = as_floats(values)
    seen = numbers[~np.isnan(numbers)]
    dtype = str(values.dtype)
    if not seen.size:
        return NumericCode(str(values.name), dtype, 0.0, 1.0, 0.0, 0.0, seen=False, used=False)
    low, high = float(seen.min()), float(seen.max())
    constant = low == high
    # With missing cells kept, a constant still says which rows have it.
    used = not constant or (keep_missing and seen.size < numbers.size)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        mean = low if constant else float(seen.mean())
        deviation = 1.0 if constant else float(seen.std())
        # An overflow here would turn every cell into NaN, an underflow into infinity.
        usable = np.isfinite(mean) and np.isfinite((high - low) / deviation) if deviation else False
    if not usable:
        raise DataError(
            f"{where} spans too wide or too narrow a range to be standardised in double "
            "precision; rescale it."
        )
    return NumericCode(str(values.name), dtype, mean, deviation, low, high, True, used)


def fit_category(values: pd.Series[Any], *, keep_missing: bool) -> CategoryCode:
    observed = values.dropna()
    categories, ordered = None, False
    if isinstance(values.dtype, pd.CategoricalDtype):
        categories = values.cat.categories.tolist()
        ordered = bool(values.cat.ordered)
        present = set(observed.unique().tolist())
        levels = [level for level in categories if level in present]
        dtype = str(values.cat.categories.dtype)
    else:
        levels = sorted(set(observed.tolist()))
        dtype = str(values.dtype)
    counts = np.bincount(positions(observed, levels), minlength=max(len(levels), 1))
    used = len(levels) > 1 or (keep_missing and len(levels) == 1 and len(observed) < len(values))
    mode = int(counts.argmax()) if levels else None
    shares = (counts / max(counts.sum(), 1)).tolist() if levels else []
    return CategoryCode(str(values.name), dtype, levels, mode, used, categories, ordered, shares)


def positions(values: pd.Series[Any], levels: list[Any]) -> Array:
    """The place of each cell among the levels; −1 for missing cells and unseen categories."""
    known = pd.Index(levels, dtype=object)
    return np.asarray(known.get_indexer(pd.Index(values.astype(object), dtype=object)))


def one_hot(places: Array, missing: Array, width: int) -> Array:
    """Rows of the identity; missing cells become NaN, unseen categories zeros."""
    block = np.zeros((len(places), width))
    seen = np.flatnonzero(places >= 0)
    block[seen, places[seen]] = 1.0
    block[missing] = np.nan
    return block


def restore_numbers(block: Array, code: NumericCode, *, clip: bool) -> pd.Series[Any]:
    """Matrix column to the user's units and type."""
    if not code.seen:
        numbers = np.full(len(block), np.nan)
    elif not code.used:
        numbers = np.full(len(block), code.mean)
    else:
        numbers = block[:, 0] * code.deviation + code.mean
    if clip and code.seen:
        numbers = np.clip(numbers, code.low, code.high)
    dtype = types.pandas_dtype(code.dtype)
    if not types.is_integer_dtype(dtype):
        return pd.Series(numbers).astype(dtype)
    missing = np.isnan(numbers)
    whole = np.where(missing, 0.0, np.rint(numbers))
    bounds = np.iinfo(getattr(dtype, "numpy_dtype", dtype))
    # Past the type's own bounds a cast would wrap around to the other end.
    whole = np.clip(whole, _inside(bounds.min), _inside(bounds.max))
    column = pd.Series(pd.arrays.IntegerArray(whole.astype(np.int64), missing))
    return _fit_dtype(column, dtype)


def restore_categories(block: Array, code: CategoryCode) -> pd.Series[Any]:
    """Matrix columns to category names: the largest wins; all zero or NaN is missing."""
    if not code.levels:
        places = np.full(len(block), -1)
    elif not code.used:
        places = np.zeros(len(block), dtype=np.intp)
    else:
        blank = np.isnan(block).any(axis=1) | ~block.any(axis=1)
        places = np.where(blank, -1, np.where(np.isnan(block), -np.inf, block).argmax(axis=1))
    cells = np.append(np.array([*code.levels, None], dtype=object)[:-1], [None])[places]
    dtype = types.pandas_dtype(code.dtype)
    if code.categories is not None:
        levels = pd.Index(code.categories, dtype=dtype)
        kind = pd.CategoricalDtype(levels, ordered=code.ordered)
        # By position: pandas would look each cell up by value otherwise.
        where = (
            levels.get_indexer(pd.Index(code.levels, dtype=dtype)) if code.levels else np.array([])
        )
        codes = np.append(where, -1).astype(np.intp)[places]
        return pd.Series(pd.Categorical.from_codes(codes, dtype=kind))
    if types.is_bool_dtype(dtype):
        return _fit_dtype(pd.Series(pd.array(cells, dtype="boolean")), dtype)
    if types.is_integer_dtype(dtype):
        return _fit_dtype(pd.Series(pd.array(cells, dtype="Int64")), dtype)
    return pd.Series(cells, dtype=object).astype(dtype)


def _fit_dtype(column: pd.Series[Any], dtype: Any) -> pd.Series[Any]:
    """A nullable column as ``dtype``, or as its nullable twin when cells are missing."""
    if isinstance(dtype, np.dtype) and column.isna().any():
        name = dtype.name.replace("int", "Int").replace("uInt", "UInt")
        dtype = types.pandas_dtype("boolean" if dtype.kind == "b" else name)
    typed: pd.Series[Any] = column.astype(dtype)
    return typed


def _inside(bound: int) -> float:
    """The float nearest to an integer bound that an int64 can still hold."""
    bound = min(bound, np.iinfo(np.int64).max)
    near = float(bound)
    return float(np.nextafter(near, 0.0)) if abs(int(near)) > abs(bound) else near
