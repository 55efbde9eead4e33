"""VFPU-M in numbers: how sure a prediction is, who is chosen, who has moved (seeds 000 to 002)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vfsl.errors import DataError
from vfsl.values import Array

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


def class_confidence(chances: Floats) -> Floats:
    """max_c P(c) of each row."""
    return np.asarray(chances.max(axis=1))


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


def confident(confidence: Floats, alpha: float) -> Places:
    """C: the places with a confidence of at least α."""
    return np.flatnonzero(confidence >= alpha)


def top_share(confidence: Floats, among: Places, share: float) -> Places:
    """S: the most confident share of C, rounded up; on a tie the lower place first.

    Rounded up, so that a C that is not empty always moves somebody.
    """
    # 0.1 × 30 is a little more than 3 in binary; that must not become 4.
    count = math.ceil(share * len(among) - 1e-9)
    order = np.argsort(-confidence[among], kind="stable")
    return np.sort(among[order[:count]])


@dataclass(eq=False)
class Moves:
    """Which of the remaining rows have left D_U for D_L, with what, when and how surely.

    Attributes
    ----------
    values : array (rows,)
        The pseudo-label of each row that moved; NaN or −1 elsewhere.
    round : integer array
        The round in which a row moved, from 1; 0 for rows that never did.
    confidence : array
        At that moment; NaN for rows that never moved.
    """

    values: Array
    round: npt.NDArray[np.int64]
    confidence: Floats

    @classmethod
    def none(cls, rows: int, *, classes: bool) -> Moves:
        """Nobody has moved yet."""
        blank = np.full(rows, -1, dtype=np.int64) if classes else np.full(rows, np.nan)
        return cls(blank, np.zeros(rows, dtype=np.int64), np.full(rows, np.nan))

    @property
    def waiting(self) -> Places:
        """D_U: the places of rows that have not moved."""
        return np.flatnonzero(self.round == 0)

    @property
    def moved(self) -> Booleans:
        """The mask of rows with a pseudo-label."""
        return np.asarray(self.round > 0)

    def take(self, number: int, rows: Places, values: Array, confidence: Floats) -> None:
        """Move rows with their pseudo-labels in round ``number``."""
        if (self.round[rows] > 0).any():
            raise DataError("A row that has a pseudo-label cannot be given another one.")
        self.values[rows], self.round[rows] = values, number
        self.confidence[rows] = confidence


@dataclass(frozen=True)
class Picked:
    """What one round chose: C and S as places among all remaining rows."""

    candidates: Places
    chosen: Places


def step(
    moves: Moves, number: int, predicted: Array, confidence: Floats, alpha: float, share: float
) -> Picked:
    """One round: C, then S, then the move from D_U to D_L.

    Parameters
    ----------
    moves : Moves
        Changed in place.
    number : int
        The round.
    predicted, confidence : array (waiting rows,)
        Of the rows in D_U, in their order.
    alpha, share : float
        α and k.
    """
    waiting = moves.waiting
    among = confident(confidence, alpha)
    best = top_share(confidence, among, share)
    moves.take(number, waiting[best], predicted[best], confidence[best])
    return Picked(waiting[among], waiting[best])
