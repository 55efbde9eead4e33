"""Sums over runs of an array: which values to add up before anything is opened.

A tree's candidate split is the sum of the bins up to a threshold, with or without the bin of
missing cells. Such sums are opened instead of the bins, so that nobody sees a bin by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vfsl.crypto import wire
from vfsl.crypto.integers import as_integers
from vfsl.errors import InputError, ProtocolError
from vfsl.values import Array

# More sums than this would hide nothing and cost the key holder much.
RUNS_A_VALUE = 4


@dataclass(frozen=True)
class Groups:
    """Sums of groups that share no row: values of one grouping lie next to each other.

    Every row counts in one group of a grouping at most, so a sum over different groups of it
    stays within ``bound``, however many they are.
    """

    length: int
    bound: int

    def joined(self, other: Groups | None) -> Groups | None:
        """Of the sum or the difference of two arrays."""
        if other is None or other.length != self.length:
            return None
        return Groups(self.length, self.bound + other.bound)

    def scaled(self, factor: int) -> Groups:
        return Groups(self.length, self.bound * abs(factor))


@dataclass(frozen=True, eq=False)
class Runs:
    """Sums over a flattened array (C order), one for each position of the three fields.

    Sum c is Σ flat[start_c : stop_c], plus flat[extra_c] unless extra_c is −1.

    Parameters
    ----------
    start, stop, extra : integer arrays of one length
    """

    start: Array
    stop: Array
    extra: Array

    def __post_init__(self) -> None:
        for name in ("start", "stop", "extra"):
            column = as_integers(getattr(self, name), f"The {name} parameter of Runs")
            if column.ndim != 1 or column.dtype != np.int64:
                raise InputError(
                    f"The {name} parameter of Runs must be one int64 a run. "
                    f"Got {column.dtype} with {column.ndim} axes instead."
                )
            object.__setattr__(self, name, column)
        if not len(self.start) == len(self.stop) == len(self.extra) or len(self.start) == 0:
            raise InputError(
                "Runs needs start, stop and extra of one length, at least 1. Got "
                f"{len(self.start)}, {len(self.stop)} and {len(self.extra)} instead."
            )

    def __len__(self) -> int:
        return len(self.start)

    def check(self, size: int) -> None:
        """Refuse what does not fit an array of ``size`` values."""
        if len(self) > RUNS_A_VALUE * size:
            raise InputError(
                f"Runs over {size} values must be at most {RUNS_A_VALUE} a value. "
                f"Got {len(self)} runs instead."
            )
        ordered = (self.start >= 0) & (self.start <= self.stop) & (self.stop <= size)
        if not bool((ordered & (self.extra >= -1) & (self.extra < size)).all()):
            raise InputError(
                f"Runs must keep 0 ≤ start ≤ stop ≤ {size} and −1 ≤ extra < {size}. "
                "Got some that do not instead."
            )

    def of(self, flat: Array) -> Array:
        """The sums over one-dimensional integers: exact for object, modular for fixed widths."""
        self.check(flat.size)
        zero = np.zeros(1, dtype=flat.dtype)
        # Fixed widths wrap around, which the difference of two partial sums undoes.
        sums = np.concatenate([zero, np.add.accumulate(flat)])
        # Position −1 is the zero behind the last value.
        more = np.concatenate([flat, zero])[self.extra]
        return np.asarray(sums[self.stop] - sums[self.start] + more)

    def bound(self, one: int, groups: Groups | None) -> int:
        """The largest absolute value that a run of values within ±``one`` can have.

        Without ``groups`` that is its length times ``one``. A run within one grouping that counts
        no group twice also stays within the bound of the grouping, which is usually far less.
        """
        counts = self.stop - self.start + (self.extra >= 0)
        if groups is None:
            return int(counts.max()) * one
        inside = self._within(groups.length)
        alone = int(counts[~inside].max(initial=0)) * one
        return max(alone, min(int(counts[inside].max(initial=0)) * one, groups.bound))

    def _within(self, length: int) -> Array:
        """Which runs count different values of one stretch of ``length`` only."""
        empty = self.start == self.stop
        stretch = np.where(empty, self.extra, self.start) // length
        whole = empty | ((self.stop - 1) // length == stretch)
        alone = (self.extra < 0) | (self.extra // length == stretch)
        twice = (self.extra >= self.start) & (self.extra < self.stop)
        return np.asarray(whole & alone & ~twice)

    def to_wire(self) -> dict[str, Any]:
        return {"start": self.start, "stop": self.stop, "extra": self.extra}

    @classmethod
    def from_wire(cls, payload: dict[str, Any], size: int) -> Runs:
        """The runs of a message, refused unless they fit ``size`` values."""
        columns = [wire.array_field(payload, name, np.int64, 1) for name in _FIELDS]
        try:
            runs = cls(*columns)
            runs.check(size)
        except InputError as error:
            raise ProtocolError(
                f"A crypto message asks for other runs than it may. {error}"
            ) from None
        return runs


_FIELDS = ("start", "stop", "extra")


def shown_positions(shown: Any, count: int) -> Array:
    """Where a truth value a run is true; all of ``count`` for None."""
    if shown is None:
        return np.arange(count)
    flags = np.asarray(shown)
    if flags.dtype != np.bool_ or flags.shape != (count,):
        raise InputError(
            f"The shown parameter of masked must be one truth value for each of {count} runs. "
            f"Got {flags.dtype} of shape {flags.shape} instead."
        )
    return np.flatnonzero(flags)
