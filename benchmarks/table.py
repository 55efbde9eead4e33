"""The outcome of an experiment: rows of plain values, and how they are written down."""

from __future__ import annotations

import csv
import io
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import Panels, figure
from vfsl import store
from vfsl.record import versions
from vfsl.report.words import write_rounded


@dataclass(frozen=True)
class Outcome:
    """Rows of one experiment, with what is needed to judge them.

    If there is a column named ``what``, pages have one table for each of its values.
    """

    name: str
    title: str
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()
    panels: Sequence[Panels] = ()
    command: str = "bench"  # the command that runs it
    machine: Mapping[str, Any] = field(default_factory=lambda: machine())
    versions: Mapping[str, str] = field(default_factory=lambda: versions())

    def columns(self) -> list[str]:
        """All keys of all rows, in order of appearance."""
        return list(dict.fromkeys(key for row in self.rows for key in row))

    def save(self, folder: Path) -> None:
        """Write NAME.json, NAME.csv, NAME.md, NAME.tex and, if there are panels, NAME.svg."""
        content = asdict(self)
        content.pop("panels")
        store.write_json(folder / f"{self.name}.json", content)
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        store.write_text(folder / f"{self.name}.csv", text.getvalue())
        store.write_text(folder / f"{self.name}.md", self.markdown())
        store.write_text(folder / f"{self.name}.tex", self.latex())
        drawn = figure(self.title, self.rows, self.panels)
        if drawn:
            store.write_text(folder / f"{self.name}.svg", drawn)

    def tables(self) -> list[tuple[list[str], list[Mapping[str, Any]]]]:
        """Columns and rows of each table; a column that is empty throughout is left out."""
        kinds: dict[Any, list[Mapping[str, Any]]] = {}
        for row in self.rows:
            kinds.setdefault(row.get("what"), []).append(row)
        return [
            ([name for name in self.columns() if any(_filled(row, name) for row in rows)], rows)
            for rows in kinds.values()
        ]

    def markdown(self) -> str:
        lines = [f"# {self.title}", "", f"Measured by `vfsl {self.command} run {self.name}`.", ""]
        for columns, rows in self.tables():
            lines += [_line(columns), _line(["---"] * len(columns))]
            lines += [
                *(_line([write_rounded(row.get(name)) for name in columns]) for row in rows),
                "",
            ]
        lines += [f"- {note}" for note in self.notes]
        lines += [f"- {name}: {value}" for name, value in self.machine.items()]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """The tables for a paper; they need the booktabs package."""
        made = [
            latex_table(
                [_escaped(name) for name in columns],
                [[_escaped(write_rounded(row.get(name))) for name in columns] for row in rows],
            )
            for columns, rows in self.tables()
        ]
        return "\n".join(made)


def latex_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A LaTeX table of cells that are LaTeX already."""
    lines = [f"\\begin{{tabular}}{{{'l' * len(head)}}}", "\\toprule"]
    lines += [" & ".join(head) + " \\\\", "\\midrule"]
    lines += [" & ".join(row) + " \\\\" for row in rows]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


_SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "±": "$\\pm$",
    "×": "$\\times$",
    "≤": "$\\leq$",
    "≥": "$\\geq$",
    "−": "$-$",
    "τ": "$\\tau$",
    "θ": "$\\theta$",
}


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)


def _filled(row: Mapping[str, Any], name: str) -> bool:
    return row.get(name) is not None


def judged(text: str, reached: bool, figure: str) -> str:
    """The line that says whether a goal was reached."""
    return f"Goal, {text}: {figure}: {'reached' if reached else 'NOT reached'}."


def machine() -> dict[str, Any]:
    """The machine on which times were measured, without its name."""
    return {"cores": os.cpu_count(), "processor": platform.machine(), "system": platform.system()}


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
