"""Errors of rows that are left out, on shares: sums of them are opened, never one of a row.

Holds, learns: as in shared_fit.py. Leaving out row i makes its error 1/(1 − h_i) times larger,
where h_i = ‖z_i‖²/n is the row's leverage, which the given party knows. So no model of a part of
the rows is needed. Pseudo-labels only make leverages smaller: with them, errors are rather taken
too large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vfsl.completion.class_sums import HALVES, ClassErrors
from vfsl.completion.shared_fit import (
    STEPS,
    WEIGHT,
    Given,
    Missing,
    Sizes,
    fit_common,
    to_fixed,
    width_for,
)
from vfsl.completion.tasks import residual_factors
from vfsl.crypto.shares import Private, Session, Shared, concatenate
from vfsl.errors import ConfigError
from vfsl.values import Booleans, Floats, Integers

# Bits of errors behind the point at most; sums of their squares must fit.
_ERROR = 20


def error_bits(sizes: Sizes) -> int:
    """Behind the point of errors: the sum of their squares is below 2^8 rows."""
    return min(_ERROR, (64 - 2 - 8 - sizes.level) // 2)


@dataclass(frozen=True, eq=False)
class Errors:
    """What a cross-fit tells the missing party, in deviations of the targets.

    ``numbers`` (2, parts, numbers): Σ e² and Σ e·beyond; ``classes`` by column.
    """

    numbers: Floats
    classes: Mapping[int, ClassErrors]


def add_up_errors(
    s: Session, sizes: Sizes, given: Given | None, missing: Missing | None
) -> Errors | None:
    """Sums of the errors of models that did not see the row, at the missing party."""
    weights = fit_common(s, sizes, given, missing).weights.T
    return open_sums(s, sizes, missing, hold_out(s, sizes, given, missing, weights))


def hold_out(
    s: Session, sizes: Sizes, given: Given | None, missing: Missing | None, weights: Shared
) -> Shared:
    """Hidden errors (rows, targets), with `error_bits`, of models that did not see the row."""
    values, bits = missing and missing.values, error_bits(sizes)
    # Errors left in are no larger than the targets, and factors no larger than 16: Σ e² ≤ 256 n.
    width = width_for(2 * bits + 8 + sizes.level)
    return leave_out(s, sizes, given, weights, values, sizes.known, sizes.rows, bits, width)


def leave_out(
    s: Session,
    sizes: Sizes,
    given: Given | None,
    weights: Shared,
    values: Floats | None,
    known: Sequence[int],
    count: int,
    bits: int,
    width: int,
) -> Shared:
    """a (z·w − value) for the first rows and hidden weights (columns, any number of models).

    a is what the error of a row becomes larger by where the row is left out. ``known`` are
    twentieths by model, ``bits`` those behind the point of the result.
    """
    m = sizes.columns
    fine, half = bits // 2 - 1, bits // 2
    weights = weights.truncate(WEIGHT - (bits - fine))
    fractions = sorted(set(known))
    places = [np.flatnonzero(np.array(known) == one) for one in fractions]
    factors = [None if given is None else _error_factors(given, c / STEPS) for c in fractions]
    scaled = [
        s.private(
            sizes.given,
            None
            if given is None or a is None
            else to_fixed(a[:count] * given.columns[:count], fine),
            (count, m),
            width,
        )
        for a in factors
    ]
    scores = s.products([(one, weights[:, at]) for one, at in zip(scaled, places, strict=True)])
    mine = s.share(sizes.missing, to_fixed(values, bits - half), (count, weights.shape[1]), width)
    errors = []
    for a, at, score in zip(factors, places, scores, strict=True):
        factor = s.share(
            sizes.given, to_fixed(None if a is None else a[:count], half), (count, 1), width
        )
        errors.append(score - factor * mine[:, at])
    order = np.argsort(np.concatenate(places))
    return concatenate(errors, axis=1)[:, order]


def _error_factors(given: Given, fraction: float) -> Floats:
    leverage = (given.columns**2).sum(axis=1, keepdims=True) / len(given.columns)
    return residual_factors(leverage, fraction)


# ---- sums that are opened -----------------------------------------------------------------------


def open_sums(s: Session, sizes: Sizes, missing: Missing | None, error: Shared) -> Errors | None:
    """Sums of errors at the missing party: of numbers by part, of categories by half and class."""
    bits = error_bits(sizes)
    numbers, classes = (
        _ask_numbers(s, sizes, missing, error, bits),
        _ask_classes(s, sizes, missing, error),
    )
    pairs = [*numbers, *classes]
    found = s.products(pairs) if pairs else []
    by_part, by_class = found[: len(numbers)], found[len(numbers) :]
    answers = _open_numbers(sizes, by_part, bits)
    opened = {}
    for unit, sums in zip(sizes.categories, by_class, strict=True):
        mine = error[:, sizes.targets_of(unit)]
        if len(set(sizes.known[k] for k in sizes.targets_of(unit)) - {STEPS}):
            here = missing and missing.known[:, sizes.targets_of(unit)]
            mine = s.share(sizes.missing, to_fixed(here, 0), mine.shape, mine.width) * mine
        whole = concatenate([sums.reshape(-1), (mine.T @ mine).reshape(-1)])
        opened[unit] = whole.open(to=sizes.missing, name="errors of classes", about=("columns",))
    if missing is None or answers is None:
        return None
    return Errors(answers, {u: _read_classes(v, sizes, u, bits) for u, v in opened.items()})


def _ask_numbers(
    s: Session, sizes: Sizes, missing: Missing | None, error: Shared, bits: int
) -> list[tuple[Private, Shared]]:
    """Sums over the known cells of each part: of all numbers without gaps, then of each other."""
    n, numbers = sizes.rows, sizes.numbers
    if not len(numbers):
        return []
    beyond = s.share(
        sizes.missing,
        to_fixed(missing and missing.beyond[:, numbers], bits),
        (n, len(numbers)),
        error.width,
    )
    mine = error[:, numbers]
    squares, products = mine * mine, mine * beyond
    asked = []
    for places in group_by_gaps(sizes):
        known = missing and missing.known[:, numbers[places[0]]]
        rows = mark_parts(s, sizes, missing, known, error.width)
        asked.append((rows.T, concatenate([squares[:, places], products[:, places]], axis=1)))
    return asked


def mark_parts(
    s: Session, sizes: Sizes, missing: Missing | None, known: Booleans | None, width: int
) -> Private:
    """Which known rows belong to which part, (rows, parts), of the missing party."""
    mine = None
    if missing is not None and known is not None:
        mine = np.eye(sizes.parts, dtype=np.int64)[missing.parts] * known[:, None]
    return s.private(sizes.missing, mine, (sizes.rows, sizes.parts), width)


def group_by_gaps(sizes: Sizes) -> list[Integers]:
    """Places among the numbers: those without gaps together, each other one alone."""
    known = np.array(sizes.known)[sizes.numbers]
    whole = np.flatnonzero(known == STEPS)
    return [*([whole] if len(whole) else []), *np.flatnonzero(known < STEPS)[:, None]]


def _open_numbers(sizes: Sizes, sums: Sequence[Shared], bits: int) -> Floats | None:
    if not sums:
        return np.zeros((2, sizes.parts, 0))
    order = np.argsort(np.concatenate(group_by_gaps(sizes)))
    each = concatenate([one.reshape(sizes.parts, 2, -1) for one in sums], axis=2)[:, :, order]
    opened = each.open(to=sizes.missing, name="errors of numbers", about=("columns",))
    return None if opened is None else opened.swapaxes(0, 1) / 4.0**bits


def _ask_classes(
    s: Session, sizes: Sizes, missing: Missing | None, error: Shared
) -> list[tuple[Private, Shared]]:
    """Sums of errors over the rows of each half of each class of each category."""
    n, asked = sizes.rows, []
    for unit in sizes.categories:
        at, count = sizes.targets_of(unit), HALVES * sizes.classes[unit]
        hot = None
        if missing is not None:
            hot = np.eye(count, dtype=np.int64)[missing.codes[unit]] * missing.known[:, at[:1]]
        rows = s.private(sizes.missing, hot, (n, count), error.width)
        asked.append((rows.T, error[:, at]))
    return asked


def _read_classes(opened: Integers | None, sizes: Sizes, unit: int, bits: int) -> ClassErrors:
    if opened is None:
        raise ConfigError("Only the missing party reads errors.")
    count, targets = sizes.classes[unit], len(sizes.targets_of(unit))
    sums, products = np.split(opened, [HALVES * count * targets])
    return ClassErrors(
        sums.reshape(HALVES, count, targets) / 2.0**bits,
        products.reshape(targets, targets) / 4.0**bits,
    )


# ---- whether self-training pays -----------------------------------------------------------------


def keep_better(
    s: Session,
    sizes: Sizes,
    given: Given | None,
    missing: Missing | None,
    before: Shared,
    after: Shared,
) -> tuple[Shared, Shared, Booleans | None]:
    """Of each column the weights after self-training, if they are better, else those before.

    Also hidden errors of these, and at the missing party which columns were better: those whose
    squared errors fall by more than the standard error of that fall, over hidden parts of the rows.
    Nobody else learns which.
    """
    first, second = (hold_out(s, sizes, given, missing, one) for one in (before, after))
    gap = second - first  # masked once for both of its products
    change = gap * (second + first)
    each = [change[:, sizes.targets_of(unit)] for unit in range(len(sizes.classes))]
    by_unit = concatenate([one.sum(axis=1).reshape(sizes.rows, 1) for one in each], axis=1)
    firsts = np.array([sizes.targets_of(unit)[0] for unit in range(len(sizes.classes))])
    whole = np.flatnonzero(np.array(sizes.known)[firsts] == STEPS)
    groups = [*([whole] if len(whole) else []), *np.setdiff1d(range(len(firsts)), whole)[:, None]]
    sums = []
    for units in groups:
        known = missing and missing.known[:, firsts[units[0]]]
        rows = mark_parts(s, sizes, missing, known, change.width)
        sums.append(rows.T @ by_unit[:, units])
    changes = concatenate(sums, axis=1)[:, np.argsort(np.concatenate(groups))]
    opened = changes.open(to=sizes.missing, name="change of errors", about=("columns",))
    better, chosen = None, None
    if opened is not None:
        better = falls(opened.astype(np.float64))
        chosen = better[sizes.units][None].astype(np.int64)
    bits = s.share(sizes.missing, chosen, (1, sizes.targets))
    weights = before + (after - before) * bits
    return weights, first + gap * bits.narrow(first.width), better


def falls(changes: Floats) -> Booleans:
    """Whether sums (parts, columns) fall by more than the standard error of their sum."""
    error = changes.std(axis=0, ddof=1) * np.sqrt(len(changes))
    return np.asarray(changes.sum(axis=0) < -error)
