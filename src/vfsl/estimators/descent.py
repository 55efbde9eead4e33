"""One party's side of federated least squares: conjugate gradients on its own block of columns.

Pure arithmetic, no messages. T models over the same columns are trained together; model t minimises
½ Σ vₜ(Xwₜ − yₜ)²/N + ½ Σ penalty wₜ² with row weights vₜ. Every party holds a block of X and w; a
round yields each party its block of the gradients at common trial points. Preconditioned by each
party's own Gram matrix, conjugate gradients need tens of rounds where plain descent needs hundreds;
all that must be summed across parties are three numbers a round and model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vfsl.crypto.fixed import decode, encode, shift
from vfsl.errors import BoundExceeded

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Eigenvalues below this share of the largest are directions that the columns do not span.
_RANK_CUT = 1e-10
_FINE = 1e-9  # share of the first gain below which rounding may show
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
        errors of columns and scores weigh about the same in the result, so they get equal shares.
        Products of ciphertexts with row weights take a third share; bfv, whose plaintext space is
        the smallest, holds two bits more in the slots that they need.
        """
        spread = 6 if weighted else 0
        capacity = 59 if products else 57
        total = int(np.ceil(capacity - np.log2(2 + holders))) - 1
        spare = total - score_range - spread - int(np.ceil(np.log2(max(rows, 2))))
        share = spare // (3 if products else 2)
        return cls(
            columns=share,
            scores=share if products else spare - share,
            row_weights=share if products else 0,
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


class Terms(NamedTuple):
    """A party's summands of one round, a number a model; only sums over all parties are used."""

    curvature: Floats  # p·Ap
    overlap: Floats  # Ap·M⁻¹g
    spread: Floats  # Ap·M⁻¹Ap


class Step(NamedTuple):
    """What all parties do next, a number a model: how far along the direction, how to turn."""

    length: Floats
    turn: Floats
    best: Floats  # 1 where the new weights are the best so far, else 0


class Block:
    """One party's columns, and its weights and search directions for all models.

    Parameters
    ----------
    columns : array (rows, d)
    penalty : array (d, models)
        Of each column's squared weight in each model.
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

    def measure(self, sums: Integers) -> Terms:
        """Take in the gradient sums at the trial point; this party's terms of the round."""
        trial = decode(self.trial, self.width.weights)
        # A p, the gradient's change along the direction: exact, since the gradient is linear.
        self._change = self._decode(sums) + self._penalty * trial - self._gradient
        return Terms(
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
        A model has converged when its gain has fallen to the square of this share of the first.
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

    def step(self, terms: list[Terms]) -> Step:
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
        noise = flat | (fine & (self._stale >= _PATIENCE))
        finished = np.array([reason is not None for reason in self.reasons])
        converged = after <= self._tolerance**2 * self._first
        for model in np.flatnonzero(~finished & (noise | converged)):
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
