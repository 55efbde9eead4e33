"""The command that attacks a job: what each party could compute of the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape
from rich.table import Table

from vfsl.cli.options import Quiet, Shown, free, progress
from vfsl.cli.progress import Form
from vfsl.cli.screen import out, say

if TYPE_CHECKING:
    from vfsl.audit import Audit

_COLOURS = {"green": "green", "amber": "yellow", "red": "bold red", "not valid": "bold magenta"}
_FAILED = 3


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(audit)


def audit(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    to: Annotated[
        Path | None,
        typer.Option("--out", help="A new folder for the findings; runs/JOB-audit by default."),
    ] = None,
    probe: Annotated[
        list[str] | None, typer.Option(help="Run only this probe; may be given more than once.")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Leave this probe out; may be given more than once.")
    ] = None,
    fail_on: Annotated[
        Literal["red", "amber"], typer.Option(help="The mark from which on the exit code is 3.")
    ] = "red",
    quiet: Quiet = False,
    shown: Shown = Form.BAR,
) -> None:
    """Run a job on this machine and attack what each party sees of the others."""
    from vfsl.audit import audit_job
    from vfsl.job import load_job

    folder = to or free(Path("runs") / f"{job.stem}-audit")
    loaded = load_job(job)
    with progress(quiet, shown) as bar:
        found = audit_job(
            loaded, job.parent, folder, probes=probe or (), skip=skip or (), on_event=bar.event
        )
    _print_audit(found)
    say(f"Findings: {folder / 'audit.json'}")
    say(f"Report:   {folder / 'report.html'}")
    if found.fails(fail_on):
        raise typer.Exit(_FAILED)


def _print_audit(found: Audit) -> None:
    """The table, what to change, the controls, and the word on the whole."""
    table = Table(box=None, pad_edge=False)
    for title in ("probe", "attacker → target"):
        table.add_column(title)
    for title in ("attack", "baseline", "advantage"):
        table.add_column(title, justify="right")
    for title in ("mark", "controls"):
        table.add_column(title)
    for one in found.findings:
        colour = _COLOURS[one.mark]
        table.add_row(
            one.probe,
            escape(f"{one.attacker} → {one.target}"),
            f"{one.value:.2f}",
            f"{one.baseline:.2f}",
            f"{one.advantage:.2f}",
            f"[{colour}]{one.mark}[/{colour}]",
            "; ".join(f"{c.value:.2f} {'ok' if c.passed else 'FAILED'}" for c in one.controls),
        )
    out.print(table)
    for one in found.findings:
        if one.mark != "green":
            say(f"{one.mark}: {one.probe}, {one.attacker} → {one.target}")
            say(f"  comes from: {one.line}")
            for text in (one.change.says, one.note):
                if text:
                    say(f"  {text}")
    for note in found.notes:
        say(f"note: {note}")
    say(found.tell())
