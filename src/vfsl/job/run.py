"""Running jobs: every party on this machine; results appear when all of them are there."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import asdict, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

from vfsl import store
from vfsl.completion.completed import Completion
from vfsl.data import PartyTable, check_labels
from vfsl.data.findings import Ask, declare_label
from vfsl.data.sources import digest_table, form_of_results, locate_table
from vfsl.draws import PrivateSeed
from vfsl.errors import ConfigError, InputError, StoreError
from vfsl.federation import Federation
from vfsl.job.common import check_common
from vfsl.job.completion_files import write_completion
from vfsl.job.play import play
from vfsl.job.schema import Job
from vfsl.job.steps import CompleteTerms, Step
from vfsl.progress import OnEvent
from vfsl.record import StepRecord
from vfsl.rows import for_training, split_off_marks
from vfsl.site import TestRows


def run_job(
    job: Job,
    folder: Path,
    out: Path,
    on_event: OnEvent | None = None,
    ask: Ask | None = None,
    keep_views: bool = False,
) -> Federation:
    """Run a job whose paths are relative to ``folder``; results appear in ``out`` at its end.

    Until then finished steps, and what an unfinished one has kept, are in ``unfinished(out)``, from
    where the same job goes on. ``ask`` says what to write where a label may be undeclared.
    ``keep_views`` keeps what each party sees, for an audit.
    """
    check_free(out)
    tables, test = read_tables(job, folder, ask)
    check_common(job, tables)
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
    fed = federation_of(job, tables, kept, on_event, keep_views)
    for party, site in fed.sites.items():
        marks = test is not None and test.party not in (None, party)
        site.test = TestRows(party=test.party) if test is not None and marks else test
        site.pages, site.results = kept / "results", kept / "results" / "parties" / party
        if party in job.parties:
            table = locate_table(folder, job.parties[party].table)
            asked = job.run.results
            site.suffix = f".{asked}" if asked else form_of_results(table)
            site.form = f".{asked or 'csv'}"
    try:
        for number, step in enumerate(job.steps, start=1):
            _do_step(fed, step, number, checkpoints)
        fed.record.save(kept / "results")
        fed.report(kept / "results" / "report.html")
    except InputError:
        checkpoints.clear()  # the job has to change, so it cannot go on from here
        raise
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists():
        out.rmdir()
    shutil.move(kept / "results", out)
    checkpoints.clear()
    return fed


def _do_step(fed: Federation, step: Step, number: int, checkpoints: store.Checkpoints) -> None:
    """Let all parties play a step, or take over what an earlier attempt of the job finished."""
    kept = checkpoints.folder or Path()
    done = checkpoints.load(f"step-{number}")
    if done is not None:
        for line in done["steps"]:
            fed.adopt(StepRecord.from_dict(line))
        for party, site in fed.sites.items():
            site.load_standing(kept / f"standing-{number}" / party, done["standing"][party])
        return
    before = len(fed.steps)
    for party, site in fed.sites.items():
        site.number, site.folder = number, kept / "parties" / party / f"step-{number}"
    if not isinstance(step, CompleteTerms):
        fed.set_alignment(
            state={p: kept / "parties" / p / f"step-{number}-ids" for p in fed.tables}
        )
    played = fed.play(partial(play, step))
    if isinstance(step, CompleteTerms):
        _name_completed_rows(fed, step, number, played[step.missing])
    checkpoints.save(
        f"step-{number}",
        {
            "steps": [asdict(line) for line in fed.steps[before:]],
            "standing": {
                party: site.save_standing(kept / f"standing-{number}" / party)
                for party, site in fed.sites.items()
            },
        },
    )


def _name_completed_rows(
    fed: Federation, step: CompleteTerms, number: int, done: Completion
) -> None:
    """On one machine completed rows get the given party's ids, which elsewhere only it knows."""
    given = for_training(fed.sites[step.given])
    table = given.own_table().take(given.rows().rest)
    ids = table.to_frame()[list(table.id_columns)]
    site = fed.sites[step.missing]
    write_completion(done, site.results or Path(), number, site.suffix, ids)


def unfinished(out: Path) -> Path:
    """Where an unfinished run keeps what it has done."""
    return out.with_name(f"{out.name}.unfinished")


def read_tables(
    job: Job, folder: Path, ask: Ask | None = None
) -> tuple[dict[str, PartyTable], TestRows | None]:
    """The parties' tables, and which rows are for testing.

    A column that a step needs and nobody has is told here, before any work; so is one that would be
    a feature and looks like a label. What any step calls a label is a label in all of them.
    """
    tables = {party: _read(job, party, folder) for party in job.parties}
    test = None
    if job.test is not None:
        test = TestRows(job.test.share)
        if job.test.column is not None:
            party, column = job.test.column
            tables[party], test = split_off_marks(tables[party], column)
    check_labels(tables, job.holders_of_features(), ask=ask or _in_job)
    return tables, test


def _read(job: Job, party: str, folder: Path) -> PartyTable:
    section, labels = job.parties[party], job.labels_of(party)
    label = labels[0] if labels else section.label
    table = section.read(locate_table(folder, section.table), party, section.id, label)
    return reduce(declare_label, labels[1:], table).treat_missing(section.missing)


def _in_job(party: str, column: str) -> str:
    return f"write label = {json.dumps(column)} under [parties.{party}], or label = false"


def federation_of(
    job: Job,
    tables: dict[str, PartyTable],
    kept: Path,
    on_event: OnEvent | None = None,
    keep_views: bool = False,
) -> Federation:
    """The federation that a job runs on; private seeds are in ``kept`` while it is unfinished."""
    settings = job.run
    private = None
    if settings.private_draws == "system":
        private = {
            party: PrivateSeed.kept_in(kept / f"private-{party}.json", party)
            for party in (*tables, settings.key_holder)
        }
    fed = Federation(
        tables,
        scheme=settings.scheme,
        security=settings.security,
        seed=settings.seed,
        on=settings.channel,
        key_holder=settings.key_holder,
        on_event=on_event,
        private=private,
        keep_views=keep_views,
    )
    for party, section in job.parties.items():
        options = {"normalise": job.ids.normalise(), "duplicates": section.duplicates}
        site = fed.sites[party]
        site.alignment = replace(site.alignment, id_options=options)
    return fed


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
    facts: list[Any] = [job.model_dump(mode="json")]
    for party, section in job.parties.items():
        try:
            facts += [party, digest_table(locate_table(folder, section.table))]
        except OSError as error:
            raise StoreError(f"The table of party {party} cannot be read: {error}.") from None
    return store.digest(*facts)
