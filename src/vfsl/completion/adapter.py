"""A generator as a completer: conditional means, probabilities and draws from its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from vfsl.completion.base import Completed, Filling, Generator, Table, as_table
from vfsl.completion.simple import columns_to_fill, restored
from vfsl.data import Encoder, PartyTable, codes
from vfsl.data.checks import check_count, check_rng, counted
from vfsl.data.codes import CategoryCode, NumericCode
from vfsl.errors import ConfigError, DataError
from vfsl.values import Array

_FEWEST_ROWS = 20


@dataclass
class GeneratorCompleter:
    """Complete a table by many samples of a generator under the known cells of each row.

    Parameters
    ----------
    generator : Generator
        Learns from the rows without a missing cell.
    draws : int
        Samples for each incomplete row: their mean and deviation, and their frequencies.
    """

    generator: Generator
    draws: int = 20

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Let the generator learn from the complete rows."""
        check_count("GeneratorCompleter", "draws", self.draws, 1)
        check_rng("GeneratorCompleter.fit", rng)
        known = as_table(table, type(self.generator).__name__)
        rows = np.flatnonzero(known.frame[known.features].notna().to_numpy().all(axis=1))
        if len(rows) < _FEWEST_ROWS:
            raise DataError(
                f"{type(self.generator).__name__} learns from complete rows and needs at least "
                f"{_FEWEST_ROWS}. Got {counted(len(rows), 'complete row')} instead; GAIN also "
                "learns from incomplete ones."
            )
        # The categories that can be given are those that the generator has seen.
        self.encoder_ = Encoder(missing="keep").fit(known, rows)
        self.generator.fit(known.take(rows), rng)
        return self

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """Means, most frequent categories and their spread over the draws."""
        asked, rows, samples = self._sampled(table, rng, self.draws)
        filling = Filling(asked)
        for code in columns_to_fill(self.encoder_, asked):
            column = samples[code.name]
            if isinstance(code, NumericCode):
                mean, spread = self._numbers(code, column, rows, len(asked))
                block = ((mean - code.mean) / code.deviation)[:, None]
                whole = codes.restore_numbers(block, code, clip=True)
                filling.number(code.name, whole, mean, spread, code.deviation)
            elif isinstance(code, CategoryCode):
                chances = self._categories(code, column, rows, len(asked))
                filling.category(code.name, restored(chances, code), list(code.levels), chances)
        return filling.done()

    def draw(self, table: Table, rng: np.random.Generator) -> pd.DataFrame:
        """The table with its missing cells filled by one sample a row: for distributions."""
        asked, rows, samples = self._sampled(table, rng, 1)
        filling = Filling(asked)
        for code in columns_to_fill(self.encoder_, asked):
            whole = pd.Series(np.full(len(asked), None, dtype=object))
            whole.iloc[rows] = samples[code.name].astype(object).to_numpy()
            column = whole.where(whole.notna(), None)
            unknown = np.full(len(asked), np.nan)
            if isinstance(code, NumericCode):
                numbers = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
                block = ((numbers - code.mean) / code.deviation)[:, None]
                typed = codes.restore_numbers(block, code, clip=True)
                filling.number(code.name, typed, numbers, unknown, code.deviation)
            elif isinstance(code, CategoryCode):
                places = codes.positions(column, code.levels)
                hot = codes.one_hot(places, places < 0, max(len(code.levels), 1))
                chances = np.nan_to_num(hot)[:, : len(code.levels)]
                filling.category(code.name, restored(chances, code), list(code.levels), chances)
        return filling.done().values

    def _sampled(
        self, table: Table, rng: np.random.Generator, draws: int
    ) -> tuple[PartyTable, Array, pd.DataFrame]:
        """The table, its incomplete rows, and samples for them: all first draws, all second…"""
        if not hasattr(self, "encoder_"):
            raise ConfigError("GeneratorCompleter is not fitted yet: call fit first.")
        asked = as_table(table, type(self.generator).__name__)
        check_rng("GeneratorCompleter.complete", rng)
        columns_to_fill(self.encoder_, asked)
        frame = asked.frame[asked.features]
        rows = np.flatnonzero(frame.isna().to_numpy().any(axis=1))
        given = pd.concat([self._seen(frame.iloc[rows])] * draws, ignore_index=True)
        samples = self.generator.sample(len(given), rng, given=given)
        return asked, rows, samples

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

    def _numbers(
        self, code: NumericCode, column: pd.Series[Any], rows: Array, count: int
    ) -> tuple[Array, Array]:
        mean, spread = np.full(count, np.nan), np.full(count, np.nan)
        if len(rows):
            drawn = codes.as_floats(column).reshape(self.draws, len(rows))
            mean[rows] = drawn.mean(axis=0)
            spread[rows] = drawn.std(axis=0) if self.draws > 1 else np.nan
        return mean, spread

    def _categories(
        self, code: CategoryCode, column: pd.Series[Any], rows: Array, count: int
    ) -> Array:
        chances = np.zeros((count, max(len(code.levels), 1)))
        places = codes.positions(column, code.levels).reshape(self.draws, len(rows))
        for drawn in places:
            able = drawn >= 0
            chances[rows[able], drawn[able]] += 1 / self.draws
        return chances[:, : len(code.levels)]
