"""Columns that look like a label nobody declared: a label among the features gives itself away.

A completed or predicted column that was learned from a label tells its receiver that label. So
whoever is about to use features asks first: declare the label, or say that there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from vfsl.data.columns import Kind
from vfsl.data.table import PartyTable
from vfsl.errors import ConfigError

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
WORDS = frozenset(_WORDS.split())
# What a column says of a row, as in is_fraud, wasChurned: first word of a name.
_SAYS = ("is", "was")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

Ask = Callable[[str, str], str]


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
        What is learned now: its party has declared a label by that.
    ask : function of party and column
        What to say instead, in the words of the caller; by default in those of `simulate`.
    """
    for party in tables if used is None else used:
        table = tables[party]
        if table.labels or table.no_label or (target is not None and target[0] == party):
            continue
        others = {
            name.casefold() for other in tables if other != party for name in tables[other].columns
        }
        for column in table.features:
            if column.casefold() not in others and looks_like_label(table, column):
                raise ConfigError(
                    f"Column {column!r} of {party} looks like a label, which must never be a "
                    f"feature; {(ask or in_python)(party, column)} if it is an ordinary column."
                )


def declare_label(table: PartyTable, column: str | None) -> PartyTable:
    """The table with one more column declared a label; None: it has none, whatever one seems."""
    if column is None:
        return replace(table, no_label=True)
    table.column(column)
    return replace(table, kinds=table.kinds | {column: Kind.LABEL})


def looks_like_label(table: PartyTable, column: str) -> bool:
    """Whether a column is named as labels are and has exactly two known values."""
    return is_label_name(column) and table.column(column).nunique() == 2


def is_label_name(name: str) -> bool:
    """Whether a word of the name, split at _ - space . and capitals, is one that labels have."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in WORDS for word in words) or (len(words) > 1 and words[0] in _SAYS)


def in_python(party: str, column: str) -> str:
    return f"say labels={{{party!r}: {column!r}}}, or labels={{{party!r}: None}}"
