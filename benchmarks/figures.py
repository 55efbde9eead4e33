"""Figures of experiments: values with their deviations, one panel per group, in one SVG file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from vfsl.report.svg import Scale, label_ticks, place_ticks, tag, widen

Row = Mapping[str, Any]
_WIDTH, _LABELS, _STEP, _HEAD, _FOOT = 720.0, 290.0, 19.0, 34.0, 44.0
_STYLE = """
svg { background: #fff; font: 12px system-ui, sans-serif; }
.head { font-weight: 600; font-size: 13px; }
.label, .tick { fill: #444; } .tick { font-size: 11px; }
.grid { stroke: #e3e3e3; } .whisker { stroke: #7aa6d8; stroke-width: 3; stroke-linecap: round; }
.dot { fill: #1f5fa8; } .ours { fill: #c2410c; }
"""


@dataclass(frozen=True)
class Panels:
    """What to draw of a table: one panel for each value of ``by``.

    Attributes
    ----------
    value : str, or tuple of str
        The column of the values, or several columns, each of which is a line of the panel.
    label : tuple of str
        Columns that name a line.
    by : tuple of str
        Columns whose values distinguish the panels.
    deviation : str, optional
        The column of the deviations.
    """

    value: str | tuple[str, ...]
    label: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    deviation: str | None = None


@dataclass(frozen=True)
class Line:
    """One value of a panel."""

    label: str
    value: float
    deviation: float


def panels_of(rows: Sequence[Row], panels: Panels) -> dict[str, list[Line]]:
    """The lines of each panel, by its title; rows without the value are left out."""
    found: dict[str, list[Line]] = {}
    for row in rows:
        lines = list(_lines(row, panels))
        if lines:
            title = ", ".join(_said(name, row.get(name)) for name in panels.by)
            found.setdefault(title, []).extend(lines)
    return found


def figure(title: str, rows: Sequence[Row], every: Sequence[Panels]) -> str:
    """All panels below each other; empty if there is nothing to draw."""
    parts: list[Markup] = []
    top = 0.0
    for panels in every:
        for name, lines in panels_of(rows, panels).items():
            what = panels.value if isinstance(panels.value, str) else ""
            height = _HEAD + _STEP * len(lines) + _FOOT
            head = " · ".join(part for part in (title, name) if part)
            drawn = _panel(head, what, lines, height)
            parts.append(tag("g", *drawn, transform=f"translate(0 {top:.0f})"))
            top += height
    if not parts:
        return ""
    picture = tag(
        "svg",
        tag("style", Markup(_STYLE)),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH:.0f} {top:.0f}",
        width=_WIDTH,
        height=top,
        role="img",
        aria_label=title,
    )
    return str(picture) + "\n"


def _panel(title: str, what: str, lines: Sequence[Line], height: float) -> Iterator[Markup]:
    ends = [line.value + side * line.deviation for line in lines for side in (-1, 1)]
    across = Scale(*widen(ends), _LABELS, _WIDTH - 20)
    base = height - _FOOT
    yield tag("text", title, x="8", y="20", class_="head")
    values = place_ticks(across.low, across.high, 7)
    for value, text in zip(values, label_ticks(values), strict=True):
        x = across(value)
        yield tag("line", x1=x, x2=x, y1=_HEAD - 6, y2=base, class_="grid")
        yield tag("text", text, x=x, y=base + 16, class_="tick", text_anchor="middle")
    yield tag("text", what, x=(_LABELS + _WIDTH) / 2, y=base + 32, class_="tick")
    for place, line in enumerate(lines):
        y = _HEAD + _STEP * (place + 0.5)
        yield tag("text", line.label, x=_LABELS - 10, y=y + 4, class_="label", text_anchor="end")
        low, high = across(line.value - line.deviation), across(line.value + line.deviation)
        yield tag("line", x1=low, x2=high, y1=y, y2=y, class_="whisker")
        ours = any(word in line.label for word in ("vfsl", "VFPU", "RISA", "blend"))
        kind = "ours" if ours else "dot"
        tip = tag("title", f"{line.label}: {line.value:.4g} ± {line.deviation:.2g}")
        yield tag("circle", tip, cx=across(line.value), cy=y, r="5", class_=kind)


def _lines(row: Row, panels: Panels) -> Iterator[Line]:
    if isinstance(panels.value, str):
        named = [(panels.value, ", ".join(str(row.get(name, "")) for name in panels.label))]
    else:
        named = [(column, column) for column in panels.value]
    for column, label in named:
        value = row.get(column)
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            spread = row.get(panels.deviation) if panels.deviation else None
            yield Line(label, float(value), float(spread or 0.0))


def _said(name: str, value: Any) -> str:
    """A fraction as a percentage; everything else as it is."""
    text = f"{value:.0%}" if isinstance(value, float) and 0 < value <= 1 else str(value)
    return f"{text} {name}" if isinstance(value, float) else text
