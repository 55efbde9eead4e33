"""Experiments and timings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from vfsl.benchmark import EXPERIMENTS, run_experiment
from vfsl.benchmark.table import cell
from vfsl.cli.screen import err, out, say

app = typer.Typer(help="Experiments and timings.", no_args_is_help=True)


@app.command("list")
def bench_list() -> None:
    """Name the experiments."""
    for name, (_, text) in EXPERIMENTS.items():
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
    for chosen in EXPERIMENTS if name == "all" else [name]:
        outcome = run_experiment(
            chosen, quick=quick, workers=workers, say=lambda text: err.print(text, markup=False)
        )
        outcome.save(to)
        for columns, rows in outcome.tables():
            table = Table(title=outcome.title, title_justify="left")
            for column in columns:
                table.add_column(escape(column), overflow="fold")
            for row in rows:
                table.add_row(*(escape(cell(row.get(column))) for column in columns))
            out.print(table)
        for note in outcome.notes:
            say(f"- {note}")
        out.print(f"Tables: {to / chosen}.md, .csv, .json, .tex, .svg", markup=False)
