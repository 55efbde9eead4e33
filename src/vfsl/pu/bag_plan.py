"""What a VFPU task on shares is planned with: public numbers, and each party's columns as integers.

Every row is scaled by public numbers to a bounded length. All bits and the number of steps follow
from that bound, the penalty and public sizes; nothing is read off the data.

Columns and row weights are rounded at random, up or down so that the mean is right: errors of
different rows then average out, and few bits are enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from vfsl.crypto.words import Bits
from vfsl.errors import BoundExceeded
from vfsl.pu.bags import Booleans
from vfsl.values import Floats, Integers

# A row is shortened to this many deviations per column (root mean square): only rows with a cell
# beyond it can be longer. The bound on eigenvalues, and so the number of steps, follows from it.
LONGEST = 4.0
# What is left of the distance to the solution, whatever the data are.
REST = 2.0**-11
# Penalties are taken to be at least this part of the largest possible eigenvalue; with l2=0.01
# that holds up to 300 columns of feature holders.
LEAST_PENALTY = 2.0**-17
# Part of the penalty that rounding errors of the matrix may use up.
SPARE = 0.25
# Curvature of the logistic loss at score 0, and the target ±2 there over two.
_CURVATURE = 0.25
TARGET = 2.0
# Directions of a party's own columns with less than this fraction of the largest variance are left
# out: float64 does not tell them from rounding.
_RANK = 1e-9

# Row weights up to so many times the average are allowed.
HEAVIEST = 1 << 12

# From so many rows on, encrypted products move fewer bytes than masked columns. They have fewer
# bits behind the point: over so many rows rounding errors average out.
ENCRYPTED_ROWS = 2000
_GRAM_BITS = {True: 36, False: 44}
_CROSS_BITS = {True: 34, False: 44}
_PAIR_BITS = {True: 36, False: 52}
# K is squared in 64 bits, so that it can have so many behind the point, and A twice as many.
LIFTED = 29
# Masked columns are wider by these: values stay below 2, truncation needs two bits, rounding one.
MARGIN = 4
# Width of what is scored, and bits behind the point of matrices and vectors on shares.
SCORE_WIDTH = 40
POWER = 27
WEIGHTS = 20
_ROOM = 61  # bits that products may reach before they are truncated


# ---- what all parties know -----------------------------------------------------------------------


class Bounds(NamedTuple):
    """Public bounds of a matrix of integers."""

    bits: int
    norm: float


@dataclass(frozen=True)
class Plan:
    """Public numbers of a task, and all bits and steps that follow from them.

    Parameters
    ----------
    label_holder : str
    rows, models : int
    columns, directions : mapping of party to int
        Encoded columns of each data holder, and how many independent directions they span.
    l2 : float
        As the base has it: of the mean logistic loss.
    """

    label_holder: str
    rows: int
    models: int
    columns: Mapping[str, int]
    directions: Mapping[str, int]
    l2: float

    def __post_init__(self) -> None:
        fewest = min(self.product_bits, self.cell_bits, self.pair_bits, *self.score_bits)
        if self.vector_bits < 12 or fewest < 5:
            raise BoundExceeded(
                f"{self.rows} rows, {self.models} models and {sum(self.columns.values())} columns "
                "are too many for bags on shares; use fewer columns or bags."
            )

    @property
    def feature_holders(self) -> tuple[str, ...]:
        return tuple(party for party in self.columns if party != self.label_holder)

    @property
    def size(self) -> int:
        """Directions of all feature holders."""
        return sum(self.directions[party] for party in self.feature_holders)

    @property
    def own(self) -> int:
        """Directions of the label holder and the constant."""
        return self.directions[self.label_holder] + 1

    def scale(self, party: str) -> float:
        """What columns are divided by, so that |x|² ≤ 2 over those of all feature holders."""
        holders = (party,) if party == self.label_holder else self.feature_holders
        return math.sqrt(max(LONGEST**2 * sum(self.columns[p] for p in holders), 1.0) / 1.99)

    def reach(self, party: str) -> float:
        """The length that a party's own scaled rows may have."""
        return LONGEST * math.sqrt(self.columns[party]) / self.scale(party)

    def penalty_of(self, party: str) -> float:
        """λ for the squared weights of a party's scaled columns."""
        smallest = LEAST_PENALTY * self.scale(self.feature_holders[0]) ** 2
        return max(self.l2 / _CURVATURE, smallest) / self.scale(party) ** 2

    @cached_property
    def penalty(self) -> float:
        """λ for the feature holders' scaled columns."""
        return self.penalty_of(self.feature_holders[0])

    # The interval of the polynomials is [(1 − spare) λ, (1 − spare) λ + 2]: half as long as wide.

    @cached_property
    def peaks(self) -> tuple[float, ...]:
        """T_1, T_2, T_4, … at 0, until a polynomial leaves no more than `REST` there."""
        found = [1 + (1 - SPARE) * self.penalty]
        while found[-1] * REST < 1:
            found.append(2 * found[-1] ** 2 - 1)
        return tuple(found)

    @cached_property
    def factors(self) -> tuple[float, ...]:
        """What each step's vector must be multiplied by to approach the solution."""
        found = [1 / self.peaks[0]]
        for now, then in zip(self.peaks, self.peaks[1:], strict=False):
            found.append(found[-1] * 2 * now / then)
        return tuple(found)

    @cached_property
    def vector_bits(self) -> int:
        """Behind the point of the vector: its products with the largest peak must fit."""
        longest = 1 / math.sqrt(self.penalty)  # |w| for targets ±1
        most = max(
            longest / factor * (peak + 1)
            for peak, factor in zip(self.peaks[:-1], self.factors, strict=False)
        )
        return min(_ROOM - POWER - math.ceil(math.log2(most)), LIFTED)

    # Of each product the factors together have so many bits behind the point, and their errors are
    # to weigh the same. Scaled columns are about 1 / scale, row weights 1 / rows that count.

    @property
    def encrypted(self) -> bool:
        """Whether columns are multiplied under encryption, not under masks."""
        return self.rows >= ENCRYPTED_ROWS and self.size > 0

    @property
    def gram_bits(self) -> int:
        """Of A, before it is truncated."""
        return _GRAM_BITS[self.encrypted]

    @property
    def cross_bits(self) -> int:
        """Of K and r, before they are truncated."""
        return _CROSS_BITS[self.encrypted]

    @property
    def product_bits(self) -> int:
        """Of products of two columns; those of the row weights that multiply them are the rest."""
        return int(self.gram_bits + min(math.log2(self._width**2 / self._counting), 0)) // 2

    @property
    def cell_bits(self) -> int:
        """Of columns; those of the label holder's weighted columns over rows are the rest."""
        return int(self.cross_bits + min(math.log2(self._width / self._counting), 0)) // 2

    @property
    def pair_sum_bits(self) -> int:
        """Of products of columns of two feature holders and row weights."""
        return _PAIR_BITS[self.encrypted]

    @property
    def pair_bits(self) -> int:
        """Of each of these columns; those of the row weights are the rest."""
        return int(self.pair_sum_bits + min(math.log2(self._width / self._counting), 0)) // 3

    @property
    def _width(self) -> float:
        return self.scale(self.feature_holders[0])

    @property
    def _counting(self) -> float:
        """How many rows a bag may have; only the label holder knows the number.

        In the middle between very few, whatever the number of rows is, and a large part of them.
        """
        return max(min(self.rows / 8, 4 * math.sqrt(self.rows)), 1.0)

    # Public bounds of integers, for encrypted products: the bits of their absolute values, and the
    # 2-norm of a column. Rounding changes every cell by less than 1.

    def bound_cells(self, party: str) -> Bounds:
        """Columns vary by 1 at the most, so that all directions together vary by their number."""
        longest = math.sqrt(self.rows * self.columns[party]) / self._width
        return self._bound(self.cell_bits, math.sqrt(2), longest)

    def bound_products(self, party: str) -> Bounds:
        longest = math.sqrt(2 * self.rows * self.columns[party]) / self._width
        return self._bound(self.product_bits, 2.0, longest)

    def bound_weights(self) -> Bounds:
        """Σ v² ≤ heaviest · Σ v."""
        most = min(HEAVIEST / self.rows, 1.0)
        return self._bound(self.gram_bits - self.product_bits, most, math.sqrt(most))

    def bound_weighted(self) -> Bounds:
        """Σ v z² ≤ rows, so no v |z| / rows is above √(heaviest / rows), nor is their 2-norm."""
        most = math.sqrt(min(HEAVIEST / self.rows, 1.0))
        return self._bound(self.cross_bits - self.cell_bits, most, most)

    def _bound(self, bits: int, largest: float, norm: float) -> Bounds:
        longest = norm * 2.0**bits * (1 + 1e-6) + math.sqrt(self.rows)
        return Bounds(math.ceil(math.log2(largest * 2.0**bits + 2)), longest)

    @property
    def score_bits(self) -> tuple[int, int]:
        """Of columns and of weights where rows are scored: sums over all models fit the width.

        A score is at most 2 + 2 |x| |w| with |w| ≤ 2 / √λ, since without any weight the loss is 4.
        """
        longest = LONGEST * math.sqrt(sum(self.columns.values()))
        penalty = self.penalty * self.scale(self.feature_holders[0]) ** 2
        most = self.models * TARGET * (1 + 2 * longest / math.sqrt(penalty))
        bits = SCORE_WIDTH - 2 - math.ceil(math.log2(most))
        # Scaled columns are as much smaller than 1 as their weights are larger.
        weights = (bits - round(math.log2(self.scale(self.feature_holders[0])))) // 2
        return bits - weights, weights


