"""A public data set cut into the tables of parties, for experiments where the truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from vfsl.data import halves, split_vertically
from vfsl.data.checks import check_choice, check_count, check_fraction, check_rng
from vfsl.data.split import REMAINDERS, draw_fresh_ids, hide_cells, punch_holes
from vfsl.datasets.catalog import load
from vfsl.datasets.sources import Dataset
from vfsl.errors import ConfigError, DataError
from vfsl.values import Array

_WHERE = "parties"


@dataclass(frozen=True, eq=False)
class Parties:
    """A public set as the tables of parties, and what only the experimenter knows.

    Attributes
    ----------
    name : str
    tables : dict of str to DataFrame
        What the parties hold: an ``id`` column and features, and at A the label; or at A only the
        ids of known positives, and no label anywhere.
    test : dict of str to DataFrame
        Complete rows that are kept apart, under the same ids at every party that holds columns.
        With positives, the label is in ``truth`` only.
    truth : DataFrame
        Every row, complete: ``id``, all columns, the label.
    label : str
        The label's column.
    columns : dict of str to list of str
        The columns of each party, without the label.
    kinds : dict of str to dict
        As ``simulate(kinds=…)`` takes it.
    rows : dict of str to Series
        By party: id to the row number in ``truth``.
    overlap : integer array
        The rows of ``truth`` that every holder of columns has under one id.
    """

    name: str
    tables: dict[str, pd.DataFrame]
    test: dict[str, pd.DataFrame]
    truth: pd.DataFrame
    label: str
    columns: dict[str, list[str]]
    kinds: dict[str, dict[str, str]]
    rows: dict[str, pd.Series[Any]]
    overlap: Array

    @property
    def labels(self) -> dict[str, str | None]:
        """As ``simulate(labels=…)`` takes it; None: no column of that party is a label."""
        return {
            party: self.label if self.label in table.columns else None
            for party, table in self.tables.items()
        }


def parties(
    name: str | Dataset,
    *,
    rng: np.random.Generator,
    overlap: float = 0.3,
    rows: int | None = None,
    test: float = 0.0,
    columns: Mapping[str, Sequence[str]] | None = None,
    labelled: float = 1.0,
    missing: float = 0.0,
    blocks: float = 0.0,
    known_positives: float | None = None,
    positive: object = None,
    remainders: str = "disjoint",
) -> Parties:
    """Cut a data set into the tables of parties, with as little in common as you ask for.

    Parameters
    ----------
    name : str or Dataset
        A name of ``available()``, or what ``load`` gave.
    rng : numpy.random.Generator
        Draws everything. The same state gives the same tables.
    overlap : float
        The fraction of rows that all holders of columns have under one id.
    rows : int, optional
        Use that many rows, drawn at random; all by default.
    test : float
        The fraction of these rows that is kept apart.
    columns : dict of str to list of str, optional
        Who holds which columns. By default a set that was published in halves stays so, pictures
        are cut in the middle, and other columns are dealt out in halves.
    labelled : float
        The fraction of A's rows whose label is known.
    missing : float
        The fraction of single cells that are missing, at random.
    blocks : float
        The fraction of a party's rows in which the whole second half of its columns is missing.
    known_positives : float, optional
        Positives instead of labels: A holds the ids of this fraction of the positives and nothing
        else, B and C hold the columns.
    positive : object, optional
        Which class is the positive one; by default the rarer one of two.
    remainders : {"disjoint", "all"}
        Each row outside the overlap is at one party; or at every party, under different ids.

    Returns
    -------
    Parties

    Examples
    --------
    >>> import numpy as np
    >>> from vfsl import datasets
    >>> cut = datasets.parties("breast_cancer", rng=np.random.default_rng(0), overlap=0.4)
    >>> sorted(cut.tables), cut.labels
    (['A', 'B'], {'A': 'target', 'B': None})
    """
    check_rng(_WHERE, rng)
    fractions = {"overlap": overlap, "test": test, "labelled": labelled}
    fractions |= {"missing": missing, "blocks": blocks}
    fractions |= {} if known_positives is None else {"known_positives": known_positives}
    for what, value in fractions.items():
        check_fraction(_WHERE, what, value)
    check_choice(_WHERE, "remainders", remainders, REMAINDERS)
    dataset = load(name) if isinstance(name, str) else name
    holders = ("A", "B") if known_positives is None else ("B", "C")
    pooled, held = _deal(dataset, _draw_rows(dataset, rows, rng), columns, holders)
    pooled.insert(0, "id", draw_fresh_ids(len(pooled), rng, set()).tolist())
    with_label = {party: list(names) for party, names in held.items()}
    if known_positives is None:
        with_label[holders[0]].append(dataset.label)
    last = len(pooled) - round(test * len(pooled))
    if last < 2:
        raise ConfigError(
            f"The test parameter of {_WHERE} must leave two rows to learn from. Got {test!r} of "
            f"{len(pooled):,} rows instead."
        )
    cut = split_vertically(
        pooled.iloc[:last], with_label, overlap=overlap, remainders=remainders, rng=rng
    )
    tables, known = dict(cut.tables), dict(cut.truth)
    if known_positives is not None:
        ids = _draw_known(pooled.iloc[:last], dataset, positive, known_positives, rng)
        tables = {"A": pooled[["id"]].iloc[ids].reset_index(drop=True), **tables}
        known = {"A": pd.Series(ids, index=pd.Index(tables["A"]["id"]), name="row"), **known}
    for party, names in held.items():
        block = rng.random(len(tables[party])) < blocks
        tables[party] = punch_holes(tables[party], names, missing, rng, block)
    if known_positives is None:
        first = tables[holders[0]]
        unknown = rng.random(len(first)) >= labelled
        tables[holders[0]] = first.assign(
            **{dataset.label: hide_cells(first[dataset.label], unknown)}
        )
    return Parties(
        name=dataset.name,
        tables=tables,
        test=_make_test_tables(pooled.iloc[last:], with_label, rng),
        truth=pooled,
        label=dataset.label,
        columns=held,
        kinds=_declare_kinds(dataset, held),
        rows=known,
        overlap=cut.overlap,
    )


def _draw_rows(dataset: Dataset, rows: int | None, rng: np.random.Generator) -> Array:
    count = len(dataset.frame)
    if rows is not None:
        check_count(_WHERE, "rows", rows, 10)
        if rows > count:
            raise ConfigError(
                f"The rows parameter of {_WHERE} must be at most the {count:,} rows of "
                f"{dataset.name!r}. Got {rows:,} instead."
            )
    order: Array = rng.permutation(count)
    return order[:rows]


def _deal(
    dataset: Dataset,
    rows: Array,
    columns: Mapping[str, Sequence[str]] | None,
    holders: tuple[str, str],
) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """The pooled rows with the label last, and the columns of each party."""
    label = dataset.frame[[dataset.label]].iloc[rows].reset_index(drop=True)
    if dataset.images is not None:
        sides = _halve_pictures(dataset.images[rows])
        pooled = pd.concat([*sides, label], axis=1)
        default = [list(side.columns) for side in sides]
    else:
        names = [str(name) for name in dataset.frame if name != dataset.label]
        pooled = dataset.frame[[*names, dataset.label]].iloc[rows].reset_index(drop=True)
        default = _find_published(dataset, names) or list(halves(names))
    if "id" in pooled.columns:
        raise DataError(
            f"Data set {dataset.name!r} has a column named 'id', which the tables need for "
            "themselves; rename it."
        )
    if columns is None:
        return pooled, dict(zip(holders, default, strict=True))
    _check_columns(columns, holders, dataset, [str(n) for n in pooled if n != dataset.label])
    return pooled, {party: list(names) for party, names in columns.items()}


def _check_columns(
    columns: Mapping[str, Sequence[str]],
    holders: tuple[str, str],
    dataset: Dataset,
    known: Sequence[str],
) -> None:
    if "A" not in columns and holders[0] == "A":
        raise ConfigError(
            f"The columns parameter of {_WHERE} must name A, who holds the label. Got "
            f"{', '.join(columns)} instead."
        )
    if "A" in columns and holders[0] != "A":
        raise ConfigError(
            f"The columns parameter of {_WHERE} must not name A, who holds ids of positives only. "
            f"Got {', '.join(columns)} instead."
        )
    for party, names in columns.items():
        for name in names:
            if name not in known:
                why = "the label" if name == dataset.label else "not a column of the set"
                raise ConfigError(
                    f"The columns parameter of {_WHERE} gives {name!r} to {party}, which is {why}."
                )


def _halve_pictures(pictures: Array) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Left and right halves, channels first, one column per pixel: the order that ``CNN`` reads."""
    pictures = pictures if pictures.ndim == 4 else pictures[..., None]
    middle = pictures.shape[2] // 2
    sides = []
    for side, half in (("left", pictures[:, :, :middle]), ("right", pictures[:, :, middle:])):
        flat = np.moveaxis(half, 3, 1).reshape(len(half), -1).astype(np.float32)
        sides.append(pd.DataFrame(flat, columns=[f"{side}_{n}" for n in range(flat.shape[1])]))
    return sides[0], sides[1]


