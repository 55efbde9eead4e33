"""Columns of the missing party as targets: numbers, or codes of categories, on common rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from vfsl.completion.calibrating import plain_chances
from vfsl.completion.selection import Booleans, Floats, Places
from vfsl.data import Kind, PartyTable, codes
from vfsl.data.codes import CategoryCode, Code, NumericCode
from vfsl.errors import DataError

# Linear protocols hold targets up to 32 deviations from the mean.
_FARTHEST = 20.0


@dataclass(frozen=True, eq=False)
class Target:
    """One column of the missing party on the common rows.

    Attributes
    ----------
    code : NumericCode or CategoryCode
        Type, bounds and categories on the common rows, to write predictions back.
    filled : array (common rows,)
        Numbers, or codes of categories; ``filler`` where a cell is missing. Numbers farther than 20
        deviations from the mean are drawn in: one such cell would rule a fit.
    known : boolean array
    groups : integer array (categories,), optional
        Which categories a linear model predicts together, since few rows have them; group 0 is not
        predicted: it follows from the others.
    """

    code: Code
    filled: Floats
    known: Booleans
    groups: Places | None = None

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def classes(self) -> bool:
        return isinstance(self.code, CategoryCode)

    @property
    def levels(self) -> list[Any]:
        return list(self.code.levels) if isinstance(self.code, CategoryCode) else []

    @property
    def width(self) -> int:
        """How many numbers a linear model predicts for it: one, or one for each group but one."""
        return int(self._groups.max()) if self.classes else 1

    def numbers(self, values: Floats) -> Floats:
        """Values of it as a linear model predicts them, (rows, width)."""
        if not self.classes:
            return values[:, None]
        return np.asarray(np.eye(self.width + 1)[self._groups[values.astype(np.int64)]][:, 1:])

    def plain_chances(self, scores: Floats) -> Floats:
        """Linear scores as probabilities, cut to 0 and 1; within a group as on the common rows."""
        counts = np.bincount(self.filled[self.known].astype(np.int64), minlength=len(self.levels))
        counts = np.maximum(counts, 1e-9)
        within = counts / np.bincount(self._groups, weights=counts)[self._groups]
        return np.asarray(plain_chances(scores)[:, self._groups] * within)

    @property
    def _groups(self) -> Places:
        return np.arange(len(self.levels)) if self.groups is None else self.groups

    @property
    def filler(self) -> float:
        """What missing cells and rows outside D_L carry, at weight 0: the mean, or the mode."""
        if isinstance(self.code, CategoryCode):
            return float(self.code.mode or 0)
        return float(self.filled[self.known].mean())

    @property
    def deviation(self) -> float:
        return float(self.filled[self.known].std())

    @property
    def constant(self) -> bool:
        """Whether the known cells are all the same."""
        seen = self.filled[self.known]
        return len(seen) == 0 or bool((seen == seen[0]).all())


def targets_of(common: PartyTable, columns: Sequence[str]) -> list[Target]:
    """Targets from the common rows of a table.

    Raises
    ------
    DataError
        A column without any value on the common rows.
    """
    return [target_of(common, name) for name in columns]


def target_of(common: PartyTable, name: str) -> Target:
    """One column as a target."""
    values = common.column(name)
    known = values.notna().to_numpy()
    if not known.any():
        raise DataError(
            f"Column {name!r} of party {common.party} has no value in the common rows, so nothing "
            "can be learned about it; leave it out."
        )
    code: Code
    if common.kinds[name] is Kind.CATEGORICAL:
        made = codes.fit_category(values, keep_missing=False)
        places = codes.positions(values, made.levels).astype(np.float64)
        places[~known] = float(made.mode or 0)
        return Target(made, places, known)
    code = codes.fit_numeric(
        values, keep_missing=False, where=f"Column {name!r} of party {common.party}"
    )
    numbers = tamed(codes.as_floats(values))
    return Target(code, np.where(known, numbers, np.nanmean(numbers)), known)


def merge_rare(target: Target, least: int) -> Target | None:
    """The target with categories of fewer rows merged; None if it has no two groups of so many.

    What a linear model opens of a column is a sum of the other party's rows by value: of few rows
    and many columns the other party could solve it for them. So no value of a number may be so
    frequent that fewer rows have another one, and no group of categories may be smaller.
    """
    values = target.filled[target.known]
    if not target.classes:
        others = len(values) - int(np.unique(values, return_counts=True)[1].max())
        return target if others >= least else None
    counts = np.bincount(values.astype(np.int64), minlength=len(target.levels))
    order = np.argsort(-counts, kind="stable")
    frequent = [int(level) for level in order if counts[level] >= least]
    rare = [int(level) for level in order if counts[level] < least]
    if rare and counts[rare].sum() < least and frequent:
        rare.append(frequent.pop())  # the smallest of the others hides them
    groups = np.zeros(len(target.levels), dtype=np.int64)
    for number, level in enumerate(frequent):
        groups[level] = number
    groups[rare] = len(frequent)
    return replace(target, groups=groups) if groups.max() > 0 else None


def tamed(numbers: Floats, farthest: float = _FARTHEST) -> Floats:
    """Numbers drawn in to so many deviations from their mean, measured after drawing in."""
    values = numbers.copy()
    for _ in range(100):
        mean, deviation = np.nanmean(values), np.nanstd(values)
        low, high = mean - farthest * deviation, mean + farthest * deviation
        if not ((values < low) | (values > high)).any():
            break
        values = np.clip(values, low, high)
    return np.asarray(values)


def restored(target: Target, values: Floats, present: Booleans) -> pd.Series[Any]:
    """Numbers or class codes in the column's own type, bounds and names; missing if not present."""
    code = target.code
    if isinstance(code, NumericCode):
        block = np.where(present, (values - code.mean) / code.deviation, np.nan)[:, None]
        series = codes.restore_numbers(block, code, clip=True)
        if not code.used:
            series = series.where(present)
        return series
    if not isinstance(code, CategoryCode):
        raise TypeError(code)
    if not code.used:
        made = codes.restore_categories(np.zeros((len(values), 0)), code)
        return made.where(present)
    places = np.where(present, values, -1).astype(np.int64)
    return codes.restore_categories(codes.one_hot(places, ~present, code.width), code)
