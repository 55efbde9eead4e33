"""Where commands print, and how the outcome of a run looks there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from vfsl.federation import Federation
    from vfsl.job import Preview
    from vfsl.job.estimates import Estimate

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """A line for the reader of standard output."""
    out.print(text, markup=False, soft_wrap=True)


def complain(text: str) -> None:
    """A line for whoever watches for trouble."""
    err.print(f"vfsl: {text}", style="red", markup=False, soft_wrap=True)


def print_summary(fed: Federation, folder: Path) -> None:
    """What came of it, first; then a line for each step, and where the results are."""
    from vfsl.report import summarise
    from vfsl.report.telling import tell_columns, tell_notes, tell_step

    steps = summarise([fed.record])["runs"][0]["steps"]
    for step in steps:
        if step["name"] == "evaluate":
            for line in told_lines(step):
                say(line)
            say("")
    for step in steps:
        line = tell_step(step, steps)
        if line:
            say(line)
        for text in tell_columns(step):
            say(f"  {text}")
        for note in tell_notes(step):
            say(f"  note: {note}")
    say(f"Results: {folder}")
    say(f"Report:  {folder / 'report.html'}")


def told_lines(step: Mapping[str, Any]) -> list[str]:
    """An evaluation: its headline, the answers, and the figures of each model."""
    from vfsl.report.figures import tell_figure

    details = step["details"]
    lines = [str(details["verdict"]), ""]
    lines += [f"- {one['text']}" for one in details.get("questions") or []]
    rows = details.get("test rows", 0)
    lines += ["", f"On {rows:,} held-out rows, with {step['settings']['level']:.0%} intervals:"]
    lines += [f"  {line}" for line in judged_lines(details["metrics"])]
    figures = details.get("figures") or {}
    return lines + [
        f"  {line}" for name, one in figures.items() if (line := tell_figure(name, one))
    ]


def judged_lines(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each model: its measures on held-out rows, with their bounds."""
    by_model: dict[str, list[str]] = {}
    for line in metrics:
        text = f"{line['measure']} {line['value']:.3f} ({line['low']:.3f} to {line['high']:.3f})"
        by_model.setdefault(line["model"], []).append(text)
    width = max(map(len, by_model), default=0)
    return [f"{model:{width}}  {'  '.join(texts)}" for model, texts in by_model.items()]


def print_preview(seen: Preview) -> None:
    """What a job would do and reveal."""
    from vfsl.job.estimates import Estimate

    for party, (rows, columns) in seen.sizes.items():
        say(f"{party}: {rows:,} rows, {columns} columns")
    say("\nSteps, with rough times on two cores, bytes, and their time at 20 Mbit/s:")
    for step in seen.steps:
        given = ", ".join(f"{name} = {_shown(value)}" for name, value in step.settings.items())
        say(f"  {step.number}. {step.do}: {given} ({_estimated(step.estimate)})")
    known = [step.estimate for step in seen.steps]
    seconds = sum(one.seconds or 0.0 for one in known)
    sent = sum(one.bytes or 0.0 for one in known)
    say(f"  In all {_estimated(Estimate(seconds, sent))}.")
    say("\nWhat would leave each party, rehearsed on made-up rows:")
    last = ""
    for line in seen.reveals:
        if line.step != last:
            say(f"  {line.step}")
            last = line.step
        who = f"{line.sender} → {line.receiver}"
        say(f"    {who}: {line.message} ({line.protection}): {line.fact}")
    for note in seen.notes:
        say(f"note: {note}")
    say("Nothing was written.")


def _shown(value: Any) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _estimated(one: Estimate) -> str:
    from vfsl.report.words import readable_bytes

    text = _about(one.seconds)
    if one.bytes is None:
        return f"{text}, bytes not estimated"
    line = _about(one.on_the_line).removeprefix("about ")
    return f"{text}, {readable_bytes(round(one.bytes))}, {line} on the line"


def _about(seconds: float | None) -> str:
    if seconds is None:
        return "time not estimated"
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"
