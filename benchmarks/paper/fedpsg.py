"""FedPSG-PUM end to end: columns above τ by VFPU-M, the others by a generator, imputer or ensemble.

The summary has one row per method below τ; in sweeps one setting is changed at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.blocks import SMALL_TREES
from benchmarks.cells import Cells
from benchmarks.complete_cells import Case, prepare, replace_table
from benchmarks.figures import Panels
from benchmarks.paper.common import Row, average, find_data
from benchmarks.paper.fedpsg_measures import judge_columns, train_on_completed
from benchmarks.paper.sizes import FedpsgSizes, SweepSizes
from benchmarks.table import Outcome
from vfsl.completion import Ensemble
from vfsl.completion.fedpsg import FedPSG
from vfsl.data import PartyTable
from vfsl.errors import VfslError
from vfsl.params import params_of

# Raise this when a change of code changes results, so that older kept cells are not used.
EDITION = 1
METRICS = (
    "columns above τ",
    "MSE above τ",
    "MSE below τ",
    "cross-entropy above τ",
    "cross-entropy below τ",
    "accuracy above τ",
    "accuracy below τ",
    "downstream AUC",
    "AUC, common rows only",
    "AUC, true columns",
    "core-s",
)
_ALONE = ("mean", "hot-deck")  # no network, so no epochs


@dataclass(frozen=True)
class FedpsgCase:
    """Everything that the result of one cell depends on."""

    data: str
    seed: int
    train: int
    test: int
    overlap: float
    missing: float
    low: tuple[str, ...]  # one method, or the members of an ensemble
    how: str  # of an ensemble
    base: str
    tau: float
    aggregate: str
    alpha: float
    k: float
    rounds: int
    epochs: int


def fedpsg_cell(case: FedpsgCase) -> dict[str, Any]:
    """Complete as the paper does, judge every column on hidden truth, and train on the result."""
    hidden = prepare(Case(case.data, case.overlap, case.seed, case.train, case.test))
    if case.missing:
        fed = replace_table(hidden.train, "B", punch(hidden.train.tables["B"], case))
        hidden = replace(hidden, train=fed)
    model = FedPSG(
        preset="paper",
        low=make_low(case),
        base=case.base,
        tau=case.tau,
        aggregate=case.aggregate,  # type: ignore[arg-type]
        alpha=case.alpha,
        k=case.k,
        rounds=case.rounds,
    )
    start = time.process_time()
    try:
        done = model.fit_complete(hidden.train)
    except VfslError as error:
        return {"refused": str(error)}
    spent = time.process_time() - start
    columns = judge_columns(done, hidden.truth)
    return {
        "columns": columns,
        "columns above τ": sum(column["route"] == "high" for column in columns),
        **summarise_columns(columns),
        **train_on_completed(done, hidden, SMALL_TREES),
        "core-s": spent,
    }


def summarise_columns(columns: list[Row]) -> Row:
    """Means over columns, apart for those above τ and the others."""
    found: Row = {}
    for measure in ("MSE", "cross-entropy", "accuracy"):
        for route, words in (("high", "above τ"), ("low", "below τ")):
            values = [
                column[measure]
                for column in columns
                if column["route"] == route and column.get(measure) is not None
            ]
            found[f"{measure} {words}"] = float(np.mean(values)) if values else None
    return found


def make_low(case: FedpsgCase) -> Any:
    """The method below τ, or an ensemble, with as many epochs as were asked for."""
    members = [_settings(name, case.epochs) for name in case.low]
    return {"ensemble": members, "how": case.how} if case.how else members[0]


def _settings(name: str, epochs: int) -> Any:
    if name in _ALONE or not epochs:
        return name
    return {"method": name, "epochs": epochs}


def punch(table: PartyTable, case: FedpsgCase) -> PartyTable:
    """The table with that fraction of its cells missing, at random."""
    rng, frame = np.random.default_rng([case.seed, 55]), table.frame.copy()
    for name in table.features:
        mask = rng.random(len(frame)) < case.missing
        frame[name] = frame[name].convert_dtypes().mask(mask)
    return PartyTable(table.party, table.ids, frame, dict(table.kinds))


# ---- what is run ---------------------------------------------------------------------------------


def run(name: str, sizes: FedpsgSizes, say: Callable[[str], None], keep: bool) -> Outcome:
    """Every method and ensemble, or one setting at a time."""
    notes: list[str] = []
    here = find_data(sizes.data, notes)
    settings = list(sweeps(sizes) if isinstance(sizes, SweepSizes) else methods(sizes))
    cases = {
        f"{data}, {what}, {value}, seed {seed}": case_of(sizes, data, seed, **change)
        for data in here
        for what, value, change in settings
        for seed in sizes.seeds
    }
    results = Cells("paper-fedpsg", EDITION, say, keep=keep, lasting=True).all(fedpsg_cell, cases)
    found = dict(zip(cases, results, strict=True))
    rows, columns = [], []
    for data in here:
        for what, value, _ in settings:
            mine = [found[f"{data}, {what}, {value}, seed {seed}"] for seed in sizes.seeds]
            refused = sorted({one["refused"] for one in mine if "refused" in one})
            notes += [f"{data}, {what} {value} was refused: {text}" for text in refused]
            rows.append({"what": what, "data": data, "value": value, **average(mine, METRICS)})
            if not isinstance(sizes, SweepSizes):
                columns += column_rows(data, value, mine)
    rows.sort(key=lambda row: list(dict.fromkeys(w for w, _, _ in settings)).index(row["what"]))
    panels = [
        Panels("MSE below τ", ("value",), ("what", "data"), "MSE below τ ±"),
        Panels("downstream AUC", ("value",), ("what", "data"), "downstream AUC ±"),
    ]
    title = "FedPSG-PUM " + ("by its settings" if name == "fedpsg-sweeps" else "end to end")
    notes += _notes(sizes)
    return Outcome(name, title, [*rows, *columns], notes, panels, command="paper")


Setting = tuple[str, str, dict[str, Any]]


def methods(sizes: FedpsgSizes) -> Iterator[Setting]:
    """Each method below τ alone, and the members together in each way."""
    for low in sizes.low:
        yield "below τ", low, {"low": (low,)}
    hows = sizes.ensembles
    if hows == ("all",):
        hows = params_of(Ensemble)["how"].choices
    for how in hows:
        yield "below τ", f"{how} of {', '.join(sizes.members)}", {"low": sizes.members, "how": how}


def sweeps(sizes: SweepSizes) -> Iterator[Setting]:
    """One setting at a time."""
    settings = {
        "tau": sizes.taus,
        "alpha": sizes.alphas,
        "k": sizes.ks,
        "rounds": sizes.many_rounds,
        "overlap": sizes.overlaps,
        "missing": sizes.rates,
    }
    for name, values in settings.items():
        for value in values:
            yield f"by {name}", f"{value}", {name: value, "low": sizes.low[:1]}


def case_of(sizes: FedpsgSizes, data: str, seed: int, **change: Any) -> FedpsgCase:
    """The case of the sizes' settings, some of them changed."""
    names = ("train", "test", "overlap", "missing", "base", "tau", "aggregate", "alpha", "k")
    usual = {name: getattr(sizes, name) for name in (*names, "rounds", "epochs")}
    return FedpsgCase(data=data, seed=seed, **{**usual, "how": "", **change})


