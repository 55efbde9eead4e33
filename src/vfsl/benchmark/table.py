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

from vfsl import store
from vfsl.record import versions


@dataclass(frozen=True)
class Outcome:
    """Rows of one experiment, with what one needs to judge them."""

    name: str
    title: str
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()
    machine: Mapping[str, Any] = field(default_factory=lambda: machine())
    versions: Mapping[str, str] = field(default_factory=lambda: versions())

    def columns(self) -> list[str]:
        """All keys of all rows, in order of appearance."""
        return list(dict.fromkeys(key for row in self.rows for key in row))

    def save(self, folder: Path) -> None:
        """Write NAME.json, NAME.csv and NAME.md."""
        store.write_json(folder / f"{self.name}.json", asdict(self))
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        store.write_text(folder / f"{self.name}.csv", text.getvalue())
        store.write_text(folder / f"{self.name}.md", self.markdown())

    def markdown(self) -> str:
        columns = self.columns()
        lines = [f"# {self.title}", "", f"Measured by `vfsl bench run {self.name}`.", ""]
        lines += [_line(columns), _line(["---"] * len(columns))]
        lines += [_line([cell(row.get(column)) for column in columns]) for row in self.rows]
        lines += ["", *(f"- {note}" for note in self.notes)]
        lines += [f"- {name}: {value}" for name, value in self.machine.items()]
        return "\n".join(lines) + "\n"


def cell(value: Any) -> str:
    """A value for people: three significant digits, nothing for None."""
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def judged(text: str, reached: bool, figure: str) -> str:
    """The line that says whether a goal was reached."""
    return f"Goal, {text}: {figure}: {'reached' if reached else 'NOT reached'}."


def machine() -> dict[str, Any]:
    """What the timings were taken on; no names of hosts."""
    return {"cores": os.cpu_count(), "processor": platform.machine(), "system": platform.system()}


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
