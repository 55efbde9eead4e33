"""How objects look in a notebook: a short table of sizes and settings, never of private values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def show_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A caption and a small table in HTML; every text is escaped, counts have separators."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_write(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return (
        f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _write(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
