"""Two-party set intersection over a channel: one client that learns, one server that does not.

Holds    client and server: a list of ids each; server: a key (blind_rsa.py, ecdh.py say of what
         kind).
Learns   server: how many ids the client asks about (with kept values: how many are new to this
         key). Client: which of its ids the server has, how many ids the server has, and where the
         matches stand among the server's freshly shuffled tags, which is no row number of anybody.
         Tags of ids that the client does not have are random to it, and other ones in every run.
Not      hidden: sizes. Not prevented: a client that asks about guessed ids (limits.py counts them).

The client sends batches and keeps a few on the way, so blinding, transfer and answering overlap;
both sides hold a few batches and 32 bytes an id. With a state folder, finished values are kept
(state.py): after an interruption, or when a list has grown, only missing ids are worked on.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from vfsl.align.byterows import ByteRows, RowNumbers, count_repeats, find, joined, secret_order
from vfsl.align.ids import IdList
from vfsl.align.limits import ListRecord, QuestionRecord
from vfsl.align.methods import (
    TAG_BYTES,
    BadElement,
    ServerMethod,
    fingerprint,
    run_context,
    tags_of,
)
from vfsl.align.options import MAX_BATCH, Alignment, Caution, Progress
from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.errors import ProtocolError
from vfsl.values import Disclosure, Disclosures, SealedIds, Wire

DISCLOSURES: Disclosures = {
    "ask": Disclosure(dict, "which method and id options the client uses"),
    "key": Disclosure(dict, "the server's public key and how many ids it holds"),
    "asked": Disclosure(dict, "how many ids the client asks about"),
    "blinded": Disclosure(SealedIds, "nothing: blinded ids are random numbers to the server"),
    "signed": Disclosure(SealedIds, "the server's key applied to the client's own blinded ids"),
    "tags": Disclosure(SealedIds, "which of the client's own ids the server holds"),
}

_VERSION = 1
_NONCE_BYTES = 16
_WINDOW = 4  # batches on the way: enough to keep the server busy, few enough to stay small
_OWN_BATCHES = 4  # of the server's own ids at once: cores wait for each other only at the end
_MAX_IDS = 1 << 40
_TAG_PART = 1 << 17
_SAMPLE_BYTES = 10  # of each blinded element, to notice repeats among all batches

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Matches:
    """What the client ends up with: its id numbers that match, and where their tags stand."""

    numbers: RowNumbers
    positions: RowNumbers
    server_ids: int
    minimum: int


@dataclass(frozen=True, eq=False)
class Served:
    """What the server ends up with: the id number behind each tag that it sent."""

    order: RowNumbers
    asked: int


def intersect_client(
    channel: Channel, server: str, ids: IdList, how: Alignment | None = None
) -> Matches:
    """Learn which of the own ids a server holds too.

    Parameters
    ----------
    channel : Channel
        The client's channel; the server runs :func:`intersect_server` at its own.
    server : str
        The server's name.
    ids : IdList
        The client's ids.
    how : Alignment, optional
        Method, limits, state.

    Returns
    -------
    Matches
        Numbers into ``ids``, each with the position of the server's tag.
    """
    how = Alignment() if how is None else how
    nonce = greet(channel, server, ids, how)
    asking = Asking(channel, server, ids, how, nonce)
    try:
        while asking.unfinished:
            asking.advance()
    finally:
        asking.save()
    return asking.matches()


def greet(channel: Channel, server: str, ids: IdList, how: Alignment) -> bytes:
    """Open an intersection as client; returns the client's part of the run's name."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    content = {
        "version": _VERSION,
        "protocol": how.protocol,
        "normalise": ids.normalise.describe(),
        "nonce": nonce,
    }
    channel.within("intersect", DISCLOSURES).send(server, "ask", content)
    return nonce


