"""Errors of rows that are left out, on shares: sums of them are opened, never one of a row.

Holds, learns: as in shared_fit.py. Leaving out row i makes its error 1/(1 − h_i) times larger,
where h_i = ‖z_i‖²/n is the row's leverage, which the given party knows. So no model of a part of
the rows is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from vfsl.completion.shared_fit import (
    FARTHEST_BITS,
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
from vfsl.values import Floats, Integers

# Bits of errors behind the point at most; sums of their squares must fit.
_ERROR = 20
# Limits of errors are searched on so many rows at most, in so many steps, which first go up and
# down by these factors: from the limit of normal errors most come within a twentieth.
_COUNTED, _LIMITS, _UP, _DOWN = 500, 5, 1.5, 0.8


def error_bits(sizes: Sizes) -> int:
    """Behind the point of errors: the sum of their squares is below 2^8 rows."""
    return min(_ERROR, (64 - 2 - 8 - sizes.level) // 2)


@dataclass(frozen=True, eq=False)
class ClassErrors:
    """Errors of a category's indicators: by class their means and squares, of all their products.

    ``sums`` and ``squares``: (classes, targets), ``products``: (targets, targets).
    """

    sums: Floats
    squares: Floats
    products: Floats


@dataclass(frozen=True, eq=False)
class Errors:
    """What a cross-fit tells the missing party, in deviations of the targets.

    ``numbers`` (2, parts, numbers): Σ e² and Σ e·beyond; ``classes`` by column; ``limits``: of each
    number what its errors stay within, but for the fraction that may be missed.
    """

    numbers: Floats
    classes: Mapping[int, ClassErrors]
    limits: Floats


def add_up_errors(
    s: Session, sizes: Sizes, given: Given | None, missing: Missing | None, miss: float = 0.1
) -> Errors | None:
    """Sums of the errors of models that did not see the row, at the missing party.

    ``miss`` matters there only.
    """
    error, bits = hold_out(s, sizes, given, missing)
    pairs, squares = [], error * error
    numbers = _ask_numbers(s, sizes, missing, error, squares, bits)
    classes = _ask_classes(s, sizes, missing, error, squares)
    pairs = [*numbers, *classes]
    found = s.products(pairs) if pairs else []
    by_part, by_class = found[: len(numbers)], found[len(numbers) :]
    answers = _open_numbers(sizes, by_part, bits)
    limits = _find_limits(s, sizes, missing, squares, bits, answers, miss)
    opened = {}
    for unit, sums in zip(sizes.categories, by_class, strict=True):
        mine = error[:, sizes.targets_of(unit)]
        if len(set(sizes.known[k] for k in sizes.targets_of(unit)) - {STEPS}):
            here = missing and missing.known[:, sizes.targets_of(unit)]
            mine = s.share(sizes.missing, to_fixed(here, 0), mine.shape, mine.width) * mine
        whole = concatenate([sums.reshape(-1), (mine.T @ mine).reshape(-1)])
        opened[unit] = whole.open(to=sizes.missing, name="errors of classes", about=("columns",))
    if answers is None:
        return None
    by_column = {u: _read_classes(v, sizes, u, bits) for u, v in opened.items()}
    return Errors(answers, by_column, limits)


def hold_out(
    s: Session, sizes: Sizes, given: Given | None, missing: Missing | None
) -> tuple[Shared, int]:
    """Hidden errors (rows, targets) of models that did not see the row, and their bits."""
    n, m, bits = sizes.rows, sizes.columns, error_bits(sizes)
    fine, half = bits // 2 - 1, bits // 2
    model = fit_common(s, sizes, given, missing)
    weights = model.weights.truncate(WEIGHT - (bits - fine)).T
    # Errors left in are no larger than the targets, and factors no larger than 16: Σ e² ≤ 256 n.
    width = width_for(2 * bits + 8 + sizes.level)
    fractions = sorted(set(sizes.known))
    places = [np.flatnonzero(np.array(sizes.known) == one) for one in fractions]
    factors = [None if given is None else _error_factors(given, c / STEPS) for c in fractions]
    scaled = [
        s.private(
            sizes.given,
            None if given is None or a is None else to_fixed(a * given.columns, fine),
            (n, m),
            width,
        )
        for a in factors
    ]
    scores = s.products([(one, weights[:, at]) for one, at in zip(scaled, places, strict=True)])
    values = s.share(
        sizes.missing, to_fixed(missing and missing.values, bits - half), (n, sizes.targets), width
    )
    errors = []
    for a, at, score in zip(factors, places, scores, strict=True):
        factor = s.share(sizes.given, to_fixed(a, half), (n, 1), width)
        errors.append(score - factor * values[:, at])
    order = np.argsort(np.concatenate(places))
    return concatenate(errors, axis=1)[:, order], bits


def _error_factors(given: Given, fraction: float) -> Floats:
    leverage = (given.columns**2).sum(axis=1, keepdims=True) / len(given.columns)
    return residual_factors(leverage, fraction)


def _ask_numbers(
    s: Session, sizes: Sizes, missing: Missing | None, error: Shared, squares: Shared, bits: int
) -> list[tuple[Private, Shared]]:
    """Sums over the known cells of each part: of all numbers without gaps, then of each other."""
    n, parts, numbers = sizes.rows, sizes.parts, sizes.numbers
    if not len(numbers):
        return []
    beyond = s.share(
        sizes.missing,
        to_fixed(missing and missing.beyond[:, numbers], bits),
        (n, len(numbers)),
        error.width,
    )
    products = error[:, numbers] * beyond
    hot = None if missing is None else np.eye(parts, dtype=np.int64)[missing.parts]
    asked = []
    for places in group_by_gaps(sizes):
        mine = None
        if hot is not None and missing is not None:
            mine = hot * missing.known[:, [numbers[places[0]]]]
        rows = s.private(sizes.missing, mine, (n, parts), error.width)
        each = [squares[:, numbers[places]], products[:, places]]
        asked.append((rows.T, concatenate(each, axis=1)))
    return asked


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


@dataclass(eq=False)
class Search:
    """The missing party's search for the smallest limits that enough errors stay within.

    A number's limit lies above ``low`` and not above ``high``. The first is that of normal errors.
    """

    limits: Floats
    counts: Integers
    miss: float

    @classmethod
    def begin(cls, deviations: Floats, counts: Integers, miss: float) -> Search:
        return cls(deviations * float(norm.ppf(1.0 - miss / 2.0)), counts, miss)

    def __post_init__(self) -> None:
        self.low, self.high = np.zeros(len(self.limits)), np.full(len(self.limits), np.inf)
        # The ⌈(n + 1)(1 − miss)⌉-th smallest; of too few rows there is none.
        self._wanted = np.ceil((self.counts + 1) * (1.0 - self.miss) - 1e-9)

    def take(self, within: Integers) -> None:
        """How many errors are within the limits that were asked for; then ask for other ones."""
        enough = within >= self._wanted
        self.high = np.where(enough, np.minimum(self.high, self.limits), self.high)
        self.low = np.where(enough, self.low, np.maximum(self.low, self.limits))
        middle = np.where(self.low > 0, (self.low + self.high) / 2, _DOWN * self.high)
        self.limits = np.where(np.isfinite(self.high), middle, _UP * self.low)


def _find_limits(
    s: Session,
    sizes: Sizes,
    missing: Missing | None,
    squares: Shared,
    bits: int,
    sums: Floats | None,
    miss: float,
) -> Floats:
    """What the errors of each number stay within, by counting them below rising and falling limits.

    An interval as wide as that covers a new row with probability 1 − miss at least, whatever the
    errors' distribution is. So many rows as counted are enough for that.
    """
    numbers, count = sizes.numbers, min(sizes.rows, _COUNTED)
    if not len(numbers):
        return np.zeros(0)
    shape, known, search = (count, len(numbers)), None, None
    if missing is not None and sums is not None:
        known = missing.known[:count, numbers]
        rows = np.maximum(missing.known[:, numbers].sum(axis=0), 1)
        deviations = np.sqrt(np.maximum(sums[0].sum(axis=0), 0.0) / rows)
        search = Search.begin(deviations, known.sum(axis=0), miss)
    cells = s.share(sizes.missing, to_fixed(known, 0), shape)
    for _ in range(_LIMITS):
        asked = None
        if search is not None:
            asked = np.minimum(search.limits, 2.0 ** (FARTHEST_BITS + 3))[None] ** 2
        limit = s.share(sizes.missing, to_fixed(asked, 2 * bits), (1, len(numbers)))
        inside = (squares[:count, numbers] - limit).below_zero()
        inside = inside * cells if len(sizes.holed) else inside
        within = inside.sum(axis=0).narrow(32)
        found = within.open(to=sizes.missing, name="rows within", about=("columns",))
        if search is not None and found is not None:
            search.take(found)
    return np.zeros(len(numbers)) if search is None else search.high


def _ask_classes(
    s: Session, sizes: Sizes, missing: Missing | None, error: Shared, squares: Shared
) -> list[tuple[Private, Shared]]:
    """Sums of errors and their squares over the rows of each class of each category."""
    n, asked = sizes.rows, []
    for unit in sizes.categories:
        at, count = sizes.targets_of(unit), sizes.classes[unit]
        hot = None
        if missing is not None:
            hot = np.eye(count, dtype=np.int64)[missing.codes[unit]] * missing.known[:, at[:1]]
        rows = s.private(sizes.missing, hot, (n, count), error.width)
        asked.append((rows.T, concatenate([error[:, at], squares[:, at]], axis=1)))
    return asked


def _read_classes(opened: Integers | None, sizes: Sizes, unit: int, bits: int) -> ClassErrors:
    if opened is None:
        raise ConfigError("Only the missing party reads errors.")
    count, targets = sizes.classes[unit], len(sizes.targets_of(unit))
    sums, squares = np.split(opened[: 2 * count * targets].reshape(count, 2 * targets), 2, axis=1)
    products = opened[2 * count * targets :].reshape(targets, targets)
    return ClassErrors(sums / 2.0**bits, squares / 4.0**bits, products / 4.0**bits)
