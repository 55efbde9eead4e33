"""Numbers and names as people read them: separators, few digits, a dash for what is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

NOTHING = "–"


def readable_bytes(count: int) -> str:
    """A size for people: 999 B, 12.3 kB, 4.0 MB."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a number that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def number(value: Any, digits: int = 3) -> str:
    """A whole number with separators, another one with so many digits; text as it is."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return _digits(value, digits).replace("-", "−").replace("e−", "e-")


def _digits(value: float, digits: int) -> str:
    size = abs(value)
    if isinstance(value, int) and size < 10**15:
        return f"{value:,}"
    if size >= 1e7 or 0 < size < 0.5 * 10.0 ** (-digits):
        return f"{value:.{digits}g}"
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.{max(0, digits - 2)}f}"
    return f"{value:.{digits if size < 1 else digits - 1}f}"


def rounded(value: Any) -> str:
    """A value for a line or a table of text: three significant digits, nothing for None."""
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def bound(value: float) -> str:
    """A round number without digits that say nothing: 5,000, 0.25."""
    return f"{value:,.6g}".replace("-", "−") if abs(value) < 1e7 else f"{value:.4g}"


def percent(share: Any, digits: int = 0) -> str:
    """0.123 as "12 %"."""
    return f"{share:.{digits}%}".replace("%", " %") if is_number(share) else NOTHING


def seconds(value: Any) -> str:
    """0.12 s, 45 s, 3 min 20 s, 2 h 5 min."""
    if not is_number(value):
        return NOTHING
    if value < 10:
        return f"{value:.2f} s"
    if value < 60:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def counted(value: Any, singular: str, plural: str | None = None) -> str:
    """'1 row', '2,000 rows'."""
    return f"{number(value)} {singular if value == 1 else plural or singular + 's'}"


def listed(names: Sequence[str]) -> str:
    """'A', 'A and B', 'A, B and C'."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def when(created: str) -> str:
    """A moment as in records, to the minute: 2026-11-16 02:22 UTC."""
    zone = " UTC" if created.endswith("+00:00") else ""
    return created[:16].replace("T", " ") + zone if len(created) > 16 else created


def shorten(text: str, most: int) -> str:
    """At most so many characters, the end of longer texts being a sign."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
