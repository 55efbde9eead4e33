"""What the missing party makes of sums of errors: held-out predictions, expected errors, limits.

All local. Numbers and categories of which only sums are known get drawn predictions whose sums are
those; every measure that is made of sums is then the measured one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vfsl.completion.calibration import ErrorScale, draw_errors, draw_folds
from vfsl.completion.class_sums import (
    HALVES,
    ClassErrors,
    ClassModel,
    draw_classes,
    draw_halves,
    number_cells,
)
from vfsl.completion.columns import Fold, Target
from vfsl.completion.shared_errors import Errors
from vfsl.completion.shared_fit import Missing
from vfsl.completion.shared_limits import Judging, expect_squares, find_inside
from vfsl.completion.shared_roles import Posed, count_parts
from vfsl.values import Booleans, Floats, Integers

# Which part of a model's predictions is given, by its held-out predictions.
Fraction = Callable[[Fold], float]


@dataclass(frozen=True, eq=False)
class Question:
    """Columns as targets, and how their errors are added up: by parts, and halves of classes."""

    targets: Sequence[Target]
    posed: Posed
    parts: Integers
    halves: Mapping[int, Integers]

    @classmethod
    def pose(
        cls,
        targets: Sequence[Target],
        folds: int,
        rng: np.random.Generator,
        halves: Mapping[int, Integers] | None = None,
    ) -> Question:
        """New parts; halves that were asked by before stay as they were."""
        rows = len(targets[0].filled)
        parts = draw_folds(rows, count_parts(rows, folds), rng)
        each = {
            i: draw_halves(one.grouped, one.width + 1, rng)
            for i, one in enumerate(targets)
            if one.classes
        }
        return cls(targets, Posed.of(targets), parts, {**each, **(halves or {})})

    def missing(self) -> Missing:
        """What the missing party brings to the exchange."""
        posed = self.posed
        beyond = np.hstack([baseline_gaps(one) for one in self.targets]) / posed.scales
        codes = {
            i: number_cells(one.grouped, self.halves[i], one.known, one.width + 1)
            for i, one in enumerate(self.targets)
            if one.classes
        }
        known = beyond * posed.known
        return Missing(posed.values, posed.known, posed.means, known, self.parts, codes)

    def hold_out(self, errors: Errors, spread: bool, rng: np.random.Generator) -> dict[str, Fold]:
        """Held-out predictions by column, drawn so that they add up to these sums."""
        sums, found = iter(np.moveaxis(errors.numbers, 2, 0)), {}
        for number, target in enumerate(self.targets):
            if not target.classes:
                found[target.name] = draw_numbers(target, next(sums), self.parts, spread, rng)
                continue
            one, halves = errors.classes[number], self.halves[number]
            found[target.name] = draw_classes(target, one, halves, rng)
        return found


def draw_numbers(
    target: Target, sums: Floats, parts: Integers, spread: bool, rng: np.random.Generator
) -> Fold:
    """Held-out predictions of a number whose errors have these sums, (2, parts)."""
    known, unit = target.known, target.deviation
    beyond = baseline_gaps(target)[:, 0] / unit
    values = target.filled + unit * draw_errors(sums[0], sums[1], beyond, known, parts, rng)
    fold = Fold(target, values, mean_of_others(target), drawn=True, parts=parts)
    if not spread:
        return fold
    scale = ErrorScale.constant(unit**2 * float(sums[0].sum()) / int(known.sum()))
    return replace(fold, spread=scale.expected(values), errors=scale)


def baseline_gaps(target: Target) -> Floats:
    """How far a number is from what the other rows say of it; of categories nothing is asked."""
    if target.classes:
        return np.zeros((len(target.filled), target.width))
    return np.asarray((target.filled - mean_of_others(target))[:, None])


def mean_of_others(target: Target) -> Floats:
    """The mean of all known cells but the row's own."""
    known, values = target.known, target.filled
    total, count = values[known].sum(), known.sum()
    alone = (total - values) / max(count - 1, 1)
    return np.asarray(np.where(known, alone, total / max(count, 1)))


# ---- the last models ----------------------------------------------------------------------------


class Judgement:
    """How good the last models are: made of their predictions and of sums of their errors."""

    def __init__(
        self,
        question: Question,
        folds: Mapping[str, Fold],
        miss: float,
        fraction: Fraction | None,
        rng: np.random.Generator,
    ) -> None:
        self._question, self._miss, self._rng = question, miss, rng
        self._fraction = fraction or (lambda fold: 1.0)
        self.folds = dict(folds)
        self._models: dict[int, ClassModel] = {}

    def begin(self, scores: Floats, sums: Errors | None, leverage: float) -> Judging:
        """What the counts are asked with, once the remaining rows are predicted."""
        question, posed = self._question, self._question.posed
        fractions = []
        by_part = iter(()) if sums is None else iter(np.moveaxis(sums.numbers, 2, 0))
        for number, (target, at) in enumerate(zip(question.targets, posed.places, strict=True)):
            fold = self.folds[target.name]
            if not target.classes:
                if sums is not None:
                    spread = fold.errors is not None
                    fold = draw_numbers(target, next(by_part), question.parts, spread, self._rng)
                fractions.append(self._fraction(fold))
            else:
                errors = _stored(fold) if sums is None else sums.classes[number]
                values, halves = scores[:, at] + posed.means[at], question.halves[number]
                model = ClassModel.fit(target, errors, halves, values, leverage, self._rng)
                self._models[number] = model
            self.folds[target.name] = fold
        return Judging(self._miss, np.array(fractions), self._models, scores)

    def end(
        self, judging: Judging, number: int, scores: Floats
    ) -> tuple[Floats | None, Booleans | None]:
        """Of one column and all its predictions: half the width of intervals, or sets."""
        target, limit = self._question.targets[number], float(judging.limits[number])
        if target.classes:
            model = self._models[number]
            self.folds[target.name] = model.hold_out(self._rng, judging.counted[number])
            # Rows were counted by models of half the rows: so are sets, by one or the other.
            inside = [find_inside(model, half, scores, limit) for half in range(HALVES)]
            chosen = self._rng.integers(HALVES, size=(len(scores), 1))
            return None, np.where(chosen == 0, *inside)
        place = sum(not one.classes for one in self._question.targets[:number])
        mean, unit = target.filler, target.deviation
        drawn = judging.fractions[place] * (scores[:, 0] - mean) / unit
        squares = expect_squares(judging.parabolas[:, place], drawn)
        return np.exp(limit) * np.sqrt(np.maximum(squares, 0.0)) * unit, None


def _stored(fold: Fold) -> ClassErrors:
    if fold.sums is None or fold.products is None:
        raise TypeError(fold.target.name)
    return ClassErrors(fold.sums, fold.products)
