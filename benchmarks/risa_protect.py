"""RISA's levels of protection: what both sides can work out, and what the model is worth.

Each attacker knows the truth of half of the common rows and guesses it for the other half, by
boosted trees or a forest on what it saw and its own columns; the same on its own columns alone is
the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.cells import Cells
from benchmarks.registry import Say
from benchmarks.risa_data import Task, party_tables, require, split_rows
from benchmarks.table import Outcome
from vfsl.align import RowPlan, RowShare
from vfsl.channel import wire
from vfsl.data import Kind, PartyTable
from vfsl.datasets import load
from vfsl.errors import DataError
from vfsl.evidence import RISA
from vfsl.evidence.risa import need_torch
from vfsl.federation import Federation
from vfsl.values import Array, Floats

EDITION = 2
Level = Literal["none", "labels", "both"]
LEVELS: tuple[Level, ...] = ("none", "labels", "both")
OVERLAP = 0.1
TASKS = (Task("census", 10_000, 5_000, epochs=8), Task("criteo", 6_400, 1_600, epochs=6))
SEEDS = (5, 6, 7)  # smaller ones were used while the method was developed
QUICK = (Task("census", 1_500, 500, epochs=3),)
_NOTES = (
    f"{OVERLAP:.0%} of the rows are common. Quality: AUC of test rows, in points of 100.",
    "Labels: AUC of the feature holder's guesses, from all that it was sent about single rows.",
    "Columns: R² of the label holder's guesses of the other's columns (of a category: whether it "
    "is the commonest one), less that from its own columns; the mean and the largest of all.",
)


@dataclass(frozen=True)
class ProtectCase:
    """One level on one trial."""

    task: Task
    seed: int
    protect: Level


def run(quick: bool, say: Say) -> Outcome:
    """All levels on census and Criteo; a little of census, once, if quick."""
    need_torch("The risa-protect experiment")
    notes, cases = list(_NOTES), {}
    for task in QUICK if quick else TASKS:
        try:
            require(task)
        except DataError as error:
            notes.append(f"{task.data} was left out: {error}")
            continue
        for seed in SEEDS[:1] if quick else SEEDS:
            for protect in LEVELS:
                title = f"{task.data}, seed {seed}: {protect}"
                cases[title] = ProtectCase(task, seed, protect)
    cells = Cells("risa-protect", EDITION, say, keep=not quick, lasting=True)
    lines = cells.all(protect_cell, cases)
    return Outcome("risa-protect", "RISA's levels of protection", summarise(lines), notes)


def protect_cell(case: ProtectCase) -> dict[str, Any]:
    """Train at one level, judge it on test rows, and attack it from both sides."""
    fed, truth, test = make_federation(case.task, case.seed)
    common = len(fed.sites["A"].rows().overlap)
    risa = RISA(protect=case.protect, epochs=case.task.epochs, batch_size=case.task.batch_size)
    risa.fit(fed, ("A", "label"))
    views = {"A": label_holders_view(fed, risa, common), "B": feature_holders_view(fed, common)}
    sent = sum(entry.bytes for entry in fed.transcript.entries) / 1e6
    fed.plan = RowPlan({p: RowShare(p, "test", test, test[:0]) for p in "AB"})
    chances = risa.predict_proba(fed)[:, 1]
    own = {party: read_columns(fed.tables[party])[:common] for party in "AB"}
    labels = guess_labels(views["B"], own["B"], truth[:common], case.seed)
    targets = columns_to_guess(fed.tables["B"])[:common]
    gains = guess_columns(views["A"], own["A"], targets, case.seed)
    return {
        "data": case.task.data,
        "protect": case.protect,
        "quality": 100 * _auc(truth[test], chances),
        "labels": labels[0],
        "of these, own columns": labels[1],
        "columns": float(np.mean(gains)),
        "worst column": float(np.max(gains)),
        "MB": sent,
    }


def make_federation(task: Task, seed: int) -> tuple[Federation, Array, Array]:
    """Two parties with common rows, own rows and test rows; the label codes and the test rows."""
    content = load(task.data)
    train, judged = split_rows(content, task, seed, np.random.default_rng([seed, 2024]))
    rows = np.concatenate([train, judged])
    tables, _ = party_tables(content, rows, task)
    labels = content.frame[content.label].iloc[rows].astype(str).to_numpy()
    first = tables[0].with_column("label", labels, Kind.LABEL)
    fed = Federation({"A": first, "B": tables[1]}, seed=seed, keep_views=True)
    every = np.arange(len(rows), dtype=np.int64)
    common = round(OVERLAP * len(train))
    fed.plan = RowPlan(
        {p: RowShare(p, "bench", every[:common], every[common : len(train)]) for p in "AB"}
    )
    return fed, np.unique(labels, return_inverse=True)[1], every[len(train) :]


# ---- what attackers see --------------------------------------------------------------------------


def feature_holders_view(fed: Federation, common: int) -> Floats:
    """What B was sent about each common row: gradients added up as votes, and folds."""
    votes, folds = np.zeros(common), np.zeros(common)
    batches: list[Array] = []
    for sight in fed.transcript.sights:
        if sight.receiver != "B":
            continue
        name, value = wire.decode(sight.body)
        if name.endswith("/rows"):
            batches = np.split(value["rows"], value["ends"][:-1])
        elif name.endswith("/gradient of evidence"):
            numbers = batches.pop(0)
            given = np.asarray(value, dtype=np.float64)[: len(numbers)]
            size = np.abs(given).max(axis=1)
            vote = (given[:, 0] - given[:, 1]) / np.where(size > 0, size, 1.0)
            here = numbers < common
            np.add.at(votes, numbers[here], vote[here])
        elif name.endswith("/folds"):
            folds = np.asarray(value, dtype=np.float64)
    return np.column_stack([votes, folds])


def label_holders_view(fed: Federation, risa: RISA, common: int) -> Floats:
    """What A knows of B's common rows: what heads said, or the mean logarithm of evidence."""
    heard = risa.shares_["A"].scores
    if heard is not None:
        return np.asarray(heard, dtype=np.float64)
    waiting: list[Array] = []
    sums, counts = np.zeros((common, 2)), np.zeros(common)
    for sight in fed.transcript.sights:
        name, value = wire.decode(sight.body)
        if sight.receiver == "B" and name.endswith("/rows"):
            waiting = list(np.split(value["rows"], value["ends"][:-1]))
        elif sight.receiver == "A" and name.endswith("/evidence"):
            numbers = waiting.pop(0)
            here = numbers < common
            np.add.at(sums, numbers[here], np.log1p(value[: len(numbers)])[here])
            np.add.at(counts, numbers[here], 1)
    return np.asarray(sums / np.maximum(counts, 1)[:, None])


