"""Measures of association: columns as integers, and functions of their inner products.

No messages; association.py says who computes what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from vfsl.crypto.fixed import shift
from vfsl.data import Kind
from vfsl.values import Array, Floats, Integers

LEAST_ROWS = 10  # of a group
_PRODUCT_BITS = 56  # inner products stay below 2 to this power, which every scheme can hold


@dataclass(frozen=True, eq=False)
class Derived:
    """One column as integer columns.

    ``groups`` is 0 for a numeric column, with its ranks as the only integer column. Otherwise there
    is an indicator for each group but the largest, whose sums follow from the others.
    """

    columns: npt.NDArray[np.int32]
    groups: int = 0

    @property
    def profile(self) -> Profile:
        return Profile(self.groups, (self.columns.astype(np.int64) ** 2).sum(axis=0))


@dataclass(frozen=True, eq=False)
class Profile:
    """What the feature holder knows of any column, its own or a nameless one.

    ``lengths`` are the squared lengths of the derived columns: for an indicator its number of rows.
    """

    groups: int
    lengths: Integers

    def totals(self, rows: int) -> Integers:
        """The sum of each derived column, the largest group's included."""
        if not self.groups:
            return np.zeros(1, dtype=np.int64)
        return np.append(self.lengths, rows - self.lengths.sum())


def derive(values: pd.Series[Any], kind: Kind) -> Derived:
    """The integer columns of one column; a constant one becomes zeros."""
    codes = np.asarray(pd.factorize(values, sort=True)[0], dtype=np.int64)
    if kind is Kind.NUMERIC:
        return Derived(centre_ranks(codes).astype(np.int32)[:, None])
    groups = merge_small_groups(codes)
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        return Derived(np.zeros((len(codes), 1), dtype=np.int32))
    # The largest: coarse ranks need not add up to zero, and what is left over hardly counts there.
    kept = np.delete(np.arange(len(sizes)), sizes.argmax())
    return Derived((groups[:, None] == kept).astype(np.int32), len(sizes))


def orthonormalise(values: pd.Series[Any], kind: Kind) -> Floats:
    """Orthonormal columns of one column's space; a constant one becomes a column of zeros.

    For groups these are centred functions of the group: with √(group size / rows) as a unit vector
    w, the columns but the first of the reflection that takes −w to the first axis are orthonormal
    and orthogonal to w.
    """
    codes = np.asarray(pd.factorize(values, sort=True)[0], dtype=np.int64)
    if kind is Kind.NUMERIC:
        ranks = double_ranks(codes).astype(np.float64)
        length = float(np.sqrt(ranks @ ranks))
        return (ranks / length if length else ranks)[:, None]
    groups = merge_small_groups(codes)
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        return np.zeros((len(codes), 1))
    first = np.sqrt(sizes / len(codes))
    shifted = first + np.eye(len(sizes))[0]
    reflection = np.eye(len(sizes)) - np.outer(shifted, shifted) / (1 + first[0])
    return np.asarray((reflection[:, 1:] / np.sqrt(sizes)[:, None])[groups])


def centre_ranks(codes: Integers) -> Integers:
    """`double_ranks` so that products fit under encryption.

    With more than 2^18 rows ranks are divided by a power of two, the same at all parties.
    """
    return np.asarray(shift(double_ranks(codes), _coarsening(len(codes))))


def double_ranks(codes: Integers) -> Integers:
    """Twice the rank of each value less the mean rank, ties averaged; 0 for a missing cell.

    ``codes`` number the different values in their order, −1 is missing.
    """
    seen = codes[codes >= 0]
    counts = np.bincount(seen)
    # c equal values up to rank e have the mean rank e − (c − 1)/2; that of all is (n + 1)/2.
    doubled = 2 * np.cumsum(counts) - counts - len(seen)
    return np.asarray(np.append(doubled, 0)[codes])


def rank_bound(rows: int) -> int:
    """A bound on derived values, from the number of rows alone."""
    return 1 << (rows.bit_length() - _coarsening(rows))


def _coarsening(rows: int) -> int:
    """By how many bits ranks are shifted: rows · rank² must stay below 2^_PRODUCT_BITS."""
    bits = rows.bit_length()
    return max(bits - (_PRODUCT_BITS - bits) // 2, 0)


def merge_small_groups(codes: Integers, least: int = LEAST_ROWS) -> Integers:
    """Groups of at least ``least`` rows, numbered from 0; −1 (missing) is a group like others.

    Smaller groups become one; if that is still too small, it joins the smallest other group.
    """
    _, groups = np.unique(codes, return_inverse=True)
    sizes = np.bincount(groups)
    small = sizes < least
    if not small.any():
        return np.asarray(groups, dtype=np.int64)
    target = int(np.flatnonzero(small)[0])
    if sizes[small].sum() < least and not small.all():
        target = int(np.where(small, len(groups) + 1, sizes).argmin())
    _, merged = np.unique(np.where(small[groups], target, groups), return_inverse=True)
    return np.asarray(merged, dtype=np.int64)


def measure_strength(products: Integers, missing: Profile, given: Profile, rows: int) -> float:
    """The association of two columns, from 0 to 1.

    ``products`` are the inner products of the one's derived columns (down) with the other's. All
    measures are √(Σ product² / (length · length)), where both sides are centred.
    """
    down, across = missing.totals(rows), given.totals(rows)
    table = products
    if given.groups:
        rest = down[: len(table), None] - table.sum(axis=1, keepdims=True)
        table = np.hstack([table, rest])
    if missing.groups:
        table = np.vstack([table, across - table.sum(axis=0)])
    down = down if missing.groups else missing.lengths
    across = across if given.groups else given.lengths
    # Products of two lengths pass int64, so floats from here on.
    centred, scale = table.astype(np.float64), np.outer(down.astype(np.float64), across)
    most = 1
    if missing.groups and given.groups:
        centred = centred - scale / rows
        most = min(missing.groups, given.groups) - 1
    terms = np.divide(centred**2, scale, out=np.zeros_like(scale), where=scale > 0)
    # Sorted, so that the secret order of groups does not show in the last digit.
    explained = float(np.sort(terms, axis=None).sum()) / most
    return float(np.sqrt(np.clip(explained, 0.0, 1.0)))


def aggregate_strengths(strengths: Floats, how: str, k: int) -> Floats:
    """One number for each missing column (across) from those of all given columns (down)."""
    if how == "mean":
        return np.asarray(strengths.mean(axis=0))
    ordered = -np.sort(-strengths, axis=0)
    return np.asarray(ordered[: 1 if how == "max" else k].mean(axis=0))


def measure_strengths(
    products: Array, missing: Sequence[Profile], given: Sequence[Profile], rows: int
) -> Floats:
    """The association of each given column (down) with each missing column (across)."""
    downs = np.cumsum([0, *(len(profile.lengths) for profile in missing)])
    acrosses = np.cumsum([0, *(len(profile.lengths) for profile in given)])
    matrix = np.zeros((len(given), len(missing)))
    for q, theirs in enumerate(missing):
        band = products[downs[q] : downs[q + 1]]
        for a, own in enumerate(given):
            cell = band[:, acrosses[a] : acrosses[a + 1]]
            matrix[a, q] = measure_strength(cell, theirs, own, rows)
    return matrix
