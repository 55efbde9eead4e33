"""What a section of the page is made of; the template knows how each kind looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vfsl.report.charts import Chart
from vfsl.report.words import number


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, how it is meant, and a bar behind it (0 to 1)."""

    text: str
    tone: str = ""
    bar: float | None = None
    numeric: bool = False


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str
    tone: str = ""


@dataclass(frozen=True)
class Heading:
    """A part of a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Verdict:
    """The sentence to remember; ``tone`` is good, bad or open."""

    kind: ClassVar[str] = "verdict"
    text: str
    tone: str
    more: str = ""


@dataclass(frozen=True)
class Notes:
    """What to beware of."""

    kind: ClassVar[str] = "notes"
    texts: Sequence[str]


@dataclass(frozen=True)
class Cards:
    """A few figures: name, value, a word on it."""

    kind: ClassVar[str] = "cards"
    cards: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Figures:
    """Charts side by side; those after ``shown`` are folded away."""

    kind: ClassVar[str] = "figures"
    charts: Sequence[Chart]
    shown: int = 12
    folded: str = "more charts"


@dataclass(frozen=True)
class Table:
    """A table; a long one gets a filter, one with a name to fold it by is folded away."""

    kind: ClassVar[str] = "table"
    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    folded: str = ""


Block = Text | Heading | Verdict | Notes | Cards | Figures | Table


@dataclass(frozen=True)
class Section:
    """A part of the page with a place in its menu."""

    id: str
    title: str
    lead: str
    blocks: Sequence[Block]


def cell(value: Any, tone: str = "", bar: float | None = None) -> Cell:
    """A value as a cell; numbers stand on the right."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(number(value), tone, bar, numeric or value is None)
