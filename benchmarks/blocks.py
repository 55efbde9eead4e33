"""Block completion for the experiment on generators: hide B's columns, complete, compare."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from vfsl.align import RowPlan, RowShare
from vfsl.completion import completer, facts_of, find
from vfsl.data import Kind, PartyTable, halves, make_parties
from vfsl.datasets import load
from vfsl.errors import DataError
from vfsl.federation import simulate
from vfsl.values import Array

HIDDEN = 0.4  # fraction of rows without any value of B
Settings = dict[str, Any]
# Trees that do not memorise a few thousand rows: a weak reference would flatter the others.
SMALL_TREES: Settings = {"max_iter": 60, "learning_rate": 0.06, "max_leaf_nodes": 8}


# Repayment status in credit: paid, revolving, months late. These are codes, not amounts.
_STATE = re.compile(r"PAY_\d")


def completion_cell(case: tuple[str, int, int, str, Settings]) -> dict[str, Any]:
    """Hide B's columns in 40 % of the rows, complete them, and compare with the truth."""
    name, count, seed, method, settings = case
    table, _, _ = whole_table(name, count, seed, whole=True)
    _, columns = halves(table.features, np.random.default_rng(seed))
    hidden = np.sort(np.random.default_rng(seed + 100).permutation(count)[: round(HIDDEN * count)])
    start = time.process_time()
    if method == "vfgain":
        means, values = federated(table, columns, hidden, seed, settings)
    elif method == "direct":
        means, values = direct(table, columns, hidden)
    else:
        holes = with_holes(table, columns, hidden)
        known = holes if facts_of(method).needs_torch else _only(holes, columns)
        done = completer(method, **settings).fit(known, np.random.default_rng(seed))
        done = done.complete(known, np.random.default_rng(seed + 1))
        means = {c: done.means[c].to_numpy()[hidden] for c in done.means if c in columns}
        values = {c: done.values[c].to_numpy()[hidden] for c in columns}
    spent = time.process_time() - start
    rmse, accuracy = errors(table, columns, hidden, means, values)
    return {"RMSE": rmse, "accuracy": accuracy, "seconds": spent}


def errors(
    table: PartyTable,
    columns: Sequence[str],
    hidden: Array,
    means: Mapping[str, Array],
    values: Mapping[str, Array],
) -> tuple[float | None, float | None]:
    """Mean standardised RMSE of numbers and mean accuracy of categories, on hidden known cells."""
    gaps, right = [], []
    for name in columns:
        truth = table.column(name)
        seen = truth.iloc[hidden].notna().to_numpy()
        if table.kinds[name] is Kind.NUMERIC:
            numbers = truth.to_numpy(dtype=np.float64, na_value=np.nan)
            deviation = np.nanstd(np.delete(numbers, hidden))
            gap = (np.asarray(means[name], dtype=np.float64) - numbers[hidden])[seen]
            gaps.append(float(np.sqrt((gap**2).mean()) / deviation))
        else:
            cells = truth.iloc[hidden].astype(str).to_numpy()[seen]
            right.append(float((np.asarray(values[name])[seen].astype(str) == cells).mean()))
    return (
        float(np.mean(gaps)) if gaps else None,
        float(np.mean(right)) if right else None,
    )


def with_holes(table: PartyTable, columns: Sequence[str], hidden: Array) -> PartyTable:
    """The table without these columns' cells in the hidden rows."""
    frame = table.frame.copy()
    mask = pd.Series(np.isin(np.arange(len(frame)), hidden))
    for name in columns:
        # Types that can hold missing cells; otherwise integers and truth values become floats.
        frame[name] = frame[name].convert_dtypes().mask(mask)
    return PartyTable(table.party, table.ids, frame, dict(table.kinds))


