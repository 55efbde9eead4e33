"""One party's side of a federated least-squares solve: conjugate gradients on its own block.

Pure arithmetic, no messages. The objective is ½‖Xw − y‖²/N + ½ Σ penalty w². Every party holds a
block of X and w; a round yields each party its block of the gradient at a common trial point.
Preconditioned by each party's own Gram matrix, conjugate gradients need tens of rounds where plain
descent needs hundreds; all that must be summed across parties are five numbers a round.
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
_FINE = 1e-9  # share of the first gain below which rounding may make the gain grow


@dataclass(frozen=True)
class Width:
    """Fixed-point widths of the protocol: bits after the binary point, the same at all parties."""

    columns: int = 20
    weights: int = 26
    scores: int = 20
    score_range: int = 6  # |score| < 2^score_range, in standard deviations of the target

    @classmethod
    def for_rows(cls, rows: int, total: int = 56) -> Width:
        """The finest widths whose sums over that many rows stay within ``total`` bits.

        Rounding errors of columns and scores weigh about the same in the result, so both get half.
        """
        spare = total - cls.score_range - int(np.ceil(np.log2(max(rows, 2))))
        return cls(columns=spare // 2, scores=spare - spare // 2)

    @property
    def score_bound(self) -> int:
        return 1 << (self.score_range + self.scores)


class Terms(NamedTuple):
    """A party's summands of one round; only their sums over all parties are used."""

    curvature: float  # p·Ap
    overlap: float  # Ap·M⁻¹g
    spread: float  # Ap·M⁻¹Ap
    fit: float  # trial weights · gradient of the data part: a share of the loss
    penalty: float


class Step(NamedTuple):
    """What all parties do next: how far along the direction, and how to turn."""

    length: float
    turn: float
    last: bool


class Block:
    """One party's columns, weights and search direction."""

    def __init__(self, columns: Floats, penalty: Floats, width: Width) -> None:
        rows = max(len(columns), 1)
        self.columns: Integers = encode(columns, width.columns)
        self.width = width
        self._penalty = penalty
        gram = columns.T @ columns / rows + np.diag(penalty)
        self._inverse = _pseudo_inverse(gram)
        size = columns.shape[1]
        self.weights: Floats = np.zeros(size)
        self.trial: Integers = np.zeros(size, dtype=np.int64)
        self._rows = rows
        self._gradient: Floats = np.zeros(size)
        self._direction: Floats = np.zeros(size)
        self._change: Floats = np.zeros(size)

    def scores(self) -> Integers:
        """Scores of all rows at the trial weights, exact integers until the last rounding."""
        drop = self.width.columns + self.width.weights - self.width.scores
        # Sums that end within the range are exact even if parts of them wrap; floats tell which.
        size = np.abs(self.columns.astype(np.float64) @ self.trial.astype(np.float64))
        if size.max(initial=0) >= float(self.width.score_bound << drop):
            raise BoundExceeded(
                f"A score left the range of ±{2**self.width.score_range} standard deviations; "
                "check for extreme values or raise the l2 penalty."
            )
        return shift(self.columns @ self.trial, drop)

    def begin(self, sums: Integers) -> float:
        """Take in the gradient at zero weights; g·M⁻¹g, the size of what is left to gain."""
        self._gradient = self._decode(sums)
        aim = self._inverse @ self._gradient
        self._turn_to(-aim)
        return float(self._gradient @ aim)

    def measure(self, sums: Integers) -> Terms:
        """Take in the gradient sums at the trial point; this party's terms of the round."""
        trial = decode(self.trial, self.width.weights)
        data = self._decode(sums)
        self._change = data + self._penalty * trial - self._gradient  # A p, exact: linear gradient
        aim = self._inverse @ self._gradient
        return Terms(
            curvature=float(self._direction @ self._change),
            overlap=float(self._change @ aim),
            spread=float(self._change @ self._inverse @ self._change),
            fit=float(trial @ data),
            penalty=float(trial @ (self._penalty * trial)),
        )

    def move(self, step: Step) -> None:
        """Go along the direction and turn to the next one."""
        self.weights = self.weights + step.length * self._direction
        self._gradient = self._gradient + step.length * self._change
        self._turn_to(step.turn * self._direction - self._inverse @ self._gradient)

    def _turn_to(self, direction: Floats) -> None:
        self.trial = encode(self.weights + direction, self.width.weights)
        # The direction is what the rounded trial point really stands for.
        self._direction = decode(self.trial, self.width.weights) - self.weights

    def _decode(self, sums: Integers) -> Floats:
        return decode(sums, self.width.columns + self.width.scores) / self._rows


def choose_step(
    terms: list[Terms], gain: float, first_gain: float, tolerance: float
) -> tuple[Step, float, str | None]:
    """The exact minimum along the common direction, and the conjugate turn after it.

    Parameters
    ----------
    terms : list of Terms
        Every party's summands.
    gain : float
        g·M⁻¹g summed over the parties before this step, and ``first_gain`` before the first.
    tolerance : float
        Stop when the gain has fallen to the square of this share of ``first_gain``.

    Returns
    -------
    step, the gain after it, and the reason to stop: None, "converged" or "precision".
    """
    curvature = sum(term.curvature for term in terms)
    if not curvature > 0:  # nothing left to gain that the fixed-point width can show
        return Step(0.0, 0.0, last=True), gain, "precision"
    length = gain / curvature
    overlap = sum(term.overlap for term in terms)
    spread = sum(term.spread for term in terms)
    after = max(gain + 2 * length * overlap + length * length * spread, 0.0)
    if after > gain and gain < _FINE * first_gain:
        # Rounding has taken over: a further step would only follow its noise.
        return Step(0.0, 0.0, last=True), gain, "precision"
    stop = "converged" if after <= tolerance**2 * first_gain else None
    return Step(length, after / gain, last=False), after, stop


def _pseudo_inverse(gram: Floats) -> Floats:
    values, vectors = np.linalg.eigh(gram)
    usable = values > _RANK_CUT * max(values.max(initial=0.0), 1e-300)
    inverse = np.where(usable, 1.0 / np.where(usable, values, 1.0), 0.0)
    return np.asarray((vectors * inverse) @ vectors.T)
