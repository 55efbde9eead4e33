"""One completed column: values, where they come from, how sure they are, what they are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vfsl.completion import conformal
from vfsl.completion.crossfit import Fold, losses, skill
from vfsl.completion.selection import Booleans, Floats, Places
from vfsl.completion.shift import Shift
from vfsl.completion.targets import Target

USE, CARE, MEAN = "use", "use with care", "no better than mean"
# A column that removes less than this share of the squared error is to be used with care.
_GOOD_SKILL = 0.1
# Nor is one better than the mean before its skill is so many standard errors above nothing.
_SHOWN = 2.0
_NO_MODELS = ("mean", "constant")


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
    """

    target: Target
    route: str
    model: str
    values: Floats
    present: Booleans
    round: Places
    confidence: Floats
    chances: Floats | None
    fold: Fold

    def drawn(self, rng: np.random.Generator) -> Filled:
        """The column with draws in place of means: as wide as the real one, wrong row by row.

        A number gets a held-out error of the same model, a category is drawn by its probability.
        Models that learn from means meet wider values when they are used; these do not.
        """
        rows = len(self.values)
        if self.chances is not None:
            below = self.chances.cumsum(axis=1)
            places = (below < rng.random(rows)[:, None] * below[:, -1:]).sum(axis=1)
            return replace(self, values=places.astype(np.float64))
        known = self.target.known
        errors = (self.target.filled - self.fold.predicted)[known]
        if self.fold.spread is not None and self.fold.rest_spread is not None:
            scaled = errors / self.fold.spread[known]
            return replace(
                self, values=self.values + rng.choice(scaled, rows) * self.fold.rest_spread
            )
        return replace(self, values=self.values + rng.choice(errors, rows))

    def interval(self, miss: float, shift: Shift | None) -> tuple[Floats, Floats]:
        """Bounds that hold a share 1 − miss of the truth."""
        scores = _number_scores(self.fold)
        q = _quantiles(scores, self.fold, len(self.values), miss, shift)
        return conformal.split_interval(self.values, q, self.fold.rest_spread)

    def sets(self, miss: float, shift: Shift | None) -> Booleans:
        """Classes that hold the truth in a share 1 − miss of the rows."""
        if self.chances is None:
            raise TypeError(self.target.name)
        q = _quantiles(_class_scores(self.fold), self.fold, len(self.values), miss, shift)
        return conformal.lac_sets(self.chances, q)

    def quality(self, miss: float, folds: int) -> dict[str, Any]:
        """Measured on held-out common rows."""
        value, error = skill(self.fold)
        known = self.target.known
        truth = self.target.filled[known]
        ours, _ = losses(self.fold)
        line: dict[str, Any] = {
            "kind": "categorical" if self.target.classes else "numeric",
            "route": self.route,
            "model": self.model,
            "rows": int(known.sum()),
            "skill": value,
            "skill error": error,
        }
        if self.fold.chances is None:
            scale = self.target.deviation or 1.0
            line |= {"rmse": float(np.sqrt(ours.mean()))}
            line |= {"rmse / deviation": line["rmse"] / scale}
        else:
            modes = self.fold.baseline[known].argmax(axis=1)
            line |= {
                "accuracy": float((self.fold.predicted[known] == truth).mean()),
                "accuracy of mode": float((modes == truth).mean()),
            }
        line |= {
            "coverage": held_out_coverage(self.fold, miss, folds),
            "filled": self.present.mean(),
        }
        return line | {"verdict": self.verdict}

    @property
    def verdict(self) -> str:
        """Whether to use the column."""
        return verdict(self.model, *skill(self.fold))

    @property
    def helps(self) -> bool:
        """Whether its model is expected to be better than the mean, be it shown or not."""
        return self.model not in _NO_MODELS and skill(self.fold)[0] > 0


def verdict(model: str, value: float, error: float) -> str:
    """Whether to use what a model of that held-out skill, known to that error, has filled in."""
    if model in _NO_MODELS or value <= _SHOWN * error:
        return MEAN
    return USE if value - error > _GOOD_SKILL else CARE


