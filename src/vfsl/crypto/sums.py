"""Which values to add up: rows by group, and group sums by prefix before anything is opened.

A tree's candidate split is the sum of the bins up to a threshold, with or without the bin of
missing cells. Such prefix sums are opened instead of the bins, so that nobody sees a bin by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vfsl.crypto import wire
from vfsl.crypto.fixed import as_integers
from vfsl.errors import InputError, ProtocolError
from vfsl.values import Array

# More sums per value than this would hide nothing and cost the key holder much.
SUMS_PER_VALUE = 4


class Grouping:
    """Several groupings of the same rows, checked once and prepared once where they serve again.

    Parameters
    ----------
    codes : integer array of shape (rows, f)
        The group of each row in each grouping, 0 to n − 1, or −1 for a row that counts nowhere.
    n : int
        Number of groups of each grouping.
    again : bool
        Whether other arrays will be summed by it too; then a scheme may keep what it derives.

    Attributes
    ----------
    counts : array of shape (f, n)
        How many rows each group has.
    places : array of shape (rows, f)
        See :func:`find_places`.
    kept : dict
        What schemes keep here.
    """

    def __init__(self, codes: Any, n: int, *, again: bool = False) -> None:
        checked = as_integers(codes, "The groups parameter of sum_by")
        if checked.ndim != 2 or checked.size == 0:
            raise InputError(
                "The groups parameter of sum_by must have shape (rows, f), with at least one row "
                f"and one grouping. Got {checked.shape} instead."
            )
        if n < 1 or int(checked.min()) < -1 or int(checked.max()) >= n:
            raise InputError(
                f"The groups parameter of sum_by must be −1 or from 0 to n − 1 = {n - 1}. "
                f"Got {checked.min()} to {checked.max()} instead."
            )
        places = find_places(checked, n)
        self.places, self.n, self.again = places, n, again
        groupings = places.shape[1]
        counts = np.bincount(places.ravel(), minlength=groupings * (n + 1))
        self.counts: Array = counts.reshape(groupings, n + 1)[:, 1:]
        self.kept: dict[Any, Any] = {}

    @cached_property
    def codes(self) -> Array:
        """The group of each row in each grouping, as int64."""
        return self.places - find_places(np.zeros((1, self.places.shape[1]), np.int64), self.n)


def find_places(codes: Array, n: int) -> Array:
    """Codes (rows, groupings) as places in one row of all groups of all groupings.

    Every grouping has one more group in front, into which −1 falls: a row that counts nowhere.
    """
    return np.asarray(codes + (np.arange(codes.shape[1]) * (n + 1) + 1))


def sum_by_place(places: Array, values: Array, count: int) -> Array:
    """Values summed at each of a row's places (rows, f), which are below ``count``.

    Values (rows,) give (count,), values (rows, k) give (count, k). One compiled pass over integers
    of the values' own width, by a matrix with a one for each place: a column is a row.
    """
    from scipy import sparse

    rows, many = places.shape
    narrow = places.size <= np.iinfo(places.dtype).max
    starts = _starts(rows + 1, many, places.dtype if narrow else np.dtype(np.int64))
    ones = _ones(places.size, values.dtype)
    belongs = sparse.csc_array((ones, places.ravel(), starts), shape=(count, rows))
    return np.asarray(belongs @ values)


_kept: dict[Any, Array] = {}
_MOST_KEPT = 1 << 22


def _ones(count: int, dtype: np.dtype[Any]) -> Array:
    return _keep(count, dtype, lambda size: np.ones(size, dtype=dtype))


def _starts(count: int, step: int, dtype: np.dtype[Any]) -> Array:
    return _keep(count, (step, dtype), lambda size: np.arange(size, dtype=dtype) * dtype.type(step))


def _keep(count: int, key: Any, make: Callable[[int], Array]) -> Array:
    """The first ``count`` values: of the same array where they are few, since making it costs."""
    if count > _MOST_KEPT:
        return make(count)
    kept = _kept.get(key)
    if kept is None or len(kept) < count:
        _kept[key] = kept = make(count)
    return kept[:count]


@dataclass(frozen=True)
class GroupBound:
    """A bound on sums over different groups of one grouping, which share no row.

    The sums of a grouping's ``length`` groups lie next to each other. Every row counts in at most
    one of them, so a sum over several stays within ``bound``, however many they are.
    """

    length: int
    bound: int

    def add(self, other: GroupBound | None) -> GroupBound | None:
        """The bound for the sum or the difference of two arrays."""
        if other is None or other.length != self.length:
            return None
        return GroupBound(self.length, self.bound + other.bound)

    def scale(self, factor: int) -> GroupBound:
        return GroupBound(self.length, self.bound * abs(factor))


@dataclass(frozen=True, eq=False)
class PrefixSums:
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
            column = as_integers(getattr(self, name), f"The {name} parameter of PrefixSums")
            if column.ndim != 1 or column.dtype != np.int64:
                raise InputError(
                    f"The {name} parameter of PrefixSums must be one int64 per sum. "
                    f"Got {column.dtype} with {column.ndim} axes instead."
                )
            object.__setattr__(self, name, column)
        if not len(self.start) == len(self.stop) == len(self.extra) or len(self.start) == 0:
            raise InputError(
                "PrefixSums needs start, stop and extra of one length, at least 1. Got "
                f"{len(self.start)}, {len(self.stop)} and {len(self.extra)} instead."
            )

    def __len__(self) -> int:
        return len(self.start)

    def check(self, size: int) -> None:
        """Refuse what does not fit an array of ``size`` values."""
        if len(self) > SUMS_PER_VALUE * size:
            raise InputError(
                f"Prefix sums over {size} values must be at most {SUMS_PER_VALUE} per value. "
                f"Got {len(self)} sums instead."
            )
        ordered = (self.start >= 0) & (self.start <= self.stop) & (self.stop <= size)
        if not bool((ordered & (self.extra >= -1) & (self.extra < size)).all()):
            raise InputError(
                f"Prefix sums must keep 0 ≤ start ≤ stop ≤ {size} and −1 ≤ extra < {size}. "
                "Got some that do not instead."
            )

    def add_up(self, flat: Array) -> Array:
        """The sums over one-dimensional integers: exact for object, modular for fixed widths."""
        self.check(flat.size)
        zero = np.zeros(1, dtype=flat.dtype)
        # Fixed widths wrap around, which the difference of two partial sums undoes.
        sums = np.concatenate([zero, np.add.accumulate(flat)])
        # Position −1 is the zero behind the last value.
        more = np.concatenate([flat, zero])[self.extra]
        return np.asarray(sums[self.stop] - sums[self.start] + more)

    def bound(self, one: int, groups: GroupBound | None) -> int:
        """The largest absolute value that a sum of values within ±``one`` can have.

        Without ``groups`` that is the number of its terms times ``one``. A sum within one grouping
        that counts no group twice also stays within the grouping's bound, usually far less.
        """
        counts = self.stop - self.start + (self.extra >= 0)
        if groups is None:
            return int(counts.max()) * one
        inside = self._within(groups.length)
        alone = int(counts[~inside].max(initial=0)) * one
        return max(alone, min(int(counts[inside].max(initial=0)) * one, groups.bound))

    def _within(self, length: int) -> Array:
        """Which sums count only different values of one stretch of ``length``."""
        empty = self.start == self.stop
        stretch = np.where(empty, self.extra, self.start) // length
        whole = empty | ((self.stop - 1) // length == stretch)
        alone = (self.extra < 0) | (self.extra // length == stretch)
        twice = (self.extra >= self.start) & (self.extra < self.stop)
        return np.asarray(whole & alone & ~twice)

    def to_wire(self) -> dict[str, Any]:
        return {"start": self.start, "stop": self.stop, "extra": self.extra}

    @classmethod
    def from_wire(cls, payload: dict[str, Any], size: int) -> PrefixSums:
        """The sums that a message asks for, refused unless they fit ``size`` values."""
        names = ("start", "stop", "extra")
        columns = [wire.read_array(payload, name, np.int64, 1) for name in names]
        try:
            sums = cls(*columns)
            sums.check(size)
        except InputError as error:
            raise ProtocolError(
                f"A crypto message asks for other prefix sums than it may. {error}"
            ) from None
        return sums


def find_shown(shown: Any, count: int) -> Array:
    """The positions of the sums that are shown; all of ``count`` for None."""
    if shown is None:
        return np.arange(count)
    flags = np.asarray(shown)
    if flags.dtype != np.bool_ or flags.shape != (count,):
        raise InputError(
            f"The shown parameter of mask must be one truth value for each of {count} sums. "
            f"Got {flags.dtype} of shape {flags.shape} instead."
        )
    return np.flatnonzero(flags)