def direct(
    table: PartyTable, columns: Sequence[str], hidden: Array
) -> tuple[dict[str, Array], dict[str, Array]]:
    """One boosted model per column from A's columns: how much can be known from A."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    given = table.without(list(columns)).frame
    categories = [table.kinds[name] is not Kind.NUMERIC for name in given.columns]
    matrix = np.column_stack([coded(given[n], c) for n, c in zip(given, categories, strict=True)])
    means: dict[str, Array] = {}
    values: dict[str, Array] = {}
    shown = np.setdiff1d(np.arange(len(table)), hidden)
    for name in columns:
        column = table.column(name)
        rows = shown[column.iloc[shown].notna().to_numpy()]
        if table.kinds[name] is Kind.NUMERIC:
            target = column.iloc[rows].to_numpy(dtype=np.float64)
            model = HistGradientBoostingRegressor(
                random_state=0, categorical_features=categories, **SMALL_TREES
            )
            means[name] = model.fit(matrix[rows], target).predict(matrix[hidden])
        else:
            model = HistGradientBoostingClassifier(
                random_state=0, categorical_features=categories, **SMALL_TREES
            )
            model.fit(matrix[rows], column.iloc[rows].astype(str))
            values[name] = model.predict(matrix[hidden])
    return means, values


def coded(column: pd.Series[Any], category: bool) -> Array:
    """Numbers, or the places of categories; NaN where missing."""
    if not category:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    places = pd.factorize(column)[0].astype(np.float64)
    places[places < 0] = np.nan
    return np.asarray(places)


def federated(
    table: PartyTable, columns: Sequence[str], hidden: Array, seed: int, settings: Settings
) -> tuple[dict[str, Array], dict[str, Array]]:
    """VF-GAIN: A has its columns for all rows, B its own for the rows that are not hidden."""
    shown = np.setdiff1d(np.arange(len(table)), hidden)
    parties = {
        "A": table.without(list(columns)),
        "B": _only(table, columns).take(shown),
    }
    fed = simulate(parties, seed=seed)
    nobody = np.empty(0, dtype=np.int64)
    fed.plan = RowPlan(
        {
            "A": RowShare("A", "bench", shown, hidden),
            "B": RowShare("B", "bench", np.arange(len(shown)), nobody),
        }
    )
    done = find("vfgain")(**settings).fit(fed).complete(fed)
    means = {name: done.means[name].to_numpy() for name in done.means}
    return means, {name: done.values[name].to_numpy() for name in columns}


def _only(table: PartyTable, columns: Sequence[str]) -> PartyTable:
    return table.without([name for name in table.columns if name not in columns])


def whole_table(
    name: str, count: int, seed: int = 0, *, whole: bool = False
) -> tuple[PartyTable, PartyTable, str]:
    """Shuffled rows, and as many unseen ones; with ``whole`` all of them, without the label."""
    if name == "made up":
        made = make_parties(
            count, rng=np.random.default_rng(seed), overlap=1.0, missing=0.0, label_as="column"
        )
        one, two = (frame.set_index("id").sort_index() for frame in made.tables.values())
        frame = pd.concat([one, two.add_suffix(" of B")], axis=1).reset_index(drop=True)
        label = made.label
        kinds: dict[str, Kind | str] = {}
    else:
        # Peers cannot take missing cells; the raw tables write them as a category.
        data = load(name, raw=not whole)
        frame, label = data.frame, data.label
        kinds = {c: kind for c, kind in data.kinds.items() if kind is not Kind.LABEL}
        states = [column for column in kinds if name == "credit" and _STATE.fullmatch(column)]
        frame = frame.astype(dict.fromkeys(states, str))
        kinds |= dict.fromkeys(states, Kind.CATEGORICAL)
        if count > len(frame):
            raise DataError(f"Data set {name!r} has {len(frame):,} rows, fewer than {count:,}.")
        frame = frame.sample(count, random_state=seed).reset_index(drop=True)
    frame = frame.assign(**{label: frame[label].astype(str)})
    rows = frame.drop(columns=label) if whole else frame
    numbered = rows.assign(**{"row number": np.arange(count)})
    table = PartyTable.from_frame(numbered, party="all", id="row number", kinds=kinds, label=False)
    if whole:
        return table, table, label
    return table.take(np.arange(count // 2)), table.take(np.arange(count // 2, count)), label
