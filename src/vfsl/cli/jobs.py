"""Commands on job files: init and run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vfsl.cli.doctor import print_doubts, print_findings
from vfsl.cli.options import (
    NoLabels,
    Quiet,
    Shown,
    free,
    id_columns,
    interrupted,
    party_files,
    progress,
)
from vfsl.cli.progress import Form
from vfsl.cli.screen import print_preview, print_summary, say
from vfsl.cli.tables import TableOptions, takes_tables
from vfsl.errors import ConfigError


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(init)
    app.command()(run)


@takes_tables
def init(
    tables: Annotated[list[Path], typer.Argument(help="The parties' files, or NAME=FILE.")],
    id: Annotated[
        list[str] | None,
        typer.Option("--id", help="The id column, or NAME=COLUMN; guessed by default."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="COLUMN or NAME=COLUMN: what is to be predicted; further ones are only left out."
        ),
    ] = None,
    no_label: NoLabels = None,
    to: Annotated[Path, typer.Option("--out", help="The job file.")] = Path("job.toml"),
    *,
    options: TableOptions,
) -> None:
    """Write a commented job for some tables: ids and kinds as the files show them."""
    from vfsl import store
    from vfsl.job import load_job
    from vfsl.job.drafting import job_text, look_at

    if to.exists():
        raise ConfigError(f"{to} exists; choose another name by --out.")
    files = party_files([str(path) for path in tables])
    ids = None if id is None else id_columns(id, list(files))
    sections, id_section = options.sections(files), options.id_section()
    draft = look_at(files, ids, label or (), no_label or (), sections, id_section)
    print_findings(draft.checkup)
    text = job_text(draft, to.parent)
    store.write_text(to, text)
    load_job(to)
    say(f"Job: {to}")
    say(f"Look at it, then:  vfsl run {to}")


def run(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    to: Annotated[
        Path | None,
        typer.Option("--out", help="A new folder for the results; runs/JOB by default."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done and revealed.")
    ] = False,
    quiet: Quiet = False,
    shown: Shown = Form.BAR,
) -> None:
    """Run a job with every party on this machine."""
    from vfsl.job import load_job, preview, run_job, unfinished
    from vfsl.job.doctor import examine_job

    folder = to or free(Path("runs") / job.stem)
    loaded = load_job(job)
    if dry_run:
        print_preview(preview(loaded, job.parent))
        return
    if not quiet:
        print_doubts(examine_job(loaded, job.parent))
    try:
        with progress(quiet, shown) as bar:
            fed = run_job(loaded, job.parent, folder, bar.event)
    except KeyboardInterrupt:
        interrupted(unfinished(folder))
    print_summary(fed, folder)
