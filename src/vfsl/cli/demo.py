"""The demo: the whole story on made-up tables."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfsl.cli.options import Quiet, Shown, free, progress
from vfsl.cli.progress import Form
from vfsl.cli.screen import print_summary, say

if TYPE_CHECKING:
    from vfsl.federation import Federation


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    to: Annotated[
        Path | None, typer.Option("--out", help="A new folder; demo-run by default.")
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the report in a browser at the end.")
    ] = False,
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
    say("")
    for line in tell_manager(fed):
        say(line)
    page = (folder / "report.html").absolute()
    say(f"The page to show: {page}")
    if open_page:
        webbrowser.open(page.as_uri())


def tell_manager(fed: Federation) -> list[str]:
    """Three sentences: what to do, what else helps, and what left the parties."""
    from vfsl.report import readable_bytes
    from vfsl.report.words import write_list

    found = [step.details for step in fed.steps if step.name == "evaluate"]
    if not found:
        return []
    details = found[-1]
    said = {"helps": "helps", "hurts": "harms", "does not help": "does not help"}
    answers = [
        f"“{one['about']}” {said.get(one['verdict'], 'cannot be judged yet')}"
        for one in details["questions"]
    ]
    sent = sum(flow.bytes for flow in fed.record.ledger)
    tables = write_list(list(fed.tables))
    return [
        f"1. {details['verdict']}",
        f"2. Asked one by one, on rows that no model had seen: {write_list(answers)}.",
        f"3. {tables} exchanged {readable_bytes(sent)} in all; no table left its owner, and the "
        "ledger in the page says what each message revealed.",
    ]
