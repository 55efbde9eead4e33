"""Mixed tables to matrices for networks and back, reversibly: one encoding for all methods.

A numeric column is a scalar and, where it has modes, special values or missing cells, a one-hot
choice among them. A category is a one-hot choice of its levels, and of "missing".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from vfsl.completion.modes import NORMALISERS, Normaliser
from vfsl.data import Kind, PartyTable, codes
from vfsl.data.checks import check_choice, counted
from vfsl.data.codes import CategoryCode, NumericCode
from vfsl.data.findings import Finding
from vfsl.errors import ConfigError, DataError
from vfsl.params import check_params, documented, param
from vfsl.values import Array

_FORMAT = 1
# A number is special if it alone is that fraction of a column which has many others.
_SPECIAL_FRACTION = 0.2
_SPECIAL_DISTINCT = 20


# ---- one column of a table as matrix columns -----------------------------------------------------


class Span(NamedTuple):
    """Neighbouring matrix columns that belong together."""

    column: str
    kind: str  # "scalar", or "choice": a one-hot block
    of: str  # "number", "mode" (the choice beside a scalar) or "category"
    start: int
    stop: int

    @property
    def width(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class NumberCoding:
    """A numeric column: choices are the normaliser's components, special values, missing."""

    code: NumericCode
    scale: Normaliser
    special: tuple[float, ...]  # in the user's units
    missing: bool

    @property
    def choices(self) -> int:
        count = self.scale.components + len(self.special) + self.missing
        return count if count > 1 else 0

    @property
    def width(self) -> int:
        return 1 + self.choices if self.code.used else 0

    def spans(self, at: int) -> list[Span]:
        if not self.width:
            return []
        number = Span(self.code.name, "scalar", "number", at, at + 1)
        mode = Span(self.code.name, "choice", "mode", at + 1, at + self.width)
        return [number, mode] if self.choices else [number]

    def encode(
        self, values: pd.Series[Any], rng: np.random.Generator | None, block: Array
    ) -> Array:
        """Fill the block; the cells that can be encoded. Missing ones may stay zero."""
        numbers = codes.as_floats(values)
        known = ~np.isnan(numbers)
        if not self.width:
            return known
        where = np.full(len(numbers), -1)
        for place, value in enumerate(self.special):
            where[numbers == value] = self.scale.components + place
        regular = np.flatnonzero(known & (where < 0))
        standardised = (numbers[regular] - self.code.mean) / self.code.deviation
        where[regular], block[regular, 0] = self.scale.place(standardised, rng)
        if self.missing:
            where[~known] = self.choices - 1
        if self.choices:
            rows = np.flatnonzero(where >= 0)
            block[rows, 1 + where[rows]] = 1.0
        return known

    def decode(self, block: Array) -> pd.Series[Any]:
        return codes.restore_numbers(self.standardised(block)[:, None], self.code, clip=True)

    def standardised(self, block: Array) -> Array:
        """Standardised numbers of a block, NaN where the choice is "missing"."""
        if not self.width:
            return np.zeros(len(block))
        chosen = block[:, 1:].argmax(axis=1) if self.choices else np.zeros(len(block), np.intp)
        components = self.scale.components
        numbers = np.array(self.scale.value(np.minimum(chosen, components - 1), block[:, 0]))
        other = np.flatnonzero(chosen >= components)
        values = [(value - self.code.mean) / self.code.deviation for value in self.special]
        values += [np.nan] * self.missing
        numbers[other] = np.array(values)[chosen[other] - components] if values else 0.0
        return numbers

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code.to_dict(),
            "missing": self.missing,
            "scale": self.scale.to_dict(),
            "special": list(self.special),
        }


@dataclass(frozen=True)
class CategoryCoding:
    """A categorical column: choices are its levels, and missing."""

    code: CategoryCode
    missing: bool

    @property
    def width(self) -> int:
        return len(self.code.levels) + self.missing if self.code.used else 0

    def spans(self, at: int) -> list[Span]:
        width = self.width
        return [Span(self.code.name, "choice", "category", at, at + width)] if width else []

    def encode(
        self, values: pd.Series[Any], rng: np.random.Generator | None, block: Array
    ) -> Array:
        """Fill the block; the cells that can be encoded. Those never seen in training cannot."""
        known = values.notna().to_numpy()
        places = codes.positions(values, self.code.levels)
        places[~known] = len(self.code.levels) if self.missing else -1
        if self.width:
            rows = np.flatnonzero(places >= 0)
            block[rows, places[rows]] = 1.0
        return np.asarray(known & (places >= 0))

    def decode(self, block: Array) -> pd.Series[Any]:
        if not self.width:
            return codes.restore_categories(block, self.code)
        levels = len(self.code.levels)
        chosen = block.argmax(axis=1)
        return codes.restore_categories(
            codes.one_hot(np.where(chosen < levels, chosen, -1), chosen >= levels, levels),
            self.code,
        )

    def to_dict(self) -> dict[str, Any]:
        return {"code": self.code.to_dict(), "missing": self.missing}


