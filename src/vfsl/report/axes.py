"""Parts that charts share: the picture itself, marks with tips, labels and axes."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from vfsl.report.svg import Scale, tag, tick_text, ticks
from vfsl.report.words import bound, percent, shorten

# Narrow, so that letters stay readable where a phone shows it at its full width.
WIDTH = 380.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 12.0, 10.0, 40.0


def picture(title: str, words: str, body: Sequence[Markup], height: float) -> Markup:
    """The drawing: one stop of the keyboard, whose marks are reached by arrows."""
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


def mark(tip: str, *shapes: Markup) -> Markup:
    return tag("g", tag("title", tip), *shapes, class_="mark")


def path(points: Sequence[tuple[float, float]], kind: str, tip: str = "") -> Markup:
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    inside = (tag("title", tip),) if tip else ()
    return tag("path", *inside, d=f"M{steps}", class_=kind)


def label(text: str, right: float, base: float) -> Markup:
    most = max(4, int(right / 7.2))
    return tag("text", shorten(text, most), x=right, y=base, class_="label", text_anchor="end")


def label_room(labels: Sequence[str]) -> float:
    longest = max((len(label) for label in labels), default=0)
    return min(max(46.0, 7.0 * longest + 12), 164.0)


def frame(across: Scale, up: Scale, height: float, x: str, percents: bool = False) -> Markup:
    """Both axes, with lines across at round heights."""
    parts = [x_axis(across, height, x, percents=percents)]
    values = ticks(up.low, up.high)
    texts = [percent(v) for v in values] if percents else tick_text(values)
    for value, text in zip(values, texts, strict=True):
        top = up(value)
        parts.append(path([(LEFT, top), (WIDTH - RIGHT, top)], "grid"))
        parts.append(tag("text", text, x=LEFT - 6, y=top + 4, class_="tick", text_anchor="end"))
    return tag("g", *parts, aria_hidden="true")


def x_axis(across: Scale, height: float, x: str, *, percents: bool = False) -> Markup:
    values = ticks(across.low, across.high, 6)
    texts = [percent(v) for v in values] if percents else tick_text(values)
    return _axis(across, height, x, [(across(v), t) for v, t in zip(values, texts, strict=True)])


def bin_axis(across: Scale, height: float, x: str, edges: Sequence[float]) -> Markup:
    """The open bins have no scale: they say "below" and "and more" in signs."""
    if not edges:
        return _axis(across, height, x, [])
    low, high = f"<\u2009{bound(edges[0])}", f"≥\u2009{bound(edges[-1])}"
    ends = [((across.start + across(edges[0])) / 2, low)]
    ends.append(((across(edges[-1]) + across.end) / 2, high))
    values = ticks(edges[0], edges[-1], 5)
    inner = [(across(v), text) for v, text in zip(values, tick_text(values), strict=True)]
    apart = [
        (place, text)
        for place, text in inner
        if min(abs(place - end) for end, _ in ends) > 3.4 * (len(text) + max(len(low), len(high)))
        and across(edges[0]) + 1 < place < across(edges[-1]) - 1
    ]
    return _axis(across, height, x, [ends[0], *apart, ends[1]])


def _axis(across: Scale, height: float, x: str, marks: Sequence[tuple[float, str]]) -> Markup:
    base = height - 40
    parts = [path([(across.start, base), (across.end, base)], "axis")]
    for place, text in marks:
        parts.append(path([(place, base), (place, base + 4)], "axis"))
        parts.append(tag("text", text, x=place, y=base + 16, class_="tick", text_anchor="middle"))
    text = shorten(x, 54)
    room = 3.4 * len(text)  # half of its width
    middle = min(max((across.start + across.end) / 2, room), WIDTH - room)
    name = tag("text", text, x=middle, y=base + 34, class_="name", text_anchor="middle")
    return tag("g", *parts, name, aria_hidden="true")
