"""Whether a job can run on its tables: common rows and labels, counted before any cryptography.

Only for tables that lie on one machine. Between organisations nobody can look like this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from vfsl.align import Normalise
from vfsl.align.overlap import best_overlap, compare_ids
from vfsl.completion.missing import LEAST_OVERLAP
from vfsl.data import PartyTable
from vfsl.data.checks import counted
from vfsl.data.table import split_ids
from vfsl.errors import DataError
from vfsl.job.doctor import write_fields
from vfsl.job.schema import Job
from vfsl.job.steps import AlignStep, CompleteTerms, CountStep, TrainStep
from vfsl.report.words import write_list
from vfsl.rows import LEAST_HELD_OUT


def check_common(job: Job, tables: Mapping[str, PartyTable]) -> None:
    """Refuse a job whose tables have fewer common rows, or labels in them, than its steps need."""
    common: dict[tuple[str, ...], list[str]] = {}
    for number, step in enumerate(job.steps, start=1):
        if isinstance(step, AlignStep):
            parties = tuple(step.parties or job.party_names)
            common[parties] = find_common({p: tables[p] for p in parties}, job.ids.normalise())
            continue
        if isinstance(step, CountStep):
            continue
        parties = job.aligned_before(number)
        rows = len(common[parties])
        held_out = 0
        if job.test is not None and job.test.share is not None:
            held_out = round(job.test.share * rows)
            if held_out < LEAST_HELD_OUT:
                raise DataError(
                    f"{_have(parties, rows)}, so {held_out} would be held out for testing; at "
                    f"least {LEAST_HELD_OUT} are needed. Hold out more (test), or none."
                )
        if isinstance(step, CompleteTerms) and rows - held_out < LEAST_OVERLAP:
            raise DataError(
                f"{_have(parties, rows)}, {rows - held_out} of them to learn from; completion "
                f"needs at least {LEAST_OVERLAP}. Check how ids are written, or train without it."
            )
        if isinstance(step, TrainStep):
            _check_labels(step, tables, job, parties, common[parties])


def find_common(tables: Mapping[str, PartyTable], how: Normalise) -> list[str]:
    """The ids that parties have in common, as they are compared; refused where there are none."""
    cleaned = {party: clean_ids(table, how) for party, table in tables.items()}
    found = set.intersection(*(set(ids) for ids in cleaned.values()))
    found.discard("")
    if found:
        return [text for text in list(cleaned.values())[-1] if text in found]
    named = {party: split_ids(one.ids, len(one.id_columns)) for party, one in tables.items()}
    best = best_overlap(compare_ids(named, begin=how))
    advice = (
        f"with {', '.join(write_fields(best.options))} they would have {best.common:,}; say so "
        "under [ids], or as options"
        if best.common
        else "look at their ids by: vfsl doctor"
    )
    raise DataError(
        f"{write_list(list(tables))} have no id in common as they are compared; {advice}."
    )


def clean_ids(table: PartyTable, how: Normalise) -> list[str]:
    """A party's ids as the alignment compares them."""
    parts = split_ids(table.ids, len(table.id_columns))
    cleaned = [how.clean(list(part), place, len(parts)) for place, part in enumerate(parts)]
    return (
        cleaned[0]
        if len(cleaned) == 1
        else ["\x1f".join(row) for row in zip(*cleaned, strict=True)]
    )


def _check_labels(
    step: TrainStep,
    tables: Mapping[str, PartyTable],
    job: Job,
    parties: Sequence[str],
    common: Sequence[str],
) -> None:
    """Whether there is anything to learn from: labels in common rows, and more than one class."""
    holder, column = step.label
    table = tables[holder]
    wanted = set(common)
    inside = np.array([text in wanted for text in clean_ids(table, job.ids.normalise())])
    if step.estimator_type.uses_all_rows:
        inside = np.ones(len(table), dtype=bool)
    labels = pd.Series(table.column(column))[inside].dropna()
    where = f"label {column!r} of {holder}"
    if len(labels) < 2:
        raise DataError(
            f"{_have(parties, len(common))}, and {where} is known in {len(labels)} of them; a "
            "model needs more."
        )
    if step.estimator().predicts == "classes" and labels.nunique() < 2:
        raise DataError(
            f"{_have(parties, len(common))}, and {where} has the same value in all "
            f"{len(labels):,} of them where it is known; a model needs two."
        )
    if step.threshold is not None and labels.nunique() != 2:
        raise DataError(
            f"The threshold is for a label with two classes, and {where} has {labels.nunique()} in "
            "the common rows; leave the threshold out."
        )


def _have(parties: Sequence[str], rows: int) -> str:
    return f"{write_list(list(parties))} have {counted(rows, 'row')} in common"
