"""What is worth knowing about a table without being wrong: findings, reported and never hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from vfsl.data.checks import counted

if TYPE_CHECKING:
    from vfsl.data.table import PartyTable

# Below these sizes nearly every column looks unique by chance.
_FEWEST_ROWS_TEXT = 20
_FEWEST_ROWS_WHOLE = 100
_MANY_CATEGORIES = 100


@dataclass(frozen=True)
class Finding:
    """One observation about a party's table; ``str()`` gives its sentence.

    Attributes
    ----------
    party, column
        Where; ``column`` is None when it concerns whole rows or the ids.
    what
        A short fixed code, such as ``"constant"`` or ``"unseen categories"``.
    count
        How many cells, rows or categories it concerns.
    text
        The sentence. It never quotes an id or a cell.
    """

    party: str
    column: str | None
    what: str
    count: int
    text: str

    def __str__(self) -> str:
        return self.text


def inspect(table: PartyTable, *, mostly_missing: float = 0.5) -> list[Finding]:
    """Report what may surprise in a table: nothing here is an error.

    Parameters
    ----------
    table : PartyTable
    mostly_missing : float
        A feature with a larger share of missing cells than this is reported.

    Returns
    -------
    list of Finding
        Codes: ``duplicate ids`` (dropped on reading), ``padded ids``, ``constant``,
        ``mostly missing``, ``id-like``, ``many categories``, ``unknown labels``.
    """
    found = [*table.notes, *_about_ids(table)]
    for name in table.columns:
        if name in table.features:
            found += _about_feature(table, name, mostly_missing)
        else:
            found += _about_label(table, name)
    return found


def _about_ids(table: PartyTable) -> list[Finding]:
    padded = sum(text != text.strip() for text in table.ids)
    if not padded:
        return []
    text = (
        f"Party {table.party} has {counted(padded, 'id')} with spaces at an end; "
        "such an id matches no peer that writes it without them."
    )
    return [Finding(table.party, None, "padded ids", padded, text)]


def _about_feature(table: PartyTable, name: str, mostly_missing: float) -> list[Finding]:
    values = table.column(name)
    where = f"Column {name!r} of party {table.party}"
    observed = values.dropna()
    distinct = int(observed.nunique())
    missing = len(values) - len(observed)
    found: list[tuple[str, int, str]] = []
    if distinct <= 1:
        found.append(("constant", len(observed), "has the same value in every row"))
    if missing > mostly_missing * len(values):
        share = missing / len(values)
        found.append(("mostly missing", missing, f"lacks {share:.0%} of its cells"))
    if _is_id_like(observed, distinct):
        found.append(("id-like", distinct, "is nearly unique to each row, as an id would be"))
    elif table.kinds[name] == "categorical" and distinct > _MANY_CATEGORIES:
        found.append(("many categories", distinct, f"has {distinct:,} categories"))
    return [
        Finding(table.party, name, what, count, f"{where} {says}.") for what, count, says in found
    ]


def _is_id_like(observed: pd.Series[Any], distinct: int) -> bool:
    kind = observed.dtype
    if pd.api.types.is_float_dtype(kind):
        return False
    if pd.api.types.is_numeric_dtype(kind):
        return len(observed) >= _FEWEST_ROWS_WHOLE and distinct == len(observed)
    return len(observed) >= _FEWEST_ROWS_TEXT and distinct > 0.9 * len(observed)


def _about_label(table: PartyTable, name: str) -> list[Finding]:
    values = table.column(name)
    where = f"Label {name!r} of party {table.party}"
    unknown = int(values.isna().sum())
    found = []
    if unknown:
        text = f"{where} is unknown in {unknown:,} of {counted(len(values), 'row')}."
        found.append(Finding(table.party, name, "unknown labels", unknown, text))
    if values.nunique() == 1:
        text = f"{where} has the same value in every row that has one."
        found.append(Finding(table.party, name, "constant", len(values) - unknown, text))
    return found
