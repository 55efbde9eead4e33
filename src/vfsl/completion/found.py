"""What VFPU-M finds: columns with pseudo-labels, and the shares that predicted them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vfsl.completion.calibrating import ClassScale
from vfsl.completion.selection import Floats, Moves
from vfsl.completion.sides import Components
from vfsl.completion.targets import Target
from vfsl.parts import ModelShare

ALL_MOVED, ALL_ROUNDS, NOBODY, STOPPED = (
    "every row has a pseudo-label",
    "all rounds",
    "no row is confident enough",
    "the stop rule",
)


@dataclass(eq=False)
class Found:
    """What VFPU-M found for one column, at the missing party.

    Attributes
    ----------
    target : Target
        The column on the common rows.
    moves : Moves
        Rows with a pseudo-label: which, in which round, how surely.
    predicted : array (remaining rows,)
        By the model of the last round; class codes or numbers.
    chances : array (remaining rows, classes), optional
        Of a category: at the round in which a row moved, else of the last round.
    confidence : array (remaining rows,)
        Likewise.
    scale : ClassScale, optional
        How linear scores of a category become probabilities.
    rounds : list of dict
        For each round: how many rows were left, confident and chosen, and the confidence bound.
    stop_reason : str
    """

    target: Target
    moves: Moves
    predicted: Floats
    chances: Floats | None
    confidence: Floats
    scale: ClassScale | None = None
    rounds: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str = ALL_ROUNDS

    def chances_of(self, scores: Floats) -> Floats:
        """Probabilities of a category behind linear scores of its classes."""
        if self.scale is not None:
            return self.scale.chances(scores)
        return self.target.plain_chances(scores)

    @property
    def values(self) -> Floats:
        """Pseudo-labels where a row has one, else the last model's prediction."""
        return np.where(self.moves.moved, self.moves.values, self.predicted)

    def to_dict(self) -> dict[str, Any]:
        """All but the column itself, as JSON values."""
        return {
            "values": self.moves.values.tolist(),
            "round": self.moves.round.tolist(),
            "moved confidence": self.moves.confidence.tolist(),
            "predicted": self.predicted.tolist(),
            "chances": None if self.chances is None else self.chances.tolist(),
            "confidence": self.confidence.tolist(),
            "scale": None if self.scale is None else self.scale.to_dict(),
            "rounds": self.rounds,
            "stop_reason": self.stop_reason,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], target: Target) -> Found:
        kind = np.int64 if target.classes else np.float64
        moves = Moves(
            np.asarray(content["values"], dtype=kind),
            np.asarray(content["round"], dtype=np.int64),
            np.asarray(content["moved confidence"], dtype=np.float64),
        )
        chances = (
            None if content["chances"] is None else np.asarray(content["chances"], dtype=float)
        )
        return cls(
            target,
            moves,
            np.asarray(content["predicted"], dtype=float),
            chances,
            np.asarray(content["confidence"], dtype=float),
            None if content["scale"] is None else ClassScale.from_dict(content["scale"]),
            list(content["rounds"]),
            content["stop_reason"],
        )


@dataclass(eq=False)
class Outcome:
    """What one party has after VFPU-M: at the missing one what was found, at both their shares.

    The given party also keeps how its columns became components, where they did.
    """

    found: dict[str, Found]
    shares: dict[int, ModelShare]
    groups: list[list[str]]
    components: Components | None = None


def pose_targets(found: Sequence[Found], *, linear: bool) -> tuple[Any, Floats]:
    """Targets and row weights of D_L over all rows; what is not in D_L weighs nothing."""
    columns, weights = [], []
    for one in found:
        moved = one.moves.moved
        values = np.where(moved, one.moves.values, one.target.filler)
        column = np.concatenate([one.target.filled, values])
        weight = np.concatenate([one.target.known, moved]).astype(np.float64)
        columns.append(one.target.numbers(column) if linear else column)
        weights.append(np.tile(weight[:, None], (1, one.target.width if linear else 1)))
    if linear:
        return np.hstack(columns), np.hstack(weights)
    # Trees take one target at a time, without a second axis.
    (target,) = columns
    return target.astype(np.int64) if found[0].target.classes else target, np.hstack(weights)


def split_by_target(found: Sequence[Found], values: Floats) -> list[Floats]:
    """What a linear model predicts, (rows, numbers of all targets), for each target."""
    edges = np.cumsum([one.target.width for one in found])
    return np.split(values, edges[:-1], axis=1)


def nothing_yet(target: Target, others: int, scale: ClassScale | None = None) -> Found:
    """A column before the first round."""
    chances = np.zeros((others, len(target.levels))) if target.classes else None
    return Found(
        target,
        Moves.none(others, classes=target.classes),
        np.full(others, np.nan),
        chances,
        np.full(others, np.nan),
        scale,
    )
