"""Comparing public numbers with numbers that only the dealer knows, and ands of shared bits.

Holds, learns: as in session.py. Bits are shared so that their pieces add up without carry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import combinations
from typing import Any

import numpy as np

from vfsl.crypto.session import Exchange, Mask, no_bits
from vfsl.crypto.words import Bits, Words, lowest

_DIGITS = (4, 16)  # numbers are cut into so many digits, by their length
_SHORT = 24  # bits up to which 4 digits are enough: their tables have 64 entries at most
_TABLES = 1 << 17  # bytes of longer tables that are worth a round


def compare(session: Exchange, shown: Words, hidden: Callable[[], Words], length: int) -> Bits:
    """Pieces of the bits: whether public numbers of ``length`` bits are below the dealer's.

    Both are cut into digits. The dealer deals, for each digit and each value that it could have on
    the public side, whether it is smaller and whether it is equal; ands do the rest.
    """
    base = -(-length // _DIGITS[0])  # two tables of four digits are 2^base bytes
    few = length <= _SHORT or shown.size << base <= _TABLES
    digits = _DIGITS[0] if few else _DIGITS[1]
    base = -(-length // digits)
    values, shape = np.arange(1 << base, dtype=np.uint64), shown.shape

    def cut(numbers: Words) -> Words:
        parts = [(numbers >> np.uint64(base * i)) & lowest(base) for i in range(digits)]
        return np.stack(parts)

    def look_up(how: Callable[..., Any]) -> Bits:
        table = session.deal_bits(
            (digits, *shape, 1 << base), lambda: how(values, cut(hidden())[..., None])
        )
        if not session.holds:
            return no_bits((digits, *shape))
        at = cut(shown)[..., None].astype(np.int64)
        return np.take_along_axis(table, at, -1)[..., 0]

    smaller, equal = look_up(np.less), look_up(np.equal)
    while len(smaller) > 1:
        smaller, equal = _join_digits(session, smaller, equal)
    return np.asarray(smaller[0])


def _join_digits(session: Exchange, smaller: Bits, equal: Bits) -> tuple[Bits, Bits]:
    """Comparisons of four digits each, the lowest first, from those of single digits."""
    shape = smaller.shape[1:]
    s = smaller.reshape(len(smaller) // 4, 4, *shape).swapaxes(0, 1)
    e = equal.reshape(len(equal) // 4, 4, *shape).swapaxes(0, 1)
    one = np.full(s[0].shape, session.leads, dtype=np.uint8)
    gates = [(e[3], s[2], one, one), (e[3], e[2], s[1], one), (e[3], e[2], e[1], s[0])]
    if len(s[0]) > 1:
        gates.append((e[3], e[2], e[1], e[0]))
    made = multiply_bits(session, np.stack([np.stack(one) for one in zip(*gates, strict=True)]))
    return s[3] ^ made[0] ^ made[1] ^ made[2], made[-1]


def multiply_bits(session: Exchange, bits: Bits) -> Bits:
    """Shared bits multiplied along the first axis, in one round."""
    ((product,),) = multiply_terms(session, [(bits, [tuple(range(len(bits)))])])
    return np.asarray(product)


Term = tuple[int, ...]  # places of bits that are multiplied


def multiply_terms(
    session: Exchange, jobs: Sequence[tuple[Bits, Sequence[Term]]]
) -> list[list[Bits]]:
    """For each array of shared bits the products of some of them, all in one round.

    Bits are told apart by the first axis. Each is opened with a mask, b = m + a, and the dealer
    deals all products of masks that the terms need.
    """
    masks = [session.draw_bits(bits.shape) for bits, _ in jobs]
    dealt = [
        _deal_products(session, mask, bits.shape[1:], terms)
        for (bits, terms), mask in zip(jobs, masks, strict=True)
    ]
    if not session.holds:
        return [[no_bits(bits.shape[1:]) for _ in terms] for bits, terms in jobs]
    own = [np.asarray(mask.own).ravel() for mask in masks]
    flat = np.concatenate([np.asarray(bits).ravel() for bits, _ in jobs])
    opened = session.reveal_bits(flat, Mask(np.concatenate(own), ()))
    found, start = [], 0
    for (bits, terms), mask, pieces in zip(jobs, masks, dealt, strict=True):
        shown = opened[start : start + bits.size].reshape(bits.shape)
        start += bits.size
        pieces |= {(place,): mask.own[place] for place in range(len(bits))}
        found.append([_expand(session, shown, term, pieces) for term in terms])
    return found


def _deal_products(
    session: Exchange, mask: Mask, shape: tuple[int, ...], terms: Sequence[Term]
) -> dict[Term, Bits]:
    """Pieces of the products of masks of every two or more bits of a term."""
    groups = sorted(
        {
            group
            for term in terms
            for size in range(2, len(term) + 1)
            for group in combinations(term, size)
        }
    )

    def multiply_masks() -> Bits:
        masks = mask.parity
        return np.stack([reduce(np.bitwise_and, masks[list(group)]) for group in groups])

    if not groups:
        return {}
    dealt = session.deal_bits((len(groups), *shape), multiply_masks)
    return dict(zip(groups, dealt, strict=True))


def _expand(session: Exchange, shown: Bits, term: Term, pieces: Mapping[Term, Bits]) -> Bits:
    product = reduce(np.bitwise_and, shown[list(term)]) * np.uint8(session.leads)
    for size in range(1, len(term) + 1):
        for group in combinations(term, size):
            rest = [shown[place] for place in term if place not in group]
            product = product ^ reduce(np.bitwise_and, rest, pieces[group])
    return np.asarray(product)


def to_numbers(session: Exchange, bits: Bits) -> Words:
    """Pieces of the numbers 0 and 1 from pieces of bits."""
    mask = session.draw_bits(bits.shape)
    words = session.deal(bits.shape, lambda: mask.parity.astype(np.uint64))
    shown = session.reveal_bits(bits, mask).astype(np.uint64)
    piece = (np.uint64(1) - np.uint64(2) * shown) * words
    return piece + shown if session.leads else piece
