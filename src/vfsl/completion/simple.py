"""The completers that every other must beat: mean and mode, and hot-deck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from vfsl.completion.base import Completed, Filling, Table, as_table
from vfsl.data import Encoder, PartyTable, codes
from vfsl.data.checks import check_rng
from vfsl.data.codes import CategoryCode, NumericCode
from vfsl.errors import ConfigError, DataError
from vfsl.values import Array

_CHUNK = 1_000  # rows whose distances to all donors are in memory at a time


@dataclass
class MeanMode:
    """Fill numbers by their mean and categories by the most frequent one.

    The honest floor: no row is told apart, yet no other constant has a smaller squared error.

    Attributes
    ----------
    encoder_ : Encoder
        Means and frequencies of the known cells.
    """

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Learn means and frequencies of the known cells."""
        known = as_table(table, "MeanMode")
        check_rng("MeanMode.fit", rng)
        self.encoder_ = Encoder(missing="keep").fit(known)
        self.frequencies_ = {
            code.name: _frequencies(known, code)
            for code in self.encoder_.codes_
            if isinstance(code, CategoryCode)
        }
        return self

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """The same value for every missing cell of a column."""
        if not hasattr(self, "encoder_"):
            raise ConfigError("MeanMode is not fitted yet: call fit first.")
        asked = as_table(table, "MeanMode")
        filling = Filling(asked)
        ones = np.ones(len(asked))
        for code in columns_to_fill(self.encoder_, asked):
            if isinstance(code, NumericCode):
                block = np.zeros((len(asked), 1))
                # Of a column without any value nothing is known, and its cells stay missing.
                mean, spread = (code.mean, code.deviation) if code.seen else (np.nan, np.nan)
                column = codes.restore_numbers(block, code, clip=True)
                filling.number(code.name, column, mean * ones, spread * ones, code.deviation)
            elif isinstance(code, CategoryCode):
                chances = np.tile(self.frequencies_[code.name], (len(asked), 1))
                filling.category(code.name, restored(chances, code), list(code.levels), chances)
        return filling.done()


@dataclass
class HotDeck:
    """Fill the missing cells of a row from one donor row, drawn at random.

    Parameters
    ----------
    neighbours : int, optional
        Draw the donor among that many nearest rows by the known cells; None draws among all
        donors. Donors have all the cells that the row lacks.
    """

    neighbours: int | None = None

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Keep the donors."""
        check_rng("HotDeck.fit", rng)
        if self.neighbours is not None and self.neighbours < 1:
            raise ConfigError(
                "The neighbours parameter of HotDeck must be None or at least 1. "
                f"Got {self.neighbours!r} instead."
            )
        self.donors_ = as_table(table, "HotDeck")
        self.encoder_ = Encoder(missing="keep").fit(self.donors_)
        self._points = self.encoder_.transform(self.donors_).matrix
        return self

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """Draw a donor for each row that lacks something."""
        if not hasattr(self, "donors_"):
            raise ConfigError("HotDeck is not fitted yet: call fit first.")
        asked = as_table(table, "HotDeck")
        check_rng("HotDeck.complete", rng)
        columns = columns_to_fill(self.encoder_, asked)
        names = [code.name for code in self.encoder_.codes_ if code.name in asked.kinds]
        absent = asked.frame[names].isna().to_numpy()
        chosen = np.zeros(len(asked), dtype=np.intp)
        has = self.donors_.frame[names].notna().to_numpy()
        points = _points(self.encoder_, asked) if self.neighbours else np.empty((len(asked), 0))
        patterns, which = np.unique(absent, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            rows = np.flatnonzero(which.ravel() == number)
            if pattern.any():
                chosen[rows] = self._donors(has, pattern, points[rows], rng)
        filling = Filling(asked)
        for code in columns:
            given = self.donors_.column(code.name).iloc[chosen].reset_index(drop=True)
            if isinstance(code, NumericCode):
                numbers = codes.as_floats(given)
                unknown = np.full(len(asked), np.nan)
                filling.number(code.name, given, numbers, unknown, code.deviation)
            elif isinstance(code, CategoryCode):
                places = codes.positions(given, code.levels)
                hot = codes.one_hot(places, places < 0, max(len(code.levels), 1))
                filling.category(code.name, given, list(code.levels), hot[:, : len(code.levels)])
                filling.confidence[code.name] = np.where(
                    asked.column(code.name).isna(), np.nan, 1.0
                )
        return filling.done()

    def _donors(self, has: Array, pattern: Array, points: Array, rng: np.random.Generator) -> Array:
        able = np.flatnonzero(has[:, pattern].all(axis=1))
        if not able.size:
            raise DataError(
                "HotDeck has no donor row with all the cells that some rows lack; use MeanMode."
            )
        if self.neighbours is None:
            return np.asarray(able[rng.integers(0, len(able), len(points))])
        from sklearn.metrics.pairwise import nan_euclidean_distances

        count = min(self.neighbours, len(able))
        near = []
        for start in range(0, len(points), _CHUNK):
            away = nan_euclidean_distances(points[start : start + _CHUNK], self._points[able])
            # Rows that share no known cell with a donor are infinitely far from it.
            away = np.nan_to_num(away, nan=np.inf)
            near.append(np.argpartition(away, count - 1, axis=1)[:, :count])
        nearest = np.concatenate(near)
        return np.asarray(
            able[nearest[np.arange(len(points)), rng.integers(0, count, len(points))]]
        )


def columns_to_fill(encoder: Encoder, asked: PartyTable) -> list[NumericCode | CategoryCode]:
    """The learned columns that a table has; its other columns are refused."""
    known = {code.name: code for code in encoder.codes_}
    for name in asked.features:
        if name not in known:
            raise DataError(f"Column {name!r} was not in the table that the completer learned.")
        # A column without any cell has the kind that pandas happened to give it.
        learned = known[name].kind
        if asked.kinds[name] is not learned and asked.column(name).notna().any():
            raise DataError(
                f"Column {name!r} of party {asked.party} must be {learned}, as in training. Got "
                f"{asked.kinds[name]} instead; declare its kind."
            )
    found = [known[name] for name in asked.features]
    return [code for code in found if isinstance(code, NumericCode | CategoryCode)]


def restored(chances: Array, code: CategoryCode) -> pd.Series[Any]:
    """The most probable category of each row, in the column's type."""
    if not code.used:
        return codes.restore_categories(np.empty((len(chances), 0)), code)
    hot = np.zeros_like(chances)
    hot[np.arange(len(chances)), chances.argmax(axis=1)] = 1.0
    return codes.restore_categories(hot, code)


def _frequencies(table: PartyTable, code: CategoryCode) -> Array:
    places = codes.positions(table.column(code.name).dropna(), code.levels)
    counts = np.bincount(places, minlength=max(len(code.levels), 1)).astype(np.float64)
    return np.asarray(counts[: len(code.levels)] / max(counts.sum(), 1.0))


def _points(encoder: Encoder, asked: PartyTable) -> Array:
    """The asked rows in the donors' coordinates; columns that they lack are missing."""
    matrix = np.full((len(asked), len(encoder.names)), np.nan)
    empty = {name for name in asked.features if asked.column(name).isna().all()}
    present = [code for code in encoder.codes_ if code.name in {*asked.kinds} - empty]
    partial = Encoder(missing="keep")
    partial.codes_, partial.party_, partial.findings_ = present, asked.party, []
    encoded = partial.transform(asked)
    for name, where in encoded.groups.items():
        matrix[:, encoder.groups[name]] = encoded.matrix[:, where]
    return matrix
