"""What messages of evidential training tell: gradients the labels, evidence the columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vfsl.channel import Transcript, wire
from vfsl.channel.transcript import Sight
from vfsl.values import Array, Floats, Integers

UNKNOWN = -1
Batch = tuple[Array, Array]  # row numbers of the party, and a line of numbers for each


def add_gradients(batches: Iterable[Batch], rows: int) -> Floats | None:
    """For each row the sum of its gradients, each as a vote of size 1; NaN for rows without one.

    The loss of a row falls only when evidence for its own label grows, so the label is the class
    with the most negative gradient. Over several passes the gradients of a row add up. A batch may
    have a further line for the mean row, which is ignored.
    """
    totals: Floats | None = None
    seen = np.zeros(rows, dtype=bool)
    for numbers, gradient in batches:
        given = np.asarray(gradient, dtype=np.float64)[: len(numbers)]
        if totals is None:
            totals = np.zeros((rows, given.shape[1]))
        # Each gradient counts as a vote, however small: sure rows have tiny ones.
        size = np.abs(given).max(axis=1, keepdims=True, initial=0.0)
        np.add.at(totals, numbers, given / np.where(size > 0, size, 1.0))
        seen[numbers] = True
    if totals is not None:
        totals[~seen] = np.nan
    return totals


def read_labels(batches: Iterable[Batch], rows: int) -> Integers:
    """A guess at the label of each of a party's rows, from gradients it was sent; or UNKNOWN."""
    totals = add_gradients(batches, rows)
    if totals is None:
        return np.full(rows, UNKNOWN, dtype=np.int64)
    seen = ~np.isnan(totals[:, 0])
    return np.where(seen, np.nan_to_num(totals).argmin(axis=1), UNKNOWN).astype(np.int64)


def gradients_seen_by(
    party: str, transcript: Transcript, stages: Sequence[str] = ("evidence",)
) -> list[Batch]:
    """Row numbers and gradients that a party was sent in evidential training."""
    found: list[Batch] = []
    batches: list[Array] = []
    for sight in transcript.sights:
        if sight.receiver != party:
            continue
        name = sight.name.rpartition("/")[2]
        if name == "rows":
            batches = _split_batches(sight)
        elif name in [f"gradient of {stage}" for stage in stages] and batches:
            found.append((batches.pop(0), wire.decode(sight.body)[1]))
    return found


def _split_batches(sight: Sight) -> list[Array]:
    """The row numbers of each batch; none where another protocol says how many rows there are."""
    value = wire.decode(sight.body)[1]
    if not isinstance(value, dict) or "ends" not in value:
        return []
    return list(np.split(value["rows"], value["ends"][:-1]))


def seen_evidence(transcript: Transcript, leader: str, party: str) -> dict[int, Floats]:
    """The label holder's view of each of a party's rows: the mean logarithm of its evidence."""
    waiting: list[Array] = []
    sums: dict[int, list[Floats]] = {}
    for sight in transcript.sights:
        name = sight.name.rpartition("/")[2]
        if sight.receiver == party and name == "rows":
            waiting = _split_batches(sight)
        elif sight.receiver == leader and sight.sender == party and name == "evidence" and waiting:
            said = np.log1p(np.maximum(wire.decode(sight.body)[1], 0.0))
            for row, line in zip(waiting.pop(0), said, strict=False):
                sums.setdefault(int(row), []).append(line)
    return {row: np.mean(lines, axis=0) for row, lines in sums.items()}
