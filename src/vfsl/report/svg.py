"""Inline SVG: escaped tags, scales, ticks, axes, marks with tips. Colours come from the page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from vfsl.report.words import shorten, write_bound, write_number, write_percent

# Narrow, so that letters stay readable where a phone shows it at its full width.
WIDTH = 380.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 10.0, 40.0


def tag(name: str, *inside: str | Markup, **attributes: str | float) -> Markup:
    """An element; names end in "_" where Python has taken them, and "_" stands for "-"."""
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _write_attribute(value))
        for key, value in attributes.items()
    )
    content = Markup("").join(escape(part) for part in inside)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), given, content)


def _write_attribute(value: str | float) -> str:
    """Coordinates to a tenth: nobody sees more, and pages stay small."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


# ---- scales ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """A straight line from values to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return (self.start + self.end) / 2
        fraction = (value - self.low) / (self.high - self.low)
        return self.start + fraction * (self.end - self.start)


def widen(values: Sequence[float], fraction: float = 0.06) -> tuple[float, float]:
    """Bounds a little wider than the values; equal values get room too."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if high == low:
        return low - (abs(low) or 1.0) * 0.1, high + (abs(high) or 1.0) * 0.1
    room = (high - low) * fraction
    return low - room, high + room


def place_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most so many round numbers between two bounds."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    while True:
        for factor in (1, 2, 5):
            width = step * factor
            first, last = math.ceil(low / width - 1e-9), math.floor(high / width + 1e-9)
            if last - first + 1 <= most:
                return [round(place * width, 12) for place in range(first, last + 1)]
        step *= 10


def label_ticks(values: Sequence[float]) -> list[str]:
    """Labels with as many digits as their steps need: 0.80 beside 0.85, 20k beside 40k."""
    if len(values) < 2:
        return [write_number(value) for value in values]
    step = min(abs(two - one) for one, two in itertools.pairwise(values))
    if max(map(abs, values)) >= 10_000:
        unit, mark = (1e6, "M") if max(map(abs, values)) >= 1e6 else (1e3, "k")
        return ["0" if value == 0 else write_bound(value / unit) + mark for value in values]
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    return [f"{value:,.{min(digits, 6)}f}".replace("-", "−") for value in values]


# ---- parts of charts ------------------------------------------------------------------------


def draw_picture(title: str, words: str, body: Sequence[Markup], height: float) -> Markup:
    """The whole drawing: one stop of the keyboard, whose marks are reached by arrows."""
    text = f"{title}. {words}" if words else title
    return tag(
        "svg",
        *body,
        class_="chart",
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        tabindex="0",
        aria_label=text,
    )


def draw_mark(tip: str, *shapes: Markup) -> Markup:
    return tag("g", tag("title", tip), *shapes, class_="mark")


def draw_path(points: Sequence[tuple[float, float]], kind: str, tip: str = "") -> Markup:
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    inside = (tag("title", tip),) if tip else ()
    return tag("path", *inside, d=f"M{steps}", class_=kind)


def draw_label(text: str, right: float, base: float) -> Markup:
    short = shorten(text, max(4, int(right / 7.2)))
    return tag("text", short, x=right, y=base, class_="label", text_anchor="end")


def measure_labels(labels: Sequence[str]) -> float:
    """How much room they need."""
    longest = max((len(label) for label in labels), default=0)
    return min(max(46.0, 7.0 * longest + 12), 164.0)


def draw_frame(across: Scale, up: Scale, height: float, x: str, percents: bool = False) -> Markup:
    """Both axes, with lines across at round heights."""
    parts = [draw_axis(across, height, x, percents=percents)]
    values = place_ticks(up.low, up.high)
    texts = [write_percent(v) for v in values] if percents else label_ticks(values)
    for value, text in zip(values, texts, strict=True):
        top = up(value)
        parts.append(draw_path([(LEFT, top), (WIDTH - RIGHT, top)], "grid"))
        parts.append(tag("text", text, x=LEFT - 6, y=top + 4, class_="tick", text_anchor="end"))
    return tag("g", *parts, aria_hidden="true")


def draw_axis(across: Scale, height: float, x: str, *, percents: bool = False) -> Markup:
    """An axis along the bottom."""
    values = place_ticks(across.low, across.high, 6)
    texts = [write_percent(v) for v in values] if percents else label_ticks(values)
    marks = [(across(v), text) for v, text in zip(values, texts, strict=True)]
    return _draw_axis(across, height, x, marks)


def draw_bin_axis(across: Scale, height: float, x: str, edges: Sequence[float]) -> Markup:
    """An axis of bins. The open ones have no scale: signs say "below" and "and more"."""
    if not edges:
        return _draw_axis(across, height, x, [])
    low, high = f"<\u2009{write_bound(edges[0])}", f"≥\u2009{write_bound(edges[-1])}"
    first, last = across(edges[0]), across(edges[-1])
    ends = [((across.start + first) / 2, low), ((last + across.end) / 2, high)]
    values = place_ticks(edges[0], edges[-1], 5)
    inner = [(across(v), text) for v, text in zip(values, label_ticks(values), strict=True)]
    apart = [
        (place, text)
        for place, text in inner
        if min(abs(place - end) for end, _ in ends) > 3.4 * (len(text) + max(len(low), len(high)))
        and first + 1 < place < last - 1
    ]
    return _draw_axis(across, height, x, [ends[0], *apart, ends[1]])


def _draw_axis(across: Scale, height: float, x: str, marks: Sequence[tuple[float, str]]) -> Markup:
    base = height - BOTTOM
    parts = [draw_path([(across.start, base), (across.end, base)], "axis")]
    for place, text in marks:
        parts.append(draw_path([(place, base), (place, base + 4)], "axis"))
        parts.append(tag("text", text, x=place, y=base + 16, class_="tick", text_anchor="middle"))
    text = shorten(x, 54)
    room = 3.4 * len(text)  # half of its width
    middle = min(max((across.start + across.end) / 2, room), WIDTH - room)
    name = tag("text", text, x=middle, y=base + 34, class_="name", text_anchor="middle")
    return tag("g", *parts, name, aria_hidden="true")
