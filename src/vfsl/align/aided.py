"""Set intersection with a helper that sees no id: keyed tags of everybody's ids meet there.

Holds    data holders: ids, and a key k that the first of them draws anew for each intersection.
         Helper (the key holder of a run): nothing.
Flow     first holder → other holders  k, which never reaches the helper
         holder → holders              how many ids it has, and how it makes them comparable
         holder → helper               tags F_k(id), 12 bytes each, in rising order, by bucket
         helper → receivers            one bit per tag of the receiver's own list: do all have it?
                                       To count only: how many there are
Learns   helper: how many ids each list has and how many are in which lists; tags are random numbers
         to it, and others every time, so their order says nothing. A receiver: which of its ids all
         others have, and how long their lists are; of three lists, nothing about ids that only two
         have. To count only: how many ids all have.
Sizes    hidden by ``hide_sizes``: each list is filled with random tags up to a power of two, and a
         number of decoys, which only holders know, is in all lists: the helper sees the sizes of
         filled lists, and the overlap with up to half the shortest one added to it.
Not      prevented: a receiver that puts guessed ids into its list (state.py counts how many it asks
         about). The helper together with one holder has k and all tags: both can test guessed ids
         against every list. Where nobody can be trusted with that, take a protocol without helper.
Cost     one AES block and 12 bytes per id; no public-key operation. Memory beside the lists
         themselves: four bytes per id and a few buckets (tags.py).

This is the server-aided protocol of Kamara, Mohassel, Raykova and Sadeghian, "Scaling private set
intersection to billion-element sets", for parties that follow it. F_k is AES-256 on the first 128
bits of an id's digest, cut to 96 bits: over two lists of 100 million, some pair of different ids
gets equal tags with a chance below 2^-42.

The rising order of tags is a random order for everybody who does not know k, so it is the common
order of rows; whoever knows k knows its own rows only.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vfsl.align.ids import ByteRows, IdList, RowNumbers, to_rows
from vfsl.align.plan import RowShare, find_rest
from vfsl.align.psi import Alignment, Caution, PsiProtocol
from vfsl.align.tags import (
    KEY_BYTES,
    NO_ID,
    TAG_BYTES,
    Bits,
    SortedTags,
    TagList,
    count_buckets,
    make_keyed_tags,
    mark_common,
)
from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.errors import DataError, ProtocolError
from vfsl.progress import Event
from vfsl.values import Array, Disclosure, Disclosures, SealedIds

DISCLOSURES: Disclosures = {
    "list": Disclosure(dict, "how many ids the sender has, and its id options"),
    "key": Disclosure(dict, "the key of this intersection's tags, and the name of the plan"),
    "sizes": Disclosure(dict, "to the helper: how many tags the sender has, the least overlap"),
    "tags": Disclosure(SealedIds, "to the helper: tags under a key that it does not have"),
    "taken": Disclosure(dict, "nothing: the helper has compared a bucket of tags"),
    "count": Disclosure(dict, "how many ids all lists have, or whether they are enough"),
    "common": Disclosure(np.ndarray, "which of the receiver's ids all lists have"),
}

AIDED = PsiProtocol(
    "aided",
    "keyed tags that a helper compares",
    helped=True,
    ids_per_second={128: 600_000, 112: 600_000},  # `vfsl bench run psi`
)

_VERSION = 2
_PART = 1 << 17  # tags per message
_CHUNK = 1 << 20  # ids that are turned into tags at once
_WINDOW = 4  # buckets on the way: enough to keep the helper busy, few enough to stay small
_MAX_IDS = 1 << 40
_LEAST_FILLED = 1 << 10


@dataclass(frozen=True)
class Question:
    """What an intersection is to find.

    Attributes
    ----------
    parties : sequence of str
        Whose lists meet; the first one draws the key.
    helper : str
    receivers : sequence of str
        Who is told.
    minimum : int
        With fewer common ids nobody is told which they are.
    count_only : bool
        Whether receivers are told how many there are, and no more.
    """

    parties: Sequence[str]
    helper: str
    receivers: Sequence[str]
    minimum: int = 0
    count_only: bool = False


@dataclass(frozen=True, eq=False)
class Found:
    """What a receiver ends up with: how many ids are common, and the numbers of its own.

    A holder that is no receiver learns neither.
    """

    plan: str
    count: int
    numbers: RowNumbers


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
    question = Question(parties, helper, parties, how.limits.minimum)
    found = find_common(channel, question, ids, how, rng)
    overlap = ids.rows[found.numbers]
    return RowShare(channel.me, found.plan, overlap, find_rest(ids, overlap))


def find_common(
    channel: Channel,
    question: Question,
    ids: IdList,
    how: Alignment,
    rng: np.random.Generator | None = None,
) -> Found:
    """A data holder's side of an intersection."""
    channel = channel.within("aided", DISCLOSURES)
    others = [party for party in question.parties if party != channel.me]
    sizes = _compare_lists(channel, others, ids, how, question.receivers)
    agreed = _agree(channel, question.parties, sizes, how, rng)
    room = sizes[channel.me] + agreed.spare
    with TagList(room, count_buckets(max(sizes.values()) + agreed.spare), agreed.folder) as tags:
        _make_tags(channel.me, tags, ids, agreed, room, how)
        _send_tags(channel, question, tags, how)
        found = Found(agreed.plan, 0, np.empty(0, dtype=np.int64))
        if channel.me in question.receivers:
            found = _receive_common(channel, question, tags, agreed, how)
    for party in others:
        how.party_state.last_list(channel.me, party).keep(ids.digests)
    return found


