"""Experiments and timings: they lie beside the package in a source checkout, not in it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

import vfsl
from vfsl.cli.screen import err, out, say
from vfsl.errors import ConfigError

app = typer.Typer(help="Experiments and timings, from a source checkout.", no_args_is_help=True)


@app.command("list")
def bench_list() -> None:
    """Name the experiments."""
    for name, (_, text) in load_benchmarks().EXPERIMENTS.items():
        out.print(f"{name:12} {text}", markup=False)


@app.command("run")
def bench_run(
    name: Annotated[str, typer.Argument(help="An experiment, or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="A small form: two minutes.")] = False,
    workers: Annotated[
        int, typer.Option(min=1, help="Cells at a time, where an experiment has cells.")
    ] = 1,
    to: Annotated[Path, typer.Option("--out", help="Folder for the tables.")] = Path("runs")
    / "bench",
) -> None:
    """Run an experiment and write its table as JSON, CSV, Markdown and LaTeX, and a figure.

    Finished cells are kept in the user's cache folder, so that a long run that was broken off goes
    on when it is started again.
    """
    benchmarks = load_benchmarks()
    for chosen in benchmarks.EXPERIMENTS if name == "all" else [name]:
        outcome = benchmarks.run_experiment(chosen, quick=quick, workers=workers, say=tell)
        save_and_show(outcome, to)


def tell(text: str) -> None:
    """Say how far an experiment is."""
    err.print(text, markup=False)


def save_and_show(outcome: Any, to: Path) -> None:
    """Write an experiment's files and print its tables and notes."""
    from vfsl.report.words import write_rounded

    outcome.save(to)
    for columns, rows in outcome.tables():
        table = Table(title=outcome.title, title_justify="left")
        for column in columns:
            table.add_column(escape(column), overflow="fold")
        for row in rows:
            table.add_row(*(escape(write_rounded(row.get(column))) for column in columns))
        out.print(table)
    for note in outcome.notes:
        say(f"- {note}")
    out.print(f"Tables: {to / outcome.name}.md, .csv, .json, .tex, .svg", markup=False)


def load_benchmarks() -> Any:
    """The package ``benchmarks`` of the checkout that this package runs from.

    No other one will do: figures are of the source beside them. Processes that an experiment
    starts inherit the path.
    """
    package = Path(vfsl.__file__).resolve().parent
    checkout = package.parent.parent
    if package.parent.name != "src" or not (checkout / "benchmarks" / "registry.py").exists():
        raise ConfigError(
            f"Experiments are part of a source checkout of vfsl, and this vfsl is installed in "
            f"{package.parent}; clone the repository, run pip install -e . in it, and try again."
        )
    if sys.path[0] != str(checkout):  # before any other package of that name
        sys.path.insert(0, str(checkout))
    return import_module("benchmarks")
