"""Out-of-fold predictions of the missing party's columns: what the other's columns are worth.

Holds, learns: as in pieces.py. Each common row is scored once, by a model that did not see it: of a
linear base by leaving out one row at a time (leave_one_out.py), of trees by parts that the missing
party draws and hides, all in the same rounds. Probabilities and expected errors follow from these
predictions at the missing party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from vfsl.channel import Channel
from vfsl.completion.bases import Pair, as_chances, make_pair, of_model
from vfsl.completion.calibrating import (
    ClassScale,
    ErrorScale,
    crossed_chances,
    crossed_errors,
    draw_parts,
)
from vfsl.completion.pieces import DISCLOSURES, HELD_OUT, OVERLAP, Leader, follow
from vfsl.completion.selection import Booleans, Floats, Places
from vfsl.completion.sides import Side, context_table
from vfsl.completion.targets import Target
from vfsl.completion.vfpum import OnColumns, groups_of, prepared
from vfsl.data import PartyTable
from vfsl.data.checks import check_count
from vfsl.errors import ConfigError
from vfsl.parts import Roles
from vfsl.store import Checkpoints


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
    """

    target: Target
    predicted: Floats
    baseline: Floats
    chances: Floats | None = None
    spread: Floats | None = None
    rest_spread: Floats | None = None
    scale: ClassScale | None = None
    errors: ErrorScale | None = None

    def to_dict(self) -> dict[str, Any]:
        """All but the column itself, as JSON values."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return {
            **{name: None if one is None else one.tolist() for name, one in arrays.items()},
            "scale": None if self.scale is None else self.scale.to_dict(),
            "errors": None if self.errors is None else asdict(self.errors),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], target: Target) -> Self:
        given = {name: content[name] for name in _ARRAYS if content[name] is not None}
        arrays = {name: np.asarray(one, dtype=float) for name, one in given.items()}
        scale, errors = content["scale"], content["errors"]
        return cls(
            target,
            **arrays,
            scale=None if scale is None else ClassScale.from_dict(scale),
            errors=None if errors is None else ErrorScale(**errors),
        )


_ARRAYS = ("predicted", "baseline", "chances", "spread", "rest_spread")


@dataclass
class CrossFit:
    """Out-of-fold predictions of columns that the given party's columns might predict.

    Parameters
    ----------
    base : str or Pair
        As in VFPUM.
    folds : int
        Parts of a cross-fit of trees, and of what the missing party learns from predictions.
    spread : bool
        Also learn how large the errors of numbers are, so that confidence and intervals differ from
        row to row.
    """

    name: ClassVar[str] = "cross-fit"

    base: str | Pair = "linear"
    folds: int = 5
    spread: bool = False

    def train(
        self,
        channel: Channel,
        side: Side | None,
        *,
        roles: Roles,
        rng: np.random.Generator,
        columns: Sequence[str] = (),
        kept: Checkpoints | None = None,
        on_columns: OnColumns | None = None,
    ) -> dict[str, Fold]:
        """One party's side; the folds by column at the missing party, who may hear of progress.

        A column whose values are too rare for a linear base has none.
        ``kept`` is where the party keeps finished groups of columns, to go on from after a failure.
        """
        check_count("CrossFit", "folds", self.folds, 2)
        pair = make_pair(self.base)
        channel = channel.within(self.name, DISCLOSURES)
        if channel.me != roles.label_holder:
            given = None if side is None else prepared(side, pair)[0]
            follow(channel, pair, given, roles, rng, kept)
            return {}
        if side is None:
            raise ConfigError(f"Party {channel.me!r} needs its table to complete it.")
        parts = draw_parts(len(side.overlap), self.folds, rng)
        leader = Leader(channel, pair, roles, rng, len(side.overlap), kept)
        targets = leader.targets_of(side.table.take(side.overlap), columns)
        by_name = {target.name: target for target in targets}
        found: dict[str, Fold] = {}
        for number, names in enumerate(groups_of(targets, pair)):
            if on_columns is not None:
                on_columns(names, len(found), len(targets))
            group = [by_name[name] for name in names]
            if number < leader.resume and kept is not None:
                lines = kept.load(f"group {number}")["folds"]
                found |= {name: Fold.from_dict(lines[name], by_name[name]) for name in names}
                continue
            made = _Crossing(leader, side.table.party, parts, number, self.spread).run(group)
            found |= made
            if kept is not None:
                lines = {name: fold.to_dict() for name, fold in made.items()}
                kept.save(f"group {number}", {"folds": lines, "pieces": leader.pieces})
        leader.end()
        return {name: found[name] for name in by_name}


@dataclass(frozen=True, eq=False)
class _Crossing:
    """The leader's side of one group of columns."""

    leader: Leader
    party: str
    parts: Places
    group: int
    spread: bool

    def run(self, group: Sequence[Target]) -> dict[str, Fold]:
        if self.leader.pair.linear:
            return self._leave_one_out(group)
        (target,) = group
        return {target.name: self._by_parts(target)}

    def _leave_one_out(self, group: Sequence[Target]) -> dict[str, Fold]:
        leader = self.leader
        columns = [target.numbers(target.filled) for target in group]
        known = np.hstack([np.tile(one.known[:, None], (1, one.width)) for one in group])
        below = np.zeros((leader.others, known.shape[1]))
        _, held = leader.fit(
            self._no_columns(),
            np.vstack([np.hstack(columns), below]),
            None if known.all() else np.vstack([known.astype(float), below]),
            classes=False,
            train=OVERLAP,
            score=HELD_OUT,
            group=self.group,
        )
        blocks = np.split(held, np.cumsum([target.width for target in group])[:-1], axis=1)
        return {
            target.name: self._fold_of_scores(target, block)
            if target.classes
            else self._fold_of_values(target, block[:, 0], mean_of_others(target))
            for target, block in zip(group, blocks, strict=True)
        }

    def _fold_of_scores(self, target: Target, scores: Floats) -> Fold:
        """Linear scores of classes as probabilities, by a scale that did not see the row."""
        codes, classes = target.filled.astype(np.int64), len(target.levels)
        chances = crossed_chances(scores, codes, target.known, classes, self.parts)
        scale = ClassScale.fit(scores[target.known], codes[target.known], classes)
        guess = chances.argmax(axis=1).astype(np.float64)
        return Fold(target, guess, shares_of_others(target), chances, scale=scale)

    def _fold_of_values(self, target: Target, predicted: Floats, baseline: Floats) -> Fold:
        if not self.spread:
            return Fold(target, predicted, baseline)
        errors, known = target.filled - predicted, target.known
        return Fold(
            target,
            predicted,
            baseline,
            spread=crossed_errors(predicted, errors, known, self.parts),
            errors=ErrorScale.fit(predicted[known], errors[known]),
        )

    def _by_parts(self, target: Target) -> Fold:
        """All parts in the same rounds; the base knows the scores of its training rows."""
        leader = self.leader
        numbers = np.unique(self.parts)
        weights = np.zeros((leader.common + leader.others, len(numbers)))
        for part in numbers:
            weights[: leader.common, part] = target.known & (self.parts != part)
        padded = np.concatenate([target.filled, np.zeros(leader.others)])
        share, scores = leader.fit(
            self._no_columns(),
            padded.astype(np.int64) if target.classes else padded,
            weights,
            classes=target.classes,
            train=OVERLAP,
            score=OVERLAP,
            group=self.group,
        )
        baseline = np.zeros((leader.common, max(len(target.levels), 1)))
        answers = np.zeros(baseline.shape)
        for part in numbers:
            here, use = self.parts == part, target.known & (self.parts != part)
            found = of_model(scores, share, int(part))[here]
            if not target.classes:
                baseline[here, 0], answers[here] = target.filled[use].mean(), found
                continue
            baseline[here] = shares_of(target, use)
            answers[here] = baseline[here]
            # Of one class there is nothing to learn.
            if (baseline[here][0] > 0).sum() > 1:
                base = leader.pair.of(classes=True)
                answers[here] = as_chances(base, share, found, len(target.levels))
        if not target.classes:
            return self._fold_of_values(target, answers[:, 0], baseline[:, 0])
        return Fold(target, answers.argmax(axis=1).astype(np.float64), baseline, answers)

    def _no_columns(self) -> PartyTable:
        total = self.leader.common + self.leader.others
        return context_table(self.party, None, total, [], placeholder=not self.leader.pair.linear)


def mean_of_others(target: Target) -> Floats:
    """The mean of all known cells but the row's own."""
    known, values = target.known, target.filled
    total, count = values[known].sum(), known.sum()
    alone = (total - values) / max(count - 1, 1)
    return np.asarray(np.where(known, alone, total / max(count, 1)))


def shares_of_others(target: Target) -> Floats:
    """The shares of the classes among all known cells but the row's own, (rows, classes)."""
    hot = np.eye(len(target.levels))[target.filled.astype(np.int64)] * target.known[:, None]
    counts = hot.sum(axis=0) - hot
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0))


def shares_of(target: Target, use: Booleans) -> Floats:
    """The shares of the classes among some rows."""
    counts = np.bincount(target.filled[use].astype(np.int64), minlength=len(target.levels))
    return np.asarray(counts / max(counts.sum(), 1))


def skills(folds: Mapping[str, Fold]) -> dict[str, tuple[float, float]]:
    """Skill and its standard error by column; see :func:`skill`."""
    return {name: skill(fold) for name, fold in folds.items()}


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
    share = ours.mean() / total
    # Delta method for a ratio of two means over the same rows.
    error = (ours - share * theirs).std(ddof=1) / (total * np.sqrt(len(ours)))
    return float(1.0 - share), float(error)
