"""Which columns go to VFPU-M (high) and which to local methods (low), and the low route itself.

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
from vfsl.completion.columns import Filled, Fold, Target, fill_by_baseline, skill
from vfsl.completion.ensembles import blank, held_out, make_method, method_name
from vfsl.data import PartyTable
from vfsl.data.checks import check_share
from vfsl.values import Array

HIGH, LOW, CONSTANT = "high", "low", "constant"
RARE = "rare values"  # why a column is routed: its values are too rare for a linear base

# The name of a local method, or what makes one.
Method = str | Callable[[], Completer]


@dataclass(frozen=True)
class Route:
    """Where a column goes, and by which number.

    Attributes
    ----------
    column : str
    route : {"high", "low", "constant"}
        VFPU-M, a local method, or a column with one value only.
    by : {"association", "skill", "constant", "known cells", "rare values"}
    measure : float
        μ_q, or the cross-validated skill.
    threshold : float
        What the measure had to exceed.
    """

    column: str
    route: str
    by: str
    measure: float
    threshold: float


def route_by_association(strengths: Mapping[str, float], tau: float) -> list[Route]:
    """The papers' rule: μ_q > τ, strictly, is predicted; the rest is not."""
    check_share("route_by_association", "tau", tau)
    return [
        Route(name, HIGH if strength > tau else LOW, "association", float(strength), tau)
        for name, strength in strengths.items()
    ]


def route_by_skill(skills: Mapping[str, tuple[float, float]], errors: float = 0.5) -> list[Route]:
    """Columns whose model is better than the mean by ``errors`` standard errors out of fold.

    Half an error: predictions that are drawn towards the mean lose little where they are wrong.
    """
    return [
        Route(name, HIGH if value > errors * error else LOW, "skill", value, errors * error)
        for name, (value, error) in skills.items()
    ]


def find_best_tau(
    strengths: Mapping[str, float], skills: Mapping[str, tuple[float, float]]
) -> float:
    """The τ whose routed columns have the largest sum of held-out skills; the largest such τ.

    A column with a negative skill is worse than its mean, so routing it costs.
    """
    names = list(strengths)
    mu = np.array([strengths[name] for name in names])
    gain = np.array([skills[name][0] for name in names])
    options = np.unique(np.concatenate([[0.0, 1.0], mu]))
    totals = [gain[mu > tau].sum() for tau in options]
    best = max(range(len(options)), key=lambda place: (round(totals[place], 12), place))
    return float(options[best])


# ---- the low route ------------------------------------------------------------------------------


@dataclass(eq=False)
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
    """

    common: PartyTable
    high: Mapping[str, Filled]
    targets: Sequence[Target]
    others: int
    folds: int

    def by_mean(self) -> dict[str, Filled]:
        """Mean and mode."""
        return {
            target.name: fill_by_baseline(target, self.others, self.folds, LOW, "mean")
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
        return {
            target.name: self._fill(target, method_name(method), held[target.name], done)
            for target in self.targets
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
            name: filled.target.restore(filled.fold.predicted)
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
            else self.high[name].target.restore(self.high[name].values, self.high[name].present)
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
            values, chances = done.means[target.name].to_numpy(dtype=float), None
        else:
            fold = Fold(target, held.argmax(axis=1).astype(float), base.fold.baseline, held)
            wanted = pd.Index(target.levels, dtype=object)
            found = done.probabilities[target.name].reindex(columns=wanted, fill_value=0.0)
            chances = found.to_numpy(dtype=float)
            values = chances.argmax(axis=1).astype(float)
        return Filled(
            target, LOW, model, values, base.present, base.round, confidence, chances, fold
        )
