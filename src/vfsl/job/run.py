"""Running jobs: every party on this machine; results appear when all of them are there."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from functools import reduce
from pathlib import Path

from vfsl import store
from vfsl.data import PartyTable, check_labels, read_table
from vfsl.data.labels import Ask, declare_label
from vfsl.draws import PrivateSeed
from vfsl.errors import ConfigError, InputError, StoreError
from vfsl.federation import Federation
from vfsl.job.holdout import Marked, taken_out
from vfsl.job.schema import Job
from vfsl.job.steps import do_step
from vfsl.job.work import Work
from vfsl.progress import OnEvent


def run_job(
    job: Job,
    folder: Path,
    out: Path,
    on_event: OnEvent | None = None,
    ask: Ask | None = None,
) -> Federation:
    """Run a job whose paths are relative to ``folder``; results appear in ``out`` at its end.

    Until then finished steps, and what an unfinished one has kept, are in ``unfinished(out)``, from
    where the same job goes on. ``ask`` says what to write where a label may be undeclared.
    """
    check_free(out)
    tables, marked = read_tables(job, folder, ask)
    kept = unfinished(out)
    checkpoints = store.Checkpoints(kept, _fingerprint(job, folder))
    try:
        begun = checkpoints.load("job")
    except StoreError:
        raise StoreError(
            f"{kept} has the unfinished work of another job or of other tables; "
            "delete it to start afresh, or choose another output folder."
        ) from None
    if begun is None:
        checkpoints.clear()
        checkpoints.save("job", True)
    fed = federation_of(job, tables, kept, on_event)
    results = kept / "results"
    work = Work(job, fed, results, kept, on_event, marked)
    try:
        for number, step in enumerate(job.steps, start=1):
            work.number = number
            do_step(work, step, checkpoints)
        fed.record.save(results)
        fed.report(results / "report.html")
    except InputError:
        checkpoints.clear()  # the job has to change, so it cannot go on from here
        raise
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists():
        out.rmdir()
    shutil.move(results, out)
    checkpoints.clear()
    return fed


def unfinished(out: Path) -> Path:
    """Where an unfinished run keeps what it has done."""
    return out.with_name(f"{out.name}.unfinished")


def read_tables(
    job: Job, folder: Path, ask: Ask | None = None
) -> tuple[dict[str, PartyTable], Marked | None]:
    """The parties' tables, and which rows are for testing, where a column says so.

    A column that a step needs and nobody has is told here, before any work; so is one that would be
    a feature and looks like a label. What any step calls a label is a label in all of them.
    """
    tables = {party: _read(job, party, folder) for party in job.parties}
    marked = None
    if job.test is not None and job.test.column is not None:
        party, column = job.test.column
        tables[party], marked = taken_out(tables[party], column)
    check_labels(tables, job.holders_of_features(), ask=ask or _in_job)
    return tables, marked


def _read(job: Job, party: str, folder: Path) -> PartyTable:
    section, labels = job.parties[party], job.labels_of(party)
    table = read_table(
        folder / section.table,
        party=party,
        id=section.id,
        label=labels[0] if labels else section.label,
        kinds=dict(section.kinds),
        duplicates=section.duplicates,
    )
    return reduce(declare_label, labels[1:], table)


def _in_job(party: str, column: str) -> str:
    return f"write label = {json.dumps(column)} under [parties.{party}], or label = false"


def federation_of(
    job: Job, tables: dict[str, PartyTable], kept: Path, on_event: OnEvent | None = None
) -> Federation:
    """The federation that a job runs on; private seeds are in ``kept`` while it is unfinished."""
    settings = job.run
    private = None
    if settings.private_draws == "system":
        private = {
            party: PrivateSeed.kept_in(kept / f"private-{party}.json", party)
            for party in (*tables, settings.key_holder)
        }
    return Federation(
        tables,
        scheme=settings.scheme,
        security=settings.security,
        seed=settings.seed,
        on=settings.channel,
        key_holder=settings.key_holder,
        on_event=on_event,
        private=private,
    )


def check_free(out: Path) -> None:
    """Refuse to write where something is, or where nothing can be written."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"The output folder {out} exists and is not empty; choose another name.")
    above = next(place for place in out.absolute().parents if place.exists())
    try:
        tempfile.TemporaryDirectory(dir=above).cleanup()
    except OSError as error:
        raise ConfigError(
            f"The output folder {out} cannot be made: {above} takes no folder "
            f"({error.strerror or error}); choose another place."
        ) from None


def _fingerprint(job: Job, folder: Path) -> str:
    """Of the job and the files that it reads: what was kept for others is of no use."""
    digest = hashlib.sha256(job.model_dump_json().encode())
    for party, section in job.parties.items():
        try:
            with (folder / section.table).open("rb") as file:
                digest.update(party.encode() + hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise StoreError(f"The table of party {party} cannot be read: {error}.") from None
    return digest.hexdigest()
