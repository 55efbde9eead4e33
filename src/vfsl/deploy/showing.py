"""What a step could show of this party's table, and whether a job needs more than is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from vfsl.channel import About
from vfsl.data import PartyTable
from vfsl.data.checks import counted
from vfsl.deploy.budget import Hidden, KeptBudget, RunBudget, what_to_do
from vfsl.deploy.config import PARTY_FILE, PartyFile
from vfsl.job.schema import SharedJob
from vfsl.job.steps import CompleteTerms, PuTerms, Step, TrainStep
from vfsl.record import fingerprint
from vfsl.site import Site


def budget_of(
    site: Site, mine: PartyFile, folder: Path, step: Step, run: str, key: bytes
) -> RunBudget:
    """The party's budget, with what one step could tell others about."""
    table = site.own_table()
    return RunBudget(
        KeptBudget(folder),
        site.me,
        run,
        fingerprint_of(table, key),
        key,
        mine.limits.numbers,
        _hidden(site, table, step),
        mine.limits.epsilon,
    )


def fingerprint_of(table: PartyTable, key: bytes) -> str:
    """A keyed fingerprint of a table, which only its party can check."""
    content = pd.util.hash_pandas_object(table.frame, index=False).to_numpy().tobytes()
    return fingerprint(key, "\x1f".join(map(str, table.ids)).encode(), content)


def _hidden(site: Site, table: PartyTable, step: Step) -> dict[About, Hidden]:
    """Rows and columns that a step could tell others about.

    Only common rows are, unless they are those that another party gets predictions for. Where
    columns are completed they themselves are the labels.
    """
    rows = len(table)
    share = site.standing.rows
    if share is not None and not (isinstance(step, CompleteTerms) and step.given == site.me):
        rows = len(share.overlap)
    columns = tuple(sorted(table.features))
    hidden: dict[About, Hidden] = {"columns": Hidden(columns, rows)}
    if isinstance(step, TrainStep) and step.label[0] == site.me:
        others = tuple(name for name in columns if name != step.label[1])
        hidden = {"columns": Hidden(others, rows), "label": Hidden((step.label[1],), rows)}
    elif isinstance(step, PuTerms) and step.label_holder == site.me:
        hidden["label"] = Hidden((f"known to {step.positives}",), rows)
    elif isinstance(step, CompleteTerms) and step.missing == site.me:
        hidden["label"] = hidden["columns"]
    return hidden


def announced_refusals(
    mine: PartyFile, job: SharedJob, table: PartyTable, kept: KeptBudget, done: int
) -> Iterator[str]:
    """Steps after the ``done`` first that need more than is left, as far as one knows beforehand.

    How many rows are common is not known yet; both the need and the limit grow with them, so the
    party reckons with all of its rows.
    """
    need: Counter[str] = Counter()
    columns, share = table.features, mine.limits.numbers
    for number, step in enumerate(job.steps, start=1):
        peer = _shown_to(mine.party, job, number)
        if number <= done or peer is None:
            continue
        need[peer] += _numbers_per_row(step)
        before = kept.sum(peer, columns)
        left = len(table) * (share * len(columns) - need[peer])
        if need[peer] and left < before.seen:
            runs = counted(before.runs, "run")
            yield (
                f"Step {number}: {mine.party!r} would show {peer!r} {need[peer]} exact numbers "
                f"about each common row, after {before.seen:,} over {runs}; it allows "
                f"{share:g} × {len(columns)} columns (limits.numbers in {PARTY_FILE}). "
                + what_to_do(peer, "these columns")
            )


def _shown_to(me: str, job: SharedJob, number: int) -> str | None:
    """Who sees scores of this party's rows in a step."""
    step = job.steps[number - 1]
    if me not in job.aligned_before(number):
        return None
    if isinstance(step, TrainStep):
        return step.label[0] if step.label[0] != me else None
    if isinstance(step, PuTerms):
        return step.label_holder if step.label_holder != me else None
    return None


def _numbers_per_row(step: Step) -> int:
    """The fewest scores of each row that a step shows its label holder."""
    if isinstance(step, TrainStep):
        return step.estimator().numbers_per_row()
    return step.method().numbers_per_row() if isinstance(step, PuTerms) else 0
