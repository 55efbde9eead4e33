"""Out-of-fold predictions of the missing party's columns: what the other's columns are worth.

Holds, learns: as in tasks.py. Each common row is scored once, by a model that did not see it: of a
linear base by leaving out one row at a time, of trees by folds that the missing party draws and
hides, all in the same rounds. Probabilities and expected errors follow from these predictions at
the missing party.

On shares no prediction is opened: of numbers the missing party learns by hidden part of the rows
the sum of squared errors and that of errors times the distance from the mean; skill, shrinking and
so routes are made of these, and the same as with predictions. Of categories it learns means,
deviations and correlations of the errors by class. What needs single rows is made of normal errors
that add up so: probabilities and the skill of categories are those of normal scores, expected
errors are the same for all rows of a column, and coverage is not measured. Intervals keep theirs:
what the errors of a number stay within is found by counting them below a few limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from vfsl.channel import Channel
from vfsl.completion.bases import (
    Pair,
    as_chances,
    make_pair,
    prepare_given,
    scores_of_model,
)
from vfsl.completion.calibration import (
    ClassScale,
    ErrorScale,
    cross_chances,
    cross_errors,
    draw_errors,
    draw_folds,
    draw_scores,
)
from vfsl.completion.columns import Fold, Target
from vfsl.completion.shared_errors import ClassErrors
from vfsl.completion.shared_fit import Missing
from vfsl.completion.shared_roles import (
    Posed,
    SharedLead,
    count_parts,
    find_errors,
    follow_errors,
    make_shared_targets,
    on_shares,
)
from vfsl.completion.tasks import COMMON, DISCLOSURES, HELD_OUT, Fitting, follow
from vfsl.completion.vfpum import TellColumns, group_columns, name_columns
from vfsl.errors import ConfigError
from vfsl.params import check_params, documented, param
from vfsl.parts import Part, Roles
from vfsl.store import Checkpoints
from vfsl.values import Floats, Integers


@documented
@dataclass
class CrossFit:
    """Out-of-fold predictions of columns that the given party's columns might predict."""

    name: ClassVar[str] = "cross-fit"

    base: str | Pair = param("linear", "The federated estimator, as in VFPUM.")
    folds: int = param(
        5,
        "Folds of a cross-fit of trees, and of what the missing party learns from predictions.",
        ge=2,
    )
    spread: bool = param(
        False,
        "Also learn how large the errors of numbers are, so that confidence and intervals differ "
        "from row to row.",
    )
    miss: float = param(
        0.1, "On shares: the fraction of truth that intervals may leave out.", gt=0, lt=1
    )

    def train(
        self,
        channel: Channel,
        part: Part | None,
        *,
        roles: Roles,
        rng: np.random.Generator,
        columns: Sequence[str] = (),
        kept: Checkpoints | None = None,
        tell: TellColumns | None = None,
    ) -> dict[str, Fold]:
        """One party's side; at the missing party the folds by column.

        A column whose values are too rare for a linear base has none. ``columns``, ``kept`` and
        ``tell`` are as in `VFPUM.train`.
        """
        check_params(self)
        pair = make_pair(self.base)
        channel = channel.within(self.name, DISCLOSURES)
        kept = Checkpoints(None) if kept is None else kept
        if on_shares(pair, roles):
            if channel.me == roles.label_holder:
                return self._lead_on_shares(channel, part, roles, rng, columns, kept, tell)
            follow_errors(channel, pair, part, roles, rng)
            return {}
        if channel.me != roles.label_holder:
            given = None if part is None else prepare_given(part, pair)[0]
            follow(channel, pair, given, roles, rng, kept)
            return {}
        if part is None:
            raise ConfigError(f"Party {channel.me!r} needs its table to complete it.")
        folds = draw_folds(len(part.rows), self.folds, rng)
        fitting = Fitting(channel, pair, roles, rng, len(part.rows), kept)
        targets = fitting.make_targets(part.table.take(part.rows), columns)
        by_name = {target.name: target for target in targets}
        found: dict[str, Fold] = {}
        for number, names in enumerate(group_columns(targets, pair)):
            if tell is not None:
                tell(name_columns(names), len(found), len(targets))
            content = fitting.load_group(number)
            if content is None:
                group = [by_name[name] for name in names]
                made = self._hold_out(fitting, group, folds, number)
                lines = {name: fold.to_dict() for name, fold in made.items()}
                fitting.save_group(number, {"folds": lines})
            else:
                lines = content["folds"]
                made = {name: Fold.from_dict(lines[name], by_name[name]) for name in names}
            found |= made
        fitting.end()
        return {name: found[name] for name in by_name}

    def _lead_on_shares(
        self,
        channel: Channel,
        part: Part | None,
        roles: Roles,
        rng: np.random.Generator,
        columns: Sequence[str],
        kept: Checkpoints,
        tell: TellColumns | None,
    ) -> dict[str, Fold]:
        """All columns in one exchange."""
        if part is None:
            raise ConfigError(f"Party {channel.me!r} needs its table to complete it.")
        targets = make_shared_targets(part.table.take(part.rows), columns)
        lead = SharedLead(channel, roles, kept)
        content = lead.load(targets)
        if content is not None:
            lead.end()
            lines = content["folds"]
            return {one.name: Fold.from_dict(lines[one.name], one) for one in targets}
        found: dict[str, Fold] = {}
        if targets:
            if tell is not None:
                tell(name_columns([one.name for one in targets]), 0, len(targets))
            parts = draw_folds(len(part.rows), count_parts(len(part.rows), self.folds), rng)
            posed = Posed.of(targets)
            beyond = np.hstack([baseline_gaps(one) for one in targets]) / posed.scales
            codes = {i: one.grouped for i, one in enumerate(targets) if one.classes}
            asked = Missing(
                posed.values, posed.known, posed.means, beyond * posed.known, parts, codes
            )
            errors = find_errors(lead.order(), roles, asked, posed.classes, self.miss)
            sums = iter(np.moveaxis(errors.numbers, 2, 0))
            limits = iter(errors.limits)
            for number, target in enumerate(targets):
                if target.classes:
                    fold = draw_classes(target, errors.classes[number], self.folds, rng)
                else:
                    fold = draw_numbers(target, next(sums), parts, self.spread, rng)
                    fold = replace(fold, limit=float(next(limits)) * target.deviation)
                found[target.name] = fold
            lead.keep(targets, {"folds": {name: one.to_dict() for name, one in found.items()}})
        lead.end()
        return found

    def _hold_out(
        self, fitting: Fitting, group: Sequence[Target], folds: Integers, number: int
    ) -> dict[str, Fold]:
        """Held-out predictions of columns that train together."""
        if fitting.pair.linear:
            return self._leave_one_out(fitting, group, folds, number)
        (target,) = group
        return {target.name: self._by_folds(fitting, target, folds, number)}

    def _leave_one_out(
        self, fitting: Fitting, group: Sequence[Target], folds: Integers, number: int
    ) -> dict[str, Fold]:
        columns = np.hstack([target.numbers(target.filled) for target in group])
        known = np.hstack([np.tile(one.known[:, None], (1, one.width)) for one in group])
        below = np.zeros((fitting.others, known.shape[1]))
        _, held = fitting.fit(
            fitting.own_columns(),
            np.vstack([columns, below]),
            None if known.all() else np.vstack([known.astype(float), below]),
            classes=False,
            train=COMMON,
            score=HELD_OUT,
            group=number,
        )
        blocks = np.split(held, np.cumsum([target.width for target in group])[:-1], axis=1)
        return {
            target.name: fold_scores(target, block, folds)
            if target.classes
            else self._fold_values(target, block[:, 0], mean_of_others(target), folds)
            for target, block in zip(group, blocks, strict=True)
        }

    def _by_folds(self, fitting: Fitting, target: Target, folds: Integers, number: int) -> Fold:
        """All folds in the same rounds; the base knows the scores of its training rows."""
        numbers = np.unique(folds)
        weights = np.zeros((fitting.common + fitting.others, len(numbers)))
        for fold in numbers:
            weights[: fitting.common, fold] = target.known & (folds != fold)
        padded = np.concatenate([target.filled, np.zeros(fitting.others)])
        share, scores = fitting.fit(
            fitting.own_columns(),
            padded.astype(np.int64) if target.classes else padded,
            weights,
            classes=target.classes,
            train=COMMON,
            score=COMMON,
            group=number,
        )
        baseline = np.zeros((fitting.common, max(len(target.levels), 1)))
        answers = np.zeros(baseline.shape)
        for fold in numbers:
            here, use = folds == fold, target.known & (folds != fold)
            found = scores_of_model(scores, share, int(fold))[here]
            if not target.classes:
                baseline[here, 0], answers[here] = target.filled[use].mean(), found
                continue
            baseline[here] = target.frequencies(use)
            answers[here] = baseline[here]
            # Of one class there is nothing to learn.
            if (baseline[here][0] > 0).sum() > 1:
                base = fitting.pair.of(classes=True)
                answers[here] = as_chances(base, share, found, len(target.levels))
        if not target.classes:
            return self._fold_values(target, answers[:, 0], baseline[:, 0], folds)
        return Fold(target, answers.argmax(axis=1).astype(np.float64), baseline, answers)

    def _fold_values(
        self, target: Target, predicted: Floats, baseline: Floats, folds: Integers
    ) -> Fold:
        if not self.spread:
            return Fold(target, predicted, baseline)
        errors, known = target.filled - predicted, target.known
        return Fold(
            target,
            predicted,
            baseline,
            spread=cross_errors(predicted, errors, known, folds),
            errors=ErrorScale.fit(predicted[known], errors[known]),
        )


