"""A rehearsal of a job on a handful of made-up rows, to see who would send what to whom.

The made-up tables have columns of the same kinds and nothing of the real ones. Which messages a
protocol sends does not depend on how many rows, columns, rounds or trees there are, so the ledger
of the rehearsal names everything that the job would reveal. Nothing is encrypted: the messages have
the same names and facts, and come faster.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl.data import Kind, PartyTable, write_table
from vfsl.job.run import run_job
from vfsl.job.schema import Job, PartySection
from vfsl.job.steps import CompleteTerms, PuTerms, Step, TrainStep
from vfsl.job.tables import IdSection
from vfsl.record import StepRecord
from vfsl.values import Array

# Enough for every part of every protocol to have its turn: RISA judges parties by 20 rows.
_COMMON, _OWN = 240, 40
_ID = "\x00id"


def rehearse(job: Job, tables: Mapping[str, PartyTable]) -> tuple[StepRecord, ...]:
    """What the job's protocols would send; numbers of messages and bytes are the rehearsal's."""
    small = _small_job(job, tables)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = made_up(job, tables, np.random.default_rng(0))
        for party, frame in made.items():
            write_table(frame, folder / small.parties[party].table)
        return run_job(small, folder, folder / "out").steps


def made_up(
    job: Job, tables: Mapping[str, PartyTable], rng: np.random.Generator
) -> dict[str, pd.DataFrame]:
    """For each party some rows with a column of each kind that it has, and its labels."""
    common = [f"c{place}" for place in range(_COMMON)]
    listed = {step.positives for step in job.steps if isinstance(step, PuTerms)}
    shared = rng.normal(size=_COMMON)  # so that columns of one party predict those of another
    frames = {}
    for party, table in tables.items():
        ids = common + [f"{party}{place}" for place in range(_OWN)]
        hidden = np.concatenate([shared, rng.normal(size=_OWN)])
        columns: dict[str, Any] = {_ID: ids}
        for kind in (Kind.NUMERIC, Kind.CATEGORICAL):
            names = [name for name in table.features if table.kinds[name] is kind]
            if names:
                cells = _cells(kind is Kind.NUMERIC, hidden, rng, "abc")
                if any(table.column(name).isna().any() for name in names):
                    cells = pd.Series(cells).mask(rng.random(len(ids)) < 0.1)
                columns[names[0]] = cells
        for column, number in _labels(job, party).items():
            columns[column] = _cells(number, hidden, rng, "ny")
        if job.test is not None and job.test.column is not None and job.test.column[0] == party:
            columns[job.test.column[1]] = rng.random(len(ids)) < 0.3
        frame = pd.DataFrame(columns)
        frames[party] = frame.iloc[: _COMMON // 4] if party in listed else frame
    return frames


def _cells(number: bool, hidden: Array, rng: np.random.Generator, levels: str) -> Any:
    values = hidden + 0.3 * rng.normal(size=len(hidden))
    if number:
        return values
    bounds = np.quantile(values, np.arange(1, len(levels)) / len(levels))
    return np.array(list(levels))[np.searchsorted(bounds, values)]


def _labels(job: Job, party: str) -> dict[str, bool]:
    """The columns that steps learn to predict, and whether they are numbers."""
    found: dict[str, bool] = {}
    section = job.parties[party].label
    if isinstance(section, str):
        found[section] = False
    for step in job.steps:
        if isinstance(step, TrainStep) and step.label[0] == party:
            found[step.label[1]] = step.estimator().predicts == "numbers"
        elif isinstance(step, CompleteTerms) and step.given == party and step.label is not None:
            found.setdefault(step.label, False)
    return found


def _small_job(job: Job, tables: Mapping[str, PartyTable]) -> Job:
    """The same steps with as little work as shows every message."""
    run = job.run.model_copy(update={"scheme": "plain", "security": 112, "channel": "memory"})
    parties = {
        party: PartySection(table=f"{place}.parquet", id=_ID, label=section.label)
        for place, (party, section) in enumerate(job.parties.items())
    }
    test = job.test
    if test is not None and test.share is not None:
        test = test.model_copy(update={"share": 0.3})
    steps = [_small_step(step) for step in job.steps]
    changes = {"run": run, "parties": parties, "test": test, "steps": steps, "ids": IdSection()}
    return job.model_copy(update=changes)


# As little work as shows every message; what is local sends nothing. Every row is sure enough, so
# that some join in round 2 of a completion.
_SMALL: dict[str, dict[str, Any]] = {
    "pu": {"rounds": 2, "outer": 1, "folds": 2},
    "complete": {"rounds": 2, "folds": 2, "alpha": 0.0, "methods": [], "advice_trees": 1},
    "train": {"n_estimators": 1, "validation": 0.0, "max_rounds": 2, "epochs": 1, "self_steps": 1},
    "evaluate": {"bootstrap": 100},
}


def _small_step(step: Step) -> Step:
    fields = type(step).model_fields
    change = {name: value for name, value in _SMALL.get(step.do, {}).items() if name in fields}
    if isinstance(step, CompleteTerms):
        local = {
            "low": ("mean", ("auto", "direct")),
            "remainder": ("predict", ("predict", "leave")),
        }
        for name, (small, joint) in local.items():
            if getattr(step, name) not in joint:
                change[name] = small
    return step.model_copy(update=change)
