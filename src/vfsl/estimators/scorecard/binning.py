"""Each party's bins of its own columns: the label holder's alone, the others' with its help.

Holds   every data holder: columns; the label holder: the label; the dealer: seeds.
Learns  a feature holder: which aligned rows have a label, and positives by bin (counting.py). The
        label holder: the information value of each nameless column of the others, to three
        decimals, in an order drawn at random.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from vfsl.channel import Channel, expect_array
from vfsl.crypto.shares import Session
from vfsl.data import Kind, PartyTable
from vfsl.errors import ConfigError, DataError
from vfsl.estimators.base import find_labelled
from vfsl.estimators.scorecard import counting
from vfsl.estimators.scorecard.bins import (
    FINE_BINS,
    BinnedColumn,
    cut_finely,
    find_ends,
    make_column,
    order_codes,
)
from vfsl.estimators.trees.binning import Column
from vfsl.parts import Part, Roles
from vfsl.values import Aggregate, Array, Disclosure, Disclosures, Floats, Integers

DISCLOSURES: Disclosures = {
    "labelled rows": Disclosure(np.ndarray, "which aligned rows have a known label"),
    "information": Disclosure(
        Aggregate, "the information value of each nameless column, to three decimals, shuffled"
    ),
}
_MOST_COLUMNS = 1 << 16
_DECIMALS = 3
_protecting = random.SystemRandom()


@dataclass(frozen=True)
class BinTerms:
    """What bins are to be like; see `bins.make_column`."""

    most: int = 8
    least_fraction: float = 0.05
    monotone: bool = True


@dataclass(frozen=True, eq=False)
class Binned:
    """What a party has after binning.

    Attributes
    ----------
    columns : list of BinnedColumn
        Its own, in the order of its table; those that say nothing are left out.
    rows : array of int
        The aligned rows with a known label.
    target : array of 0 and 1, or None
        Of these, at the label holder.
    information : dict of str to list
        At the label holder: of each other party's nameless columns, largest first.
    """

    columns: list[BinnedColumn]
    rows: Array
    target: Integers | None
    information: dict[str, list[float]]


def bin_columns(
    channel: Channel, part: Part | None, roles: Roles, terms: BinTerms, rng: Any = None
) -> Binned | None:
    """One party's side; None at the dealer. The label must have two classes."""
    channel = channel.within("bins", DISCLOSURES)
    if channel.me == roles.key_holder:
        for party in roles.feature_holders:
            with _join(channel, party, roles, rng) as session:
                counting.count_positives(session, roles.label_holder, party)
        return None
    if part is None:
        raise ConfigError(f"Party {channel.me!r} needs a part of the data to bin.")
    if channel.me == roles.label_holder:
        return _hold_label(channel, part, roles, terms, rng)
    return _hold_columns(channel, part, roles, terms, rng)


def _join(channel: Channel, party: str, roles: Roles, rng: Any) -> Any:
    """A session of the label holder and one feature holder."""
    inner = channel.within(f"positives of {party}", counting.DISCLOSURES)
    pair = (roles.label_holder, party)
    hide = roles.scheme != "plain"
    return Session.join(inner, pair, roles.key_holder, hide=hide, rng=rng)


def _hold_label(channel: Channel, part: Part, roles: Roles, terms: BinTerms, rng: Any) -> Binned:
    known = find_labelled(channel.me, part.target)
    classes, target = np.unique(np.asarray(part.target)[known].tolist(), return_inverse=True)
    if len(classes) != 2:
        raise DataError(
            f"A scorecard is for a label with two classes; that of party {channel.me!r} has "
            f"{len(classes)}."
        )
    target = target.astype(np.int64)
    counting.plan_fine_bins(1, target)  # refuses too few rows before anything is sent
    for party in roles.feature_holders:
        channel.send(party, "labelled rows", known)
    rows = part.rows[known]
    columns = bin_alone(part.table.take(rows), target, terms)
    information = {}
    for party in roles.feature_holders:
        with _join(channel, party, roles, rng) as session:
            counting.count_positives(session, channel.me, party, target=target)
        came = channel.receive(party, "information").payload
        values = expect_array(came, sender=party, name="information", holds="float", shape=(None,))
        information[party] = sorted(values[:_MOST_COLUMNS].tolist(), reverse=True)
    return Binned(columns, rows, target, information)


