"""The report as one self-contained HTML page: no network, for screens, phones, paper and keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from vfsl import store
from vfsl.record import RunRecord
from vfsl.report import filling, learning, story, words
from vfsl.report.blocks import Figures, Section
from vfsl.report.charts import Bar, bars
from vfsl.report.summary import summarise

# A menu of that many steps would be longer than the table it filters.
_MOST_OPTIONS = 200
# The colour of each protection; what is in plain is red.
_TONES = {"ciphertext": 1, "masked": 5, "sealed ids": 4, "aggregate": 2, "plain": 6}


def write_page(record: RunRecord, path: Path) -> None:
    """Write the page of one run."""
    store.write_text(path, render(record))


def render(record: RunRecord) -> str:
    """The page as text."""
    run = summarise([record])["runs"][0]
    return _environment().get_template("page.html").render(**_context(run))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vfsl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": words.number,
        "seconds": words.seconds,
        "bytes": words.readable_bytes,
        "json": _as_json,
        "when": words.when,
    }
    return environment


def _context(run: Mapping[str, Any]) -> dict[str, Any]:
    steps = run["steps"]
    makers = (
        learning.alignment,
        learning.positives,
        filling.completion,
        learning.training,
        filling.gain,
    )
    made = [make(steps) for make in makers]
    return {
        "run": run,
        "points": story.story(run),
        "verdicts": story.verdicts(run),
        "cautions": story.cautions(run),
        "sections": [section for section in made if section is not None],
        "time": _time(run),
        "filters": _filters(run["ledger"]),
    }


def _time(run: Mapping[str, Any]) -> Section:
    """How long each step took and how much it sent."""
    steps = [step for step in run["steps"] if words.is_number(step["seconds"])]
    lasted = [
        Bar(step["name"], [("seconds", step["seconds"], 1)], [words.seconds(step["seconds"])])
        for step in steps
    ]
    sent: dict[str, dict[str, int]] = {}
    for line in run["ledger"]:
        parts = sent.setdefault(line["sender"], {})
        parts[line["protection"]] = parts.get(line["protection"], 0) + line["bytes"]
    kinds = [kind for kind in _TONES if any(kind in parts for parts in sent.values())]
    kinds += sorted({kind for parts in sent.values() for kind in parts} - set(kinds))
    left = [
        Bar(
            party,
            [(kind, parts[kind], _TONES.get(kind, 5)) for kind in kinds if kind in parts],
            [words.readable_bytes(parts[kind]) for kind in kinds if kind in parts],
            words.readable_bytes(sum(parts.values())),
        )
        for party, parts in sent.items()
    ]
    charts = []
    if lasted:
        charts.append(bars("Time of each step", lasted, x="seconds"))
    if left:
        charts.append(bars("Bytes that left each party", left, x="bytes"))
    lead = "How long each step took, and how much each party sent."
    return Section("time", "Time and bytes", lead, [Figures(charts)] if charts else [])


def _filters(ledger: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What the ledger can be filtered by, and the choices."""
    names = {"step": "step", "sender": "from", "receiver": "to", "protection": "protection"}
    return {
        label: sorted({str(line[name]) for line in ledger})[:_MOST_OPTIONS]
        for name, label in names.items()
    }


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
