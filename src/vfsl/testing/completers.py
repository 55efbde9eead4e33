"""What every completer must do: checks for the author of a method, run on all of ours.

Each check takes a :class:`CompleterCase` and raises AssertionError where the completer breaks the
contract. ``COMPLETER_CHECKS`` names them all::

    case = CompleterCase(lambda: MyCompleter(epochs=2))

    @pytest.mark.parametrize("check", COMPLETER_CHECKS.values(), ids=COMPLETER_CHECKS.keys())
    def test_contract(check):
        check(case)
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl.completion.base import Completed
from vfsl.data import PartyTable
from vfsl.testing.claims import (
    require,
    require_refusal,
    require_same_frames,
    require_untouched_randomness,
)
from vfsl.testing.completion_case import CATEGORIES, NUMBERS, CompleterCase, rng

__all__ = ["COMPLETER_CHECKS", "CompleterCase"]

PARTS = ("values", "means", "spread", "confidence", "filled")


def keeps_known_cells(case: CompleterCase) -> None:
    """Cells that were known are what they were, whatever the index of the table."""
    _same_known(case.table, case.done, "of the completed table")
    mixed = case.table.sample(frac=1.0, random_state=3)
    _same_known(mixed, case.fitted.complete(mixed, rng(2)), "of a table with a shuffled index")


def _same_known(table: pd.DataFrame, done: Completed, where: str) -> None:
    require(
        list(done.values.columns) == list(table.columns) and len(done.values) == len(table),
        f"The columns and rows {where} must be those of the given one. Got "
        f"{list(done.values.columns)} and {len(done.values)} rows instead.",
    )
    require(
        list(done.values.index) == list(range(len(table))),
        f"The rows {where} must be numbered from 0, in the given order.",
    )
    for name in table.columns:
        known = table[name].notna().to_numpy()
        before = table[name].astype(object).to_numpy()[known]
        after = done.values[name].astype(object).to_numpy()[known]
        require(list(before) == list(after), f"Known cells of {name!r} {where} have changed.")


def keeps_types(case: CompleterCase) -> None:
    """Columns have the type they had: whole numbers are whole, categories and truth values too."""
    for name in case.table.columns:
        before, after = case.table[name].dtype, case.done.values[name].dtype
        require(before == after, f"Column {name!r} was {before} and came back as {after}.")


def fills_within_bounds(case: CompleterCase) -> None:
    """Filled numbers lie between the least and the greatest known one."""
    for name in NUMBERS:
        known, filled = case.table[name].dropna(), case.done.values[name]
        require(
            bool(filled.dropna().between(known.min(), known.max()).all()),
            f"Column {name!r} was filled from {filled.min()} to {filled.max()}; known cells lie "
            f"from {known.min()} to {known.max()}.",
        )


def fills_with_known_categories(case: CompleterCase) -> None:
    """Filled categories are some that were seen."""
    for name in CATEGORIES:
        seen = set(case.table[name].dropna())
        strange = set(case.done.values[name].dropna()) - seen
        require(not strange, f"Column {name!r} was filled with {strange}; seen were {seen}.")


def leaves_nothing_missing(case: CompleterCase) -> None:
    """Every column had known cells, so every missing one is filled, in empty rows too."""
    for name in case.table.columns:
        left = int(case.done.values[name].isna().sum())
        require(left == 0, f"Column {name!r} still lacks {left} cells.")


def fills_constant_columns(case: CompleterCase) -> None:
    """A column with one value is filled with that value."""
    require(bool((case.done.values["fixed"] == 5).all()), "A constant column was filled with more.")


def says_how_sure_it_is(case: CompleterCase) -> None:
    """Means, spread, probabilities and confidence fit the values, and say which cells are new."""
    done, missing = case.done, case.table.isna()
    require_same_frames(done.filled, missing, "The filled cells must be those that were missing.")
    for name in NUMBERS:
        _check_number(done, name, missing[name].to_numpy())
    for name in CATEGORIES:
        require(name in done.probabilities, f"There are no probabilities of {name!r}.")
        _check_category(done, name)
    sure = done.confidence.to_numpy(dtype=np.float64)
    stated = sure[~np.isnan(sure)]
    require(bool(((stated >= 0) & (stated <= 1)).all()), "Confidence must lie from 0 to 1.")
    require(bool((sure[~missing.to_numpy()] == 1).all()), "Known cells have a confidence of 1.")


def _check_number(done: Completed, name: str, missing: Any) -> None:
    means = done.means[name].to_numpy(dtype=np.float64)
    values = done.values[name].to_numpy(dtype=np.float64, na_value=np.nan)
    spread = done.spread[name].to_numpy(dtype=np.float64)
    rounding = 1e-9 if name == "size" else 0.5 + 1e-9
    require(
        bool((np.abs(means - values) <= rounding).all()),
        f"Values of {name!r} must be their means, rounded where the column is whole.",
    )
    require(
        bool((spread[~missing] == 0).all()) and not bool((spread < 0).any()),
        f"The spread of {name!r} must be 0 where the cell was known, and never negative.",
    )


def _check_category(done: Completed, name: str) -> None:
    chances = done.probabilities[name]
    table = chances.to_numpy(dtype=np.float64)
    require(
        len(chances) == len(done.values) and bool(np.allclose(table.sum(axis=1), 1.0, atol=1e-6)),
        f"The probabilities of {name!r} must add up to 1 in each row.",
    )
    place = {level: at for at, level in enumerate(chances.columns)}
    chosen = [place.get(value, -1) for value in done.values[name]]
    require(-1 not in chosen, f"The probabilities of {name!r} lack a category that was filled in.")
    best = table[np.arange(len(table)), chosen]
    require(
        bool((best >= table.max(axis=1) - 1e-9).all()),
        f"Values of {name!r} must be the most probable categories.",
    )


def keeps_the_order_of_rows(case: CompleterCase) -> None:
    """Row i of the answer is row i of the table; what is filled follows the row."""
    backwards = np.arange(len(case.table))[::-1]
    turned = case.table.iloc[backwards].reset_index(drop=True)
    done = case.fitted.complete(turned, rng(2))
    _same_known(turned, done, "of a table turned upside down")
    if not case.draws:
        expected = case.done.values.iloc[backwards].reset_index(drop=True)
        require_same_frames(done.values, expected, "Filled cells do not follow their rows.")


def repeats(case: CompleterCase) -> None:
    """The same seeds give the same answer, from the same model and from one fitted anew."""
    _same(case.done, case.fitted.complete(case.table, rng(2)), "Completing twice differs.")
    again = case.fit(case.table).complete(case.table, rng(2))
    _same(case.done, again, "Fitting twice with one seed differs.")


def draws_by_the_seed(case: CompleterCase) -> None:
    """Another seed draws otherwise, or changes nothing where the method does not draw."""
    other = case.fitted.complete(case.table, rng(3))
    if not case.draws:
        _same(case.done, other, "The method says that it does not draw, but the seed matters.")
        return
    numbers = other.means.equals(case.done.means)
    chances = all(
        other.probabilities[name].equals(table) for name, table in case.done.probabilities.items()
    )
    require(not (numbers and chances), "Two seeds filled all cells alike; the seed is not used.")


def leaves_global_randomness_alone(case: CompleterCase) -> None:
    """Nobody else's draws change, and nobody else changes ours."""
    model = case.make()
    with require_untouched_randomness():
        model.fit(case.table, rng(1)).complete(case.table, rng(2))


