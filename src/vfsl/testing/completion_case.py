"""What checks of completers and generators stand on: a small odd table, and the method to try."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl.completion.base import Completed, Completer, Generator, Table

# Writes a fitted model into a folder, and reads it back.
Saved = Callable[[Any, Path], Any]
NUMBERS = ("size", "count", "whole", "fixed")
CATEGORIES = ("colour", "grade", "flag")


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def whole_table(rows: int = 90, seed: int = 0) -> pd.DataFrame:
    """Decimal and whole numbers, text, ordered categories, truth values, a constant; all known."""
    source = rng(seed)
    colour = source.choice(["red", "green", "blue"], rows, p=[0.5, 0.3, 0.2])
    size = np.round(3.0 * (colour == "red") + source.normal(size=rows), 4)
    count = np.where(source.random(rows) < 0.3, 0, source.integers(1, 500, rows))
    grade = np.where(size > 1.5, "high", np.where(size > 0, "middle", "low"))
    return pd.DataFrame(
        {
            "size": size,
            "count": pd.array(count, dtype="Int64"),
            "colour": pd.Series(colour, dtype="str"),
            "whole": source.integers(-20, 20, rows),
            "grade": pd.Categorical(grade, ["low", "middle", "high", "never"], ordered=True),
            "flag": pd.array(source.random(rows) < 0.4, dtype="boolean"),
            "fixed": pd.array(np.full(rows, 5), dtype="Int64"),
        }
    )


def holed_table(rows: int = 90, seed: int = 0) -> pd.DataFrame:
    """The same with a block missing in a third of the rows, single cells, and an empty row."""
    frame = whole_table(rows, seed)
    order = rng(seed + 1).permutation(rows)
    block, single, empty = order[: rows // 3], order[rows // 3 : rows // 3 + 6], order[-1]
    for name in ("size", "count", "colour"):
        frame.loc[block, name] = None
    for row, name in zip(
        single, ("size", "colour", "grade", "flag", "fixed", "count"), strict=True
    ):
        frame.loc[row, name] = None
    frame.loc[empty, [name for name in frame.columns if name != "whole"]] = None
    return frame


class CompleterCase:
    """A completer to be checked.

    Parameters
    ----------
    make : callable
        Makes a fresh, unfitted completer with settings small enough to fit many times.
    draws : bool
        Whether filled cells depend on the seed. Where they do not, they must be the same for every
        seed, and follow their rows into another order.
    saved : callable, optional
        ``saved(model, folder)`` writes a fitted model and returns what it reads back. None: the
        method is not saved.
    rows : int
        Of the tables.
    """

    def __init__(
        self,
        make: Callable[[], Completer],
        *,
        draws: bool = True,
        saved: Saved | None = None,
        rows: int = 90,
    ) -> None:
        self.make, self.draws, self.saved = make, draws, saved
        self.whole, self.table = whole_table(rows), holed_table(rows)

    @cached_property
    def fitted(self) -> Completer:
        """Fitted once: checks may complete with it, and not fit it again."""
        return self.make().fit(self.table, rng(1))

    @cached_property
    def done(self) -> Completed:
        return self.fitted.complete(self.table, rng(2))

    def fit(self, table: Table, seed: int = 1) -> Completer:
        return self.make().fit(table, rng(seed))


class GeneratorCase:
    """A generator to be checked; parameters as of :class:`CompleterCase`.

    Parameters
    ----------
    make : callable
    saved : callable, optional
    rows : int
    """

    def __init__(
        self, make: Callable[[], Generator], *, saved: Saved | None = None, rows: int = 90
    ) -> None:
        self.make, self.saved = make, saved
        self.whole, self.table = whole_table(rows), holed_table(rows)

    @cached_property
    def fitted(self) -> Generator:
        """Fitted once: checks may sample from it, and not fit it again."""
        return self.make().fit(self.table, rng(1))

    def sample(self, n: int, seed: int = 2, given: Any = None) -> pd.DataFrame:
        return self.fitted.sample(n, rng(seed), given)
