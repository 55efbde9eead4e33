"""Columns of the missing party: as targets on common rows, held out, and completed.

A `Target` is a column on the common rows, a `Fold` says what models without a row predict for it,
and a `Filled` is the completed column: values, where they come from, how sure they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd

from vfsl.completion import calibration
from vfsl.completion.calibration import ClassScale, ErrorScale, Shift, to_lists
from vfsl.data import Kind, PartyTable, codes
from vfsl.data.codes import CategoryCode, Code, NumericCode
from vfsl.errors import DataError
from vfsl.values import Booleans, Floats, Integers

USE, CARE, MEAN = "use", "use with care", "no better than mean"
# A column that removes less than this fraction of the squared error is to be used with care.
_GOOD_SKILL = 0.1
# Nor is one better than the mean before its skill is so many standard errors above nothing.
_SHOWN = 2.0
_NO_MODELS = ("mean", "constant")
# Linear protocols hold targets up to 32 deviations from the mean.
_FARTHEST = 20.0

# ---- targets ------------------------------------------------------------------------------------


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
    groups: Integers | None = None

    @property
    def name(self) -> str:
        return self.code.name

    @property
    def classes(self) -> bool:
        """Whether its values are categories."""
        return isinstance(self.code, CategoryCode)

    @property
    def levels(self) -> list[Any]:
        return list(self.code.levels) if isinstance(self.code, CategoryCode) else []

    @property
    def width(self) -> int:
        """How many numbers a linear model predicts for it: one, or one for each group but one."""
        return int(self.group_of.max()) if self.classes else 1

    def numbers(self, values: Floats) -> Floats:
        """Values of it as a linear model predicts them, (rows, width)."""
        if not self.classes:
            return values[:, None]
        return np.asarray(np.eye(self.width + 1)[self.group_of[values.astype(np.int64)]][:, 1:])

    @property
    def grouped(self) -> Integers:
        """Of a category the group of each cell, as a linear model predicts it."""
        return np.asarray(self.group_of[self.filled.astype(np.int64)])

    def plain_chances(self, scores: Floats) -> Floats:
        """Linear scores as probabilities, cut to 0 and 1; within a group as on the common rows."""
        return np.asarray(calibration.plain_chances(scores)[:, self.group_of] * self.within)

    @property
    def group_of(self) -> Integers:
        """The group of each category; without groups each is one."""
        return np.arange(len(self.levels)) if self.groups is None else self.groups

    @property
    def within(self) -> Floats:
        """Which fraction of its group each category makes up."""
        counts = np.maximum(self.counts(), 1e-9)
        return np.asarray(counts / np.bincount(self.group_of, weights=counts)[self.group_of])

    def counts(self, use: Booleans | None = None) -> Integers:
        """How many of these rows, by default of all known cells, have each category."""
        cells = self.filled[self.known if use is None else use].astype(np.int64)
        return np.bincount(cells, minlength=len(self.levels))

    def frequencies(self, use: Booleans | None = None) -> Floats:
        """Which fraction of these rows has each category."""
        counts = self.counts(use)
        return np.asarray(counts / max(counts.sum(), 1))

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

    def restore(self, values: Floats, present: Booleans | None = None) -> pd.Series[Any]:
        """Numbers or class codes in the column's own type, bounds and names; missing if absent."""
        code = self.code
        here = np.ones(len(values), dtype=bool) if present is None else present
        if isinstance(code, NumericCode):
            block = np.where(here, (values - code.mean) / code.deviation, np.nan)[:, None]
            series = codes.restore_numbers(block, code, clip=True)
            return series if code.used else series.where(here)
        if not isinstance(code, CategoryCode):
            raise TypeError(code)
        if not code.used:
            return codes.restore_categories(np.zeros((len(values), 0)), code).where(here)
        places = np.where(here, values, -1).astype(np.int64)
        return codes.restore_categories(codes.one_hot(places, ~here, code.width), code)


def make_target(common: PartyTable, name: str) -> Target:
    """A column of the common rows as a target; DataError if it has no value there."""
    values = common.column(name)
    known = values.notna().to_numpy()
    if not known.any():
        raise DataError(
            f"Column {name!r} of party {common.party} has no value in the common rows, so nothing "
            "can be learned about it; leave it out."
        )
    if common.kinds[name] is Kind.CATEGORICAL:
        category = codes.fit_category(values, keep_missing=False)
        places = codes.positions(values, category.levels).astype(np.float64)
        places[~known] = float(category.mode or 0)
        return Target(category, places, known)
    where = f"Column {name!r} of party {common.party}"
    numeric = codes.fit_numeric(values, keep_missing=False, where=where)
    numbers = draw_in(codes.as_floats(values))
    return Target(numeric, np.where(known, numbers, np.nanmean(numbers)), known)


