"""Attacks that read bits from sums over rows: mixed-integer programme, swaps, linear readout."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from vfsl.values import Booleans, Floats, Integers


def read_out(columns: Floats, sums: Floats) -> Floats:
    """Least squares: how much each row would have to count to give these sums; a score per row."""
    return np.asarray(columns @ np.linalg.lstsq(columns.T @ columns, sums, rcond=1e-10)[0])


def solve_labels(
    columns: Floats,
    sums: Floats,
    positives: int,
    *,
    slack: float | Floats = 1e-5,
    seconds: float = 60.0,
) -> Booleans:
    """Which rows are positive: Σ_{i positive} x_i = sums, up to the slack.

    The attacker is told how many positives there are, which helps it: it could try all numbers. It
    takes the answer of HiGHS, of the relaxed problem or of swaps from the readout, whichever comes
    closest to the sums.
    """
    scale = np.abs(columns).max(axis=0)
    columns, sums = columns / scale, sums / scale
    slack = np.asarray(np.broadcast_to(slack, sums.shape) / scale)
    aim = read_out(columns, sums)
    starts = [_top(aim, positives), _programme(columns, sums, positives, slack, aim, seconds)]
    relaxed = _relax(columns, sums, positives, slack, aim)
    if relaxed is not None:
        starts.append(_top(relaxed + 1e-9 * aim, positives))
    found = [
        mask if _miss(columns, mask, sums) < 1e-9 else swap(columns, sums, mask)
        for mask in starts
        if mask is not None
    ]
    return min(found, key=lambda mask: _miss(columns, mask, sums))


def swap(columns: Floats, sums: Floats, mask: Booleans, most: int = 2000) -> Booleans:
    """Exchange a row inside with one outside while that brings the sums closer."""
    mask = mask.copy()
    norms = (columns**2).sum(axis=1)
    for _ in range(most):
        rest = sums - columns[mask].sum(axis=0)
        inside, outside = np.flatnonzero(mask), np.flatnonzero(~mask)
        lean = columns @ rest
        cross = columns[inside] @ columns[outside].T
        distance = norms[inside][:, None] + norms[outside] - 2 * cross
        change = distance - 2 * (lean[outside] - lean[inside][:, None])
        place = np.unravel_index(change.argmin(), change.shape)
        if change[place] > -1e-12:
            break
        mask[inside[place[0]]], mask[outside[place[1]]] = False, True
    return mask


def meet_in_the_middle(columns: Integers, sums: Integers) -> Booleans | None:
    """Which rows add up to the sums exactly, of up to some forty rows; None if none do.

    Integers. All sums of one half of the rows are looked up among what the other half lacks.
    """
    rng = np.random.default_rng(0)
    blend = rng.integers(1, 1 << 62, columns.shape[1])
    with np.errstate(over="ignore"):
        values, wanted = columns @ blend, int((sums * blend).sum())
        half = len(values) // 2
        left, right = (_subset_sums(part) for part in (values[:half], values[half:]))
        lacking = np.int64(wanted) - left
    order = np.argsort(right)
    places = np.searchsorted(right[order], lacking).clip(max=len(right) - 1)
    hits = np.flatnonzero(right[order][places] == lacking)
    if not len(hits):
        return None
    pair = (hits[0], half), (order[places[hits[0]]], len(values) - half)
    return np.concatenate([(code >> np.arange(size)) & 1 for code, size in pair]).astype(bool)


def _subset_sums(values: Integers) -> Integers:
    """The sum of every subset, by its bits."""
    found = np.zeros(1, dtype=np.int64)
    for value in values:
        found = np.concatenate([found, found + value])
    return found


def _programme(
    columns: Floats, sums: Floats, positives: int, slack: Floats, aim: Floats, seconds: float
) -> Booleans | None:
    """A solution of the exact problem by HiGHS, or None in the time."""
    rows = len(columns)
    system = sparse.csr_matrix(np.vstack([columns.T, np.ones(rows)]))
    right, reach = np.append(sums, positives), np.append(slack, 0.0)
    found = milp(
        -aim / max(np.abs(aim).max(), 1e-300),
        constraints=LinearConstraint(system, right - reach, right + reach),
        bounds=Bounds(0, 1),
        integrality=np.ones(rows),
        options={"time_limit": seconds, "mip_rel_gap": 1.0},
    )
    return None if found.x is None else found.x > 0.5


def _relax(
    columns: Floats, sums: Floats, positives: int, slack: Floats, aim: Floats
) -> Floats | None:
    """The weights of rows between 0 and 1 that give the sums; None if none do."""
    system = np.vstack([columns.T, np.ones(len(columns))])
    right, reach = np.append(sums, positives), np.append(slack, 0.0)
    both, limits = np.vstack([system, -system]), np.concatenate([right + reach, reach - right])
    found: Floats | None = linprog(-aim, A_ub=both, b_ub=limits, bounds=(0, 1)).x
    return found


def _top(scores: Floats, count: int) -> Booleans:
    mask = np.zeros(len(scores), dtype=bool)
    mask[np.argsort(-scores, kind="stable")[:count]] = True
    return mask


def _miss(columns: Floats, mask: Booleans, sums: Floats) -> float:
    return float(((columns[mask].sum(axis=0) - sums) ** 2).sum())


def solve_for_bits(matrix: Floats, sums: Floats, seconds: float = 20.0) -> Integers | None:
    """The bits u whose sums matrixᵀu come closest to these, by mixed-integer programming; or None.

    Minimises the sum of absolute differences, so that rounding of fixed-point numbers is no trap.
    """
    rows, equations = matrix.shape
    scale = np.abs(matrix).sum(axis=0)
    slack = np.eye(equations)
    constraint = LinearConstraint(
        np.hstack([(matrix / scale).T, slack, -slack]), sums / scale, sums / scale
    )
    found = milp(
        np.concatenate([np.zeros(rows), np.ones(2 * equations)]),
        constraints=constraint,
        integrality=np.concatenate([np.ones(rows), np.zeros(2 * equations)]),
        bounds=Bounds(
            np.zeros(rows + 2 * equations),
            np.concatenate([np.ones(rows), np.full(2 * equations, np.inf)]),
        ),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    return None if found.x is None else np.rint(found.x[:rows]).astype(int)