# ---- what each party prepares --------------------------------------------------------------------


def find_directions(columns: Floats) -> Floats:
    """Orthogonal directions that a party's columns span, (columns, directions).

    A penalty on squared weights does not change when columns are turned.
    """
    values, vectors = np.linalg.eigh(columns.T @ columns / max(len(columns), 1))
    return np.asarray(vectors[:, values > _RANK * max(values.max(initial=0.0), 1e-300)])


def scale_rows(columns: Floats, directions: Floats, plan: Plan, party: str) -> Floats:
    """A party's columns along its directions, scaled; too long rows are shortened."""
    turned = columns @ directions / plan.scale(party)
    length = np.linalg.norm(turned, axis=1, keepdims=True)
    shorter = np.minimum(1.0, plan.reach(party) / np.maximum(length, 1e-300))
    return np.asarray(turned * shorter)


def round_randomly(values: Floats, bits: int, rng: np.random.Generator) -> Integers:
    """Fixed point, rounded up or down at random so that the mean is right."""
    return np.floor(values * 2.0**bits + rng.random(values.shape)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class FeatureWords:
    """A feature holder's columns as integers, for each of their uses."""

    cells: Integers  # (rows, directions), times the label holder's weighted columns
    products: Integers  # (rows, pairs of directions), times row weights
    pairs: Integers  # (rows, directions), times those of other feature holders and row weights
    scored: Integers  # (rows, directions), times weights

    @classmethod
    def of(cls, columns: Floats, plan: Plan, rng: np.random.Generator) -> FeatureWords:
        one, other = np.triu_indices(columns.shape[1])
        several = len(plan.feature_holders) > 1
        return cls(
            round_randomly(columns, plan.cell_bits, rng),
            round_randomly(columns[:, one] * columns[:, other], plan.product_bits, rng),
            round_randomly(columns if several else columns[:, :0], plan.pair_bits, rng),
            round_randomly(columns, plan.score_bits[0], rng),
        )


@dataclass(frozen=True, eq=False)
class LabelWords:
    """The label holder's side as integers."""

    weights: Integers  # (rows, models), times products of one feature holder's columns
    pair_weights: Integers  # the same, times those of two feature holders
    columns: Integers  # (rows, models, own + 1): v z, and v times what its own fit leaves of y
    fit: Integers  # (models, own, 1): of its own columns alone, along z
    back: Integers  # (models, own, own): from z to its scaled columns
    scored: Integers  # (rows, own)
    votes: Bits  # (rows, models)

    @classmethod
    def of(
        cls,
        columns: Floats,
        positive: Booleans,
        weights: Floats,
        votes: Booleans,
        plan: Plan,
        rng: np.random.Generator,
    ) -> LabelWords:
        """From scaled columns, labels, row weights that average 1, and votes."""
        rows, targets = len(columns), np.where(positive, 1.0, -1.0)[:, None]
        columns = np.column_stack([columns, np.ones(rows)])
        penalty = np.full(columns.shape[1], plan.penalty_of(plan.label_holder))
        penalty[-1] = 0.0  # the constant
        if weights.max(initial=0.0) > HEAVIEST:
            raise BoundExceeded(
                f"A row weighs more than {HEAVIEST} times the average; use less extreme row "
                "weights."
            )
        bits = plan.cross_bits - plan.cell_bits
        crossing, fits, backs = [], [], []
        for model in range(weights.shape[1]):
            share = weights[:, [model]] / rows
            block = (share * columns).T @ columns + np.diag(penalty)
            back = np.linalg.inv(np.linalg.cholesky(block)).T
            own = columns @ back
            fit = own.T @ (share * targets)
            weighted = share * np.hstack([own, targets - own @ fit])
            crossing.append(round_randomly(weighted, bits, rng).astype(np.int32))
            fits.append(fit)
            backs.append(back)
        pair_weight_bits = plan.pair_sum_bits - 2 * plan.pair_bits
        several = len(plan.feature_holders) > 1
        return cls(
            round_randomly(weights / rows, plan.gram_bits - plan.product_bits, rng),
            round_randomly(weights[:, : None if several else 0] / rows, pair_weight_bits, rng),
            np.stack(crossing, axis=1),
            round_randomly(np.stack(fits), WEIGHTS, rng),
            round_randomly(np.stack(backs), WEIGHTS, rng),
            round_randomly(columns, plan.score_bits[0], rng),
            votes.astype(np.uint8),
        )
