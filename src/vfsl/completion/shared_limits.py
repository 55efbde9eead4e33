"""What errors of the last model stay within, on shares: counts of rows, never one of a row.

Holds, learns: as in shared_fit.py. The missing party asks how many held-out rows are within limits
that it chose, a few times; the smallest limits that hold enough rows make intervals and sets that
cover a new row with probability 1 − miss at least, whatever the distribution is (conformal).

An interval is as wide as the error to expect of its prediction, a parabola that follows from three
sums of errors by prediction. A set has the classes whose logit is not farther behind that of the
best other class than a limit; logits of a row are by a model of classes that did not see the row's
half of its class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import final

import numpy as np
from scipy.stats import norm

from vfsl.completion.class_sums import (
    HALVES,
    ClassModel,
    Counted,
    find_logits,
    find_margins,
    spread_levels,
)
from vfsl.completion.columns import Target
from vfsl.completion.shared_errors import leave_out
from vfsl.completion.shared_fit import Given, Missing, Sizes, to_fixed
from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.crypto.together import scale_rows
from vfsl.values import Booleans, Floats, Integers

# About so many cells are compared in each step: of few columns all rows, of many columns fewer, but
# not below these, where the fraction that is covered has a standard error of 0.013.
_CELLS, _FEWEST, _MOST = 8_000, 500, 2_000
# Limits are searched in so many steps. Those of numbers first move by a fifth.
_STEPS, _FIFTH = 6, 0.2
# Rows are also counted at these fractions of a category's margins, as its model sees it, and at 0.
_PROBES = (0.3, 0.6)
# Bits behind the point: of held-out errors and logits, of errors and predictions where they are
# squared, of factors of a parabola, of maps to logits.
_BITS, _SHORT, _FACTOR, _MAP = 16, 10, 14, 12
# Widths of these errors, which stay below 2^11, and of logits, scaled likewise.
_WIDTH, _LOGIT_WIDTH = 40, 32
# The largest factor of a parabola.
_LARGEST = 2.0**10
# No scaled logit reaches that.
_FAR = 2.0**12
# A row's expected squared error is at least this part of the mean.
_LEAST_VARIANCE = 1 / 9


def count_rows(sizes: Sizes) -> int:
    """How many of the common rows are counted."""
    # To find the best of many classes takes as many comparisons as there are others.
    cells = sum(1 + max(count - 2, 0) / _STEPS for count in sizes.classes)
    return min(sizes.rows, max(_FEWEST, min(_MOST, int(_CELLS / max(cells, 1)))))


# ---- what the missing party brings and learns ---------------------------------------------------


@final
@dataclass(eq=False)
class Judging:
    """The missing party's side: what it knows of each column, and what it finds.

    Attributes
    ----------
    miss : float
    fractions : array (numbers,)
        Which part of the models' predictions is given: the rest is the mean.
    models : mapping of column to ClassModel
        Of categories.
    predicted : array (remaining rows, targets)
        In deviations, before fractions are taken.

    What it finds: factors of ``parabolas`` (3, numbers), ``limits`` by column, and how many rows of
    each category were ``counted`` within margins.
    """

    miss: float
    fractions: Floats
    models: dict[int, ClassModel]
    predicted: Floats
    parabolas: Floats = field(default_factory=lambda: np.zeros((3, 0)))
    limits: Floats = field(default_factory=lambda: np.zeros(0))
    counted: dict[int, Counted] = field(default_factory=dict)


@final
@dataclass(eq=False)
class Search:
    """The missing party's search for the smallest limits that enough rows stay within.

    A limit lies above ``low`` and not above ``high``. Until both are known, steps double.
    """

    limits: Floats
    steps: Floats
    counts: Integers
    miss: float

    def __post_init__(self) -> None:
        self.low = np.full(len(self.limits), -np.inf)
        self.high = np.full(len(self.limits), np.inf)
        # The ⌈(n + 1)(1 − miss)⌉-th smallest; of too few rows there is none.
        self._wanted = np.ceil((self.counts + 1) * (1.0 - self.miss) - 1e-9)
        self.asked: list[tuple[Floats, Integers]] = []

    def know(self, limits: Floats, within: Integers) -> None:
        """How many rows are within other limits; those that lie outside what is known are moved."""
        self._narrow(limits, within)
        far = (self.limits <= self.low) | (self.limits >= self.high)
        inside = np.isfinite(self.low) & np.isfinite(self.high) & far
        with np.errstate(invalid="ignore"):
            middle = (self.low + self.high) / 2
        ends = np.where(self.limits <= self.low, self.low + self.steps, self.high - self.steps)
        self.limits = np.where(inside, middle, np.where(far, ends, self.limits))

    def _narrow(self, limits: Floats, within: Integers) -> Booleans:
        self.asked.append((limits, within))
        enough = np.asarray(within >= self._wanted)
        self.high = np.where(enough, np.minimum(self.high, limits), self.high)
        self.low = np.where(enough, self.low, np.maximum(self.low, limits))
        return enough

    def take(self, within: Integers) -> None:
        """How many rows are within the limits that were asked for; then ask for other ones."""
        enough = self._narrow(self.limits, within)
        found = np.isfinite(self.low) & np.isfinite(self.high)
        with np.errstate(invalid="ignore"):
            middle = (self.low + self.high) / 2
        moved = np.where(enough, self.limits - self.steps, self.limits + self.steps)
        self.limits = np.where(found, middle, moved)
        self.steps = np.where(found, self.steps, 2 * self.steps)


def fit_parabola(sums: Floats, predicted: Floats) -> Floats:
    """Factors of 1, ŷ and ŷ² of the expected squared error; never below a part of its mean.

    The least squares fit of a + g (ŷ − m)² with a and g of at least 0, for the best of a few m.

    Parameters
    ----------
    sums : array (3,)
        Means over held-out rows of e², e² ŷ and e² ŷ².
    predicted : array
        Predictions like those of these rows.
    """
    base = max(float(sums[0]), 1e-12)
    flat = np.array([base, 0.0, 0.0])
    if len(predicted) < _FEWEST / 5 or predicted.std() < 1e-6:
        return flat
    low, *inner, high = np.quantile(predicted, [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1])
    best, found = 0.0, flat
    least = _LEAST_VARIANCE * base
    for m in (2 * low - high, low, *inner, high, 2 * high - low):
        square = (predicted - m) ** 2
        second, fourth = float(square.mean()), float((square**2).mean())
        along = float(sums[2] - 2 * m * sums[1] + m**2 * sums[0])
        # Of a: base = a + g second; of g: along = a second + g fourth.
        g = max((along - base * second) / max(fourth - second**2, 1e-12), 0.0)
        if base - g * second < least:
            g = max((along - least * second) / max(fourth, 1e-12), 0.0)
        a = max(base - g * second, least)
        loss = a**2 + 2 * a * g * second + g**2 * fourth - 2 * (a * base + g * along)
        loss += base**2  # of the constant: 0
        if loss < best - 1e-9 * base**2:
            best, found = loss, np.array([a + g * m**2, -2 * g * m, g])
    return found


def expect_squares(parabolas: Floats, predicted: Floats) -> Floats:
    """Expected squared errors (rows, numbers) of predictions, by factors (3, numbers)."""
    return np.asarray(parabolas[0] + parabolas[1] * predicted + parabolas[2] * predicted**2)


# ---- the program that all run -------------------------------------------------------------------


def find_limits(
    s: Session,
    sizes: Sizes,
    given: Given | None,
    missing: Missing | None,
    weights: Shared,
    judging: Judging | None,
) -> None:
    """Find parabolas and limits of all columns; they stay with the missing party."""
    count, units = count_rows(sizes), len(sizes.classes)
    firsts = np.array([sizes.targets_of(unit)[0] for unit in range(units)])
    known = missing and missing.known[:count, firsts]
    rules = _Rules.of(sizes, missing, judging, count)
    errors = _hold_out(s, sizes, given, weights, rules)
    numbers = sizes.units[sizes.numbers]
    compared = None
    if len(numbers):
        compared = _Numbers(s, sizes, missing, errors[:, : len(numbers)], rules, judging)
    margins, probed, search = None, None, None
    cells = s.share(sizes.missing, to_fixed(known, 0), (count, units))

    def add_up(within: Shared, places: Sequence[int]) -> Integers | None:
        """Open how many known rows are within."""
        within = within * cells[:, places] if len(sizes.holed) else within
        total = within.sum(axis=0).narrow(32)
        return total.open(to=sizes.missing, name="rows within", about=("columns",))

    if sizes.categories:
        margins = measure_margins(s, sizes, errors[:, len(numbers) :], rules)
        probed = [
            add_up(_count_below(s, sizes, margins, asked), sizes.categories)
            for asked in _choose_probes(sizes, judging)
        ]
    if judging is not None and known is not None:
        search = _begin(sizes, judging, known.sum(axis=0), probed or ())
    for _ in range(_STEPS):
        limits, found = search and search.limits, np.zeros(units, dtype=np.int64)
        if compared is not None:
            within = add_up(compared.compare(limits).below_zero(), list(numbers))
            found[numbers] = 0 if within is None else within
        if margins is not None:
            asked = None if limits is None else limits[sizes.categories]
            within = add_up(_count_below(s, sizes, margins, asked), sizes.categories)
            found[sizes.categories] = 0 if within is None else within
        if search is not None:
            search.take(found)
    if judging is not None and search is not None:
        judging.limits = search.high
        _keep_counts(sizes, judging, search)


def _count_below(s: Session, sizes: Sizes, margins: Shared, asked: Floats | None) -> Shared:
    """1 where a margin is not above what the missing party asks for, by category."""
    mine = None if asked is None else np.clip(asked, -_FAR, _FAR)[None]
    return (margins - _share_logits(s, sizes, mine, (1, margins.shape[1])) - 1).below_zero()


def _begin(
    sizes: Sizes, judging: Judging, counts: Integers, probed: Sequence[Integers | None]
) -> Search:
    """First limits: of numbers those of normal errors, of classes as their models see it."""
    units, miss = len(sizes.classes), judging.miss
    limits = np.full(units, np.log(float(norm.ppf(1.0 - miss / 2.0))))
    steps = np.full(units, _FIFTH)
    for unit, model in judging.models.items():
        one, other = expect_margins(model, [1 - miss, 1 - miss / 2])
        limits[unit], steps[unit] = one, max(float(other - one), 1e-3)
    search = Search(limits, steps, counts, miss)
    for asked, within in zip(_choose_probes(sizes, judging), probed, strict=False):
        every, found = np.full(units, -np.inf), np.zeros(units, dtype=np.int64)
        if asked is None or within is None:
            continue
        every[sizes.categories], found[sizes.categories] = asked, within
        search.know(every, found)
    return search


def _choose_probes(sizes: Sizes, judging: Judging | None) -> list[Floats | None]:
    """Where margins of categories are counted besides: at 0, where the true class is ahead."""
    if judging is None:
        return [None] * (1 + len(_PROBES))
    models = [judging.models[unit] for unit in sizes.categories]
    expected = np.array([expect_margins(model, _PROBES) for model in models])
    return [np.zeros(len(models)), *expected.T]


def _keep_counts(sizes: Sizes, judging: Judging, search: Search) -> None:
    """All counts of each category by margin, for `ClassModel.hold_out`."""
    for unit in sizes.categories:
        rows = max(int(search.counts[unit]), 1)
        pairs = sorted((float(limits[unit]), int(n[unit])) for limits, n in search.asked)
        margins, within = np.array(pairs, dtype=np.float64).T
        scale = _logit_scale(judging.models[unit])
        judging.counted[unit] = Counted(margins * scale, within / rows)


class _Numbers:
    """Hidden errors and predictions of numbers, to be compared with limits."""

    def __init__(
        self,
        s: Session,
        sizes: Sizes,
        missing: Missing | None,
        error: Shared,
        rules: _Rules,
        judging: Judging | None,
    ) -> None:
        self._s, self._sizes, self._judging = s, sizes, judging
        at, count = sizes.numbers, error.shape[0]
        values = missing and missing.values[:count, at]
        # What is drawn towards the mean lacks the rest of the value.
        lack = None if values is None or rules.values is None else rules.drawn - values
        error = error + s.share(sizes.missing, to_fixed(lack, _BITS), error.shape, error.width)
        short = error.truncate(_BITS - _SHORT)
        self._predicted = short + s.share(sizes.missing, to_fixed(values, _SHORT), error.shape)
        self._squares = short * short
        self._second = self._predicted * self._predicted
        self._learn_parabolas(missing, count)

    def _learn_parabolas(self, missing: Missing | None, count: int) -> None:
        """Open three sums of errors by prediction for each number."""
        sizes, judging, at = self._sizes, self._judging, self._sizes.numbers
        squares = self._squares
        if len(sizes.holed):
            known = missing and missing.known[:count, at]
            squares = squares * self._s.share(sizes.missing, to_fixed(known, 0), squares.shape)
        sums = [squares, squares * self._predicted, squares * self._second]
        # So that all have as many bits behind the point.
        lifted = [(1 << (2 - i) * _SHORT) * one.sum(axis=0) for i, one in enumerate(sums)]
        both = concatenate([one.reshape(1, len(at)) for one in lifted])
        opened = both.open(to=sizes.missing, name="errors by prediction", about=("columns",))
        if opened is None or judging is None or missing is None:
            return
        rows = np.maximum(missing.known[:count, at].sum(axis=0), 1)
        means = opened / 2.0 ** (4 * _SHORT) / rows
        predicted = judging.fractions * judging.predicted[:, at]
        judging.parabolas = np.column_stack(
            [fit_parabola(means[:, k], predicted[:, k]) for k in range(len(at))]
        )

    def compare(self, limits: Floats | None) -> Shared:
        """Negative where an error is within its limit, a logarithm, times the expected error."""
        s, sizes, judging, at = self._s, self._sizes, self._judging, self._sizes.numbers
        factors = None
        if limits is not None and judging is not None:
            mine = np.exp(2.0 * limits[sizes.units[at]])
            factors = np.clip(mine * judging.parabolas, -_LARGEST, _LARGEST)
        one, first, second = (
            s.share(
                sizes.missing,
                to_fixed(None if factors is None else factors[[i]], bits),
                (1, len(at)),
            )
            for i, bits in enumerate((2 * _SHORT + _FACTOR, _SHORT + _FACTOR, _FACTOR))
        )
        allowed = self._predicted * first + self._second * second + one
        return (1 << _FACTOR) * self._squares - allowed


# ---- margins of classes -------------------------------------------------------------------------


def find_inside(model: ClassModel, half: int, scores: Floats, limit: float) -> Booleans:
    """The sets (rows, categories) of rows with these scores, by the model of one half."""
    logits = find_logits(spread_levels(model.each[half], model.target), scores)
    return np.asarray(find_margins(logits) / _logit_scale(model) <= limit)


def expect_margins(model: ClassModel, fractions: Sequence[float]) -> Floats:
    """Within which scaled margins such fractions of the rows are, if the model is right."""
    margins = find_margins(find_logits(model.scale, model.scores)).ravel() / _logit_scale(model)
    order = np.argsort(margins)
    reached = np.cumsum(model.scale.chances(model.scores).ravel()[order]) / len(model.scores)
    places = np.minimum(np.searchsorted(reached, fractions), len(order) - 1)
    return np.asarray(margins[order][places])


def _logit_scale(model: ClassModel) -> float:
    """What logits are divided by, so that maps from scores are no longer than 1."""
    slopes = [one.weights[:-1] / one.deviation[:, None] for one in (*model.each, model.every)]
    return max(0.1, *(float(np.linalg.norm(one, axis=0).max()) for one in slopes))


@final
@dataclass(frozen=True, eq=False)
class _Rules:
    """What the missing party knows of the counted rows; None elsewhere.

    Columns of held-out values are the numbers, then for each category the scaled logits of its
    groups by the model of either half; matrices of categories have a column for each group.
    """

    fractions: Floats | None = None  # (numbers,)
    drawn: Floats = field(default_factory=lambda: np.zeros(0))  # (rows, numbers)
    maps: Mapping[int, Floats] = field(default_factory=dict)  # (targets, halves · groups)
    values: Floats | None = None  # (rows, columns)
    constants: Floats | None = None  # (rows, halves · groups of all)
    half: Integers | None = None  # (rows, groups of all): whose model each row is judged by
    hot: Integers | None = None
    offsets: Floats | None = None  # of the best category of a group that is not the row's own
    own: Floats | None = None  # (rows, categories): of the row's own category

    @classmethod
    def of(
        cls, sizes: Sizes, missing: Missing | None, judging: Judging | None, count: int
    ) -> _Rules:
        if judging is None or missing is None:
            return cls()
        drawn = judging.fractions * missing.values[:count, sizes.numbers]
        maps, values, constants, halves, hots, offsets, owns = {}, [drawn], [], [], [], [], []
        for unit in sizes.categories:
            model, at = judging.models[unit], sizes.targets_of(unit)
            scale, groups = _logit_scale(model), model.target.width + 1
            slopes = [one.weights[:-1] / one.deviation[:, None] / scale for one in model.each]
            # Exactly as the weights are mapped, or what leaving out adds would not fit.
            maps[unit] = np.rint(np.hstack(slopes) * 2.0**_MAP) / 2.0**_MAP
            values.append(missing.values[:count, at] @ maps[unit])
            levels = [
                one.weights[-1] / scale + (missing.means[at] - one.centre) @ part
                for one, part in zip(model.each, slopes, strict=True)
            ]
            constants.append(values[-1] + np.concatenate(levels))
            halves.append(np.tile(1 - model.halves[:count, None], (1, groups)))
            hots.append(np.eye(groups, dtype=np.int64)[model.target.grouped[:count]])
            logs = np.log(model.target.within) / scale
            offsets.append(_offset_groups(model.target, logs, count))
            owns.append(logs[model.target.filled[:count].astype(np.int64)][:, None])
        if not maps:
            return cls(judging.fractions, drawn, maps, drawn)
        joined = (np.hstack(one) for one in (values, constants, halves, hots, offsets, owns))
        return cls(judging.fractions, drawn, maps, *joined)


def _offset_groups(target: Target, logs: Floats, count: int) -> Floats:
    """What to add to a group's logit for the best of its categories but the row's own."""
    codes = target.filled[:count].astype(np.int64)
    found = np.full((count, target.width + 1), -_FAR / 2)
    for group in range(target.width + 1):
        inside = np.flatnonzero(target.group_of == group)
        for level in range(len(target.levels)):
            others = inside[inside != level]
            if len(others):
                found[codes == level, group] = logs[others].max()
    return found


def _hold_out(
    s: Session, sizes: Sizes, given: Given | None, weights: Shared, rules: _Rules
) -> Shared:
    """a (z·w − value) of the counted rows for all columns of `_Rules`."""
    at, count = sizes.numbers, count_rows(sizes)
    known = [sizes.known[k] for k in at]
    models = []
    if len(at):
        light = s.share(sizes.missing, to_fixed(rules.fractions, _MAP), (len(at),))
        models.append(weights[:, at] * light.reshape(1, len(at)))
    for unit in sizes.categories:
        targets, width = sizes.targets_of(unit), HALVES * sizes.classes[unit]
        mine = s.share(sizes.missing, to_fixed(rules.maps.get(unit), _MAP), (len(targets), width))
        models.append(weights[:, targets] @ mine)
        known += [sizes.known[targets[0]]] * width
    mapped = concatenate(models, axis=1).truncate(_MAP)
    return leave_out(s, sizes, given, mapped, rules.values, known, count, _BITS, _WIDTH)


def _share_logits(
    s: Session, sizes: Sizes, values: Floats | None, shape: tuple[int, ...]
) -> Shared:
    """The missing party's own numbers as logits have them."""
    return s.share(sizes.missing, to_fixed(values, _BITS), shape, _LOGIT_WIDTH)


