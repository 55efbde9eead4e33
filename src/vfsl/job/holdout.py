"""Rows that a job holds out for testing: drawn by the seed, or marked in a column of one party.

Holds   the marking party: a column that says which of its rows are for testing.
Learns  the other aligned parties: which aligned rows are held out. A share that is drawn by the
        seed needs no message: every party draws the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from vfsl.align import RowPlan
from vfsl.channel import Channel, Player, expect_array
from vfsl.data import PartyTable
from vfsl.errors import DataError
from vfsl.federation import Federation
from vfsl.values import Array, Disclosure, Disclosures

LEAST_ROWS = 10
_TRUE, _FALSE = ("true", "yes", "1", "test"), ("false", "no", "0", "train", "")

DISCLOSURES: Disclosures = {
    "test rows": Disclosure(np.ndarray, "which aligned rows are held out for testing"),
}


@dataclass(frozen=True, eq=False)
class Marked:
    """Which rows of one party's table are for testing."""

    party: str
    rows: Array  # of bool, one a row of the table


def taken_out(table: PartyTable, column: str) -> tuple[PartyTable, Marked]:
    """The table without its column of marks, and the marks."""
    cells = table.column(column)
    words = cells.astype(object).where(cells.notna(), "").map(_word)
    odd = ~words.isin([*_TRUE, *_FALSE])
    if odd.any():
        raise DataError(
            f"Column {column!r} of party {table.party} must say which rows are for testing, as "
            f"true or false, 1 or 0, yes or no, test or train. Got {int(odd.sum()):,} other cells "
            "instead."
        )
    return table.without([column]), Marked(table.party, words.isin(_TRUE).to_numpy(dtype=bool))


def _word(cell: Any) -> str:
    number = isinstance(cell, int | float | np.number) and not isinstance(cell, bool)
    return f"{cell:g}" if number else str(cell).strip().lower()


def drawn(common: int, share: float, rng: np.random.Generator) -> Array:
    """Places of a share of the common rows, in order."""
    return np.sort(rng.permutation(common)[: round(share * common)])


def hold_out(fed: Federation, share: float | None, marked: Marked | None) -> Array:
    """Places in the common order that are held out."""
    plan = fed.plan
    if plan is None:
        raise DataError("Rows are held out of aligned ones: align first.")
    if marked is None:
        places = drawn(len(plan.overlap), share or 0.0, fed.rng("test rows"))
    else:
        if marked.party not in plan.parties:
            raise DataError(
                f"Party {marked.party!r} marks the rows for testing but was not aligned; aligned "
                f"are {', '.join(plan.parties)}."
            )
        mine = marked.rows[plan[marked.party].overlap]
        others = [party for party in plan.parties if party != marked.party]
        roles: dict[str, Player] = {
            marked.party: partial(_tell, others=others, mine=mine),
            **{party: partial(_hear, marking=marked.party, rows=len(mine)) for party in others},
        }
        answers, report = fed.run("hold out", roles, {"marked by": marked.party})
        report(metrics={"test rows": int(mine.sum())})
        places = np.flatnonzero(answers[others[0]])
    if len(places) < LEAST_ROWS:
        raise DataError(
            f"{len(places)} of {len(plan.overlap):,} common rows are held out for testing; at "
            f"least {LEAST_ROWS} are needed. Hold out more, or leave evaluation out."
        )
    return np.asarray(places, dtype=np.int64)


def without_test(plan: RowPlan, test: Array, marked: Marked | None) -> RowPlan:
    """The plan without rows held out; those that only the marking party has leave as well."""
    kept = np.setdiff1d(np.arange(len(plan.overlap)), test)
    shares = {}
    for party, share in plan.shares.items():
        rest = share.rest
        if marked is not None and party == marked.party:
            rest = rest[~marked.rows[rest]]
        marks = None if share.marks is None else share.marks[kept]
        shares[party] = replace(share, overlap=share.overlap[kept], rest=rest, marks=marks)
    return RowPlan(shares)


def only_test(plan: RowPlan, test: Array, parties: Sequence[str]) -> RowPlan:
    """Nothing but the rows held out, of some parties."""
    nobody = np.empty(0, dtype=np.int64)
    shares: Mapping[str, Any] = {
        party: replace(plan[party], overlap=plan[party].overlap[test], rest=nobody, marks=None)
        for party in parties
    }
    return RowPlan(shares)


def _tell(channel: Channel, others: Sequence[str], mine: Array) -> None:
    channel = channel.within("hold out", DISCLOSURES)
    for party in others:
        channel.send(party, "test rows", mine)


def _hear(channel: Channel, marking: str, rows: int) -> Array:
    channel = channel.within("hold out", DISCLOSURES)
    came = channel.receive(marking, "test rows")
    return expect_array(came, sender=marking, name="test rows", holds="boolean", shape=(rows,))
