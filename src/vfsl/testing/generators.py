"""What every generator must do: checks for the author of a method, run on all of ours.

Each check takes a :class:`GeneratorCase` and raises AssertionError where the generator breaks the
contract; ``GENERATOR_CHECKS`` names them all. Used like :mod:`vfsl.testing.completers`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from vfsl.data import PartyTable
from vfsl.testing.claims import (
    require,
    require_refusal,
    require_same_frames,
    require_untouched_randomness,
)
from vfsl.testing.completion_case import CATEGORIES, NUMBERS, GeneratorCase, rng

__all__ = ["GENERATOR_CHECKS", "GeneratorCase"]

ROWS = 60


def makes_the_rows_asked_for(case: GeneratorCase) -> None:
    """So many rows, numbered from 0, with the learned columns in their order; none are none."""
    for n in (ROWS, 1, 0):
        made = case.sample(n)
        require(
            list(made.columns) == list(case.table.columns) and len(made) == n,
            f"{n} rows of {list(case.table.columns)} were asked for. Got {len(made)} of "
            f"{list(made.columns)}.",
        )
        require(list(made.index) == list(range(n)), "Made-up rows must be numbered from 0.")


def keeps_types(case: GeneratorCase) -> None:
    """Columns have the type of the learned table: whole numbers are whole."""
    made = case.sample(ROWS)
    for name in case.table.columns:
        before, after = case.table[name].dtype, made[name].dtype
        require(before == after, f"Column {name!r} was {before} and is made up as {after}.")


def stays_within_bounds(case: GeneratorCase) -> None:
    """Numbers lie between the least and the greatest learned one, and a constant stays one."""
    made = case.sample(ROWS)
    for name in NUMBERS:
        known, drawn = case.table[name].dropna(), made[name].dropna()
        require(
            bool(drawn.between(known.min(), known.max()).all()),
            f"Column {name!r} is made up from {drawn.min()} to {drawn.max()}; it was learned from "
            f"{known.min()} to {known.max()}.",
        )


def stays_with_known_categories(case: GeneratorCase) -> None:
    """Categories are some that were learned."""
    made = case.sample(ROWS)
    for name in CATEGORIES:
        strange = set(made[name].dropna()) - set(case.table[name].dropna())
        require(not strange, f"Column {name!r} has {strange}, which was never learned.")


def invents_no_missing_cells(case: GeneratorCase) -> None:
    """Columns without a missing cell have none in made-up rows."""
    model = case.make().fit(case.whole, rng(1))
    left = model.sample(ROWS, rng(2)).isna().sum()
    require(not left.any(), f"Cells are missing that never were: {left[left > 0].to_dict()}.")


def repeats(case: GeneratorCase) -> None:
    """The same seeds give the same rows, from the same model and from one fitted anew."""
    once = case.sample(ROWS)
    require_same_frames(once, case.sample(ROWS), "Sampling twice with one seed differs.")
    again = case.make().fit(case.table, rng(1)).sample(ROWS, rng(2))
    require_same_frames(once, again, "Fitting twice with one seed differs.")


def draws_by_the_seed(case: GeneratorCase) -> None:
    """Another seed makes other rows, and rows differ from each other."""
    once = case.sample(ROWS)
    require(not once.equals(case.sample(ROWS, seed=3)), "Two seeds made the same rows.")
    require(len(once.drop_duplicates()) > 1, "All made-up rows are the same.")


def leaves_global_randomness_alone(case: GeneratorCase) -> None:
    """Nobody else's draws change, and nobody else changes ours."""
    model = case.make()
    with require_untouched_randomness():
        model.fit(case.table, rng(1)).sample(ROWS, rng(2))


def leaves_what_it_is_given_alone(case: GeneratorCase) -> None:
    """Neither the learned table nor the conditions are changed."""
    table, given = case.table.copy(deep=True), case.table.iloc[:8].copy(deep=True)
    case.make().fit(table, rng(1)).sample(8, rng(2), given)
    require_same_frames(table, case.table, "Fitting has changed the table.")
    require_same_frames(given, case.table.iloc[:8], "Sampling has changed the conditions.")


