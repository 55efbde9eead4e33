"""Logistic regression on shares: Newton's method of which nobody sees a step.

Holds   each data holder: its columns; the label holder also the label, the row weights and a column
        of ones for the intercept. The dealer: seeds.
Learns  everybody, per point that was tried: four bits of how the loss went on, and one whether a
        score is outside what the series of the sigmoid covers. The label holder, if it was asked
        for: the log-loss after each of them (true_loss.py). Weights stay shared until the caller
        opens them.

Minimised is the mean of w_i · loss_i plus ½ l2 ‖β‖² (not of the intercept); several outputs are
several problems side by side, or the classes of one softmax (softmax.py). How:

1. Each party whitens its columns alone: ¼ Xᵀ X / n + penalty becomes the identity. Whatever the
   data, all numbers that follow have bounds that depend on sizes only.
2. The curvature at 0 is a Gram matrix in shares, and bounds the curvature everywhere (Böhning and
   Lindsay, "Monotonicity of quadratic-approximation algorithms"). Its inverse is found by products
   alone (`invert`), which also serves as the start for every later inverse.
   A softmax has twice that bound (Böhning), and an inverse of all classes together.
3. Sigmoid, slope and loss of all rows come from one set of waves (sigmoid.py). The next step uses
   the inverse at hand while the loss falls fast; else the curvature at the present scores, found in
   shares, is inverted. A step that raises the loss is halved.
4. It ends when a step gains less than ``tolerance`` of the loss, and much less than that before.

The waves hold for scores within their reach only. So at every point all scores are compared with
it; if one is outside, the period doubles and the point is tried again. With scores above about 60,
on separable tables with hardly any penalty, the smallest curvatures are inverted in part only: the
loss then comes within a percent or two of the pooled one. Beyond 240 the fit ends unfinished.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import numpy as np

from vfsl.crypto.shares import Session, Shared, concatenate
from vfsl.crypto.together import Cut, cut_all, decide_all, multiply_all, scale_rows
from vfsl.estimators.shared.curvature import CELL_BITS
from vfsl.estimators.shared.logistic_plan import (
    COUNT_WIDTH,
    LOSS_BITS,
    ROUGH_BITS,
    ROUGH_WIDTH,
    STEP_SHIFT,
    WEIGHT_BITS,
    LogisticPlan,
)
from vfsl.estimators.shared.logistic_table import (
    Table,
    enter_table,
    invert_bound,
    invert_curvature,
    weigh_bound,
)
from vfsl.estimators.shared.sigmoid import SigmoidSeries, from_numbers, make_series, to_numbers
from vfsl.estimators.shared.softmax import compare_classes
from vfsl.estimators.shared.true_loss import (
    LOSS,
    SCORE_BITS,
    LossPlan,
    Truth,
    count_nonzero,
    open_losses,
)
from vfsl.values import Disclosures, Floats, Integers

__all__ = ["DISCLOSURES", "LogisticPlan", "SharedLogistic", "fit_logistic", "to_floats"]

DISCLOSURES: Disclosures = {
    "loss": LOSS,
}

_SHORTEST_PERIOD, _LONGEST_PERIOD = 32, 512
_FLOOR_DECAY = math.e  # a Newton step moves a well fitted row by 1, which divides its slope by e
_KEEP = 8  # an inverse is used again while each step gains less than this part of the one before
_SETTLED = 2
_FINE_BITS = 20  # of cells by which the loss is shown
_SMALLEST_TOLERANCE = 2.0**-12  # rounding hides smaller gains


# ---- one point -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Place:
    """Weights, and the same with `ROUGH_BITS` only."""

    weights: Shared
    rough: Shared


@dataclass(frozen=True, eq=False)
class Point:
    """What was found at a place; sums over rows, over 2^size."""

    at: Place
    gradient: Shared
    loss: Shared  # twice, of all outputs
    slopes: Shared  # or probabilities less ½, where all classes are improved at once
    outside: Shared  # 0 if the series of the sigmoid covers all scores
    step: Shared  # the inverse times the gradient, before it is shortened


def _evaluate(
    table: Table, at: Place, linear: Shared, inverse: Shared, series: SigmoidSeries
) -> Point:
    """Gradient, loss and slopes at a place; ``linear`` is Xᵀ aim."""
    session, plan, place = table.session, table.plan, table.plan.place()
    weights = at.weights
    parts = {party: weights[place[party]] for party in plan.columns}
    plain = plan.dealt_bits + plan.row_weight_bits
    reach = series.reach
    if plan.softmax:
        pairs_of = [(table.cells[party], part) for party, part in parts.items()]
        waves, rest = compare_classes(session, pairs_of, series, plan)
        losses = waves.sum(plan.loss_bits - plain, cosines=series.loss.tolist())[:, :1] + rest
        reach = series.reach / 2 - math.log(plan.outputs)  # differences of scores go twice as far
    else:
        period = 32 if series.period <= 128 else 40
        turns = round(2.0 ** (period - CELL_BITS - WEIGHT_BITS) / series.period)
        waves = session.waves(
            [(table.cells[party], turns * part) for party, part in parts.items()],
            series.frequencies,
            period=period,
            bits=plan.dealt_bits,
            width=plan.width,
        )
        losses = waves.sum(plan.loss_bits - plain, cosines=series.loss.tolist())
    sigmoid = waves.sum(plan.residual_bits - plain, sines=series.sigmoid.tolist())
    slopes = sigmoid
    if not plan.joint:
        slopes = waves.sum(plan.slope_bits - plain, cosines=series.slope.tolist())
    most = math.ceil((float(np.abs(series.loss).sum()) + 1) * 2.0 ** (plan.loss_bits + plan.spread))
    pairs = []
    if table.row_weights is not None:
        both = scale_rows(
            table.row_weights.map(lambda words: np.concatenate([words, words], axis=-1)),
            concatenate([sigmoid, slopes], axis=1),
        )
        sigmoid, slopes = both[:, : plan.outputs], both[:, plan.outputs :]
        pairs = [(table.row_weights.map(lambda words: words[:, : plan.problems]).T, losses)]
    residual = (sigmoid - table.target).limit(
        math.ceil(1.5 * 2.0 ** (plan.residual_bits + plan.spread))
    )
    pairs += [(table.cells[party].T, residual) for party in plan.columns]
    pairs += [(table.penalties[party], part) for party, part in parts.items()]
    bits = 20 if series.period <= 128 else 24  # of twice the reach
    unit = math.ceil(2.0 ** (bits - 1 - CELL_BITS - ROUGH_BITS) / reach)
    rough = (unit * at.rough).narrow(ROUGH_WIDTH)
    pairs += [(table.cells[party], rough[place[party]]) for party in plan.columns]
    found = session.products(pairs)
    if table.row_weights is None:
        total = losses.limit(most).sum(0).sum(0).reshape(1)
    else:
        crossed = found.pop(0)  # of every output's weights with every output's losses
        total = crossed.map(lambda words: np.trace(words).reshape(1).astype(np.uint64))
    count = len(plan.columns)
    cost = concatenate(found[count : 2 * count])
    gradient = concatenate(found[:count]) + cost
    size = gradient.size
    both = concatenate([gradient.reshape(size), cost.reshape(size)])
    both, total, beyond = cut_all(
        [
            Cut.truncate(both.limit(plan.gradient_bound), plan.gradient_shift),
            Cut.truncate(total, plan.loss_shift),
            # 0 within reach
            Cut.truncate(reduce(add, found[2 * count :]), bits, COUNT_WIDTH),
        ]
    )
    gradient, cost = both[:size].reshape(*gradient.shape), both[size:]
    tilt = (cost - 2 * linear.reshape(size)).reshape(1, size)
    step, tilted = multiply_all(
        [(inverse, _lay(gradient, inverse)), (tilt, weights.reshape(size, 1))]
    )
    step = step.reshape(plan.outputs, plan.total, 1)
    scale = 2.0 ** (LOSS_BITS + 1 - plan.size - plan.row_weight_bits)
    constant = round(series.constant * scale) * table.weight_sum
    loss = (2 << WEIGHT_BITS) * total + tilted.reshape(1) + constant
    return Point(at, gradient, loss, slopes, count_nonzero(beyond), step)


# ---- the fit -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SharedLogistic:
    """A fitted model whose weights nobody knows.

    Attributes
    ----------
    weights : dict of str to Shared
        By party, (columns, outputs), of its whitened columns, with `WEIGHT_BITS`.
    back : dict of str to float array or None
        What a party multiplies its opened weights with; see `to_floats`.
    rounds : int
        How many points were tried.
    stop_reason : str
    losses : list of float
        At the label holder, if they were asked for: after each point, the mean over outputs.
    """

    weights: Mapping[str, Shared]
    back: Mapping[str, Floats | None]
    rounds: int
    stop_reason: str
    losses: list[float] = field(default_factory=list)


def to_floats(opened: Integers, back: Floats) -> Floats:
    """A party's weights of its columns, from the opened ones."""
    return np.asarray(back @ (opened / 2.0**WEIGHT_BITS))


