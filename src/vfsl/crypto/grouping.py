"""Groupings of rows to sum by: checked once, and prepared once where they serve again."""

from __future__ import annotations

from typing import Any

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
        self.codes = as_integers(codes, "The groups parameter of sum_by")
        if self.codes.ndim != 2 or self.codes.size == 0:
            raise InputError(
                "The groups parameter of sum_by must have shape (rows, f), with at least one row "
                f"and one grouping. Got {self.codes.shape} instead."
            )
        if n < 1 or int(self.codes.min()) < -1 or int(self.codes.max()) >= n:
            raise InputError(
                f"The groups parameter of sum_by must be −1 or from 0 to n − 1 = {n - 1}. "
                f"Got {self.codes.min()} to {self.codes.max()} instead."
            )
        self.n, self.again = n, again
        self.places = group_places(self.codes, n)
        groupings = self.codes.shape[1]
        counts = np.bincount(self.places.ravel(), minlength=groupings * (n + 1))
        self.counts: Array = counts.reshape(groupings, n + 1)[:, 1:]
        self.kept: dict[Any, Any] = {}
