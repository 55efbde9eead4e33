"""Completers without networks of their own: mean and mode, hot-deck, and samples of a generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from vfsl.completion.base import Completed, Filling, Generator, Table, as_table, columns_to_fill
from vfsl.data import Encoder, PartyTable, codes
from vfsl.data.checks import check_rng, counted
from vfsl.data.codes import CategoryCode, NumericCode
from vfsl.errors import ConfigError, DataError
from vfsl.params import check_params, documented, param
from vfsl.values import Array

_CHUNK = 1_000  # rows whose distances to all donors are in memory at a time
_FEWEST_ROWS = 20


@dataclass
class MeanMode:
    """Fill numbers by their mean and categories by the most frequent one.

    The honest floor: no row is told apart, yet no other constant has a smaller squared error.

    Attributes
    ----------
    encoder_ : Encoder
        Means of the known cells.
    frequencies_ : dict of str to array
        Of each category, by column.
    """

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Learn means and frequencies of the known cells."""
        known = as_table(table, "MeanMode")
        check_rng("MeanMode.fit", rng)
        self.encoder_ = Encoder(missing="keep").fit(known)
        self.frequencies_: dict[str, Array] = {}
        for code in self.encoder_.codes_:
            if isinstance(code, CategoryCode):
                places = codes.positions(known.column(code.name).dropna(), code.levels)
                counts = np.bincount(places, minlength=len(code.levels)).astype(np.float64)
                self.frequencies_[code.name] = counts / max(counts.sum(), 1.0)
        return self

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """The same value for every missing cell of a column."""
        if not hasattr(self, "encoder_"):
            raise ConfigError("MeanMode is not fitted yet: call fit first.")
        asked = as_table(table, "MeanMode")
        filling = Filling(asked)
        for code in columns_to_fill(self.encoder_, asked):
            if isinstance(code, NumericCode):
                # Of a column without any value nothing is known, and its cells stay missing.
                mean, spread = (code.mean, code.deviation) if code.seen else (np.nan, np.nan)
                filling.fill_number(code, np.full(len(asked), mean), spread)
            else:
                chances = np.tile(self.frequencies_[code.name], (len(asked), 1))
                filling.fill_category(code, chances)
        return filling.finish()


@documented
@dataclass
class HotDeck:
    """Fill the missing cells of a row from one donor row, drawn at random.

    Donors have all the cells that the row lacks.
    """

    neighbours: int | None = param(
        None,
        "Draw the donor among so many rows that are nearest by the known cells; None: among all.",
        ge=1,
    )

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Keep the donors."""
        check_rng("HotDeck.fit", rng)
        check_params(self)
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
        chosen = np.zeros(len(asked), dtype=np.intp)
        has = self.donors_.frame[names].notna().to_numpy()
        points = self._locate(asked) if self.neighbours else np.empty((len(asked), 0))
        absent = asked.frame[names].isna().to_numpy()
        patterns, which = np.unique(absent, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            rows = np.flatnonzero(which.ravel() == number)
            if pattern.any():
                able = np.flatnonzero(has[:, pattern].all(axis=1))
                chosen[rows] = self._draw_donors(able, points[rows], rng)
        filling = Filling(asked)
        for code in columns:
            given = self.donors_.column(code.name).iloc[chosen].reset_index(drop=True)
            if isinstance(code, NumericCode):
                filling.fill_number(code, codes.as_floats(given), np.nan, given)
            else:
                places = codes.positions(given, code.levels)
                hot = codes.one_hot(places, places < 0, len(code.levels))
                filling.fill_category(code, hot, given, sure=False)
        return filling.finish()

    def draw(self, table: Table, rng: np.random.Generator) -> pd.DataFrame:
        """The table with its missing cells filled: donors are draws already."""
        return self.complete(table, rng).values

    def _draw_donors(self, able: Array, points: Array, rng: np.random.Generator) -> Array:
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

    def _locate(self, asked: PartyTable) -> Array:
        """The asked rows in the donors' coordinates; columns that they lack are missing."""
        matrix = np.full((len(asked), len(self.encoder_.names)), np.nan)
        empty = {name for name in asked.features if asked.column(name).isna().all()}
        partial = Encoder(missing="keep")
        partial.codes_ = [c for c in self.encoder_.codes_ if c.name in {*asked.kinds} - empty]
        partial.party_, partial.findings_ = asked.party, []
        encoded = partial.transform(asked)
        for name, where in encoded.groups.items():
            matrix[:, self.encoder_.groups[name]] = encoded.matrix[:, where]
        return matrix