def _hold_columns(channel: Channel, part: Part, roles: Roles, terms: BinTerms, rng: Any) -> Binned:
    holder = roles.label_holder
    known = expect_array(
        channel.receive(holder, "labelled rows"),
        sender=holder,
        name="labelled rows",
        holds="boolean",
        shape=(len(part.rows),),
    )
    rows = part.rows[known]
    table = part.table.take(rows)
    cuts: list[Column] = []
    orders: list[list[int]] = []

    def find_places(width: int) -> Integers:
        cuts[:] = cut_finely(table, width - 1)
        codes = [cut.codes(table.column(cut.name)) for cut in cuts]
        orders[:] = [
            order_codes(cut, _count(cut, one)) for cut, one in zip(cuts, codes, strict=True)
        ]
        pairs = zip(orders, cuts, codes, strict=True)
        return np.stack([_find_places(order, cut)[one] for order, cut, one in pairs], axis=1)

    count = len(cut_finely(table, 2))
    if not count:
        raise DataError(f"Party {channel.me!r} has no column with two different values to bin.")
    with _join(channel, channel.me, roles, rng) as session:
        opened = counting.count_positives(
            session, holder, channel.me, columns=count, cells=find_places
        )
    columns = [
        _read_column(cut, order, table, np.asarray(line), terms)
        for cut, order, line in zip(cuts, orders, np.asarray(opened), strict=True)
    ]
    values = np.round([column.information for column in columns], _DECIMALS)
    channel.release(holder, "information", len(values))
    shuffled = np.array(_protecting.sample(values.tolist(), len(values)))
    channel.send(holder, "information", Aggregate(shuffled))
    return Binned(columns, rows, None, {})


def bin_alone(
    table: PartyTable, target: Integers, terms: BinTerms, *, exact: bool = False
) -> list[BinnedColumn]:
    """The bins of one's own columns, by one's own label.

    They are those that another party would get, counts in steps; ``exact`` counts are not rounded.
    """
    made = []
    for cut in cut_finely(table, FINE_BINS):
        codes = cut.codes(table.column(cut.name))
        rows = _count(cut, codes)
        positives = _count(cut, codes[target == 1])
        order = order_codes(cut, rows)
        ends = find_ends(rows[order], positives[order])
        before = np.cumsum(positives[order])
        before = before if exact else counting.round_counts(before)
        made.append(_join_shown(cut, order, ends, rows, before, terms))
    return made


def _read_column(
    cut: Column, order: list[int], table: PartyTable, opened: Integers, terms: BinTerms
) -> BinnedColumn:
    """A column from what was opened: positives before each end of a bin, in steps."""
    size = len(order)
    ends = [end for end in range(1, size) if opened[end - 1] > 0] + [size]
    before = np.append(opened[: size - 1], opened[-1])
    rows = _count(cut, cut.codes(table.column(cut.name)))
    return _join_shown(cut, order, ends, rows, before, terms)


def _join_shown(
    cut: Column,
    order: list[int],
    ends: list[int],
    rows: Integers,
    before: Integers,
    terms: BinTerms,
) -> BinnedColumn:
    """``before`` has the positives up to each fine bin of the order, where a bin ends there."""
    starts = [0, *ends[:-1]]
    shown = [order[start:end] for start, end in zip(starts, ends, strict=True)]
    counted = np.array([rows[fine].sum() for fine in shown])
    positives = np.diff([0, *(before[end - 1] for end in ends)])
    return make_column(
        cut,
        shown,
        counted,
        np.clip(positives, 0, counted),
        most=terms.most,
        least_fraction=terms.least_fraction,
        monotone=terms.monotone,
    )


def _count(cut: Column, codes: Array) -> Integers:
    return np.bincount(codes, minlength=cut.size + 1).astype(np.int64)


def _find_places(order: list[int], cut: Column) -> Integers:
    """The place of each fine code in the order."""
    places = np.zeros(cut.size + 1, dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


# ---- columns as weights of evidence --------------------------------------------------------------


def to_evidence(part: Part, columns: list[BinnedColumn]) -> Part:
    """The same part with weights of evidence in place of cells."""
    values = {column.name: column.transform(part.table.column(column.name)) for column in columns}
    frame = pd.DataFrame(values, index=pd.RangeIndex(len(part.table)))
    kinds = dict.fromkeys(values, Kind.NUMERIC)
    return replace(part, table=replace(part.table, frame=frame, kinds=kinds))


def evidence_of(table: PartyTable, columns: list[BinnedColumn]) -> Floats:
    """Weights of evidence of all rows, (rows, columns)."""
    if not columns:
        return np.zeros((len(table), 0))
    return np.stack([one.transform(table.column(one.name)) for one in columns], axis=1)
