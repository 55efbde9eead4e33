"""The low route: columns that the given party cannot predict, completed locally.

A local method learns from the common rows and, for the remaining rows, sees the columns that VFPU-M
has just completed. It is judged likewise: on held-out common rows it sees held-out predictions in
place of the true high columns, and all low columns are hidden at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from vfsl.completion.base import Completed, Completer
from vfsl.completion.columns import Filled, filled_by_baseline
from vfsl.completion.crossfit import Fold, skill
from vfsl.completion.ensembles import blank, held_out, make_method, method_name
from vfsl.completion.routing import LOW
from vfsl.completion.targets import Target, restored
from vfsl.data import PartyTable
from vfsl.values import Array

Method = str | Callable[[], Completer]


@dataclass(eq=False)
class LocalRoute:
    """Complete the low columns at the missing party.

    Parameters
    ----------
    common : PartyTable
        The missing party's common rows.
    high : dict of str to Filled
        The columns that are completed already.
    targets : sequence of Target
        The low columns.
    others : int
        How many remaining rows there are.
    folds : int
    """

    common: PartyTable
    high: Mapping[str, Filled]
    targets: Sequence[Target]
    others: int
    folds: int

    def by_mean(self) -> dict[str, Filled]:
        """Mean and mode."""
        return {
            target.name: filled_by_baseline(target, self.others, self.folds, LOW, "mean")
            for target in self.targets
        }

    def by_method(self, method: Method, rng: np.random.Generator) -> dict[str, Filled]:
        """One local method for all low columns."""
        names = [target.name for target in self.targets]
        if method == "mean" or not names:
            return self.by_mean()
        known = self._common_columns()
        held = held_out(lambda: make_method(method), known, names, self.folds, rng, self._shown())
        done = make_method(method).fit(known, rng).complete(self._asked(), rng)
        model = method_name(method)
        return {
            target.name: _filled(target, model, held[target.name], done, self.others, self.folds)
            for target in self.targets
        }

    def best(self, methods: Sequence[Method], rng: np.random.Generator) -> dict[str, Filled]:
        """For each column mean and mode, unless a method is better out of fold by its error."""
        found = self.by_mean()
        for method in methods:
            for name, filled in self.by_method(method, rng).items():
                value, error = skill(filled.fold)
                if value - error > max(skill(found[name].fold)[0], 0.0):
                    found[name] = filled
        return found

    def _common_columns(self) -> PartyTable:
        names = {*self.high, *(target.name for target in self.targets)}
        return self.common.without([name for name in self.common.columns if name not in names])

    def _shown(self) -> PartyTable:
        """Common rows with held-out predictions in place of the high columns."""
        table = self._common_columns()
        rows = np.ones(len(table), dtype=bool)
        columns = {
            name: restored(filled.target, filled.fold.predicted, rows)
            for name, filled in self.high.items()
        }
        return PartyTable(table.party, table.ids, table.frame.assign(**columns), dict(table.kinds))

    def _asked(self) -> PartyTable:
        """Remaining rows: high columns as completed, low ones missing."""
        table = self._common_columns()
        low = {target.name for target in self.targets}
        columns = {
            name: blank(table.column(name), self.others)
            if name in low
            else restored(self.high[name].target, self.high[name].values, self.high[name].present)
            for name in table.columns
        }
        frame = pd.DataFrame(columns, index=pd.RangeIndex(self.others))
        ids = np.array([str(row) for row in range(self.others)], dtype=object)
        return PartyTable(table.party, ids, frame, dict(table.kinds))


def _filled(
    target: Target, model: str, held: Array, done: Completed, others: int, folds: int
) -> Filled:
    """A local method's answer in the form of all completed columns."""
    base = filled_by_baseline(target, others, folds, LOW, model)
    confidence = done.confidence[target.name].to_numpy(dtype=float)
    if not target.classes:
        fold = Fold(target, held[:, 0], base.fold.baseline)
        values, chances = done.means[target.name].to_numpy(dtype=float), None
    else:
        fold = Fold(target, held.argmax(axis=1).astype(float), base.fold.baseline, held)
        wanted = pd.Index(target.levels, dtype=object)
        found = done.probabilities[target.name].reindex(columns=wanted, fill_value=0.0)
        chances = found.to_numpy(dtype=float)
        values = chances.argmax(axis=1).astype(float)
    return Filled(target, LOW, model, values, base.present, base.round, confidence, chances, fold)
