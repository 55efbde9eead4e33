"""RISA and its rivals on a user's own two tables: which of them is worth trying?

Rivals are no protocols: both tables are read in one process, and nothing is hidden from anybody.
Rows with the same id are common; some of those with a label are held out to judge by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cells import Cells
from benchmarks.figures import Panels
from benchmarks.paper.common import average
from benchmarks.risa import METHODS, measure
from benchmarks.risa_data import Case
from benchmarks.table import Outcome
from vfsl.data.checks import check_choice
from vfsl.data.files import read_table
from vfsl.errors import ConfigError, DataError
from vfsl.evidence.encoders import MLP
from vfsl.evidence.risa import need_torch
from vfsl.evidence.rows import UNKNOWN
from vfsl.values import Array

EDITION = 1
LEAST = 20  # rows to judge by


@dataclass(frozen=True)
class TablesCase:
    """Everything that the result of one cell depends on; paths, since cells run elsewhere."""

    files: tuple[tuple[str, str], tuple[str, str]]  # party and file, the label holder first
    ids: tuple[tuple[str, ...], tuple[str, ...]]
    label: str
    method: str
    seed: int
    epochs: int
    held_out: float


def run_on_tables(
    files: Mapping[str, Path],
    ids: Mapping[str, str | list[str]],
    label: tuple[str, str],
    *,
    methods: Sequence[str] = (),
    epochs: int = 20,
    held_out: float = 0.2,
    seeds: int = 3,
    workers: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Every method on two tables, judged on held-out common rows.

    Parameters
    ----------
    files, ids : mapping of party to file, and to its id columns
    label : (party, column)
    methods : sequence of str
        Names of rivals, "RISA paper" or "RISA plus"; all by default.
    epochs : int
        Over the label holder's rows: the budget of all methods.
    held_out : float
        The fraction of the labelled common rows to judge by, drawn anew for each seed.
    """
    from benchmarks import cells

    need_torch("The comparison of rivals")
    for method in methods:
        check_choice("rivals", "method", method, METHODS)
    if len(files) != 2:
        raise ConfigError(f"Rivals are for two parties, by two --party. Got {len(files)} instead.")
    order = sorted(files, key=lambda party: party != label[0])
    if order[0] != label[0]:
        raise ConfigError(f"--label names party {label[0]!r}, which has no --party.")
    named = [(party, str(files[party].resolve())) for party in order]
    keys = [_id_names(ids[party]) for party in order]
    cases = {
        f"{method}, seed {seed}": TablesCase(
            (named[0], named[1]), (keys[0], keys[1]), label[1], method, seed, epochs, held_out
        )
        for method in methods or METHODS
        for seed in range(seeds)
    }
    make_case(next(iter(cases.values())))  # mistakes come before any work
    with cells.workers(workers):
        runner = Cells("paper-tables", EDITION, say, keep=False, lasting=True)
        results = runner.all(tables_cell, cases)
    rows = []
    for method in methods or METHODS:
        mine = [result for result in results if result["method"] == method]
        facts = {"method": method, "metric": mine[0]["metric"]}
        rows.append(facts | average(mine, ("both", "A alone", "B alone", "seconds")))
    panels = [Panels("both", ("method",), (), "both ±")]
    title = "RISA and its rivals on tables of one's own"
    return Outcome("rivals", title, rows, _NOTES, panels, command="paper")


def _id_names(columns: str | list[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def tables_cell(case: TablesCase) -> dict[str, Any]:
    """Read both tables, train, judge."""
    return measure(case.method, make_case(case))


def make_case(case: TablesCase) -> Case:
    """The problem of two tables: common rows by id, some of the labelled ones held out."""
    from benchmarks.rivals.harness import Problem, View
    from vfsl.evidence.networks import Learning, as_inputs

    (first, path), (second, other) = case.files
    own = read_table(path, party=first, id=list(case.ids[0]), label=case.label)
    theirs = read_table(other, party=second, id=list(case.ids[1]))
    cells = own.column(case.label)
    codes, classes = pd.factorize(cells, sort=True)
    if len(classes) < 2:
        raise DataError(f"The label {case.label!r} of party {first!r} has fewer than two classes.")
    places = pd.Index(theirs.ids).get_indexer(pd.Index(own.ids))
    common = np.flatnonzero(places >= 0)
    labelled = common[codes[common] >= 0]
    judged = _hold_out(labelled, case, len(common))
    kept = np.setdiff1d(common, judged)
    orders = (
        np.concatenate([kept, np.flatnonzero(places < 0)]),
        np.concatenate([places[kept], np.setdiff1d(np.arange(len(theirs)), places[common])]),
    )
    views, asked = [], []
    tables = (own.without([case.label]), theirs)
    for table, order, rows in zip(tables, orders, (judged, places[judged]), strict=True):
        recipe = MLP()
        columns = recipe.columns.fit(table.take(order))
        views.append(View(as_inputs(columns.arrays(table.take(order))), recipe, columns))
        asked.append(as_inputs(columns.arrays(table.take(rows))))
    labels = np.where(codes < 0, UNKNOWN, codes)[orders[0]].astype(np.int64)
    learning = Learning(epochs=case.epochs)
    problem = Problem((views[0], views[1]), len(kept), labels, len(classes), learning)
    return Case(problem, (asked[0], asked[1]), codes[judged], case.seed, pictures=False)


def _hold_out(labelled: Array, case: TablesCase, common: int) -> Array:
    """The rows to judge by."""
    count = round(case.held_out * len(labelled))
    if count < LEAST or len(labelled) - count < LEAST:
        raise DataError(
            f"The two tables have {common} common rows, {len(labelled)} of them with a label; at "
            f"least {LEAST} are needed to learn from and {LEAST} to judge by, and held_out is "
            f"{case.held_out:g}."
        )
    order = np.random.default_rng([case.seed, 11]).permutation(labelled)
    return np.sort(order[:count])


_NOTES = (
    "All in one process, with both tables in one place: rivals are compared, not protocols. Train "
    "the one that you choose by `vfsl train`; of these methods only RISA runs between parties.",
    "Judged on labelled common rows that no method saw, drawn anew for each seed: accuracy, or AUC "
    "for two classes. A is the label holder, B the other party; alone: the other is absent.",
    "All methods have the same perceptrons and steps.",
)