def fit_logistic(
    session: Session,
    columns: Mapping[str, Floats | None],
    label: Floats | None,
    weights: Floats | None,
    *,
    plan: LogisticPlan,
    truth: Truth | None = None,
) -> SharedLogistic:
    """One party's side of a fit; every data holder and the dealer run it.

    Parameters
    ----------
    columns : dict of str to float array or None
        One's own columns; the label holder's last one is 1 in all rows.
    label, weights : float array or None
        At the label holder: (rows, outputs) of 0 and 1, and row weights whose mean is 1.
    truth : Truth, optional
        At the label holder, by what the loss is judged, where the label has noise in it.
    """
    table = enter_table(session, columns, label, weights, plan)
    series = _announce(table, (2 if plan.softmax else 1) * _SHORTEST_PERIOD)
    bound, linear, aim = invert_bound(table)
    if table.row_weights is not None:
        bound = weigh_bound(table, bound)
    inverse, search = bound.inverse, _Search(table)
    start = session.zeros(linear.shape)
    at, step = _step(table, start, inverse, -linear, 0)
    level, reason, path = 0, "max_rounds", list[Shared]()
    for _ in range(plan.max_rounds):
        path.append(at.weights)
        point = _evaluate(table, at, aim, inverse, series)
        judged, (onward, taken) = search.judge(point, inverse)
        if judged == "widen":
            if series.period == _LONGEST_PERIOD:
                reason = "scores beyond reach"
                break
            series = _announce(table, 2 * series.period)
            continue
        if judged == "halve":
            longer = (1 << (STEP_SHIFT - 1)) * step.map(lambda words: words.T[:, :, None])
            at, step = _move(at.weights, longer, STEP_SHIFT)
            step = -step
            continue
        if judged != "keep":
            inverse = invert_curvature(table, bound, point.slopes, _FLOOR_DECAY ** -(2 + level))
            level += 1
            onward, taken = _step(table, at.weights, inverse, point.gradient, search.points)
        at, step = onward, taken
        if judged == "finish":
            reason = "tolerance"
            break
    losses: list[float] = []
    if plan.show_loss:
        if truth is None and label is not None:
            truth = Truth(np.asarray(label).reshape(plan.rows, -1), weights)
        losses = _show_losses(table, columns, [*path[1:], at.weights], truth)
    return SharedLogistic(
        {party: at.weights[place] for party, place in plan.place().items()},
        {party: None if mine is None else mine.back for party, mine in table.own.items()},
        search.points,
        reason,
        losses,
    )


