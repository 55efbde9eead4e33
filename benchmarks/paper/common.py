"""What the papers' experiments share: one changed setting at a time, means over seeds, notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vfsl.datasets import available
from vfsl.errors import DataError

Row = dict[str, Any]
BUILT_IN = ("made up",)


def find_data(wanted: Iterable[str], notes: list[str]) -> list[str]:
    """The data sets that are here; a note for each that is not."""
    here = [name for name in wanted if name in available() or name in BUILT_IN]
    missing = [name for name in wanted if name not in here]
    notes += [
        f"{name} was left out: it is not here; VFSL_DATA names its folder." for name in missing
    ]
    if not here:
        raise DataError(
            f"None of the data sets {', '.join(wanted)} is here; set VFSL_DATA to a folder that "
            "has them, or use --quick."
        )
    return here


def average(results: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> Row:
    """Mean and deviation over seeds of each column; None where no seed has a number."""
    row: Row = {}
    for name in columns:
        values = [one[name] for one in results if one.get(name) is not None]
        row[name] = float(np.mean(values)) if values else None
        row[f"{name} ±"] = float(np.std(values)) if len(values) > 1 else None
    return row


def put_beside(row: Row, paper: float | None, ours: str) -> Row:
    """The row with the paper's figure and the difference to it."""
    found = row[ours]
    gap = None if paper is None or found is None else found - paper
    return row | {"paper": paper, "ours − paper": gap}
