"""Commands on the results of a run: its ledger and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from vfsl.cli.options import record_in
from vfsl.cli.screen import out
from vfsl.errors import ConfigError

Folder = Annotated[Path, typer.Argument(help="A folder with a run record.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(ledger)
    app.command()(report)


def ledger(folder: Folder) -> None:
    """Print who sent what to whom, how protected, how many bytes, and what it reveals."""
    from vfsl.report import summarise

    summary = summarise([record_in(folder)])["runs"][0]
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
    if summary["shown"]:
        out.print(_shown_table(summary["shown"]))


def _shown_table(lines: list[dict[str, Any]]) -> Table:
    """Exact numbers about somebody's rows, and how many of them a budget counts."""
    table = Table(title="Exact numbers shown", title_justify="left", box=None, pad_edge=False)
    for title in ("step", "of → to", "what", "about"):
        table.add_column(title)
    for title in ("numbers", "counted"):
        table.add_column(title, justify="right")
    for line in lines:
        table.add_row(
            escape(line["step"]),
            escape(f"{line['sender']} → {line['receiver']}"),
            escape(line["what"]),
            line["about"],
            f"{line['numbers']:,}",
            f"{line['counted']:,}",
        )
    return table


def report(
    folder: Folder,
    to: Annotated[
        Path | None, typer.Option("--out", help="The page; report.html in the folder by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write the report page of a run."""
    from vfsl.report import write_page

    if to is not None and to.exists() and not force:
        raise ConfigError(f"{to} exists; choose another name, or say --force to replace it.")
    path = to or folder / "report.html"
    write_page(record_in(folder), path)
    out.print(f"Report: {path}")
