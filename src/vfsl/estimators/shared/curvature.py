"""What curvatures on shares are made of: whitened columns, weighted Gram matrices, inverses.

A party's cells Z cross once, masked: all holders have E = Z − A, the owner and the dealer have A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vfsl.crypto.session import Mask
from vfsl.crypto.shares import Private, Shared, concatenate
from vfsl.crypto.words import Words, matmul
from vfsl.estimators.shared.algebra import append_constant
from vfsl.values import Floats, Integers

# Bits behind the point. Whitened cells have deviation 2, so 7 bits are a noise of 0.1 %.
CELL_BITS = 7
MATRIX_BITS = 18
CONSTANT = 2  # what a column of ones is in whitened coordinates: ¼ · 2² = 1

# Step sizes of inverses, in eighths. A step multiplies an inverse by 2 · 15 / 8 at most; with more
# steps in all, products could leave 64 bits.
FIRST_STEP = 15
MOST_STEPS = 5
_NEARLY_ONE = 0.85
_SMALLEST_EIGENVALUE = 1e-8  # of a party's own columns, as a fraction of the largest


@dataclass(frozen=True, eq=False)
class Whitened:
    """A party's columns in coordinates in which curvature bound plus penalty is the identity.

    Attributes
    ----------
    cells : integer array
        columns @ back, fixed point.
    back : float array
        Weights of the columns = back @ weights of the cells.
    penalty : float array
        ½ uᵀ penalty u is what weights u of the cells cost.
    """

    cells: Integers
    back: Floats
    penalty: Floats


def whiten(columns: Floats, penalties: Floats) -> Whitened:
    """One party's part, alone; ``penalties`` by column."""
    curvature = columns.T @ columns / (4 * len(columns)) + np.diag(penalties)
    values, vectors = np.linalg.eigh(curvature)
    back = vectors / np.sqrt(np.maximum(values, _SMALLEST_EIGENVALUE * values.max(initial=1e-300)))
    cells = np.rint(columns @ back * 2.0**CELL_BITS).astype(np.int64)
    return Whitened(cells, back, back.T @ (penalties[:, None] * back))


def whiten_with_constant(columns: Floats, penalties: Floats) -> Whitened:
    """The same where the last column is 1 in all rows and costs nothing: it stays apart."""
    means = columns[:, :-1].mean(axis=0)
    rest = whiten(columns[:, :-1] - means, penalties[:-1])
    constant = np.full(len(columns), CONSTANT << CELL_BITS)
    penalty = np.zeros((columns.shape[1],) * 2)
    penalty[:-1, :-1] = rest.penalty
    return Whitened(
        np.column_stack([rest.cells, constant]),
        append_constant(rest.back, means, CONSTANT),
        penalty,
    )


def plan_inverse(floor: float, most: int = MOST_STEPS) -> tuple[int, ...]:
    """Step sizes, in eighths, of Newton's iteration for an inverse.

    With Y the matrix times the inverse so far, Y → a Y (2 − a Y) brings eigenvalues between
    ``floor`` and 1 close to 1. It keeps all between 0 and 1 there for any a below 2, and multiplies
    the smallest by almost 4 (Pan and Schreiber, "An improved Newton iteration").
    """
    steps: list[int] = []
    lowest = floor
    while lowest < _NEARLY_ONE:
        steps.append(min(max(round(16 / (1 + lowest)), 8), 15) if steps else FIRST_STEP)
        scale = steps[-1] / 8
        lowest = min(scale * end * (2 - scale * end) for end in (lowest, 1.0))
    if len(steps) > most:  # smaller eigenvalues are then inverted in part
        return plan_inverse(1.5 * floor, most)
    return tuple(steps)


# ---- products of rows ----------------------------------------------------------------------------


def weigh_gram(cells: Sequence[Private], weights: Shared) -> Shared:
    """Zᵀ diag(w) Z for each column w of shared weights, (weights, columns, columns).

    All learn F = w − b with a mask b of which nobody has all summands. The dealer deals b ∘ A and
    Aᵀ (b ∘ A): then everything within a party's own columns is Zᵀ (F ∘ Z) at the owner and products
    with E elsewhere. Between two parties, w ∘ Z of the narrower one is multiplied by the other's
    private columns.
    """
    session, outputs = weights.session, weights.shape[1]
    mask = session.draw(weights.shape)
    (shown,) = session.reveal([(weights.piece, weights.width, mask)])
    blocks, scaled = {}, []
    for i, matrix in enumerate(cells):
        blocks[i, i], rows = _weigh_own(matrix, mask, shown, weights.width)
        scaled.append(rows)
    each = range(len(cells))
    ordered = sorted(each, key=lambda i: cells[i].shape[1])
    pairs = [(i, j) for at, i in enumerate(ordered) for j in ordered[at + 1 :]]
    found = session.products([(cells[j].T, scaled[i]) for i, j in pairs])
    for (i, j), product in zip(pairs, found, strict=True):
        blocks[j, i] = _split_outputs(product, outputs)
        blocks[i, j] = blocks[j, i].T
    return concatenate([concatenate([blocks[i, j] for j in each], axis=2) for i in each], axis=1)


def _split_outputs(product: Shared, outputs: int) -> Shared:
    """(columns, outputs · others) as (outputs, columns, others)."""
    split = product.reshape(product.shape[0], outputs, -1)
    return split.map(lambda words: words.swapaxes(0, 1))


def _weigh_own(matrix: Private, mask: Mask, shown: Words, width: int) -> tuple[Shared, Shared]:
    """A party's own block of `weigh_gram`, and its weighted cells, (rows, outputs · columns)."""
    session, (rows, count), outputs = matrix.session, matrix.shape, shown.shape[1]

    def weigh(weights: Words, words: Words) -> Words:
        return (weights[:, :, None] * words[:, None, :]).reshape(rows, outputs * count)

    dealt = session.deal((rows, outputs * count), lambda: weigh(mask.total, matrix.mask), width)
    squares = session.deal(
        (count, outputs * count),
        lambda: matmul(matrix.mask.T, weigh(mask.total, matrix.mask), width),
        width,
    )
    if not session.holds:
        return _split_outputs(Shared(session, squares, width), outputs), Shared(
            session, dealt, width
        )
    piece = weigh(mask.own, matrix.masked) + dealt
    block = squares + matmul(matrix.masked.T, piece, width)
    if session.has(matrix.owner):
        known = weigh(shown, matrix.own)
        block = block + matmul(matrix.own.T, known, width)
        piece = piece + known
    turned = _split_outputs(
        Shared(session, matmul(matrix.masked.T, dealt, width), width), outputs
    ).T
    return _split_outputs(Shared(session, block, width), outputs) + turned, Shared(
        session, piece, width
    )


# ---- inverses ------------------------------------------------------------------------------------


def invert(product: Shared, start: Shared, steps: Sequence[int]) -> Shared:
    """The last form of an inverse before it is shortened, with 2 · `MATRIX_BITS`.

    ``start`` is a first inverse M, ``product`` M times the matrix, both times the first step.
    """
    for step in steps[1:]:
        both = concatenate([product, start], axis=-1)
        longer = (2 << MATRIX_BITS) * both - product @ both
        both = (step * longer).truncate(MATRIX_BITS + 3)
        product, start = both[..., : product.shape[-1]], both[..., product.shape[-1] :]
    return (2 << MATRIX_BITS) * start - product @ start
