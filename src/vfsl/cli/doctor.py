"""The doctor: look at files before anything is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfsl.cli.options import Labels, NoLabels, id_columns, labels_of, party_files
from vfsl.cli.screen import say
from vfsl.cli.tables import TableOptions, takes_tables

if TYPE_CHECKING:
    from vfsl.align.overlap import Overlap
    from vfsl.job.doctor import Checkup, Patient


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


@takes_tables
def doctor(
    tables: Annotated[list[Path], typer.Argument(help="The files, or NAME=FILE.")],
    id: Annotated[
        list[str] | None,
        typer.Option("--id", help="The id column, or NAME=COLUMN; guessed by default."),
    ] = None,
    label: Labels = None,
    no_label: NoLabels = None,
    *,
    options: TableOptions,
) -> None:
    """Look at files: ids, kinds, dates, codes, labels, leaks, and how many ids are in common."""
    from vfsl.job.doctor import examine_files

    files = party_files([str(path) for path in tables])
    ids = None if id is None else id_columns(id, list(files))
    checkup = examine_files(
        files,
        ids,
        labels_of(label, no_label, files),
        options.sections(files),
        options.id_section(),
    )
    print_checkup(checkup)


def print_checkup(checkup: Checkup) -> None:
    """Everything that was found, and what to write into a job."""
    from vfsl.job.doctor import prescribe

    for one in checkup.patients.values():
        for line in patient_lines(one):
            say(line)
        say("")
    if checkup.overlaps:
        say("Ids in common:")
        for line in overlap_lines(checkup.overlaps, checkup.best):
            say(f"  {line}")
    text = prescribe(checkup)
    if text:
        say("\nTo put into a job (vfsl init writes it):\n")
        say(text)
    elif not checkup.remarks:
        say("Nothing to mend.")


def print_findings(checkup: Checkup) -> None:
    """What is to be known of the files, in short, and how their ids compare."""
    for one in checkup.patients.values():
        lines = remark_lines(one)
        if lines:
            say(f"{one.party}:")
        for line in lines:
            say(line)
    best = checkup.best
    if best is not None:
        from vfsl.job.doctor import write_fields

        how = ", ".join(write_fields(best.options)) or "as they are written"
        say(f"{best.common:,} ids in common, compared with {how}.")


def print_doubts(checkup: Checkup) -> None:
    """Before a run: what people should have looked at."""
    from vfsl.job.doctor import write_fields

    for remark in checkup.remarks:
        if remark.what in ("leak", "spellings", "codes", "constant", "id-like"):
            fix = f"  → {'; '.join(write_fields(remark.fix))}" if remark.fix else ""
            say(f"note on {remark.party}: {remark.text}{fix}")


def patient_lines(one: Patient) -> list[str]:
    """One file in a few lines."""
    from vfsl.report.words import readable_bytes, write_count

    lines = [
        f"{one.party}: {one.path.name}, {write_count(one.rows, 'row')}, "
        f"{write_count(one.columns, 'column')} beside the id, {readable_bytes(one.size)}"
    ]
    if one.id is None:
        lines.append("  id: no column names each row once and rows of the other files")
    else:
        named = one.id if isinstance(one.id, str) else ", ".join(one.id)
        lines.append(f"  id: {named} ({one.ids})")
    for kind, names in one.kinds.items():
        lines.append(f"  {kind}: {', '.join(names[:10])}{' …' if len(names) > 10 else ''}")
    return lines + remark_lines(one)


def remark_lines(one: Patient) -> list[str]:
    """What is to be known of a file, with what mends it."""
    from vfsl.job.doctor import write_fields

    return [
        f"  {'!' if remark.stops else '?'} {remark.text}"
        + (f"  → {'; '.join(write_fields(remark.fix))}" if remark.fix else "")
        for remark in one.remarks
    ]


def overlap_lines(found: Sequence[Overlap], best: Overlap | None) -> list[str]:
    """The ways that find ids, the first one always."""
    from vfsl.job.doctor import write_fields

    first = found[0].common
    lines = []
    for place, one in enumerate(found):
        if place and one is not best and one.common <= first:
            continue
        name = ", ".join(write_fields(one.options)) or "as written"
        mark = "  ← use this" if one is best and place and one.common > first else ""
        again = f", but {one.repeats:,} rows repeat an id" if one.repeats else ""
        lines.append(f"{one.common:>9,}  {name}{again}{mark}")
    return lines
