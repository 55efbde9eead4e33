"""What all know of a logistic regression on shares beforehand: sizes, and bits that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vfsl.errors import BoundExceeded
from vfsl.estimators.shared.curvature import CELL_BITS, MATRIX_BITS

# Bits behind the point. Row values add up over rows, and their rounding is random, so few bits do.
WEIGHT_BITS = 16
GRADIENT_BITS = 21
LOSS_BITS = GRADIENT_BITS + WEIGHT_BITS
STEP_SHIFT = MATRIX_BITS + GRADIENT_BITS - WEIGHT_BITS
_FEWEST_ROW_WEIGHT_BITS = 7
# To see whether scores are within reach, rough weights do: they move a score by 2^-7 of the sum of
# its absolute cells at most. On made-up tables with rows far out, 4 bits let scores out of reach.
ROUGH_BITS, ROUGH_WIDTH, COUNT_WIDTH = 6, 32, 48
_FEWEST_DEALT_BITS, _MOST_DEALT_BITS = 8, 12
_SLOPE_BITS, _SIGMOID_BITS, _COEFFICIENT_BITS = 7, 6, 12  # of coefficients: at least, at most
_WIDTHS = (48, 56, 64)
_MOST_JOINT = 160  # columns times classes: a matrix of so many rows is inverted


@dataclass(frozen=True)
class LogisticPlan:
    """Public facts of a fit, and the numbers of bits that follow from them.

    Parameters
    ----------
    rows : int
    columns : dict of str to int
        By data holder, in the order that all use; the label holder's include the intercept, last.
    label_holder : str
    l2 : float
    outputs : int
    peak : int, optional
        Row weights, whose mean is 1, are at most 2^peak; without it, there are none.
    tolerance : float
        The fit ends when a step gains less than this fraction of the loss.
    max_rounds : int
        At most so many points are tried.
    show_loss : bool
        Whether the loss at each point is opened to the label holder.
    softmax : bool
        Whether the outputs are classes that exclude each other; else they are fitted apart.
    """

    rows: int
    columns: Mapping[str, int]
    label_holder: str
    l2: float = 1e-3
    outputs: int = 1
    peak: int | None = None
    tolerance: float = 2e-3
    max_rounds: int = 25
    show_loss: bool = False
    softmax: bool = False

    def __post_init__(self) -> None:
        if self.width > _WIDTHS[-1]:
            raise BoundExceeded(
                f"Logistic regression on shares of {self.rows} rows with weights up to "
                f"{1 << (self.peak or 0)} needs more than {_WIDTHS[-1]} bits; use fewer rows or "
                "less extreme weights."
            )

    @property
    def problems(self) -> int:
        """How many losses there are: one, if the outputs are classes."""
        return 1 if self.softmax else self.outputs

    @property
    def joint(self) -> bool:
        """Whether a softmax is improved in all classes at once, with its full curvature.

        Else classes are improved one by one: where the matrix would be large, or rows have weights.
        """
        small = self.outputs * self.total <= _MOST_JOINT
        return self.softmax and small and self.peak is None

    def find_shift(self, number: int, size: int) -> int:
        """What step ``number``, from 0, by an inverse of that size is shortened by.

        The curvature of a softmax is at most twice the bound of its classes taken one by one
        (Böhning, "Multinomial logistic regression algorithm"): half a step by the inverse of that
        bound never goes too far. Where there is nothing better, whole ones take turns with it.
        """
        alone = self.softmax and size == self.total
        return STEP_SHIFT + int(alone and (self.joint or number % 2 == 0))

    @property
    def total(self) -> int:
        return sum(self.columns.values())

    @property
    def size(self) -> int:
        """Sums over rows are divided by 2^size, the power of two at or above their number."""
        return (self.rows - 1).bit_length()

    @property
    def spread(self) -> int:
        return self.peak or 0

    @property
    def needed(self) -> int:
        """Bits of the longest sum over rows, at least."""
        # Rounding is averaged over rows: with a quarter of them, it takes one more bit.
        fewest = _FEWEST_DEALT_BITS + max(15 - self.size, 0) // 2
        fewest += 0 if self.peak is None else _FEWEST_ROW_WEIGHT_BITS
        slopes = fewest + _SLOPE_BITS + 2 * CELL_BITS + self.spread + 3
        residuals = fewest + _SIGMOID_BITS + CELL_BITS + -(-self.spread // 2) + 7
        return self.size + max(slopes, residuals)

    @property
    def width(self) -> int:
        """Of everything that has a value per row."""
        return next(width for width in (*_WIDTHS, self.needed) if width >= self.needed)

    @property
    def row_weight_bits(self) -> int:
        if self.peak is None:
            return 0
        return _FEWEST_ROW_WEIGHT_BITS + (self.width - self.needed) // 2

    @property
    def slope_bits(self) -> int:
        """Of a row's curvature: Σ v z z' ≤ rows · 2^spread, since Σ z² ≤ 4 rows and v ≤ ¼."""
        room = self.width - 3 - 2 * CELL_BITS - self.size - self.spread
        return min(room, _MOST_DEALT_BITS + _COEFFICIENT_BITS + self.row_weight_bits)

    @property
    def dealt_bits(self) -> int:
        """Of the dealt waves."""
        return min(self.slope_bits - _SLOPE_BITS - self.row_weight_bits, _MOST_DEALT_BITS)

    @property
    def residual_bits(self) -> int:
        """Of a row's residual: |Σ z r| ≤ 2 rows · 2^(spread / 2), by Cauchy and Schwarz."""
        room = self.width - 7 - CELL_BITS - self.size - -(-self.spread // 2)
        return min(room, _MOST_DEALT_BITS + _COEFFICIENT_BITS + self.row_weight_bits)

    @property
    def gradient_shift(self) -> int:
        return CELL_BITS + self.residual_bits + self.size - GRADIENT_BITS

    @property
    def loss_bits(self) -> int:
        """Of a row's loss, which in the longest period is at most 2^6 beside the constant."""
        room = self.width - 10 - self.size - self.spread
        return min(room, _MOST_DEALT_BITS + _COEFFICIENT_BITS + self.row_weight_bits)

    @property
    def loss_shift(self) -> int:
        return self.loss_bits + self.size - GRADIENT_BITS

    @property
    def gradient_bound(self) -> int:
        """2 rows for the residuals; the rest for the penalty, up to where it costs 98.

        That cost is below log 2 wherever a step is accepted.
        """
        return 16 * self.rows << (CELL_BITS + self.residual_bits + -(-self.spread // 2))

    def place(self) -> dict[str, slice]:
        """Where each party's columns lie among all."""
        ends = np.cumsum(list(self.columns.values())).tolist()
        starts = [0, *ends[:-1]]
        return {party: slice(a, b) for party, a, b in zip(self.columns, starts, ends, strict=True)}
