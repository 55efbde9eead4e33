"""Set intersection with a helper that sees no id: keyed tags of everybody's ids meet there.

Holds    data holders: ids, and a key k that the first of them draws anew for each intersection.
         Helper (the key holder of a run): nothing.
Flow     first holder → other holders  k, which never reaches the helper
         holder → holders              how many ids it has, and how it makes them comparable
         holder → helper               tags F_k(id), 12 bytes each, in an order drawn anew
         helper → receivers            where the tags that all lists have stand in the receiver's
                                       own list, in the order of the tags
Learns   helper: how many ids each list has and how many are in which lists; tags are random numbers
         to it, and others every time. A receiver: which of its ids all others have, and how long
         their lists are; of three lists, nothing about ids that only two have.
Not      prevented: a receiver that puts guessed ids into its list (state.py counts how many it asks
         about). The helper together with one holder has k and all tags: both can test guessed ids
         against every list. Where nobody can be trusted with that, take a protocol without helper.
Cost     one AES block and 12 bytes per id; no public-key operation.

This is the server-aided protocol of Kamara, Mohassel, Raykova and Sadeghian, "Scaling private set
intersection to billion-element sets", for parties that follow it. F_k is AES-256 on the first 128
bits of an id's digest, cut to 96 bits: over two lists of 100 million, some pair of different ids
gets equal tags with a chance below 2^-42.

Tags are in a random order for everybody who does not know k, so their order is the common order of
rows; whoever knows k knows its own rows only.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from vfsl.align.ids import ByteRows, IdList, RowNumbers, draw_secret_order, find_rows, to_rows
from vfsl.align.plan import RowShare, find_rest
from vfsl.align.psi import Alignment, Caution, PsiProtocol
from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.errors import DataError, ProtocolError
from vfsl.progress import Event
from vfsl.values import Disclosure, Disclosures, SealedIds

DISCLOSURES: Disclosures = {
    "list": Disclosure(dict, "how many ids the sender has, and its id options"),
    "key": Disclosure(dict, "the key of this intersection's tags, and the name of the plan"),
    "sizes": Disclosure(dict, "to the helper: how many ids the sender has, the least overlap"),
    "tags": Disclosure(SealedIds, "to the helper: tags under a key that it does not have"),
    "common": Disclosure(dict, "which of the receiver's ids all lists have"),
}

AIDED = PsiProtocol(
    "aided",
    "keyed tags that a helper compares",
    helped=True,
    ids_per_second={128: 600_000, 112: 600_000},  # `vfsl bench run psi`
)

TAG_BYTES = 12
_VERSION = 1
_KEY_BYTES, _BLOCK_BYTES = 32, 16
_PART = 1 << 17  # tags per message
_MAX_IDS = 1 << 40
_FEW = "few"


# ---- tags, and where they meet ------------------------------------------------------------------


def make_keyed_tags(digests: ByteRows, key: bytes) -> ByteRows:
    """F_k of ids."""
    blocks = np.ascontiguousarray(digests[:, :_BLOCK_BYTES]).tobytes()
    encrypted = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)
    return to_rows(encrypted, _BLOCK_BYTES)[:, :TAG_BYTES]


@dataclass(frozen=True, eq=False)
class SortedTags:
    """The tags of a list in rising order, as their first eight and last four bytes.

    ``order`` says where they stood in the list, ``unique`` whether the first eight bytes tell them
    all apart, and ``repeats`` whether two of them are equal.
    """

    order: RowNumbers
    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint32]
    unique: bool
    repeats: bool

    @classmethod
    def of(cls, rows: ByteRows) -> SortedTags:
        high = np.ascontiguousarray(rows[:, :8]).view(">u8").ravel().astype(np.uint64)
        low = np.ascontiguousarray(rows[:, 8:]).view(">u4").ravel().astype(np.uint32)
        order, repeats = np.argsort(high), False
        unique = bool((np.diff(high[order]) != 0).all())
        if not unique:
            order = np.lexsort((low, high))
        high, low = high[order], low[order]
        if not unique:
            repeats = bool(((np.diff(high) == 0) & (np.diff(low) == 0)).any())
        return cls(order.astype(np.int64), high, low, unique, repeats)

    def find_in(self, other: SortedTags) -> RowNumbers:
        """The place of each tag among the sorted tags of another list, −1 if it is not there."""
        if not len(other.order):
            return np.full(len(self.order), -1, dtype=np.int64)
        if not other.unique:
            return find_rows(self.join(), other.join())
        place = np.minimum(np.searchsorted(other.high, self.high), len(other.high) - 1)
        same = (other.high[place] == self.high) & (other.low[place] == self.low)
        return np.where(same, place, -1)

    def join(self) -> ByteRows:
        """The tags as rows of bytes again."""
        high = self.high.astype(">u8").view(np.uint8).reshape(-1, 8)
        low = self.low.astype(">u4").view(np.uint8).reshape(-1, TAG_BYTES - 8)
        return np.concatenate([high, low], axis=1)


def intersect_tags(lists: Sequence[SortedTags]) -> list[RowNumbers]:
    """Where the tags that all lists have stand in each list, in rising order of the tags."""
    first, *others = lists
    places = [first.find_in(other) for other in others]
    common = np.logical_and.reduce([place >= 0 for place in places])
    found = [other.order[at[common]] for other, at in zip(others, places, strict=True)]
    return [first.order[common], *found]


# ---- a data holder ------------------------------------------------------------------------------


def align_aided(
    channel: Channel,
    parties: Sequence[str],
    helper: str,
    ids: IdList,
    how: Alignment,
    *,
    rng: np.random.Generator | None = None,
) -> RowShare:
    """A data holder's side of an alignment: the rows that all parties have, in a common order.

    In a simulation ``rng`` draws the key at the first party, and so the common order.
    """
    least = how.limits.minimum
    plan, numbers = find_common(channel, parties, helper, ids, how, parties, least, rng)
    overlap = ids.rows[numbers]
    return RowShare(channel.me, plan, overlap, find_rest(ids, overlap))


def find_common(
    channel: Channel,
    parties: Sequence[str],
    helper: str,
    ids: IdList,
    how: Alignment,
    receivers: Sequence[str],
    minimum: int,
    rng: np.random.Generator | None = None,
) -> tuple[str, RowNumbers]:
    """The plan's name, and at a receiver the numbers of its ids that all parties have.

    With fewer than ``minimum`` of them nobody is told which they are.
    """
    channel = channel.within("aided", DISCLOSURES)
    others = [party for party in parties if party != channel.me]
    _compare_lists(channel, others, ids, how, receivers)
    if channel.me == parties[0]:
        key = secrets.token_bytes(_KEY_BYTES) if rng is None else rng.bytes(_KEY_BYTES)
        plan = secrets.token_hex(16) if rng is None else rng.bytes(16).hex()
        for party in others:
            channel.send(party, "key", {"key": key, "plan": plan})
    else:
        key, plan = _receive_key(channel, parties[0])
    order = draw_secret_order(len(ids))
    channel.send(helper, "sizes", {"ids": len(ids), "minimum": minimum})
    tags = make_keyed_tags(ids.digests, key)
    for place, start in enumerate(range(0, len(ids), _PART)):
        part = np.ascontiguousarray(tags[order[start : start + _PART]])
        channel.within(f"part {place}").send(helper, "tags", SealedIds(part))
        how.report(Event("align", f"{channel.me} tags", min(start + _PART, len(ids)), len(ids)))
    numbers = np.empty(0, dtype=np.int64)
    if channel.me in receivers:
        numbers = order[_receive_positions(channel, helper, len(ids), minimum)]
    for party in others:
        how.party_state.last_list(channel.me, party).keep(ids.digests)
    return plan, numbers


def _compare_lists(
    channel: Channel, others: Sequence[str], ids: IdList, how: Alignment, receivers: Sequence[str]
) -> None:
    """Tell the other holders of one's list and hear of theirs; count what receivers ask about."""
    for party in others:
        text = how.party_state.last_list(channel.me, party).warn(ids.digests, how.limits)
        if text is not None:
            how.report(Caution(ids.party, party, text))
    own = {"version": _VERSION, "normalise": ids.normalise.describe(), "ids": len(ids)}
    for party in others:
        channel.send(party, "list", own)
    questions = how.party_state.questions(how.limits, len(ids))
    for party in others:
        came = channel.receive(party, "list")
        theirs = {name: came.get(name) for name in ("version", "normalise")}
        mine = {name: own[name] for name in theirs}
        if theirs != mine:
            raise ProtocolError(
                f"Party {party!r} aligns with {theirs!r:.300}, party {channel.me!r} with {mine!r}; "
                "choose the same at both.",
                party,
            )
        asked = expect_integer(came.get("ids"), sender=party, name="ids", low=0, high=_MAX_IDS)
        if party in receivers:
            questions.count(party, asked)


