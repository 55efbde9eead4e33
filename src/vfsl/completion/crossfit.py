"""Out-of-fold predictions of the missing party's columns: what the other's columns are worth.

Holds, learns: as in pieces.py. Each common row is scored once, by the model that did not see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from vfsl.channel import Channel
from vfsl.completion.bases import Pair, as_chances, as_values, make_pair, of_model
from vfsl.completion.pieces import (
    DISCLOSURES,
    OVERLAP,
    REST,
    Keeper,
    Leader,
    Scope,
    follow,
    knows_scores,
)
from vfsl.completion.selection import Booleans, Floats
from vfsl.completion.sides import Side, context_table
from vfsl.completion.targets import Target, targets_of
from vfsl.completion.vfpum import OnColumns, groups_of, prepared
from vfsl.data import PartyTable
from vfsl.data.checks import check_count
from vfsl.errors import ConfigError
from vfsl.estimators.base import Roles, Share
from vfsl.values import Array

# Errors below this share of their mean count as this share: a logarithm needs a floor.
_ERROR_FLOOR = 0.05


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
        The expected error of each prediction, by a model of errors, itself out of fold; numbers.
    rest_spread : array (remaining rows,), optional
        Likewise of the remaining rows, by the model of all common rows.
    """

    target: Target
    predicted: Floats
    baseline: Floats
    chances: Floats | None = None
    spread: Floats | None = None
    rest_spread: Floats | None = None

    def to_dict(self) -> dict[str, Any]:
        """All but the column itself, as JSON values."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return {name: None if one is None else one.tolist() for name, one in arrays.items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], target: Target) -> Self:
        given = {name: content[name] for name in _ARRAYS if content[name] is not None}
        return cls(target, **{name: np.asarray(one, dtype=float) for name, one in given.items()})


_ARRAYS = ("predicted", "baseline", "chances", "spread", "rest_spread")


@dataclass
class CrossFit:
    """Out-of-fold predictions of columns that the given party's columns might predict.

    Parameters
    ----------
    base : str or Pair
        As in VFPUM.
    folds : int
    spread : bool
        Also learn how large the errors of numbers are, so that confidence and intervals differ from
        row to row. It shows the missing party one more prediction for each row and column.
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
        role: Roles,
        rng: np.random.Generator,
        columns: Sequence[str] = (),
        kept: Keeper | None = None,
        on_columns: OnColumns | None = None,
    ) -> dict[str, Fold]:
        """One party's side; the folds by column at the missing party, who may hear of progress.

        ``kept`` is where the party keeps finished groups of columns, to go on from after a failure.
        """
        check_count("CrossFit", "folds", self.folds, 2)
        pair = make_pair(self.base)
        channel = channel.within(self.name, DISCLOSURES)
        if channel.me != role.label_holder:
            given = None if side is None else prepared(side, pair)[0]
            follow(channel, pair, given, role, rng, kept)
            return {}
        if side is None:
            raise ConfigError(f"Party {channel.me!r} needs its table to complete it.")
        leader = Leader(channel, pair, role, rng, len(side.overlap), kept)
        targets = targets_of(side.table.take(side.overlap), columns)
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
            crossing = _Crossing(leader, side.table.party, self.folds, number)
            made = crossing.run(group, self.spread)
            found |= made
            if kept is not None:
                lines = {name: fold.to_dict() for name, fold in made.items()}
                kept.save(f"group {number}", {"folds": lines, "pieces": leader.pieces})
        leader.end()
        return {name: found[name] for name in by_name}


