"""Small pieces of inline SVG: escaped tags, scales, ticks. Colours come from the page's style."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from vfsl.report.words import bound, number


def tag(name: str, *inside: str | Markup, **attributes: str | float) -> Markup:
    """An element; names end in "_" where Python has taken them, and "_" stands for "-"."""
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _text(value))
        for key, value in attributes.items()
    )
    content = Markup("").join(escape(part) for part in inside)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), given, content)


def _text(value: str | float) -> str:
    """Coordinates to a tenth: nobody sees more, and pages stay small."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


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
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
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


def tick_text(values: Sequence[float]) -> list[str]:
    """Labels with as many digits as their steps need: 0.80 beside 0.85, 20k beside 40k."""
    if len(values) < 2:
        return [number(value) for value in values]
    step = min(abs(two - one) for one, two in itertools.pairwise(values))
    if max(map(abs, values)) >= 10_000:
        unit, mark = (1e6, "M") if max(map(abs, values)) >= 1e6 else (1e3, "k")
        return ["0" if value == 0 else bound(value / unit) + mark for value in values]
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    return [f"{value:,.{min(digits, 6)}f}".replace("-", "−") for value in values]


def padded(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """Bounds a little wider than the values; equal values get room too."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if high == low:
        return low - (abs(low) or 1.0) * 0.1, high + (abs(high) or 1.0) * 0.1
    room = (high - low) * share
    return low - room, high + room