def shrunk(fold: Fold, folds: int) -> tuple[Fold, float]:
    """Held-out predictions drawn towards the baseline, and how much of the model is kept.

    The share λ minimises the held-out squared error. Each fold is drawn by the λ of the others, so
    that its own truth does not flatter it; the last λ, of all rows, is for new rows.
    """
    known = fold.target.known
    model = fold.predicted[:, None] if fold.chances is None else fold.chances
    base = fold.baseline[:, None] if fold.chances is None else fold.baseline
    truth = (
        fold.target.filled[:, None]
        if fold.chances is None
        else np.eye(model.shape[1])[fold.target.filled.astype(np.int64)]
    )
    places = np.arange(len(model)) % folds
    drawn = model.copy()
    for part in range(folds):
        use = known & (places != part)
        share = kept_share(model[use], base[use], truth[use])
        here = places == part
        drawn[here] = base[here] + share * (model[here] - base[here])
    share = kept_share(model[known], base[known], truth[known])
    if fold.chances is None:
        return replace(fold, predicted=drawn[:, 0]), share
    return replace(fold, predicted=drawn.argmax(axis=1).astype(float), chances=drawn), share


def kept_share(model: Floats, base: Floats, truth: Floats) -> float:
    """λ in [0, 1] with the least ‖base + λ (model − base) − truth‖."""
    step = model - base
    length = float((step**2).sum())
    return float(np.clip(((truth - base) * step).sum() / length, 0.0, 1.0)) if length > 0 else 0.0


def baseline_fold(target: Target, folds: int) -> Fold:
    """Mean or frequencies of the other parts as held-out predictions."""
    places = np.arange(len(target.filled)) % folds
    if not target.classes:
        base = np.zeros(len(places))
        for part in range(folds):
            use = target.known & (places != part)
            base[places == part] = target.filled[use].mean() if use.any() else target.filler
        return Fold(target, base, base)
    chances = np.zeros((len(places), len(target.levels)))
    for part in range(folds):
        use = target.known & (places != part)
        counts = np.bincount(target.filled[use].astype(np.int64), minlength=len(target.levels))
        chances[places == part] = counts / max(counts.sum(), 1)
    return Fold(target, chances.argmax(axis=1).astype(float), chances, chances)


def filled_by_baseline(target: Target, others: int, folds: int, route: str, model: str) -> Filled:
    """A column of means, modes, or its one value."""
    counts = (
        np.bincount(target.filled[target.known].astype(np.int64), minlength=len(target.levels))
        if target.classes
        else None
    )
    chances = None if counts is None else np.tile(counts / counts.sum(), (others, 1))
    sure = np.zeros(others) if chances is None else chances.max(axis=1)
    if target.constant:
        sure = np.ones(others)
    return Filled(
        target,
        route,
        model,
        np.full(others, target.filler),
        np.ones(others, dtype=bool),
        np.zeros(others, dtype=np.int64),
        sure,
        chances,
        baseline_fold(target, folds),
    )


def held_out_coverage(fold: Fold, miss: float, folds: int) -> float:
    """How often the truth of one part is inside bounds from the others."""
    known = fold.target.known
    scores = _number_scores(fold) if fold.chances is None else _class_scores(fold)
    places = np.flatnonzero(known) % folds
    inside = np.zeros(len(scores), dtype=bool)
    for part in range(folds):
        q = conformal.quantile(scores[places != part], miss)
        inside[places == part] = scores[places == part] <= q
    return float(inside.mean()) if len(inside) else float("nan")


def _number_scores(fold: Fold) -> Floats:
    known = fold.target.known
    spread = None if fold.spread is None else fold.spread[known]
    return conformal.split_scores(fold.target.filled[known], fold.predicted[known], spread)


def _class_scores(fold: Fold) -> Floats:
    known = fold.target.known
    if fold.chances is None:
        raise TypeError(fold.target.name)
    return conformal.lac_scores(fold.chances[known], fold.target.filled[known].astype(np.int64))


def _quantiles(scores: Floats, fold: Fold, others: int, miss: float, shift: Shift | None) -> Floats:
    if shift is None or shift.common is None or shift.rest is None:
        return np.full(others, conformal.quantile(scores, miss))
    return conformal.weighted_quantile(scores, shift.common[fold.target.known], shift.rest, miss)


def summary(columns: Mapping[str, Filled]) -> str:
    """A sentence for the record."""
    counts = {verdict: 0 for verdict in (USE, CARE, MEAN)}
    for column in columns.values():
        counts[column.verdict] += 1
    return ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
