"""The complete step of a job: completed columns, where each cell comes from, what it is worth."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from vfsl import store
from vfsl.align import RowPlan
from vfsl.completion.completed import Completion
from vfsl.completion.downstream import (
    load_completed_rows,
    make_completed_share,
    save_completed_rows,
    weigh_completed_rows,
)
from vfsl.completion.recommend import Advice
from vfsl.data import write_table
from vfsl.data.ids import id_parts
from vfsl.estimators import XGB
from vfsl.federation import Federation
from vfsl.job.schema import CompleteStep
from vfsl.job.work import Work
from vfsl.values import Array


def complete(work: Work, step: CompleteStep) -> None:
    """Complete the columns, write them at the missing party, and advice at the given one."""
    fed = work.training
    done = step.method().fit_complete(
        fed,
        given=step.given,
        missing=step.missing,
        state=work.state("complete"),
        on_event=work.listener,
    )
    write_completion(work, step, done)
    if step.label is not None:
        base = None
        if step.advice_trees is not None:
            base = XGB(n_estimators=step.advice_trees, max_depth=4, learning_rate=0.08)
        advice = done.recommend(label=step.label, base=base)
        write_advice(advice, work.party_folder(step.given), work.number)
    save_completed_rows(done, _folder(work, work.number))


def write_completion(work: Work, step: CompleteStep, done: Completion) -> None:
    """The completed table, its provenance, quality and verdicts, at the missing party."""
    folder, number = work.party_folder(step.missing), work.number
    suffix = Path(work.job.parties[step.missing].table).suffix.lower()
    id_columns = work.fed.tables[step.given].id_columns
    table = _with_ids(done.table, id_columns)
    # The ids are the given party's.
    foreign = list(table.columns[: len(id_columns)])
    write_table(table, folder / f"completed-{number}{suffix}", foreign=foreign)
    cells = _with_ids(provenance_by_cell(done), id_columns)
    foreign = list(cells.columns[: len(id_columns)])
    write_table(cells, folder / f"provenance-{number}{suffix}", foreign=foreign)
    quality = quality_by_column(done)
    write_table(quality, folder / f"quality-{number}.csv")
    verdicts = dict(zip(quality["column"], quality["verdict"], strict=True))
    page = {"columns": verdicts, "notes": list(done.notes)}
    store.write_json(folder / f"verdicts-{number}.json", page)


def provenance_by_cell(done: Completion) -> pd.DataFrame:
    """One line a cell, by id: route, model, round, confidence, and an interval or a probability.

    Numbers have the bounds that hold the truth with the probability 1 − miss, categories the
    probability of the completed one.
    """
    blocks: list[pd.DataFrame] = []
    for name, column in done.columns.items():
        lines = pd.DataFrame(done.provenance[name]).copy()
        lines.insert(0, "column", name)
        nothing = np.full(len(lines), np.nan)
        low = high = likely = nothing
        if column.chances is None:
            bounds = done.intervals[name]
            low, high = bounds["low"].to_numpy(), bounds["high"].to_numpy()
        else:
            codes = np.asarray(column.values).astype(np.int64)
            likely = column.chances[np.arange(len(codes)), codes]
        blocks.append(lines.assign(low=low, high=high, probability=likely))
    return pd.concat(blocks)


def quality_by_column(done: Completion) -> pd.DataFrame:
    """What held-out rows say of each column, how it was routed, and the verdict, last."""
    quality = done.quality.rename_axis("column").reset_index()
    routes = pd.DataFrame(
        [
            {
                "column": route.column,
                "route": route.route,
                "routed by": route.by,
                "measure": route.measure,
                "threshold": route.threshold,
            }
            for route in done.routes
        ]
    )
    clash = [name for name in routes if name in quality and name != "column"]
    both: pd.DataFrame = routes.merge(
        quality.drop(columns=clash), on="column", validate="one_to_one"
    )
    verdicts = both.pop("verdict")
    return both.assign(verdict=verdicts)


def write_advice(advice: Advice, folder: Path, number: int) -> None:
    """Which way to train is best, as data and as a sentence, at the label holder."""
    table = advice.table.rename_axis("way").reset_index()
    page = {
        "text": advice.text,
        "measure": advice.measure,
        "gain": advice.gain,
        "ways": table.astype(object).where(table.notna(), None).to_dict("records"),
    }
    store.write_json(folder / f"advice-{number}.json", page)
    store.write_text(folder / f"advice-{number}.txt", f"{advice.text}\n")


def completed_rows(work: Work, number: int) -> tuple[Federation, Array]:
    """A federation of common and completed rows, as step ``number`` left them, and row weights."""
    step = work.job.steps[number - 1]
    if not isinstance(step, CompleteStep):
        raise TypeError(f"step {number} completes nothing")
    fed, given, missing = work.training, step.given, step.missing
    rows = load_completed_rows(_folder(work, number), missing)
    weights = fed.play(
        partial(weigh_completed_rows, given=given, missing=missing),
        own={missing: {"rows": rows}},
        parties=(given, missing),
    )[given]
    shares = {
        given: make_completed_share(fed.share(given)),
        missing: make_completed_share(fed.share(missing), rows.table),
    }
    return fed.with_rows(RowPlan(shares), {missing: rows.table}), weights


def _folder(work: Work, number: int) -> Path:
    return work.unfinished / f"completed-{number}"


def _with_ids(frame: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """The index as the given party's id columns, first."""
    parts = id_parts(frame.index.to_numpy(), len(names))
    taken = set(frame.columns)
    ids = {
        (f"{name} of the row" if name in taken else name): part
        for name, part in zip(names, parts, strict=True)
    }
    return pd.concat([pd.DataFrame(ids), frame.reset_index(drop=True)], axis=1)
