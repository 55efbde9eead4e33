"""Two-party set intersection over a channel: one client that learns, one server that does not.

Holds    client and server: a list of ids each; server: a key, whose kind is a matter of the
         protocol (psi.py).
Learns   server: how many ids the client asks about (with kept values: how many are new to this
         key). Client: which of its ids the server has, how many ids the server has, and where the
         matches stand among the server's freshly shuffled tags, which is nobody's row number.
         Tags of ids that the client does not have are random to it, and different every time.
Not      hidden: sizes. Not prevented: a client that asks about guessed ids (state.py counts them).

The client sends batches and keeps a few on the way, so blinding, transfer and answering overlap;
both sides hold a few batches and 32 bytes per id. With a state folder, finished values are kept
(state.py): after an interruption, or when a list has grown, only missing ids are worked on.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from vfsl.align.ids import (
    ByteRows,
    IdList,
    RowNumbers,
    count_repeats,
    draw_secret_order,
    find_rows,
    join_rows,
)
from vfsl.align.psi import (
    MAX_BATCH,
    TAG_BYTES,
    Alignment,
    BadElement,
    Caution,
    PsiServer,
    bind_tags,
    make_tags,
    name_key,
)
from vfsl.align.state import ListRecord, QuestionRecord
from vfsl.channel import Channel, expect_array, expect_integer
from vfsl.errors import ProtocolError
from vfsl.progress import Event
from vfsl.values import Disclosure, Disclosures, SealedIds, Wire

DISCLOSURES: Disclosures = {
    "ask": Disclosure(dict, "which protocol and id options the client uses"),
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
    """What the server ends up with: the id number behind each tag that it sent.

    With these it understands the positions that come back in a plan.
    """

    order: RowNumbers
    asked: int


def intersect_client(
    channel: Channel, server: str, ids: IdList, how: Alignment | None = None
) -> Matches:
    """Learn which of the own ids a server holds too; it runs :func:`intersect_server`."""
    return intersect_all(channel, [server], ids, Alignment() if how is None else how)[0]


def intersect_all(
    channel: Channel, servers: Sequence[str], ids: IdList, how: Alignment
) -> list[Matches]:
    """Intersect with all servers at once, batch by batch in turn, so that none has to wait."""
    nonces = [_greet(channel, server, ids, how) for server in servers]
    asking = [
        _Asking(channel, server, ids, how, nonce)
        for server, nonce in zip(servers, nonces, strict=True)
    ]
    try:
        while any(one.unfinished for one in asking):
            for one in asking:
                if one.unfinished:
                    one.advance()
    finally:
        for one in asking:
            one.save()
    return [one.match() for one in asking]


def _greet(channel: Channel, server: str, ids: IdList, how: Alignment) -> bytes:
    """Open an intersection as client; returns the client's nonce."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    content = {
        "version": _VERSION,
        "protocol": how.protocol,
        "normalise": ids.normalise.describe(),
        "nonce": nonce,
    }
    channel.within("intersect", DISCLOSURES).send(server, "ask", content)
    return nonce


class _Asking:
    """The client's side towards one server, in steps: a hub keeps several servers busy."""

    def __init__(
        self, channel: Channel, server: str, ids: IdList, how: Alignment, nonce: bytes
    ) -> None:
        self._channel = channel.within("intersect", DISCLOSURES)
        self._me, self._server, self._ids, self._how = channel.me, server, ids, how
        self._record = how.party_state.last_list(channel.me, server)
        _warn_of_change(self._record, ids, server, how)
        wanted = {"public": bytes, "proof": bytes, "nonce": bytes, "ids": int, "minimum": int}
        reply = _receive_fields(self._channel, server, "key", wanted)
        self._server_ids = _read_size(reply["ids"], server, "ids")
        self._minimum = _read_size(reply["minimum"], server, "minimum")
        self._side = _blame(server, partial(how.client, reply["public"], reply["proof"]))
        nonces = nonce, reply["nonce"]
        self._context = bind_tags(how.protocol, channel.me, server, *nonces, reply["public"])
        key = name_key(how.protocol, reply["public"])
        self._kept = how.party_state.asked_values(how.protocol, server, key)
        known, values = self._kept.lookup(ids.digests)
        self._tags = np.empty((len(ids), TAG_BYTES), dtype=np.uint8)
        self._tags[known] = make_tags(values, self._context)
        self._missing = np.flatnonzero(~known).astype(np.int64)
        self._batch = self._side.batch if how.batch is None else how.batch
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

    def match(self) -> Matches:
        """Compare the server's tags with those of the own ids."""
        tags = self._receive_tags()
        positions = find_rows(self._tags, tags)
        numbers = np.flatnonzero(positions >= 0).astype(np.int64)
        self._record.keep(self._ids.digests)
        return Matches(numbers, positions[numbers], self._server_ids, self._minimum)

    def _send_batch(self) -> None:
        scope = self._channel.within(f"batch {self._sent // self._batch}")
        numbers = self._missing[self._sent : self._sent + self._batch]
        elements, secret = self._side.blind(self._ids.digests[numbers])
        scope.send(self._server, "blinded", SealedIds(elements))
        self._waiting.append((scope, numbers, secret))
        self._sent += len(numbers)

    def _take_answer(self) -> None:
        scope, numbers, secret = self._waiting.popleft()
        answers = _receive_rows(scope, self._server, "signed", (len(numbers), self._side.width))
        _refuse_repeats(answers, self._server, "signed")
        digests = self._ids.digests[numbers]
        values = _blame(self._server, partial(self._side.values, digests, answers, secret))
        self._tags[numbers] = make_tags(values, self._context)
        self._kept.add(digests, values)
        self._done += len(numbers)
        self._how.report(_progress(self._me, "asked ids", self._done, len(self._missing)))

    def _receive_tags(self) -> ByteRows:
        parts = []
        for place, start in enumerate(range(0, self._server_ids, _TAG_PART)):
            size = min(_TAG_PART, self._server_ids - start)
            scope = self._channel.within(f"part {place}")
            parts.append(_receive_rows(scope, self._server, "tags", (size, TAG_BYTES)))
        tags = join_rows(parts, TAG_BYTES)
        _refuse_repeats(tags, self._server, "tags")
        return tags


