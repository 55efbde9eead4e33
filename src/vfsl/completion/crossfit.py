"""Out-of-fold predictions of the missing party's columns: what the other's columns are worth.

Holds, learns: as in tasks.py. Each common row is scored once, by a model that did not see it: of a
linear base by leaving out one row at a time, of trees by folds that the missing party draws and
hides, all in the same rounds. Probabilities and expected errors follow from these predictions at
the missing party.

On shares no prediction is opened: of numbers the missing party learns by hidden part of the rows
the sum of squared errors and that of errors times the distance from the mean; skill, shrinking and
so routes are made of these, and the same as with predictions. Of categories it learns sums of
errors by hidden halves of each class, and of their products; a logistic model of scores needs no
more, but for scores to go with them, which come with VFPU-M's predictions. Until then a category's
skill is that of its linear scores. What intervals and sets must be like to cover
enough, VFPU-M finds of its last model (shared_limits.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    draw_folds,
)
from vfsl.completion.class_sums import frequencies_of_others
from vfsl.completion.columns import Fold, Target
from vfsl.completion.shared_judging import Question, mean_of_others
from vfsl.completion.shared_roles import (
    SharedLead,
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
            question = Question.pose(targets, self.folds, rng)
            classes = question.posed.classes
            errors = find_errors(lead.order(), roles, question.missing(), classes)
            found = question.hold_out(errors, self.spread, rng)
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


def fold_scores(target: Target, scores: Floats, folds: Integers) -> Fold:
    """Linear scores of classes as probabilities, by a scale that did not see the row."""
    codes, classes = target.filled.astype(np.int64), len(target.levels)
    chances = cross_chances(scores, codes, target.known, classes, folds)
    scale = ClassScale.fit(scores[target.known], codes[target.known], classes)
    guess = chances.argmax(axis=1).astype(np.float64)
    return Fold(target, guess, frequencies_of_others(target), chances, scale=scale)
