"""What a curious passive party reads from its gradients: an attack to measure, not to use.

The loss of a row falls only when evidence for its own label grows, so the label is the class with
the most negative gradient. Over several passes the gradients of a row add up.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vfsl.channel import Transcript, wire
from vfsl.evidence.rows import UNKNOWN, Numbers
from vfsl.values import Array


def read_labels(batches: Iterable[tuple[Numbers, Array]], rows: int) -> Numbers:
    """A guess at the label of each of a party's rows, from the gradients it was sent; or UNKNOWN.

    A batch has the party's own row numbers and the gradient for them; a further line of the
    gradient is that of the mean row and is ignored.
    """
    totals: Array | None = None
    seen = np.zeros(rows, dtype=bool)
    for numbers, gradient in batches:
        given = np.asarray(gradient, dtype=np.float64)[: len(numbers)]
        if totals is None:
            totals = np.zeros((rows, given.shape[1]))
        # Each gradient counts as a vote, however small: sure rows have tiny ones.
        size = np.abs(given).max(axis=1, keepdims=True)
        np.add.at(totals, numbers, given / np.where(size > 0, size, 1.0))
        seen[numbers] = True
    if totals is None:
        return np.full(rows, UNKNOWN, dtype=np.int64)
    return np.where(seen, totals.argmin(axis=1), UNKNOWN).astype(np.int64)


def gradients_seen_by(party: str, transcript: Transcript) -> list[tuple[Numbers, Array]]:
    """Row numbers and gradients that a party was sent in evidential training.

    The transcript must have kept views.
    """
    found: list[tuple[Numbers, Array]] = []
    batches: list[Numbers] = []
    for sight in transcript.sights:
        if sight.receiver != party:
            continue
        name, value = wire.decode(sight.body)
        if name.endswith("/rows"):
            batches = np.split(value["rows"], value["ends"][:-1])
        elif name.endswith("/gradient of evidence"):
            found.append((batches.pop(0), value))
    return found
