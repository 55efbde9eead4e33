"""Rows of RISA: who has them, which get a pseudo label, and which leave; all nameless.

Training counts rows 0, 1, 2 … over all parties: first the overlap in the common order, then the
rows that only the label holder has, then those of the next party. A party is only ever told numbers
of its own rows: overlap first, then the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import softmax

from vfsl.data.aggregates import LEAST, histogram
from vfsl.errors import ConfigError, DataError
from vfsl.values import Array

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
UNKNOWN = -1


@dataclass(frozen=True)
class Universe:
    """How many rows there are, and who has them."""

    parties: tuple[str, ...]  # the label holder first, then the others in the order of fusing
    overlap: int  # rows that everybody has
    own: Mapping[str, int]  # rows that only that party has

    @property
    def total(self) -> int:
        return self.overlap + sum(self.own.values())

    def start(self, party: str) -> int:
        """The number of the first row that only this party has."""
        before = self.parties[: self.parties.index(party)]
        return self.overlap + sum(self.own[other] for other in before)

    def owner(self, row: int) -> str:
        """The party that alone has this row, or "overlap"."""
        if row < self.overlap:
            return "overlap"
        # A party without such rows has the start of the next one, which comes later and wins.
        return [party for party in self.parties if self.start(party) <= row][-1]

    def local(self, party: str, rows: Numbers) -> Numbers:
        """The party's own numbers of these rows; −1 where it does not have the row."""
        first = self.start(party)
        mine = (rows >= first) & (rows < first + self.own[party])
        numbers = np.where(mine, rows - first + self.overlap, -1)
        return np.where(rows < self.overlap, rows, numbers).astype(np.int64)


def check_overlap(parties: Sequence[str], overlap: int) -> None:
    """Refuse fewer than two parties, and parties without a common row."""
    if len(parties) < 2:
        raise ConfigError(f"RISA needs at least two parties. Got {len(parties)} instead.")
    if overlap == 0:
        raise DataError(
            f"The parties {', '.join(map(repr, parties))} have no row in common; RISA needs "
            "overlap rows to learn from more than one party."
        )


