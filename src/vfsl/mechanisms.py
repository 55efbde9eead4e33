"""Mechanisms of differential privacy, and what they spend: Rényi divergences that add up.

What is protected is one row: two tables that differ in the cells of one row (or in its label) give
answers whose distributions are close. How close is kept as the Rényi divergence at each of `ORDERS`
(Mironov, "Rényi Differential Privacy"), because these simply add up over releases; ε is worked out
of the sums where people want to see it. Batches are known to those who see the answers here, so
nothing is gained by sampling rows, and no such gain is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from vfsl.errors import ConfigError
from vfsl.values import Array, Floats

ORDERS = (1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256)
DELTA = 1e-6  # the chance that ε does not hold; far below one row in a table


class Normal(Protocol):
    """What a mechanism draws from: a generator, or draws that are tied to rows."""

    def standard_normal(self, size: Any) -> Floats: ...


class Mechanism(Protocol):
    """What may change values before a peer sees them."""

    def spend(self) -> Floats:
        """The Rényi divergence at each of `ORDERS` that one release costs a row."""

    def apply(self, values: Array, rng: Any) -> Array:
        """The values as the peer may see them."""


@dataclass(frozen=True)
class GaussianNoise:
    """Normal noise on values that one row moves by at most ``sensitivity`` (Euclidean norm)."""

    deviation: float
    sensitivity: float

    def spend(self) -> Floats:
        if self.deviation <= 0:
            return np.full(len(ORDERS), np.inf)
        ratio = self.sensitivity / self.deviation
        return np.asarray(ORDERS) * ratio**2 / 2

    def apply(self, values: Array, rng: Normal) -> Array:
        return np.asarray(values + self.deviation * rng.standard_normal(np.shape(values)))


@dataclass(frozen=True)
class RandomisedResponse:
    """Labels that are kept with probability e^ε / (e^ε + K − 1), else one of the other classes.

    Warner, "Randomized Response"; as differential privacy of labels: Ghazi et al., "Deep Learning
    with Label Differential Privacy".
    """

    epsilon: float
    classes: int

    @property
    def kept(self) -> float:
        """The probability that a label stays."""
        return 1 / (1 + (self.classes - 1) * math.exp(-self.epsilon))

    def spend(self) -> Floats:
        stays, other = self.kept, (1 - self.kept) / (self.classes - 1)
        orders = np.asarray(ORDERS)
        # Both ratios as powers of e^ε, so that a large ε does not divide by 0.
        up = math.log(stays) + (orders - 1) * self.epsilon
        down = math.log(max(other, 1e-300)) - (orders - 1) * self.epsilon
        total = np.logaddexp(up, down)
        if self.classes > 2:
            total = np.logaddexp(total, math.log((self.classes - 2) * max(other, 1e-300)))
        return np.asarray(np.maximum(total, 0.0) / (orders - 1))

    def apply(self, values: Array, rng: np.random.Generator) -> Array:
        """Codes from 0 to classes − 1; negative ones stand for no label and stay."""
        codes = np.asarray(values)
        moved = (codes + rng.integers(1, self.classes, codes.shape)) % self.classes
        stays = (rng.random(codes.shape) < self.kept) | (codes < 0)
        return np.where(stays, codes, moved)


def add_up(spent: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """What several releases spend together; an empty one is one of exact numbers."""
    given = [one for one in spent if len(one)]
    return tuple(np.sum(given, axis=0).tolist()) if given else ()


def find_epsilon(spent: Sequence[float] | Floats, delta: float = DELTA) -> float:
    """The smallest ε that sums of divergences promise at δ.

    By proposition 12 of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential
    Privacy". Nothing spent is 0.
    """
    sums = np.asarray(spent, dtype=np.float64)
    if not sums.any():
        return 0.0
    if len(sums) != len(ORDERS):
        raise ConfigError(f"Expected {len(ORDERS)} divergences. Got {len(sums)} instead.")
    orders = np.asarray(ORDERS, dtype=np.float64)
    found = sums + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(float(found.min()), 0.0)
