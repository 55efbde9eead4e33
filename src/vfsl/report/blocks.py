"""What a section of the page is made of; the template knows how each kind looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vfsl.report.charts import Chart
from vfsl.report.words import write_number


class Block:
    """A part of a section; the template draws it by its kind, which is the name of its class."""

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Section:
    """A part of the page with a place in its menu."""

    id: str
    title: str
    lead: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Text(Block):
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Heading(Block):
    """A part of a section."""

    text: str


@dataclass(frozen=True)
class Verdict(Block):
    """The sentence to remember; ``tone`` is good, bad or open, ``more`` goes below it."""

    text: str
    tone: str
    more: str = ""


@dataclass(frozen=True)
class Notes(Block):
    """What to beware of."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Cards(Block):
    """A few figures: name, value, a word on it."""

    cards: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Figures(Block):
    """Charts side by side; those after ``shown`` are folded away."""

    charts: Sequence[Chart]
    shown: int = 12
    folded: str = "more charts"


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, how it is meant, and a bar behind it (0 to 1)."""

    text: str
    tone: str = ""
    bar: float | None = None
    numeric: bool = False


@dataclass(frozen=True)
class Table(Block):
    """A table; a long one gets a filter, one with a name to fold it by is folded away."""

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: str = ""


def make_cell(value: Any, tone: str = "", bar: float | None = None) -> Cell:
    """A value as a cell; numbers stand on the right."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(write_number(value), tone, bar, numeric or value is None)
