"""The report as one self-contained HTML page: no network, for screens, phones, paper and keys.

A record is boiled down to one dict (:func:`summarise`), the dict is told in a few sentences and
laid out in sections, and the templates know how each kind of block looks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from vfsl import store
from vfsl.record import Flow, RunRecord
from vfsl.report import attacks, filling, learning, story, words
from vfsl.report.blocks import Figures, Section
from vfsl.report.charts import Bar, draw_bars
from vfsl.report.telling import tell_run
from vfsl.report.words import is_number, readable_bytes, write_seconds

Run = Mapping[str, Any]
Step = Mapping[str, Any]

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
    sections = (
        learning.describe_alignment,
        learning.describe_positives,
        filling.describe_completion,
        learning.describe_training,
        filling.describe_gain,
        attacks.describe_audit,
    )
    made = [describe(run["steps"]) for describe in sections]
    template = _environment().get_template("page.html")
    return template.render(
        run=run,
        title=story.name_run(run),
        points=story.tell_first(run),
        lines=tell_run(run["steps"]),
        linked={"ledger", "repeat", *(section.id for section in made if section is not None)},
        verdicts=story.collect_verdicts(run),
        cautions=story.collect_cautions(run),
        sections=[section for section in made if section is not None],
        time=_describe_time(run),
        filters=_list_filters(run["ledger"]),
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vfsl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": words.write_number,
        "seconds": words.write_seconds,
        "count": words.write_count,
        "when": words.write_moment,
        "stop": words.describe_stop,
        "json": lambda value: json.dumps(value, indent=2, ensure_ascii=False, default=str),
    }
    return environment


# ---- the record as plain values -------------------------------------------------------------


def summarise(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Everything that a page, a table or a terminal shows of these runs, in plain values."""
    return {"runs": [_summarise_run(run) for run in runs]}


def _summarise_run(run: RunRecord) -> dict[str, Any]:
    return {
        "run": run.run,
        "created": run.created,
        "seed": run.seed,
        "private_draws": run.private_draws,
        "scheme": run.scheme,
        "versions": dict(run.versions),
        "parties": [{"party": party, **asdict(facts)} for party, facts in run.parties.items()],
        "steps": [
            {
                "name": step.name,
                "seconds": step.seconds,
                "settings": dict(step.settings),
                "metrics": dict(step.metrics),
                "rounds": [dict(line) for line in step.rounds],
                "stop_reason": step.stop_reason,
                "notes": list(step.notes),
                "details": dict(step.details),
                "messages": sum(flow.messages for flow in step.flows),
                "bytes": sum(flow.bytes for flow in step.flows),
                "size": readable_bytes(sum(flow.bytes for flow in step.flows)),
            }
            for step in run.steps
        ],
        "sent": _sum_sent(run.ledger),
        "ledger": [_summarise_flow(flow) for flow in run.ledger],
        "shown": [asdict(line) for line in run.shown],
    }


def _sum_sent(flows: Sequence[Flow]) -> list[dict[str, Any]]:
    """What left each party in all, by kind of protection."""
    totals: dict[tuple[str, str], int] = defaultdict(int)
    for flow in flows:
        totals[flow.sender, flow.kind] += flow.bytes
    return [
        {"party": party, "kind": kind, "bytes": size, "size": readable_bytes(size)}
        for (party, kind), size in sorted(totals.items())
    ]


def _summarise_flow(flow: Flow) -> dict[str, Any]:
    return {
        "step": flow.step,
        "sender": flow.sender,
        "receiver": flow.receiver,
        "message": flow.message,
        "protection": flow.kind,
        "messages": flow.messages,
        "bytes": flow.bytes,
        "size": readable_bytes(flow.bytes),
        "fact": flow.fact,
    }


# ---- time, bytes, and the filters of the ledger ---------------------------------------------


def _describe_time(run: Run) -> Section:
    """How long each step took and how much it sent."""
    steps = [step for step in run["steps"] if is_number(step["seconds"])]
    lasted = [
        Bar(step["name"], [("seconds", step["seconds"], 1)], [write_seconds(step["seconds"])])
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
            [readable_bytes(parts[kind]) for kind in kinds if kind in parts],
            readable_bytes(sum(parts.values())),
        )
        for party, parts in sent.items()
    ]
    charts = []
    if lasted:
        charts.append(draw_bars("Time of each step", lasted, x="seconds"))
    if left:
        charts.append(draw_bars("Bytes that left each party", left, x="bytes"))
    lead = "How long each step took, and how much each party sent."
    return Section("time", "Time and bytes", lead, [Figures(charts)] if charts else [])


def _list_filters(ledger: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What the ledger can be filtered by, and the choices."""
    names = {"step": "step", "sender": "from", "receiver": "to", "protection": "protection"}
    return {
        label: sorted({str(line[name]) for line in ledger})[:_MOST_OPTIONS]
        for name, label in names.items()
    }
