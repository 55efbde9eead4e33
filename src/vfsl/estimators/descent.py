"""The arithmetic of federated least squares: conjugate gradients on blocks of columns; no messages.

T models over the same columns are trained together; model t minimises
½ Σ vₜ(Xwₜ − yₜ)²/N + ½ Σ penalty wₜ² with row weights vₜ. Every party holds a block of X and w; a
round yields each party its block of the gradients at common trial points. Preconditioned by each
party's own Gram matrix, conjugate gradients need tens of rounds where plain descent needs hundreds;
only three numbers per round and model must be summed across parties.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vfsl.crypto.fixed import decode, encode, shift
from vfsl.errors import BoundExceeded, DataError
from vfsl.estimators.privacy import LOOK_NOISE, RARE_ROWS_PER_COLUMN, Rarest
from vfsl.parts import Roles
from vfsl.values import Floats, Integers

# Eigenvalues below this fraction of the largest are directions that the columns do not span.
_RANK_CUT = 1e-10
_FINE = 1e-9  # fraction of the first gain below which rounding may show
_PATIENCE = 10  # rounds without a better gain before the search gives up there


@dataclass(frozen=True)
class Width:
    """Fixed-point widths of the protocol: bits after the binary point, the same at all parties."""

    columns: int
    scores: int
    row_weights: int = 0  # of products v ∘ score; 0 where no such product is formed
    weights: int = 26
    score_range: int = 5  # |score| < 2^score_range, in units of the target
    row_weight_range: int = 0  # row weights average 1 and stay below 2^row_weight_range

    @classmethod
    def for_rows(
        cls,
        rows: int,
        *,
        score_range: int = 5,
        holders: int = 1,
        weighted: bool = False,
        products: bool = False,
    ) -> Width:
        """The finest widths whose sums over that many rows stay within the plaintext space.

        A residual is the sum of the target and the scores of the label holder and ``holders``
        others; the absolute values of a standardised column add up to at most its rows. Rounding
        errors of columns and scores weigh about the same in the result, so both get as many bits.
        So do row weights where ciphertexts are multiplied by them; bfv, whose plaintext space is
        the smallest, holds two bits more in the slots that these products need.
        """
        spread = 6 if weighted else 0
        capacity = 59 if products else 57
        total = int(np.ceil(capacity - np.log2(2 + holders))) - 1
        spare = total - score_range - spread - int(np.ceil(np.log2(max(rows, 2))))
        each = spare // (3 if products else 2)
        return cls(
            columns=each,
            scores=each if products else spare - each,
            row_weights=each if products else 0,
            score_range=score_range,
            row_weight_range=spread,
        )

    @property
    def score_bound(self) -> int:
        return 1 << (self.score_range + self.scores)

    @property
    def sums(self) -> int:
        """Bits after the binary point of a gradient's sums."""
        return self.columns + self.scores + self.row_weights


