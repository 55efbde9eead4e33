"""Alignment of two and more parties through one hub, and the marking step of VFPU.

Alignment. The hub is the client of every other party (intersect.py), keeps the rows that all have,
puts them into a random order and tells each party the plan: positions among that party's own
shuffled tags.
Learns   hub: for each other party, which of the hub's rows it has (with three or more parties this
         is more than the plan; the hub is the one party that sees pairwise intersections with
         itself) and how many ids it holds. Others: how many ids the hub asks about, which of their
         own rows are in the overlap of *all*, and the common order. Nobody learns an id that it
         does not hold, and nobody but the hub learns about a row that is not in the overlap of all.
Order    drawn by the hub from the operating system's randomness, so it says nothing about the
         order of anybody's table; in a simulation from a passed Generator, so that a seed repeats
         it.

Marking. The label holder C is client to the positive holder A with the rows of its plan only:
those in A get +1, all others −1, none is dropped, and nothing is returned.
Learns   C: which of its overlap rows A knows, and how many ids A holds. A: how many rows C asks
         about, which is the size of C's overlap with B, and nothing about which. With kept values
         C asks only about rows that it never asked about, so a second marking tells A how many
         rows are new, even if the list is as long as before. B does not take part.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from vfsl.align.aided import Question, align_aided, find_common, help_parties
from vfsl.align.ids import IdList, RowNumbers, draw_secret_order
from vfsl.align.intersect import Matches, intersect_all, intersect_client, intersect_server
from vfsl.align.plan import RowPlan, RowShare, find_rest
from vfsl.align.psi import Alignment
from vfsl.channel import Channel, Player, Transcript, expect_array, run_together
from vfsl.errors import ConfigError, DataError, ProtocolError
from vfsl.values import Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "plan": Disclosure(
        dict, "which of the receiver's rows are in the overlap of all parties, and the common order"
    ),
}


HELPER = "(helper)"  # in this process; no party may have this name


def align_hub(
    channel: Channel,
    servers: Sequence[str],
    ids: IdList,
    how: Alignment | None = None,
    *,
    rng: np.random.Generator | None = None,
) -> RowShare:
    """The hub's side: find the rows that all parties have and tell each of them the plan.

    In a simulation, where there is nothing to protect, ``rng`` draws the common order.
    """
    how = Alignment() if how is None else how
    if not servers or len(set(servers)) != len(servers):
        raise ConfigError(
            "The servers of an alignment must be one or more different parties. "
            f"Got {list(servers)} instead."
        )
    matches = intersect_all(channel, servers, ids, how)
    common, positions = find_common_rows(matches)
    minimum = max(how.limits.minimum, *(match.minimum for match in matches))
    if len(common) < minimum:
        raise DataError(
            f"The overlap of {channel.me!r} with {', '.join(map(repr, servers))} has "
            f"{len(common)} rows, but the parties want at least {minimum}; check that all use the "
            "same id column and normalisation."
        )
    order = draw_secret_order(len(common)) if rng is None else rng.permutation(len(common))
    plan = secrets.token_hex(16) if rng is None else rng.bytes(16).hex()
    speaking = channel.within("align", DISCLOSURES)
    for server, places in zip(servers, positions, strict=True):
        speaking.send(server, "plan", {"plan": plan, "positions": places[order]})
    overlap = ids.rows[common[order]]
    return RowShare(channel.me, plan, overlap, find_rest(ids, overlap))


def align_server(channel: Channel, hub: str, ids: IdList, how: Alignment | None = None) -> RowShare:
    """Another party's side: take part in an alignment and receive the plan from the hub."""
    how = Alignment() if how is None else how
    served = intersect_server(channel, hub, ids, how)
    content = channel.within("align", DISCLOSURES).receive(hub, "plan")
    if set(content) != {"plan", "positions"} or not isinstance(content["plan"], str):
        raise ProtocolError(
            f"Party {hub!r} sent 'plan' with other fields than plan, positions.", hub
        )
    positions = _read_positions(content["positions"], hub, len(ids))
    if len(positions) < how.limits.minimum:
        raise ProtocolError(
            f"Party {hub!r} sent a plan of {len(positions)} rows; party {channel.me!r} wants at "
            f"least {how.limits.minimum}.",
            hub,
        )
    overlap = ids.rows[served.order[positions]]
    return RowShare(channel.me, content["plan"], overlap, find_rest(ids, overlap))