def merge_rare(target: Target, least: int) -> Target | None:
    """The target with categories of fewer rows merged; None if it has no two groups of so many.

    What a linear model opens of a column is a sum of the other party's rows by value: of few rows
    and many columns the other party could solve it for them. So no value of a number may be so
    frequent that fewer rows have another one, and no group of categories may be smaller.
    """
    if not target.classes:
        values = target.filled[target.known]
        others = len(values) - int(np.unique(values, return_counts=True)[1].max())
        return target if others >= least else None
    counts = target.counts()
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


def draw_in(numbers: Floats, farthest: float = _FARTHEST) -> Floats:
    """Numbers no farther than so many deviations from their mean, measured after drawing in."""
    values = numbers.copy()
    for _ in range(100):
        mean, deviation = np.nanmean(values), np.nanstd(values)
        low, high = mean - farthest * deviation, mean + farthest * deviation
        if not ((values < low) | (values > high)).any():
            break
        values = np.clip(values, low, high)
    return np.asarray(values)


# ---- held-out predictions -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fold:
    """Out-of-fold predictions of one column on the common rows.

    Attributes
    ----------
    target : Target
    predicted : array (common rows,)
        Numbers, or the most probable class codes.
    baseline : array
        What mean or frequencies of the same training rows say: numbers, or (rows, classes).
    chances : array (common rows, classes), optional
    spread : array (common rows,), optional
        The expected error of each prediction, itself out of fold; numbers.
    rest_spread : array (remaining rows,), optional
        Likewise of the remaining rows, once they are predicted.
    scale : ClassScale, optional
        From linear scores of classes to probabilities, for the remaining rows.
    errors : ErrorScale, optional
        From predictions to expected errors, for the remaining rows.
    drawn : bool
        Predictions are drawn: their errors add up to measured sums, but are not those of the rows.
    parts : integer array (common rows,), optional
        Then, of a number, the parts of the rows by which errors were added up.
    scores : array (common rows, groups but one), optional
        Then, of a category, the drawn scores of a linear model.
    halves : integer array (common rows,), sums and products : array, optional
        Then, of a category, by which halves of the rows errors were added up, and to what.
    """

    target: Target
    predicted: Floats
    baseline: Floats
    chances: Floats | None = None
    spread: Floats | None = None
    rest_spread: Floats | None = None
    scale: ClassScale | None = None
    errors: ErrorScale | None = None
    drawn: bool = False
    parts: Integers | None = None
    scores: Floats | None = None
    halves: Integers | None = None
    sums: Floats | None = None
    products: Floats | None = None

    def to_dict(self) -> dict[str, Any]:
        """All but the column itself, as JSON values."""
        lists = {name: each for name, each in to_lists(self).items() if name != "target"}
        scale, errors = (
            None if one is None else to_lists(one) for one in (self.scale, self.errors)
        )
        return lists | {"scale": scale, "errors": errors}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], target: Target) -> Self:
        kept = {name: one for name, one in content.items() if one is not None}
        scale, errors = kept.pop("scale", None), kept.pop("errors", None)
        drawn = kept.pop("drawn", False)
        places = {
            name: np.asarray(kept.pop(name), dtype=np.int64)
            for name in ("parts", "halves")
            if name in kept
        }
        return cls(
            target,
            **{name: np.asarray(one, dtype=float) for name, one in kept.items()},
            scale=None if scale is None else ClassScale.from_dict(scale),
            errors=None if errors is None else ErrorScale(**errors),
            drawn=bool(drawn),
            parts=places.get("parts"),
            halves=places.get("halves"),
        )

    def conformal_scores(self) -> Floats:
        """How far the known cells are from their predictions, as intervals and sets measure it."""
        known = self.target.known
        truth = self.target.filled[known]
        if self.chances is not None:
            return calibration.lac_scores(self.chances[known], truth.astype(np.int64))
        spread = None if self.spread is None else self.spread[known]
        return calibration.split_scores(truth, self.predicted[known], spread)


def losses(fold: Fold) -> tuple[Floats, Floats]:
    """Squared errors of known cells, by the model and by the baseline: of numbers, or Brier."""
    known = fold.target.known
    truth = fold.target.filled[known]
    if fold.chances is None:
        return (fold.predicted[known] - truth) ** 2, (fold.baseline[known] - truth) ** 2
    hot = np.eye(fold.chances.shape[1])[truth.astype(np.int64)]
    return (
        np.asarray(((fold.chances[known] - hot) ** 2).sum(axis=1)),
        np.asarray(((fold.baseline[known] - hot) ** 2).sum(axis=1)),
    )


