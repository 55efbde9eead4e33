"""Pseudo-labels: how sure a prediction is, who is chosen, and what was found for each column.

D_L are the rows with a value or a pseudo-label, D_U the remaining rows that wait for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vfsl.completion.bases import Components
from vfsl.completion.calibration import ClassScale, to_lists
from vfsl.completion.columns import Fold, Target
from vfsl.parts import ModelShare
from vfsl.values import Booleans, Floats, Integers

ALL_MOVED, ALL_ROUNDS, NOBODY, STOPPED, NO_BETTER = (
    "every row has a pseudo-label",
    "all rounds",
    "no row is confident enough",
    "the stop rule",
    "rounds do not lower the error of held-out rows",
)

# ---- how sure a prediction is, and who is chosen ------------------------------------------------


def value_confidence(predicted: Floats) -> Floats:
    """1 − |ŷ − μ| / σ over these predictions, σ the population deviation.

    At most 1, and below 0 for predictions more than σ from the mean. Equal predictions (σ = 0) are
    all at the mean, so their confidence is 1.
    """
    distance = np.abs(predicted - predicted.mean()) if len(predicted) else np.zeros(0)
    deviation = predicted.std() if len(predicted) else 0.0
    # Rounding leaves a deviation of about 1e-16 of the values where all are equal.
    if deviation <= 1e-12 * max(float(np.abs(predicted).max(initial=0.0)), 1e-300):
        return np.ones(len(predicted))
    return np.asarray(1.0 - distance / deviation)


def spread_confidence(spread: Floats, deviation: float) -> Floats:
    """1 − expected error / deviation of the known values, from 0 to 1."""
    scale = deviation if deviation > 0 else 1.0
    return np.asarray(np.clip(1.0 - spread / scale, 0.0, 1.0))


def choose_rows(confidence: Floats, alpha: float, fraction: float) -> tuple[Integers, Integers]:
    """C, the places with a confidence of at least α, and S, the most confident fraction of C.

    S is rounded up, so that a C that is not empty always moves somebody; on a tie the lower place
    comes first.
    """
    among = np.flatnonzero(confidence >= alpha)
    # 0.1 × 30 is a little more than 3 in binary; that must not become 4.
    count = math.ceil(fraction * len(among) - 1e-9)
    order = np.argsort(-confidence[among], kind="stable")
    return among, np.sort(among[order[:count]])


# ---- what is found ------------------------------------------------------------------------------


@dataclass(eq=False)
class Found:
    """What VFPU-M found for one column, at the missing party.

    Attributes
    ----------
    target : Target
        The column on the common rows.
    labels : array (remaining rows,)
        Pseudo-labels; NaN where a row has none.
    round : integer array
        The round in which a row got its pseudo-label, from 1; 0 for rows that never did.
    predicted : array (remaining rows,)
        By the model of the last round; class codes or numbers.
    confidence : array (remaining rows,)
        At the round in which a row got its pseudo-label, else of the last round.
    chances : array (remaining rows, classes), optional
        Of a category, likewise.
    scale : ClassScale, optional
        How linear scores of a category become probabilities.
    rounds : list of dict
        For each round: how many rows waited, were confident and were chosen, and the least
        confidence.
    stop_reason : str
    half, inside : array, optional
        Half the width of intervals, and sets of classes, (remaining rows, classes), where they were
        found with the last model.
    fold : Fold, optional
        Then, what held-out rows say of that model.
    """

    target: Target
    labels: Floats
    round: Integers
    predicted: Floats
    confidence: Floats
    chances: Floats | None = None
    scale: ClassScale | None = None
    rounds: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str = ALL_ROUNDS
    half: Floats | None = None
    inside: Booleans | None = None
    fold: Fold | None = None

    @classmethod
    def start(cls, target: Target, others: int, scale: ClassScale | None = None) -> Found:
        """A column before the first round."""
        nothing = (np.full(others, np.nan) for _ in range(3))
        labels, predicted, confidence = nothing
        chances = np.zeros((others, len(target.levels))) if target.classes else None
        round_ = np.zeros(others, dtype=np.int64)
        return cls(target, labels, round_, predicted, confidence, chances, scale)

    @property
    def waiting(self) -> Integers:
        """D_U: the places of rows without a pseudo-label."""
        return np.flatnonzero(self.round == 0)

    @property
    def moved(self) -> Booleans:
        """Which rows have left D_U for D_L."""
        return np.asarray(self.round > 0)

    @property
    def values(self) -> Floats:
        """Pseudo-labels where a row has one, else the last model's prediction."""
        return np.where(self.moved, self.labels, self.predicted)

    def chances_of(self, scores: Floats) -> Floats:
        """Probabilities of a category behind linear scores of its classes."""
        if self.scale is not None:
            return self.scale.chances(scores)
        return self.target.plain_chances(scores)

    def take_round(self, guess: Floats, sure: Floats, alpha: float, fraction: float) -> None:
        """One round: C, then S, then the move from D_U to D_L.

        Parameters
        ----------
        guess : array (remaining rows,)
        sure : array (waiting rows,)
            The confidence of the rows in D_U, in their order.
        alpha, fraction : float
            α and k.
        """
        waiting, number = self.waiting, len(self.rounds) + 1
        among, best = choose_rows(sure, alpha, fraction)
        chosen = waiting[best]
        self.predicted, self.confidence[waiting] = guess, sure
        self.labels[chosen], self.round[chosen] = guess[chosen], number
        self.rounds.append(
            {
                "round": number,
                "waiting": len(waiting),
                "confident": len(among),
                "chosen": len(chosen),
                "least confidence": float(sure.min()) if len(sure) else None,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """All but the column itself and its scale, as JSON values."""
        left_out = ("target", "scale")
        made = {name: each for name, each in to_lists(self).items() if name not in left_out}
        return made | {"fold": None if self.fold is None else self.fold.to_dict()}

    @classmethod
    def from_dict(
        cls, content: Mapping[str, Any], target: Target, scale: ClassScale | None = None
    ) -> Found:
        kept = {name: one for name, one in content.items() if one is not None}
        plain = {name: kept.pop(name) for name in ("rounds", "stop_reason")}
        if "fold" in kept:
            plain["fold"] = Fold.from_dict(kept.pop("fold"), target)
        arrays: dict[str, Any] = {name: np.asarray(one, float) for name, one in kept.items()}
        arrays["round"] = arrays["round"].astype(np.int64)
        if "inside" in arrays:
            arrays["inside"] = arrays["inside"].astype(bool)
        return cls(target, **arrays, scale=scale, **plain)


@dataclass(eq=False)
class ColumnModels:
    """What one party has after VFPU-M: at the missing one what was found, at both their shares.

    The given party also keeps how its columns became components, where they did.
    """

    found: dict[str, Found] = field(default_factory=dict)
    shares: dict[int, ModelShare] = field(default_factory=dict)  # by group of columns
    groups: list[list[str]] = field(default_factory=list)
    components: Components | None = None

    @property
    def views(self) -> int:
        """Predictions per remaining row: every round scores all columns that train together."""
        count = 0
        for names in self.groups:
            group = [self.found[name] for name in names]
            count += max(len(one.rounds) for one in group) * sum(one.target.width for one in group)
        return count
