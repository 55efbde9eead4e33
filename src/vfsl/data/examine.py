"""A first look at a file before anything is done with it: what would go wrong, and what mends it.

Cells are looked at as they are written, so that files can be examined that `read_table` refuses.
Remarks name columns and count cells; they quote no cell and no id.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import rankdata

from vfsl.data.checks import counted
from vfsl.data.columns import (
    DECIMAL_COMMA,
    NUMBER,
    THOUSANDS,
    WHOLE,
    Kind,
    count_matches,
    count_observed,
)
from vfsl.data.findings import Finding, count_spelled, inspect, is_label_name
from vfsl.data.shaping import looks_like_days
from vfsl.data.table import PartyTable

# Marks that people write where a cell is missing; one of them alone beside numbers is a mark.
_MARKS = ("NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", "?", "-", ".", "unknown")
# Words in the name of a column whose numbers are names of things, not amounts.
_CODES = frozenset(
    [
        "sex",
        "gender",
        "education",
        "marriage",
        "marital",
        "postcode",
        "postal",
        "zip",
        "zipcode",
        "plz",
        "region",
        "province",
        "state",
        "country",
        "city",
        "district",
        "branch",
        "code",
        "category",
        "type",
        "class",
        "occupation",
        "job",
        "profession",
        "industry",
        "sector",
        "religion",
        "ethnicity",
        "race",
        "nationality",
        "language",
        "channel",
        "product",
        "status",
    ]
)
_MOST_CODES = 5_000
_NEARLY_EQUAL = 0.98  # AUC of one column alone from which on it says the label itself
_FEWEST_FOR_LEAKS = 40
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True)
class Remark:
    """One thing to know about a file.

    Attributes
    ----------
    party : str
    columns : tuple of str
        Which ones it is about; none: the whole file.
    what : str
        A short fixed code, such as ``"dates"``.
    stops : bool
        Whether the file cannot be used before it is mended.
    text : str
    fix : mapping
        Fields of the party's section of a job that mend it.
    """

    party: str
    columns: tuple[str, ...]
    what: str
    stops: bool
    text: str
    fix: Mapping[str, Any] = field(default_factory=dict)


def examine_cells(
    party: str, raw: Mapping[str, pa.Array], skip: Collection[str] = ()
) -> list[Remark]:
    """What the written cells of a table show; ``skip`` names id columns and dropped ones."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for name, cells in raw.items():
        if name not in skip:
            kind, value = _look_at(name, cells)
            found.setdefault(kind, []).append((name, value))
    remarks: list[Remark] = []

    def add(kind: str, stops: bool, says: str, fix: Mapping[str, Any]) -> None:
        names = tuple(name for name, _ in found[kind])
        remarks.append(Remark(party, names, kind, stops, f"{_listed(names)} {says}.", fix))

    if "empty" in found:
        names = [name for name, _ in found["empty"]]
        add("empty", True, f"{_has(names)} no value in any row", {"drop": names})
    if "dates" in found:
        add("dates", True, f"{_hold(found['dates'])} dates", {"dates": "days"})
    if "decimal comma" in found:
        says = f"{_hold(found['decimal comma'])} numbers with a decimal comma"
        add("decimal comma", True, says, {"decimal": ","})
    for mark in THOUSANDS:
        if f"thousands {mark}" in found:
            fix: dict[str, Any] = {"thousands": mark}
            if mark == ".":
                fix["decimal"] = ","
            says = f"{_hold(found[f'thousands {mark}'])} numbers with {mark!r} between thousands"
            add(f"thousands {mark}", True, says, fix)
    if "marks" in found:
        marks = sorted({mark for _, marks in found["marks"] for mark in marks})
        says = f"{_hold(found['marks'])} numbers and marks such as {', '.join(map(repr, marks))}"
        add("marks", True, says, {"missing_values": marks})
    if "mixed" in found:
        names = [name for name, _ in found["mixed"]]
        says = f"{'mixes' if len(names) == 1 else 'mix'} numbers with text"
        add("mixed", True, says, {"kinds": dict.fromkeys(names, "categorical")})
    if "codes" in found:
        names = [name for name, _ in found["codes"]]
        says = f"{'looks' if len(names) == 1 else 'look'} like codes written as numbers"
        add("codes", False, says, {"kinds": dict.fromkeys(names, "categorical")})
    return remarks