def _find_published(dataset: Dataset, names: list[str]) -> list[list[str]] | None:
    """The publisher's own halves, the one with the label first."""
    if not dataset.tables:
        return None
    halves_of = []
    for side, table in dataset.tables.items():
        prefixed = {f"{side}_{column}" for column in table.features}
        halves_of.append([n for n in names if n in table.features or n in prefixed])
    return halves_of


def _draw_known(
    pooled: pd.DataFrame,
    dataset: Dataset,
    positive: object,
    fraction: float,
    rng: np.random.Generator,
) -> Array:
    """Row numbers of the positives that A knows."""
    counts = pooled[dataset.label].value_counts()
    if positive is None:
        if len(counts) != 2:
            raise ConfigError(
                f"The positive parameter of {_WHERE} must name a class of {dataset.name!r}, which "
                f"has {len(counts)}. Got None instead."
            )
        positive = counts.index[-1]
    rows = np.flatnonzero((pooled[dataset.label] == positive).to_numpy())
    if not len(rows):
        raise ConfigError(
            f"The positive parameter of {_WHERE} must be a class of {dataset.name!r}. Got "
            f"{positive!r} instead."
        )
    chosen: Array = rng.permutation(rows)[: max(1, round(fraction * len(rows)))]
    return chosen


def _make_test_tables(
    pooled: pd.DataFrame, held: Mapping[str, list[str]], rng: np.random.Generator
) -> dict[str, pd.DataFrame]:
    """The rows kept apart, each party's in an order of its own."""
    if not len(pooled):
        return {}
    return {
        party: pooled[["id", *names]].iloc[rng.permutation(len(pooled))].reset_index(drop=True)
        for party, names in held.items()
    }


def _declare_kinds(dataset: Dataset, held: Mapping[str, list[str]]) -> dict[str, dict[str, str]]:
    """Declared kinds; pixels are numbers anyway."""
    return {
        party: {name: str(dataset.kinds[name]) for name in names if name in dataset.kinds}
        for party, names in held.items()
    }