def mark_client(
    channel: Channel, holder: str, ids: IdList, share: RowShare, how: Alignment | None = None
) -> RowShare:
    """The label holder's share with marks: +1 for rows that the positive holder knows, else −1."""
    kept = ids.take_rows(share.overlap)
    matches = intersect_client(channel.within("marks"), holder, kept, how)
    marks = np.full(len(kept), -1, dtype=np.int8)
    marks[matches.numbers] = 1
    return share.with_marks(marks)


def mark_aided(
    channel: Channel,
    label_holder: str,
    holder: str,
    helper: str,
    ids: IdList,
    share: RowShare | None,
    how: Alignment,
) -> RowShare | None:
    """Marking with a helper: the label holder's share with marks; the positive holder gets None."""
    kept = ids if share is None else ids.take_rows(share.overlap)
    # No plan comes of it, so there is no least overlap, as without a helper.
    question = ask_for_marks(label_holder, holder, helper)
    found = find_common(channel.within("marks"), question, kept, how)
    if share is None:
        return None
    marks = np.full(len(kept), -1, dtype=np.int8)
    marks[found.numbers] = 1
    return share.with_marks(marks)


def ask_for_marks(label_holder: str, holder: str, helper: str) -> Question:
    """What holders and helper of a marking agree on."""
    return Question((label_holder, holder), helper, (label_holder,))


def mark_server(channel: Channel, client: str, ids: IdList, how: Alignment | None = None) -> None:
    """Let the label holder mark its overlap rows; nothing comes back."""
    intersect_server(channel.within("marks"), client, ids, how)


def align(
    ids: Mapping[str, IdList],
    hub: str | None = None,
    how: Alignment | Mapping[str, Alignment] | None = None,
    *,
    rng: np.random.Generator | None = None,
    transcript: Transcript | None = None,
) -> RowPlan:
    """Align all parties in this process and return their plan; the last one is the hub by default.

    A state folder belongs to one party, so it needs a mapping of party to Alignment. Without
    ``rng`` the operating system draws the common order.
    """
    hub = list(ids)[-1] if hub is None else hub
    if hub not in ids or len(ids) < 2:
        raise ConfigError(
            "An alignment needs two or more parties and a hub among them. "
            f"Got {list(ids)} and {hub!r} instead."
        )
    if isinstance(how, Alignment) and how.state is not None:
        raise ConfigError(
            "A state folder belongs to one party. Got one for all instead; give a mapping of "
            "party to Alignment."
        )
    hows = {party: how.get(party) if isinstance(how, Mapping) else how for party in ids}
    shares = run_together(alignment_roles(ids, hub, hows, rng), transcript=transcript)
    return RowPlan({party: shares[party] for party in ids})


def alignment_roles(
    ids: Mapping[str, IdList],
    hub: str,
    how: Mapping[str, Alignment | None],
    rng: np.random.Generator | None = None,
) -> dict[str, Player]:
    """The role of each party in an alignment, to be run together."""
    helped = {party: one for party, one in how.items() if one is not None and one.helped}
    if len(helped) == len(ids):
        return _aided_roles(ids, helped, rng)
    servers = [party for party in ids if party != hub]
    roles: dict[str, Player] = {
        party: partial(align_server, hub=hub, ids=ids[party], how=how[party]) for party in servers
    }
    roles[hub] = partial(align_hub, servers=servers, ids=ids[hub], how=how[hub], rng=rng)
    return roles


def _aided_roles(
    ids: Mapping[str, IdList],
    how: Mapping[str, Alignment],
    rng: np.random.Generator | None,
) -> dict[str, Player]:
    parties = tuple(ids)
    roles: dict[str, Player] = {
        party: partial(
            align_aided, parties=parties, helper=HELPER, ids=ids[party], how=how[party], rng=rng
        )
        for party in parties
    }
    roles[HELPER] = partial(help_parties, question=Question(parties, HELPER, parties))
    return roles


def find_common_rows(matches: Sequence[Matches]) -> tuple[RowNumbers, list[RowNumbers]]:
    """The hub's id numbers that match at every party, and their positions at each."""
    common = matches[0].numbers
    for match in matches[1:]:
        common = np.intersect1d(common, match.numbers, assume_unique=True)
    return common, [one.positions[np.searchsorted(one.numbers, common)] for one in matches]


def _read_positions(value: object, hub: str, count: int) -> RowNumbers:
    positions = expect_array(value, sender=hub, name="plan", holds="integer", shape=(None,))
    if len(positions) and (positions.min() < 0 or positions.max() >= count):
        raise ProtocolError(
            f"Party {hub!r} sent a plan with positions outside 0 to {count - 1}.", hub
        )
    if len(np.unique(positions)) != len(positions):
        raise ProtocolError(f"Party {hub!r} sent a plan that names a row twice.", hub)
    return positions.astype(np.int64)