def _look_at(name: str, cells: pa.Array) -> tuple[str, Any]:
    """What a column of text is, as far as it needs a word."""
    cells = pc.utf8_trim_whitespace(cells)
    cells = pc.if_else(pc.equal(cells, ""), pa.scalar(None, cells.type), cells)
    filled = count_observed(cells)
    if not filled:
        return "empty", None
    if looks_like_days(cells):
        return "dates", None
    numeric = count_matches(cells, NUMBER)
    if numeric == filled:
        coded = _is_code(name) and count_matches(cells, WHOLE) == filled
        if coded and 2 < pc.count_distinct(cells).as_py() <= _MOST_CODES:
            return "codes", None
        return "fine", None
    for mark, pattern in THOUSANDS.items():
        grouped = count_matches(cells, pattern)
        rest = DECIMAL_COMMA if mark == "." else NUMBER
        # A comma alone may be a decimal one: groups of three in all cells say otherwise.
        plain = count_matches(cells, rest) if mark != "," else numeric
        whole = count_matches(cells, WHOLE) if mark == "." else 0
        if grouped and grouped + max(plain, 0) + whole >= filled:
            return f"thousands {mark}", None
    commas = count_matches(cells, DECIMAL_COMMA)
    if commas and commas + numeric == filled:
        return "decimal comma", None
    if not numeric:
        return "fine", None
    found = [mark for mark in _MARKS if pc.any(pc.equal(cells, mark)).as_py()]
    marked = int(pc.sum(pc.is_in(cells, pa.array(found, type=cells.type))).as_py() or 0)
    if found and numeric + marked == filled:
        return "marks", found
    return "mixed", None


def _is_code(name: str) -> bool:
    return any(word.lower() in _CODES for word in _WORD.findall(name))


def examine_table(table: PartyTable) -> list[Remark]:
    """What a table that could be read shows: constant columns, labels, leaks, spellings."""
    remarks = [
        Remark(
            table.party,
            (one.column,) if one.column is not None else (),
            one.what,
            False,
            one.text,
            {"drop": [one.column]} if _is_useless(table, one) else {},
        )
        for one in inspect(table)
        if not (one.column in table.labels and one.what == "constant")
    ]
    labels = [(name, True) for name in table.labels]
    if not labels and not table.no_label:
        labels = [
            (name, False)
            for name in table.features
            if is_label_name(name) and count_spelled(table.column(name)) in (2, 3, 4)
        ]
    for name, declared in labels:
        remarks += _examine_label(table, name, declared)
    return remarks


def _is_useless(table: PartyTable, one: Finding) -> bool:
    """Whether nobody would learn from it; whole numbers that never repeat may be amounts."""
    if one.column is None:
        return False
    categorical = table.kinds[one.column] is Kind.CATEGORICAL
    return one.what == "constant" or (one.what == "id-like" and categorical)


def _examine_label(table: PartyTable, name: str, declared: bool) -> list[Remark]:
    remarks = []
    values = table.column(name).dropna()
    if not declared:
        text = f"{name!r} looks like a label, which must never be a feature."
        remarks.append(Remark(table.party, (name,), "label", False, text, {"label": name}))
    texts = [str(one) for one in values.unique()] if values.nunique() <= 50 else []
    if len({text.strip().casefold() for text in texts}) < len(texts):
        text = f"{name!r} spells the same value in several ways, such as yes and YES."
        remarks.append(Remark(table.party, (name,), "spellings", False, text, {"fold": [name]}))
    if values.nunique() == 1:
        text = f"Label {name!r} has the same value in every row; no model can learn from it."
        remarks.append(Remark(table.party, (name,), "one class", declared, text))
    for column, value in find_leaks(table, name):
        text = (
            f"{column!r} alone nearly says the label {name!r} (AUC {value:.3f} on all rows): if it "
            "is known only afterwards, a model that uses it is worth nothing."
        )
        remarks.append(Remark(table.party, (column,), "leak", False, text, {"drop": [column]}))
    return remarks


