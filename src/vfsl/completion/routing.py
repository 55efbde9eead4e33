"""Which columns go to VFPU-M and which to local methods: by association, or by measured skill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vfsl.data.checks import check_fraction

HIGH, LOW, CONSTANT = "high", "low", "constant"
RARE = "rare values"  # why a column is routed: its values are too rare for a linear base


@dataclass(frozen=True)
class Route:
    """Where a column goes, and by which number.

    Attributes
    ----------
    column : str
    route : {"high", "low", "constant"}
        VFPU-M, a local method, or a column with one value only.
    by : {"association", "skill", "constant", "known cells", "rare values"}
    measure : float
        μ_q, or the cross-validated skill.
    threshold : float
        What the measure had to exceed.
    """

    column: str
    route: str
    by: str
    measure: float
    threshold: float


def by_association(strengths: Mapping[str, float], tau: float) -> list[Route]:
    """The seed's rule: μ_q > τ, strictly, is predicted; the rest is not."""
    check_fraction("by_association", "tau", tau)
    return [
        Route(name, HIGH if strength > tau else LOW, "association", float(strength), tau)
        for name, strength in strengths.items()
    ]


def by_skill(skills: Mapping[str, tuple[float, float]], errors: float = 0.5) -> list[Route]:
    """Columns whose model is better than the mean by ``errors`` standard errors out of fold.

    Half an error: predictions that are drawn towards the mean lose little where they are wrong.
    """
    return [
        Route(name, HIGH if value > errors * error else LOW, "skill", value, errors * error)
        for name, (value, error) in skills.items()
    ]


def best_tau(strengths: Mapping[str, float], skills: Mapping[str, tuple[float, float]]) -> float:
    """The τ whose routed columns have the largest sum of held-out skills; the largest such τ.

    A column with a negative skill is worse than its mean, so routing it costs.
    """
    names = list(strengths)
    mu = np.array([strengths[name] for name in names])
    gain = np.array([skills[name][0] for name in names])
    options = np.unique(np.concatenate([[0.0, 1.0], mu]))
    totals = [gain[mu > tau].sum() for tau in options]
    best = max(range(len(options)), key=lambda place: (round(totals[place], 12), place))
    return float(options[best])