def _show_losses(
    table: Table,
    columns: Mapping[str, Floats | None],
    path: list[Shared],
    truth: Truth | None,
) -> list[float]:
    """The log-loss at some weights, by cells that have more bits than those of the training."""
    session, plan = table.session, table.plan
    steps, places = concatenate(path, axis=1), plan.place()
    pairs = []
    for party, count in plan.columns.items():
        mine, found = columns.get(party), table.own[party]
        cells = None
        if mine is not None and found is not None:
            cells = np.rint(mine @ found.back * 2.0**_FINE_BITS).astype(np.int64)
        matrix = session.private(party, cells, (plan.rows, count))
        pairs.append((matrix, steps[places[party]]))
    scores = session.sum_products(pairs).truncate(_FINE_BITS + WEIGHT_BITS - SCORE_BITS)
    points = [
        scores[:, start : start + plan.outputs] for start in range(0, scores.shape[1], plan.outputs)
    ]
    facts = LossPlan(plan.rows, plan.outputs, plan.softmax, plan.label_holder, plan.peak)
    return open_losses(session, points, truth, facts)


def _lay(values: Shared, inverse: Shared) -> Shared:
    """(columns, outputs) as one column per output, or as one of all, by what it is multiplied."""
    size = inverse.shape[-1]
    return values.map(lambda words: words.T.reshape(-1, size, 1))