@documented
@dataclass
class GeneratorCompleter:
    """Complete a table by many samples of a generator under the known cells of each row.

    The generator learns from the rows without a missing cell.
    """

    generator: Generator
    draws: int = param(
        20, "Samples per incomplete row: their mean and deviation, and their frequencies.", ge=1
    )

    def expect_missing(self, columns: Sequence[str]) -> None:
        """Tell the generator, before it learns, which columns will be missing together."""
        expect = getattr(self.generator, "expect_missing", None)
        if expect is not None:
            expect(columns)

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Let the generator learn from the complete rows."""
        check_params(self)
        check_rng("GeneratorCompleter.fit", rng)
        name = type(self.generator).__name__
        known = as_table(table, name)
        rows = np.flatnonzero(known.frame[known.features].notna().to_numpy().all(axis=1))
        if len(rows) < _FEWEST_ROWS:
            raise DataError(
                f"{name} learns from complete rows and needs at least {_FEWEST_ROWS}. Got "
                f"{counted(len(rows), 'complete row')} instead; GAIN also learns from incomplete "
                "ones."
            )
        # The categories that can be given are those that the generator has seen.
        self.encoder_ = Encoder(missing="keep").fit(known, rows)
        self.generator.fit(known.take(rows), rng)
        return self

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """Means, most frequent categories and their spread over the draws."""
        return self._fill(table, rng, self.draws)

    def draw(self, table: Table, rng: np.random.Generator) -> pd.DataFrame:
        """The table with its missing cells filled by one sample per row: for distributions."""
        return self._fill(table, rng, 1).values

    def _fill(self, table: Table, rng: np.random.Generator, draws: int) -> Completed:
        if not hasattr(self, "encoder_"):
            raise ConfigError("GeneratorCompleter is not fitted yet: call fit first.")
        asked = as_table(table, type(self.generator).__name__)
        check_rng("GeneratorCompleter.complete", rng)
        columns = columns_to_fill(self.encoder_, asked)
        frame = asked.frame[asked.features]
        rows = np.flatnonzero(frame.isna().to_numpy().any(axis=1))
        # All first draws, then all second ones…
        given = pd.concat([self._seen(frame.iloc[rows])] * draws, ignore_index=True)
        samples = self.generator.sample(len(given), rng, given=given)
        filling = Filling(asked)
        for code in columns:
            sampled = samples[code.name]
            if isinstance(code, NumericCode):
                means, spread = np.full((2, len(asked)), np.nan)
                if len(rows):
                    drawn = codes.as_floats(sampled).reshape(draws, len(rows))
                    means[rows] = drawn.mean(axis=0)
                    spread[rows] = drawn.std(axis=0) if draws > 1 else np.nan
                filling.fill_number(code, means, spread)
            else:
                chances = np.zeros((len(asked), len(code.levels)))
                for places in codes.positions(sampled, code.levels).reshape(draws, len(rows)):
                    able = places >= 0
                    chances[rows[able], places[able]] += 1 / draws
                filling.fill_category(code, chances)
        return filling.finish()

    def _seen(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Categories that were not in training cannot be given; their cells stay as they are."""
        columns: dict[str, Any] = {}
        for code in self.encoder_.codes_:
            if code.name not in frame.columns:
                continue
            values = frame[code.name]
            if isinstance(code, CategoryCode):
                values = values.where(codes.positions(values, code.levels) >= 0)
            columns[code.name] = values
        return pd.DataFrame(columns).reset_index(drop=True)
