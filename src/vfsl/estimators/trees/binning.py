"""Columns as small integer codes, and sums by code: histograms of one's own columns.

Numbers become quantile bins; each category gets a code, and so do missing cells. Each party bins
its own columns once, by its own training rows, and keeps the edges in its share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from vfsl.crypto.sums import sum_by_place
from vfsl.data import Kind, PartyTable
from vfsl.data.codes import as_floats
from vfsl.values import Array, Integers

MOST_BINS = 255
_TOGETHER = 1 << 15  # rows that are summed at a time


@dataclass(frozen=True)
class Column:
    """How one column is cut: by edges if it has an order, by levels if it has not.

    Parameters
    ----------
    name : str
    edges : list of float
        Of an ordered column, ascending: bin b holds what is above edge b − 1 and up to edge b.
    levels : list, optional
        Of a categorical column: the categories, in the order of their codes.
    ordered : bool
        Whether a split sends consecutive bins to the left, or a single category.
    missing : bool
        Whether training rows lacked it.
    """

    name: str
    edges: list[float]
    levels: list[Any] | None
    ordered: bool
    missing: bool

    @property
    def size(self) -> int:
        """How many bins, without the one for missing cells."""
        return len(self.levels) if self.levels is not None else len(self.edges) + 1

    def codes(self, values: pd.Series[Any]) -> Array:
        """The bin of each cell; missing and unseen ones get the code ``size``."""
        if self.levels is not None:
            places = pd.Index(self.levels).get_indexer(pd.Index(values.astype(object)))
            return np.where(places < 0, self.size, places).astype(np.uint8)
        numbers = as_floats(values)
        found = np.searchsorted(np.asarray(self.edges), numbers, side="left")
        return np.where(np.isnan(numbers), self.size, found).astype(np.uint8)

    def describe(self, code: int) -> dict[str, Any]:
        """What goes left in a split at this code, for people."""
        if not self.ordered:
            levels = self.levels or []
            return {"column": self.name, "equals": levels[code] if code < len(levels) else None}
        if self.levels is not None:
            return {"column": self.name, "in": self.levels[: code + 1]}
        last = code >= len(self.edges)
        return {"column": self.name, "at most": None if last else self.edges[code]}


@dataclass(frozen=True)
class Bins:
    """The cuts of all columns of a party."""

    columns: tuple[Column, ...]

    @classmethod
    def fit(cls, table: PartyTable, most: int, categories: str) -> Bins:
        """Cut each feature of a table; constant columns without gaps say nothing and are left out.

        Parameters
        ----------
        table : PartyTable
            The training rows.
        most : int
            Maximum number of bins per column, 2 to 255. Rarer categories beyond that get the code
            of missing cells.
        categories : {"one-vs-rest", "sorted"}
            A split on a categorical column sends one category to the left, or all categories up to
            one in their natural order.
        """
        made = []
        for name in table.features:
            values = table.column(name)
            column = (
                _cut_numbers(name, values, most)
                if table.kinds[name] is Kind.NUMERIC
                else _cut_categories(name, values, most, categories)
            )
            if column.size + column.missing > 1:
                made.append(column)
        return cls(tuple(made))

    @property
    def width(self) -> int:
        """Codes of the longest column, with that of missing cells; every column gets as many."""
        return max((column.size for column in self.columns), default=0) + 1

    def transform(self, table: PartyTable) -> Array:
        """Codes of all cells, (rows, columns); cells of a column lie next to each other."""
        coded = [column.codes(table.column(column.name)) for column in self.columns]
        if not coded:
            return np.zeros((len(table), 0), dtype=np.uint8)
        return np.stack(coded).T

    def to_dict(self) -> list[dict[str, Any]]:
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_dict(cls, content: list[dict[str, Any]]) -> Bins:
        return cls(tuple(Column(**column) for column in content))


def _cut_numbers(name: str, values: pd.Series[Any], most: int) -> Column:
    numbers = as_floats(values)
    known = numbers[~np.isnan(numbers)]
    return Column(name, cut_quantiles(known, most), None, True, len(known) < len(numbers))


def _cut_categories(name: str, values: pd.Series[Any], most: int, categories: str) -> Column:
    known = values.dropna().astype(object)
    counts = known.value_counts(sort=False)
    # The most frequent ones; of equally frequent ones those that come first in their order.
    ordered = counts.sort_index(key=lambda index: index.map(str))
    kept = ordered.sort_values(ascending=False, kind="stable").index[:most]
    levels = [level for level in ordered.index if level in set(kept)]
    if isinstance(values.dtype, pd.CategoricalDtype) and values.dtype.ordered:
        levels = [level for level in values.dtype.categories if level in set(levels)]
    levels = [level.item() if isinstance(level, np.generic) else level for level in levels]
    rare = len(counts) > len(levels)
    missing = rare or len(known) < len(values)
    return Column(name, [], levels, categories == "sorted", missing)


def cut_quantiles(values: Array, most: int) -> list[float]:
    """Edges that spread the rows evenly; a frequent value gets a bin to itself.

    Edges lie halfway between neighbouring values, so that unseen values fall to the nearer side.
    """
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) < 2:
        return []
    middles = distinct[:-1] / 2 + distinct[1:] / 2  # a difference might not fit a double
    if len(distinct) <= most:
        return _separate(distinct, middles, np.arange(len(distinct) - 1))
    frequent = counts >= counts.sum() / most
    for bins in range(most - int(frequent.sum()), 0, -1):
        small = np.where(frequent, 0, counts)
        place = (np.cumsum(small) - small / 2) / (small.sum() / bins)
        part = np.floor(np.minimum(place, bins - 1))
        cut = frequent[:-1] | frequent[1:] | (part[:-1] != part[1:])
        if cut.sum() < most:
            return _separate(distinct, middles, np.flatnonzero(cut))
    return _separate(distinct, middles, np.flatnonzero(frequent[:-1])[: most - 1])


def _separate(distinct: Array, middles: Array, at: Array) -> list[float]:
    """Edges after these values, each below the next value."""
    # Where two neighbours are so close that the middle is one of them, it must be the lower one.
    edges = np.where(middles[at] >= distinct[at + 1], distinct[at], middles[at])
    return [float(edge) for edge in edges]


class Histograms:
    """The codes of a party's columns, ready to be summed for any rows.

    Parameters
    ----------
    codes : integer array of shape (rows, columns)
    width : int
        Codes per column.
    """

    def __init__(self, codes: Array, width: int) -> None:
        self.shape: tuple[int, int] = (codes.shape[1], width)
        # One number for column and code, so that one pass serves all columns.
        base = np.arange(codes.shape[1], dtype=np.int32) * np.int32(width)
        self._places = np.add(codes, base, dtype=np.int32, order="C")

    def counts(self, rows: Sequence[Array]) -> Integers:
        """How many of each node's rows are in each bin, (nodes, columns, width)."""
        if all(len(each) == len(self._places) for each in rows):  # roots
            return np.broadcast_to(self._all_counts, (len(rows), *self.shape))
        return self._count(rows)

    def add_up(self, rows: Sequence[Array], values: Sequence[Integers]) -> Integers:
        """Of each node's rows in each bin the sum and the number, (nodes, 2, columns, width).

        ``values`` has for each node a number for each of its rows.
        """
        return np.stack([self.sums(rows, values), self.counts(rows)], axis=1)

    def sums(self, rows: Sequence[Array], values: Sequence[Array]) -> Integers:
        """Of each node's rows in each bin the sum of values, (nodes, columns, width).

        Some rows at a time, so that their places stay in the processor's cache.
        """
        size, lengths = math.prod(self.shape), [len(each) for each in rows]
        node = np.repeat(np.arange(len(rows)), lengths)
        found: Integers = np.zeros((len(rows), size), dtype=values[0].dtype)
        here, numbers = np.concatenate(rows), np.concatenate(values)
        for start in range(0, len(here), _TOGETHER):
            some = slice(start, min(start + _TOGETHER, len(here)))
            first, last = int(node[some.start]), int(node[some.stop - 1])
            count = (last - first + 1) * size
            if len(rows) == 1 and len(here) == len(self._places):
                places = self._places[some]  # the rows of a node rise, and none comes twice
            else:
                # Much faster than an index in brackets.
                places = self._places.take(here[some], axis=0)
            if last > first:
                places = _widen(places, count)
                places += ((node[some] - first) * size).astype(places.dtype)[:, None]
            summed = sum_by_place(places, numbers[some], count)
            found[first : last + 1] += summed.reshape(last - first + 1, size)
        return found.reshape(len(rows), *self.shape)

    @cached_property
    def _all_counts(self) -> Integers:
        return np.asarray(self._count([np.arange(len(self._places))])[0])

    def _count(self, rows: Sequence[Array]) -> Integers:
        ones = [np.ones(len(each), dtype=np.int32) for each in rows]
        return self.sums(rows, ones).astype(np.int64)


def _widen(places: Array, count: int) -> Array:
    """Places as they are, or as wider numbers where the narrow ones cannot count so far."""
    return places if count <= np.iinfo(places.dtype).max else places.astype(np.int64)