def skill(fold: Fold) -> tuple[float, float]:
    """How much of the baseline's squared error a model removes, and the standard error of that.

    1 is a perfect model, 0 the mean (or the frequencies), below 0 worse than that.
    """
    ours, theirs = losses(fold)
    total = theirs.mean()
    if total <= 0:
        return 0.0, 0.0
    ratio = ours.mean() / total
    # Delta method for a ratio of two means over the same rows; of parts, if only these are known.
    beyond = ours - ratio * theirs
    if fold.parts is not None:
        sums = np.bincount(fold.parts[fold.target.known], weights=beyond)
        spread = sums.std(ddof=1) * np.sqrt(len(sums))
        return float(1.0 - ratio), float(spread / (total * len(ours)))
    error = beyond.std(ddof=1) / (total * np.sqrt(len(ours)))
    return float(1.0 - ratio), float(error)


def shrink(fold: Fold, folds: int) -> tuple[Fold, float]:
    """Held-out predictions drawn towards the baseline, and which fraction of the model is kept.

    The fraction λ minimises the held-out squared error. Each fold is drawn by the λ of the others,
    so that its own truth does not flatter it; the last λ, of all rows, is for new rows.
    """
    known = fold.target.known
    model = fold.predicted[:, None] if fold.chances is None else fold.chances
    base = fold.baseline[:, None] if fold.chances is None else fold.baseline
    truth = (
        fold.target.filled[:, None]
        if fold.chances is None
        else np.eye(model.shape[1])[fold.target.filled.astype(np.int64)]
    )
    places = np.arange(len(model)) % folds if fold.parts is None else fold.parts
    drawn = model.copy()
    for part in range(int(places.max()) + 1):
        use, here = known & (places != part), places == part
        fraction = fit_fraction(model[use], base[use], truth[use])
        drawn[here] = base[here] + fraction * (model[here] - base[here])
    fraction = fit_fraction(model[known], base[known], truth[known])
    if fold.chances is None:
        return replace(fold, predicted=drawn[:, 0]), fraction
    return replace(fold, predicted=drawn.argmax(axis=1).astype(float), chances=drawn), fraction


def fit_fraction(model: Floats, base: Floats, truth: Floats) -> float:
    """λ in [0, 1] with the least ‖base + λ (model − base) − truth‖."""
    step = model - base
    length = float((step**2).sum())
    return float(np.clip(((truth - base) * step).sum() / length, 0.0, 1.0)) if length > 0 else 0.0


def make_baseline_fold(target: Target, folds: int) -> Fold:
    """Mean or frequencies of the other folds as held-out predictions."""
    places = np.arange(len(target.filled)) % folds
    base = np.zeros((len(places), max(len(target.levels), 1)))
    for part in range(folds):
        use, here = target.known & (places != part), places == part
        if target.classes:
            base[here] = target.frequencies(use)
        else:
            base[here, 0] = target.filled[use].mean() if use.any() else target.filler
    if not target.classes:
        return Fold(target, base[:, 0], base[:, 0])
    return Fold(target, base.argmax(axis=1).astype(float), base, base)


