"""A pooled table dealt out to parties whose rows overlap in part, so that the truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from vfsl.data.checks import check_choice, check_fraction, check_rng
from vfsl.data.table import join_ids
from vfsl.errors import ConfigError, DataError
from vfsl.values import Array

REMAINDERS = ("all", "disjoint")


@dataclass(frozen=True, eq=False)
class Split:
    """The tables of the parties, and what only the experimenter knows.

    Attributes
    ----------
    tables : dict of str to DataFrame
        Each has the id column first, and its rows in an order of their own.
    truth : dict of str to Series
        By party: id to the row number of the pooled table.
    overlap : integer array
        The rows of the pooled table that can be linked between all parties.
    """

    tables: dict[str, pd.DataFrame]
    truth: dict[str, pd.Series[Any]]
    overlap: Array


def split_vertically(
    frame: pd.DataFrame,
    columns: Mapping[str, Sequence[str]],
    *,
    id: str = "id",
    overlap: float = 0.3,
    remainders: str = "all",
    rng: np.random.Generator,
) -> Split:
    """Deal the columns and rows of a pooled table to two or more parties.

    Parameters
    ----------
    frame : pandas.DataFrame
        If it has the id column, ids are taken from it; otherwise they are drawn.
    columns : dict of str to list of str
        The columns of each party; a party without columns holds ids only.
    id : str
        The name of the id column in the tables.
    overlap : float
        The fraction of rows that every party holds under the same id.
    remainders : {"all", "disjoint"}
        ``"all"``: every party has all rows, and a row outside the overlap has a fresh id at each
        party, so that it links to nothing. ``"disjoint"``: each row outside the overlap is at
        exactly one party, dealt out evenly.
    rng : numpy.random.Generator

    Returns
    -------
    Split
    """
    _check(frame, columns, id, overlap, remainders, rng)
    rows = len(frame)
    if id in frame.columns:
        ids = join_ids(frame, (id,), "pooled")
        if pd.Series(ids).duplicated().any():
            raise DataError(f"The id column {id!r} of the pooled table has repeated ids.")
        taken = set(ids)
    else:
        taken = set()
        ids = draw_fresh_ids(rows, rng, taken)
    order = rng.permutation(rows)
    shared = np.sort(order[: round(overlap * rows)])
    rest = order[len(shared) :]
    dealt = np.array_split(rest, len(columns))
    tables, truth = {}, {}
    for place, (party, names) in enumerate(columns.items()):
        own = rest if remainders == "all" else dealt[place]
        numbers = rng.permutation(np.concatenate([shared, own]))
        texts = ids[numbers]
        if remainders == "all":
            private = ~np.isin(numbers, shared)
            texts[private] = draw_fresh_ids(int(private.sum()), rng, taken)
        table = frame[list(names)].iloc[numbers].reset_index(drop=True)
        table.insert(0, id, pd.Series(texts.tolist(), dtype=None if len(texts) else object))
        tables[party] = table
        truth[party] = pd.Series(numbers, index=pd.Index(texts, name=id), name="row")
    return Split(tables, truth, shared)


def halves(
    columns: Sequence[str], rng: np.random.Generator | None = None
) -> tuple[list[str], list[str]]:
    """Divide columns between two parties, at random with ``rng``; the first gets the odd one."""
    if len(set(columns)) < max(len(columns), 2):
        raise ConfigError(
            "The columns parameter of halves must have at least two different names. "
            f"Got {list(columns)} instead."
        )
    chosen = np.arange(len(columns))
    if rng is not None:
        check_rng("halves", rng)
        chosen = rng.permutation(len(columns))
    first = set(chosen[: (len(columns) + 1) // 2].tolist())
    return (
        [name for place, name in enumerate(columns) if place in first],
        [name for place, name in enumerate(columns) if place not in first],
    )


def draw_fresh_ids(count: int, rng: np.random.Generator, taken: set[str]) -> Array:
    """Random ids that nobody has yet; they join ``taken``."""
    ids = np.empty(count, dtype=object)
    for place in range(count):
        while (text := rng.bytes(8).hex()) in taken:
            pass
        taken.add(text)
        ids[place] = text
    return ids


def punch_holes(
    table: pd.DataFrame,
    columns: Sequence[str],
    fraction: float,
    rng: np.random.Generator,
    block: Array | None = None,
) -> pd.DataFrame:
    """The table with single cells missing at random; in ``block`` rows also half of the columns."""
    filled = {}
    for place, name in enumerate(columns):
        holes = rng.random(len(table)) < fraction
        if block is not None and place >= (len(columns) + 1) // 2:
            holes |= block
        if len(table):
            # A column without a single value would not be a table that a party brings.
            holes[rng.integers(len(table))] = False
        filled[name] = hide_cells(table[name], holes)
    return table.assign(**filled)


def hide_cells(values: pd.Series[Any], holes: Array) -> pd.Series[Any]:
    """The column with holes, in a type that has room for them."""
    if not holes.any():
        return values
    if values.dtype == bool:
        values = values.astype("boolean")
    elif pd.api.types.is_integer_dtype(values.dtype):
        values = values.astype("Int64")
    return values.mask(holes)


def _check(
    frame: pd.DataFrame,
    columns: Mapping[str, Sequence[str]],
    id: str,
    overlap: float,
    remainders: str,
    rng: np.random.Generator,
) -> None:
    where = "split_vertically"
    check_rng(where, rng)
    check_fraction(where, "overlap", overlap)
    check_choice(where, "remainders", remainders, REMAINDERS)
    if len(columns) < 2:
        raise ConfigError(
            f"The columns parameter of {where} must name at least two parties. "
            f"Got {len(columns)} instead."
        )
    if not len(frame):
        raise DataError("The pooled table to split has no rows.")
    for party, names in columns.items():
        if isinstance(names, str) or len(set(names)) < len(names):
            raise ConfigError(f"The columns of party {party} must be a list of different names.")
        for name in names:
            if name == id or name not in frame.columns:
                why = "is the id" if name == id else "is not in the pooled table"
                raise DataError(f"Column {name!r}, asked for party {party}, {why}.")