def deal(rows: Numbers, batch_size: int, rng: np.random.Generator, turns: int = 1) -> list[Numbers]:
    """The rows in a new order, and again in another one, in batches of nearly equal size."""
    if not len(rows):
        return []
    order = np.concatenate([rng.permutation(rows) for _ in range(turns)])
    return list(np.array_split(order, -(-len(order) // batch_size)))


def repeat_overlap(rows: Numbers, overlap: int, repeats: int) -> Numbers:
    """The rows with those of the overlap repeated, but never until they outnumber the others."""
    shared = rows[rows < overlap]
    most = 1 + (len(rows) - len(shared)) // max(len(shared), 1)
    return np.concatenate([np.repeat(shared, min(repeats, most)), rows[rows >= overlap]])


# ---- labels --------------------------------------------------------------------------------------


def find_classes(party: str, target: Array, rest_target: Array) -> list[Any]:
    """The classes among the labels of the overlap and of the label holder's other rows."""
    cells = np.concatenate([np.asarray(target, object), np.asarray(rest_target, object)])
    known = ~pd.isna(cells)
    classes = sorted(set(cells[known].tolist()))
    if len(classes) < 2:
        raise DataError(
            f"RISA needs at least two classes among the labels of party {party!r}; there "
            f"{'is' if len(classes) == 1 else 'are'} {len(classes)}."
        )
    if not known[: len(target)].any():
        raise DataError(
            f"Party {party!r} has no label on any of its {len(target)} overlap rows; the other "
            "parties can learn from labelled overlap rows only."
        )
    return classes


def encode_labels(party: str, target: Array, classes: Sequence[Any]) -> Numbers:
    """Labels as numbers by known classes; DataError for a label that training never saw."""
    cells = np.asarray(target, dtype=object)
    known = ~pd.isna(cells)
    codes = np.full(len(cells), UNKNOWN, dtype=np.int64)
    found = pd.Index(classes, dtype=object).get_indexer(pd.Index(cells[known], dtype=object))
    if (found < 0).any():
        raise DataError(
            f"{int((found < 0).sum())} labels of party {party!r} are not among the "
            f"{len(classes)} classes of training."
        )
    codes[known] = found
    return codes


_TEMPERATURES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def add_scores(scores: Sequence[Array]) -> Array:
    """Class probabilities: the parties' scores add up, then a softmax."""
    total = np.sum([np.asarray(one, dtype=np.float64) for one in scores], axis=0)
    return np.asarray(softmax(total, axis=1))


def choose_temperature(scores: Array, labels: Numbers) -> float:
    """The temperature at which one party's scores tell most about the labels of held-out rows.

    A model that learned few rows by heart is far too sure of others; divided by the temperature its
    scores are as sure as they are right. Never below 1: a few lucky rows must not make it surer.
    """
    rows = np.arange(len(labels))
    chances = [softmax(scores / t, axis=1)[rows, labels] for t in _TEMPERATURES]
    losses = [-np.log(one + 1e-12).mean() for one in chances]
    return _TEMPERATURES[int(np.argmin(losses))]


def pseudo_labels(probabilities: Array, least: float) -> Numbers:
    """The most probable class where it has at least that probability; elsewhere no label."""
    best = probabilities.argmax(axis=1)
    sure = probabilities.max(axis=1) >= least
    return np.where(sure, best, UNKNOWN).astype(np.int64)


# ---- leaving -------------------------------------------------------------------------------------


class Removal:
    """Averages each training row's score over some epochs, then says which rows leave.

    ``may_leave`` is of all rows; ``final`` is τ_0, ``every`` E and ``epochs`` T of the paper.
    """

    def __init__(
        self, rows: Numbers, may_leave: Flags, final: float, every: int, epochs: int
    ) -> None:
        total = len(may_leave)
        self.staying = np.zeros(total, dtype=bool)
        self.staying[rows] = True
        self.sums, self.counts = np.zeros(total), np.zeros(total)  # since rows last left
        self.all_sums, self.all_counts = np.zeros(total), np.zeros(total)
        self.left = np.zeros((0, 4))  # row, epoch, score and limit
        self._may_leave = may_leave
        self._final, self._every, self._epochs = final, every, epochs

    @property
    def rows(self) -> Numbers:
        return np.flatnonzero(self.staying).astype(np.int64)

    def limit(self, epoch: int) -> float:
        """τ_t = τ_0^{t/T}: from 1 down to its final value."""
        return float(self._final ** (epoch / self._epochs))

    def see(self, rows: Numbers, scores: Array) -> None:
        self.sums[rows] += scores
        self.counts[rows] += 1
        self.all_sums[rows] += scores
        self.all_counts[rows] += 1

    @property
    def averages(self) -> Array:
        """Each row's score over all epochs that it took part in; NaN for rows that never did."""
        seen = self.all_counts > 0
        return np.where(seen, self.all_sums / np.maximum(self.all_counts, 1), np.nan)

    def end_epoch(self, epoch: int) -> Numbers | None:
        """Which rows leave after the epoch with this number, from 1 on; None between checks."""
        # After the last epoch there is nothing left to leave.
        if epoch % self._every or epoch >= self._epochs:
            return None
        limit, average = self.limit(epoch), self.sums / np.maximum(self.counts, 1)
        rows = np.flatnonzero(self.staying & self._may_leave & (average > limit))
        lines = np.empty((len(rows), 4))
        lines[:, 0], lines[:, 1], lines[:, 2], lines[:, 3] = rows, epoch, average[rows], limit
        self.left = np.concatenate([self.left, lines])
        self.staying[rows] = False
        self.sums[:] = 0
        self.counts[:] = 0
        return rows.astype(np.int64)

    def list_left(self, labelled: Flags, universe: Universe) -> list[dict[str, Any]]:
        """One line per row that left: number, owner, epoch, score, limit, and kind of label."""
        return [
            {
                "row": int(row),
                "of": universe.owner(int(row)),
                "epoch": int(epoch),
                "score": score,
                "limit": limit,
                "label": "true" if labelled[int(row)] else "pseudo",
            }
            for row, epoch, score, limit in self.left.tolist()
        ]

    def to_arrays(self) -> dict[str, Array]:
        """For a checkpoint."""
        return {f"removal {name}": getattr(self, name) for name in _KEPT}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        for name in _KEPT:
            setattr(self, name, arrays[f"removal {name}"].copy())


_KEPT = ("staying", "sums", "counts", "all_sums", "all_counts", "left")

_SCORES = {
    "uncertainty": "uncertainty of the fused opinion",
    "label": "how much less likely the label is than the likeliest class",
}


def describe_doubts(scores: Array, left: Sequence[int], removal: str) -> dict[str, Any]:
    """Histograms for the report: the scores of rows that stayed and of rows that left.

    ``scores`` is of all rows, NaN for those that never took part; ``removal`` says which score.
    """
    gone = np.zeros(len(scores), dtype=bool)
    gone[np.asarray(left, dtype=np.int64)] = True
    seen = np.isfinite(scores)
    groups = {"rows that stayed": scores[seen & ~gone], "rows that left": scores[seen & gone]}
    if min(map(len, groups.values())) < LEAST:
        groups = {"training rows": scores[seen]}
    made = histogram(*groups.values())
    return {"score": _SCORES.get(removal, _SCORES["label"]), "groups": list(groups), **made}