# ---- completed columns --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Filled:
    """One completed column for the remaining rows.

    Attributes
    ----------
    target : Target
        The column on the common rows.
    route : {"high", "low", "constant"}
    model : str
        What predicted it.
    values : array (remaining rows,)
        Numbers or class codes.
    present : boolean array
        False where a cell was left missing.
    round : integer array
        In which round a pseudo-label was given; 0 where none was.
    confidence : array
    chances : array (remaining rows, classes), optional
    fold : Fold
        Held-out predictions of the common rows, by the same kind of model.
    half : array (remaining rows,), optional
        Of a number, half the width of intervals, where errors of the rows are not known.
    inside : boolean array (remaining rows, classes), optional
        Likewise of a category: its sets.
    drawn : array (remaining rows,), optional
        Draws that stand in the table in place of means and most probable classes.
    """

    target: Target
    route: str
    model: str
    values: Floats
    present: Booleans
    round: Integers
    confidence: Floats
    chances: Floats | None
    fold: Fold
    half: Floats | None = None
    inside: Booleans | None = None
    drawn: Floats | None = None

    @property
    def cells(self) -> Floats:
        """What stands in the table."""
        return self.values if self.drawn is None else self.drawn

    def draw(self, rng: np.random.Generator) -> Filled:
        """The column with draws in place of means: as wide as the real one, wrong row by row.

        A number gets a held-out error of the same model, a category is drawn by its probability.
        Models that learn from means meet wider values when they are used; these do not.
        """
        rows = len(self.values)
        if self.chances is not None:
            return replace(self, drawn=draw_classes(self.chances, rng))
        known = self.target.known
        errors = (self.target.filled - self.fold.predicted)[known]
        if self.fold.spread is not None and self.fold.rest_spread is not None:
            scaled = rng.choice(errors / self.fold.spread[known], rows)
            return replace(self, drawn=self.values + scaled * self.fold.rest_spread)
        return replace(self, drawn=self.values + rng.choice(errors, rows))

    def interval(self, miss: float, shift: Shift | None) -> tuple[Floats, Floats]:
        """Bounds that hold a fraction 1 − miss of the truth."""
        if self.half is not None:
            return calibration.split_interval(self.values, 1.0, self.half)
        q = self._quantiles(miss, shift)
        return calibration.split_interval(self.values, q, self.fold.rest_spread)

    def sets(self, miss: float, shift: Shift | None) -> Booleans:
        """Classes that hold the truth in a fraction 1 − miss of the rows."""
        if self.chances is None:
            raise TypeError(self.target.name)
        if self.inside is not None:
            return self.inside
        return calibration.lac_sets(self.chances, self._quantiles(miss, shift))

    def _quantiles(self, miss: float, shift: Shift | None) -> Floats:
        scores = self.fold.conformal_scores()
        if shift is None or shift.common is None or shift.rest is None:
            return np.full(len(self.values), calibration.quantile(scores, miss))
        weights = shift.common[self.target.known]
        return calibration.weighted_quantile(scores, weights, shift.rest, miss)

    def quality(self, miss: float, folds: int) -> dict[str, Any]:
        """Measured on held-out common rows."""
        value, error = skill(self.fold)
        known = self.target.known
        truth = self.target.filled[known]
        line: dict[str, Any] = {
            "kind": "categorical" if self.target.classes else "numeric",
            "route": self.route,
            "model": self.model,
            "rows": int(known.sum()),
            "skill": value,
            "skill error": error,
        }
        if self.fold.chances is None:
            line["rmse"] = float(np.sqrt(losses(self.fold)[0].mean()))
            line["rmse / deviation"] = line["rmse"] / (self.target.deviation or 1.0)
        else:
            modes = self.fold.baseline[known].argmax(axis=1)
            line["accuracy"] = float((self.fold.predicted[known] == truth).mean())
            line["accuracy of mode"] = float((modes == truth).mean())
        return line | {
            "coverage": measure_coverage(self.fold, miss, folds),
            "filled": self.present.mean(),
            "verdict": self.verdict,
        }

    @property
    def verdict(self) -> str:
        """Whether to use the column."""
        return verdict(self.model, *skill(self.fold))

    @property
    def helps(self) -> bool:
        """Whether its model is expected to be better than the mean, be it shown or not."""
        return self.model not in _NO_MODELS and skill(self.fold)[0] > 0


def draw_classes(chances: Floats, rng: np.random.Generator) -> Floats:
    """A class code for each row, drawn by its chances."""
    below = chances.cumsum(axis=1)
    places = (below < rng.random(len(chances))[:, None] * below[:, -1:]).sum(axis=1)
    return np.asarray(places, dtype=np.float64)


def verdict(model: str, value: float, error: float) -> str:
    """Whether to use what a model of that held-out skill, known to that error, has filled in."""
    if model in _NO_MODELS or value <= _SHOWN * error:
        return MEAN
    return USE if value - error > _GOOD_SKILL else CARE


def fill_by_baseline(target: Target, others: int, folds: int, route: str, model: str) -> Filled:
    """A column of means, modes, or its one value."""
    chances, sure = None, np.zeros(others)
    if target.classes:
        chances = np.tile(target.frequencies(), (others, 1))
        sure = chances.max(axis=1)
    return Filled(
        target,
        route,
        model,
        np.full(others, target.filler),
        np.ones(others, dtype=bool),
        np.zeros(others, dtype=np.int64),
        np.ones(others) if target.constant else sure,
        chances,
        make_baseline_fold(target, folds),
    )


def measure_coverage(fold: Fold, miss: float, folds: int) -> float:
    """How often the truth of one fold is inside bounds from the others."""
    if fold.drawn:
        return float("nan")  # of drawn errors it would be what was asked for
    scores = fold.conformal_scores()
    places = np.flatnonzero(fold.target.known) % folds
    inside = np.zeros(len(scores), dtype=bool)
    for part in range(folds):
        q = calibration.quantile(scores[places != part], miss)
        inside[places == part] = scores[places == part] <= q
    return float(inside.mean()) if len(inside) else float("nan")
