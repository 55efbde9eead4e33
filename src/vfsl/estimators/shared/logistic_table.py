"""The table of a logistic regression on shares, and the inverses of its curvatures.

Holds, learns: as in logistic.py; nothing is opened here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vfsl.crypto.shares import Private, Session, Shared, concatenate
from vfsl.crypto.together import Cut, cut_all
from vfsl.crypto.words import Words
from vfsl.estimators.shared.curvature import (
    CELL_BITS,
    FIRST_STEP,
    MATRIX_BITS,
    MOST_STEPS,
    Whitened,
    invert,
    plan_inverse,
    weigh_gram,
    whiten,
    whiten_with_constant,
)
from vfsl.estimators.shared.logistic_plan import WEIGHT_BITS, LogisticPlan
from vfsl.estimators.shared.sigmoid import ERROR
from vfsl.estimators.shared.softmax import find_lean
from vfsl.values import Booleans, Floats, Integers

_CURVATURE_BITS = 25  # more than an inverse: it is multiplied by one with large eigenvalues
# Smaller eigenvalues of the bound are left to later inverses. 1/16 would save a step, and on most
# made-up tables does as well; on separable ones it leaves the loss half a percent above the pooled.
_FIRST_FLOOR = 1 / 64


@dataclass(frozen=True, eq=False)
class Table:
    """What the fit multiplies with, at one party."""

    session: Session
    plan: LogisticPlan
    own: Mapping[str, Whitened | None]
    cells: Mapping[str, Private]
    penalties: Mapping[str, Private]
    target: Shared  # weight · (label − ½), as residuals
    row_weights: Private | None
    weight_sum: Shared  # of all rows and problems, with the bits of row weights
    aim: Shared  # weight · (label − lean), as residuals: what the loss takes off per score


def enter_table(
    session: Session,
    columns: Mapping[str, Floats | None],
    label: Floats | None,
    weights: Floats | None,
    plan: LogisticPlan,
) -> Table:
    """Whiten one's own columns; all columns cross, masked."""
    own: dict[str, Whitened | None] = {}
    cells, penalties = {}, {}
    scale = plan.rows * 2.0 ** (CELL_BITS + plan.residual_bits - WEIGHT_BITS)
    for party, count in plan.columns.items():
        mine = columns.get(party)
        if mine is not None:
            turn = whiten_with_constant if party == plan.label_holder else whiten
            own[party] = turn(np.asarray(mine, dtype=np.float64), np.full(count, plan.l2))
        found = own.setdefault(party, None)
        z, costs = (None, None) if found is None else (found.cells, _round(found.penalty * scale))
        cells[party] = session.private(party, z, (plan.rows, count), width=plan.width)
        penalties[party] = session.private(party, costs, (count, count), width=plan.width)
    shape, holder = (plan.rows, plan.outputs), plan.label_holder
    target = row_weights = total = aim = None
    if label is not None:
        row_weights = np.ones(shape, dtype=np.int64)
        if weights is not None:
            whole = _round(weights * 2.0**plan.row_weight_bits)
            row_weights = np.array(np.broadcast_to(whole.reshape(plan.rows, -1), shape))
        sides = np.asarray(label).reshape(shape) - 0.5
        target = _round(sides * row_weights * 2.0 ** (plan.residual_bits - plan.row_weight_bits))
        total = row_weights[:, : plan.problems].sum(keepdims=True).reshape(1)
        lean = find_lean(plan.outputs) if plan.softmax else np.full(plan.outputs, 0.5)
        unit = 2.0 ** (plan.residual_bits - plan.row_weight_bits)
        aim = _round((sides + 0.5 - lean) * row_weights * unit)
    return Table(
        session,
        plan,
        own,
        cells,
        penalties,
        session.share(holder, target, shape, width=plan.width),
        None
        if plan.peak is None
        else session.private(holder, row_weights, shape, width=plan.width),
        session.share(holder, total, (1,)),
        session.share(holder, aim, shape, width=plan.width),
    )


