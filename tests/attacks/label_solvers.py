"""Attacks that read labels from one gradient: mixed-integer programme, swaps, linear readout."""

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp


def read_out(columns, sums):
    """Least squares: how much each row would have to count to give these sums; a score per row."""
    return columns @ np.linalg.lstsq(columns.T @ columns, sums, rcond=1e-10)[0]


def solve_labels(columns, sums, positives, *, slack=1e-5, seconds=60.0):
    """Which rows are positive: Σ_{i positive} x_i = sums, up to the slack.

    The attacker is told how many positives there are, which helps it: it could try all numbers. It
    takes the answer of HiGHS, of the relaxed problem or of swaps from the readout, whichever comes
    closest to the sums.
    """
    scale = np.abs(columns).max(axis=0)
    columns, sums, slack = columns / scale, sums / scale, np.broadcast_to(slack, sums.shape) / scale
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


def swap(columns, sums, mask, most=2000):
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


def meet_in_the_middle(columns, sums):
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


def _subset_sums(values):
    """The sum of every subset, by its bits."""
    found = np.zeros(1, dtype=np.int64)
    for value in values:
        found = np.concatenate([found, found + value])
    return found


def _programme(columns, sums, positives, slack, aim, seconds):
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


def _relax(columns, sums, positives, slack, aim):
    """The weights of rows between 0 and 1 that give the sums; None if none do."""
    system = np.vstack([columns.T, np.ones(len(columns))])
    right, reach = np.append(sums, positives), np.append(slack, 0.0)
    both, limits = np.vstack([system, -system]), np.concatenate([right + reach, reach - right])
    return linprog(-aim, A_ub=both, b_ub=limits, bounds=(0, 1)).x


def _top(scores, count):
    mask = np.zeros(len(scores), dtype=bool)
    mask[np.argsort(-scores, kind="stable")[:count]] = True
    return mask


def _miss(columns, mask, sums):
    return float(((columns[mask].sum(axis=0) - sums) ** 2).sum())
