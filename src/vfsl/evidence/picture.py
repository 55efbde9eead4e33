"""What the report draws of RISA: aggregates of the label holder's scores, never a single row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vfsl.data.aggregates import LEAST, histogram
from vfsl.values import Array

SCORES = {
    "uncertainty": "uncertainty of the fused opinion",
    "label": "how much less likely the label is than the likeliest class",
}


def doubts(scores: Array, left: Sequence[int], removal: str) -> dict[str, Any]:
    """The scores by which rows leave, of rows that stayed and of rows that left.

    Parameters
    ----------
    scores : array (all rows,)
        NaN for rows that never took part.
    left : sequence of int
        The rows that left.
    removal : str
        Which score it is.
    """
    gone = np.zeros(len(scores), dtype=bool)
    gone[np.asarray(left, dtype=np.int64)] = True
    seen = np.isfinite(scores)
    groups = {"rows that stayed": scores[seen & ~gone], "rows that left": scores[seen & gone]}
    if min(map(len, groups.values())) < LEAST:
        groups = {"training rows": scores[seen]}
    made = histogram(*groups.values())
    return {"score": SCORES.get(removal, SCORES["label"]), "groups": list(groups), **made}
