"""Charts as inline SVG: pure functions from numbers to a picture, its tips and a table of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vfsl.report.axes import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    bin_axis,
    frame,
    label,
    label_room,
    mark,
    path,
    picture,
    x_axis,
)
from vfsl.report.svg import Scale, padded, tag
from vfsl.report.words import bound, is_number, number, percent

_MOST_MARKS = 60


@dataclass(frozen=True)
class Chart:
    """A picture, what its colours mean, and the same as a table."""

    title: str
    svg: Markup
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: tuple[tuple[str, int], ...] = ()
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
    """One bar of parts: what, how much, in which colour."""

    label: str
    parts: Sequence[tuple[str, float, int]]
    texts: Sequence[str] = ()  # how the parts read; the numbers by default
    whole: str = ""  # how their sum reads


def line(
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
    across = Scale(*(x_range or _around([p[0] for p in every])), LEFT, WIDTH - RIGHT)
    height = 220.0
    up = Scale(*(y_range or padded(heights)), height - BOTTOM, TOP)
    said = percent if percents else number
    body = [frame(across, up, height, x, percents)]
    if diagonal:
        ends = (across.low, up.low), (across.high, up.high)
        body.append(path([(across(a), up(b)) for a, b in ends], "guide", diagonal))
    if rule is not None:
        ends = (across.low, rule[1]), (across.high, rule[1])
        body.append(path([(across(a), up(b)) for a, b in ends], "guide", rule[0]))
    for one in kept:
        places = [(across(a), up(b)) for a, b in one.points]
        body.append(path(places, f"curve s{one.tone}"))
        for (a, b), (left, top) in list(zip(one.points, places, strict=True))[:: _every(one)]:
            tip = f"{one.name}: {y} {said(b)} at {x} {said(a)}"
            body.append(mark(tip, tag("circle", cx=left, cy=top, r="3.5", class_=f"f{one.tone}")))
    rows = [(one.name, said(a), said(b)) for one in kept for a, b in one.points]
    words = [
        f"{one.name}: from {said(one.points[0][1])} to {said(one.points[-1][1])}" for one in kept
    ]
    return Chart(
        title,
        picture(title, ". ".join(words), body, height),
        ("curve", x, y),
        tuple(rows),
        tuple((one.name, one.tone) for one in kept) if len(kept) > 1 else (),
        note,
    )


def bars(
    title: str, lines: Sequence[Bar], *, x: str, total: float | None = None, note: str = ""
) -> Chart:
    """Lying bars, each of one or more parts."""
    sums = [sum(value for _, value, _ in one.parts if is_number(value)) for one in lines]
    most = max([total or 0.0, *sums, 1e-12])
    left = label_room([one.label for one in lines])
    across = Scale(0.0, most, left, WIDTH - RIGHT - 52)
    step, body = 30.0, []
    for place, (one, whole) in enumerate(zip(lines, sums, strict=True)):
        top = TOP + place * step
        body.append(label(one.label, left - 8, top + 13))
        start = 0.0
        texts = one.texts or [number(value) for _, value, _ in one.parts]
        for (name, value, tone), said in zip(one.parts, texts, strict=True):
            if not is_number(value) or value <= 0:
                continue
            x0, x1 = across(start), across(start + value)
            start += value
            box = tag("rect", x=x0, y=top, width=max(x1 - x0, 1.0), height=18.0, class_=f"f{tone}")
            body.append(mark(f"{one.label}, {name}: {said}", box))
        ends = one.whole or (texts[0] if len(one.parts) == 1 else number(whole))
        body.append(tag("text", ends, x=across(start) + 6, y=top + 13, class_="value"))
    names = list(dict.fromkeys((name, tone) for one in lines for name, _, tone in one.parts))
    rows = [
        (one.label, name, said)
        for one in lines
        for (name, _, _), said in zip(
            one.parts, one.texts or [number(v) for _, v, _ in one.parts], strict=True
        )
    ]
    words = "; ".join(
        f"{one.label}: {number(whole)}" for one, whole in zip(lines, sums, strict=True)
    )
    return Chart(
        title,
        picture(title, words, body, TOP + step * max(len(lines), 1)),
        ("", "part", x),
        tuple(rows),
        tuple(names) if len(names) > 1 else (),
        note,
    )


def histogram(
    title: str,
    edges: Sequence[float],
    groups: Mapping[str, Sequence[int]],
    *,
    x: str,
    tones: Sequence[int] = (1, 2),
    note: str = "",
) -> Chart:
    """One or two groups of rows over the same bins, each as shares; the outer bins are open."""
    bounds = _drawn_bounds(edges)
    names = [_bin_name(edges, place) for place in range(len(edges) + 1)]
    wide = [two - one for one, two in itertools.pairwise(bounds)]
    shares = {
        name: [count / max(sum(counts), 1) for count in counts] for name, counts in groups.items()
    }
    dense = {name: [s / w for s, w in zip(one, wide, strict=True)] for name, one in shares.items()}
    height = 190.0
    across = Scale(bounds[0], bounds[-1], LEFT - 30, WIDTH - RIGHT)
    up = Scale(0.0, max([d for one in dense.values() for d in one] + [1e-300]), height - 40, TOP)
    body = [bin_axis(across, height, x, edges)]
    for number_of, (_name, one) in enumerate(dense.items()):
        tone = tones[number_of % len(tones)]
        corners = _steps(one, bounds, across, up)
        body.append(path(corners, f"area f{tone}" if number_of == 0 else f"curve s{tone}"))
    for place in range(len(wide)):
        said = "; ".join(
            f"{name} {percent(shares[name][place], 1)} ({number(int(groups[name][place]))})"
            for name in groups
        )
        box = tag(
            "rect",
            x=across(bounds[place]),
            y=TOP,
            width=across(bounds[place + 1]) - across(bounds[place]),
            height=height - 40 - TOP,
            class_="catch",
        )
        body.append(mark(f"{names[place]}: {said}", box))
    rows = [
        (
            names[place],
            *(f"{number(int(groups[g][place]))} ({percent(shares[g][place], 1)})" for g in groups),
        )
        for place in range(len(names))
    ]
    words = "; ".join(f"{name}: {number(int(sum(counts)))} rows" for name, counts in groups.items())
    legend = tuple((name, tones[at % len(tones)]) for at, name in enumerate(groups))
    return Chart(
        title, picture(title, words, body, height), (x, *groups), tuple(rows), legend, note
    )


def levels(
    title: str,
    names: Sequence[str],
    groups: Mapping[str, Sequence[int]],
    *,
    tones: Sequence[int] = (1, 2),
    note: str = "",
) -> Chart:
    """Shares of categories in one or two groups of rows, side by side."""
    left = label_room(names)
    shares = {
        name: [count / max(sum(counts), 1) for count in counts] for name, counts in groups.items()
    }
    most = max([s for one in shares.values() for s in one] + [1e-12])
    across = Scale(0.0, most, left, WIDTH - RIGHT - 52)
    step, body, rows = 12.0 * len(groups) + 8, [], []
    for place, level in enumerate(names):
        top = TOP + place * step
        body.append(label(level, left - 8, top + step / 2))
        for at, (name, one) in enumerate(shares.items()):
            y0 = top + at * 12
            said = f"{percent(one[place], 1)} ({number(int(groups[name][place]))})"
            box = tag(
                "rect",
                x=left,
                y=y0,
                width=max(across(one[place]) - left, 0.5),
                height=11.0,
                class_=f"f{tones[at % len(tones)]}",
            )
            body.append(mark(f"{level}, {name}: {said}", box))
            text = percent(one[place])
            body.append(
                tag("text", text, x=across(one[place]) + 5, y=y0 + 10, class_="value small")
            )
        rows.append(
            (level, *(f"{percent(shares[g][place], 1)} ({groups[g][place]:,})" for g in groups))
        )
    words = "; ".join(f"{name}: {number(int(sum(counts)))} rows" for name, counts in groups.items())
    legend = tuple((name, tones[at % len(tones)]) for at, name in enumerate(groups))
    height = TOP + step * max(len(names), 1)
    return Chart(
        title, picture(title, words, body, height), ("", *groups), tuple(rows), legend, note
    )


def dots(
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
    ends = [
        v for one in kept for v in (one.value, one.low, one.high) if v is not None and is_number(v)
    ]
    ends += [rule[1]] if rule else []
    left = label_room([one.label for one in kept])
    across = Scale(*padded(ends), left, WIDTH - RIGHT - 6)
    step = 24.0
    height = TOP + step * max(len(kept), 1) + 40
    body = [x_axis(across, height, x)]
    if rule is not None:
        place = across(rule[1])
        body.append(path([(place, TOP - 4), (place, height - 40)], "guide", rule[0]))
    rows = []
    for place, one in enumerate(kept):
        middle = TOP + step * place + step / 2
        body.append(label(one.label, left - 8, middle + 4))
        parts = []
        bounded = one.low is not None and one.high is not None
        bounded = bounded and is_number(one.low) and is_number(one.high)
        said = number(one.value)
        if bounded and one.low is not None and one.high is not None:
            points = [(across(one.low), middle), (across(one.high), middle)]
            parts.append(path(points, f"whisker s{one.tone}"))
            said += f" ({number(one.low)} to {number(one.high)})"
        parts.append(tag("circle", cx=across(one.value), cy=middle, r="5", class_=f"f{one.tone}"))
        catch = tag(
            "rect", x=left, y=middle - 11, width=WIDTH - RIGHT - left, height=22.0, class_="catch"
        )
        more = f"; {one.more}" if one.more else ""
        body.append(mark(f"{one.label}: {said}{more}", catch, *parts))
        rows.append((one.label, said, one.more))
    words = "; ".join(f"{one.label} {number(one.value)}" for one in kept[:12])
    return Chart(
        title, picture(title, words, body, height), ("", x, ""), tuple(rows), tuple(legend), note
    )


# ---- pieces ---------------------------------------------------------------------------------


def _every(one: Series) -> int:
    return max(1, -(-len(one.points) // _MOST_MARKS))


def _around(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _drawn_bounds(edges: Sequence[float]) -> list[float]:
    """Bounds with an end for the open bins, as wide as an ordinary one."""
    if not edges:
        return [0.0, 1.0]
    if len(edges) == 1:
        room = abs(edges[0]) or 1.0
        return [edges[0] - room, edges[0], edges[0] + room]
    widths = sorted(two - one for one, two in itertools.pairwise(edges))
    room = widths[len(widths) // 2]
    return [edges[0] - room, *edges, edges[-1] + room]


def _bin_name(edges: Sequence[float], place: int) -> str:
    if not edges:
        return "all values"
    if place == 0:
        return f"below {bound(edges[0])}"
    if place == len(edges):
        return f"{bound(edges[-1])} and more"
    return f"{bound(edges[place - 1])} to {bound(edges[place])}"


def _steps(
    heights: Sequence[float], bounds: Sequence[float], across: Scale, up: Scale
) -> list[tuple[float, float]]:
    corners = [(across(bounds[0]), up(0.0))]
    for place, height in enumerate(heights):
        corners += [(across(bounds[place]), up(height)), (across(bounds[place + 1]), up(height))]
    return [*corners, (across(bounds[-1]), up(0.0))]