def column_rows(data: str, value: str, results: list[dict[str, Any]]) -> list[Row]:
    """One row per column: how it was routed, and its errors over seeds."""
    every = [column for one in results for column in one.get("columns", [])]
    rows = []
    for name in dict.fromkeys(column["column"] for column in every):
        mine = [column for column in every if column["column"] == name]
        routes = ", ".join(sorted({column["route"] for column in mine}))
        measured = average(mine, ("MSE", "cross-entropy", "accuracy"))
        row = {"what": "columns", "data": data, "value": value, "column": name, "route": routes}
        rows.append(row | measured)
    return rows


def _notes(sizes: FedpsgSizes) -> list[str]:
    return [
        "The texts have no experiment of their own: no figure can stand beside ours. They say that "
        "τ between 0.5 and 0.7, α between 0.7 and 0.9 and k between 0.05 and 0.2 are usual, and "
        "that TabDDPM and VF-GAIN are usually best.",
        f"The preset of the paper with base={sizes.base!r}, aggregate={sizes.aggregate!r}: by the "
        "mean over A's columns, as the text has it, hardly a column of these data passes 0.5 "
        "(--set aggregate=mean).",
        f"{sizes.train:,} rows of A, of which {sizes.overlap:.0%} are common; all of B's columns "
        "are completed for the others and judged by the truth. MSE is of standardised columns, "
        "cross-entropy in nats.",
        "downstream AUC: pooled boosted trees on A's columns and B's completed ones, on test rows "
        "with B's true columns; beside it the same trees on common rows only, and on true columns.",
    ]
