"""The low route: columns that the other party cannot predict, completed by a method at this one.

The method learns from the common rows and, for the remaining rows, sees the columns that VFPU-M has
just completed. It is judged likewise: on held-out common rows it sees held-out predictions in place
of the true high columns, and all low columns are hidden at once. Methods that hide cells while they
learn are told to hide these columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from vfsl.completion.base import Completed
from vfsl.completion.columns import (
    Filled,
    Fold,
    Target,
    draw_classes,
    fill_by_baseline,
    shrink,
    skill,
)
from vfsl.completion.completed import LOW, has_other_width
from vfsl.completion.ensembles import (
    Ensemble,
    Method,
    blank,
    held_out,
    make_method,
    method_name,
)
from vfsl.data import PartyTable, codes
from vfsl.values import Array, Floats, Integers

# Rows from which errors are drawn for all columns together, if so many know all of them.
_LEAST_DONORS = 30


@dataclass(frozen=True, eq=False)
class LowRoute:
    """Complete the low columns at the missing party.

    Attributes
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
    draws : bool
        Whether cells are to be draws: methods that can draw then give draws beside their means.
    """

    common: PartyTable
    high: Mapping[str, Filled]
    targets: Sequence[Target]
    others: int
    folds: int
    draws: bool = False

    def by_mean(self) -> dict[str, Filled]:
        """Mean and mode."""
        return {
            target.name: fill_by_baseline(target, self.others, self.folds, LOW, "mean")
            for target in self.targets
        }

    def by_method(self, method: Method, rng: np.random.Generator) -> dict[str, Filled]:
        """One local method, or an ensemble, for all low columns."""
        names = [target.name for target in self.targets]
        if method == "mean" or not names:
            return self.by_mean()
        make = partial(make_method, method, names)
        known, shown, asked = self._common_columns(), self._shown(), self._asked()
        drawn: pd.DataFrame | None = None
        together = make()
        if isinstance(together, Ensemble):
            together.check()
            makers = together.makers(names)
            each = [held_out(one, known, names, self.folds, rng, shown) for one in makers]
            answers = [one().fit(known, rng).complete(asked, rng) for one in makers]
            done = together.combine(known, shown, asked, each, answers)
            held = together.combine_held_out(known, shown, each, self.folds)
        else:
            held = held_out(make, known, names, self.folds, rng, shown)
            fitted: Any = make().fit(known, rng)
            done = fitted.complete(asked, rng)
            if self.draws and hasattr(fitted, "draw"):
                drawn = fitted.draw(asked, rng)
        filled = {
            target.name: self._fill(target, method_name(method), held[target.name], done)
            for target in self.targets
        }
        if drawn is None:
            return filled
        return {
            name: replace(one, drawn=_as_codes(one.target, drawn[name]))
            for name, one in filled.items()
        }

    def by_best(self, methods: Sequence[Method], rng: np.random.Generator) -> dict[str, Filled]:
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
        columns = {
            name: filled.target.restore(filled.fold.predicted) for name, filled in self.high.items()
        }
        return PartyTable(table.party, table.ids, table.frame.assign(**columns), dict(table.kinds))

    def _asked(self) -> PartyTable:
        """Remaining rows: high columns as completed, low ones missing."""
        table = self._common_columns()
        columns = {
            name: self.high[name].target.restore(self.high[name].values, self.high[name].present)
            if name in self.high
            else blank(table.column(name), self.others)
            for name in table.columns
        }
        frame = pd.DataFrame(columns, index=pd.RangeIndex(self.others))
        ids = np.array([str(row) for row in range(self.others)], dtype=object)
        return PartyTable(table.party, ids, frame, dict(table.kinds))

    def _fill(self, target: Target, model: str, held: Array, done: Completed) -> Filled:
        """A local method's answer in the form of all completed columns."""
        base = fill_by_baseline(target, self.others, self.folds, LOW, model)
        confidence = done.confidence[target.name].to_numpy(dtype=float)
        if not target.classes:
            fold = Fold(target, held[:, 0], base.fold.baseline)
            values = done.means[target.name].to_numpy(dtype=float)
            return replace(base, values=values, confidence=confidence, fold=fold)
        fold = Fold(target, held.argmax(axis=1).astype(float), base.fold.baseline, held)
        wanted = pd.Index(target.levels, dtype=object)
        found = done.probabilities[target.name].reindex(columns=wanted, fill_value=0.0)
        chances = found.to_numpy(dtype=float)
        values = chances.argmax(axis=1).astype(float)
        return replace(base, values=values, confidence=confidence, chances=chances, fold=fold)


# ---- draws --------------------------------------------------------------------------------------


def draw_columns(
    filled: Mapping[str, Filled], rng: np.random.Generator, folds: int
) -> dict[str, Filled]:
    """Columns with draws for cells: as wide as the real ones, wrong row by row.

    Where a method has drawn, its draws are kept, but for its numbers if one of them has another
    width than the known cells. Otherwise a number is its mean and a held-out error. The mean is
    shrunk as far as held-out rows ask for: errors are then uncorrelated with it. All numbers of a
    row take the errors of one common row. A category is drawn by its probability.
    """
    off = {one.model for one in filled.values() if has_other_width(one)}
    means = {
        name: one
        for name, one in filled.items()
        if one.drawn is None or (one.model in off and not one.target.classes)
    }
    donors = _draw_donors(list(means.values()), rng)
    done = dict(filled)
    for name, one in means.items():
        fold, fraction = shrink(one.fold, folds)
        if one.chances is not None:
            base = one.target.frequencies()
            drawn = draw_classes(base + fraction * (one.chances - base), rng)
        else:
            centre = one.target.filler + fraction * (one.values - one.target.filler)
            errors, known = one.target.filled - fold.predicted, one.target.known
            rows = donors if known[donors].all() else rng.choice(np.flatnonzero(known), len(donors))
            drawn = centre + errors[rows]
        done[name] = replace(one, drawn=drawn)
    return done


def _draw_donors(columns: Sequence[Filled], rng: np.random.Generator) -> Integers:
    """A common row for each remaining row: one that knows all numbers, if there are enough."""
    if not columns:
        return np.zeros(0, dtype=np.int64)
    known = np.ones(len(columns[0].target.known), dtype=bool)
    for one in columns:
        known &= one.target.known | (one.chances is not None)
    able = np.flatnonzero(known)
    if len(able) < _LEAST_DONORS:
        able = np.arange(len(known))
    return np.asarray(rng.choice(able, len(columns[0].values)))


def _as_codes(target: Target, values: pd.Series[Any]) -> Floats:
    """A column in the user's units as numbers, or as class codes."""
    if target.classes:
        return np.asarray(codes.positions(values, target.levels), dtype=np.float64)
    return np.asarray(codes.as_floats(values), dtype=np.float64)