def baseline_gaps(target: Target) -> Floats:
    """How far a number is from what the other rows say of it; of categories nothing is asked."""
    if target.classes:
        return np.zeros((len(target.filled), target.width))
    return np.asarray((target.filled - mean_of_others(target))[:, None])


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


def draw_classes(target: Target, errors: ClassErrors, folds: int, rng: np.random.Generator) -> Fold:
    """Held-out probabilities of a category from scores with these means and deviations."""
    groups, known, levels = target.grouped, target.known, len(target.levels)
    moments = errors.sums, errors.squares, errors.products, groups, known
    judged, learned = (draw_scores(*moments, rng, exactly=exactly) for exactly in (False, True))
    fold = fold_scores(target, judged, draw_folds(len(groups), folds, rng))
    codes = target.filled.astype(np.int64)
    scale = ClassScale.fit(learned[known], codes[known], levels)
    return replace(fold, scale=scale, drawn=True, scores=learned)


def fold_scores(target: Target, scores: Floats, folds: Integers) -> Fold:
    """Linear scores of classes as probabilities, by a scale that did not see the row."""
    codes, classes = target.filled.astype(np.int64), len(target.levels)
    chances = cross_chances(scores, codes, target.known, classes, folds)
    scale = ClassScale.fit(scores[target.known], codes[target.known], classes)
    guess = chances.argmax(axis=1).astype(np.float64)
    return Fold(target, guess, frequencies_of_others(target), chances, scale=scale)


def mean_of_others(target: Target) -> Floats:
    """The mean of all known cells but the row's own."""
    known, values = target.known, target.filled
    total, count = values[known].sum(), known.sum()
    alone = (total - values) / max(count - 1, 1)
    return np.asarray(np.where(known, alone, total / max(count, 1)))


def frequencies_of_others(target: Target) -> Floats:
    """The frequencies of the classes among all known cells but the row's own, (rows, classes)."""
    hot = np.eye(len(target.levels))[target.filled.astype(np.int64)] * target.known[:, None]
    counts = hot.sum(axis=0) - hot
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0))
