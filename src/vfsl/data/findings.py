"""What is worth knowing about a table: findings, which are reported, and labels nobody declared.

A label among the features gives itself away: a completed or predicted column that was learned from
it tells its receiver that label. So whoever is about to use features asks first: declare the label,
or say that there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from vfsl.data.checks import counted
from vfsl.data.columns import Kind
from vfsl.errors import ConfigError

if TYPE_CHECKING:
    from vfsl.data.table import PartyTable

# Below these sizes nearly every column looks unique by chance.
_FEWEST_ROWS_TEXT = 20
_FEWEST_ROWS_WHOLE = 100
_MANY_CATEGORIES = 100
# Whole words of a name that say what is to be predicted, in the forms that tables use.
_WORDS = (
    "label labels labelled target targets y outcome outcomes class classification truth "
    "response responded responder respond reply replied "
    "default defaulted defaulter delinquent delinquency arrears bankrupt bankruptcy insolvent "
    "churn churned churner attrition cancelled canceled lapsed "
    "fraud fraudulent fraudster scam spam anomaly anomalous suspicious "
    "converted conversion convert clicked click purchased bought subscribed "
    "survived survival died dead death deceased mortality diagnosis diagnosed disease malignant "
    "malignancy relapse relapsed recurrence readmitted readmission failure failed"
)
_LABEL_WORDS = frozenset(_WORDS.split())
# What a column says of a row, as in is_fraud, wasChurned: first word of a name.
_SAYS = ("is", "was")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

Ask = Callable[[str, str], str]


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
        A feature is reported if a larger fraction of its cells than this is missing.

    Returns
    -------
    list of Finding
        Codes: ``duplicate ids`` (dropped on reading), ``padded ids``, ``constant``,
        ``mostly missing``, ``id-like``, ``many categories``, ``unknown labels``.
    """
    found = list(table.notes)
    padded = sum(text != text.strip() for text in table.ids)
    if padded:
        text = (
            f"Party {table.party} has {counted(padded, 'id')} with spaces at the start or end; "
            "such an id matches no peer that writes it without them."
        )
        found.append(Finding(table.party, None, "padded ids", padded, text))
    for name, kind in table.kinds.items():
        if kind is Kind.LABEL:
            found += _inspect_label(table, name)
        else:
            found += _inspect_feature(table, name, mostly_missing)
    return found


def _inspect_feature(table: PartyTable, name: str, mostly_missing: float) -> list[Finding]:
    values = table.column(name)
    where = f"Column {name!r} of party {table.party}"
    observed = values.dropna()
    distinct = int(observed.nunique())
    missing = len(values) - len(observed)
    found: list[tuple[str, int, str]] = []
    if distinct <= 1:
        found.append(("constant", len(observed), "has the same value in every row"))
    if missing > mostly_missing * len(values):
        says = f"lacks {missing / len(values):.0%} of its cells"
        found.append(("mostly missing", missing, says))
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


def _inspect_label(table: PartyTable, name: str) -> list[Finding]:
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


# ---- labels that nobody declared ------------------------------------------------------------


def check_labels(
    tables: Mapping[str, PartyTable],
    used: Iterable[str] | None = None,
    *,
    target: tuple[str, str] | None = None,
    ask: Ask | None = None,
) -> None:
    """Refuse to use a column as a feature that looks like a label which nobody declared.

    Parameters
    ----------
    tables : mapping of party to PartyTable
    used : iterable of str, optional
        The parties whose columns are features; all by default.
    target : (party, column), optional
        What is learned now; by that its party has declared a label.
    ask : function of party and column
        How the caller's users declare a label, in one clause; by default as in `simulate`.
    """
    for party in tables if used is None else used:
        table = tables[party]
        if table.labels or table.no_label or (target is not None and target[0] == party):
            continue
        others = {
            name.casefold() for other in tables if other != party for name in tables[other].columns
        }
        for column in table.features:
            if column.casefold() in others or not is_label_name(column):
                continue
            if count_spelled(table.column(column)) == 2:
                raise ConfigError(
                    f"Column {column!r} of {party} looks like a label, which must never be a "
                    f"feature; {(ask or ask_in_python)(party, column)} if it is an ordinary column."
                )


def count_spelled(values: pd.Series[Any]) -> int:
    """How many values a column has, however they are spelled: yes, YES and no are two."""
    distinct = values.dropna().unique()
    if len(distinct) > 50:
        return len(distinct)
    return len({str(one).strip().casefold() for one in distinct})


def declare_label(table: PartyTable, column: str | None) -> PartyTable:
    """The table with one more column declared a label; None says that no column is one."""
    if column is None:
        return replace(table, no_label=True)
    table.column(column)
    return replace(table, kinds=table.kinds | {column: Kind.LABEL})


def is_label_name(name: str) -> bool:
    """Whether a word of the name, split at _ - space . and capitals, is one that labels have."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in _LABEL_WORDS for word in words) or (len(words) > 1 and words[0] in _SAYS)


def ask_in_python(party: str, column: str) -> str:
    return f"say labels={{{party!r}: {column!r}}}, or labels={{{party!r}: None}}"