def measure_margins(s: Session, sizes: Sizes, errors: Shared, rules: _Rules) -> Shared:
    """How far each row's class is behind the best other one, (rows, categories), in logits."""
    counts = [sizes.classes[unit] for unit in sizes.categories]
    both = errors.narrow(_LOGIT_WIDTH) + _share_logits(s, sizes, rules.constants, errors.shape)
    starts = np.cumsum([0, *(HALVES * count for count in counts)])
    first = np.concatenate([np.arange(n) + b for b, n in zip(starts, counts, strict=False)])
    second = np.concatenate([np.arange(n) + b + n for b, n in zip(starts, counts, strict=False)])
    shape = (errors.shape[0], sum(counts))
    half, hot = (
        s.private(sizes.missing, mine, shape, _LOGIT_WIDTH) for mine in (rules.half, rules.hot)
    )
    logits = both[:, first] + scale_rows(half, both[:, second] - both[:, first])
    owns = scale_rows(hot, logits)
    ends = np.cumsum([0, *counts])
    own = concatenate([owns[:, a:b].sum(axis=1).reshape(-1, 1) for a, b in pairwise(ends)], axis=1)
    own = own + _share_logits(s, sizes, rules.own, own.shape)
    ahead = logits + _share_logits(s, sizes, rules.offsets, shape)
    best = find_largest([ahead[:, a:b] for a, b in pairwise(ends)])
    return concatenate(best, axis=1) - own


def find_largest(arrays: Sequence[Shared]) -> list[Shared]:
    """The largest of each row of each array, (rows, 1), all in the same rounds."""
    left = list(arrays)
    while any(one.shape[1] > 1 for one in left):
        halves = [one.shape[1] // 2 for one in left]
        first = concatenate([one[:, :h] for one, h in zip(left, halves, strict=True)], axis=1)
        second = concatenate(
            [one[:, h : 2 * h] for one, h in zip(left, halves, strict=True)], axis=1
        )
        gap = first - second
        larger = second + gap * (-gap).below_zero()
        start, found = 0, []
        for one, h in zip(left, halves, strict=True):
            parts = [larger[:, start : start + h], one[:, 2 * h :]]
            found.append(concatenate([part for part in parts if part.shape[1]], axis=1))
            start += h
        left = found
    return left
