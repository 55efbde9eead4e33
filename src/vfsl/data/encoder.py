"""Tables to matrices of numbers and back, by statistics of the party's own training rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from vfsl.data import codes
from vfsl.data.checks import check_choice, counted
from vfsl.data.codes import CategoryCode, Code, NumericCode
from vfsl.data.columns import Kind
from vfsl.data.findings import Finding
from vfsl.data.table import PartyTable
from vfsl.errors import ConfigError, DataError
from vfsl.values import Array

MISSING = ("impute", "mean", "zero", "drop", "keep")
FILLS = ("impute", "mean", "zero")
_FORMAT = 1
# What the findings say about cells, by their code.
_CELLS = {
    "unseen categories": "not seen in training",
    "imputed": "imputed",
    "no longer constant": "lost: constant in training",
}


@dataclass(frozen=True, eq=False)
class Encoded:
    """A table as a matrix.

    Attributes
    ----------
    matrix : float64 array (rows kept, width)
    names : list of str
        One per matrix column: ``"age"``, or ``"colour=red"``.
    groups : dict of str to slice
        Where each source column is; the slice is empty for a column that said nothing in training.
    rows : integer array
        The row numbers of the given table that the matrix has, in order.
    kinds : dict of str to Kind
        The kind of each source column.
    findings : list of Finding
        Unseen categories, imputed cells and dropped rows: counted, not hidden.
    """

    matrix: Array
    names: list[str]
    groups: dict[str, slice]
    rows: Array
    kinds: dict[str, Kind]
    findings: list[Finding]


class Encoder:
    """Standardise numbers and one-hot encode categories, reversibly.

    Label columns are never encoded. A column that is constant in the training rows is reported in
    ``findings_`` and left out of the matrix; :meth:`inverse` brings it back.

    Parameters
    ----------
    missing : {"impute", "mean", "zero", "drop", "keep"}
        With ``"impute"``, missing cells become the training mean, or the most frequent category
        (the first in order on a tie). With ``"mean"``, they become the mean of the matrix columns:
        a category is then as likely as in training. With ``"zero"``, numbers become 0 before they
        are standardised, and a category none at all. With ``"drop"``, their rows are left out. With
        ``"keep"``, they stay NaN, a whole block of NaN for a category; a constant column that has
        missing cells then stays in the matrix, because where it is missing may matter.

    Attributes
    ----------
    codes_ : list of Code
        One per feature, in table order.
    findings_ : list of Finding
        Columns that said nothing in the training rows.

    Examples
    --------
    >>> encoder = Encoder(missing="keep").fit(table, rows=training_rows)  # doctest: +SKIP
    >>> encoder.inverse(encoder.transform(table).matrix)  # doctest: +SKIP
    """

    codes_: list[Code]
    findings_: list[Finding]
    party_: str

    def __init__(self, missing: str = "impute") -> None:
        self.missing = missing

    def fit(self, table: PartyTable, rows: Any = None) -> Encoder:
        """Learn means, deviations and categories from these rows of the table, or from all."""
        check_choice("Encoder", "missing", self.missing, MISSING)
        part = table if rows is None else table.take(rows)
        if self.missing == "drop":
            part = part.take(_find_complete(part, part.features))
        if not len(part):
            raise DataError(
                f"Party {table.party} has no training row to learn its encoding from"
                f"{', since every row has a missing cell' if self.missing == 'drop' else ''}."
            )
        self.party_ = table.party
        self.codes_ = [self._fit_column(part, name) for name in part.features]
        self.findings_ = [
            _report_silent(table.party, code, len(part)) for code in self.codes_ if not code.width
        ]
        return self

    def transform(self, table: PartyTable) -> Encoded:
        """The table's features as a matrix; extra columns and labels are ignored."""
        self._check_columns(table)
        rows = np.arange(len(table))
        findings: list[Finding] = []
        if self.missing == "drop":
            rows = _find_complete(table, [code.name for code in self.codes_])
            dropped = len(table) - len(rows)
            if dropped:
                text = (
                    f"Party {table.party} had {counted(dropped, 'row')} dropped for missing cells."
                )
                findings.append(Finding(table.party, None, "dropped rows", dropped, text))
            table = table.take(rows)
        width = sum(code.width for code in self.codes_)
        matrix = np.empty((len(table), width))
        groups = self.groups
        for code in self.codes_:
            values = table.column(code.name)
            fill = self.missing if self.missing in FILLS else ""
            block, counts = code.encode(values, fill=fill)
            matrix[:, groups[code.name]] = block
            where = f"Column {code.name!r} of party {table.party}"
            for what, count in counts.items():
                text = f"{where} has {counted(count, 'cell')} {_CELLS[what]}."
                findings += [Finding(table.party, code.name, what, count, text)] if count else []
        return Encoded(matrix, self.names, groups, rows, self.kinds, findings)

    def fit_transform(self, table: PartyTable, rows: Any = None) -> Encoded:
        """``fit(table, rows).transform(table)``: all rows encoded, statistics from ``rows``."""
        return self.fit(table, rows).transform(table)

    def inverse(self, matrix: Array, *, clip: bool = False) -> pd.DataFrame:
        """A matrix back in the user's units, types and category names.

        Parameters
        ----------
        matrix : array (rows, width)
            Need not come from :meth:`transform`: whole numbers are rounded, and the largest entry
            of a category's block wins. NaN, and a block of zeros, is a missing cell.
        clip : bool
            Keep numbers within the bounds of the training rows.
        """
        self._check_fitted()
        values = np.asarray(matrix, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.names):
            raise DataError(
                f"The matrix to decode for party {self.party_} must have {len(self.names)} "
                f"columns. Got shape {values.shape} instead."
            )
        infinite = int(np.isinf(values).sum())
        if infinite:
            raise DataError(
                f"The matrix to decode for party {self.party_} has "
                f"{counted(infinite, 'infinite cell')}."
            )
        groups = self.groups
        columns = {
            code.name: code.restore(values[:, groups[code.name]], clip=clip) for code in self.codes_
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(len(values)))

    @property
    def names(self) -> list[str]:
        """The name of each matrix column."""
        self._check_fitted()
        return [name for code in self.codes_ for name in code.names]

    @property
    def groups(self) -> dict[str, slice]:
        """Which matrix columns belong to each source column."""
        self._check_fitted()
        ends = np.cumsum([code.width for code in self.codes_]).tolist()
        return {
            code.name: slice(end - code.width, end)
            for code, end in zip(self.codes_, ends, strict=True)
        }

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each source column."""
        self._check_fitted()
        return {code.name: code.kind for code in self.codes_}

    def to_dict(self) -> dict[str, Any]:
        """The learned state as JSON values; it holds means and categories: keep it private."""
        self._check_fitted()
        return {
            "format": _FORMAT,
            "party": self.party_,
            "missing": self.missing,
            "columns": [code.to_dict() for code in self.codes_],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Encoder:
        """Undo :meth:`to_dict`."""
        try:
            if state["format"] != _FORMAT:
                raise KeyError("format")
            encoder = cls(missing=state["missing"])
            encoder.party_ = str(state["party"])
            encoder.codes_ = [_read_code(column) for column in state["columns"]]
        except (KeyError, TypeError) as error:
            raise DataError(
                f"This is not the saved state of an Encoder of this version: {error} does not fit."
            ) from None
        check_choice("Encoder", "missing", encoder.missing, MISSING)
        encoder.findings_ = []
        return encoder

    def _fit_column(self, part: PartyTable, name: str) -> Code:
        values = part.column(name)
        keep = self.missing == "keep"
        if part.kinds[name] is Kind.CATEGORICAL:
            return codes.fit_category(values, keep_missing=keep)
        where = f"Column {name!r} of party {part.party}"
        if self.missing == "zero" and values.notna().any():
            values = values.fillna(0)
        return codes.fit_numeric(values, keep_missing=keep, where=where)

    def _check_columns(self, table: PartyTable) -> None:
        self._check_fitted()
        absent = [code.name for code in self.codes_ if code.name not in table.features]
        if absent:
            raise DataError(
                f"Party {table.party} lacks {counted(len(absent), 'feature')} that its encoding "
                f"was learned from: {', '.join(map(repr, absent[:12]))}."
            )
        for code in self.codes_:
            if table.kinds[code.name] is not code.kind:
                raise DataError(
                    f"Column {code.name!r} of party {table.party} must be {code.kind}, as in "
                    f"training. Got {table.kinds[code.name]} instead; declare its kind."
                )

    def _check_fitted(self) -> None:
        if not hasattr(self, "codes_"):
            raise ConfigError("This Encoder has learned nothing yet; call fit first.")


def _find_complete(table: PartyTable, names: list[str]) -> Array:
    """The numbers of the rows without a missing cell in these columns; labels do not count."""
    return np.flatnonzero(table.frame[names].notna().to_numpy().all(axis=1))


def _read_code(state: Mapping[str, Any]) -> Code:
    fields = {name: value for name, value in state.items() if name != "kind"}
    kinds: dict[str, type[Code]] = {code.kind: code for code in (NumericCode, CategoryCode)}
    return kinds[state["kind"]](**fields)


def _report_silent(party: str, code: Code, rows: int) -> Finding:
    what, says = "constant", "has the same value"
    if code.is_empty():
        what, says = "empty in training", "has no value"
    text = (
        f"Column {code.name!r} of party {party} {says} in all {counted(rows, 'training row')}; "
        "it is left out of the matrix and restored on the way back."
    )
    return Finding(party, code.name, what, rows, text)