class Asking:
    """The client's side towards one server, in steps: a hub keeps several servers busy."""

    def __init__(
        self, channel: Channel, server: str, ids: IdList, how: Alignment, nonce: bytes
    ) -> None:
        self._channel = channel.within("intersect", DISCLOSURES)
        self._me, self._server, self._ids, self._how = channel.me, server, ids, how
        self._record = ListRecord(how.party_state.list_record(server), channel.me, server)
        _caution(self._record, ids, server, how)
        reply = _fields(
            self._channel.receive(server, "key"),
            server,
            "key",
            {"public": bytes, "proof": bytes, "nonce": bytes, "ids": int, "minimum": int},
        )
        self._server_ids = _size(reply["ids"], server, "ids")
        self._minimum = _size(reply["minimum"], server, "minimum")
        self._method = _blaming(server, partial(how.client, reply["public"], reply["proof"]))
        self._context = run_context(
            how.protocol, channel.me, server, nonce, reply["nonce"], reply["public"]
        )
        key = fingerprint(how.protocol, reply["public"])
        self._kept = how.party_state.asked_values(how.protocol, server, key)
        known, values = self._kept.lookup(ids.digests)
        self._tags = np.empty((len(ids), TAG_BYTES), dtype=np.uint8)
        self._tags[known] = tags_of(values, self._context)
        self._missing = np.flatnonzero(~known).astype(np.int64)
        self._batch = self._method.batch if how.batch is None else how.batch
        self._waiting: deque[tuple[Channel, RowNumbers, Any]] = deque()
        self._sent = self._done = 0
        self._channel.send(server, "asked", {"ids": len(self._missing), "batch": self._batch})

    @property
    def unfinished(self) -> bool:
        return self._done < len(self._missing)

    def advance(self) -> None:
        """Send one more batch if there is one; take an answer once enough are on the way."""
        if self._sent < len(self._missing):
            self._send_batch()
        if len(self._waiting) >= _WINDOW or self._sent == len(self._missing):
            self._take_answer()

    def save(self) -> None:
        """Keep the finished values, however the run ended."""
        self._kept.save()

    def matches(self) -> Matches:
        """Compare the server's tags with those of the own ids."""
        tags = self._receive_tags()
        positions = find(self._tags, tags)
        numbers = np.flatnonzero(positions >= 0).astype(np.int64)
        self._record.keep(self._ids.digests)
        return Matches(numbers, positions[numbers], self._server_ids, self._minimum)

    def _send_batch(self) -> None:
        scope = self._channel.within(f"batch {self._sent // self._batch}")
        numbers = self._missing[self._sent : self._sent + self._batch]
        elements, secret = self._method.blind(self._ids.digests[numbers])
        scope.send(self._server, "blinded", SealedIds(elements))
        self._waiting.append((scope, numbers, secret))
        self._sent += len(numbers)

    def _take_answer(self) -> None:
        scope, numbers, secret = self._waiting.popleft()
        answers = _sealed_rows(
            scope.receive(self._server, "signed"),
            self._server,
            "signed",
            (len(numbers), self._method.width),
        )
        _refuse_repeats(answers, self._server, "signed")
        digests = self._ids.digests[numbers]
        values = _blaming(self._server, partial(self._method.values, digests, answers, secret))
        self._tags[numbers] = tags_of(values, self._context)
        self._kept.add(digests, values)
        self._done += len(numbers)
        self._how.report(
            Progress(self._me, self._server, "asked ids", self._done, len(self._missing))
        )

    def _receive_tags(self) -> ByteRows:
        parts = []
        for place, start in enumerate(range(0, self._server_ids, _TAG_PART)):
            size = min(_TAG_PART, self._server_ids - start)
            part = self._channel.within(f"part {place}").receive(self._server, "tags")
            parts.append(_sealed_rows(part, self._server, "tags", (size, TAG_BYTES)))
        tags = joined(parts, TAG_BYTES)
        _refuse_repeats(tags, self._server, "tags")
        return tags


def intersect_server(
    channel: Channel, client: str, ids: IdList, how: Alignment | None = None
) -> Served:
    """Let a client learn which of its ids are here too.

    Parameters
    ----------
    channel : Channel
        The server's channel; the client runs :func:`intersect_client` at its own.
    client : str
        The client's name.
    ids : IdList
        The server's ids.
    how : Alignment, optional
        Method, limits, state.

    Returns
    -------
    Served
        The order of the tags, with which the server understands positions that come back.
    """
    how = Alignment() if how is None else how
    channel = channel.within("intersect", DISCLOSURES)
    record = ListRecord(how.party_state.list_record(client), channel.me, client)
    _caution(record, ids, client, how)
    ask = _receive_greeting(channel, client, ids, how)
    key = how.server_key()
    nonce = secrets.token_bytes(_NONCE_BYTES)
    content = {
        "public": key.public,
        "proof": key.proof(),
        "nonce": nonce,
        "ids": len(ids),
        "minimum": how.limits.minimum,
    }
    channel.send(client, "key", content)
    asked = _fields(channel.receive(client, "asked"), client, "asked", {"ids": int, "batch": int})
    count = _size(asked["ids"], client, "ids")
    batch = expect_integer(asked["batch"], sender=client, name="batch", low=1, high=MAX_BATCH)
    questions = QuestionRecord(how.party_state.question_record(), how.limits, len(ids))
    questions.check(client, count)
    context = run_context(how.protocol, client, channel.me, ask["nonce"], nonce, key.public)
    tags = _own_tags(channel.me, client, key, ids, context, how)
    _answer(channel, client, key, count, batch, questions, how)
    order = secret_order(len(ids))
    for place, start in enumerate(range(0, len(ids), _TAG_PART)):
        part = SealedIds(tags[order[start : start + _TAG_PART]])
        channel.within(f"part {place}").send(client, "tags", part)
    record.keep(ids.digests)
    return Served(order, count)


