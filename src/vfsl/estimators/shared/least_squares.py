"""Least squares on shares: the normal equations, formed and solved by parties that never see them.

Holds   the label holder: columns and targets; each feature holder: columns; the dealer: seeds.
Learns  each party: the weights of its own columns, or nothing where weights stay shared. All: how
        many rows, columns and targets there are. See crypto/session.py for what crosses.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vfsl.crypto.fixed import encode
from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.estimators.shared.algebra import (
    BITS,
    White,
    Widths,
    average,
    invert,
    round_randomly,
    solve,
)
from vfsl.values import Floats, Integers


def fit_least_squares(
    session: Session,
    white: Mapping[str, White],
    target: Floats | None,
    holder: str,
    sizes: Mapping[str, int],
    rows: int,
    targets: int,
) -> dict[str, Shared]:
    """Shares of the weights of every party's white columns, `BITS` behind the point.

    Parameters
    ----------
    white : mapping
        Of this party only; of all, in one place.
    target : array (rows, targets)
        Of standard deviation 1; at the label holder only.
    holder : str
        The label holder.
    sizes : mapping
        How many white columns each party has.
    """
    widths, count = Widths.choose(rows), len(sizes)
    shapes = {party: (rows, size + targets * (party == holder)) for party, size in sizes.items()}
    cells = session.privates(_encode(white, target, holder, widths), shapes, widths.width)
    columns = {party: cells[party][:, :size] for party, size in sizes.items()}
    aim = cells[holder][:, sizes[holder] :]
    names = list(sizes)
    pairs = [(one, other) for i, one in enumerate(names) for other in names[i + 1 :]]
    sums = [columns[one].T @ columns[other] for one, other in pairs]
    sums += [columns[party].T @ aim for party in names]
    # Divided by the number of parties too, so that eigenvalues are at most 1.
    means = average(sums, rows * count, 2 * widths.bits)
    blocks = dict(zip(pairs, means, strict=False))
    for party in names:
        own = _own_block(white.get(party), count)
        blocks[party, party] = session.share(party, own, (sizes[party],) * 2)
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
    right = concatenate(means[len(pairs) :])
    solution = solve(matrix, right, invert(matrix))
    ends = np.cumsum([sizes[party] for party in names])
    return {
        party: solution[end - sizes[party] : end] for party, end in zip(names, ends, strict=True)
    }


def _encode(
    white: Mapping[str, White], target: Floats | None, holder: str, widths: Widths
) -> dict[str, Integers]:
    """White columns as integers; the label holder's targets beside them."""
    real = {party: one.columns for party, one in white.items()}
    if target is not None:
        real[holder] = np.hstack([real[holder], target])
    return {party: round_randomly(one, widths.bits, party) for party, one in real.items()}


def _own_block(white: White | None, parties: int) -> Integers | None:
    """A party's own block is the unit matrix, by the choice of its white columns."""
    if white is None:
        return None
    return encode(np.eye(white.columns.shape[1]) / parties, BITS)
