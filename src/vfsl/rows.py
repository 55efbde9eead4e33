"""Steps that choose rows: align, mark known positives, hold rows out. Each a party's own side.

Holds   aligning: every party its ids. Marking: the positive holder ids of known positives, the
        label holder its aligned rows. Holding out: one party may have a column that marks rows.
Learns  aligning and marking: see vfsl.align. Holding out by a column: the other aligned parties,
        which aligned rows are held out. A fraction that the job's seed draws needs no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vfsl.align import (
    PROTOCOLS,
    Question,
    RowShare,
    align_aided,
    align_hub,
    align_server,
    ask_for_marks,
    find_common,
    help_parties,
    mark_aided,
    mark_client,
    mark_server,
)
from vfsl.channel import Channel, expect_array
from vfsl.data import PartyTable
from vfsl.errors import ConfigError, DataError
from vfsl.parts import Rows, no_rows
from vfsl.site import Site, TestRows
from vfsl.values import Array, Disclosure, Disclosures

LEAST_HELD_OUT = 10
_TRUE, _FALSE = ("true", "yes", "1", "test"), ("false", "no", "0", "train", "")

DISCLOSURES: Disclosures = {
    "test rows": Disclosure(np.ndarray, "which aligned rows are held out for testing"),
}


def align(
    site: Site,
    channel: Channel,
    parties: Sequence[str],
    protocol: str,
    hub: str | None = None,
    hide_sizes: bool = False,
) -> RowShare | None:
    """Find the rows that parties have in common; by default the last one named is the hub.

    With a protocol that needs a helper, the key holder is that, and nobody is the hub.
    ``hide_sizes`` is that of `Alignment`.
    """
    hub, helper = parties[-1] if hub is None else hub, find_helper(site, protocol)
    settings: dict[str, Any] = {"protocol": protocol, "parties": list(parties)}
    settings |= {"hub": hub} if helper is None else {"helper": helper}
    settings |= {"hide_sizes": True} if hide_sizes else {}
    site.standing.aligned, site.standing.held_out = tuple(parties), None
    site.standing.rows = None
    if site.me == helper:
        with site.records("align", channel, settings):
            help_parties(channel, Question(parties, helper, parties))
    if site.me not in parties:
        return None
    with site.records("align", channel, settings) as outcome:
        notes: list[str] = []
        how, ids = site.intersection("align", protocol, notes, hide_sizes), site.ids()
        order = site.public_rng("row order") if site.alignment.seeded_order else None
        if helper is not None:
            share = align_aided(channel, parties, helper, ids, how, rng=order)
        elif site.me == hub:
            servers = [party for party in parties if party != hub]
            share = align_hub(channel, servers, ids, how, rng=order)
        else:
            share = align_server(channel, hub, ids, how)
        outcome.metrics = {"overlap": len(share.overlap), f"rest of {site.me}": len(share.rest)}
        outcome.notes = tuple(notes)
    site.standing.rows = share
    return share


def count_common(
    site: Site,
    channel: Channel,
    parties: Sequence[str],
    protocol: str = "aided",
    hide_sizes: bool = False,
) -> int | None:
    """How many ids parties have in common; nobody learns which. The key holder compares tags."""
    helper = find_helper(site, protocol)
    if helper is None:
        raise ConfigError(
            f"The protocol {protocol!r} tells the hub which ids are common, not only how many. "
            "Only 'aided' can count."
        )
    if site.me not in (*parties, helper):
        return None
    question = Question(parties, helper, parties, count_only=True)
    settings = {"protocol": protocol, "parties": list(parties), "helper": helper}
    with site.records("count", channel, settings) as outcome:
        if site.me == helper:
            help_parties(channel, question)
            return None
        notes: list[str] = []
        how = site.intersection("count", protocol, notes, hide_sizes)
        found = find_common(channel, question, site.ids(), how)
        outcome.metrics, outcome.notes = {"common ids": found.count}, tuple(notes)
    return found.count


def mark(
    site: Site, channel: Channel, positives: str, label_holder: str, protocol: str
) -> RowShare | None:
    """Mark the label holder's aligned rows: +1 if the positive holder knows them, else −1.

    The label holder asks with its aligned rows only; nothing returns to the positive holder and no
    row is dropped.
    """
    helper = find_helper(site, protocol)
    if site.me not in (positives, label_holder, helper):
        return None
    settings = {"protocol": protocol, "positives": positives, "label_holder": label_holder}
    if site.me == helper:
        with site.records("mark", channel, settings):
            question = ask_for_marks(label_holder, positives, helper)
            help_parties(channel.within("marks"), question)
        return None
    with site.records("mark", channel, settings) as outcome:
        notes: list[str] = []
        how = site.intersection("mark", protocol, notes)
        share: RowShare | None = None
        if helper is not None:
            kept = None if site.me == positives else site.rows()
            share = mark_aided(channel, label_holder, positives, helper, site.ids(), kept, how)
        elif site.me == positives:
            mark_server(channel, label_holder, site.ids(), how)
        else:
            share = mark_client(channel, positives, site.ids(), site.rows(), how)
        if share is not None:
            marked = 0 if share.marks is None else int((share.marks == 1).sum())
            outcome.metrics = {"overlap": len(share.overlap), "marked": marked}
            site.standing.rows = share
        outcome.notes = tuple(notes)
    return share


def find_helper(site: Site, protocol: str) -> str | None:
    """Who compares tags for the data holders: the key holder, where the protocol needs one."""
    return site.terms.key_holder if PROTOCOLS.find(protocol).helped else None


# ---- rows that no step learns from --------------------------------------------------------------


def split_off_marks(table: PartyTable, column: str) -> tuple[PartyTable, TestRows]:
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
    return table.without([column]), TestRows(
        party=table.party, marks=words.isin(_TRUE).to_numpy(dtype=bool)
    )


def _word(cell: Any) -> str:
    number = isinstance(cell, int | float | np.number) and not isinstance(cell, bool)
    return f"{cell:g}" if number else str(cell).strip().lower()


def hold_out(site: Site, channel: Channel, test: TestRows) -> None:
    """Keep common rows for testing: a fraction by the job's seed, or those that a party marks.

    Rows that only the marking party has and marks leave its remaining rows as well.
    """
    aligned = site.standing.aligned
    if test.party is not None and test.party not in aligned:
        raise DataError(
            f"Party {test.party!r} marks the rows for testing but was not aligned; aligned are "
            f"{', '.join(aligned)}."
        )
    if site.standing.rows is None:
        return
    share = site.standing.rows
    common = len(share.overlap)
    if test.party is None:
        drawn = site.public_rng("test rows").permutation(common)
        places = np.sort(drawn[: round((test.fraction or 0.0) * common)])
    else:
        with site.records("hold out", channel, {"marked by": test.party}) as outcome:
            places = np.flatnonzero(_share_marks(site, channel, test.party, test.marks))
            outcome.metrics = {"test rows": len(places)}
    if len(places) < LEAST_HELD_OUT:
        raise DataError(
            f"{len(places)} of {common:,} common rows are held out for testing; at "
            f"least {LEAST_HELD_OUT} are needed. Hold out more, or leave evaluation out."
        )
    if test.marks is not None:
        site.standing.rows = replace(share, rest=share.rest[~test.marks[share.rest]])
    site.standing.held_out = np.asarray(places, dtype=np.int64)


def _share_marks(site: Site, channel: Channel, marking: str, marks: Array | None) -> Array:
    """Which common rows are for testing, told by the party that marks them."""
    channel, overlap = channel.within("hold out", DISCLOSURES), site.rows().overlap
    if marks is not None:
        mine = np.asarray(marks[overlap])
        for party in site.standing.aligned:
            if party != site.me:
                channel.send(party, "test rows", mine)
        return mine
    came = channel.receive(marking, "test rows")
    return expect_array(
        came, sender=marking, name="test rows", holds="boolean", shape=(len(overlap),)
    )


def training_places(site: Site) -> Rows:
    """Places in the common order that are not held out."""
    every = np.arange(len(site.rows().overlap))
    held_out = site.standing.held_out
    return every if held_out is None else np.setdiff1d(every, held_out)


def for_training(site: Site) -> Site:
    """The site without the common rows that are held out."""
    share = site.standing.rows
    if share is None or site.standing.held_out is None:
        return site
    kept = training_places(site)
    marks = None if share.marks is None else share.marks[kept]
    return site.with_rows(replace(share, overlap=share.overlap[kept], marks=marks))


def for_testing(site: Site) -> Site:
    """The site with nothing but the common rows that are held out."""
    share, held_out = site.standing.rows, site.standing.held_out
    if share is None:
        return site
    if held_out is None:
        raise DataError("There are no rows to evaluate on: the job holds none out.")
    kept = replace(share, overlap=share.overlap[held_out], rest=no_rows(), marks=None)
    return site.with_rows(kept)
