"""How one numeric column becomes a component and a scalar: modes, quantiles, min-max or as it is.

All work on standardised numbers. A normaliser with several components says which one a number
belongs to; the others have one component only.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from vfsl.values import Array

MOST_MODES = 10
_LEAST_WEIGHT = 0.005  # modes that fewer rows belong to are dropped
_WIDTH = 4.0  # deviations of a mode that become 1
_FIT_ROWS = 20_000  # a mixture of ten modes learns nothing more from further rows
_KNOTS = 1_000
_SAME = 1e-12  # shares of rows that are one: knots are a thousandth apart


class Normaliser(Protocol):
    """Standardised numbers to (component, scalar) and back."""

    name: ClassVar[str]

    @property
    def components(self) -> int: ...

    def place(self, numbers: Array, rng: np.random.Generator | None) -> tuple[Array, Array]:
        """Component and scalar of each number; components are drawn if there is an ``rng``."""
        ...

    def value(self, components: Array, scalars: Array) -> Array:
        """The numbers back."""
        ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Modes:
    """Mode-specific: the distance from the mean of a number's mode, in four of its deviations."""

    weights: list[float]
    means: list[float]
    deviations: list[float]
    name: ClassVar[str] = "modes"

    @property
    def components(self) -> int:
        return len(self.means)

    @classmethod
    def fit(cls, numbers: Array, rng: np.random.Generator, most: int = MOST_MODES) -> Modes:
        """A Bayesian Gaussian mixture; rare modes are dropped."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import BayesianGaussianMixture

        distinct = len(np.unique(numbers))
        if distinct == 1:
            return cls([1.0], [float(numbers[0])], [1.0 / _WIDTH])
        chosen = rng.permutation(numbers)[:_FIT_ROWS] if len(numbers) > _FIT_ROWS else numbers
        if len(chosen) < 2:
            chosen = numbers
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
        means, deviations = np.array(self.means), np.array(self.deviations)
        away = (numbers[:, None] - means) / deviations
        log_chance = np.log(self.weights) - np.log(deviations) - 0.5 * away**2
        if rng is None:
            chosen = log_chance.argmax(axis=1)
        else:
            # The largest of log-chance plus Gumbel noise is a draw from the posterior.
            chosen = (log_chance + rng.gumbel(size=log_chance.shape)).argmax(axis=1)
        return chosen, away[np.arange(len(numbers)), chosen] / _WIDTH

    def value(self, components: Array, scalars: Array) -> Array:
        means, deviations = np.array(self.means), np.array(self.deviations)
        return np.asarray(scalars * (_WIDTH * deviations[components]) + means[components])

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class Quantiles:
    """The normal deviate of a number's rank; a repeated number has the middle of its ranks."""

    knots: list[float]
    first: list[float]  # share of rows up to where each knot begins
    last: list[float]  # and up to where it ends; more than ``first`` for repeated numbers
    name: ClassVar[str] = "quantile"
    components: ClassVar[int] = 1

    @classmethod
    def fit(cls, numbers: Array) -> Quantiles:
        ordered = np.sort(numbers)
        count = min(len(ordered), _KNOTS)
        shares = (np.arange(count) + 0.5) / count
        places = np.rint(shares * len(ordered) - 0.5).astype(np.intp)
        # The extremes are always knots, so that bounds are restored.
        places[0], places[-1] = 0, len(ordered) - 1
        knots, begin, repeats = np.unique(ordered[places], return_index=True, return_counts=True)
        return cls(knots.tolist(), shares[begin].tolist(), shares[begin + repeats - 1].tolist())

    def place(self, numbers: Array, rng: np.random.Generator | None) -> tuple[Array, Array]:
        knots, first, last = np.array(self.knots), np.array(self.first), np.array(self.last)
        inside = np.clip(numbers, knots[0], knots[-1])
        right = np.searchsorted(knots, inside, side="left")
        exact = knots[right] == inside
        left = np.maximum(right - 1, 0)
        gap = np.where(exact, 1.0, knots[right] - knots[left])
        share = last[left] + (inside - knots[left]) / gap * (first[right] - last[left])
        share = np.where(exact, 0.5 * (first[right] + last[right]), share)
        return np.zeros(len(numbers), dtype=np.intp), np.asarray(ndtri(share))

    def value(self, components: Array, scalars: Array) -> Array:
        shares = np.column_stack([self.first, self.last]).ravel()
        wanted = ndtr(scalars)
        # There and back a share loses its last bits; beside a wide gap that moves a whole number.
        nearest = shares[np.clip(np.searchsorted(shares, wanted - _SAME), 0, len(shares) - 1)]
        wanted = np.where(np.abs(nearest - wanted) <= _SAME, nearest, wanted)
        return np.asarray(np.interp(wanted, shares, np.repeat(self.knots, 2)))

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class MinMax:
    """The training range becomes −1 to 1."""

    low: float
    high: float
    name: ClassVar[str] = "minmax"
    components: ClassVar[int] = 1

    @classmethod
    def fit(cls, numbers: Array) -> MinMax:
        return cls(float(numbers.min()), float(numbers.max()))

    def place(self, numbers: Array, rng: np.random.Generator | None) -> tuple[Array, Array]:
        half = (self.high - self.low) / 2 or 1.0
        scalars = (numbers - (self.high + self.low) / 2) / half
        return np.zeros(len(numbers), dtype=np.intp), scalars

    def value(self, components: Array, scalars: Array) -> Array:
        half = (self.high - self.low) / 2 or 1.0
        return np.asarray(scalars * half + (self.high + self.low) / 2)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class Standard:
    """Standardised numbers as they are."""

    name: ClassVar[str] = "standard"
    components: ClassVar[int] = 1

    def place(self, numbers: Array, rng: np.random.Generator | None) -> tuple[Array, Array]:
        return np.zeros(len(numbers), dtype=np.intp), numbers

    def value(self, components: Array, scalars: Array) -> Array:
        return scalars

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name}


NORMALISERS = ("modes", "quantile", "minmax", "standard")


def fit_normaliser(
    name: str, numbers: Array, rng: np.random.Generator, most: int = MOST_MODES
) -> Normaliser:
    """The normaliser of that name for these standardised numbers."""
    if name == "modes":
        return Modes.fit(numbers, rng, most)
    if name == "quantile":
        return Quantiles.fit(numbers)
    if name == "minmax":
        return MinMax.fit(numbers)
    return Standard()


def normaliser_from(state: Mapping[str, Any]) -> Normaliser:
    """Undo ``to_dict``."""
    kinds: dict[str, Any] = {kind.name: kind for kind in (Modes, Quantiles, MinMax, Standard)}
    fields = {key: value for key, value in state.items() if key != "name"}
    made: Normaliser = kinds[state["name"]](**fields)
    return made