# ---- attacks -------------------------------------------------------------------------------------


def read_columns(table: PartyTable) -> Floats:
    """A party's features as numbers: categories by their codes."""
    frame = table.frame[table.features]
    parts = [
        frame[name].to_numpy(float, na_value=np.nan)
        if table.kinds[name] == Kind.NUMERIC
        else np.asarray(frame[name].astype("category").cat.codes, dtype=float)
        for name in table.features
    ]
    return np.asarray(np.nan_to_num(np.column_stack(parts), nan=-1.0), dtype=np.float64)


def columns_to_guess(table: PartyTable) -> Floats:
    """A number for each column: itself, or whether a category is the commonest one."""
    made = read_columns(table)
    for place, name in enumerate(table.features):
        if table.kinds[name] != Kind.NUMERIC:
            values, counts = np.unique(made[:, place], return_counts=True)
            made[:, place] = made[:, place] == values[counts.argmax()]
    return made


def guess_labels(view: Floats, own: Floats, truth: Array, seed: int) -> tuple[float, float]:
    """AUC with what was seen, and without it."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    known = np.arange(len(truth)) < len(truth) // 2
    found = []
    for cells in (np.hstack([view, own]), own):
        model = HistGradientBoostingClassifier(random_state=seed).fit(cells[known], truth[known])
        found.append(_auc(truth[~known], model.predict_proba(cells[~known])[:, 1]))
    return found[0], found[1]


def guess_columns(view: Floats, own: Floats, targets: Floats, seed: int) -> Floats:
    """R² of each column with what was seen, less that without it (or 0 where that is negative)."""
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.metrics import r2_score

    known = np.arange(len(targets)) < len(targets) // 2
    targets = targets[:, (targets[known].std(axis=0) > 0) & (targets[~known].std(axis=0) > 0)]
    found = []
    for cells in (np.hstack([view, own]), own):
        model = ExtraTreesRegressor(100, min_samples_leaf=5, random_state=seed)
        scale = targets[known].std(axis=0)
        guesses = model.fit(cells[known], targets[known] / scale).predict(cells[~known])
        each = r2_score(targets[~known] / scale, guesses, multioutput="raw_values")
        found.append(np.maximum(each, 0.0))
    return np.asarray(found[0] - found[1])


def _auc(truth: Array, scores: Array) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, scores))


def summarise(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per data set and level: mean and deviation over seeds."""
    rows = []
    for key in dict.fromkeys((line["data"], line["protect"]) for line in lines):
        mine = [line for line in lines if (line["data"], line["protect"]) == key]
        row: dict[str, Any] = {"data": key[0], "protect": key[1], "seeds": len(mine)}
        for name in list(mine[0])[2:]:
            values = [line[name] for line in mine]
            row[name] = float(np.mean(values))
            if name in ("quality", "labels", "worst column"):
                row[f"{name} ±"] = float(np.std(values))
        rows.append(row)
    return rows