def _receive_greeting(channel: Channel, client: str, ids: IdList, how: Alignment) -> dict[str, Any]:
    wanted = {"version": int, "protocol": str, "normalise": str, "nonce": bytes}
    ask = _fields(channel.receive(client, "ask"), client, "ask", wanted)
    own = (_VERSION, how.protocol, ids.normalise.describe())
    theirs = (ask["version"], ask["protocol"], ask["normalise"])
    if theirs != own:
        raise ProtocolError(
            f"Party {client!r} aligns with version, protocol and id options {theirs!r:.300}, party "
            f"{channel.me!r} with {own!r}; choose the same at both.",
            client,
        )
    return ask


def _own_tags(
    me: str, client: str, key: ServerMethod, ids: IdList, context: bytes, how: Alignment
) -> ByteRows:
    """The tags of the server's own ids in its own order; values of earlier runs are kept ones."""
    kept = how.party_state.own_values(how.protocol, fingerprint(how.protocol, key.public))
    known, values = kept.lookup(ids.digests)
    tags = np.empty((len(ids), TAG_BYTES), dtype=np.uint8)
    tags[known] = tags_of(values, context)
    missing = np.flatnonzero(~known)
    try:
        for start in range(0, len(missing), _OWN_BATCHES * key.batch):
            numbers = missing[start : start + _OWN_BATCHES * key.batch]
            values = key.values(ids.digests[numbers])
            kept.add(ids.digests[numbers], values)
            tags[numbers] = tags_of(values, context)
            how.report(Progress(me, client, "own ids", start + len(numbers), len(missing)))
    finally:
        kept.save()
    return tags


def _answer(
    channel: Channel,
    client: str,
    key: ServerMethod,
    count: int,
    batch: int,
    questions: QuestionRecord,
    how: Alignment,
) -> None:
    """Apply the key to the client's batches, each counted before its answer leaves."""
    samples: list[ByteRows] = []
    for place, start in enumerate(range(0, count, batch)):
        scope = channel.within(f"batch {place}")
        size = min(batch, count - start)
        came = scope.receive(client, "blinded")
        elements = _sealed_rows(came, client, "blinded", (size, key.width))
        _refuse_repeats(elements, client, "blinded")
        samples.append(np.array(elements[:, -_SAMPLE_BYTES:]))
        questions.count(client, size)
        answers = _blaming(client, partial(key.answer, elements))
        scope.send(client, "signed", SealedIds(answers))
        how.report(Progress(channel.me, client, "answered ids", start + size, count))
    _refuse_repeats(joined(samples, _SAMPLE_BYTES), client, "blinded")


def _caution(record: ListRecord, ids: IdList, peer: str, how: Alignment) -> None:
    change = record.compare(ids.digests)
    text = None if change is None else change.warning(how.limits)
    if text is not None:
        how.report(Caution(ids.party, peer, text))


def _blaming(party: str, work: Callable[[], Result]) -> Result:
    """Do some work on what a party sent; a fault in it becomes an error that names the party."""
    try:
        return work()
    except BadElement as fault:
        raise ProtocolError(f"Party {party!r} {fault}.", party) from None


def _fields(value: Wire, sender: str, name: str, wanted: dict[str, type[Any]]) -> dict[str, Any]:
    if (
        not isinstance(value, dict)
        or set(value) != set(wanted)
        or any(type(value[key]) is not kind for key, kind in wanted.items())
    ):
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} with other fields than {', '.join(wanted)}.", sender
        )
    return value


def _size(value: Wire, sender: str, name: str) -> int:
    return expect_integer(value, sender=sender, name=name, low=0, high=_MAX_IDS)


def _sealed_rows(value: Wire, sender: str, name: str, shape: tuple[int, int]) -> ByteRows:
    rows: ByteRows = expect_array(
        value.payload, sender=sender, name=name, holds="bytes", shape=shape
    )
    return rows


def _refuse_repeats(rows: ByteRows, sender: str, name: str) -> None:
    repeats = count_repeats(rows)
    if repeats:
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} in which {repeats} values repeat earlier ones; "
            "honest ones never do.",
            sender,
        )