def _step(
    table: Table, start: Shared, inverse: Shared, gradient: Shared, number: int
) -> tuple[Place, Shared]:
    """Where step ``number`` by an inverse leads to, and that step."""
    plan = table.plan
    longer = (inverse @ _lay(gradient, inverse)).reshape(plan.outputs, plan.total, 1)
    return _move(start, longer, plan.find_shift(number, inverse.shape[-1]))


def _plan_move(start: Shared, longer: Shared, shift: int) -> list[Cut]:
    """How a step, (outputs, columns, 1) and ``shift`` bits too long, is subtracted."""
    step = longer.map(lambda words: words[:, :, 0].T)
    there = (1 << shift) * start - step
    return [
        Cut.truncate(step, shift),
        Cut.truncate(there, shift + WEIGHT_BITS - ROUGH_BITS),
    ]


def _take_move(start: Shared, short: list[Shared]) -> tuple[Place, Shared]:
    """Where a step that was shortened leads to, and that step."""
    step, rough = short
    return Place(start - step, rough), -step


def _move(start: Shared, longer: Shared, shift: int) -> tuple[Place, Shared]:
    return _take_move(start, cut_all(_plan_move(start, longer, shift)))


def _announce(table: Table, period: float) -> SigmoidSeries:
    """A series whose coefficients are the same at all parties to the last bit."""
    numbers = to_numbers(make_series(period))
    return from_numbers(period, table.session.announce(table.plan.label_holder, numbers))


class _Search:
    """How the loss went on so far, and what that means for the next step."""

    def __init__(self, table: Table) -> None:
        self._table = table
        scale = 2.0 ** (LOSS_BITS + 1 - table.plan.size - table.plan.row_weight_bits)
        uniform = math.log(table.plan.outputs if table.plan.softmax else 2)
        self._last = round(uniform * scale) * table.weight_sum
        self._gain: Shared | None = None
        self._was_small = False
        self.points = 0

    def judge(self, point: Point, inverse: Shared) -> tuple[str, tuple[Place, Shared]]:
        """What to do at a point, and where a step with the inverse at hand leads to.

        "widen" the series and look again; "halve" the step; "keep" the inverse or "refresh" it for
        another step; "finish" after one with a new inverse, which makes small errors tiny.
        """
        plan = self._table.plan
        self.points += 1
        gain = self._last - point.loss
        # Classes that are improved one by one come closer by a part of the rest in each step.
        alone = plan.softmax and not plan.joint
        tolerance = plan.tolerance / 4 if alone else plan.tolerance
        part = round(1 / max(tolerance, _SMALLEST_TOLERANCE))
        tests = [part * gain - point.loss, part * gain + point.loss]
        if self._gain is not None:
            tests += [_KEEP * gain - self._gain, _SETTLED * gain - self._gain]
        outside = concatenate([point.outside, -point.outside])
        start = point.at.weights
        sides, signs, *short = cut_all(
            [
                Cut.sign(outside),
                Cut.sign(concatenate(tests)),
                *_plan_move(start, point.step, plan.find_shift(self.points, inverse.shape[-1])),
            ]
        )
        bits = -concatenate([sides[:1] + sides[1:], signs])
        judged = self._conclude(point, gain, decide_all(self._table.session, bits))
        return judged, _take_move(start, short)

    def _conclude(self, point: Point, gain: Shared, bits: list[bool]) -> str:
        outside, small, rose, fast, settled = bits + [False] * (5 - len(bits))
        if outside:
            return "widen"
        if rose:
            return "halve"
        judged = "keep" if fast and not self._table.plan.joint else "refresh"
        if small:
            judged = "finish" if settled or self._was_small else "refresh"
        self._last, self._gain, self._was_small = point.loss, gain, small
        return judged