@dataclass(frozen=True)
class _Agreed:
    """What the holders know of an intersection and the helper does not."""

    key: bytes
    plan: str
    spare: int  # places in each list beyond its (filled) size
    decoys: int  # how many of them hold tags that all lists have
    folder: Path | None

    def make_decoys(self) -> ByteRows:
        """Tags of no id, the same at all holders."""
        counters = np.zeros((self.decoys, KEY_BYTES), dtype=np.uint8)
        numbers = np.arange(self.decoys, dtype="<u8").view(np.uint8)
        counters[:, :8] = numbers.reshape(-1, 8)
        return make_keyed_tags(counters, hashlib.sha256(b"vfsl-decoys-v1" + self.key).digest())


def fill_size(ids: int) -> int:
    """How long a list of so many ids is said to be where sizes are hidden: a power of two."""
    return max(_LEAST_FILLED, 1 << max(ids - 1, 0).bit_length())


def _compare_lists(
    channel: Channel, others: Sequence[str], ids: IdList, how: Alignment, receivers: Sequence[str]
) -> dict[str, int]:
    """Tell the other holders of one's list and hear of theirs; count what receivers ask about."""
    for party in others:
        text = how.party_state.last_list(channel.me, party).warn(ids.digests, how.limits)
        if text is not None:
            how.report(Caution(ids.party, party, text))
    size = fill_size(len(ids)) if how.hide_sizes else len(ids)
    own: dict[str, Any] = {
        "version": _VERSION,
        "normalise": ids.normalise.describe(),
        "hide_sizes": how.hide_sizes,
        "ids": size,
    }
    for party in others:
        channel.send(party, "list", own)
    questions = how.party_state.questions(how.limits, size)
    sizes = {channel.me: size}
    for party in others:
        came = channel.receive(party, "list")
        theirs = {name: came.get(name) for name in own if name != "ids"}
        mine = {name: own[name] for name in theirs}
        if theirs != mine:
            raise ProtocolError(
                f"Party {party!r} aligns with {theirs!r:.300}, party {channel.me!r} with {mine!r}; "
                "choose the same at both.",
                party,
            )
        asked = expect_integer(came.get("ids"), sender=party, name="ids", low=0, high=_MAX_IDS)
        sizes[party] = asked
        if party in receivers:
            questions.count(party, asked)
    return sizes