def meets_conditions(case: GeneratorCase) -> None:
    """Given cells come back as they are, by a value for all rows or by a table of them."""
    for name in ("colour", "size", "whole", "flag"):
        value = case.table[name].dropna().iloc[0]
        made = case.sample(12, given={name: value})
        require(
            len(made) == 12 and bool((made[name] == value).all()),
            f"Column {name!r} was given as {value!r}, but other values came.",
        )
    given = case.table.iloc[:20]  # with holes, which are free
    made = case.sample(20, given=given)
    for name in given.columns:
        asked = given[name].notna().to_numpy()
        before = given[name].astype(object).to_numpy()[asked]
        after = made[name].astype(object).to_numpy()[asked]
        require(list(before) == list(after), f"Given cells of {name!r} did not come back.")
        require(made[name].dtype == given[name].dtype, f"Given cells change the type of {name!r}.")


def fills_what_is_free(case: GeneratorCase) -> None:
    """Free cells of a condition are drawn: other seeds, other cells."""
    given = case.whole[["colour"]].iloc[:20]
    one, two = (case.sample(20, seed, given) for seed in (2, 3))
    require(not one.equals(two), "Under a condition two seeds made the same rows.")


def takes_party_tables(case: GeneratorCase) -> None:
    """A party's table gives what its columns give as a DataFrame; its labels are left out."""
    labelled = case.table.assign(id=np.arange(len(case.table)), goal=1)
    table = PartyTable.from_frame(labelled, party="B", id="id", label="goal")
    made = case.make().fit(table, rng(1)).sample(ROWS, rng(2))
    require_same_frames(
        made, case.sample(ROWS), "A party's table is learned otherwise than its columns."
    )


def saves_and_loads(case: GeneratorCase) -> None:
    """What is read back samples as what was written; a method need not be saved."""
    if case.saved is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        loaded = case.saved(case.fitted, Path(folder))
    require(loaded is not case.fitted, "Loading must make a model anew.")
    given = case.table.iloc[:8]
    for n, asked in ((ROWS, None), (8, given)):
        made = loaded.sample(n, rng(2), asked)
        require_same_frames(
            made, case.sample(n, given=asked), "The loaded model samples otherwise."
        )


def refuses_bad_input(case: GeneratorCase) -> None:
    """What cannot be used is refused in a sentence, not by an error from deep inside."""
    table, model = case.table, case.fitted
    require_refusal("no rows to learn from", lambda: case.make().fit(table.iloc[:0], rng(1)))
    require_refusal("no columns to learn from", lambda: case.make().fit(table[[]], rng(1)))
    require_refusal("a list to learn from", lambda: case.make().fit([1, 2], rng(1)))  # type: ignore[arg-type]
    require_refusal("no rng to fit", lambda: case.make().fit(table, None))  # type: ignore[arg-type]
    require_refusal("no rng to sample", lambda: model.sample(3, None))  # type: ignore[arg-type]
    require_refusal("nothing fitted", lambda: case.make().sample(3, rng(2)))
    for n in (-1, 1.5, True, "three"):
        require_refusal(f"n={n!r}", lambda n=n: model.sample(n, rng(2)))  # type: ignore[misc]


def refuses_bad_conditions(case: GeneratorCase) -> None:
    """Unknown columns and categories, text for numbers, and tables of another length."""
    bad = {
        "an unknown column": {"age": 3},
        "an unknown category": {"colour": "violet"},
        "text for a number": {"size": "tall"},
        "a table of other length": case.whole.iloc[:2],
        "a list of conditions": ["red"],
        "an unknown category in a table": pd.DataFrame({"colour": ["red", "violet", None]}),
    }
    for what, given in bad.items():
        require_refusal(what, lambda given=given: case.sample(3, given=given))  # type: ignore[misc]


GENERATOR_CHECKS: dict[str, Callable[[GeneratorCase], None]] = {
    check.__name__: check
    for check in (
        makes_the_rows_asked_for,
        keeps_types,
        stays_within_bounds,
        stays_with_known_categories,
        invents_no_missing_cells,
        repeats,
        draws_by_the_seed,
        leaves_global_randomness_alone,
        leaves_what_it_is_given_alone,
        meets_conditions,
        fills_what_is_free,
        takes_party_tables,
        saves_and_loads,
        refuses_bad_input,
        refuses_bad_conditions,
    )
}
