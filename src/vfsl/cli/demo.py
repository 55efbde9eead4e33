"""The demo: the whole story on made-up tables."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from vfsl.cli.options import Quiet, Shown, free, progress
from vfsl.cli.progress import Form
from vfsl.cli.screen import print_summary, say


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    to: Annotated[
        Path | None, typer.Option("--out", help="A new folder; demo-run by default.")
    ] = None,
    quiet: Quiet = False,
    shown: Shown = Form.BAR,
) -> None:
    """Run the whole story on made-up tables, encrypted, and write a report to open."""
    from vfsl import store
    from vfsl.job import load_job, run_job
    from vfsl.job.demo import has_torch, write_demo

    folder = to or free(Path("demo-run"))
    risa = has_torch()
    if not risa:
        say("PyTorch is not installed, so the demo leaves RISA out: pip install 'vfsl[deep]'.")
    with tempfile.TemporaryDirectory() as name:
        job = write_demo(Path(name), risa=risa)
        with progress(quiet, shown) as bar:
            fed = run_job(load_job(job), job.parent, folder, bar.event)
        inputs = folder / "inputs"
        for path in job.parent.iterdir():
            store.write_bytes(inputs / path.name, path.read_bytes())
    print_summary(fed, folder)
    say(f"Run it again with:  vfsl run {inputs / 'job.toml'}")
