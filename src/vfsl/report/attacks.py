"""The section of the page on an audit: who could compute what, and how well controls went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vfsl.report.blocks import Block, Figures, Notes, Section, Table, Verdict, make_cell
from vfsl.report.charts import Dot, draw_dots

Step = Mapping[str, Any]

_TONES = {"green": "good", "amber": "warn", "red": "bad", "not valid": "bad"}
_MOST = 3.0  # a picture that reaches further shows nothing of the small ones
_VERDICTS = {"green": "good", "amber": "open"}


def describe_audit(steps: Sequence[Step]) -> Section | None:
    """A table by attacker and target, a picture of advantages, and the controls."""
    audits = [step["details"] for step in steps if step["name"] == "audit" and step["details"]]
    if not audits:
        return None
    blocks: list[Block] = []
    for found in audits:
        findings = found["findings"]
        verdict = _VERDICTS.get(found["mark"], "bad")
        blocks += [
            Verdict(found["verdict"], verdict),
            Table(
                "findings",
                "What each party could compute of another",
                [
                    "probe",
                    "attacker",
                    "target",
                    "attack",
                    "baseline",
                    "advantage",
                    "mark",
                    "comes from",
                    "to change",
                ],
                [_list_cells(one) for one in findings],
            ),
            Figures([_draw(found)]),
            Table(
                "controls",
                "Controls: the same attack on an open door, and where there is nothing to find",
                ["probe", "attacker", "target", "control", "advantage", "passed"],
                [cells for one in findings for cells in _list_controls(one)],
                folded="controls",
            ),
        ]
        if found["notes"]:
            blocks.append(Notes(found["notes"]))
    lead = (
        "The job was run and what each party saw was kept; each line is an attack on that by a "
        "party that follows the protocol."
    )
    return Section("audit", "Audit", lead, blocks)


def _list_cells(one: Mapping[str, Any]) -> list[Any]:
    tone = _TONES[one["mark"]]
    texts = [one["probe"], one["attacker"], one["target"]]
    numbers = [one["value"], one["baseline"], one["advantage"]]
    return [
        *map(make_cell, [*texts, *numbers]),
        make_cell(one["mark"], tone),
        make_cell(one["line"]),
        make_cell(one["change"]["says"] or "–"),
    ]


def _list_controls(one: Mapping[str, Any]) -> list[list[Any]]:
    return [
        [
            *map(make_cell, [one["probe"], one["attacker"], one["target"]]),
            make_cell(f"{control['kind']}: {control['says']}"),
            make_cell(control["value"]),
            make_cell("yes" if control["passed"] else "no", "" if control["passed"] else "bad"),
        ]
        for control in one["controls"]
    ]


def _draw(found: Mapping[str, Any]) -> Any:
    """Each advantage over the mark from which on it is red: beyond 1 a door is open."""
    dots = [
        Dot(
            f"{one['probe']}: {one['attacker']} → {one['target']}",
            min(max(one["advantage"] / found["probes"][one["probe"]]["red"], 0.0), _MOST),
        )
        for one in found["findings"]
        if one["advantage"] is not None
    ]
    return draw_dots(
        "Advantage by probe",
        dots,
        x="advantage over its red mark, at most 3",
        rule=("red from here on", 1.0),
    )
