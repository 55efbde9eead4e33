"""How one numeric column becomes a component and a scalar: modes, quantiles, min-max or as it is.

All work on standardised numbers. Only modes have several components to choose from.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtr, ndtri

from vfsl.values import Array

_LEAST_WEIGHT = 0.005  # modes that fewer rows belong to are dropped
_WIDTH = 4.0  # deviations of a mode that become 1
_FIT_ROWS = 20_000  # a mixture of ten modes learns nothing more from further rows
_KNOTS = 1_000
_SAME = 1e-12  # fractions of rows that count as one: knots are a thousandth apart


@dataclass(frozen=True)
class Normaliser:
    """Standardised numbers as they are; the others scale them in a way of their own."""

    name: ClassVar[str] = "standard"

    @property
    def components(self) -> int:
        """Between how many components a number chooses."""
        return 1

    @classmethod
    def fit(cls, numbers: Array, rng: np.random.Generator, most: int = 10) -> Self:
        """Learn from standardised numbers; only modes draw, and have at most so many."""
        return cls()

    def place(self, numbers: Array, rng: np.random.Generator | None) -> tuple[Array, Array]:
        """Component and scalar of each number; components are drawn if there is an ``rng``."""
        return np.zeros(len(numbers), dtype=np.intp), self._scale(numbers)

    def value(self, components: Array, scalars: Array) -> Array:
        """The numbers back."""
        return scalars

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}

    def _scale(self, numbers: Array) -> Array:
        return numbers


@dataclass(frozen=True)
class Modes(Normaliser):
    """Mode-specific: the distance from the mean of a number's mode, in four of its deviations."""

    weights: list[float]
    means: list[float]
    deviations: list[float]
    name: ClassVar[str] = "modes"

    @property
    def components(self) -> int:
        return len(self.means)

    @classmethod
    def fit(cls, numbers: Array, rng: np.random.Generator, most: int = 10) -> Self:
        """A Bayesian Gaussian mixture; rare modes are dropped."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import BayesianGaussianMixture

        distinct = len(np.unique(numbers))
        if distinct == 1:
            return cls([1.0], [float(numbers[0])], [1.0 / _WIDTH])
        chosen = rng.permutation(numbers)[:_FIT_ROWS] if len(numbers) > _FIT_ROWS else numbers
        mixture = BayesianGaussianMixture(
            n_components=min(most, distinct, len(chosen)),
            weight_concentration_prior_type="dirichlet_process",
            weight_concentration_prior=0.001,
            n_init=1,
            random_state=int(rng.integers(2**31)),
        )
        with warnings.catch_warnings():
            # A mixture that has not settled after 100 rounds still places every number.
            warnings.simplefilter("ignore", ConvergenceWarning)
            mixture.fit(chosen[:, None])
        weights = np.asarray(mixture.weights_)
        kept = weights > _LEAST_WEIGHT
        if not kept.any():
            kept = weights == weights.max()
        deviations = np.sqrt(np.asarray(mixture.covariances_).ravel())[kept]
        return cls(
            (weights[kept] / weights[kept].sum()).tolist(),
            np.asarray(mixture.means_).ravel()[kept].tolist(),
            np.maximum(deviations, 1e-9).tolist(),
        )

    def place(self, numbers: Array, rng: np.random.Generator | None) -> tuple[Array, Array]:
        deviations = np.array(self.deviations)
        away = (numbers[:, None] - np.array(self.means)) / deviations
        log_chance = np.log(self.weights) - np.log(deviations) - 0.5 * away**2
        if rng is not None:
            # The largest of log-chance plus Gumbel draws is a draw from the posterior.
            log_chance = log_chance + rng.gumbel(size=log_chance.shape)
        chosen = log_chance.argmax(axis=1)
        return chosen, away[np.arange(len(numbers)), chosen] / _WIDTH

    def value(self, components: Array, scalars: Array) -> Array:
        means, deviations = np.array(self.means), np.array(self.deviations)
        return np.asarray(scalars * (_WIDTH * deviations[components]) + means[components])


@dataclass(frozen=True)
class Quantiles(Normaliser):
    """The normal deviate of a number's rank; a repeated number has the middle of its ranks."""

    knots: list[float]
    first: list[float]  # fraction of rows up to where each knot begins
    last: list[float]  # and up to where it ends; more than ``first`` for repeated numbers
    name: ClassVar[str] = "quantile"

    @classmethod
    def fit(cls, numbers: Array, rng: np.random.Generator, most: int = 10) -> Self:
        ordered = np.sort(numbers)
        count = min(len(ordered), _KNOTS)
        ranks = (np.arange(count) + 0.5) / count
        places = np.rint(ranks * len(ordered) - 0.5).astype(np.intp)
        # The extremes are always knots, so that bounds are restored.
        places[0], places[-1] = 0, len(ordered) - 1
        knots, begin, repeats = np.unique(ordered[places], return_index=True, return_counts=True)
        return cls(knots.tolist(), ranks[begin].tolist(), ranks[begin + repeats - 1].tolist())

    def _scale(self, numbers: Array) -> Array:
        knots, first, last = np.array(self.knots), np.array(self.first), np.array(self.last)
        inside = np.clip(numbers, knots[0], knots[-1])
        right = np.searchsorted(knots, inside, side="left")
        exact = knots[right] == inside
        left = np.maximum(right - 1, 0)
        gap = np.where(exact, 1.0, knots[right] - knots[left])
        rank = last[left] + (inside - knots[left]) / gap * (first[right] - last[left])
        rank = np.where(exact, 0.5 * (first[right] + last[right]), rank)
        return np.asarray(ndtri(rank))

    def value(self, components: Array, scalars: Array) -> Array:
        ranks = np.column_stack([self.first, self.last]).ravel()
        wanted = ndtr(scalars)
        # There and back a rank loses its last bits; beside a wide gap that moves a whole number.
        nearest = ranks[np.clip(np.searchsorted(ranks, wanted - _SAME), 0, len(ranks) - 1)]
        wanted = np.where(np.abs(nearest - wanted) <= _SAME, nearest, wanted)
        return np.asarray(np.interp(wanted, ranks, np.repeat(self.knots, 2)))


@dataclass(frozen=True)
class MinMax(Normaliser):
    """The training range becomes −1 to 1."""

    low: float
    high: float
    name: ClassVar[str] = "minmax"

    @classmethod
    def fit(cls, numbers: Array, rng: np.random.Generator, most: int = 10) -> Self:
        return cls(float(numbers.min()), float(numbers.max()))

    def _scale(self, numbers: Array) -> Array:
        return (numbers - (self.high + self.low) / 2) / self._half

    def value(self, components: Array, scalars: Array) -> Array:
        return np.asarray(scalars * self._half + (self.high + self.low) / 2)

    @property
    def _half(self) -> float:
        return (self.high - self.low) / 2 or 1.0


NORMALISERS = {kind.name: kind for kind in (Modes, Quantiles, MinMax, Normaliser)}