@dataclass(frozen=True)
class Program:
    """What all parties know of a training beforehand.

    Parameters
    ----------
    l2 : float
    max_rounds : int
        Of each stage.
    tolerance : float
    stages : int
        Descents one after the other; the label holder sees the total scores between two of them and
        sets new targets and row weights.
    weighted : bool
        Whether rows have weights in the first stage, as the label holder announces; later stages
        always have.
    rows_per_column : int
        Smallest number of rows for each column of the widest party.
    rare_rows_per_column : float
        Smallest number of rows of the rarest class for each column of the widest feature holder.
    look_noise : float
        Standard deviation of the noise that each feature holder adds to its scores between stages.
    score_range : int
        Scores and targets stay below 2 to this power.
    opened : str
        What parties see of the training.
    """

    l2: float
    max_rounds: int
    tolerance: float
    stages: int = 1
    weighted: bool = False
    rows_per_column: int = 10
    rare_rows_per_column: float = RARE_ROWS_PER_COLUMN
    look_noise: float = LOOK_NOISE
    score_range: int = 5
    opened: str = "gradients"

    def two_terms(self, stage: int, roles: Roles) -> bool:
        """Whether a stage's gradients are formed in two terms, without element-wise products."""
        return self.is_weighted(stage) and len(roles.feature_holders) == 1

    def is_weighted(self, stage: int) -> bool:
        return self.weighted or stage > 0

    def width(self, rows: int, stage: int, roles: Roles) -> Width:
        weighted = self.is_weighted(stage)
        products = weighted and not self.two_terms(stage, roles)
        return Width.for_rows(
            rows,
            score_range=self.score_range,
            holders=len(roles.feature_holders),
            weighted=weighted,
            products=products,
        )

    def check_sizes(
        self, columns: Mapping[str, int], label_holder: str, rows: int, rarest: Rarest
    ) -> None:
        """Refuse tables whose gradients would reveal residuals or rare labels of single rows.

        Labels are hidden from feature holders, so the rare rows count against the widest of these.
        The sentence reaches them too: it does not say how many rare rows there are.
        """
        widest = max(columns, key=lambda party: columns[party])
        needed = self.rows_per_column * columns[widest]
        if rows < needed:
            raise DataError(
                f"Party {widest!r} has {columns[widest]} encoded columns but there are only {rows} "
                f"labelled aligned rows; at least {needed} are needed, or its {self.opened} would "
                "reveal single rows. Use fewer columns or more rows."
            )
        others = {party: size for party, size in columns.items() if party != label_holder}
        widest = max(others, key=lambda party: others[party])
        least = math.ceil(self.rare_rows_per_column * others[widest])
        if rarest.rows < least:
            raise DataError(
                f"Party {widest!r} has {others[widest]} encoded columns but fewer than {least} "
                f"labelled aligned rows that count in a model have {rarest.words}; its "
                f"{self.opened} could tell it which rows these are. Use fewer columns there, more "
                "rows, or merge rare classes; if that party may know them, lower "
                f"rare_rows_per_column, which is {self.rare_rows_per_column:g}."
            )


@dataclass(frozen=True)
class Problem:
    """What the label holder wants in one stage: targets and row weights, (rows, models)."""

    targets: Floats
    weights: Floats

    @property
    def size(self) -> Floats:
        """The average row weight of each model, rounded: its last bits would tell of the rows."""
        return np.asarray(np.round(self.weights.mean(axis=0), 9))


class RoundSums(NamedTuple):
    """A party's summands of one round, one per model; only sums over all parties are used."""

    curvature: Floats  # p·Ap
    overlap: Floats  # Ap·M⁻¹g
    spread: Floats  # Ap·M⁻¹Ap


class Step(NamedTuple):
    """What all parties do next in each model: how far along the direction, how to turn."""

    length: Floats
    turn: Floats
    best: Floats  # 1 where the new weights are the best so far, else 0


class Block:
    """One party's columns, and its weights and search directions for all models.

    Parameters
    ----------
    columns : array (rows, d)
    penalty : array (d, models)
        For each column's squared weight in each model.
    width : Width
    weights : array (d, models), optional
        Where the descent begins; zero by default.
    """

    def __init__(
        self, columns: Floats, penalty: Floats, width: Width, weights: Floats | None = None
    ) -> None:
        self.columns: Integers = encode(columns, width.columns)
        self.width = width
        self._rows = max(len(columns), 1)
        self._penalty = penalty
        gram = columns.T @ columns / self._rows
        self._inverse = _pseudo_inverse(gram + np.diag(penalty.mean(axis=1)))
        shape = penalty.shape
        # The descent begins at a trial point, so that its gradient is exact there.
        self.trial: Integers = encode(
            np.zeros(shape) if weights is None else weights, width.weights
        )
        self.weights: Floats = decode(self.trial, width.weights)
        self.best: Floats = self.weights
        self._gradient: Floats = np.zeros(shape)
        self._direction: Floats = np.zeros(shape)
        self._change: Floats = np.zeros(shape)

    def scores(self) -> Integers:
        """Scores of all rows at the trial weights, exact integers until the last rounding."""
        drop = self.width.columns + self.width.weights - self.width.scores
        # Sums that end within the range are exact even if parts of them wrap; floats tell which.
        size = np.abs(self.columns.astype(np.float64) @ self.trial.astype(np.float64))
        if size.max(initial=0) >= float(self.width.score_bound << drop):
            raise BoundExceeded(
                f"A score left the range of ±{2**self.width.score_range} units of the target; "
                "check for extreme values or raise the l2 penalty."
            )
        return shift(self.columns @ self.trial, drop)

    def begin(self, sums: Integers) -> Floats:
        """Take in the gradient sums at the weights; g·M⁻¹g, what each model can still gain."""
        self._gradient = self._decode(sums) + self._penalty * self.weights
        aim = self._inverse @ self._gradient
        self._turn_to(-aim)
        return np.asarray((self._gradient * aim).sum(axis=0))

    def measure(self, sums: Integers) -> RoundSums:
        """Take in the gradient sums at the trial point; this party's terms of the round."""
        trial = decode(self.trial, self.width.weights)
        # A p, the gradient's change along the direction: exact, since the gradient is linear.
        self._change = self._decode(sums) + self._penalty * trial - self._gradient
        return RoundSums(
            curvature=(self._direction * self._change).sum(axis=0),
            overlap=(self._change * (self._inverse @ self._gradient)).sum(axis=0),
            spread=(self._change * (self._inverse @ self._change)).sum(axis=0),
        )

    def move(self, step: Step) -> None:
        """Go along the directions and turn to the next ones."""
        self.weights = self.weights + step.length * self._direction
        self.best = np.where(step.best > 0, self.weights, self.best)
        self._gradient = self._gradient + step.length * self._change
        self._turn_to(step.turn * self._direction - self._inverse @ self._gradient)

    def _turn_to(self, direction: Floats) -> None:
        self.trial = encode(self.weights + direction, self.width.weights)
        # The direction is what the rounded trial point really stands for.
        self._direction = decode(self.trial, self.width.weights) - self.weights

    def _decode(self, sums: Integers) -> Floats:
        """Sums (models, d) as gradients (d, models)."""
        return np.asarray(decode(sums, self.width.sums).T / self._rows)