def intersect_server(
    channel: Channel, client: str, ids: IdList, how: Alignment | None = None
) -> Served:
    """Let a client that runs :func:`intersect_client` learn which of its ids are here too."""
    how = Alignment() if how is None else how
    channel = channel.within("intersect", DISCLOSURES)
    record = how.party_state.last_list(channel.me, client)
    _warn_of_change(record, ids, client, how)
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
    asked = _receive_fields(channel, client, "asked", {"ids": int, "batch": int})
    count = _read_size(asked["ids"], client, "ids")
    batch = expect_integer(asked["batch"], sender=client, name="batch", low=1, high=MAX_BATCH)
    questions = how.party_state.questions(how.limits, len(ids))
    questions.check(client, count)
    context = bind_tags(how.protocol, client, channel.me, ask["nonce"], nonce, key.public)
    tags = _make_own_tags(channel.me, key, ids, context, how)
    _answer(channel, client, key, count, batch, questions, how)
    order = draw_secret_order(len(ids))
    for place, start in enumerate(range(0, len(ids), _TAG_PART)):
        part = SealedIds(tags[order[start : start + _TAG_PART]])
        channel.within(f"part {place}").send(client, "tags", part)
    record.keep(ids.digests)
    return Served(order, count)


def _receive_greeting(channel: Channel, client: str, ids: IdList, how: Alignment) -> dict[str, Any]:
    wanted = {"version": int, "protocol": str, "normalise": str, "nonce": bytes}
    ask = _receive_fields(channel, client, "ask", wanted)
    own = (_VERSION, how.protocol, ids.normalise.describe())
    theirs = (ask["version"], ask["protocol"], ask["normalise"])
    if theirs != own:
        raise ProtocolError(
            f"Party {client!r} aligns with version, protocol and id options {theirs!r:.300}, party "
            f"{channel.me!r} with {own!r}; choose the same at both.",
            client,
        )
    return ask


def _make_own_tags(
    me: str, key: PsiServer, ids: IdList, context: bytes, how: Alignment
) -> ByteRows:
    """The tags of the server's own ids in its own order; kept values are not computed again."""
    kept = how.party_state.own_values(how.protocol, name_key(how.protocol, key.public))
    known, values = kept.lookup(ids.digests)
    tags = np.empty((len(ids), TAG_BYTES), dtype=np.uint8)
    tags[known] = make_tags(values, context)
    missing = np.flatnonzero(~known)
    try:
        for start in range(0, len(missing), _OWN_BATCHES * key.batch):
            numbers = missing[start : start + _OWN_BATCHES * key.batch]
            values = key.values(ids.digests[numbers])
            kept.add(ids.digests[numbers], values)
            tags[numbers] = make_tags(values, context)
            how.report(_progress(me, "own ids", start + len(numbers), len(missing)))
    finally:
        kept.save()
    return tags


def _answer(
    channel: Channel,
    client: str,
    key: PsiServer,
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
        elements = _receive_rows(scope, client, "blinded", (size, key.width))
        _refuse_repeats(elements, client, "blinded")
        samples.append(np.array(elements[:, -_SAMPLE_BYTES:]))
        questions.count(client, size)
        answers = _blame(client, partial(key.answer, elements))
        scope.send(client, "signed", SealedIds(answers))
        how.report(_progress(channel.me, "answered ids", start + size, count))
    _refuse_repeats(join_rows(samples, _SAMPLE_BYTES), client, "blinded")


def _progress(party: str, stage: str, done: int, total: int) -> Event:
    return Event("align", f"{party} {stage}", done, total)


def _warn_of_change(record: ListRecord, ids: IdList, peer: str, how: Alignment) -> None:
    text = record.warn(ids.digests, how.limits)
    if text is not None:
        how.report(Caution(ids.party, peer, text))


def _blame(party: str, work: Callable[[], Result]) -> Result:
    """Do some work on what a party sent; a fault in it becomes an error that names the party."""
    try:
        return work()
    except BadElement as fault:
        raise ProtocolError(f"Party {party!r} {fault}.", party) from None


def _receive_fields(
    channel: Channel, sender: str, name: str, wanted: dict[str, type[Any]]
) -> dict[str, Any]:
    value: Wire = channel.receive(sender, name)
    if (
        not isinstance(value, dict)
        or set(value) != set(wanted)
        or any(type(value[key]) is not kind for key, kind in wanted.items())
    ):
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} with other fields than {', '.join(wanted)}.", sender
        )
    return dict(value)


def _read_size(value: Wire, sender: str, name: str) -> int:
    return expect_integer(value, sender=sender, name=name, low=0, high=_MAX_IDS)


def _receive_rows(channel: Channel, sender: str, name: str, shape: tuple[int, int]) -> ByteRows:
    came = channel.receive(sender, name).payload
    rows: ByteRows = expect_array(came, sender=sender, name=name, holds="bytes", shape=shape)
    return rows


def _refuse_repeats(rows: ByteRows, sender: str, name: str) -> None:
    repeats = count_repeats(rows)
    if repeats:
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} in which {repeats} values repeat earlier ones; "
            "honest ones never do.",
            sender,
        )
