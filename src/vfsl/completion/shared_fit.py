"""Ridge models of the missing party's columns on shares: what all protocols have in common.

Holds   the missing party: targets, which cells are known, and to which part each row belongs; the
        given party: its columns for common and remaining rows; the dealer: no data.
Learns  the missing party: sums of errors of the common rows, for numbers two by hidden part, for
        categories by halves of classes, and their products; one prediction per remaining row and
        target; of the last model how many common rows are within limits of its choice. Of rounds
        only how errors of each column changed, by hidden part. The given party and the dealer: how
        many columns and parts there are, how many classes each nameless column has and which
        fraction of it is known, in twentieths. The missing party and the dealer: how far the given
        party's remaining rows reach, as a power of two. See crypto/session.py.

The given party turns its columns so that the penalised mean of their squares is 1 on the common
rows: then the model of a target without gaps is Zᵀy/n, one product. Gaps and pseudo-labels weigh
rows; such a model is solved by Chebyshev's iteration, whose interval has guaranteed ends where
there are no gaps.

shared_errors.py adds up the errors of rows that are left out, shared_limits.py finds what they stay
within, shared_rounds.py learns from pseudo-labels, shared_roles.py has the parties' sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from vfsl.completion.tasks import known_fractions
from vfsl.crypto.shares import DISCLOSURES as SHARING
from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.errors import ProtocolError
from vfsl.estimators.shared.algebra import whiten
from vfsl.values import Booleans, Disclosure, Disclosures, Floats, Integers, Masked

DISCLOSURES: Disclosures = {
    **SHARING,
    "sizes": Disclosure(
        dict,
        "how many rows and columns the sender has; of the missing party also how many classes each "
        "nameless column has and how much of it is known, in twentieths; of the given party a "
        "power of two for how far its remaining rows reach",
    ),
    "errors of numbers": Disclosure(
        Masked, "for each number and hidden part of the common rows two sums of errors"
    ),
    "errors of classes": Disclosure(
        Masked,
        "for each category sums of errors over hidden halves of the rows of each class, and of "
        "their products over all rows",
    ),
    "change of errors": Disclosure(
        Masked, "for each column and hidden part of the common rows how errors changed by rounds"
    ),
    "errors by prediction": Disclosure(
        Masked, "for each number three sums of squared errors, weighted by powers of predictions"
    ),
    "rows within": Disclosure(
        Masked, "for each column how many rows are within a limit that the receiver chose"
    ),
    "predictions": Disclosure(Masked, "for each remaining row and target one prediction"),
}

STEPS = 20  # fractions of known cells are told in twentieths
# Rows farther out than that are drawn in; scores stay below it, in deviations of the target.
FARTHEST_BITS = 7
# Bits behind the point: of columns, targets, weights, matrices and of products of two columns.
COLUMN, _TARGET, WEIGHT, MATRIX, PAIR = 12, 12, 16, 16, 8
# Of predictions that are opened.
_SHOWN = 13
# Sums of errors are opened over parts of so many rows on average, at least.
_LEAST_OF_PART = 5
# What is left of a first error when a solution is taken.
_ACCURACY = 2.0**-12
# How far the smallest eigenvalue may lie below the fraction of known cells. A smaller one makes a
# solution less exact, never wrong: the iteration falls on everything below its upper end.
LOWEST = 0.25
# A remaining row may weigh that many times as much as a common one.
_FARTHEST_REACH = 12


def _nothing() -> Floats:
    return np.zeros(0)


# ---- what the parties bring ---------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class Given:
    """The given party's columns, turned; the last one is constant.

    Attributes
    ----------
    columns : array (common rows, columns)
    rest : array (remaining rows, columns)
    penalty : array (columns, columns)
        What the ridge penalty became.
    turn : array
        From centred columns to turned ones.
    blocks : list of integer arrays
        For each round of self-training the remaining rows that may get a pseudo-label in it.
    """

    columns: Floats
    rest: Floats
    penalty: Floats
    turn: Floats
    blocks: Sequence[Integers] = ()

    @property
    def reach(self) -> int:
        """The power of two that bounds the matrices of all rounds."""
        common, rows = self.columns, len(self.columns)
        chosen = self.rest[np.concatenate(self.blocks)] if self.blocks else self.rest[:0]
        matrix = common.T @ common + chosen.T @ chosen + (rows + len(chosen)) * self.penalty
        most = float(np.linalg.eigvalsh(matrix / rows)[-1])
        return max(int(np.ceil(np.log2(most) - 1e-6)), 0)


@final
@dataclass(frozen=True, eq=False)
class Missing:
    """The missing party's targets on the common rows, each with mean 0 and deviation at most 1.

    Attributes
    ----------
    values : array (rows, targets)
        Nothing where a cell is unknown.
    known : boolean array (rows, targets)
    means : array (targets,)
        Of indicators of classes: what was taken off.
    beyond : array (rows, targets)
        How far each value is from its baseline, for a cross-fit.
    parts : integer array (rows,)
        The part of each row, by which errors of numbers are added up.
    codes : mapping of column to integer array (rows,)
        Of categories: the half and class of each known cell, by which errors are added up.
    sure : boolean array (targets,)
        Whether all predictions of a number count as confident, where errors decide it.
    maps : array (targets of categories, classes of all categories), and cuts : array (classes,)
        A row belongs to a class surely where its scores times the map are not below the cut.
    """

    values: Floats
    known: Booleans
    means: Floats
    beyond: Floats = field(default_factory=_nothing)
    parts: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    codes: Mapping[int, Integers] = field(default_factory=dict)
    sure: Booleans = field(default_factory=lambda: np.zeros(0, dtype=bool))
    maps: Floats = field(default_factory=_nothing)
    cuts: Floats = field(default_factory=_nothing)


@dataclass(frozen=True)
class Sizes:
    """What everybody knows.

    Attributes
    ----------
    known : tuple of int
        By target, in twentieths.
    classes : tuple of int
        Of each column that is predicted: how many classes it has, 0 for a number. A category has a
        target for each class but the first.
    reach : int
    judged : bool
        Whether the missing party asks what errors of the last model stay within.
    """

    given: str
    missing: str
    rows: int
    rest: int
    columns: int
    parts: int
    known: tuple[int, ...]
    classes: tuple[int, ...] = ()
    reach: int = 0
    judged: bool = False

    @property
    def targets(self) -> int:
        return len(self.known)

    @property
    def level(self) -> int:
        """Bits of the number of rows."""
        return self.rows.bit_length()

    @property
    def whole(self) -> Integers:
        return np.flatnonzero(np.array(self.known) == STEPS)

    @property
    def holed(self) -> Integers:
        return np.flatnonzero(np.array(self.known) < STEPS)

    @property
    def units(self) -> Integers:
        """To which predicted column each target belongs."""
        widths = [max(count - 1, 1) for count in self.classes]
        return np.repeat(np.arange(len(widths)), widths)

    @property
    def numbers(self) -> Integers:
        """The targets that are numbers."""
        return np.flatnonzero(np.array(self.classes)[self.units] == 0)

    @property
    def indicators(self) -> Integers:
        """The targets that are indicators of classes."""
        return np.flatnonzero(np.array(self.classes)[self.units] > 0)

    @property
    def categories(self) -> list[int]:
        """The predicted columns that are categories."""
        return [unit for unit, count in enumerate(self.classes) if count]

    def targets_of(self, unit: int) -> Integers:
        return np.flatnonzero(self.units == unit)

    @classmethod
    def of(cls, told: Mapping[str, Mapping[str, int]], given: str, missing: str) -> Sizes:
        """From what both have told; ProtocolError where it does not fit."""
        ours, theirs = told[given], told[missing]
        try:
            known = [n for name, n in theirs.items() if name.startswith("known ")]
            classes = [theirs[f"classes {i}"] for i in range(theirs["columns"])]
            made = cls(
                given,
                missing,
                ours["rows"],
                ours["rest"],
                ours["columns"],
                theirs["parts"],
                tuple(known),
                tuple(classes),
                ours["reach"],
                bool(theirs.get("judged", 0)),
            )
        except KeyError as error:
            raise ProtocolError(f"Sizes lack {error}.", missing) from None
        if ours["rows"] != theirs["rows"]:
            raise ProtocolError(
                f"Parties {given} and {missing} have {ours['rows']} and {theirs['rows']} common "
                "rows; expected the same.",
                missing,
            )
        fits = all(1 <= n <= STEPS for n in known) and (
            not classes or len(made.units) == len(known)
        )
        if made.parts * _LEAST_OF_PART > made.rows:
            raise ProtocolError(
                f"Party {missing!r} wants errors of {made.parts} parts of {made.rows} rows; that "
                "would be too few rows each.",
                missing,
            )
        if not fits or made.columns < 1 or made.reach > _FARTHEST_REACH:
            raise ProtocolError("The sizes of a fit on shares do not fit together.", missing)
        return made


def turn_columns(
    columns: Floats, rest: Floats, l2: float, blocks: Sequence[Integers] = ()
) -> Given:
    """Centred columns of the common rows, and those of the remaining ones, as models take them."""
    turn = whiten(columns, l2).back
    size = turn.shape[1] + 1
    penalty = np.zeros((size, size))
    penalty[:-1, :-1] = l2 * turn.T @ turn
    common, others = (add_constant(draw_in_rows(one @ turn)) for one in (columns, rest))
    return Given(common, others, penalty, turn, blocks)


def draw_in_rows(columns: Floats) -> Floats:
    """Rows that are farther out than scores may reach, at that distance."""
    length = np.linalg.norm(columns, axis=1, keepdims=True)
    most = 2.0**FARTHEST_BITS - 1
    return np.asarray(columns * np.minimum(1.0, most / np.maximum(length, 1e-300)))


def add_constant(columns: Floats) -> Floats:
    return np.column_stack([columns, np.ones(len(columns))])


def count_twentieths(known: Booleans) -> tuple[int, ...]:
    """Which fraction of each target's cells is known; all twentieths only where all are known."""
    steps = np.rint(known_fractions(known) * STEPS).astype(int)
    return tuple(int(n) for n in np.where(known.all(axis=0), STEPS, np.minimum(steps, STEPS - 1)))


