"""Self-training on shares: predictions, confidence, pseudo-labels and new models stay hidden.

Holds, learns: as in shared_fit.py; nobody learns anything of a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vfsl.completion.shared_fit import (
    COLUMN,
    FARTHEST_BITS,
    LOWEST,
    MATRIX,
    PAIR,
    STEPS,
    WEIGHT,
    Given,
    Missing,
    Sizes,
    fill_square,
    fit_common,
    pair_columns,
    solve,
    to_fixed,
    width_for,
)
from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.values import Floats, Integers

# Bits behind the point of columns and weights where pseudo-labels are chosen, and of confidence.
_CHOICE, _CHOICE_WEIGHT, _SURE = 8, 12, 12


@dataclass(frozen=True)
class Choice:
    """Who gets a pseudo-label.

    Attributes
    ----------
    alpha : float
        The least confidence.
    by_spread : bool
        Whether a number is as sure as its errors are small, the same for all rows of a target; else
        as near as the prediction is to the mean of all predictions.
    """

    alpha: float
    by_spread: bool


def block_sizes(rest: int, fraction: float, rounds: int) -> list[int]:
    """How many remaining rows each round but the last may choose from; no row twice."""
    size = min(-int(-(fraction * rest - 1e-9) // 1), rest)
    full = [size] * min(rounds - 1, rest // size if size else 0)
    left = rest - sum(full)
    return [*full, left] if left and len(full) < rounds - 1 else full


def draw_blocks(
    rest: int, fraction: float, rounds: int, rng: np.random.Generator
) -> list[Integers]:
    """Which remaining rows each round may choose from."""
    sizes = block_sizes(rest, fraction, rounds)
    return np.split(rng.permutation(rest), np.cumsum(sizes))[:-1] if sizes else []


def self_train(
    s: Session,
    sizes: Sizes,
    given: Given | None,
    missing: Missing | None,
    blocks: Sequence[int],
    choice: Choice,
) -> tuple[Shared, Shared]:
    """Hidden weights (columns, targets) before and after all rounds.

    Each round looks at a block of remaining rows. Confident ones get the prediction, or the class,
    as a label and weigh as much as a common row from then on.
    """
    model = fit_common(s, sizes, given, missing)
    weights, right, matrix = model.weights, model.right, model.matrix
    low = 1.0 if not len(sizes.holed) else min(sizes.known) / STEPS * LOWEST
    for number, size in enumerate(blocks):
        rows = given and given.rest[given.blocks[number]]
        chosen = _choose(s, sizes, given, missing, rows, size, weights, choice)
        packed, bits = _weigh_chosen(s, sizes, rows, size, chosen.rows)
        added = fill_square(packed.truncate(bits - MATRIX), sizes.columns)
        right = right + _add_labels(s, sizes, missing, rows, size, added, weights, chosen)
        count = added[:, -1:, -1:]
        more = added + (count * model.penalty).truncate(MATRIX)
        matrix = matrix + more[sizes.units]
        weights = solve(matrix, right, low, 2.0**sizes.reach, weights)
    return model.weights.T, weights.T


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Hidden bits: which rows of a block are chosen, (rows, columns), and as which class."""

    rows: Shared
    classes: Shared | None  # (rows, targets of categories)


def _choose(
    s: Session,
    sizes: Sizes,
    given: Given | None,
    missing: Missing | None,
    rows: Floats | None,
    size: int,
    weights: Shared,
    choice: Choice,
) -> _Chosen:
    light = weights.truncate(WEIGHT - _CHOICE_WEIGHT).T
    numbers, indicators = sizes.numbers, sizes.indicators
    bits = _CHOICE + _CHOICE_WEIGHT
    found: dict[int, Shared] = {}
    hot: Shared | None = None
    m = sizes.columns
    if len(numbers) and choice.by_spread:
        sure = s.share(
            sizes.missing, to_fixed(missing and missing.sure[None, numbers], 0), (1, len(numbers))
        )
        every = sure + np.zeros((size, len(numbers)), dtype=np.int64)
        found |= {int(sizes.units[k]): every[:, [i]] for i, k in enumerate(numbers)}
    elif len(numbers):
        centre = given and given.rest.mean(axis=0)
        nearby = None if rows is None or centre is None else rows - centre
        columns = s.private(sizes.given, to_fixed(nearby, _CHOICE), (size, m))
        spread = (
            None
            if given is None or centre is None
            else ((given.rest - centre).T @ (given.rest - centre) / len(given.rest))
        )
        covariance = s.private(sizes.given, to_fixed(spread, _CHOICE), (m, m))
        distance, turned = s.products(
            [(columns, light[:, numbers]), (covariance, light[:, numbers])]
        )
        variance = (turned * light[:, numbers]).sum(axis=0)
        factor = round((1.0 - choice.alpha) ** 2 * 2.0**_SURE)
        shift = _CHOICE + 2 * _CHOICE_WEIGHT + _SURE - 2 * bits
        limit = (factor * variance).truncate(shift)
        near = (distance * distance - limit.reshape(1, -1) - 1).below_zero()
        found |= {int(sizes.units[k]): near[:, [i]] for i, k in enumerate(numbers)}
    if len(indicators):
        hot = _choose_classes(s, sizes, missing, rows, size, light)
        starts = np.cumsum([0, *(sizes.classes[unit] for unit in sizes.categories)])
        for unit, start, end in zip(sizes.categories, starts, starts[1:], strict=False):
            found[unit] = hot[:, start:end].sum(axis=1).reshape(size, 1)
    chosen = concatenate([found[unit] for unit in range(len(sizes.classes))], axis=1)
    if hot is None:
        return _Chosen(chosen, None)
    # A category has a target for each class but the first.
    firsts = np.cumsum([0, *(sizes.classes[unit] for unit in sizes.categories)])[:-1]
    others = np.setdiff1d(np.arange(hot.shape[1]), firsts)
    return _Chosen(chosen, hot[:, others])


