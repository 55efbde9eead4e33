"""The command line: the only module that prints."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from vfsl import __version__, store
from vfsl.data import make_parties, write_table
from vfsl.errors import ConfigError, InputError, VfslError
from vfsl.federation import Event, Federation
from vfsl.job import load_job, run_job
from vfsl.record import FILE_NAME, RunRecord
from vfsl.report import readable_bytes, summarise, write_page

app = typer.Typer(
    help="Vertical federated semi-supervised learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def _version(asked: bool) -> None:
    if asked:
        out.print(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Vertical federated semi-supervised learning."""


@app.command()
def run(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    to: Annotated[
        Path | None,
        typer.Option("--out", help="A new folder for the results; runs/JOB by default."),
    ] = None,
) -> None:
    """Run a job with every party on this machine."""
    folder = to or _free(Path("runs") / job.stem)
    loaded = load_job(job)
    with _Bar() as bar:
        fed = run_job(loaded, job.parent, folder, bar.event)
    _print_summary(fed, folder)


@app.command()
def demo(
    to: Annotated[
        Path | None, typer.Option("--out", help="A new folder; demo-run by default.")
    ] = None,
) -> None:
    """Run the story on made-up tables, encrypted, and write a report to open."""
    folder = to or _free(Path("demo-run"))
    made = make_parties(rows=600, rng=np.random.default_rng(7), overlap=0.5)
    with tempfile.TemporaryDirectory() as name:
        for party, table in made.tables.items():
            write_table(table, Path(name) / f"{party}.csv")
        store.write_text(Path(name) / "job.toml", _demo_job())
        loaded = load_job(Path(name) / "job.toml")
        with _Bar() as bar:
            fed = run_job(loaded, Path(name), folder, bar.event)
        inputs = folder / "inputs"
        inputs.mkdir()
        for path in Path(name).iterdir():
            store.write_bytes(inputs / path.name, path.read_bytes())
    _print_summary(fed, folder)
    out.print(f"Run it again with:  vfsl run {inputs / 'job.toml'}")


@app.command()
def ledger(folder: Annotated[Path, typer.Argument(help="A folder with a run record.")]) -> None:
    """Print who sent what to whom, how protected, how many bytes, and what it reveals."""
    summary = summarise([_record(folder)])["runs"][0]
    out.print(f"Ledger of run {summary['run']}: what left each party, and what it reveals")
    table = Table(box=None, pad_edge=False, show_header=False)
    for style in ("left", "left", "right", "left", "left"):
        table.add_column(justify=style)
    step = None
    for line in summary["ledger"]:
        if line["step"] != step:
            step = line["step"]
            table.add_row(end_section=True)
            table.add_row(f"[bold]{escape(step)}[/bold]")
        table.add_row(
            escape(f"{line['sender']} → {line['receiver']}"),
            escape(f"{line['message']} ×{line['messages']}"),
            line["size"],
            line["protection"],
            escape(line["fact"]),
        )
    out.print(table)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder with a run record.")],
    to: Annotated[
        Path | None, typer.Option("--out", help="The page; report.html in the folder by default.")
    ] = None,
) -> None:
    """Write the report page of a run."""
    path = to or folder / "report.html"
    write_page(_record(folder), path)
    out.print(f"Report: {path}")


def main() -> None:
    """Entry point: one sentence and a non-zero exit code for whatever went wrong."""
    try:
        app()
    except InputError as error:
        err.print(f"vfsl: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except VfslError as error:
        err.print(f"vfsl: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        err.print("vfsl: interrupted; nothing was written.", style="red")
        sys.exit(130)


class _Bar:
    """Progress of the steps on standard error, if a person is watching."""

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self._task = self._progress.add_task("reading", total=None)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def event(self, event: Event) -> None:
        self._progress.update(
            self._task,
            description=f"{event.step}: {event.stage}",
            completed=event.done,
            total=event.total,
        )


def _print_summary(fed: Federation, folder: Path) -> None:
    for step in summarise([fed.record])["runs"][0]["steps"]:
        facts = [f"{name} {value}" for name, value in step["metrics"].items()]
        facts += [f"{len(step['rounds'])} rounds"] if step["rounds"] else []
        facts += [f"stopped: {step['stop_reason']}"] if step["stop_reason"] else []
        facts += [f"{step['messages']} messages", readable_bytes(step["bytes"])]
        line = f"{step['name']}: {', '.join(facts)} in {step['seconds']:.1f} s"
        out.print(line, markup=False, soft_wrap=True)
        for note in step["notes"]:
            out.print(f"  note: {note}", markup=False)
    out.print(f"Results: {folder}", markup=False)
    out.print(f"Report:  {folder / 'report.html'}", markup=False)


def _record(folder: Path) -> RunRecord:
    if not (folder / FILE_NAME).exists():
        raise ConfigError(
            f"There is no run record in {folder}; expected the --out folder of a run."
        )
    return RunRecord.load(folder)


def _free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3 … that does not exist yet."""
    number, candidate = 1, folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def _demo_job() -> str:
    return """\
# The thinnest whole story: two tables, aligned, one federated model, a record and a report.
[run]
seed = 7
scheme = "auto"

[parties.A]
table = "A.csv"
id = "id"
label = "defaulted"

[parties.B]
table = "B.csv"
id = "id"

[[steps]]
do = "align"
protocol = "blind-rsa"

[[steps]]
do = "train"
model = "linear"
label = ["A", "defaulted"]
l2 = 0.01
"""
