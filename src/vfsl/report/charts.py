"""Charts as inline SVG: pure functions from numbers to a picture, its tips and a table of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vfsl.report.svg import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    draw_axis,
    draw_bin_axis,
    draw_frame,
    draw_label,
    draw_mark,
    draw_path,
    draw_picture,
    measure_labels,
    tag,
    widen,
)
from vfsl.report.words import is_number, write_bound, write_count, write_number, write_percent

_MOST_MARKS = 60


@dataclass(frozen=True)
class Chart:
    """A picture, what its colours mean, and the same as a table."""

    title: str
    svg: Markup
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    legend: Sequence[tuple[str, int]] = ()
    note: str = ""


@dataclass(frozen=True)
class Series:
    """Points of one colour; those that are not numbers are left out."""

    name: str
    points: Sequence[tuple[float, float]]
    tone: int = 1


@dataclass(frozen=True)
class Dot:
    """One line of a dot chart."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    tone: int = 1
    more: str = ""


@dataclass(frozen=True)
class Bar:
    """One bar, in parts: what, how much, in which colour."""

    label: str
    parts: Sequence[tuple[str, float, int]]
    texts: Sequence[str] = ()  # how the parts read; the numbers by default
    whole: str = ""  # how their sum reads


def draw_lines(
    title: str,
    series: Sequence[Series],
    *,
    x: str,
    y: str,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    diagonal: str = "",
    rule: tuple[str, float] | None = None,
    percents: bool = False,
    note: str = "",
) -> Chart:
    """Curves; ``diagonal`` and ``rule`` name a line to compare with."""
    kept = [
        Series(one.name, [p for p in one.points if is_number(p[0]) and is_number(p[1])], one.tone)
        for one in series
    ]
    kept = [one for one in kept if one.points]
    every = [point for one in kept for point in one.points]
    heights = [point[1] for point in every] + ([rule[1]] if rule else [])
    across = Scale(*(x_range or _find_range([p[0] for p in every])), LEFT, WIDTH - RIGHT)
    height = 220.0
    up = Scale(*(y_range or widen(heights)), height - BOTTOM, TOP)
    write = write_percent if percents else write_number
    body = [draw_frame(across, up, height, x, percents)]
    guides = [(diagonal, up.low, up.high)] if diagonal else []
    guides += [(rule[0], rule[1], rule[1])] if rule is not None else []
    for name, start, end in guides:
        ends = (across.low, start), (across.high, end)
        body.append(draw_path([(across(a), up(b)) for a, b in ends], "guide", name))
    for one in kept:
        places = [(across(a), up(b)) for a, b in one.points]
        body.append(draw_path(places, f"curve s{one.tone}"))
        every_nth = max(1, -(-len(one.points) // _MOST_MARKS))
        for (a, b), (left, top) in list(zip(one.points, places, strict=True))[::every_nth]:
            dot = tag("circle", cx=left, cy=top, r="3.5", class_=f"f{one.tone}")
            body.append(draw_mark(f"{one.name}: {y} {write(b)} at {x} {write(a)}", dot))
    words = [
        f"{one.name}: from {write(one.points[0][1])} to {write(one.points[-1][1])}" for one in kept
    ]
    return Chart(
        title,
        draw_picture(title, ". ".join(words), body, height),
        ("curve", x, y),
        [(one.name, write(a), write(b)) for one in kept for a, b in one.points],
        [(one.name, one.tone) for one in kept] if len(kept) > 1 else (),
        note,
    )


def draw_bars(title: str, lines: Sequence[Bar], *, x: str) -> Chart:
    """Lying bars, each of one or more parts."""
    sums = [sum(value for _, value, _ in one.parts if is_number(value)) for one in lines]
    left = measure_labels([one.label for one in lines])
    across = Scale(0.0, max([0.0, *sums, 1e-12]), left, WIDTH - RIGHT - 52)
    step, body, rows, ends = 30.0, [], [], []
    for place, (one, whole) in enumerate(zip(lines, sums, strict=True)):
        top = TOP + place * step
        body.append(draw_label(one.label, left - 8, top + 13))
        start = 0.0
        texts = one.texts or [write_number(value) for _, value, _ in one.parts]
        for (name, value, tone), text in zip(one.parts, texts, strict=True):
            rows.append((one.label, name, text))
            if not is_number(value) or value <= 0:
                continue
            x0, x1 = across(start), across(start + value)
            start += value
            box = tag("rect", x=x0, y=top, width=max(x1 - x0, 1.0), height=18.0, class_=f"f{tone}")
            body.append(draw_mark(f"{one.label}, {name}: {text}", box))
        ends.append(one.whole or (texts[0] if len(one.parts) == 1 else write_number(whole)))
        body.append(tag("text", ends[-1], x=across(start) + 6, y=top + 13, class_="value"))
    names = list(dict.fromkeys((name, tone) for one in lines for name, _, tone in one.parts))
    words = "; ".join(f"{one.label}: {end}" for one, end in zip(lines, ends, strict=True))
    svg = draw_picture(title, words, body, TOP + step * max(len(lines), 1))
    return Chart(title, svg, ("", "part", x), rows, names if len(names) > 1 else ())


def draw_histogram(
    title: str,
    edges: Sequence[float],
    groups: Mapping[str, Sequence[int]],
    *,
    x: str,
    tones: Sequence[int] = (1, 2),
    note: str = "",
) -> Chart:
    """One or two groups of rows over the same bins, each in fractions; the outer bins are open."""
    bounds = _find_bounds(edges)
    names = [_name_bin(edges, place) for place in range(len(edges) + 1)]
    widths = [two - one for one, two in itertools.pairwise(bounds)]
    fractions = _divide(groups)
    dense = [[f / w for f, w in zip(one, widths, strict=True)] for one in fractions.values()]
    height = 190.0
    across = Scale(bounds[0], bounds[-1], LEFT - 30, WIDTH - RIGHT)
    up = Scale(0.0, max([d for one in dense for d in one] + [1e-300]), height - BOTTOM, TOP)
    body = [draw_bin_axis(across, height, x, edges)]
    for at, heights in enumerate(dense):
        corners = [(across(bounds[0]), up(0.0))]
        for place, top in enumerate(heights):
            corners += [(across(bounds[place]), up(top)), (across(bounds[place + 1]), up(top))]
        corners.append((across(bounds[-1]), up(0.0)))
        tone = tones[at % len(tones)]
        body.append(draw_path(corners, f"area f{tone}" if at == 0 else f"curve s{tone}"))
    rows = []
    for place, name in enumerate(names):
        cells = [(group, fractions[group][place], int(groups[group][place])) for group in groups]
        text = "; ".join(f"{g} {write_percent(f, 1)} ({write_number(n)})" for g, f, n in cells)
        start, end = across(bounds[place]), across(bounds[place + 1])
        deep = height - BOTTOM - TOP
        box = tag("rect", x=start, y=TOP, width=end - start, height=deep, class_="catch")
        body.append(draw_mark(f"{name}: {text}", box))
        rows.append((name, *(f"{write_number(n)} ({write_percent(f, 1)})" for _, f, n in cells)))
    svg = draw_picture(title, _count_rows(groups), body, height)
    return Chart(title, svg, (x, *groups), rows, _list_tones(groups, tones), note)


def draw_levels(title: str, names: Sequence[str], groups: Mapping[str, Sequence[int]]) -> Chart:
    """Fractions of categories in one or two groups of rows, side by side."""
    left, tones = measure_labels(names), (1, 2)
    fractions = _divide(groups)
    most = max([f for one in fractions.values() for f in one] + [1e-12])
    across = Scale(0.0, most, left, WIDTH - RIGHT - 52)
    step, body, rows = 12.0 * len(groups) + 8, [], []
    for place, level in enumerate(names):
        top = TOP + place * step
        body.append(draw_label(level, left - 8, top + step / 2))
        cells = []
        for at, (name, one) in enumerate(fractions.items()):
            y, end = top + at * 12, across(one[place])
            cells.append(
                f"{write_percent(one[place], 1)} ({write_number(int(groups[name][place]))})"
            )
            tone = f"f{tones[at % len(tones)]}"
            box = tag("rect", x=left, y=y, width=max(end - left, 0.5), height=11.0, class_=tone)
            body.append(draw_mark(f"{level}, {name}: {cells[-1]}", box))
            text = write_percent(one[place])
            body.append(tag("text", text, x=end + 5, y=y + 10, class_="value small"))
        rows.append((level, *cells))
    svg = draw_picture(title, _count_rows(groups), body, TOP + step * max(len(names), 1))
    return Chart(title, svg, ("", *groups), rows, _list_tones(groups, tones))


def draw_dots(
    title: str,
    lines: Sequence[Dot],
    *,
    x: str,
    rule: tuple[str, float] | None = None,
    legend: Sequence[tuple[str, int]] = (),
    note: str = "",
) -> Chart:
    """Values with their intervals, one below the other; ``rule`` is a line to compare with."""
    kept = [one for one in lines if is_number(one.value)]
    ends = [v for one in kept for v in (one.value, one.low, one.high) if is_number(v)]
    ends += [rule[1]] if rule else []
    left = measure_labels([one.label for one in kept])
    across = Scale(*widen(ends), left, WIDTH - RIGHT - 6)
    step = 24.0
    height = TOP + step * max(len(kept), 1) + BOTTOM
    body = [draw_axis(across, height, x)]
    if rule is not None:
        place = across(rule[1])
        body.append(draw_path([(place, TOP - 4), (place, height - BOTTOM)], "guide", rule[0]))
    rows = []
    for place, one in enumerate(kept):
        middle = TOP + step * place + step / 2
        body.append(draw_label(one.label, left - 8, middle + 4))
        text = write_number(one.value)
        wide = WIDTH - RIGHT - left
        parts = [tag("rect", x=left, y=middle - 11, width=wide, height=22.0, class_="catch")]
        if is_number(one.low) and is_number(one.high):
            points = [(across(one.low), middle), (across(one.high), middle)]
            parts.append(draw_path(points, f"whisker s{one.tone}"))
            text += f" ({write_number(one.low)} to {write_number(one.high)})"
        parts.append(tag("circle", cx=across(one.value), cy=middle, r="5", class_=f"f{one.tone}"))
        more = f"; {one.more}" if one.more else ""
        body.append(draw_mark(f"{one.label}: {text}{more}", *parts))
        rows.append((one.label, text, one.more))
    words = "; ".join(f"{one.label} {write_number(one.value)}" for one in kept[:12])
    return Chart(title, draw_picture(title, words, body, height), ("", x, ""), rows, legend, note)


# ---- groups, bins and ranges ----------------------------------------------------------------


def _divide(groups: Mapping[str, Sequence[int]]) -> dict[str, list[float]]:
    """Counts as fractions of their group."""
    return {
        name: [count / max(sum(counts), 1) for count in counts] for name, counts in groups.items()
    }


def _count_rows(groups: Mapping[str, Sequence[int]]) -> str:
    counts = {name: int(sum(counts)) for name, counts in groups.items()}
    return "; ".join(f"{name}: {write_count(count, 'row')}" for name, count in counts.items())


def _list_tones(groups: Mapping[str, Sequence[int]], tones: Sequence[int]) -> list[tuple[str, int]]:
    return [(name, tones[at % len(tones)]) for at, name in enumerate(groups)]


def _find_range(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _find_bounds(edges: Sequence[float]) -> list[float]:
    """Bounds with an end for the open bins, as wide as an ordinary one."""
    if not edges:
        return [0.0, 1.0]
    if len(edges) == 1:
        room = abs(edges[0]) or 1.0
        return [edges[0] - room, edges[0], edges[0] + room]
    widths = sorted(two - one for one, two in itertools.pairwise(edges))
    room = widths[len(widths) // 2]
    return [edges[0] - room, *edges, edges[-1] + room]


def _name_bin(edges: Sequence[float], place: int) -> str:
    if not edges:
        return "all values"
    if place == 0:
        return f"below {write_bound(edges[0])}"
    if place == len(edges):
        return f"{write_bound(edges[-1])} and more"
    return f"{write_bound(edges[place - 1])} to {write_bound(edges[place])}"