def leaves_the_table_alone(case: CompleterCase) -> None:
    """Neither fitting nor completing changes the table that was given."""
    given = case.table.copy(deep=True)
    model = case.fit(given)
    require_same_frames(given, case.table, "Fitting has changed the table.")
    model.complete(given, rng(2))
    require_same_frames(given, case.table, "Completing has changed the table.")


def returns_whole_tables_as_they_are(case: CompleterCase) -> None:
    """A table without missing cells comes back."""
    done = case.fitted.complete(case.whole, rng(2))
    require_same_frames(done.values, case.whole, "A table without missing cells came back changed.")
    require(not bool(done.filled.to_numpy().any()), "Cells of a whole table count as filled.")


def completes_one_row(case: CompleterCase) -> None:
    """One row is a table too."""
    lacking = case.table[case.table["size"].isna()].iloc[[0]]
    done = case.fitted.complete(lacking, rng(2))
    _same_known(lacking, done, "of a table of one row")
    require(not bool(done.values.isna().to_numpy().any()), "A single row was not filled.")


def completes_some_of_the_columns(case: CompleterCase) -> None:
    """Columns may come in another order, and some may be absent."""
    some = case.table[["grade", "count", "colour", "whole"]]
    done = case.fitted.complete(some, rng(2))
    _same_known(some, done, "of some of the columns in another order")
    require(not bool(done.values.isna().to_numpy().any()), "Some of the columns were not filled.")


