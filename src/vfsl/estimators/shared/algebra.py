"""Linear algebra on shares for linear models: whitened columns, Gram matrices, inverses.

Every party first turns its own columns into *white* ones, whose penalised second moments are the
unit matrix. With P parties the Gram matrix of all white columns then has unit blocks on its
diagonal, so its eigenvalues lie between 0 and P whatever the data are. All step sizes and bounds
follow from that; nothing is measured and nothing is opened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vfsl.crypto.shares import Shared, concatenate
from vfsl.errors import BoundExceeded
from vfsl.values import Floats, Integers

# Directions of a party's own columns with less than this fraction of the largest variance are left
# out: float64 does not tell them from rounding.
_RANK_TOLERANCE = 1e-9
# Bits behind the point of matrices and vectors in shares, and precision of 1 / rows.
BITS = 22
_FRACTION_BITS = 20
_SPARE_BITS = 3
# An inverse is made of so many factors. Directions in which white columns vary by less than about
# 2^-9 of their number are shrunk by it, as by a small penalty; the others come out exactly.
FACTORS = 12
_REFINEMENTS = 2


@dataclass(frozen=True, eq=False)
class White:
    """A party's columns in coordinates in which their penalised second moments are 1.

    Attributes
    ----------
    columns : array (rows, rank)
    back : array (columns, rank)
        Weights of the party's own columns are ``back @`` those of the white ones.
    """

    columns: Floats
    back: Floats


def whiten(columns: Floats, l2: float, *, factor: float = 1.0, free: Sequence[int] = ()) -> White:
    """White columns: factor · XᵀX / rows + l2 becomes the unit matrix; ``free`` has no penalty."""
    penalty = np.full(columns.shape[1], l2)
    penalty[list(free)] = 0.0
    moments = factor * columns.T @ columns / max(len(columns), 1) + np.diag(penalty)
    values, vectors = np.linalg.eigh(moments)
    kept = values > _RANK_TOLERANCE * max(values.max(initial=0.0), 1e-300)
    back = vectors[:, kept] / np.sqrt(values[kept])
    return White(columns @ back, back)


def whiten_with_constant(columns: Floats, l2: float) -> White:
    """The same where the last column is 1 in all rows: it stays apart, as the last coordinate."""
    means = columns[:, :-1].mean(axis=0)
    rest = whiten(columns[:, :-1] - means, l2)
    return White(
        np.column_stack([rest.columns, np.ones(len(columns))]), append_constant(rest.back, means, 1)
    )


def append_constant(back: Floats, means: Floats, value: float) -> Floats:
    """``back`` of coordinates of centred columns, with a last one that is ``value`` in all rows."""
    rows, count = back.shape
    wider = np.zeros((rows + 1, count + 1))
    wider[:-1, :-1], wider[-1, :-1], wider[-1, -1] = back, -means @ back, value
    return wider


@dataclass(frozen=True)
class Widths:
    """How white columns become integers: their width in shares and the bits behind the point.

    A white column's squares add up to at most rows / factor, so by Cauchy and Schwarz no inner
    product of two passes that; the width holds it with two bits to spare.
    """

    width: int
    bits: int

    @classmethod
    def choose(cls, rows: int, factor: float = 1.0, least: int = 13) -> Widths:
        room = math.ceil(math.log2(max(rows, 2) / factor)) + 1  # rounding adds less than one bit
        for width in (40, 48, 56):
            bits = min((width - 2 - room) // 2, 14)
            if bits >= least:
                return cls(width, bits)
        raise BoundExceeded(
            f"{rows} rows are too many for linear models on shares; train on fewer rows."
        )


def round_randomly(values: Floats, bits: int, purpose: str) -> Integers:
    """Fixed point, rounded up or down at random so that errors average out over rows.

    To the nearest integer, a column of two values would be off alike in all rows. The draws depend
    on the purpose only, so that a run repeats; they hide nothing.
    """
    draws = np.random.default_rng([*purpose.encode()]).random(values.shape)
    return np.floor(np.ldexp(values, bits) + draws).astype(np.int64)


def average(sums: Sequence[Shared], rows: float, bits: int) -> list[Shared]:
    """Sums over rows with ``bits`` behind the point, divided by ``rows``: with `BITS` behind it.

    Two exact truncations for all of them together: first the sums lose the bits that no average
    needs, then they are multiplied by a fraction.
    """
    flat = concatenate([one.reshape(-1) for one in sums])
    size = math.floor(math.log2(max(rows, 2)))
    drop = max(bits + size - BITS - _SPARE_BITS, 1)
    shift = size + _FRACTION_BITS
    scaled = round(2.0**shift / rows) * flat.truncate(drop)
    means = scaled.truncate(bits - drop + shift - BITS)
    ends = np.cumsum([one.size for one in sums])
    return [
        means[end - one.size : end].reshape(*one.shape) for one, end in zip(sums, ends, strict=True)
    ]


def truncate_symmetric(matrix: Shared, bits: int = BITS) -> Shared:
    """A symmetric matrix without its last bits: one triangle is truncated, and copied."""
    size = matrix.shape[-1]
    rows, columns = np.triu_indices(size)
    place = np.zeros((size, size), dtype=np.int64)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    return matrix[..., rows, columns].truncate(bits)[..., place]


def invert(matrix: Shared, factors: int = FACTORS) -> Shared:
    """Shares of the inverse of a symmetric matrix whose eigenvalues lie between 0 and 1.

    With E = 1 − H the inverse is (1 + E)(1 + E²)(1 + E⁴)…; each factor costs one product and one
    truncation. Where H has the eigenvalue λ, the result times H has 1 − (1 − λ)^(2^factors): close
    to 1 or smaller, never larger. So a step by it never goes too far.
    """
    one = np.eye(matrix.shape[-1], dtype=np.int64) << BITS
    power = one - matrix
    inverse = power + one
    power = truncate_symmetric(power @ power)
    for _ in range(factors - 2):
        both = concatenate([inverse[None], power[None]])
        both = truncate_symmetric(both @ power)
        inverse, power = inverse + both[0], both[1]
    return inverse + truncate_symmetric(inverse @ power)


def solve(matrix: Shared, right: Shared, inverse: Shared) -> Shared:
    """Shares of u with matrix @ u = right: the inverse's answer, refined."""
    solution = (inverse @ right).truncate(BITS)
    for _ in range(_REFINEMENTS):
        rest = right - (matrix @ solution).truncate(BITS)
        solution = solution + (inverse @ rest).truncate(BITS)
    return solution