class Search:
    """The label holder's choice of steps, from everybody's terms.

    Parameters
    ----------
    gain : array (models,)
        g·M⁻¹g summed over the parties at the start.
    tolerance : float
        A model has converged when its gain has fallen to the first one times the square of this.
    """

    def __init__(self, gain: Floats, tolerance: float) -> None:
        self.gain = gain
        self.decrease = np.zeros(len(gain))  # of the objective, in all
        self.reasons: list[str | None] = [None] * len(gain)
        self._first = np.maximum(gain, np.finfo(float).tiny)
        self._tolerance = tolerance
        self._best = gain
        self._stale = np.zeros(len(gain), dtype=int)  # rounds without a new best gain

    @property
    def done(self) -> bool:
        return all(reason is not None for reason in self.reasons)

    @property
    def reason(self) -> str:
        """Why the search ended: the reason of the model that took longest."""
        if not self.done:
            return "max_rounds"
        return "precision" if "precision" in self.reasons else "converged"

    def step(self, terms: list[RoundSums]) -> Step:
        """The exact minimum along each model's direction, and the conjugate turn after it."""
        curvature, overlap, spread = (np.sum(part, axis=0) for part in zip(*terms, strict=True))
        flat = ~(curvature > 0)
        length = np.where(flat, 0.0, self.gain / np.where(flat, 1.0, curvature))
        after = np.maximum(self.gain + 2 * length * overlap + length**2 * spread, 0.0)
        # Until rounding shows, a growing gain is no loss: the objective falls with every step.
        best = (self._best >= _FINE * self._first) | (after < self._best)
        self._stale = np.where(after < 0.9 * self._best, 0, self._stale + 1)
        self._best = np.minimum(self._best, after)
        # Where rounding shows, directions are no longer conjugate: begin anew from the gradient,
        # stop when that does not help either, and end at the best point seen.
        fine = self.gain < _FINE * self._first
        spent = flat | (fine & (self._stale >= _PATIENCE))
        finished = np.array([reason is not None for reason in self.reasons])
        converged = after <= self._tolerance**2 * self._first
        for model in np.flatnonzero(~finished & (spent | converged)):
            self.reasons[model] = "converged" if converged[model] else "precision"
        still = flat | finished
        length = np.where(still, 0.0, length)
        after = np.where(still, self.gain, after)
        anew = still | (fine & (after > self.gain))
        turn = np.where(anew, 0.0, after / np.maximum(self.gain, np.finfo(float).tiny))
        self.decrease = self.decrease + length * self.gain / 2
        self.gain = after
        return Step(length, turn, (best & ~still).astype(np.float64))


def _pseudo_inverse(gram: Floats) -> Floats:
    values, vectors = np.linalg.eigh(gram)
    usable = values > _RANK_CUT * max(values.max(initial=0.0), 1e-300)
    inverse = np.where(usable, 1.0 / np.where(usable, values, 1.0), 0.0)
    return np.asarray((vectors * inverse) @ vectors.T)
