"""What a job would do: sizes, steps with settings, rough times, and what it would reveal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vfsl.crypto import SCHEMES
from vfsl.job.common import check_common
from vfsl.job.estimates import Estimate, estimate
from vfsl.job.rehearsal import rehearse
from vfsl.job.run import read_tables
from vfsl.job.schema import Job
from vfsl.job.steps import Step, TrainStep


@dataclass(frozen=True)
class Planned:
    """One step of a job that is not run yet.

    Attributes
    ----------
    number : int
    do : str
    settings : dict
        Those that were given, and defaults that matter.
    estimate : Estimate
        About how long it takes and how much it sends.
    """

    number: int
    do: str
    settings: Mapping[str, Any]
    estimate: Estimate


@dataclass(frozen=True)
class Revealed:
    """A message that one party would send another, and what it tells."""

    step: str
    sender: str
    receiver: str
    message: str
    protection: str
    fact: str


@dataclass(frozen=True)
class Preview:
    """A job looked at, without running it.

    Attributes
    ----------
    sizes : dict of party to (rows, columns)
    steps : sequence of Planned
    reveals : sequence of Revealed
    notes : sequence of str
    """

    sizes: Mapping[str, tuple[int, int]]
    steps: Sequence[Planned]
    reveals: Sequence[Revealed]
    notes: Sequence[str]


def preview(job: Job, folder: Path) -> Preview:
    """Read the tables and rehearse the job on made-up rows; nothing is written."""
    tables, _ = read_tables(job, folder)
    check_common(job, tables)
    steps = [
        Planned(number, step.do, _settings(step), estimate(number, job, tables))
        for number, step in enumerate(job.steps, start=1)
    ]
    notes = []
    rehearsed = job
    lacking = {step.model for step in job.steps if isinstance(step, TrainStep) and _lacks(step)}
    if lacking:
        named = ", ".join(sorted(lacking))
        notes.append(f"{named} needs PyTorch, which is not installed; its step is not looked at.")
        kept = [step for step in job.steps if getattr(step, "model", None) not in lacking]
        rehearsed = job.model_copy(update={"steps": kept})
    found: dict[Revealed, None] = {}  # in order, each once
    for record in rehearse(rehearsed, tables):
        for flow in record.flows:
            line = Revealed(
                record.name, flow.sender, flow.receiver, flow.message, flow.kind, flow.fact
            )
            found[line] = None
    scheme = job.run.scheme
    if scheme != "auto" and not SCHEMES.find(scheme).hides:
        notes.append(f"scheme = {scheme!r} encrypts nothing: whoever gets ciphertexts reads them.")
    sizes = {party: (len(table), len(table.columns)) for party, table in tables.items()}
    return Preview(sizes, steps, list(found), notes)


def _settings(step: Step) -> dict[str, Any]:
    content = {name: getattr(step, name) for name in type(step).model_fields if name != "do"}
    return {name: value for name, value in content.items() if value not in ([], (), None)}


def _lacks(step: TrainStep) -> bool:
    """Whether a model needs PyTorch and it is not there."""
    return step.estimator_type.needs_torch and find_spec("torch") is None