def fills_columns_without_a_cell(case: CompleterCase) -> None:
    """Columns that are all to be completed have no type of their own; they get the learned one."""
    table = case.table.copy()
    for name in ("size", "count", "colour", "flag"):
        table[name] = pd.Series([None] * len(table), dtype=object)
    values = case.fitted.complete(table, rng(2)).values
    require(not bool(values.isna().to_numpy().any()), "Columns without a cell were not filled.")
    for name in values.columns:
        before, after = case.table[name].dtype, values[name].dtype
        require(before == after, f"Column {name!r} was learned as {before} and filled as {after}.")


def keeps_unseen_categories(case: CompleterCase) -> None:
    """A category that was not learned stays where it is, and is not filled in elsewhere."""
    table = case.table.copy()
    row = int(np.flatnonzero(table["colour"].notna().to_numpy())[0])
    table.loc[row, "colour"] = "violet"
    colours = list(case.fitted.complete(table, rng(2)).values["colour"])
    require(colours[row] == "violet", "A category that was not learned has been replaced.")
    require(colours.count("violet") == 1, "A category that was not learned has been filled in.")


def takes_party_tables(case: CompleterCase) -> None:
    """A party's table gives what its columns give as a DataFrame; its labels are left out."""
    labelled = case.table.assign(id=np.arange(len(case.table)), goal=1)
    table = PartyTable.from_frame(labelled, party="B", id="id", label="goal")
    done = case.fit(table).complete(table, rng(2))
    _same(case.done, done, "A party's table is completed otherwise than its columns.")


def saves_and_loads(case: CompleterCase) -> None:
    """What is read back completes as what was written; a method need not be saved."""
    if case.saved is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        loaded = case.saved(case.fitted, Path(folder))
    require(loaded is not case.fitted, "Loading must make a model anew.")
    _same(case.done, loaded.complete(case.table, rng(2)), "The loaded model completes otherwise.")


def refuses_bad_input(case: CompleterCase) -> None:
    """What cannot be used is refused in a sentence, not by an error from deep inside."""
    table, model = case.table, case.fitted
    require_refusal("no rows to learn from", lambda: case.fit(table.iloc[:0]))
    require_refusal("no columns to learn from", lambda: case.fit(table[[]]))
    require_refusal("a list to learn from", lambda: case.make().fit([1, 2], rng(1)))  # type: ignore[arg-type]
    require_refusal("no rng to fit", lambda: case.make().fit(table, None))  # type: ignore[arg-type]
    require_refusal("nothing fitted", lambda: case.make().complete(table, rng(2)))
    require_refusal("no rows to complete", lambda: model.complete(table.iloc[:0], rng(2)))
    require_refusal(
        "a column that was not learned", lambda: model.complete(table.assign(age=1.0), rng(2))
    )
    if case.draws:
        require_refusal("no rng to complete", lambda: model.complete(table, None))  # type: ignore[arg-type]


def refuses_other_kinds(case: CompleterCase) -> None:
    """A column that was learned as numbers cannot come as text, nor the other way round."""
    words = case.table.assign(size="tall")
    require_refusal("text where numbers were learned", lambda: case.fitted.complete(words, rng(2)))
    numbers = case.table.assign(colour=case.table["colour"].map({"red": 1.5}))
    require_refusal("numbers where text was learned", lambda: case.fitted.complete(numbers, rng(2)))


def refuses_repeated_columns(case: CompleterCase) -> None:
    """A DataFrame may have a name twice; a table may not."""
    twice = case.table[[*case.table.columns, "size"]]
    require_refusal("a column name twice", lambda: case.fit(twice))


def _same(one: Completed, other: Completed, sentence: str) -> None:
    for part in PARTS:
        require_same_frames(getattr(one, part), getattr(other, part), f"{sentence} In {part}:")
    require(list(one.probabilities) == list(other.probabilities), sentence)
    for name, table in one.probabilities.items():
        require_same_frames(table, other.probabilities[name], f"{sentence} In probabilities:")


COMPLETER_CHECKS: dict[str, Callable[[CompleterCase], None]] = {
    check.__name__: check
    for check in (
        keeps_known_cells,
        keeps_types,
        fills_within_bounds,
        fills_with_known_categories,
        leaves_nothing_missing,
        fills_constant_columns,
        says_how_sure_it_is,
        keeps_the_order_of_rows,
        repeats,
        draws_by_the_seed,
        leaves_global_randomness_alone,
        leaves_the_table_alone,
        returns_whole_tables_as_they_are,
        completes_one_row,
        completes_some_of_the_columns,
        fills_columns_without_a_cell,
        keeps_unseen_categories,
        takes_party_tables,
        saves_and_loads,
        refuses_bad_input,
        refuses_other_kinds,
        refuses_repeated_columns,
    )
}
