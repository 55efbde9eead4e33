"""Which rows leave the training set, when and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vfsl.evidence.rows import Numbers, Universe
from vfsl.values import Array


def threshold(final: float, epoch: int, epochs: int) -> float:
    """τ_t = τ_0^{t/T}: from 1 down to its final value."""
    return float(final ** (epoch / epochs))


@dataclass(frozen=True)
class Leaving:
    """Rows that left after one epoch."""

    epoch: int
    threshold: float
    rows: Numbers
    scores: Array


class Watch:
    """Averages each row's score over some epochs, then says who leaves.

    Parameters
    ----------
    rows : array of int
        The rows of the training set.
    total : int
        How many rows there are in all.
    may_leave : array of bool (total,)
    final : float
        τ_0.
    every : int
        E: rows leave after every E-th epoch.
    epochs : int
        T.
    """

    def __init__(
        self,
        rows: Numbers,
        total: int,
        may_leave: npt.NDArray[np.bool_],
        final: float,
        every: int,
        epochs: int,
    ) -> None:
        self.staying = np.zeros(total, dtype=bool)
        self.staying[rows] = True
        self.sums = np.zeros(total)
        self.counts = np.zeros(total)
        self.all_sums = np.zeros(total)
        self.all_counts = np.zeros(total)
        self.left: list[Leaving] = []
        self._may_leave = may_leave
        self._final, self._every, self._epochs = final, every, epochs

    @property
    def rows(self) -> Numbers:
        return np.flatnonzero(self.staying).astype(np.int64)

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

    def end_epoch(self, epoch: int) -> Leaving | None:
        """After the epoch with this number, from 1 on: who leaves, or None between checks."""
        # After the last epoch there is nothing left to leave.
        if epoch % self._every or epoch >= self._epochs:
            return None
        limit = threshold(self._final, epoch, self._epochs)
        average = self.sums / np.maximum(self.counts, 1)
        rows = np.flatnonzero(self.staying & self._may_leave & (average > limit))
        leaving = Leaving(epoch, limit, rows.astype(np.int64), average[rows])
        self.staying[rows] = False
        self.sums[:] = 0
        self.counts[:] = 0
        self.left.append(leaving)
        return leaving

    def to_arrays(self) -> dict[str, Array]:
        """For a checkpoint."""
        return {
            "watch staying": self.staying,
            "watch sums": self.sums,
            "watch counts": self.counts,
            "watch all sums": self.all_sums,
            "watch all counts": self.all_counts,
            "left epochs": np.array([leaving.epoch for leaving in self.left], dtype=np.int64),
            "left limits": np.array([leaving.threshold for leaving in self.left]),
            "left sizes": np.array([len(leaving.rows) for leaving in self.left], dtype=np.int64),
            "left rows": np.concatenate([np.zeros(0, np.int64), *(x.rows for x in self.left)]),
            "left scores": np.concatenate([np.zeros(0), *(x.scores for x in self.left)]),
        }

    def load_arrays(self, arrays: dict[str, Array]) -> None:
        self.staying = arrays["watch staying"].copy()
        self.sums, self.counts = arrays["watch sums"].copy(), arrays["watch counts"].copy()
        self.all_sums = arrays["watch all sums"].copy()
        self.all_counts = arrays["watch all counts"].copy()
        ends = np.cumsum(arrays["left sizes"])[:-1]
        pieces = (np.split(arrays["left rows"], ends), np.split(arrays["left scores"], ends))
        epochs, limits = arrays["left epochs"].tolist(), arrays["left limits"].tolist()
        self.left = [Leaving(*one) for one in zip(epochs, limits, *pieces, strict=False)]


def left_table(
    left: list[Leaving], labelled: npt.NDArray[np.bool_], universe: Universe
) -> list[dict[str, Any]]:
    """One line a row that left: its number, whose, after which epoch, its score and the limit."""
    return [
        {
            "row": int(row),
            "of": universe.whose(int(row)),
            "epoch": leaving.epoch,
            "score": float(score),
            "limit": leaving.threshold,
            "label": "true" if labelled[row] else "pseudo",
        }
        for leaving in left
        for row, score in zip(leaving.rows, leaving.scores, strict=True)
    ]
