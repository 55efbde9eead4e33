"""The work of the shares experiment under bfv, as it was before shares; slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from benchmarks import shares
from benchmarks.table import Outcome


def run(quick: bool, say: Callable[[str], None]) -> Outcome:
    """Every work but the wide one, once; small ones if quick."""
    sizes = shares.QUICK if quick else shares.FULL
    rows = {work: count for work, count in sizes.rows.items() if work != "wide"}
    once = replace(sizes, rows=rows, seeds=dict.fromkeys(rows, 1), delayed=0, epochs=())
    return shares.measure_all(once, say, judge=False, scheme="bfv", name="shares-bfv")
