"""What the report draws of VFPU: aggregates of the label holder's scores, never a single row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vfsl.data.aggregates import LEAST, capture_curve, histogram
from vfsl.pu.bags import Booleans
from vfsl.pu.bias import Difference
from vfsl.values import Floats

_MOST_COLUMNS = 12


def picture(
    held_out: Floats,
    logits: Floats,
    probabilities: Floats,
    promoted: Booleans,
    columns: Sequence[Difference],
) -> dict[str, Any]:
    """The ranking curve, the scores of rows that were chosen and of the others, and columns.

    Parameters
    ----------
    held_out : array (known positives,)
        Logits by models that did not train on them.
    logits, probabilities, promoted : array (rows that were not marked,)
    columns : sequence of Difference
        Largest first.
    """
    chosen, others = probabilities[promoted], probabilities[~promoted]
    apart = min(len(chosen), len(others)) >= LEAST
    groups = {"other unlabelled rows": others, "reliable positives": chosen}
    if not apart:
        groups = {"unlabelled rows": probabilities}
    return {
        "known positives": len(held_out),
        "unlabelled": len(logits),
        "curve": capture_curve(held_out, logits),
        "scores": {"groups": list(groups), **histogram(*groups.values())},
        "columns": [asdict(column) for column in columns[:_MOST_COLUMNS]],
    }
