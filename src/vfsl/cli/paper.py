"""The experiments of the papers, each by one command; they lie beside the package too."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from vfsl.cli.bench import load_benchmarks, save_and_show, tell
from vfsl.cli.options import Ids, Parties, files_of, id_columns, pairs
from vfsl.cli.screen import out

app = typer.Typer(
    help="The experiments of the papers, from a source checkout.", no_args_is_help=True
)


@app.command("list")
def paper_list() -> None:
    """Name the experiments, and what --set can change in each."""
    load_benchmarks()
    papers = import_module("benchmarks.paper")
    for name, (_, text) in papers.PAPERS.items():
        out.print(f"{name:14} {text}", markup=False, soft_wrap=True)
        settings = papers.describe_settings(name)
        out.print(f"{'':14} {settings}", markup=False, soft_wrap=True, highlight=False)


@app.command("run")
def paper_run(
    name: Annotated[str, typer.Argument(help="An experiment.")],
    quick: Annotated[bool, typer.Option("--quick", help="A small form: two minutes.")] = False,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE, values separated by commas; see list."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds, or folds; 5 are a paper's.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Cells at a time.")] = 1,
    to: Annotated[Path, typer.Option("--out", help="Folder for the tables.")] = Path("runs")
    / "paper",
) -> None:
    """Run an experiment of a paper and write its table, a figure, and a page beside the paper's.

    Finished cells are kept in the user's cache folder: a run that was broken off goes on when it
    is started again.
    """
    load_benchmarks()
    papers = import_module("benchmarks.paper")
    outcome = papers.run_paper(
        name, quick=quick, changes=change or [], seeds=seeds, workers=workers, say=tell
    )
    save_and_show(outcome, to)


@app.command("rivals")
def paper_rivals(
    party: Parties,
    id: Ids,
    label: Annotated[str, typer.Option("--label", help="NAME=COLUMN, the label to predict.")],
    method: Annotated[
        list[str] | None, typer.Option("--method", help="A method; all if none is named.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="The budget of every method.")] = 20,
    held_out: Annotated[
        float, typer.Option(min=0, max=1, help="Fraction of labelled common rows to judge by.")
    ] = 0.2,
    seeds: Annotated[int, typer.Option(min=1, help="How often rows are drawn to judge by.")] = 3,
    workers: Annotated[int, typer.Option(min=1, help="Cells at a time.")] = 1,
    to: Annotated[Path, typer.Option("--out", help="Folder for the tables.")] = Path("runs")
    / "paper",
) -> None:
    """Compare RISA and its rivals on two tables of your own, in one process and in the open."""
    load_benchmarks()
    tables = import_module("benchmarks.paper.own_tables")
    files = files_of(party)
    holder, column = next(iter(pairs("--label", [label]).items()))
    outcome = tables.run_on_tables(
        files,
        id_columns(id, list(files)),
        (holder, column),
        methods=method or (),
        epochs=epochs,
        held_out=held_out,
        seeds=seeds,
        workers=workers,
        say=tell,
    )
    save_and_show(outcome, to)
