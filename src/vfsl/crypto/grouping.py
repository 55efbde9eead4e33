"""Groupings of rows to sum by: checked once, and prepared once where they serve again."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numpy as np

from vfsl.crypto.integers import as_integers, group_places
from vfsl.errors import InputError
from vfsl.values import Array


class Grouping:
    """Several groupings of the same rows.

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
        See :func:`vfsl.crypto.integers.group_places`.
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
        self._fill(group_places(checked, n), n, again)

    @classmethod
    def placed(cls, places: Array, n: int) -> Self:
        """Of places that are known to be right, as a party's own are: they are not checked."""
        self = cls.__new__(cls)
        self._fill(places, n, again=False)
        return self

    def _fill(self, places: Array, n: int, again: bool) -> None:
        self.places, self.n, self.again = places, n, again
        groupings = places.shape[1]
        counts = np.bincount(places.ravel(), minlength=groupings * (n + 1))
        self.counts: Array = counts.reshape(groupings, n + 1)[:, 1:]
        self.kept: dict[Any, Any] = {}

    @cached_property
    def codes(self) -> Array:
        """The group of each row in each grouping, as int64."""
        return self.places - group_places(np.zeros((1, self.places.shape[1]), np.int64), self.n)
