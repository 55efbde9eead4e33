"""Commands on CSV and Parquet files that are no step of a job: align and predict."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from vfsl.cli.options import (
    Ids,
    Out,
    Parties,
    Protocol,
    Quiet,
    Results,
    Scheme,
    Shown,
    files_of,
    id_columns,
    interrupted,
    progress,
)
from vfsl.cli.progress import Form
from vfsl.cli.screen import out, print_summary
from vfsl.cli.tables import TableOptions, takes_tables
from vfsl.errors import ConfigError, LimitReached


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (align, predict):
        app.command()(command)


@takes_tables
def align(
    party: Annotated[
        list[str], typer.Option("--party", help="NAME=FILE, once per party; the last one asks.")
    ],
    id: Annotated[
        list[str],
        typer.Option("--id", help="The id column, or NAME=COLUMN; commas join composite ids."),
    ],
    to: Out,
    protocol: Annotated[str, typer.Option(help="ecdh, blind-rsa or aided.")] = "ecdh",
    count: Annotated[
        bool,
        typer.Option("--count", help="Only count the common ids (aided); nobody learns which."),
    ] = False,
    hide_sizes: Annotated[
        bool,
        typer.Option("--hide-sizes", help="With aided: hide from the helper how long lists are."),
    ] = False,
    security: Annotated[int, typer.Option(help="128, or 112 for 2048-bit RSA keys.")] = 128,
    hub: Annotated[str | None, typer.Option(help="The party that asks the others.")] = None,
    empty: Annotated[str, typer.Option(help="error, or drop: leave such rows out.")] = "error",
    minimum: Annotated[int, typer.Option(help="Fewest common rows.")] = 1,
    cap: Annotated[
        int | None,
        typer.Option(help="Ids that a peer may ask in 30 days; by default 3 × the asked list."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Private folder to resume from and re-align with; OUT.state by default."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Repeat the row order; by default it is secret.")
    ] = None,
    results: Results = None,
    quiet: Quiet = False,
    shown: Shown = Form.BAR,
    *,
    options: TableOptions,
) -> None:
    """Find the rows that parties have in common, privately; resumes after an interruption."""
    from vfsl.align import Limits
    from vfsl.job import align_files

    files = files_of(party)
    kept = state or to.with_name(f"{to.name}.state")
    fresh = not kept.exists()
    try:
        with progress(quiet, shown) as bar:
            fed = align_files(
                files,
                id_columns(id, list(files)),
                to,
                protocol=protocol,
                security=security,
                hub=hub,
                sections=options.sections(files),
                id_section=options.id_section(),
                empty=empty,  # type: ignore[arg-type]
                hide_sizes=hide_sizes,
                count_only=count,
                limits=Limits(asked=cap, minimum=minimum),
                state=kept,
                seed=seed,
                results=results,
                on_event=bar.event,
            )
    except KeyboardInterrupt:
        interrupted(kept)
    except LimitReached as error:
        if fresh:
            shutil.rmtree(kept, ignore_errors=True)
        raise ConfigError(f"{error} Here that is --cap.") from None
    print_summary(fed, to)
    out.print(f"Kept for the next alignment (private: keys and values): {kept}", markup=False)


@takes_tables
def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run that trained a model.")],
    party: Parties,
    id: Ids,
    to: Out,
    model: Annotated[str | None, typer.Option(help="Which model, if there are several.")] = None,
    offline: Annotated[
        list[str] | None,
        typer.Option(
            help="A party of the training that takes no part: all of them, or with trees any."
        ),
    ] = None,
    all_rows: Annotated[
        bool, typer.Option("--all-rows", help="Predict rows that only the label holder has, too.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Tell the label holder what each party adds; trees."),
    ] = False,
    explain_columns: Annotated[
        list[str] | None,
        typer.Option(help="Tell a party what its columns add, which tells of labels; trees."),
    ] = None,
    protocol: Protocol = "ecdh",
    scheme: Scheme = "auto",
    seed: int = 0,
    results: Results = None,
    quiet: Quiet = False,
    shown: Shown = Form.BAR,
    *,
    options: TableOptions,
) -> None:
    """Score new rows with a trained model; the answer goes to the label holder."""
    from vfsl.job import predict_files

    files = files_of(party)
    with progress(quiet, shown) as bar:
        fed = predict_files(
            run,
            files,
            id_columns(id, list(files)),
            to,
            sections=options.sections(files),
            id_section=options.id_section(),
            model=model,
            rows="all" if all_rows else "overlap",
            offline=offline or (),
            explain=explain,
            explain_columns=explain_columns or (),
            protocol=protocol,
            scheme=scheme,
            seed=seed,
            results=results,
            on_event=bar.event,
        )
    print_summary(fed, to)