# ---- fixed point --------------------------------------------------------------------------------


def to_fixed(values: Floats | Booleans | None, bits: int) -> Integers | None:
    if values is None:
        return None
    return np.rint(np.asarray(values, dtype=np.float64) * 2.0**bits).astype(np.int64)


def width_for(bits: int) -> int:
    """Whole bytes for values below 2^bits that can also be shortened."""
    return min(-(-(bits + 2) // 8) * 8, 64)


def pair_columns(columns: Floats) -> Floats:
    """All products of two columns."""
    i, j = np.triu_indices(columns.shape[1])
    return np.asarray(columns[:, i] * columns[:, j])


def square_places(size: int) -> Integers:
    """Where the entries of a symmetric matrix are among its upper ones, (size²,)."""
    places = np.zeros((size, size), dtype=np.int64)
    i, j = np.triu_indices(size)
    places[i, j] = places[j, i] = np.arange(len(i))
    return places.ravel()


# ---- systems of equations -----------------------------------------------------------------------


def chebyshev_steps(low: float, high: float, accuracy: float) -> list[tuple[float, float]]:
    """Factors of the last step and of the residual in Chebyshev's iteration on [low, high].

    As many as make an error in that interval smaller than ``accuracy``. Only +, −, × and ÷: every
    machine finds the same bits.
    """
    high = max(high, 1.0001 * low)
    middle, half = (high + low) / 2, (high - low) / 2
    ratio = middle / half
    steps, rho = [(0.0, 1.0 / middle)], 1.0 / ratio
    before, now = 1.0, ratio  # values of the Chebyshev polynomials at the ratio
    while now < 1.0 / accuracy:
        new = 1.0 / (2.0 * ratio - rho)
        steps.append((new * rho, 2.0 * new / half))
        before, now, rho = now, 2.0 * ratio * now - before, new
    return steps


def solve(
    matrix: Shared, right: Shared, low: float, high: float, start: Shared | None = None
) -> Shared:
    """Solutions of symmetric systems: (systems, size, size), (systems, size) to (systems, size)."""
    right = right.reshape(*right.shape, 1)
    found = right.session.zeros(right.shape) if start is None else start.reshape(*right.shape)
    step, first = found, start is None
    for last, residual in chebyshev_steps(low, high, _ACCURACY):
        gap = (1 << MATRIX) * right
        gap = gap if first else gap - matrix @ found
        first = False
        # Both at 12 more bits than a product has; bounds are those of the solutions.
        moved = round(residual * 4096) * gap + (round(last * 4096) << MATRIX) * step
        step = moved.truncate(12 + MATRIX)
        found = found + step
    return found.map(lambda piece: piece[..., 0])


def fill_square(packed: Shared, size: int) -> Shared:
    """Symmetric matrices from their upper entries: (entries, systems) to (systems, size, size)."""
    return packed.T[:, square_places(size)].reshape(packed.shape[1], size, size)


# ---- the models of the common rows --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Model:
    """Hidden weights (targets, columns) and the systems that they solve."""

    weights: Shared
    right: Shared
    matrix: Shared  # by target
    penalty: Shared


def fit_common(s: Session, sizes: Sizes, given: Given | None, missing: Missing | None) -> Model:
    """Ridge regression of all targets on the known cells of the common rows."""
    n, m, level = sizes.rows, sizes.columns, sizes.level
    bits = COLUMN + level
    # |Σ z y / n| ≤ 1 by Cauchy and Schwarz: the penalised squares of z, and those of y, are so.
    width = width_for(bits + _TARGET + 1)
    columns = s.private(sizes.given, to_fixed(given and given.columns / n, bits), (n, m), width)
    values = s.private(
        sizes.missing, to_fixed(missing and missing.values, _TARGET), (n, sizes.targets), width
    )
    sums = (columns.T @ values).limit(3 << (bits + _TARGET - 1))
    right = sums.truncate(bits + _TARGET - WEIGHT).T
    penalty = s.share(sizes.given, to_fixed(given and given.penalty, MATRIX), (m, m))
    one = s.zeros((m, m)) + (np.eye(m, dtype=np.int64) << MATRIX)
    weights = {int(k): right[int(k)] for k in sizes.whole}
    systems = {int(k): one for k in sizes.whole}
    if len(sizes.holed):
        matrix = _weigh_known(s, sizes, given, missing, penalty)
        low = min(sizes.known) / STEPS * LOWEST
        found = solve(matrix, right[sizes.holed], low, 1.0)
        weights |= {int(k): found[i] for i, k in enumerate(sizes.holed)}
        systems |= {int(k): matrix[i] for i, k in enumerate(sizes.holed)}
    every = range(sizes.targets)
    return Model(
        concatenate([weights[k].reshape(1, m) for k in every]),
        right,
        concatenate([systems[k].reshape(1, m, m) for k in every]),
        penalty,
    )


def _weigh_known(
    s: Session, sizes: Sizes, given: Given | None, missing: Missing | None, penalty: Shared
) -> Shared:
    """Σ z zᵀ / n over the known cells of each target with gaps, and their part of the penalty."""
    n, m = sizes.rows, sizes.columns
    bits = max(PAIR + sizes.level, MATRIX + 1)
    width = width_for(bits + 1)
    pairs = s.private(
        sizes.given,
        to_fixed(given and pair_columns(given.columns) / n, bits),
        (n, m * (m + 1) // 2),
        width,
    )
    known = s.private(
        sizes.missing,
        to_fixed(missing and missing.known[:, sizes.holed], 0),
        (n, len(sizes.holed)),
        width,
    )
    return add_penalty((pairs.T @ known).limit(3 << (bits - 1)), bits, penalty)


def add_penalty(packed: Shared, bits: int, penalty: Shared) -> Shared:
    """Matrices with the penalty for as many rows as they sum over: their last entry."""
    size = penalty.shape[0]
    matrix = fill_square(packed.truncate(bits - MATRIX), size)
    count = matrix[:, -1:, -1:]
    return matrix + (count * penalty).truncate(MATRIX)


# ---- predictions --------------------------------------------------------------------------------


def open_predictions(
    s: Session, sizes: Sizes, rows: Floats | None, count: int, weights: Shared
) -> Floats | None:
    """At the missing party: predictions of rows, in deviations from the mean of each target."""
    width = width_for(_SHOWN + WEIGHT + FARTHEST_BITS + 1)
    columns = s.private(sizes.given, to_fixed(rows, _SHOWN), (count, sizes.columns), width)
    opened = (columns @ weights).open(to=sizes.missing, name="predictions", about=("columns",))
    return None if opened is None else opened / 2.0 ** (_SHOWN + WEIGHT)
