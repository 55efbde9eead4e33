"""Risks of a table that is released: inference, linkability, membership.

The first two follow Giomi, Boenisch, Wehmeyer and Tasnádi, "A Unified Framework for Quantifying
Privacy Risk in Synthetic Data": an attack is run against rows that the release was made from, and
against control rows that it was not. With success rates r and c, as Wilson estimates of so many
attempts, the risk is (r − c) / (1 − c): what the release tells about its own rows beyond what it
tells about people in general.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from vfsl.values import Booleans, Floats


@dataclass(frozen=True)
class Rate:
    """A success rate, as its Wilson estimate with half the width of its interval."""

    value: float
    error: float


@dataclass(frozen=True)
class Risk:
    """A risk between 0 and 1 with its interval, and the rates behind it."""

    value: float
    low: float
    high: float
    attack: float
    control: float
    attempts: int


def wilson(successes: int, attempts: int, level: float = 0.95) -> Rate:
    """The centre of the Wilson interval, and half its width."""
    z = float(norm.ppf(0.5 + level / 2))
    n = max(attempts, 1)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    error = z / (1 + z * z / n) * np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return Rate(float(centre), float(error))


def find_risk(attack: Booleans, control: Booleans, level: float = 0.95) -> Risk:
    """The risk from the outcomes of attacks on the release's own rows and on control rows."""
    main, other = (wilson(int(one.sum()), len(one), level) for one in (attack, control))
    left = max(1.0 - other.value, 1e-9)
    value = (main.value - other.value) / left
    # By the delta method: d risk / d main = 1 / (1 − c), d risk / d control = (r − 1) / (1 − c)².
    error = np.hypot(main.error / left, (1.0 - main.value) * other.error / left**2)
    low, high = (float(np.clip(value + sign * error, 0.0, 1.0)) for sign in (-1, 1))
    value = float(np.clip(value, 0.0, 1.0))
    return Risk(value, low, high, main.value, other.value, len(attack))


def _nearest(table: Floats, rows: Floats, count: int = 1) -> tuple[Floats, Floats]:
    found = NearestNeighbors(n_neighbors=min(count, len(table))).fit(table)
    distance, places = found.kneighbors(rows)
    return np.asarray(distance), np.asarray(places)


def infer_attribute(
    release: tuple[Floats, Floats], rows: tuple[Floats, Floats], within: float
) -> Booleans:
    """Whether the released row that is nearest in known columns has the secret of each row.

    ``release`` and ``rows`` are pairs: columns that the attacker knows, and the secret column.
    """
    _, places = _nearest(release[0], rows[0])
    return np.asarray(np.abs(release[1][places[:, 0]] - rows[1]) <= within)


def link(release: Floats, rows: Floats, split: int, nearest: int = 5) -> Booleans:
    """Whether two parts of a row's columns lead to a common one of the nearest released rows."""
    first, second = release[:, :split], release[:, split:]
    _, one = _nearest(first, rows[:, :split], nearest)
    _, other = _nearest(second, rows[:, split:], nearest)
    return np.array([bool(set(a) & set(b)) for a, b in zip(one, other, strict=True)])


def distance_ratio(release: Floats, training: Floats, held_out: Floats) -> float:
    """Distance of training rows to the nearest released one, over that of held-out rows.

    1 where training rows are no nearer than others; 0 where the release has them themselves.
    """
    inside, outside = (float(_nearest(release, one)[0].mean()) for one in (training, held_out))
    return inside / outside if outside > 0 else 1.0


def membership_auc(release: Floats, training: Floats, held_out: Floats) -> float:
    """How well nearness to the release tells training rows from held-out ones."""
    distance = np.concatenate([_nearest(release, one)[0][:, 0] for one in (training, held_out)])
    member = np.r_[np.ones(len(training)), np.zeros(len(held_out))]
    return float(roc_auc_score(member, -distance))
