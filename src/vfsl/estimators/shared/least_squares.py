"""Least squares on shares: the normal equations, formed and solved by parties that never see them.

Holds   the label holder: columns and targets; each feature holder: columns; the dealer: seeds.
Learns  each party: the weights of its own columns, or nothing where weights stay shared. All: how
        many rows, columns and targets there are, and where rows have weights a power of two above
        the largest one, whose mean is 1. See crypto/session.py for what crosses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vfsl.crypto.fixed import encode
from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.crypto.words import WIDEST
from vfsl.errors import BoundExceeded
from vfsl.estimators.shared.algebra import (
    BITS,
    FACTORS,
    White,
    Widths,
    average,
    invert,
    round_randomly,
    solve,
)
from vfsl.estimators.shared.curvature import weigh_gram
from vfsl.values import Floats, Integers


@dataclass(frozen=True)
class LeastSquaresPlan:
    """Public facts of a fit.

    Attributes
    ----------
    rows : int
    columns : mapping
        How many white columns each party has, in the order that all use.
    holder : str
        The label holder.
    targets : int
    peak : int or None
        Row weights, whose mean is 1, are at most 2^peak; None: there are none.
    """

    rows: int
    columns: Mapping[str, int]
    holder: str
    targets: int
    peak: int | None = None


def fit_least_squares(
    session: Session,
    white: Mapping[str, White],
    target: Floats | None,
    row_weights: Floats | None,
    plan: LeastSquaresPlan,
) -> dict[str, Shared]:
    """Shares of the weights of every party's white columns, `BITS` behind the point.

    Parameters
    ----------
    white : mapping
        Of this party only; of all, in one place.
    target : array (rows, targets)
        Of standard deviation 1; at the label holder only.
    row_weights : array (rows, targets)
        At the label holder only; None where rows count alike.
    """
    if plan.peak is None:
        matrix, right = _form_equations(session, white, target, plan)
        solution = solve(matrix, right, invert(matrix))
    else:
        matrix, right = _weigh_equations(session, white, target, row_weights, plan)
        # Most rows have weights around 1, so most eigenvalues lie by 2^peak lower.
        solution = solve(matrix, right, invert(matrix, FACTORS + plan.peak))
        solution = solution.map(lambda words: words[:, :, 0].T)
    ends = np.cumsum(list(plan.columns.values()))
    return {
        party: solution[end - size : end]
        for (party, size), end in zip(plan.columns.items(), ends, strict=True)
    }


def fit_orthogonal(
    session: Session, columns: Floats | None, target: Floats | None, plan: LeastSquaresPlan
) -> dict[str, Shared]:
    """The same where the label holder has the constant only, and one other the white ``columns``.

    They and the target have mean 0. Weights of all white columns: their mean products with it.
    """
    widths, holder = Widths.choose(plan.rows), plan.holder
    (owner,) = (party for party in plan.columns if party != holder)
    shape = (plan.rows, plan.targets)
    shapes = {party: (plan.rows, size) for party, size in plan.columns.items()} | {holder: shape}
    real = {owner: columns, holder: target}
    mine = {party: one for party, one in real.items() if one is not None}
    cells = session.privates(_encode(mine, widths.bits), shapes, widths.width)
    (means,) = average([cells[owner].T @ cells[holder]], plan.rows, 2 * widths.bits)
    return {party: means if party == owner else session.zeros((1, shape[1])) for party in shapes}


def _form_equations(
    session: Session, white: Mapping[str, White], target: Floats | None, plan: LeastSquaresPlan
) -> tuple[Shared, Shared]:
    """Matrix and right side of the normal equations; every eigenvalue is at most 1."""
    rows, sizes, holder = plan.rows, plan.columns, plan.holder
    widths, count = Widths.choose(rows), len(sizes)
    more = plan.targets
    shapes = {party: (rows, size + more * (party == holder)) for party, size in sizes.items()}
    real = {party: one.columns for party, one in white.items()}
    if target is not None:
        real[holder] = np.hstack([real[holder], target])
    cells = session.privates(_encode(real, widths.bits), shapes, widths.width)
    columns = {party: cells[party][:, :size] for party, size in sizes.items()}
    aim = cells[holder][:, sizes[holder] :]
    names = list(sizes)
    pairs = [(one, other) for i, one in enumerate(names) for other in names[i + 1 :]]
    sums = [columns[one].T @ columns[other] for one, other in pairs]
    sums += [columns[party].T @ aim for party in names]
    # Divided by the number of parties too, so that eigenvalues are at most 1.
    means = average(sums, rows * count, 2 * widths.bits)
    blocks = dict(zip(pairs, means, strict=False))
    for party, size in sizes.items():
        own = encode(np.eye(size) / count, BITS) if party in white else None
        blocks[party, party] = session.share(party, own, (size, size))
    matrix = concatenate(
        [
            concatenate(
                [
                    blocks[one, other] if (one, other) in blocks else blocks[other, one].T
                    for other in names
                ],
                axis=1,
            )
            for one in names
        ]
    )
    return matrix, concatenate(means[len(pairs) :])


def _weigh_equations(
    session: Session,
    white: Mapping[str, White],
    target: Floats | None,
    row_weights: Floats | None,
    plan: LeastSquaresPlan,
) -> tuple[Shared, Shared]:
    """The same where rows have weights that only the label holder knows: (targets, …) of each."""
    rows, sizes, holder, peak = plan.rows, plan.columns, plan.holder, plan.peak or 0
    count, total = len(sizes), sum(sizes.values())
    bits, weight_bits = choose_bits(rows, peak)
    real = {party: one.columns for party, one in white.items()}
    shapes = {party: (rows, size) for party, size in sizes.items()}
    cells = session.privates(_encode(real, bits), shapes)
    shape, weights, aim = (rows, plan.targets), None, None
    if target is not None and row_weights is not None:
        weights = round_randomly(row_weights, weight_bits, "weights")
        aim = np.rint(np.ldexp(weights * target, bits)).astype(np.int64)
    gram = weigh_gram(list(cells.values()), session.share(holder, weights, shape))
    aimed = session.share(holder, aim, shape)
    right = concatenate(session.products([(cells[party].T, aimed) for party in sizes]))
    # By 2^peak too: so much larger the eigenvalues can be.
    gram, right = average([gram, right], (rows * count) << peak, 2 * bits + weight_bits)
    start = 0
    for party, size in sizes.items():
        own = None
        if party in white:
            mine, place = white[party].columns, slice(start, start + size)
            own = np.zeros((1, total, total), dtype=np.int64)
            cost = np.eye(size) - mine.T @ mine / rows  # what the penalty is in white columns
            own[0, place, place] = encode(cost / (count << peak), BITS)
        gram = gram + session.share(party, own, (1, total, total))
        start += size
    return gram, right.map(lambda words: words.T[:, :, None])


def choose_bits(rows: int, peak: int) -> tuple[int, int]:
    """Bits behind the point of white cells and of row weights.

    No sum passes rows · 2^peak, see `Widths`; two bits are spare, and two are for rounding.
    """
    room = WIDEST - 4 - math.ceil(math.log2(max(rows, 2))) - peak
    bits = min(room // 3, 14)
    if bits < 10:
        raise BoundExceeded(
            f"{rows} rows with weights up to {1 << peak} are too many for linear regression on "
            "shares; train on fewer rows or less extreme weights."
        )
    return bits, min(room - 2 * bits, 14)


def _encode(real: Mapping[str, Floats], bits: int) -> dict[str, Integers]:
    """Columns as integers."""
    return {party: round_randomly(one, bits, party) for party, one in real.items()}
