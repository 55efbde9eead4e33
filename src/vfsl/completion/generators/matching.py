"""Conditions for generators that cannot take them: of several candidates, the nearest one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vfsl.completion.deep import Conditions
from vfsl.completion.mixed import MixedEncoder, NumberCoding, _decode_numbers
from vfsl.values import Array


def distances(encoder: MixedEncoder, made: Array, given: Array, observed: Array) -> Array:
    """Squared distance of rows over the given cells: numbers in deviations, 2 a wrong category."""
    total = np.zeros(len(made))
    stop = 0
    for place, coding in enumerate(encoder.columns_):
        start, stop = stop, stop + coding.width
        known = observed[:, place]
        if not coding.width or not known.any():
            continue
        one, two = made[known, start:stop], given[known, start:stop]
        if isinstance(coding, NumberCoding):
            # A candidate whose cell is missing is as far as one can be wrong on average.
            gap = np.nan_to_num(_decode_numbers(coding, one) - _decode_numbers(coding, two), nan=2)
            total[known] += gap**2
        else:
            total[known] += 2.0 * (one.argmax(axis=1) != two.argmax(axis=1))
    return total


def best_of(
    encoder: MixedEncoder,
    given: Conditions,
    matches: int,
    draw: Callable[[Array], Array],
) -> Array:
    """For each row the nearest of ``matches`` candidates.

    Parameters
    ----------
    draw : callable
        Row numbers of the conditions (repeated) to one encoded candidate for each.
    """
    n = len(given.frame)
    rows = np.repeat(np.arange(n), matches)
    made = draw(rows)
    encoded = given.encoded
    away = distances(encoder, made, encoded.matrix[rows], encoded.observed[rows])
    nearest = away.reshape(n, matches).argmin(axis=1)
    return np.asarray(made[np.arange(n) * matches + nearest])