def _agree(
    channel: Channel,
    parties: Sequence[str],
    sizes: dict[str, int],
    how: Alignment,
    rng: np.random.Generator | None,
) -> _Agreed:
    """The key and what else hides the lists from the helper, as the first holder draws it."""
    folder = None if how.state is None else Path(how.state)
    spare = min(sizes.values()) // 2 if how.hide_sizes else 0
    if channel.me == parties[0]:
        key = secrets.token_bytes(KEY_BYTES) if rng is None else rng.bytes(KEY_BYTES)
        plan = secrets.token_hex(16) if rng is None else rng.bytes(16).hex()
        decoys = secrets.randbelow(spare + 1)
        for party in parties[1:]:
            channel.send(party, "key", {"key": key, "plan": plan, "decoys": decoys})
        return _Agreed(key, plan, spare, decoys, folder)
    came = channel.receive(parties[0], "key")
    key, plan = came.get("key"), came.get("plan")
    if not isinstance(key, bytes) or len(key) != KEY_BYTES or not isinstance(plan, str):
        raise ProtocolError(f"Party {parties[0]!r} sent no key of {KEY_BYTES} bytes.", parties[0])
    decoys = expect_integer(came.get("decoys"), sender=parties[0], name="decoys", low=0, high=spare)
    return _Agreed(key, plan, spare, decoys, folder)


def _make_tags(
    me: str, tags: TagList, ids: IdList, agreed: _Agreed, room: int, how: Alignment
) -> None:
    """Put the tags of all ids into their buckets, and fill up where sizes are hidden."""
    for start in range(0, len(ids), _CHUNK):
        digests = ids.digests[start : start + _CHUNK]
        numbers = np.arange(start, start + len(digests), dtype=np.int64)
        tags.add(make_keyed_tags(digests, agreed.key), numbers)
        how.report(Event("align", f"{me} tags", start + len(digests), len(ids)))
    if how.hide_sizes:
        made_up = secrets.token_bytes(TAG_BYTES * (room - len(ids) - agreed.decoys))
        for rows in (agreed.make_decoys(), to_rows(made_up, TAG_BYTES)):
            tags.add(rows, np.full(len(rows), NO_ID, dtype=np.int64))


def _send_tags(channel: Channel, question: Question, tags: TagList, how: Alignment) -> None:
    """Send bucket after bucket, a few ahead of the helper."""
    minimum = 0 if how.hide_sizes else question.minimum  # decoys would be counted
    content = {"tags": tags.sizes, "minimum": minimum}
    channel.send(question.helper, "sizes", content)
    buckets, sent, total = len(tags.sizes), 0, int(tags.sizes.sum())
    for bucket in range(buckets):
        rows = tags.sort(bucket)
        for place, start in enumerate(range(0, len(rows), _PART)):
            part = np.ascontiguousarray(rows[start : start + _PART])
            here = channel.within(f"bucket {bucket} part {place}")
            here.send(question.helper, "tags", SealedIds(part))
        sent += len(rows)
        if bucket >= _WINDOW:
            channel.within(f"bucket {bucket - _WINDOW}").receive(question.helper, "taken")
        how.report(Event("align", f"{channel.me} sends tags", sent, total))
    for bucket in range(max(buckets - _WINDOW, 0), buckets):
        channel.within(f"bucket {bucket}").receive(question.helper, "taken")


