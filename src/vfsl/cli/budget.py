"""The command on a party's budget: who has seen how many exact numbers of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from vfsl.cli.screen import out, say
from vfsl.errors import ConfigError

if TYPE_CHECKING:
    from vfsl.deploy.budget import Sum


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(budget)


def budget(
    folder: Annotated[
        Path, typer.Option(help="A party's own folder, or one that has such folders in it.")
    ] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Say how many exact numbers each peer has seen of this party, over all runs, and may see."""
    from vfsl.deploy.budget import KeptBudget

    found = {place: KeptBudget(place).sums() for place in _parties(folder)}
    if as_json:
        content = {
            str(place): [asdict(one) | {"share": one.share} for one in sums]
            for place, sums in found.items()
        }
        out.print_json(json.dumps(content))
        return
    for place, sums in found.items():
        if sums:
            out.print(_table(place, sums))
        else:
            say(f"{place}: nobody has seen an exact number of this party yet.")


def _parties(folder: Path) -> list[Path]:
    """The folder itself or those in it that belong to a party."""
    from vfsl.deploy.budget import BUDGET_FILE
    from vfsl.deploy.config import PARTY_FILE

    places = [folder, *sorted(folder.glob("*/"))] if folder.is_dir() else []
    parties = [
        place for place in places if (place / PARTY_FILE).exists() or (place / BUDGET_FILE).exists()
    ]
    if not parties:
        raise ConfigError(
            f"{folder} is not the folder of a party and has none in it: there is no {PARTY_FILE}. "
            "Name one by --folder."
        )
    return parties


def _table(place: Path, sums: list[Sum]) -> Table:
    table = Table(title=escape(str(place)), title_justify="left", box=None, pad_edge=False)
    table.add_column("peer")
    table.add_column("about")
    for title in ("numbers seen", "limit", "used", "ε of noisy ones", "runs"):
        table.add_column(title, justify="right")
    table.add_column("last")
    for one in sums:
        table.add_row(
            escape(one.peer),
            escape(", ".join(one.columns)),
            f"{one.seen:,}",
            f"{one.limit:,}",
            f"{one.share:.0%}",
            f"{one.epsilon:.1f}",
            str(one.runs),
            one.last[:10],
        )
    return table
