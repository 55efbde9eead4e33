"""The application: all commands in one, and one sentence for whatever goes wrong."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from vfsl import __version__
from vfsl.cli import audit, bench, budget, demo, doctor, files, jobs, paper, results
from vfsl.cli.deploy import deploy_app
from vfsl.cli.screen import complain, out, say
from vfsl.cli.steps import StepCommands
from vfsl.errors import InputError, VfslError

app = typer.Typer(
    cls=StepCommands,
    help="Vertical federated semi-supervised learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for group in (jobs, audit, doctor, files, demo, results, budget):
    group.add_to(app)
app.add_typer(bench.app, name="bench")
app.add_typer(paper.app, name="paper")
app.add_typer(deploy_app(say), name="deploy")


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


def main() -> None:
    """Entry point: one sentence and a non-zero exit code for whatever went wrong."""
    try:
        app()
    except InputError as error:
        complain(str(error))
        sys.exit(2)
    except VfslError as error:
        complain(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        complain("interrupted; nothing was written.")
        sys.exit(130)
