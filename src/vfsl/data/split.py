"""One pooled table into vertical ones that overlap partly, for experiments where truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from vfsl.data.checks import check_choice, check_rng, check_share
from vfsl.data.ids import id_texts
from vfsl.errors import ConfigError, DataError
from vfsl.values import Array

REMAINDERS = ("all", "disjoint")


@dataclass(frozen=True, eq=False)
class Split:
    """The tables of the parties, and what nobody but the experimenter knows.

    Attributes
    ----------
    tables : dict of str to DataFrame
        Each with the id column first, its rows in an order of its own.
    truth : dict of str to Series
        By party: id to the row number of the pooled table.
    overlap : integer array
        The row numbers of the pooled table that are linkable between all parties.
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
        The share of rows that every party holds under the same id.
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
        ids = id_texts(frame, (id,), "pooled")
        if pd.Series(ids).duplicated().any():
            raise DataError(f"The id column {id!r} of the pooled table has repeated ids.")
        taken = set(ids)
    else:
        taken = set()
        ids = fresh_ids(rows, rng, taken)
    order = rng.permutation(rows)
    shared = np.sort(order[: round(overlap * rows)])
    rest = order[len(shared) :]
    shares = np.array_split(rest, len(columns))
    tables, truth = {}, {}
    for place, (party, names) in enumerate(columns.items()):
        own = rest if remainders == "all" else shares[place]
        numbers = rng.permutation(np.concatenate([shared, own]))
        texts = ids[numbers]
        if remainders == "all":
            private = ~np.isin(numbers, shared)
            texts[private] = fresh_ids(int(private.sum()), rng, taken)
        table = frame[list(names)].iloc[numbers].reset_index(drop=True)
        table.insert(0, id, pd.Series(texts.tolist(), dtype=None if len(texts) else object))
        tables[party] = table
        truth[party] = pd.Series(numbers, index=pd.Index(texts, name=id), name="row")
    return Split(tables, truth, shared)


def halves(
    columns: Sequence[str], rng: np.random.Generator | None = None
) -> tuple[list[str], list[str]]:
    """Divide columns between two parties, the first gets the odd one; at random with ``rng``."""
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


def fresh_ids(count: int, rng: np.random.Generator, taken: set[str]) -> Array:
    """Random ids that nobody has; they join ``taken``."""
    ids = np.empty(count, dtype=object)
    for place in range(count):
        while (text := rng.bytes(8).hex()) in taken:
            pass
        taken.add(text)
        ids[place] = text
    return ids


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
    check_share(where, "overlap", overlap)
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
