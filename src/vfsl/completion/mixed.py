"""Mixed tables to matrices for networks and back, reversibly: one layout for all methods.

A numeric column is a scalar and, where it has modes, special values or missing cells, a one-hot
choice among them. A category is a one-hot choice of its levels, and of "missing".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vfsl.completion.modes import (
    MOST_MODES,
    NORMALISERS,
    Normaliser,
    fit_normaliser,
    normaliser_from,
)
from vfsl.data import Kind, PartyTable, codes
from vfsl.data.checks import check_choice, counted
from vfsl.data.codes import CategoryCode, NumericCode
from vfsl.data.findings import Finding
from vfsl.errors import ConfigError, DataError
from vfsl.values import Array

MISSING = ("level", "blank", "refuse")
_FORMAT = 1
# A number is special if it alone is that share of a column which has many others.
_SPECIAL_SHARE = 0.2
_SPECIAL_DISTINCT = 20


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


@dataclass(frozen=True)
class CategoryCoding:
    """A categorical column: choices are its levels, and missing."""

    code: CategoryCode
    missing: bool

    @property
    def width(self) -> int:
        return len(self.code.levels) + self.missing if self.code.used else 0


Coding = NumberCoding | CategoryCoding


@dataclass(frozen=True, eq=False)
class Mixed:
    """An encoded table: the matrix, and which cells (rows × columns) have a value in it."""

    matrix: Array
    observed: Array


class MixedEncoder:
    """Encode numbers, categories, special values and missing cells for networks, reversibly.

    Parameters
    ----------
    numeric : {"modes", "quantile", "minmax", "standard"}
        How numbers are scaled: by the modes of a Gaussian mixture, to normal deviates of their
        ranks, to −1..1, or by mean and deviation.
    modes : int
        Most modes of a column.
    special : dict of str to list of float, or "auto", optional
        Numbers that mean something of their own, such as 0 for "none"; they become choices.
        "auto" takes values that are a fifth of a column with more than 20 distinct ones.
    missing : {"level", "blank", "refuse"}
        Missing cells are a choice of their own that comes back; or a block of zeros that decodes
        to a value (for imputers); or an error.

    Attributes
    ----------
    spans_ : list of Span
        The layout of the matrix.
    findings_ : list of Finding
        Columns that are constant or empty: left out of the matrix and restored on the way back.
    """

    columns_: list[Coding]
    spans_: list[Span]
    findings_: list[Finding]
    party_: str

    def __init__(
        self,
        numeric: str = "modes",
        *,
        modes: int = MOST_MODES,
        special: Mapping[str, Sequence[float]] | str | None = None,
        missing: str = "level",
    ) -> None:
        self.numeric = numeric
        self.modes = modes
        self.special = special
        self.missing = missing

    def fit(self, table: PartyTable, rng: np.random.Generator) -> MixedEncoder:
        """Learn scales, modes and categories from a table."""
        check_choice("MixedEncoder", "numeric", self.numeric, NORMALISERS)
        check_choice("MixedEncoder", "missing", self.missing, MISSING)
        if isinstance(self.special, str):
            check_choice("MixedEncoder", "special", self.special, ("auto",))
        if not len(table):
            raise DataError(f"The table of party {table.party} has no rows to learn from.")
        if self.missing == "refuse":
            refuse_missing(table, table.features)
        self.party_ = table.party
        self.columns_ = [self._fit_column(table, name, rng) for name in table.features]
        self.findings_ = [
            _silent(table.party, coding.code.name, len(table))
            for coding in self.columns_
            if not coding.width
        ]
        self._lay_out()
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
            Categories that were not in the training table.
        blank : bool
            Leave missing cells as zeros, whatever ``missing`` says: they are not given.
        """
        check_choice("MixedEncoder.transform", "unseen", unseen, ("error", "blank"))
        matrix = np.zeros((len(table), self.width))
        observed = np.zeros((len(table), len(self.columns_)), dtype=bool)
        stop = 0
        for place, coding in enumerate(self.columns_):
            start, stop = stop, stop + coding.width
            name = coding.code.name
            if name not in table.kinds:
                continue
            if table.kinds[name] is not coding.code.kind:
                raise DataError(
                    f"Column {name!r} of party {table.party} must be {coding.code.kind}, as in "
                    f"training. Got {table.kinds[name]} instead; declare its kind."
                )
            values = table.column(name)
            observed[:, place] = values.notna().to_numpy()
            block = matrix[:, start:stop]
            if not blank:
                self._check_missing(table.party, coding, observed[:, place])
            if isinstance(coding, NumberCoding):
                _encode_numbers(coding, codes.as_floats(values), rng, block)
            else:
                unknown = _encode_categories(coding, values, observed[:, place], block)
                if unknown.any() and unseen == "error":
                    raise DataError(
                        f"Column {name!r} of party {table.party} has "
                        f"{counted(int(unknown.sum()), 'cell')} with a category that was not in "
                        "the training table."
                    )
                observed[unknown, place] = False
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
        columns: dict[str, pd.Series[Any]] = {}
        stop = 0
        for coding in self.columns_:
            start, stop = stop, stop + coding.width
            block = values[:, start:stop]
            if isinstance(coding, NumberCoding):
                standardised = _decode_numbers(coding, block)
                columns[coding.code.name] = codes.restore_numbers(
                    standardised[:, None], coding.code, clip=True
                )
            else:
                columns[coding.code.name] = _decode_categories(coding, block)
        return pd.DataFrame(columns, index=pd.RangeIndex(len(values)))

    @property
    def width(self) -> int:
        """How many matrix columns."""
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

    def empty(self, rows: int) -> PartyTable:
        """A table of these columns in which every cell is missing, to be completed."""
        blank = pd.DataFrame(
            {
                name: np.full(rows, np.nan) if kind is Kind.NUMERIC else [None] * rows
                for name, kind in self.kinds.items()
            },
            index=pd.RangeIndex(rows),
        )
        return PartyTable(self.party_, np.arange(rows), blank, self.kinds)

    def categories(self, column: str) -> list[Any]:
        """The levels of a categorical column."""
        coding = next(c for c in self.columns_ if c.code.name == column)
        return list(coding.code.levels) if isinstance(coding, CategoryCoding) else []

    def to_dict(self) -> dict[str, Any]:
        """The learned state as JSON values; it holds categories and bounds: keep it private."""
        return {
            "format": _FORMAT,
            "party": self.party_,
            "numeric": self.numeric,
            "modes": self.modes,
            "special": self.special,
            "missing": self.missing,
            "columns": [_coding_state(coding) for coding in self.columns_],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> MixedEncoder:
        """Undo :meth:`to_dict`."""
        try:
            if state["format"] != _FORMAT:
                raise KeyError("format")
            settings = {name: state[name] for name in ("modes", "special", "missing")}
            encoder = cls(state["numeric"], **settings)
            encoder.party_ = str(state["party"])
            encoder.columns_ = [_coding_from(column) for column in state["columns"]]
        except (KeyError, TypeError) as error:
            raise DataError(
                f"This is not the saved state of a MixedEncoder of this version: {error} does not "
                "fit."
            ) from None
        encoder.findings_ = []
        encoder._lay_out()
        return encoder

    def _fit_column(self, table: PartyTable, name: str, rng: np.random.Generator) -> Coding:
        values = table.column(name)
        missing = self.missing == "level" and bool(values.isna().any())
        if table.kinds[name] is Kind.CATEGORICAL:
            return CategoryCoding(codes.fit_category(values, keep_missing=missing), missing)
        where = f"Column {name!r} of party {table.party}"
        code = codes.fit_numeric(values, keep_missing=missing, where=where)
        numbers = codes.as_floats(values)
        numbers = numbers[~np.isnan(numbers)]
        special = self._special_of(name, numbers)
        regular = numbers[~np.isin(numbers, special)]
        regular = (regular if regular.size else numbers) - code.mean
        scale = (
            fit_normaliser(self.numeric, regular / code.deviation, rng, self.modes)
            if code.used
            else normaliser_from({"name": "standard"})
        )
        return NumberCoding(code, scale, special, missing)

    def _special_of(self, name: str, numbers: Array) -> tuple[float, ...]:
        if self.special is None or not numbers.size:
            return ()
        if not isinstance(self.special, str):
            return tuple(float(value) for value in self.special.get(name, ()))
        distinct, counts = np.unique(numbers, return_counts=True)
        if len(distinct) <= _SPECIAL_DISTINCT:
            return ()
        return tuple(distinct[counts >= _SPECIAL_SHARE * len(numbers)].tolist())

    def _check_missing(self, party: str, coding: Coding, observed: Array) -> None:
        absent = int((~observed).sum())
        if absent and coding.width and self.missing != "blank" and not coding.missing:
            raise DataError(
                f"Column {coding.code.name!r} of party {party} has {counted(absent, 'cell')} "
                "missing, but none were in training; fill them, or leave their rows out."
            )

    def _lay_out(self) -> None:
        self.spans_ = []
        at = 0
        for coding in self.columns_:
            name = coding.code.name
            if isinstance(coding, NumberCoding) and coding.width:
                self.spans_.append(Span(name, "scalar", "number", at, at + 1))
                if coding.choices:
                    stop = at + coding.width
                    self.spans_.append(Span(name, "choice", "mode", at + 1, stop))
            elif coding.width:
                self.spans_.append(Span(name, "choice", "category", at, at + coding.width))
            at += coding.width


def refuse_missing(table: PartyTable, names: Sequence[str]) -> None:
    """Raise for the first of these columns that has missing cells."""
    for name in names:
        absent = int(table.column(name).isna().sum())
        if absent:
            raise DataError(
                f"Column {name!r} of party {table.party} has {counted(absent, 'cell')} missing, "
                "which is not allowed here; fill them, or leave their rows out."
            )


def _encode_numbers(
    coding: NumberCoding, numbers: Array, rng: np.random.Generator | None, block: Array
) -> None:
    """Fill the block of a numeric column; missing cells without a choice of theirs stay zero."""
    if not coding.width:
        return
    known = np.flatnonzero(~np.isnan(numbers))
    where = np.full(len(numbers), -1)
    components = coding.scale.components
    for place, value in enumerate(coding.special):
        where[numbers == value] = components + place
    regular = known[where[known] < 0]
    standardised = (numbers[regular] - coding.code.mean) / coding.code.deviation
    chosen, scalars = coding.scale.place(standardised, rng)
    where[regular] = chosen
    block[regular, 0] = scalars
    if coding.missing:
        where[np.isnan(numbers)] = coding.choices - 1
    if coding.choices:
        rows = np.flatnonzero(where >= 0)
        block[rows, 1 + where[rows]] = 1.0


def _decode_numbers(coding: NumberCoding, block: Array) -> Array:
    """Standardised numbers of a block, NaN where the choice is "missing"."""
    code = coding.code
    if not coding.width:
        return np.zeros(len(block))
    chosen = block[:, 1:].argmax(axis=1) if coding.choices else np.zeros(len(block), dtype=np.intp)
    components = coding.scale.components
    special = np.flatnonzero(chosen >= components)
    numbers = coding.scale.value(np.minimum(chosen, components - 1), block[:, 0])
    numbers = np.array(numbers)
    values = [(value - code.mean) / code.deviation for value in coding.special]
    values += [np.nan] * coding.missing
    numbers[special] = np.array(values)[chosen[special] - components] if values else 0.0
    return numbers


def _encode_categories(
    coding: CategoryCoding, values: pd.Series[Any], observed: Array, block: Array
) -> Array:
    """Fill the block of a category; which cells were never seen in training."""
    places = codes.positions(values, coding.code.levels)
    places[~observed] = len(coding.code.levels) if coding.missing else -1
    unknown = observed & (places < 0)
    if coding.width:
        rows = np.flatnonzero(places >= 0)
        block[rows, places[rows]] = 1.0
    return np.asarray(unknown)


def _decode_categories(coding: CategoryCoding, block: Array) -> pd.Series[Any]:
    if not coding.width:
        return codes.restore_categories(block, coding.code)
    levels = len(coding.code.levels)
    chosen = block.argmax(axis=1)
    hot = np.zeros((len(block), levels))
    rows = np.flatnonzero(chosen < levels)
    hot[rows, chosen[rows]] = 1.0
    hot[chosen >= levels] = np.nan
    return codes.restore_categories(hot, coding.code)


def _coding_state(coding: Coding) -> dict[str, Any]:
    state: dict[str, Any] = {"code": coding.code.to_dict(), "missing": coding.missing}
    if isinstance(coding, NumberCoding):
        state |= {"scale": coding.scale.to_dict(), "special": list(coding.special)}
    return state


def _coding_from(state: Mapping[str, Any]) -> Coding:
    fields = {name: value for name, value in state["code"].items() if name != "kind"}
    if state["code"]["kind"] == Kind.CATEGORICAL:
        return CategoryCoding(CategoryCode(**fields), state["missing"])
    return NumberCoding(
        NumericCode(**fields),
        normaliser_from(state["scale"]),
        tuple(state["special"]),
        state["missing"],
    )


def _silent(party: str, column: str, rows: int) -> Finding:
    text = (
        f"Column {column!r} of party {party} has at most one value in all "
        f"{counted(rows, 'training row')}; it is left out of the matrix and restored on the way "
        "back."
    )
    return Finding(party, column, "constant", rows, text)
