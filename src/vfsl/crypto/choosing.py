"""Sums of one holder's words that the other holders' private bits choose.

Holds   the first holder: words; every other holder: a bit for each word. A word counts if all bits
        for it are 1.
Learns  nobody anything: pieces of the sums. The dealer: how many rows, words per row and groups.

Bits cross as bits. With one other holder, which has the bits x and a mask a of its stream, the
first holder learns m = x + a without carry and sends back f = (1 − 2 m) w − b, with b of its own
stream. As x = m + (1 − 2 m) a, the sum of x w is Σ m w at the first holder, Σ a f at the other one,
and Σ a b, a word per row and group that the dealer deals.

With several other holders, masked bits make pieces of the product of their bits first, as in
comparing.py. The first holder learns that product with a mask of which each has a part, and sends f
to all of them; the dealer deals them the mask as pieces of a number. So whoever puts views together
learns nothing, as long as one holder stays out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import combinations, pairwise
from operator import xor

import numpy as np

from vfsl.crypto.session import Exchange
from vfsl.crypto.shares import Session, Shared
from vfsl.crypto.words import (
    Bits,
    Bytes,
    Words,
    count_bytes,
    pack,
    pack_bits,
    to_words,
    unpack,
    unpack_bits,
)
from vfsl.values import Array, Integers, Masked

# Words that are in memory, and in one message, at a time: 8 MB, and 3 MB of 24-bit words.
CHUNK = 1 << 20

_NOTHING: Bytes = np.zeros(0, dtype=np.uint8)

Choose = Callable[[slice], Array]
Offer = Callable[[slice], tuple[Integers, Integers]]


def sum_chosen(
    session: Session,
    rows: int,
    counts: Sequence[int],
    width: int,
    bits: Mapping[str, Choose],
    words: Offer | None,
    chunk: int = CHUNK,
) -> Shared:
    """For each row the sum of the chosen words of each group, (rows, groups).

    Parameters
    ----------
    rows : int
    counts : sequence of int
        Words per row of each group, one group after the other.
    width : int
        Bits of a word; sums must fit.
    bits : mapping by holder
        Of this party's bits: rows → (rows, words). In one place of all holders but the first.
    words : callable
        At the first holder: rows → (rows, words), and what is added to the sums in any case,
        (rows, groups).
    chunk : int
        Words at a time. It changes messages, not rounds.
    """
    work = _Work(session, rows, tuple(counts), width, chunk)
    if len(session.parties) == 1:
        return work.add_in_one_place(bits, words)
    return work.add_between_holders(bits.get(session.me), words)


class _Work:
    """One sum, in chunks of rows: all chunks of a message cross before the next message is due."""

    def __init__(
        self, session: Session, rows: int, counts: tuple[int, ...], width: int, chunk: int
    ) -> None:
        self._session, self._width = session, width
        self._places, self._shape = sum(counts), (rows, len(counts))
        ends = np.cumsum([0, *counts]).tolist()
        self._groups = [slice(low, high) for low, high in pairwise(ends)]
        step = max(1, chunk // max(self._places, 1))
        self._chunks = [slice(low, min(low + step, rows)) for low in range(0, rows, step)]

    def add_in_one_place(self, bits: Mapping[str, Choose], words: Offer | None) -> Shared:
        total = np.zeros(self._shape, dtype=np.uint64)
        for chunk in self._chunks:
            offered, always = words(chunk)  # type: ignore[misc]
            chosen = reduce(np.bitwise_and, (choose(chunk) for choose in bits.values()))
            total[chunk] = self._add(to_words(offered) * to_words(chosen)) + to_words(always)
        return Shared(self._session, total, self._width)

    def add_between_holders(self, bits: Choose | None, words: Offer | None) -> Shared:
        session, width = self._session, self._width
        first, *choosers = session.parties
        hidden = self._show_bits(first, choosers, bits)
        total, dealt = (np.zeros(self._shape, dtype=np.uint64) for _ in range(2))
        for chunk, packed in zip(self._chunks, hidden, strict=True):
            shape = self._shape_of(chunk)
            mask = session.draw(shape, first)
            if session.me == first and words is not None:
                shown = self._receive_bits(choosers, shape)
                offered, always = words(chunk)
                own = to_words(offered)
                signs = np.uint64(1) - np.uint64(2) * shown
                masked = pack(signs * own - mask.own, width)
                for party in choosers:
                    session.link.send(party, "masked", Masked(masked))
                total[chunk] = self._add(own * shown) + to_words(always)
            elif session.deals:
                dealt[chunk] = self._add(mask.total * unpack_bits(packed, shape))
        for chunk, packed in zip(self._chunks, hidden, strict=True):
            shape = self._shape_of(chunk)
            number = self._to_number(packed, shape, choosers)
            if session.me in choosers:
                size = count_bytes(shape, width)
                masked = session.receive_bytes(first, "masked", size)
                total[chunk] = self._add(unpack(masked, width, shape) * number)
        piece = total + session.deal(self._shape, lambda: dealt, width)
        return Shared(session, piece, width)

    def _show_bits(self, first: str, choosers: Sequence[str], bits: Choose | None) -> list[Bytes]:
        """Let the first holder see products of bits, masked; a chooser's masks, and the dealer's
        sums of them."""
        session, masks = self._session, []
        pieces = multiply_own_bits(session, choosers, self._chunk_shapes(), self._own(bits))
        for shape, packed in zip(self._chunk_shapes(), pieces, strict=True):
            mask = session.draw_bits(shape, *choosers)
            if session.me in choosers:
                piece = unpack_bits(packed, shape) ^ mask.own
                session.link.send(first, "masked", Masked(pack_bits(piece)))
            masks.append(pack_bits(mask.parity if session.deals else mask.own))
        return masks

    def _to_number(
        self, packed: Bytes, shape: tuple[int, int], choosers: Sequence[str]
    ) -> Words | Bits:
        """Masks of bits as pieces of numbers; a single chooser's are numbers already."""
        if len(choosers) == 1:
            return unpack_bits(packed, shape)
        return self._session.deal(
            shape, lambda: unpack_bits(packed, shape).astype(np.uint64), self._width, choosers
        )

    def _own(self, bits: Choose | None) -> Callable[[int], Bits] | None:
        if bits is None:
            return None
        return lambda at: np.asarray(bits(self._chunks[at])).astype(np.uint8)

    def _receive_bits(self, choosers: Sequence[str], shape: tuple[int, int]) -> Bits:
        size = -(-shape[0] * shape[1] // 8)
        came = [self._session.receive_bytes(party, "masked", size) for party in choosers]
        return unpack_bits(reduce(xor, came), shape)

    def _add(self, words: Words) -> Words:
        """Words of some rows, summed by group."""
        if all(group.stop - group.start == 1 for group in self._groups):
            return words
        sums = [words[:, group].sum(axis=1, dtype=np.uint64) for group in self._groups]
        return np.stack(sums, axis=1)

    def _shape_of(self, chunk: slice) -> tuple[int, int]:
        return chunk.stop - chunk.start, self._places

    def _chunk_shapes(self) -> list[tuple[int, int]]:
        return [self._shape_of(chunk) for chunk in self._chunks]


def multiply_own_bits(
    session: Exchange,
    holders: Sequence[str],
    shapes: Sequence[tuple[int, ...]],
    own: Callable[[int], Bits] | None,
) -> list[Bytes]:
    """Products of the holders' private bits, array by array: this holder's pieces, packed.

    ``holders`` are the last ones of the session, in its order; pieces add up without carry. All
    arrays take one round together; one holder's bits are the product already.
    """
    if len(holders) == 1:
        return [_NOTHING if own is None else pack_bits(own(at)) for at in range(len(shapes))]
    places = range(len(holders))
    groups = [group for size in places[1:] for group in combinations(places, size + 1)]
    kept: list[list[Bytes]] = []
    shown: list[Bytes] = []
    for at, shape in enumerate(shapes):
        masks = [session.draw_bits(shape, party) for party in holders]
        known = [mask.parity if session.deals else mask.own for mask in masks]
        kept.append([pack_bits(one) for one in known])
        if own is not None:
            shown.append(pack_bits(own(at) ^ masks[holders.index(session.me)].own))
            for party in holders:
                if party != session.me:
                    session.link.send(party, "masked", Masked(shown[-1]))
    pieces = []
    for at, shape in enumerate(shapes):
        masks_here = [unpack_bits(packed, shape) for packed in kept[at]]

        def multiply_masks(masks: list[Bits] = masks_here) -> Bits:
            return np.stack([_and([masks[place] for place in group]) for group in groups])

        dealt = session.deal_bits((len(groups), *shape), multiply_masks, holders)
        if own is None:
            pieces.append(_NOTHING)
            continue
        me = holders.index(session.me)
        size = len(shown[at])
        came = [
            shown[at] if party == session.me else session.receive_bytes(party, "masked", size)
            for party in holders
        ]
        public = [unpack_bits(packed, shape) for packed in came]
        # Π (m + a) = Σ over groups of holders: masks of the group, times the others' masked bits.
        product = _and(public) if me == 0 else np.zeros(shape, dtype=np.uint8)
        for group, piece in [*zip(groups, dealt, strict=True), ((me,), masks_here[me])]:
            product = product ^ _and([public[p] for p in places if p not in group], piece)
        pieces.append(pack_bits(product))
    return pieces


def _and(bits: Sequence[Bits], start: Bits | None = None) -> Bits:
    arrays = [*bits] if start is None else [start, *bits]
    return np.asarray(reduce(np.bitwise_and, arrays))


def show_chosen_bits(
    session: Session, shape: tuple[int, ...], chosen: Array | None, bits: Array | None
) -> Bits | None:
    """Let the first of two holders see those of the second's private bits that it has chosen.

    The first holder gives ``chosen``, the second ``bits``, both of that shape; the first gets the
    bits, 0 where it did not choose. The second learns nothing, the first nothing of other bits.

    It is an oblivious transfer with dealt pads (Beaver, "Precomputing Oblivious Transfer"): the
    second holder has two pads, of which the first holder has the one with the number a. It shows
    m = chosen + a without carry, and gets the bit under the pad of the number 1 + m, which is a if
    it has chosen.
    """
    first, second = session.parties
    a, pad = session.draw_bits(shape, first), session.draw_bits(shape, first)
    gap = session.draw_bits(shape, second)  # between the two pads
    size = -(-math.prod(shape) // 8)

    def make_pads() -> Bytes:
        return pack_bits(pad.parity ^ (a.parity & gap.parity))

    if session.deals:
        session.deal_to_last(make_pads())
    if session.me == first and chosen is not None:
        choice = np.asarray(chosen).astype(np.uint8)
        session.link.send(second, "masked", Masked(pack_bits(choice ^ a.own)))
        came = unpack_bits(session.receive_bytes(second, "masked", size), shape)
        return (came ^ pad.own) & choice
    if session.me == second and bits is not None:
        zero = unpack_bits(session.take_dealt(size), shape)  # the pad with the number 0
        asked = unpack_bits(session.receive_bytes(first, "masked", size), shape)
        other = np.uint8(1) ^ asked
        under = np.asarray(bits).astype(np.uint8) ^ zero ^ (other & gap.own)
        session.link.send(first, "masked", Masked(pack_bits(under)))
    return None
