"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from vfsl.cli.progress import Display, Form, display
from vfsl.cli.screen import complain
from vfsl.errors import ConfigError

if TYPE_CHECKING:
    from vfsl.record import RunRecord

Parties = Annotated[list[str], typer.Option("--party", help="NAME=FILE, once per party.")]
Ids = Annotated[
    list[str], typer.Option("--id", help="The id column, or NAME=COLUMN; commas join composites.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="NAME=COLUMN: a label, which is never a feature."),
]
NoLabels = Annotated[
    list[str] | None, typer.Option("--no-label", help="NAME: no column of this party is a label.")
]
Out = Annotated[Path, typer.Option("--out", help="A new folder for the results.")]
Protocol = Annotated[str, typer.Option(help="Alignment by blind-rsa or ecdh.")]
Scheme = Annotated[str, typer.Option(help="auto, bfv, paillier or plain.")]
Results = Annotated[
    str | None,
    typer.Option(help="csv or parquet; by default csv, and completed columns as the table was."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Shown = Annotated[
    Form, typer.Option("--progress", help="A bar, JSON lines on standard error, or none.")
]


def progress(quiet: bool, form: Form) -> Display:
    """What --quiet and --progress ask for."""
    return display(Form.NONE if quiet else form)


def pairs(option: str, values: list[str]) -> dict[str, str]:
    """NAME=VALUE options as a dict."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not (name and equals and rest):
            what = "PARTY=FILE" if option == "--party" else "PARTY=COLUMN"
            raise ConfigError(f"{option} must be {what}. Got {value!r} instead.")
        if name in found:
            raise ConfigError(f"{option} names {name!r} twice.")
        found[name] = rest
    return found


def files_of(party: list[str]) -> dict[str, Path]:
    """The file of each party."""
    from vfsl.data.checks import check_party_name
    from vfsl.data.sources import locate_table

    files = {name: locate_table(Path(), path) for name, path in pairs("--party", party).items()}
    for name in files:
        check_party_name("The NAME of --party NAME=FILE", name)
    return files


def labels_of(
    label: list[str] | None, no_label: list[str] | None, parties: Iterable[str]
) -> dict[str, str | Literal[False]]:
    """What --label and --no-label say of each party; False: no column of it is a label."""
    found: dict[str, str | Literal[False]] = dict(pairs("--label", label or []))
    for name in no_label or []:
        if name in found:
            raise ConfigError(f"--label and --no-label both name party {name!r}; say one of them.")
        found[name] = False
    for name in found:
        if name not in parties:
            raise ConfigError(f"--label or --no-label names party {name!r}, which has no --party.")
    return found


def party_files(values: list[str]) -> dict[str, Path]:
    """Files as NAME=FILE, or as FILE: then the party is called as the file is."""
    from vfsl.data.checks import check_party_name
    from vfsl.data.sources import locate_table

    found: dict[str, Path] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        path = locate_table(Path(), rest if equals else value)
        party = name if equals else path.name.partition(".")[0]
        check_party_name(f"The party of {value!r:.80}, by NAME=FILE or by the file's name,", party)
        if party in found:
            raise ConfigError(f"Two files are of party {party!r}; name them by NAME=FILE.")
        found[party] = path
    return found


def id_columns(values: list[str], parties: list[str]) -> dict[str, str | list[str]]:
    """The id columns of each party: one --id for all, or NAME=COLUMN for each."""
    if len(values) == 1 and "=" not in values[0]:
        columns = dict.fromkeys(parties, values[0])
    else:
        columns = pairs("--id", values)
    for party in parties:
        if party not in columns:
            raise ConfigError(f"--id says nothing about party {party!r}; add --id {party}=COLUMN.")
    unknown = [name for name in columns if name not in parties]
    if unknown:
        raise ConfigError(f"--id names party {unknown[0]!r}, which has no --party.")
    return {
        party: column.split(",") if "," in column else column for party, column in columns.items()
    }


def record_in(folder: Path) -> RunRecord:
    """The run record of a folder."""
    from vfsl.record import FILE_NAME, RunRecord

    if not (folder / FILE_NAME).exists():
        raise ConfigError(f"There is no run in {folder}; name the --out folder of a run.")
    return RunRecord.load(folder)


def free(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3 … that does not exist yet."""
    number, candidate = 1, folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def interrupted(kept: Path) -> NoReturn:
    """Say where finished work is, and end as an interrupted command does."""
    if kept.exists():
        complain(f"interrupted; finished work is in {kept}, the same command goes on from there.")
    else:
        complain("interrupted; nothing was written.")
    sys.exit(130)