def _round(numbers: Floats) -> Integers:
    return np.rint(numbers).astype(np.int64)


# ---- inverses ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bound:
    """The inverse of a bound of all curvatures; and it times the first step of a later inverse."""

    inverse: Shared
    start: Shared

    @classmethod
    def shorten(cls, longer: Shared, spread: int) -> Bound:
        """From what `invert` gives; other curvatures may be 2^spread times the bound."""
        both = concatenate([((8 << spread) * longer)[None], (FIRST_STEP * longer)[None]])
        short = both.truncate(MATRIX_BITS + 3 + spread)
        return cls(short[0], short[1])


def invert_bound(table: Table) -> tuple[Bound, Shared, Shared]:
    """The inverse of ¼ Xᵀ X + penalty in whitened columns; Xᵀ target, Xᵀ aim; all over 2^size."""
    session, plan = table.session, table.plan
    parties, total = list(plan.columns), plan.total
    share = (len(parties) - 1).bit_length()  # the bound's eigenvalues are at most 2^share
    first = FIRST_STEP / 8 / 2**share
    pairs = [(p, q) for i, p in enumerate(parties) for q in parties[i + 1 :]]
    raw = [FIRST_STEP * (table.cells[p].T @ table.cells[q]) for p, q in pairs]
    both = concatenate([table.target, table.aim], axis=1)
    right = concatenate(session.products([(table.cells[p].T, both) for p in parties]))
    shift = 2 * CELL_BITS + 2 + plan.size + 3 + share - MATRIX_BITS
    *crossed, right = cut_all(
        [Cut.truncate(block, shift) for block in raw]
        + [Cut.truncate(right.limit(plan.gradient_bound), plan.gradient_shift)]
    )
    blocks = {pair: block for pair, block in zip(pairs, crossed, strict=True)}
    blocks |= {(q, p): block.T for (p, q), block in blocks.items()}
    for party, count in plan.columns.items():
        mine, own = table.own[party], None
        if mine is not None:
            real = mine.cells / 2.0**CELL_BITS
            curvature = real.T @ real / 4 + plan.rows * mine.penalty
            own = _round(curvature * first * 2.0 ** (MATRIX_BITS - plan.size))
        blocks[party, party] = session.share(party, own, (count, count))
    rows = [concatenate([blocks[p, q] for q in parties], axis=1) for p in parties]
    product = concatenate(rows).reshape(1, total, total)
    one = round(first * 2**MATRIX_BITS) * np.eye(total, dtype=np.int64)
    start = session.zeros(product.shape) + one
    longer = invert(product, start, plan_inverse(_FIRST_FLOOR))
    # The curvature of a softmax is at most twice this.
    bound = Bound.shorten(longer, 1 if plan.joint else plan.spread)
    return bound, right[:, : plan.outputs], right[:, plan.outputs :]


def weigh_bound(table: Table, bound: Bound) -> Bound:
    """The bound of all weighted curvatures: that at 0, where every slope is ¼."""
    plan, holder = table.plan, table.plan.label_holder
    own = None
    if table.row_weights is not None and table.session.has(holder):
        own = table.row_weights.own.view(np.int64)
    known = table.session.share(holder, own, (plan.rows, plan.outputs), width=plan.width)
    slopes = (1 << (plan.slope_bits - plan.row_weight_bits - 2)) * known
    # Most rows have weights around 1, so most directions a curvature of 2^-peak of the bound's.
    return Bound.shorten(_curve(table, bound, slopes, 0.25 / 2**plan.spread, plan.spread), 0)