def _choose_classes(
    s: Session, sizes: Sizes, missing: Missing | None, rows: Floats | None, size: int, light: Shared
) -> Shared:
    """Hidden bits (rows, classes of all categories): who surely belongs to which class."""
    m, at = sizes.columns, sizes.indicators
    count = sum(sizes.classes[unit] for unit in sizes.categories)
    bits = _CHOICE + _CHOICE_WEIGHT
    maps = s.share(sizes.missing, to_fixed(missing and missing.maps, _SURE), (len(at), count))
    mapped = (light[:, at] @ maps).truncate(_SURE)
    cuts = s.share(sizes.missing, to_fixed(missing and missing.cuts[None], bits), (1, count))
    # Maps have length 1 and cuts are below 2^7 like scores.
    width = width_for(bits + FARTHEST_BITS + 1)
    columns = s.private(sizes.given, to_fixed(rows, _CHOICE), (size, m), width)
    (scores,) = s.products([(columns, mapped)])
    below = cuts.narrow(width) - scores - 1  # negative where the score reaches the cut
    return below.below_zero()


def _weigh_chosen(
    s: Session, sizes: Sizes, rows: Floats | None, size: int, chosen: Shared
) -> tuple[Shared, int]:
    """Σ z zᵀ / n over the chosen rows, and its bits behind the point."""
    m = sizes.columns
    bits = max(PAIR + sizes.level, MATRIX + 1)
    # A part of the rows sums up to less than all rows, whose matrix is bounded.
    width = width_for(bits + sizes.reach + 1)
    values = None if rows is None else to_fixed(pair_columns(rows) / sizes.rows, bits)
    pairs = s.private(sizes.given, values, (size, m * (m + 1) // 2), width)
    return (pairs.T @ chosen).limit(3 << (bits + sizes.reach - 1)), bits


def _add_labels(
    s: Session,
    sizes: Sizes,
    missing: Missing | None,
    rows: Floats | None,
    size: int,
    added: Shared,
    weights: Shared,
    chosen: _Chosen,
) -> Shared:
    """Σ z y / n over the chosen rows, (targets, columns): y their prediction, or their class."""
    m = sizes.columns
    numbers, categories = sizes.numbers, sizes.indicators
    sums: dict[int, Shared] = {}
    if len(numbers):
        # Predictions are linear: Σ z (z·w) / n is the chosen rows' matrix times the weights.
        mine = weights[numbers].reshape(len(numbers), m, 1)
        product = (added[sizes.units[numbers]] @ mine).truncate(MATRIX)
        sums |= {int(k): product[i].reshape(1, m) for i, k in enumerate(numbers)}
    if chosen.classes is not None:
        bits = COLUMN + sizes.level
        width = width_for(bits + sizes.reach + FARTHEST_BITS)
        values = None if rows is None else to_fixed(rows / sizes.rows, bits)
        columns = s.private(sizes.given, values, (size, m), width)
        hits = (columns.T @ chosen.classes).limit(1 << (bits + sizes.reach + FARTHEST_BITS - 1))
        base = s.share(
            sizes.missing,
            to_fixed(missing and missing.means[categories, None], _SURE),
            (len(categories), 1),
        )
        means = (added[sizes.units[categories]][:, :, -1] * base).truncate(_SURE)
        found = hits.truncate(bits - WEIGHT).T - means
        sums |= {int(k): found[i].reshape(1, m) for i, k in enumerate(categories)}
    return concatenate([sums[k] for k in range(sizes.targets)])