@dataclass(frozen=True)
class _Crossing:
    """The leader's side of one group of columns."""

    leader: Leader
    party: str
    folds: int
    group: int

    def run(self, group: Sequence[Target], spread: bool) -> dict[str, Fold]:
        if group[0].classes:
            return {group[0].name: self._classes(group[0])}
        filled = np.column_stack([target.filled for target in group])
        known = np.column_stack([target.known for target in group])
        predicted, baseline = self._numbers(filled, known)
        out = {
            target.name: Fold(target, predicted[:, place], baseline[:, place])
            for place, target in enumerate(group)
        }
        if not spread:
            return out
        errors = log_errors(filled - predicted, known)
        across, _ = self._numbers(errors, known)
        _, scores = self._fit(errors, known, Scope(OVERLAP), Scope(REST))
        return {
            target.name: Fold(
                target,
                predicted[:, place],
                baseline[:, place],
                spread=np.exp(across[:, place]),
                rest_spread=np.exp(scores[:, place]),
            )
            for place, target in enumerate(group)
        }

    def _numbers(self, filled: Floats, known: Booleans) -> tuple[Floats, Floats]:
        predicted, baseline = np.zeros(filled.shape), np.zeros(filled.shape)
        together = self._together(filled[:, 0], known[:, 0], classes=False)
        for part in range(self.folds):
            seen, asked = Scope("but", part, self.folds), Scope("only", part, self.folds)
            places, rows = asked.places(len(filled), 0), seen.places(len(filled), 0)
            weights = known[rows].astype(float)
            sums = (filled[rows] * weights).sum(axis=0)
            baseline[places] = sums / np.maximum(weights.sum(axis=0), 1.0)
            if together is None:
                _, predicted[places] = self._fit(filled, known, seen, asked)
            else:
                predicted[places] = of_model(together[1], together[0], part)[places]
        return predicted, baseline

    def _together(
        self, filled: Floats, known: Booleans, *, classes: bool
    ) -> tuple[Share, Array] | None:
        """All folds in the same rounds, where the base knows the scores of its training rows."""
        leader = self.leader
        base = leader.pair.of(classes=classes)
        if not knows_scores(base, Scope(OVERLAP), Scope(OVERLAP)):
            return None
        blank = np.zeros(leader.others)
        weights = np.zeros((leader.common + leader.others, self.folds))
        for part in range(self.folds):
            rows = Scope("but", part, self.folds).places(leader.common, 0)
            weights[rows, part] = known[rows]
        target = np.concatenate([filled, blank])
        return leader.fit(
            self._no_columns(),
            target.astype(np.int64) if classes else target,
            weights,
            classes=classes,
            train=Scope(OVERLAP),
            score=Scope(OVERLAP),
            group=self.group,
        )

    def _no_columns(self) -> PartyTable:
        total = self.leader.common + self.leader.others
        return context_table(self.party, None, total, [], placeholder=not self.leader.pair.linear)

    def _fit(
        self, filled: Floats, known: Booleans, train: Scope, score: Scope
    ) -> tuple[object, Floats]:
        """Numbers from some common rows for others, in their units."""
        leader = self.leader
        blank = np.zeros((leader.others, filled.shape[1]))
        target = np.vstack([filled, blank])
        weights = None if known.all() else np.vstack([known.astype(float), blank])
        share, scores = leader.fit(
            self._no_columns(),
            target[:, 0] if target.shape[1] == 1 else target,
            weights,
            classes=False,
            train=train,
            score=score,
            group=self.group,
        )
        return share, as_values(leader.pair.numbers, share, scores)

    def _classes(self, target: Target) -> Fold:
        leader, size = self.leader, len(target.levels)
        codes = np.concatenate([target.filled, np.zeros(leader.others)]).astype(np.int64)
        weights = np.concatenate([target.known, np.zeros(leader.others)]).astype(float)[:, None]
        chances, baseline = np.zeros((leader.common, size)), np.zeros((leader.common, size))
        together = self._together(target.filled, target.known, classes=True)
        for part in range(self.folds):
            seen, asked = Scope("but", part, self.folds), Scope("only", part, self.folds)
            rows, places = seen.places(leader.common, 0), asked.places(leader.common, 0)
            counts = np.bincount(codes[rows], weights=weights[rows, 0], minlength=size)
            baseline[places] = counts / max(counts.sum(), 1.0)
            if (counts > 0).sum() < 2:
                # One class only: there is nothing to train, and nothing to ask.
                chances[places] = baseline[places]
                continue
            if together is not None:
                share, scores = together
                found = of_model(scores, share, part)[places]
                chances[places] = as_chances(leader.pair.classes, share, found, size)
                continue
            share, scores = leader.fit(
                self._no_columns(),
                codes,
                None if target.known.all() else weights,
                classes=True,
                train=seen,
                score=asked,
                group=self.group,
            )
            chances[places] = as_chances(leader.pair.classes, share, scores, size)
        guess = chances.argmax(axis=1).astype(np.float64)
        return Fold(target, guess, baseline, chances)


def log_errors(residuals: Floats, known: Booleans) -> Floats:
    """The logarithm of absolute errors, floored; 0 error where a cell is unknown."""
    absolute = np.abs(residuals)
    mean = (absolute * known).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    floor = np.maximum(_ERROR_FLOOR * mean, 1e-12)
    return np.asarray(np.log(np.maximum(absolute, floor)))


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
