"""The report as one self-contained HTML page: no network, for screens, phones, paper and keys.

A record is boiled down to one dict (:func:`summarise`), the dict is told in a few sentences and
laid out in sections, and the templates know how each kind of block looks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from vfsl import store
from vfsl.record import Flow, RunRecord
from vfsl.report import filling, learning, words
from vfsl.report.blocks import Figures, Section, Verdict
from vfsl.report.charts import Bar, draw_bars
from vfsl.report.words import (
    is_number,
    readable_bytes,
    write_count,
    write_list,
    write_number,
    write_percent,
    write_seconds,
)

Run = Mapping[str, Any]
Step = Mapping[str, Any]

# A menu of that many steps would be longer than the table it filters.
_MOST_OPTIONS = 200
# The colour of each protection; what is in plain is red.
_TONES = {"ciphertext": 1, "masked": 5, "sealed ids": 4, "aggregate": 2, "plain": 6}
# Kinds of protection under which a receiver learns nothing but sizes.
_HIDDEN = ("ciphertext", "masked", "sealed ids")


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
    )
    made = [describe(run["steps"]) for describe in sections]
    template = _environment().get_template("page.html")
    return template.render(
        run=run,
        points=_tell_story(run),
        verdicts=_collect_verdicts(run),
        cautions=_collect_cautions(run),
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


# ---- the run in a few sentences -------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """A sentence of the story and the section that tells more."""

    title: str
    text: str
    section: str


def _tell_story(run: Run) -> list[Point]:
    """One point for each stage of the run."""
    steps = run["steps"]
    points = [_tell_parties(run)]
    points += [_tell_alignment(step) for step in steps if step["name"] == "align"]
    points += [_tell_positives(step) for step in steps if step["name"] == "vfpu"]
    points += [
        _tell_completion(step) for step in steps if step["name"] == "completion" and step["details"]
    ]
    trained = [step for step in steps if step["name"].startswith("train ")]
    if trained:
        points.append(_tell_training(trained))
    points.append(_tell_sent(run))
    return points


def _tell_parties(run: Run) -> Point:
    tables = [
        f"{one['party']} ({write_count(one['rows'], 'row')}, "
        f"{write_count(one['columns'], 'column')})"
        for one in run["parties"]
    ]
    total = sum(step["seconds"] for step in run["steps"] if is_number(step["seconds"]))
    text = (
        f"{write_list(tables) or 'No party'} took part. The run had "
        f"{write_count(len(run['steps']), 'step')} and took {write_seconds(total)}."
    )
    return Point("Parties", text, "repeat")


def _tell_alignment(step: Step) -> Point:
    parties = step["settings"].get("parties") or ["The parties"]
    common = write_count(step["metrics"].get("overlap", 0), "row")
    return Point("Aligned", f"{write_list(parties)} have {common} in common.", "alignment")


def _tell_positives(step: Step) -> Point:
    metrics = step["metrics"]
    text = (
        f"{write_count(metrics.get('reliable positives', 0), 'reliable positive')} among "
        f"{write_count(metrics.get('unlabelled', 0), 'unlabelled row')}"
    )
    if is_number(metrics.get("oob score")):
        text += (
            f"; a known positive that was held out ranks above an unlabelled row in "
            f"{write_percent(metrics['oob score'])} of all pairs"
        )
    return Point("Positives", text + ".", "positives")


def _tell_completion(step: Step) -> Point:
    details = step["details"]
    names = {"use": "to use", "use with care": "to use with care"}
    names["no better than mean"] = "no better than the mean"
    found = [
        f"{write_number(count)} {names.get(name, name)}"
        for name, count in (details.get("verdicts") or {}).items()
        if count
    ]
    columns = len(details.get("quality") or [])
    text = (
        f"{write_count(columns, 'column')} of {details.get('missing')} "
        f"{'was' if columns == 1 else 'were'} completed for "
        f"{write_count(details.get('rows', 0), 'row')} of {details.get('given')}"
    )
    return Point(
        "Completed", f"{text}: {write_list(found)}." if found else f"{text}.", "completion"
    )


def _tell_training(steps: Sequence[Step]) -> Point:
    names = list(dict.fromkeys(step["name"].removeprefix("train ") for step in steps))
    text = f"{write_list(names)}."
    counts = [step["metrics"].get("left") for step in steps]
    left = sum(count for count in counts if is_number(count))
    if left:
        text += f" {write_count(left, 'doubtful row')} left the training set."
    return Point("Trained", text, "training")


def _tell_sent(run: Run) -> Point:
    total = sum(line["bytes"] for line in run["ledger"])
    if not total:
        return Point("Sent", "Nothing left any party.", "ledger")
    hidden = sum(line["bytes"] for line in run["ledger"] if line["protection"] in _HIDDEN)
    open_lines = [line for line in run["ledger"] if line["protection"] not in _HIDDEN]
    kinds = len({(line["step"], line["message"]) for line in open_lines})
    how = "a real scheme would encrypt, mask or seal"
    how = how if _is_plain(run) else "was encrypted, masked or sealed"
    text = (
        f"{readable_bytes(total)} left the parties, {write_percent(hidden / total)} of which {how}"
    )
    if kinds:
        text += f"; the ledger says what the other {write_count(kinds, 'kind')} of message revealed"
    return Point("Sent", text + ".", "ledger")


def _collect_verdicts(run: Run) -> list[Verdict]:
    """The sentences at the top: what the comparison of ways and the evaluations say."""
    found = []
    for step in run["steps"]:
        details = step["details"]
        if step["name"] == "downstream":
            found += filling.list_verdicts(details)
        if step["name"] == "evaluate" and details.get("verdict"):
            found.append(Verdict(str(details["verdict"]), filling.judge_gains(details)))
    return found


def _collect_cautions(run: Run) -> list[str]:
    """What a reader must know before anything else on the page."""
    found = []
    if _is_plain(run):
        found.append(
            "This run used the scheme “plain”: what is called ciphertext was not encrypted. Use it "
            "only to try things out on one machine."
        )
    if any(step["name"] == "train risa" for step in run["steps"]):
        found.append(
            "This run trained RISA, whose gradients tell the other parties the labels of the rows "
            "that they train on."
        )
    return found


def _is_plain(run: Run) -> bool:
    schemes = {str(step["settings"].get("scheme", "")) for step in run["steps"]}
    return run["scheme"] == "plain" or "plain" in schemes


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