def _curve(table: Table, bound: Bound, slopes: Shared, floor: float, spread: int = 0) -> Shared:
    """Inverses of Xᵀ diag(slopes) X + penalty, over 2^size, one per output, not yet shortened."""
    plan = table.plan
    gram = weigh_gram(list(table.cells.values()), slopes)
    curvature = _add_penalties(table, gram, np.ones(len(gram.piece), dtype=bool))
    product = (FIRST_STEP * (bound.inverse @ curvature)).truncate(_CURVATURE_BITS + 3 + spread)
    start = bound.start.map(lambda words: np.broadcast_to(words, product.shape))
    most = MOST_STEPS if plan.peak is None else MOST_STEPS - 1
    return invert(product, start, plan_inverse(floor, most))


def _add_penalties(table: Table, gram: Shared, where: Booleans) -> Shared:
    """Gram matrices, those of some outputs with the penalty, over 2^size."""
    session, plan = table.session, table.plan
    bits = 2 * CELL_BITS + plan.slope_bits
    for party, place in plan.place().items():
        mine, shape = table.own[party], (len(where), plan.total, plan.total)
        own = None
        if mine is not None:
            own = np.zeros(shape, dtype=np.int64)
            own[where, place, place] = np.rint(mine.penalty * plan.rows * 2.0**bits)
        gram = gram + session.share(party, own, shape, width=plan.width)
    gram = gram.limit(3 * plan.rows << (bits + plan.spread - 1))  # rounding is less than half
    return gram.truncate(bits + plan.size - _CURVATURE_BITS)


def _curve_jointly(table: Table, bound: Bound, sigmoids: Shared, floor: float) -> Shared:
    """The inverse of the curvature of all classes together, one class after the other.

    Between classes k and l it is −Xᵀ diag(p_k p_l) X, within one Xᵀ diag(p_k (1 − p_k)) X. If all
    classes move alike, nothing but the penalty changes: there half of the bound is added, or small
    errors of the gradient would become large steps.
    """
    plan, outputs = table.plan, table.plan.outputs
    ones, others = np.triu_indices(outputs)
    bits = plan.slope_bits // 2
    (chances,) = cut_all([Cut.truncate(sigmoids, plan.residual_bits - bits, plan.width)])
    chances = chances + (1 << (bits - 1))
    products = chances[:, ones] * chances[:, others]
    # A probability can be off by the error of its series: so no curvature comes out negative.
    spare = math.ceil(2 * ERROR * 2.0**bits)
    within = (ones == others).astype(np.int64) << bits
    slopes = (1 << (plan.slope_bits - 2 * bits)) * (within * (chances + spare)[:, ones] - products)
    gram = _add_penalties(table, weigh_gram(list(table.cells.values()), slopes), ones == others)
    place = np.zeros((outputs, outputs), dtype=np.int64)
    place[ones, others] = place[others, ones] = np.arange(len(ones))
    size = outputs * plan.total

    def lay_out(words: Words) -> Words:
        """(classes, columns, all classes' columns)."""
        return words[place].swapaxes(1, 2).reshape(outputs, plan.total, size)

    product = FIRST_STEP * (bound.inverse @ gram.map(lay_out))
    alike = np.kron(np.ones((outputs, outputs)), np.eye(plan.total)) / outputs
    product = product.truncate(_CURVATURE_BITS + 4).reshape(1, size, size)
    product = product + _round(alike * FIRST_STEP / 16 * 2**MATRIX_BITS)
    spread = np.eye(outputs, dtype=np.uint64)[:, None, :, None]

    def repeat(words: Words) -> Words:
        """The same matrix for each class along the diagonal."""
        return np.asarray(spread * words[0][:, None, :]).reshape(1, size, size)

    return invert(product, bound.start.map(repeat), plan_inverse(floor / 2))


def invert_curvature(table: Table, bound: Bound, slopes: Shared, floor: float) -> Shared:
    """The inverses at given slopes; eigenvalues down to ``floor`` of the bound's are exact.

    Where all classes are improved at once, ``slopes`` are their probabilities.
    """
    curve = _curve_jointly if table.plan.joint else _curve
    longer = curve(table, bound, slopes, floor)
    return (8 * longer).truncate(MATRIX_BITS + 3)
