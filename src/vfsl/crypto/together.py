"""Several operations on shares in the rounds of one, and products row by row.

Holds, learns: as in shares.py; `decide_all` opens bits to all holders and tells them to the dealer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from vfsl.crypto.comparing import compare, to_numbers
from vfsl.crypto.session import Mask
from vfsl.crypto.shares import Private, Session, Shared
from vfsl.crypto.words import WIDEST, Words, lowest, matmul
from vfsl.errors import BoundExceeded


def multiply_all(pairs: Sequence[tuple[Shared, Shared]]) -> list[Shared]:
    """Matrix products of shared arrays, all in one round."""
    session = pairs[0][0].session
    widths = [min(left.width, right.width) for left, right in pairs]
    masks = [(session.draw(left.shape), session.draw(right.shape)) for left, right in pairs]
    shown = iter(
        session.reveal(
            [
                (factor.piece, width, mask)
                for pair, width, drawn in zip(pairs, widths, masks, strict=True)
                for factor, mask in zip(pair, drawn, strict=True)
            ]
        )
    )
    found = []
    for (left, right), width, (a, b) in zip(pairs, widths, masks, strict=True):
        e, f = next(shown), next(shown)
        shape = (
            *np.broadcast_shapes(left.shape[:-2], right.shape[:-2]),
            left.shape[-2],
            right.shape[-1],
        )
        piece = session.deal(shape, partial(_multiply_masks, a, b, width), width)
        if session.holds:
            own = f + b.own if session.leads else b.own
            piece = piece + matmul(e, own, width) + matmul(a.own, f, width)
        found.append(Shared(session, piece, width))
    return found


def _multiply_masks(left: Mask, right: Mask, width: int) -> Words:
    return matmul(left.total, right.total, width)


@dataclass(frozen=True, eq=False)
class Cut:
    """A shared array whose last bits are to go: floor((value + half) / 2^bits), modulo 2^width."""

    value: Shared
    bits: int
    half: int
    width: int = WIDEST

    @classmethod
    def truncate(cls, value: Shared, bits: int, width: int = WIDEST) -> Cut:
        """As `Shared.truncate`."""
        return cls(value, bits, 1 << (bits - 1), width)

    @classmethod
    def sign(cls, value: Shared) -> Cut:
        """−1 where the value is negative, else 0."""
        return cls(value, value.width - 2, 0)


def cut_all(cuts: Sequence[Cut]) -> list[Shared]:
    """`Shared.truncate` and signs of several arrays in the rounds of the longest."""
    session = cuts[0].value.session
    for cut in cuts:
        offset, bound = 1 << (cut.value.width - 2), cut.value.bound
        if bound is not None and bound + cut.half >= offset:
            raise BoundExceeded(
                f"A shared value could reach {bound:.3g}; {cut.value.width} bits can be shortened "
                f"only up to {offset - cut.half:.3g}."
            )
    masks = [session.draw(cut.value.shape) for cut in cuts]
    shown = session.reveal(
        [
            (_lift(session, cut), cut.value.width, mask)
            for cut, mask in zip(cuts, masks, strict=True)
        ]
    )
    longest = max(cut.bits for cut in cuts)
    lows = [one & lowest(cut.bits) for one, cut in zip(shown, cuts, strict=True)]

    def hide() -> Words:
        pairs = zip(masks, cuts, strict=True)
        return _join([_hide(mask, cut) & lowest(cut.bits) for mask, cut in pairs])

    less = to_numbers(session, compare(session, _join(lows), hide, longest))
    ends = np.cumsum([cut.value.size for cut in cuts])
    found = []
    for cut, mask, one, end in zip(cuts, masks, shown, ends, strict=True):
        shape, width, bits = cut.value.shape, cut.value.width, np.uint64(cut.bits)
        high = session.deal(shape, partial(_hide_top, mask, cut, cut.bits), cut.width)
        top = session.deal(shape, partial(_hide_top, mask, cut, width - 1), cut.width)
        wraps = (np.uint64(1) - (one >> np.uint64(width - 1))) << np.uint64(width - cut.bits)
        piece = wraps * top - high - less[end - cut.value.size : end].reshape(shape)
        if session.leads:
            piece = piece + (one >> bits) - np.uint64(1 << (width - 2) >> cut.bits)
        found.append(Shared(session, piece, cut.width))
    return found


def _join(arrays: Sequence[Words]) -> Words:
    return np.concatenate([one.ravel() for one in arrays])


def _lift(session: Session, cut: Cut) -> Words:
    """A piece of the value made positive."""
    offset = np.uint64((1 << (cut.value.width - 2)) + cut.half)
    return cut.value.piece + offset if session.leads else cut.value.piece


def _hide(mask: Mask, cut: Cut) -> Words:
    return (np.uint64(0) - mask.total) & lowest(cut.value.width)


def _hide_top(mask: Mask, cut: Cut, bits: int) -> Words:
    return _hide(mask, cut) >> np.uint64(bits)


def scale_rows(matrix: Private, values: Shared) -> Shared:
    """A private matrix times a shared one of the same shape, element by element, in one round."""
    session, width = matrix.session, min(matrix.width, values.width)
    mask = session.draw(values.shape)
    (shown,) = session.reveal([(values.piece, width, mask)])
    piece = session.deal(values.shape, lambda: mask.total * matrix.mask, width)
    if session.holds:
        piece = np.add(piece, mask.own * matrix.masked)
    if session.has(matrix.owner):
        piece = np.add(piece, shown * matrix.own)
    return Shared(session, piece, width)


def decide_all(session: Session, bits: Shared) -> list[bool]:
    """Open several shared bits to everybody in one round; a loop may depend on them."""
    opened = bits.open(name="goes on")
    found = [False] * bits.size if opened is None else [bool(bit) for bit in opened]
    if not session.me:  # a rehearsal
        return found
    if not session.holds:
        session._out.flush()
        return [bool(session.link.receive(session.parties[0], "decision")) for _ in found]
    if session.leads and len(session.parties) > 1:
        for bit in found:
            session.link.send(session.dealer, "decision", bit)
    return found
