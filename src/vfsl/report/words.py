"""Numbers and names as people read them: separators, few digits, a dash for what is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

NOTHING = "–"
# The reasons that steps record as one word or two; longer ones speak for themselves.
_STOPS = {
    "outer": "all iterations done",
    "hidden": "the promoted rows reach half of the positives that are estimated to be hidden",
    "stable": "the ranking of the unlabelled rows did not change any more",
    "sizes": "one more batch would leave fewer unlabelled rows than positives",
    "converged": "converged",
    "tolerance": "converged",
    "solved": "solved",
    "precision": "its precision allowed no further step",
    "max_rounds": "the maximum number of rounds reached, not yet converged",
    "all rounds": "all rounds done",
    "all trees": "all trees grown",
}


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


def write_number(value: Any, digits: int = 3) -> str:
    """Whole numbers with separators, others with this many digits; text as it is."""
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


def write_rounded(value: Any) -> str:
    """A value for a line or a table of text: three significant digits, nothing for None."""
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def write_bound(value: float) -> str:
    """A round number without digits that say nothing: 5,000 or 0.25."""
    return f"{value:,.6g}".replace("-", "−") if abs(value) < 1e7 else f"{value:.4g}"


def write_percent(fraction: Any, digits: int = 0) -> str:
    """0.123 as "12 %"."""
    return f"{fraction:.{digits}%}".replace("%", " %") if is_number(fraction) else NOTHING


def write_seconds(value: Any) -> str:
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


def write_count(value: Any, singular: str, plural: str | None = None) -> str:
    """'1 row', '2,000 rows'."""
    return f"{write_number(value)} {singular if value == 1 else plural or singular + 's'}"


def describe_stop(reason: str) -> str:
    """Why a step ended, as people say it: 'converged', 'all trees grown'."""
    return _STOPS.get(reason, reason)


def write_list(names: Sequence[str]) -> str:
    """'A', 'A and B', 'A, B and C'."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def write_moment(created: str) -> str:
    """A time from a record, to the minute: 2026-11-16 02:22 UTC."""
    zone = " UTC" if created.endswith("+00:00") else ""
    return created[:16].replace("T", " ") + zone if len(created) > 16 else created


def shorten(text: str, most: int) -> str:
    """At most this many characters; an ellipsis ends a longer text."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
