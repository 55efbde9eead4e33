"""Auditing a run: every probe on what each party saw, with controls, marks and a page."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vfsl import store
from vfsl.audit import (
    probe_columns,
    probe_counts,
    probe_labels,
    probe_released,
    probe_trees,
)
from vfsl.audit.findings import INVALID, ORDER, Finding, worst
from vfsl.audit.probe import Probe
from vfsl.audit.views import Case
from vfsl.errors import ConfigError
from vfsl.federation import Federation
from vfsl.job.run import check_free, run_job
from vfsl.job.schema import Job, TestSection
from vfsl.progress import Event, OnEvent
from vfsl.record import StepRecord

AUDIT = "audit"
FILE_NAME = "audit.json"
_FORMAT = 1
_HELD_OUT = 0.3  # of the common rows, where a job holds none out

PROBES: dict[str, Probe] = {
    probe.name: probe
    for probe in (
        probe_counts.BUDGET,
        probe_columns.RANK,
        probe_columns.COLUMNS,
        probe_trees.CHAINS,
        probe_trees.CANDIDATES,
        probe_labels.LABELS,
        probe_labels.CELLS,
        probe_counts.SEED,
        probe_labels.POSITIVES,
        probe_released.INFERENCE,
        probe_released.LINKABILITY,
        probe_released.DISTANCE,
        probe_released.MEMBERSHIP,
        probe_counts.IDS,
    )
}


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    findings : tuple of Finding
    seconds : float
    notes : tuple of str
        How the audited run differs from the job.
    """

    findings: tuple[Finding, ...]
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """The worst mark; "not valid" if a control failed."""
        return worst([one.mark for one in self.findings])

    def fails(self, at: str) -> bool:
        """Whether a mark is as bad as ``at``, or the audit is not valid."""
        return ORDER.index(self.mark) >= ORDER.index(at)

    def tell(self) -> str:
        """The outcome in one sentence."""
        counts = {mark: sum(one.mark == mark for one in self.findings) for mark in ORDER}
        told = ", ".join(f"{count} {mark}" for mark, count in counts.items() if count)
        probes = len({one.probe for one in self.findings})
        if self.mark == INVALID:
            return f"This audit is not valid: a control failed ({told})."
        return f"{probes} probes ran, all controls passed: {told}."

    def to_plain(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "format": _FORMAT,
            "mark": self.mark,
            "verdict": self.tell(),
            "seconds": self.seconds,
            "notes": list(self.notes),
            "probes": {
                name: {"asks": probe.asks, "number": probe.number}
                | {"green": probe.marks.green, "red": probe.marks.red}
                for name, probe in PROBES.items()
                if any(one.probe == name for one in self.findings)
            },
            "findings": [one.to_plain() for one in self.findings],
        }

    def to_record(self) -> StepRecord:
        """As a step of the run record, from which the page draws its section."""
        counts = {mark: sum(one.mark == mark for one in self.findings) for mark in ORDER}
        return StepRecord(
            AUDIT,
            {"probes": sorted({one.probe for one in self.findings})},
            self.seconds,
            {f"{mark} findings": count for mark, count in counts.items() if count},
            notes=self.notes,
            details=self.to_plain(),
        )


def choose_probes(names: Sequence[str] = (), skip: Sequence[str] = ()) -> list[Probe]:
    """The probes of these names, all by default, without those that are left out."""
    for name in (*names, *skip):
        if name not in PROBES:
            raise ConfigError(f"There is no probe {name!r}; known are {', '.join(PROBES)}.")
    chosen = [PROBES[name] for name in (names or PROBES) if name not in skip]
    if not chosen:
        raise ConfigError("No probe is left; name other ones.")
    return chosen


def run_probes(case: Case, probes: Sequence[Probe], on_event: OnEvent | None = None) -> Audit:
    """Every probe on a run."""
    begun, found = time.perf_counter(), list[Finding]()
    for done, probe in enumerate(probes):
        if on_event is not None:
            on_event(Event(AUDIT, probe.name, done, len(probes)))
        found += probe.attack(case, probe)
    if on_event is not None:
        on_event(Event(AUDIT, "end", len(probes), len(probes)))
    return Audit(tuple(found), time.perf_counter() - begun)


def audit_federation(
    fed: Federation, *, probes: Sequence[str] = (), skip: Sequence[str] = ()
) -> Audit:
    """Audit what was run so far in a notebook, where views were kept."""
    if not fed.scenes:
        raise ConfigError(
            "Nothing to audit: make the federation with keep_views=True, then run steps."
        )
    audit = run_probes(Case(fed.scenes, fed.sites), choose_probes(probes, skip))
    fed.adopt(audit.to_record())
    return audit


def audit_job(
    job: Job,
    folder: Path,
    out: Path,
    *,
    probes: Sequence[str] = (),
    skip: Sequence[str] = (),
    on_event: OnEvent | None = None,
) -> Audit:
    """Run a job as companies would, attack what each party saw, and write record, page and JSON.

    Parameters
    ----------
    job : Job
    folder : Path
        What the paths in the job are relative to.
    out : Path
        A new folder for audit.json, record.json and report.html; results of the job are not kept.
    probes, skip : sequences of str
        Names of probes to run, all by default, and to leave out.
    """
    check_free(out)
    chosen = choose_probes(probes, skip)
    audited, notes = as_between_companies(job)
    with tempfile.TemporaryDirectory() as name:
        results = Path(name) / "results"
        fed = run_job(audited, folder, results, on_event, keep_views=True)
        audit = run_probes(Case(fed.scenes, fed.sites, results), chosen, on_event)
    audit = Audit(audit.findings, audit.seconds, notes)
    fed.adopt(audit.to_record())
    out.mkdir(parents=True, exist_ok=True)
    fed.record.save(out)
    fed.report(out / "report.html")
    store.write_json(out / FILE_NAME, audit.to_plain())
    return audit


def as_between_companies(job: Job) -> tuple[Job, tuple[str, ...]]:
    """The job as an audit runs it, and what differs from the file."""
    notes = ["Private draws came from the operating system, as between companies."]
    run = job.run.model_copy(update={"private_draws": "system", "channel": "memory"})
    changes: dict[str, Any] = {"run": run}
    if job.test is None:
        changes["test"] = TestSection(share=_HELD_OUT)
        notes.append(
            f"The job holds no rows out; {_HELD_OUT:.0%} of the common rows were, as controls."
        )
    return job.model_copy(update=changes), tuple(notes)
