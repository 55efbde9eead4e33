"""What FedPSG gives back: the completed table, where each cell comes from, and what it is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from vfsl.completion import fidelity
from vfsl.completion.columns import Filled
from vfsl.completion.routing import Route
from vfsl.completion.shift import Shift
from vfsl.completion.targets import restored
from vfsl.data import PartyTable
from vfsl.values import Array


@dataclass(eq=False)
class Completion:
    """B's columns for A's remaining rows.

    Attributes
    ----------
    columns : dict of str to Filled
        Each column in full.
    routes : list of Route
        Which column went where, and by which number.
    ids : array
        The given party's ids of the remaining rows, in a simulation; row numbers otherwise.
    miss : float
        The share of truth that intervals and sets may leave out.
    shift : Shift or None
        How the remaining rows differ from the common ones.
    notes : tuple of str
        What to beware of.
    """

    columns: dict[str, Filled]
    routes: list[Route]
    ids: Array
    common: PartyTable
    miss: float
    folds: int
    shift: Shift | None = None
    notes: tuple[str, ...] = ()
    adviser: Any = field(default=None, repr=False)

    def __repr__(self) -> str:
        counts = Counter(column.verdict for column in self.columns.values())
        verdicts = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
        return f"<Completion of {len(self.columns)} columns for {len(self.ids):,} rows; {verdicts}>"

    @cached_property
    def table(self) -> pd.DataFrame:
        """The completed columns in the user's units, types, bounds and category names, by id."""
        made = {
            name: restored(column.target, column.values, column.present)
            for name, column in self.columns.items()
        }
        frame = pd.DataFrame(made, index=pd.RangeIndex(len(self.ids)))
        return frame.set_axis(self._index)

    @cached_property
    def provenance(self) -> pd.DataFrame:
        """For each cell: route, model, round (0: no pseudo-label) and confidence, by id."""
        blocks = {
            name: pd.DataFrame(
                {
                    "route": column.route,
                    "model": column.model,
                    "round": column.round,
                    "confidence": column.confidence,
                },
                index=self._index,
            )
            for name, column in self.columns.items()
        }
        return pd.concat(blocks, axis=1)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """For each numeric cell the bounds that hold a share 1 − ``miss`` of the truth, by id."""
        blocks = {}
        for name, column in self.columns.items():
            if not column.target.classes:
                low, high = column.interval(self.miss, self.shift)
                blocks[name] = pd.DataFrame({"low": low, "high": high}, index=self._index)
        return pd.concat(blocks, axis=1) if blocks else pd.DataFrame(index=self._index)

    @cached_property
    def probabilities(self) -> dict[str, pd.DataFrame]:
        """For each categorical column the probabilities of its categories, by id."""
        return {
            name: pd.DataFrame(
                column.chances,
                index=self._index,
                columns=pd.Index(column.target.levels, dtype=object),
            )
            for name, column in self.columns.items()
            if column.chances is not None
        }

    @cached_property
    def sets(self) -> dict[str, pd.DataFrame]:
        """For each categorical column which categories are in the 1 − ``miss`` set, by id."""
        return {
            name: pd.DataFrame(
                column.sets(self.miss, self.shift),
                index=self._index,
                columns=pd.Index(column.target.levels, dtype=object),
            )
            for name, column in self.columns.items()
            if column.chances is not None
        }

    @cached_property
    def quality(self) -> pd.DataFrame:
        """For each column what held-out common rows say of it, with a verdict.

        ``skill`` is the share of the mean's (mode's) squared error that the model removes;
        ``shape`` and ``pairs`` compare the distribution of held-out predictions with the truth: a
        completed column may be right on average and yet much narrower than the real one.
        """
        lines = {
            name: column.quality(self.miss, self.folds) for name, column in self.columns.items()
        }
        frame = pd.DataFrame.from_dict(lines, orient="index")
        shapes, pairs = self._fidelity()
        verdict = frame.pop("verdict")
        return frame.assign(shape=shapes, pairs=pairs, verdict=verdict)

    @property
    def row_confidence(self) -> pd.Series[float]:
        """How sure a row is over all columns: the mean of their confidences, from 0 to 1, by id."""
        each = [np.clip(column.confidence, 0.0, 1.0) for column in self.columns.values()]
        means: pd.Series[float] = pd.Series(np.mean(each, axis=0), self._index, dtype=float)
        return means.rename("confidence")

    def recommend(self, **options: Any) -> Any:
        """Which way to train with these columns is best, and by how much.

        Parameters
        ----------
        **options
            Of :func:`vfsl.completion.recommend.recommend`: ``label``, ``base``, ``folds``.

        Returns
        -------
        Advice
        """
        return self.adviser(self, **options)

    @property
    def _index(self) -> pd.Index[Any]:
        return pd.Index(self.ids, name="id", dtype=object)

    def _fidelity(self) -> tuple[pd.Series[Any], pd.Series[Any]]:
        """Shapes, and the mean over the pairs of each column, of held-out predictions."""
        held = pd.DataFrame(
            {
                name: restored(
                    column.target, column.fold.predicted, np.ones(len(self.common), dtype=bool)
                )
                for name, column in self.columns.items()
            }
        )
        names = list(self.columns)
        drop = [name for name in self.common.columns if name not in names]
        real = self.common.without(drop)
        made = PartyTable(real.party, real.ids, held[real.columns], dict(real.kinds))
        found = fidelity.quality(real, made)
        if not len(found.pairs):
            return found.shapes, pd.Series(np.nan, index=names)
        means = {
            name: np.nanmean(values) if (values := _of(found.pairs, name)).size else np.nan
            for name in names
        }
        return found.shapes, pd.Series(means)


def _of(pairs: pd.Series[Any], name: str) -> Array:
    first, second = (pairs.index.get_level_values(level) for level in (0, 1))
    values = pairs[(first == name) | (second == name)].to_numpy(dtype=float)
    return np.asarray(values[~np.isnan(values)])


def whole_table(completion: Completion, missing: Sequence[str]) -> PartyTable:
    """The missing party's columns for common rows and, completed, for the remaining ones."""
    real = completion.common.without(
        [name for name in completion.common.columns if name not in missing]
    )
    made = completion.table.reset_index(drop=True)[real.columns]
    frame = _joined(real.frame, made)
    ids = np.array([str(row) for row in range(len(frame))], dtype=object)
    return PartyTable(real.party, ids, frame, dict(real.kinds))


def _joined(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Two tables of the same columns one below the other, without a change of meaning."""
    columns: Mapping[str, Any] = {
        name: pd.concat([first[name], second[name]], ignore_index=True) for name in first.columns
    }
    return pd.DataFrame(columns)