def _receive_key(channel: Channel, first: str) -> tuple[bytes, str]:
    came = channel.receive(first, "key")
    key, plan = came.get("key"), came.get("plan")
    if not isinstance(key, bytes) or len(key) != _KEY_BYTES or not isinstance(plan, str):
        raise ProtocolError(f"Party {first!r} sent no key of {_KEY_BYTES} bytes.", first)
    return key, plan


def _receive_positions(channel: Channel, helper: str, count: int, minimum: int) -> RowNumbers:
    came = channel.receive(helper, "common")
    if came.get(_FEW):
        raise DataError(
            "The parties have fewer ids in common than one of them wants (here at least "
            f"{minimum}); check that all use the same id column and normalisation."
        )
    positions = expect_array(
        came.get("positions"), sender=helper, name="common", holds="integer", shape=(None,)
    )
    inside = not len(positions) or (positions.min() >= 0 and positions.max() < count)
    if not inside or len(np.unique(positions)) != len(positions) or len(positions) < minimum:
        raise ProtocolError(f"Party {helper!r} sent positions that cannot be.", helper)
    return positions.astype(np.int64)


# ---- the helper ---------------------------------------------------------------------------------


def help_parties(channel: Channel, parties: Sequence[str], receivers: Sequence[str]) -> int:
    """The helper's side: compare everybody's tags, tell receivers where the common ones stand.

    Returns how many there are.
    """
    channel = channel.within("aided", DISCLOSURES)
    sizes = {}
    for party in parties:
        came = channel.receive(party, "sizes")
        sizes[party] = [
            expect_integer(came.get(name), sender=party, name=name, low=0, high=_MAX_IDS)
            for name in ("ids", "minimum")
        ]
    lists = [_receive_tags(channel, party, sizes[party][0]) for party in parties]
    places = intersect_tags(lists)
    narrow = np.int32 if max(count for count, _ in sizes.values()) < 1 << 31 else np.int64
    few = len(places[0]) < max(minimum for _, minimum in sizes.values())
    for party, positions in zip(parties, places, strict=True):
        if party in receivers:
            found = {_FEW: True} if few else {"positions": positions.astype(narrow)}
            channel.send(party, "common", found)
    return len(places[0])


def _receive_tags(channel: Channel, party: str, count: int) -> SortedTags:
    tags = np.empty((count, TAG_BYTES), dtype=np.uint8)
    for place, start in enumerate(range(0, count, _PART)):
        size = min(_PART, count - start)
        came = channel.within(f"part {place}").receive(party, "tags").payload
        tags[start : start + size] = expect_array(
            came, sender=party, name="tags", holds="bytes", shape=(size, TAG_BYTES)
        )
    found = SortedTags.of(tags)
    if found.repeats:
        raise ProtocolError(f"Party {party!r} sent two equal tags; honest ones never are.", party)
    return found