def find_leaks(table: PartyTable, label: str) -> list[tuple[str, float]]:
    """Columns of which one alone ranks the rows of a label of two values nearly without error.

    Categories are ranked by how frequent the label is among the *other* rows of each, so that a
    column with a category per row says nothing.
    """
    target = table.column(label)
    known = target.notna().to_numpy()
    folded = target[known].astype(str).str.strip().str.casefold()
    levels = sorted(folded.unique())
    if len(levels) != 2 or known.sum() < _FEWEST_FOR_LEAKS:
        return []
    positive = (folded == levels[1]).to_numpy()
    found = []
    for name in table.features:
        if name == label:
            continue
        values = table.column(name)[known]
        if table.kinds[name] is Kind.NUMERIC:
            scores = values.to_numpy(dtype=np.float64, na_value=np.nan)
            scores = np.where(np.isnan(scores), np.nanmedian(scores), scores)
        else:
            scores = _score_levels(values, positive)
        value = _auc(positive, scores)
        value = max(value, 1 - value) if table.kinds[name] is Kind.NUMERIC else value
        if value >= _NEARLY_EQUAL:
            found.append((name, float(value)))
    return found


def _score_levels(values: pd.Series[Any], positive: Any) -> Any:
    """For each row the share of positives among the other rows of its category."""
    codes = pd.factorize(values)[0] + 1  # missing cells are a category, too
    rows = np.bincount(codes)
    hits = np.bincount(codes, weights=positive)
    others = rows[codes] - 1
    prior = positive.mean()
    return np.where(others > 0, (hits[codes] - positive) / np.maximum(others, 1), prior)


def _auc(positive: Any, scores: Any) -> float:
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return 0.5
    ranks = rankdata(scores)
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * others))


# ---- ids and files ------------------------------------------------------------------------------


def describe_ids(columns: Sequence[pa.Array]) -> str:
    """How ids are written, in a few words: '6 digits', 'letters and digits, 4 to 9 characters'."""
    return ", ".join(_describe_part(cells) for cells in columns)


def _describe_part(cells: pa.Array) -> str:
    filled = count_observed(cells)
    if not filled:
        return "empty"
    lengths = pc.utf8_length(pc.utf8_trim_whitespace(cells))
    low, high = (int(one) for one in pc.min_max(lengths).as_py().values())
    size = f"{low}" if low == high else f"{low} to {high}"
    if count_matches(cells, r"^\s*[0-9]+\s*$") == filled:
        words = f"{size} digits"
        zeros = count_matches(cells, r"^\s*0[0-9]+\s*$")
        words += f", {counted(zeros, 'with leading zeros', 'with leading zeros')}" if zeros else ""
    elif looks_like_days(pc.utf8_trim_whitespace(cells)):
        words = "dates"
    elif count_matches(cells, r"^\s*[+0(][-0-9 ()/.]{6,}$") == filled:
        words = "telephone numbers"
    else:
        words = f"text of {size} characters"
        upper, lower = (count_matches(cells, pattern) for pattern in ("[A-Z]", "[a-z]"))
        words += ", capital and small letters" if upper and lower else ""
    padded = count_matches(cells, r"^\s|\s$")
    return words + (f", {padded:,} with spaces around them" if padded else "")


def common_prefix(cells: pa.Array) -> str:
    """A beginning of letters and marks that nearly all ids have, such as ``CUST-``; else empty."""
    found = pc.extract_regex(cells, r"^\s*(?P<start>[A-Za-z]+[-_ :.]?)[0-9]")
    starts = pc.struct_field(found, "start")
    if not len(starts) or starts.null_count == len(starts):
        return ""
    counts = pc.value_counts(starts.drop_null())
    best = max(counts.to_pylist(), key=lambda one: one["counts"])
    enough = best["counts"] >= 0.95 * count_observed(cells)
    return str(best["values"]) if enough else ""


def guess_encoding(path: Path) -> str:
    """The encoding of a CSV file: UTF-8 where it can be, else the likeliest of a few others."""
    data = path.read_bytes()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    for encoding in ("utf-8", "gb18030", "cp1252"):
        try:
            data.decode(encoding)
        except UnicodeDecodeError:
            continue
        # Nearly any two bytes are a character of gb18030; in Chinese text they come in long runs.
        runs = re.findall(rb"[\x80-\xff]+", data[:100_000])
        if encoding != "gb18030" or sum(map(len, runs)) >= 3 * len(runs):
            return encoding
    return "latin-1"


def _listed(names: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _has(names: Sequence[Any]) -> str:
    return "has" if len(names) == 1 else "have"


def _hold(names: Sequence[Any]) -> str:
    return "holds" if len(names) == 1 else "hold"