Coding = NumberCoding | CategoryCoding


def _coding_from(state: Mapping[str, Any]) -> Coding:
    code = {name: value for name, value in state["code"].items() if name != "kind"}
    if state["code"]["kind"] == Kind.CATEGORICAL:
        return CategoryCoding(CategoryCode(**code), state["missing"])
    scale = dict(state["scale"])
    made = NORMALISERS[scale.pop("name")](**scale)
    return NumberCoding(NumericCode(**code), made, tuple(state["special"]), state["missing"])


# ---- a whole table -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mixed:
    """An encoded table: the matrix, and which cells (rows × columns) have a value in it."""

    matrix: Array
    observed: Array


@documented
@dataclass(eq=False)
class MixedEncoder:
    """Encode numbers, categories, special values and missing cells for networks, reversibly.

    Attributes
    ----------
    columns_ : list of NumberCoding or CategoryCoding
        What was learned of each column.
    spans_ : list of Span
        The layout of the matrix.
    findings_ : list of Finding
        Columns that are constant or empty: left out of the matrix and restored on the way back.
    """

    numeric: Literal["modes", "quantile", "minmax", "standard"] = param(
        "modes",
        "How numbers are scaled: by the modes of a Gaussian mixture, to normal deviates of their "
        "ranks, to −1..1, or by mean and deviation.",
    )
    _: KW_ONLY
    modes: int = param(10, "Maximum number of modes per column.", ge=1)
    special: Mapping[str, Sequence[float]] | Literal["auto"] | None = param(
        None,
        "Numbers that mean something of their own, such as 0 for 'none'; they become choices. "
        "'auto' takes values that are a fifth of a column with more than 20 distinct ones.",
    )
    missing: Literal["level", "blank", "refuse"] = param(
        "level",
        "Missing cells are a choice of their own that comes back; or a block of zeros that decodes "
        "to a value (for imputers); or an error.",
    )

    def fit(self, table: PartyTable, rng: np.random.Generator) -> MixedEncoder:
        """Learn scales, modes and categories from a table."""
        check_params(self)
        if not len(table):
            raise DataError(f"The table of party {table.party} has no rows to learn from.")
        if self.missing == "refuse":
            self._refuse_missing(table)
        self._take(table.party, [self._fit_column(table, name, rng) for name in table.features])
        self.findings_: list[Finding] = [
            _tell_constant(table.party, coding.code.name, len(table))
            for coding in self.columns_
            if not coding.width
        ]
        return self

    def transform(
        self,
        table: PartyTable,
        rng: np.random.Generator | None = None,
        *,
        unseen: str = "error",
        blank: bool = False,
    ) -> Mixed:
        """The table as a matrix.

        Parameters
        ----------
        table : PartyTable
            It may lack columns: those are blank.
        rng : numpy Generator, optional
            Draw the mode of each number by its probability, as CTGAN does; else the likeliest.
        unseen : {"error", "blank"}
            What to do with categories that were not in the training table.
        blank : bool
            Leave missing cells as zeros, whatever ``missing`` says: they are not given.
        """
        check_choice("MixedEncoder.transform", "unseen", unseen, ("error", "blank"))
        matrix = np.zeros((len(table), self.width))
        observed = np.zeros((len(table), len(self.columns_)), dtype=bool)
        for place, (coding, columns) in enumerate(self.blocks()):
            name = coding.code.name
            if name not in table.kinds:
                continue
            if table.kinds[name] is not coding.code.kind:
                raise DataError(
                    f"Column {name!r} of party {table.party} must be {coding.code.kind}, as in "
                    f"training. Got {table.kinds[name]} instead; declare its kind."
                )
            values = table.column(name)
            known = values.notna().to_numpy()
            if not blank:
                self._check_missing(table.party, coding, int((~known).sum()))
            block = matrix[:, columns]
            observed[:, place] = coding.encode(values, rng, block)
            unknown = int((known & ~observed[:, place]).sum())
            if unknown and unseen == "error":
                raise DataError(
                    f"Column {name!r} of party {table.party} has {counted(unknown, 'cell')} with a "
                    "category that was not in the training table."
                )
            if blank:
                block[~observed[:, place]] = 0.0
        return Mixed(matrix, observed)

    def inverse(self, matrix: Array) -> pd.DataFrame:
        """A matrix back in the user's units, types and category names, within the bounds seen.

        The largest entry of a block of choices wins; whole numbers are rounded.
        """
        values = np.asarray(matrix, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != self.width or not np.isfinite(values).all():
            raise DataError(
                f"The matrix to decode for party {self.party_} must be finite with {self.width} "
                f"columns. Got shape {values.shape} instead."
            )
        decoded = {
            coding.code.name: coding.decode(values[:, columns]) for coding, columns in self.blocks()
        }
        return pd.DataFrame(decoded, index=pd.RangeIndex(len(values)))

    def blocks(self) -> Iterator[tuple[Coding, slice]]:
        """Each table column with its matrix columns, in order."""
        stop = 0
        for coding in self.columns_:
            start, stop = stop, stop + coding.width
            yield coding, slice(start, stop)

    @property
    def width(self) -> int:
        """How many matrix columns there are."""
        if not hasattr(self, "columns_"):
            raise ConfigError("This MixedEncoder has learned nothing yet; call fit first.")
        return sum(coding.width for coding in self.columns_)

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each column, in table order."""
        return {coding.code.name: coding.code.kind for coding in self.columns_}

    @property
    def owners(self) -> Array:
        """For each matrix column, the place of its table column."""
        return np.repeat(np.arange(len(self.columns_)), [coding.width for coding in self.columns_])

    def to_dict(self) -> dict[str, Any]:
        """The learned state as JSON values; it holds categories and bounds: keep it private."""
        return {
            "format": _FORMAT,
            "party": self.party_,
            "numeric": self.numeric,
            "modes": self.modes,
            "special": self.special,
            "missing": self.missing,
            "columns": [coding.to_dict() for coding in self.columns_],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> MixedEncoder:
        """Undo :meth:`to_dict`."""
        try:
            if state["format"] != _FORMAT:
                raise KeyError("format")
            settings = {name: state[name] for name in ("modes", "special", "missing")}
            encoder = cls(state["numeric"], **settings)
            encoder._take(str(state["party"]), [_coding_from(one) for one in state["columns"]])
            encoder.findings_ = []
        except (KeyError, TypeError) as error:
            raise DataError(
                f"This is not the saved state of a MixedEncoder of this version: {error} does not "
                "fit."
            ) from None
        return encoder

    def _take(self, party: str, columns: list[Coding]) -> None:
        self.party_, self.columns_ = party, columns
        self.spans_ = [
            span for coding, place in self.blocks() for span in coding.spans(place.start)
        ]

    def _fit_column(self, table: PartyTable, name: str, rng: np.random.Generator) -> Coding:
        values = table.column(name)
        missing = self.missing == "level" and bool(values.isna().any())
        if table.kinds[name] is Kind.CATEGORICAL:
            return CategoryCoding(codes.fit_category(values, keep_missing=missing), missing)
        where = f"Column {name!r} of party {table.party}"
        code = codes.fit_numeric(values, keep_missing=missing, where=where)
        numbers = codes.as_floats(values)
        numbers = numbers[~np.isnan(numbers)]
        special = self._special_values(name, numbers)
        regular = numbers[~np.isin(numbers, special)]
        regular = (regular if regular.size else numbers) - code.mean
        kind = NORMALISERS[self.numeric] if code.used else Normaliser
        scale = kind.fit(regular / code.deviation, rng, self.modes)
        return NumberCoding(code, scale, special, missing)

    def _special_values(self, name: str, numbers: Array) -> tuple[float, ...]:
        if self.special is None or not numbers.size:
            return ()
        if not isinstance(self.special, str):
            return tuple(float(value) for value in self.special.get(name, ()))
        distinct, counts = np.unique(numbers, return_counts=True)
        if len(distinct) <= _SPECIAL_DISTINCT:
            return ()
        return tuple(distinct[counts >= _SPECIAL_FRACTION * len(numbers)].tolist())

    def _refuse_missing(self, table: PartyTable) -> None:
        for name in table.features:
            absent = int(table.column(name).isna().sum())
            if absent:
                raise DataError(
                    f"Column {name!r} of party {table.party} has {counted(absent, 'cell')} "
                    "missing, which is not allowed here; fill them, or leave their rows out."
                )

    def _check_missing(self, party: str, coding: Coding, absent: int) -> None:
        if absent and coding.width and self.missing != "blank" and not coding.missing:
            raise DataError(
                f"Column {coding.code.name!r} of party {party} has {counted(absent, 'cell')} "
                "missing, but none were in training; fill them, or leave their rows out."
            )


def _tell_constant(party: str, column: str, rows: int) -> Finding:
    text = (
        f"Column {column!r} of party {party} has at most one value in all "
        f"{counted(rows, 'training row')}; it is left out of the matrix and restored on the way "
        "back."
    )
    return Finding(party, column, "constant", rows, text)