def _receive_common(
    channel: Channel, question: Question, tags: TagList, agreed: _Agreed, how: Alignment
) -> Found:
    helper = question.helper
    came = channel.receive(helper, "count")
    if came.get("few"):
        raise _too_few(question.minimum)
    if question.count_only:
        high = int(tags.sizes.sum())
        count = expect_integer(came.get("ids"), sender=helper, name="count", low=0, high=high)
        return Found(agreed.plan, count - agreed.decoys, np.empty(0, dtype=np.int64))
    found = []
    for bucket, size in enumerate(tags.sizes.tolist()):
        packed = expect_array(
            channel.within(f"bucket {bucket}").receive(helper, "common"),
            sender=helper,
            name="common",
            holds="bytes",
            shape=((size + 7) // 8,),
        )
        marks: Bits = np.unpackbits(packed, count=size).astype(bool)
        found.append(tags.find_ids(bucket, marks))
    numbers = np.concatenate(found)
    if len(numbers) < question.minimum:
        if how.hide_sizes:
            raise _too_few(question.minimum)
        raise ProtocolError(f"Party {helper!r} marked fewer tags than it may.", helper)
    return Found(agreed.plan, len(numbers), numbers)


def _too_few(minimum: int) -> DataError:
    return DataError(
        "The parties have fewer ids in common than one of them wants (here at least "
        f"{minimum}); check that all use the same id column and normalisation."
    )


# ---- the helper ---------------------------------------------------------------------------------


def help_parties(channel: Channel, question: Question) -> int:
    """The helper's side: compare everybody's tags, tell receivers which are common.

    Returns how many there are.
    """
    channel = channel.within("aided", DISCLOSURES)
    sizes, minima = {}, []
    for party in question.parties:
        came = channel.receive(party, "sizes")
        sizes[party] = _read_sizes(came.get("tags"), party)
        minima.append(
            expect_integer(came.get("minimum"), sender=party, name="minimum", low=0, high=_MAX_IDS)
        )
    kept: list[dict[str, Array]] = []
    count = 0
    for bucket in range(_count_buckets(sizes)):
        lists = [
            _receive_tags(channel, bucket, party, int(sizes[party][bucket]))
            for party in question.parties
        ]
        marks = mark_common(lists)
        count += int(marks[0].sum())
        kept.append({p: np.packbits(m) for p, m in zip(question.parties, marks, strict=True)})
        for party in question.parties:
            channel.within(f"bucket {bucket}").send(party, "taken", {})
    few = count < max(minima)
    for party in question.receivers:
        told = {"ids": count} if question.count_only and not few else {"few": few}
        channel.send(party, "count", told)
        if not few and not question.count_only:
            for bucket, marked in enumerate(kept):
                channel.within(f"bucket {bucket}").send(party, "common", marked[party])
    return count


def _read_sizes(value: object, party: str) -> Array:
    sizes = expect_array(value, sender=party, name="sizes", holds="integer", shape=(None,))
    if not len(sizes) or sizes.min() < 0 or int(sizes.sum()) > _MAX_IDS:
        raise ProtocolError(f"Party {party!r} sent sizes of buckets that cannot be.", party)
    return sizes


def _count_buckets(sizes: dict[str, Array]) -> int:
    counts = {party: len(one) for party, one in sizes.items()}
    if len(set(counts.values())) != 1:
        raise ProtocolError(f"The parties sent different numbers of buckets: {counts}.")
    return next(iter(counts.values()))


def _receive_tags(channel: Channel, bucket: int, party: str, count: int) -> SortedTags:
    tags = np.empty((count, TAG_BYTES), dtype=np.uint8)
    for place, start in enumerate(range(0, count, _PART)):
        size = min(_PART, count - start)
        came = channel.within(f"bucket {bucket} part {place}").receive(party, "tags").payload
        tags[start : start + size] = expect_array(
            came, sender=party, name="tags", holds="bytes", shape=(size, TAG_BYTES)
        )
    found = SortedTags.of(tags)
    if found.repeats:
        raise ProtocolError(f"Party {party!r} sent two equal tags; honest ones never are.", party)
    if not np.array_equal(found.order, np.arange(count)):
        raise ProtocolError(f"Party {party!r} sent tags that are not in rising order.", party)
    return found
