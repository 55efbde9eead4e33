"""Strengths of association on shares: one function that both parties and the dealer run.

Holds   two data holders: orthonormal columns for each of their columns; the dealer: seeds, no data.
Learns  nobody anything: the strengths stay shared until the caller opens them, rounded. Public are
        both sides' numbers of rows, columns and orthonormal columns.

A column is a subspace: a numeric one the line of its centred ranks, a categorical one with c groups
the c − 1 dimensions of centred values that depend on the group only. With orthonormal columns Q, R
of two such spaces every measure is

    strength² = Σ (Qᵀ R)² / min(dimensions of Q, of R)

which is Spearman's ρ², the correlation ratio η², or Cramér's V². Which orthonormal columns belong
together is known to their owner only: it adds up squares by a private matrix of zeros and ones.

Errors. Columns are rounded at random to 18 bits, so the error of a product is a sum of independent
terms: by Hoeffding's inequality it passes 6 · 2^-18 = 2.3e-5 with probability below 1e-15, whatever
the number of rows; usually it is 2e-6. Sums of squares are exact then, and roots are as exact as
`find_roots` says. A strength that lies nearer than that to a limit of rounding may fall on the
other side of it. Whether a strength is above a threshold is asked with a margin of 3e-5, so that
one that equals it never is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.errors import BoundExceeded
from vfsl.values import Floats, Integers

BITS = 18  # behind the point: of columns, products and strengths
WIDTH = 40  # of cells on the wire: products stay below (2^BITS + √rows)², shortening needs 2^38
MOST_ROWS = 1 << 34
_SQUARE_BITS = 2 * BITS
_ONE = 1 << _SQUARE_BITS  # a square of 1
_INVERSE_BITS = 24  # of 1 / dimensions: times a square 60 bits, shortening allows 62
_SLOPE_BITS = 8  # of lines in a square: 2^17 of them times a square 61 bits
_SHARE_BITS = 29  # of 10^decimals / columns: times a strength 61 bits
_DIMENSION_WIDTH = 24
_WIDTHS = (16, 24, 32, 40, 48, 56, 64)
_MARGIN = 8  # units of 2^-BITS by which a strength must pass a threshold: 3e-5
_MOST_DECIMALS = 4


@dataclass(frozen=True, eq=False)
class Side:
    """One party's columns; what others do not have of it is None.

    Attributes
    ----------
    owner : str
    rows, columns, derived : int
        How many; ``derived`` counts orthonormal columns, at least one per column.
    cells : array of float or None
        Rows × derived.
    belongs : array of int or None
        Which column each derived one is of, from 0 on.
    """

    owner: str
    rows: int
    columns: int
    derived: int
    cells: Floats | None = None
    belongs: Integers | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """What all others learn."""
        return {"rows": self.rows, "columns": self.columns, "derived": self.derived}

    @property
    def single(self) -> bool:
        """Whether every column has one dimension: sizes tell."""
        return self.columns == self.derived

    def round_cells(self, seed: int) -> Integers | None:
        """Cells in fixed point, rounded up or down at random so that errors cancel over rows.

        The draws protect nothing. They are the same every time, so that results repeat.
        """
        if self.cells is None:
            return None
        return round_randomly(self.cells * 2.0**BITS, np.random.default_rng(seed))

    @property
    def adder(self) -> Integers | None:
        """Columns × derived: 1 where a derived column belongs to the column."""
        if self.belongs is None:
            return None
        return np.asarray(np.arange(self.columns)[:, None] == self.belongs, dtype=np.int64)

    @property
    def dimensions(self) -> Integers | None:
        if self.belongs is None:
            return None
        return np.bincount(self.belongs, minlength=self.columns).astype(np.int64)


def round_randomly(values: Floats, rng: np.random.Generator) -> Integers:
    """Each value's floor or ceiling, so drawn that the value is the mean."""
    return np.floor(values + rng.random(values.shape)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Strengths:
    """What is found of each missing column, still shared.

    Attributes
    ----------
    rounded : Shared
        10^decimals × the strength, rounded to whole numbers, halves up.
    above : Shared or None
        1 where the strength, before rounding, is above a threshold, else 0.
    explained : Shared or None
        2^`count_explained_bits` × the sum of all squared products, rounded.
    """

    rounded: Shared
    above: Shared | None = None
    explained: Shared | None = None


def find_strengths(
    session: Session,
    given: Side,
    missing: Side,
    how: str,
    k: int,
    decimals: int,
    *,
    above: float | None = None,
    explained: bool = False,
) -> Strengths:
    """The strength of each missing column; whether it is above a threshold, and what a test needs,
    where asked for.
    """
    products = _multiply(session, given, missing)
    finish: Callable[[Shared], Shared]
    if given.single and missing.single:
        values, finish = _find_absolute(products), _keep
    else:
        values = _add_squares(session, products, given, missing)
        # A threshold is met as exactly as four decimals are.
        finish = partial(find_roots, decimals=decimals if above is None else _MOST_DECIMALS)
    k = {"mean": given.columns, "max": 1}.get(how, min(k, given.columns))
    if k == given.columns:
        total = finish(values).sum(axis=0)
    elif k == 1:
        total = finish(find_largest(values))[0]
    else:
        total = (finish(values) * mark_largest(values, k)).sum(axis=0)
    share = int((2 * 10**decimals << _SHARE_BITS) + k) // (2 * k)
    total = total.limit(k * (1 << BITS) * 33 // 32)  # 1, with room for errors
    return Strengths(
        (total * share).truncate(BITS + _SHARE_BITS),
        None if above is None else _is_above(total, k, above),
        _add_all_squares(session, products, given, missing) if explained else None,
    )


def _is_above(total: Shared, columns: int, threshold: float) -> Shared:
    """1 where a sum of strengths over so many columns is above that many thresholds, else 0."""
    least = math.floor(threshold * columns * (1 << BITS)) + _MARGIN * columns + 1
    return (1 - is_below_zero(total - least)).limit(1)


def count_explained_bits(rows: int) -> int:
    """Bits behind the point of a sum of squares: chance alone gives 2^3 units per product or more.

    That is enough for a p-value, and not the cells of a row.
    """
    return min(rows.bit_length() + 3, _SQUARE_BITS)


def _add_all_squares(session: Session, products: Shared, given: Side, missing: Side) -> Shared:
    """Squared products, added up over all given columns, of each missing column."""
    squares = forget_bound(products * products).sum(axis=0).reshape(-1, 1)
    if not missing.single:
        squares = _add_up(session, missing, squares)
    # Unit vectors: each given one explains at most 1, with room for errors.
    total = squares.reshape(missing.columns).limit(2 * given.derived * _ONE)
    return total.truncate(_SQUARE_BITS - count_explained_bits(given.rows))


def _multiply(session: Session, given: Side, missing: Side) -> Shared:
    """Products of all derived columns: given down, missing across."""
    if given.rows > MOST_ROWS:
        raise BoundExceeded(f"An association can have up to {MOST_ROWS} rows. Got {given.rows}.")
    left, right = (
        session.private(side.owner, side.round_cells(seed), (side.rows, side.derived), WIDTH)
        for seed, side in enumerate((given, missing))
    )
    # Unit columns, and less than 1 for each rounded cell.
    most = ((1 << BITS) + math.isqrt(given.rows) + 1) ** 2
    return (left.T @ right).limit(most).truncate(BITS)


def _find_absolute(values: Shared) -> Shared:
    return values - 2 * (values * is_below_zero(values))


def _keep(values: Shared) -> Shared:
    return values


def _add_squares(session: Session, products: Shared, given: Side, missing: Side) -> Shared:
    """The squared strength of each pair of columns."""
    squares = forget_bound(products * products)
    if not given.single:
        squares = _add_up(session, given, squares)
    if not missing.single:
        squares = _add_up(session, missing, squares.T).T
    if given.single or missing.single:  # the smaller dimension is 1
        return squares.limit(2 * _ONE)
    down, across = (
        _share_dimensions(session, side, shape)
        for side, shape in ((given, (-1, 1)), (missing, (1, -1)))
    )
    fewer = is_below_zero(down[0] - across[0])
    inverse = across[1] + (down[1] - across[1]) * fewer
    return (
        (squares * forget_bound(inverse)).limit(2 * _ONE << _INVERSE_BITS).truncate(_INVERSE_BITS)
    )


def _add_up(session: Session, side: Side, squares: Shared) -> Shared:
    """Sums over the derived columns of each column of a side, which are down."""
    adder = session.private(side.owner, side.adder, (side.columns, side.derived))
    return adder @ squares


def _share_dimensions(
    session: Session, side: Side, shape: tuple[int, int]
) -> tuple[Shared, Shared]:
    """The dimensions of a side's columns, and their inverses."""
    known, size = side.dimensions, (side.columns,)
    inverse = None if known is None else np.rint((1 << _INVERSE_BITS) / known).astype(np.int64)
    return (
        session.share(side.owner, known, size, _DIMENSION_WIDTH, side.derived).reshape(*shape),
        session.share(side.owner, inverse, size, bound=1 << _INVERSE_BITS).reshape(*shape),
    )


# ---- functions of shared numbers -----------------------------------------------------------------


def is_below_zero(values: Shared) -> Shared:
    """1 where a value is negative, else 0, at the least width that its bound permits."""
    least = (values.bound or 0).bit_length() + 2
    width = values.width if values.bound is None else next(w for w in _WIDTHS if w >= least)
    return values.narrow(width).below_zero()


def find_largest(values: Shared) -> Shared:
    """The largest of each column of numbers that are not negative: pairs are compared, and the
    larger ones again.
    """
    while len(values.piece) > 1:
        half = len(values.piece) // 2
        one, two, rest = values[:half], values[half : 2 * half], values[2 * half :]
        gap = _subtract(one, two)
        larger = replace(one - gap * is_below_zero(gap), bound=values.bound)
        values = concatenate([larger, rest])
    return values


def mark_largest(values: Shared, k: int) -> Shared:
    """1 at the k largest of each column of numbers that are not negative, else 0.

    All pairs are compared at once. Of equal values the upper one counts as larger.
    """
    count = len(values.piece)
    upper, lower = np.triu_indices(count, 1)
    loses = is_below_zero(_subtract(values[upper], values[lower]))
    # How many are larger: of those above all that do not lose, of those below all that win.
    larger = [
        concatenate([1 - loses[lower == i], loses[upper == i]]).sum(axis=0).reshape(1, -1)
        for i in range(count)
    ]
    return is_below_zero(concatenate(larger) - k)


def _subtract(one: Shared, other: Shared) -> Shared:
    """The difference of numbers that are not negative: no larger than these."""
    return replace(one - other, bound=one.bound)


# A line near √t for t from 1/4 to 1, with a relative error of at most 3 % either way, and one near
# 1 / (2√t), 9 %: minimax in √t, where both are of low degree.
_ROOT = (0.3431, 0.6863)
_HALF_INVERSE = (1.0664, -0.6094)
_ROOT_ERROR, _INVERSE_ERROR = 0.031, 0.09


def count_intervals(decimals: int) -> int:
    """Roots under 2^-count err by up to 0.12 · 2^-count: under 1.5 % of the last place."""
    return int(10**decimals).bit_length() + 3


def count_steps(decimals: int) -> int:
    """Steps of `find_roots` until the relative error is under 1 % of the last place."""
    error, steps = _ROOT_ERROR, 0
    while error > 0.01 * 10.0**-decimals:
        error = _INVERSE_ERROR * error + (1 + _INVERSE_ERROR) * error**2 / 2
        steps += 1
    return steps


def find_roots(squares: Shared, decimals: int) -> Shared:
    """Square roots of numbers from 0 to 1 with 2 · BITS behind the point; the result has BITS.

    The number is compared with powers of 4 at once. Its interval gives a line g near the root s and
    a line h near 1 / (2s). Steps g ← g + h (s² − g²) then turn the relative error δ of g into
    −ηδ − (1 + η) δ²/2, where η is that of h: they converge in every interval, to an error below
    1.5 % of the last decimal and, near 0, 2^-(BITS + 1) for each rounding: one before the steps and
    one in each.
    """
    count, shape = count_intervals(decimals), squares.shape
    ones = (1,) * len(shape)
    limits = np.array([_ONE >> (2 * j) for j in range(1, count + 1)]).reshape(-1, *ones)
    below = is_below_zero(squares.reshape(1, *shape) - limits)
    lines = find_lines(count)
    steps = np.diff(lines, axis=0)
    starts_and_slopes = [
        (steps[:, i].reshape(-1, *ones) * below).sum(axis=0) + lines[0, i] for i in range(4)
    ]
    starts, slopes = (
        concatenate([one.reshape(1, *shape) for one in pair])
        for pair in (starts_and_slopes[:2], starts_and_slopes[2:])
    )
    both = concatenate([squares.reshape(1, *shape)] * 2)
    rising = (forget_bound(slopes) * forget_bound(both)).limit(1 << 61)
    near = forget_bound(starts) + forget_bound(rising.truncate(_SQUARE_BITS + _SLOPE_BITS - BITS))
    root, inverse = near[0], near[1]
    for _ in range(count_steps(decimals)):
        gap = forget_bound(squares) - root * root
        root = root + forget_bound((inverse * gap).limit(1 << 60).truncate(_SQUARE_BITS))
    return root.limit((1 << BITS) * 33 // 32)


def find_lines(count: int) -> Integers:
    """For each interval from above: starts of the lines g and h, then their slopes, as integers."""
    lines = np.zeros((count + 1, 4))
    for j in range(count):
        lines[j] = (
            _ROOT[0] * 2.0**-j,
            _HALF_INVERSE[0] * 2.0**j,
            _ROOT[1] * 2.0**j,
            _HALF_INVERSE[1] * 8.0**j,
        )
    # Under the last limit L² a chord of the root, and h = 1 / (2L): steps cannot overshoot.
    lines[count] = 0.0, 2.0 ** (count - 1), 2.0**count, 0.0
    scales = 2.0 ** np.array([BITS, BITS, _SLOPE_BITS, _SLOPE_BITS])
    return np.rint(lines * scales).astype(np.int64)


def forget_bound(values: Shared) -> Shared:
    """The same, where the bounds of factors say more than theory does of the product."""
    return replace(values, bound=None)
