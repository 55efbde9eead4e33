"""A party's table: ids as text, columns of a known kind, checked once when it is made.

Errors never quote an id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Literal

import numpy as np
import pandas as pd

from vfsl.data.checks import check_choice, counted
from vfsl.data.columns import Kind, clean_column, kind_from
from vfsl.data.findings import Finding
from vfsl.data.shaping import Dates, shape_columns
from vfsl.data.sources import to_frame
from vfsl.errors import ConfigError, DataError
from vfsl.values import Array

_DUPLICATES = ("error", "first")
MISSING = ("impute", "mean", "zero", "drop")
# Between the parts of a composite id. No part may hold it, so ("a", "bc") never equals ("ab", "c").
_ID_SEPARATOR = "\x1f"


@dataclass(frozen=True, eq=False, repr=False)
class PartyTable:
    """The rows of one party. Make it with :meth:`from_frame` or :func:`vfsl.data.read_table`.

    Attributes
    ----------
    party : str
    ids : numpy array of str (object dtype)
        One text per row, unique. Composite ids are joined by the unit separator.
    frame : pandas.DataFrame
        The columns without the id column(s), in row order; missing cells are missing.
    kinds : dict of str to Kind
        One kind per column of ``frame``. A missing cell of a label column is an unknown label.
    id_columns : tuple of str
        What the id column(s) were called, for writing the table out again.
    notes : tuple of Finding
        What was changed on the way in, such as dropped duplicates.
    no_label : bool
        Whether its owner has said that no column is a label, whatever one looks like.
    missing : {"impute", "mean", "zero"}
        What models that need a number in every cell make of missing ones; see `treat_missing`.
    """

    party: str
    ids: Array
    frame: pd.DataFrame
    kinds: dict[str, Kind]
    id_columns: tuple[str, ...] = ("id",)
    notes: tuple[Finding, ...] = field(default=())
    no_label: bool = False
    missing: str = "impute"

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.frame) or list(self.kinds) != list(self.frame.columns):
            raise DataError(
                f"The table of party {self.party} needs one id per row and one kind per column, in "
                f"column order. Got {len(self.ids):,} ids for {len(self.frame):,} rows and "
                f"{len(self.kinds)} kinds for {self.frame.shape[1]} columns instead."
            )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        party: str,
        id: str | Sequence[str],
        kinds: Mapping[str, Kind | str] | None = None,
        label: str | Literal[False] | None = None,
        duplicates: str = "error",
        drop: Collection[str] = (),
        fold: Collection[str] = (),
        dates: Dates | Mapping[str, Dates] | None = None,
    ) -> PartyTable:
        """Check a DataFrame and make it a party's table.

        Parameters
        ----------
        frame : pandas.DataFrame, polars.DataFrame or pyarrow.Table
            It is copied, never changed. Its index is dropped, unless it is named as the id.
        party : str
            The party's name.
        id : str or list of str
            The id column, or several that together name a row. They hold text, or whole numbers,
            which become their decimal digits.
        kinds : dict, optional
            Column to ``"numeric"``, ``"categorical"`` or ``"label"``. Without it numbers are
            numeric; truth values, text and pandas categories are categorical.
        label : str or False, optional
            The column with the target, which is never a feature; missing cells are unknown labels.
            False says that no column is a label, whatever one looks like.
        duplicates : {"error", "first"}
            Refuse rows that repeat an id, or keep only the first of each.
        drop : list of str, optional
            Columns to leave out.
        fold : list of str, optional
            Columns of text in which case and white space around a word mean nothing: YES is yes.
        dates : {"days", "parts", "both"} or dict of column to one of them, optional
            Dates as days since 2000-01-01, as year, month and weekday (0: Monday), or as all four;
            a word is for every column that holds dates. Without it dates are refused.

        Raises
        ------
        DataError
            One sentence that names the party and the column. It never quotes an id.
        """
        frame = to_frame(frame)
        _check_frame(frame, party, duplicates)
        id_columns = (id,) if isinstance(id, str) else tuple(id)
        frame = _with_ids_as_columns(frame, id_columns, party)
        frame = shape_columns(frame, party, drop, fold, dates, id_columns)
        declared = {name: kind_from(kind, name) for name, kind in (kinds or {}).items()}
        labels = {name for name, kind in declared.items() if kind is Kind.LABEL}
        labels |= {label} if isinstance(label, str) else set()
        _check_names(frame, id_columns, declared, labels, party)
        if not len(frame):
            raise DataError(f"The table of party {party} has no rows.")
        ids, rows, notes = _unique(join_ids(frame, id_columns, party), party, duplicates)
        frame = frame.drop(columns=list(id_columns)).iloc[rows].reset_index(drop=True)
        columns: dict[str, pd.Series[Any]] = {}
        found: dict[str, Kind] = {}
        for name in frame.columns:
            columns[name], found[name] = clean_column(
                frame[name],
                party=party,
                name=name,
                declared=declared.get(name),
                is_label=name in labels,
            )
        cleaned = pd.DataFrame(columns, index=pd.RangeIndex(len(ids)))
        return cls(party, ids, cleaned, found, id_columns, notes, label is False)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        # The generated one would print ids.
        return (
            f"PartyTable({self.party!r}, {counted(len(self), 'row')}, "
            f"{counted(len(self.features), 'feature')}, {counted(len(self.labels), 'label')})"
        )

    @property
    def columns(self) -> list[str]:
        """All column names, labels included, without the id."""
        return list(self.kinds)

    @property
    def features(self) -> list[str]:
        """The columns that are not labels."""
        return [name for name, kind in self.kinds.items() if kind is not Kind.LABEL]

    @property
    def labels(self) -> list[str]:
        """The label columns."""
        return [name for name, kind in self.kinds.items() if kind is Kind.LABEL]

    def column(self, name: str) -> pd.Series[Any]:
        """One column."""
        self._check_known([name])
        return self.frame[name]

    def take(self, rows: Any) -> PartyTable:
        """The rows with these numbers, in this order."""
        chosen = np.asarray(rows)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise DataError(
                f"The rows to take from party {self.party} must be a list of row numbers. Got "
                f"{chosen.dtype} of shape {chosen.shape} instead; numpy.flatnonzero turns a mask "
                "into row numbers."
            )
        chosen = chosen.astype(np.intp)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= len(self)):
            raise DataError(
                f"The rows to take from party {self.party} must be from 0 to {len(self) - 1}. Got "
                f"rows from {chosen.min()} to {chosen.max()} instead."
            )
        frame = self.frame.iloc[chosen].reset_index(drop=True)
        return replace(self, ids=_frozen(self.ids[chosen]), frame=frame)

    def with_column(self, name: str, values: Any, kind: Kind | str) -> PartyTable:
        """The table with one more column, or with that column replaced in its place."""
        wanted = kind_from(kind, name)
        if name in self.id_columns:
            raise DataError(f"Column {name!r} of party {self.party} is its id; use another name.")
        column = pd.Series(values.array if isinstance(values, pd.Series) else values)
        if len(column) != len(self):
            raise DataError(
                f"Column {name!r} of party {self.party} must have {counted(len(self), 'cell')}. "
                f"Got {len(column):,} instead."
            )
        cleaned, found = clean_column(
            column,
            party=self.party,
            name=name,
            declared=wanted,
            is_label=wanted is Kind.LABEL,
        )
        frame = self.frame.assign(**{name: cleaned})
        return replace(self, frame=frame, kinds={**self.kinds, name: found})

    def without(self, columns: str | Iterable[str]) -> PartyTable:
        """The table without some of its columns."""
        dropped = [columns] if isinstance(columns, str) else list(columns)
        self._check_known(dropped)
        kept = [name for name in self.columns if name not in dropped]
        return replace(
            self, frame=self.frame[kept], kinds={name: self.kinds[name] for name in kept}
        )

    def treat_missing(self, how: str) -> PartyTable:
        """The table with another treatment of missing feature cells.

        Parameters
        ----------
        how : {"impute", "mean", "zero", "drop"}
            "impute": the mean, or the most frequent category; "mean": the mean, or every category
            as much as it is frequent; "zero": 0, or no category; all by the rows that a model is
            trained on. Trees need none of it: they send missing cells the better way. "drop" leaves
            out rows with a missing cell, before any alignment, so that others never hear of them.
        """
        check_choice("PartyTable.treat_missing", "missing", how, MISSING)
        if how != "drop":
            return replace(self, missing=how)
        kept = np.flatnonzero(self.frame[self.features].notna().to_numpy().all(axis=1))
        dropped = len(self) - len(kept)
        if not dropped:
            return self
        if not len(kept):
            raise DataError(
                f"Every row of party {self.party} has a missing cell: missing='drop' leaves none."
            )
        text = f"Party {self.party} had {counted(dropped, 'row')} dropped for missing cells."
        note = Finding(self.party, None, "dropped rows", dropped, text)
        return replace(self.take(kept), notes=(*self.notes, note))

    def to_frame(self) -> pd.DataFrame:
        """A DataFrame with the id column(s) first, as it would be written to a file."""
        parts = split_ids(self.ids, len(self.id_columns))
        ids = pd.DataFrame(dict(zip(self.id_columns, parts, strict=True)))
        return pd.concat([ids, self.frame], axis=1)

    def _check_known(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.kinds:
                raise DataError(_unknown(self.party, "column", name, self.columns))


def _check_frame(frame: pd.DataFrame, party: str, duplicates: str) -> None:
    if not isinstance(party, str) or not party.strip():
        raise ConfigError(f"The name of a party must be a text. Got {party!r} instead.")
    check_choice("PartyTable.from_frame", "duplicates", duplicates, _DUPLICATES)
    if not isinstance(frame, pd.DataFrame):
        raise DataError(
            f"The table of party {party} must be a DataFrame (pandas or polars) or an Arrow table. "
            f"Got {type(frame).__name__} instead."
        )
    odd = [name for name in frame.columns if not isinstance(name, str) or not name.strip()]
    if odd:
        raise DataError(
            f"The table of party {party} has {counted(len(odd), 'column')} whose name is empty or "
            "not a text; name them, or convert with frame.columns.astype(str)."
        )
    twice = frame.columns[frame.columns.duplicated()].unique()
    if len(twice):
        raise DataError(
            f"The table of party {party} has more than one column named {_listed(twice)}; "
            "rename or drop them."
        )


def _with_ids_as_columns(
    frame: pd.DataFrame, id_columns: tuple[str, ...], party: str
) -> pd.DataFrame:
    if not id_columns or len(set(id_columns)) < len(id_columns):
        raise ConfigError(
            f"The id of party {party} must be one column name, or several different ones. "
            f"Got {list(id_columns)} instead."
        )
    in_index = [
        name for name in id_columns if name not in frame.columns and name in frame.index.names
    ]
    if in_index:
        frame = frame.reset_index(level=in_index)
    for name in id_columns:
        if name not in frame.columns:
            raise DataError(_unknown(party, "id column", name, frame.columns))
    return frame


def _check_names(
    frame: pd.DataFrame,
    id_columns: tuple[str, ...],
    declared: Mapping[str, Kind],
    labels: set[str],
    party: str,
) -> None:
    for name in [*declared, *sorted(labels)]:
        what = "label" if name in labels else "declared column"
        if name in id_columns:
            raise DataError(
                f"Column {name!r} of party {party} is its id and cannot be a {what} as well; "
                "an id is never learned from."
            )
        if name not in frame.columns:
            raise DataError(_unknown(party, what, name, frame.columns))


def _unique(ids: Array, party: str, duplicates: str) -> tuple[Array, Array, tuple[Finding, ...]]:
    """The ids and row numbers that stay, and a note when some did not."""
    again = pd.Series(ids).duplicated().to_numpy()
    count = int(again.sum())
    if count and duplicates == "error":
        raise DataError(
            f"The table of party {party} has {counted(count, 'row')} of {len(ids):,} that repeat "
            "an id; remove them, or keep the first of each with duplicates='first'."
        )
    rows = np.flatnonzero(~again)
    if not count:
        return _frozen(ids), rows, ()
    text = (
        f"Party {party} had {counted(count, 'row')} that repeated an id; "
        "the first of each was kept."
    )
    return _frozen(ids[rows]), rows, (Finding(party, None, "duplicate ids", count, text),)


def _frozen(ids: Array) -> Array:
    ids.flags.writeable = False
    return ids


def _unknown(party: str, what: str, name: object, known: Iterable[str]) -> str:
    names = list(known)
    return f"Party {party} has no {what} {name!r}; its columns are {_listed(names) or 'none'}."


def _listed(names: Iterable[str], most: int = 12) -> str:
    shown = [repr(name) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


# ---- ids as text ----------------------------------------------------------------------------


def join_ids(frame: pd.DataFrame, columns: tuple[str, ...], party: str) -> Array:
    """One text per row from the id column(s); whole numbers become their decimal digits."""
    parts = [_read_ids(frame[name], name, party) for name in columns]
    for name, part in zip(columns, parts, strict=True):
        empty = sum(text is None or not text.strip() for text in part)
        if empty:
            raise DataError(
                f"Id column {name!r} of party {party} is empty in {counted(empty, 'row')} of "
                f"{len(frame):,}; give every row an id, or drop those rows."
            )
        split = sum(_ID_SEPARATOR in text for text in part if text) if len(parts) > 1 else 0
        if split:
            raise DataError(
                f"Id column {name!r} of party {party} has {counted(split, 'value')} with the unit "
                "separator (character 31), which joins composite ids; remove it."
            )
    joined: list[Any] = parts[0]
    if len(parts) > 1:
        joined = [_ID_SEPARATOR.join(row) for row in zip(*parts, strict=True)]
    ids = np.empty(len(joined), dtype=object)
    ids[:] = joined
    return ids


def split_ids(ids: Array, count: int) -> list[list[str]]:
    """Undo the joining: the texts of each id column."""
    if count == 1:
        return [list(ids)]
    rows = [text.split(_ID_SEPARATOR) for text in ids]
    return [[row[part] for row in rows] for part in range(count)]


def _read_ids(values: pd.Series[Any], name: str, party: str) -> list[str | None]:
    where = f"Id column {name!r} of party {party}"
    if pd.api.types.is_float_dtype(values.dtype):
        raise _decimal_error(where)
    texts: list[str | None] = []
    for value, missing in zip(values.tolist(), values.isna().tolist(), strict=True):
        if missing:
            texts.append(None)
        elif isinstance(value, str):
            texts.append(value)
        elif isinstance(value, Integral) and not isinstance(value, bool):
            texts.append(str(int(value)))
        elif isinstance(value, float):
            raise _decimal_error(where)
        else:
            raise DataError(
                f"{where} must hold text or whole numbers. Got {type(value).__name__} instead; "
                "convert it to text."
            )
    return texts


def _decimal_error(where: str) -> DataError:
    return DataError(
        f"{where} holds decimal numbers, usually because whole numbers with missing cells were "
        "read as such, and 17.0 would not match a peer's 17; read the ids as text "
        "(dtype=str in pandas.read_csv), or convert them with .astype('Int64')."
    )
