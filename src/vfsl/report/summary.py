"""Run records boiled down to what a page, a table or a terminal shows: one dict for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vfsl.record import Flow, RunRecord
from vfsl.report.words import readable_bytes


def summarise(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Everything that any rendering of these runs needs, in plain values."""
    return {"runs": [_run(run) for run in runs]}


def _run(run: RunRecord) -> dict[str, Any]:
    return {
        "run": run.run,
        "created": run.created,
        "seed": run.seed,
        "private_draws": run.private_draws,
        "scheme": run.scheme,
        "versions": dict(run.versions),
        "parties": [
            {"party": party, "rows": f.rows, "columns": f.columns, "fingerprint": f.fingerprint}
            for party, f in run.parties.items()
        ],
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
        "sent": _sent(run.ledger),
        "ledger": [_line(flow) for flow in run.ledger],
        "shown": [asdict(line) for line in run.shown],
    }


def _sent(flows: Sequence[Flow]) -> list[dict[str, Any]]:
    """What left each party in all, by kind of protection."""
    totals: dict[tuple[str, str], int] = defaultdict(int)
    for flow in flows:
        totals[flow.sender, flow.kind] += flow.bytes
    return [
        {"party": party, "kind": kind, "bytes": size, "size": readable_bytes(size)}
        for (party, kind), size in sorted(totals.items())
    ]


def _line(flow: Flow) -> dict[str, Any]:
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
