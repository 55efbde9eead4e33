"""The report as one self-contained HTML page: no network, readable on a phone and in print."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from vfsl import store
from vfsl.record import RunRecord
from vfsl.report.summary import summarise


def write_page(record: RunRecord, path: Path) -> None:
    """Write the page of one run."""
    store.write_text(path, render(record))


def render(record: RunRecord) -> str:
    environment = Environment(
        loader=PackageLoader("vfsl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    summary = summarise([record])
    return environment.get_template("page.html").render(run=summary["runs"][0])
