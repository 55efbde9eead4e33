"""Computing on additive shares: arrays that nobody knows, until a result is opened.

Holds   every data holder: one piece of each shared array; all pieces add up to the value modulo
        2^width. The dealer: seeds, no data.
Learns  a data holder: what is opened to it. Everything else that reaches a party is uniformly
        random, see session.py.

A protocol is one function that every data holder and the dealer run, each with its own `Session`.
What a party does not have it passes as None, with the shape. Nothing but sizes, and bits opened by
`Session.decide`, may steer the function. `Session.plain` runs it in one place without masks: the
same integers, bit for bit.

Products follow Beaver, "Efficient Multiparty Protocols Using Circuit Randomization". Values are
integers; fixed point is the caller's, and `Shared.truncate` takes bits off exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add, sub
from typing import Any, NoReturn

import numpy as np

from vfsl.crypto.comparing import compare, to_numbers
from vfsl.crypto.scheme import Scheme
from vfsl.crypto.session import DISCLOSURES, EVERYONE, Exchange, Mask, Shape, absent
from vfsl.crypto.words import (
    WIDEST,
    Bytes,
    Words,
    count_bytes,
    find_waves,
    lowest,
    matmul,
    pack,
    to_signed,
    to_words,
    unpack,
)
from vfsl.errors import BoundExceeded, ConfigError
from vfsl.values import Floats, Integers, Masked

__all__ = ["DISCLOSURES", "Private", "Session", "Shared", "Shares", "Waves", "concatenate"]


class Shares(Scheme):
    """The scheme of protocols that compute on shares: no keys, nothing is encrypted."""

    name = "shares"
    encrypts = False
    serves = ("linear", "association", "trees")

    def generate(self) -> NoReturn:
        raise ConfigError("Protocols on shares have no keys; use a scheme that encrypts.")

    def _load_public(self, content: dict[str, Any]) -> NoReturn:
        self.generate()


class Session(Exchange):
    """One party's side of a computation on shares; see `Exchange` for who it is."""

    # ---- arrays come in -------------------------------------------------------------------------

    def share(
        self,
        owner: str,
        values: Integers | None,
        shape: Shape,
        width: int = WIDEST,
        bound: int | None = None,
    ) -> Shared:
        """A holder's own array as a shared one; nothing crosses."""
        return Shared(self, self._own(owner, values, shape, bound), width, bound)

    def zeros(self, shape: Shape, width: int = WIDEST) -> Shared:
        """A shared array of zeros."""
        return Shared(self, absent(shape), width, 0)

    def private(
        self,
        owner: str,
        values: Integers | None,
        shape: Shape,
        width: int = WIDEST,
        bound: int | None = None,
        receivers: Sequence[str] = (),
    ) -> Private:
        """A holder's own matrix, which crosses once, masked, to be multiplied many times.

        ``receivers`` get it, all other holders if none are named; only they may multiply it.
        """
        return self.privates({owner: values}, {owner: shape}, width, bound, receivers)[owner]

    def privates(
        self,
        values: Mapping[str, Integers | None],
        shapes: Mapping[str, Shape],
        width: int = WIDEST,
        bound: int | None = None,
        receivers: Sequence[str] = (),
    ) -> dict[str, Private]:
        """One such matrix of each of several holders; they cross at the same time."""
        made = {}
        for owner, shape in shapes.items():
            own, drawn = self._own(owner, values.get(owner), shape, bound), self.draw(shape, owner)
            mask = drawn.total if self.deals else drawn.own
            masked = own - mask if self.has(owner) else absent(shape)
            if self.has(owner) and len(self.parties) > 1:
                for party in self.list_others():
                    if party in (receivers or self.parties):
                        self.link.send(party, "masked", Masked(pack(masked, width)))
            made[owner] = Private(self, owner, own, mask, masked, width, bound)
        for owner, one in made.items():
            if self.me in (receivers or self.parties) and not self.has(owner):
                content = self.receive_bytes(owner, "masked", count_bytes(one.shape, width))
                made[owner] = replace(one, masked=unpack(content, width, one.shape))
        return made

    def _own(self, owner: str, values: Integers | None, shape: Shape, bound: int | None) -> Words:
        if not self.has(owner):
            return absent(shape)
        if values is None or np.shape(values) != tuple(shape):
            raise ConfigError(
                f"Party {owner!r} must give its array of shape {tuple(shape)}. "
                f"Got {None if values is None else np.shape(values)} instead."
            )
        if bound is not None and _largest(values) > bound:
            raise BoundExceeded(f"An array of party {owner!r} goes beyond its bound, {bound:.3g}.")
        return to_words(values)

    def decide(self, bit: Shared) -> bool:
        """Open a shared 0 or 1 to everybody; a loop may depend on it."""
        opened = bit.reshape(1).open(name="goes on")
        if self.me == self.parties[0] and self._channel is not None:
            self._channel.send(self.dealer, "decision", bool(opened[0]))  # type: ignore[index]
        if opened is not None:
            return bool(opened[0])
        if self._channel is None:  # a rehearsal
            return False
        self._out.flush()
        return bool(self.link.receive(self.parties[0], "decision"))

    # ---- products -------------------------------------------------------------------------------

    def products(self, pairs: Sequence[tuple[Private, Shared]]) -> list[Shared]:
        """Private matrices times shared arrays, all in one round."""
        results = []
        for (matrix, value), (piece, make, width) in zip(pairs, self._multiply(pairs), strict=True):
            if len(self.parties) > 1:
                piece = piece + self.deal(piece.shape, make, width)
            bound = _times(matrix.shape[1], matrix.bound, value.bound)
            results.append(Shared(self, piece, width, bound))
        return results

    def sum_products(self, pairs: Sequence[tuple[Private, Shared]]) -> Shared:
        """The sum of such products: the dealer deals as many words as for one of them."""
        found = self._multiply(pairs)
        width = min(one for _, _, one in found)
        piece = np.asarray(reduce(add, (one for one, _, _ in found)))
        if len(self.parties) > 1:
            makers = [make for _, make, _ in found]
            piece = piece + self.deal(
                piece.shape, lambda: np.asarray(reduce(add, (make() for make in makers))), width
            )
        return Shared(self, piece, width)

    def _multiply(
        self, pairs: Sequence[tuple[Private, Shared]]
    ) -> list[tuple[Words, Callable[[], Words], int]]:
        """Pieces of products that lack words of the dealer, and how it makes these.

        The owner learns the others' pieces of the value, masked: X v = X v_own + A Σ (v_q − b_q) at
        the owner, (X − A) v_q at the others, and A Σ b_q at the dealer.
        """
        masks, letters = [], {party: list[Bytes]() for party in self.parties}
        for matrix, value in pairs:
            if matrix.shape[1] != value.shape[0]:
                raise ConfigError(f"Shapes {matrix.shape} and {value.shape} do not fit.")
            others = [party for party in self.parties if party not in (matrix.owner, EVERYONE)]
            masks.append(self.draw(value.shape, *others))
            if self.holds and not self.has(matrix.owner):
                masked = value.piece - masks[-1].own
                letters[matrix.owner].append(pack(masked, min(matrix.width, value.width)))
        for party, letter in letters.items():
            if letter:
                self.link.send(party, "masked", Masked(np.concatenate(letter)))
        asked = [pair for pair in pairs if self.has(pair[0].owner)]
        sums = iter(self._add_masked(asked))
        found: list[tuple[Words, Callable[[], Words], int]] = []
        for (matrix, value), mask in zip(pairs, masks, strict=True):
            width = min(matrix.width, value.width)
            if self.has(matrix.owner):
                piece = matmul(matrix.own, value.piece, width)
                piece = piece + matmul(matrix.mask, next(sums), width)
            elif self.holds:
                piece = matmul(matrix.masked, value.piece, width)
            else:
                piece = absent(matrix.shape[:1] + value.shape[1:])
            found.append((piece, partial(_multiply_masks, matrix.mask, mask, width), width))
        return found

    def _add_masked(self, asked: Sequence[tuple[Private, Shared]]) -> list[Words]:
        """The sum of what the others sent of each value that one's own matrices multiply."""
        sums = [np.zeros(value.shape, dtype=np.uint64) for _, value in asked]
        for party in self.list_others() if asked else ():
            widths = [min(matrix.width, value.width) for matrix, value in asked]
            sizes = [
                count_bytes(value.shape, w) for (_, value), w in zip(asked, widths, strict=True)
            ]
            letters = np.split(
                self.receive_bytes(party, "masked", sum(sizes)), np.cumsum(sizes)[:-1]
            )
            for i, (_, value) in enumerate(asked):
                sums[i] = sums[i] + unpack(letters[i], widths[i], value.shape)
        return sums

    def waves(
        self,
        terms: Sequence[tuple[Private, Shared]],
        frequencies: Sequence[int],
        *,
        period: int,
        bits: int,
        width: int,
        plus: Shared | None = None,
    ) -> Waves:
        """Sines and cosines of Σ matrix @ value, read as an angle whose period is 2^period.

        All learn the angle plus a mask of which nobody has all summands; the dealer deals sine and
        cosine of that mask, and the addition theorem does the rest. What the dealer would have to
        add to the products becomes part of the mask, so it costs no message.

        Parameters
        ----------
        frequencies : sequence of int
            Odd and rising.
        period, width : int
            Bits of the angle and of the result.
        bits : int
            Behind the point of what is dealt.
        plus : Shared, optional
            Added to the angle; at least as wide as its period. There may be nothing else.
        """
        _check_width(period)
        odd = tuple(frequencies)
        if list(odd) != sorted({f for f in odd if f > 0 and f % 2}):
            raise ConfigError(f"Frequencies must be odd and rising. Got {odd} instead.")
        if any(min(m.width, v.width) < period for m, v in terms):
            raise ConfigError(f"Matrices and values need {period} bits, as many as the period.")
        narrow = [(m, replace(v, width=period, bound=None)) for m, v in terms]
        found = self._multiply(narrow)
        if plus is not None and plus.width < period:
            raise ConfigError(f"An angle of {period} bits needs summands of as many.")
        summands = [one for one, _, _ in found] + ([] if plus is None else [plus.piece])
        piece = np.asarray(reduce(add, summands))
        mask, shape = self.draw(piece.shape), piece.shape
        (angle,) = self.reveal([(piece, period, mask)])
        turned: list[tuple[Floats, Floats]] = [(_NONE, _NONE)] * len(odd)
        if self.deals:
            turn = np.uint64(0) - mask.total
            if len(self.parties) > 1:
                turn = reduce(sub, (make() for _, make, _ in found), turn) & lowest(period)
                if self.angles is not None:
                    self.angles.append(turn)
            elif self.angles:
                turn = self.angles.pop(0)
                angle = (angle + turn) & lowest(period)
            turned = find_waves(turn, period, odd)
        dealt = [
            (
                self.deal(shape, partial(_to_fixed, sine, bits), width),
                self.deal(shape, partial(_to_fixed, cosine, bits), width),
            )
            for sine, cosine in turned
        ]
        known = find_waves(angle, period, odd) if self.holds else [(_NONE, _NONE)] * len(odd)
        return Waves(self, known, dealt, bits, width)


@dataclass(frozen=True, eq=False)
class Shared:
    """An array that nobody knows: this party's piece; all pieces add up to it modulo 2^width.

    ``bound`` is a public limit of the absolute values; where there is one, an operation that could
    overflow is refused.
    """

    session: Session
    piece: Words
    width: int = WIDEST
    bound: int | None = None

    __array_priority__ = 100  # numpy leaves `array * shared` to this class

    def __post_init__(self) -> None:
        _check_width(self.width)
        object.__setattr__(self, "piece", np.asarray(self.piece))  # also where it is one number
        if self.bound is not None and self.bound >= 1 << (self.width - 1):
            raise BoundExceeded(
                f"A shared value could reach {self.bound:.3g}; {self.width} bits do not hold that: "
                "use fewer rows, narrower columns or fewer bits behind the point."
            )

    @property
    def shape(self) -> Shape:
        return self.piece.shape

    @property
    def size(self) -> int:
        return self.piece.size

    # ---- without a message ----------------------------------------------------------------------

    def __add__(self, other: Shared | Any) -> Shared:
        if isinstance(other, Shared):
            width = min(self.width, other.width)
            return Shared(
                self.session, self.piece + other.piece, width, _plus(self.bound, other.bound)
            )
        numbers = to_words(other)
        shape = np.broadcast_shapes(self.shape, numbers.shape)
        added = numbers if self.session.leads else np.uint64(0)
        bound = _plus(self.bound, _largest(other))
        return Shared(self.session, np.broadcast_to(self.piece + added, shape), self.width, bound)

    __radd__ = __add__

    def __neg__(self) -> Shared:
        return replace(self, piece=np.uint64(0) - self.piece)

    def __sub__(self, other: Shared | Any) -> Shared:
        return self + (-other if isinstance(other, Shared) else -np.asarray(other, dtype=np.int64))

    def __rsub__(self, other: Any) -> Shared:
        return self.__neg__().__add__(other)

    def __rmul__(self, numbers: Any) -> Shared:
        """Public integers times the array."""
        bound = _times(1, self.bound, _largest(numbers))
        return Shared(self.session, self.piece * to_words(numbers), self.width, bound)

    def __getitem__(self, at: Any) -> Shared:
        return self.map(lambda piece: piece[at])

    @property
    def T(self) -> Shared:
        return self.map(lambda piece: np.swapaxes(piece, -1, -2))

    def reshape(self, *shape: int) -> Shared:
        return self.map(lambda piece: piece.reshape(shape))

    def sum(self, axis: int) -> Shared:
        bound = _times(self.shape[axis], self.bound, 1)
        return Shared(self.session, self.piece.sum(axis=axis, dtype=np.uint64), self.width, bound)

    def map(self, change: Callable[[Words], Words]) -> Shared:
        """The same rearrangement of every party's piece."""
        return replace(self, piece=change(self.piece))

    def limit(self, bound: int) -> Shared:
        """The same, where theory gives a smaller bound than the operations that made it."""
        return replace(self, bound=bound)

    def narrow(self, width: int) -> Shared:
        """The same modulo 2^width."""
        return replace(self, width=min(width, self.width))

    # ---- with messages --------------------------------------------------------------------------

    def __mul__(self, other: Any) -> Shared:
        """Element by element."""
        if not isinstance(other, Shared):
            return self.__rmul__(other)
        return self._product(other, np.multiply, 1)

    def __matmul__(self, other: Shared) -> Shared:
        width = min(self.width, other.width)
        return self._product(other, partial(matmul, width=width), self.shape[-1])

    def _product(self, other: Shared, times: Callable[..., Words], terms: int) -> Shared:
        session, width = self.session, min(self.width, other.width)
        kept: dict[int, tuple[Mask, Words]] = self.__dict__.setdefault("_masked", {})
        fresh = width not in kept  # a factor that was masked before is not sent again
        a = session.draw(self.shape) if fresh else kept[width][0]
        b = session.draw(other.shape)
        factors = [(self.piece, width, a)] if fresh else []
        shown = session.reveal([*factors, (other.piece, width, b)])
        if fresh:
            kept[width] = a, shown[0]
        e, f = kept[width][1], shown[-1]
        shape = times(absent(self.shape), absent(other.shape)).shape
        piece = session.deal(shape, lambda: times(a.total, b.total), width)
        if session.holds:
            own = np.add(f, b.own) if session.leads else b.own
            piece = np.add(np.add(piece, times(e, own)), times(a.own, f))
        return Shared(session, piece, width, _times(terms, self.bound, other.bound))

    def truncate(self, bits: int) -> Shared:
        """round(x / 2^bits), halves up, exactly, for up to width − 2 bits.

        |x| + 2^(bits − 1) must be below 2^(width − 2). The result has 64 bits.
        """
        if not 0 <= bits <= self.width - 2:
            raise ConfigError(f"{self.width} bits cannot be shortened by {bits}.")
        return self._shift(bits, 1 << (bits - 1)) if bits else self

    def below_zero(self) -> Shared:
        """1 where the value is negative, else 0; |x| must be below 2^(width − 2)."""
        return (-self._shift(self.width - 2, 0)).limit(1)

    def _shift(self, bits: int, half: int) -> Shared:
        """floor((x + half) / 2^bits) in 64 bits.

        All learn e = x' + r for x' = x + 2^(width − 2) + half ≥ 0 and a word r that only the dealer
        knows. Then floor(x' / 2^bits) = e >> bits − r >> bits − [low bits of e < low bits of r],
        and 2^(width − bits) more where the sum has wrapped: x' has no top bit, so that is where r
        has one and e has none.
        """
        if not self.shape:
            return self.reshape(1)._shift(bits, half).reshape()
        session, width, offset = self.session, self.width, 1 << (self.width - 2)
        if self.bound is not None and self.bound + half >= offset:
            raise BoundExceeded(
                f"A shared value could reach {self.bound:.3g}; {width} bits can be shortened only "
                f"up to {offset - half:.3g}."
            )
        mask = session.draw(self.shape)
        hidden = (np.uint64(0) - mask.total) & lowest(width) if session.deals else _NO_WORDS
        piece = self.piece + np.uint64(offset + half) if session.leads else self.piece
        (shown,) = session.reveal([(piece, width, mask)])
        high = session.deal(self.shape, lambda: hidden >> np.uint64(bits))
        top = session.deal(self.shape, lambda: hidden >> np.uint64(width - 1))
        low = compare(session, shown & lowest(bits), lambda: hidden & lowest(bits), bits)
        less = to_numbers(session, low)
        wraps = (np.uint64(1) - (shown >> np.uint64(width - 1))) << np.uint64(width - bits)
        piece = wraps * top - high - less
        if session.leads:
            piece = piece + (shown >> np.uint64(bits)) - np.uint64(offset >> bits)
        bound = None if self.bound is None else ((self.bound + half) >> bits) + 1
        return Shared(session, piece, WIDEST, bound)

    def open(
        self, to: str | None = None, *, name: str, about: Sequence[str] = ()
    ) -> Integers | None:
        """The values, at one party or at all; None elsewhere.

        ``name`` is the declared name of the message. ``about`` says what of this party's data the
        result tells: each is counted by the channel's budget.
        """
        session = self.session
        if session.me == EVERYONE:
            return to_signed(self.piece, self.width)
        piece = self.piece
        if len(session.parties) > 2:
            piece = piece + session.deal(
                self.shape, lambda: np.zeros(self.shape, np.uint64), self.width
            )
        if not session.holds:
            return None
        receivers = (
            session.list_others()
            if to is None
            else [party for party in [to] if party != session.me]
        )
        for party in receivers:
            for what in about:
                session.link.release(party, name, self.size, about=what)
            session.link.send(party, name, Masked(pack(piece, self.width)))
        if to not in (None, session.me):
            return None
        for party in session.list_others():
            came = session.receive_bytes(party, name, count_bytes(self.shape, self.width))
            piece = piece + unpack(came, self.width, self.shape)
        opened = to_signed(piece, self.width)
        session.link.note_opened(name, opened)
        return opened


@dataclass(frozen=True, eq=False)
class Private:
    """A matrix that one holder knows and the others have masked; to be multiplied.

    ``own`` is the matrix at its owner, ``mask`` its mask there and at the dealer, ``masked`` their
    difference at all holders.
    """

    session: Session
    owner: str
    own: Words
    mask: Words
    masked: Words
    width: int
    bound: int | None = None

    def __post_init__(self) -> None:
        _check_width(self.width)

    @property
    def shape(self) -> Shape:
        return self.own.shape

    @property
    def T(self) -> Private:
        return self.map(np.transpose)

    def __getitem__(self, at: Any) -> Private:
        return self.map(lambda words: words[at])

    def map(self, change: Callable[[Words], Words]) -> Private:
        """The same rearrangement of the matrix, its mask and their difference."""
        return replace(
            self, own=change(self.own), mask=change(self.mask), masked=change(self.masked)
        )

    def __matmul__(self, other: Shared | Private) -> Shared:
        if isinstance(other, Private):
            return self._times_private(other)
        return self.session.products([(self, other)])[0]

    def _times_private(self, other: Private) -> Shared:
        """X Y = X (Y − B) at X's owner, (X − A) B at Y's owner, A B at the dealer."""
        session, width = self.session, min(self.width, other.width)
        shape = (self.shape[0], other.shape[1])
        piece = np.zeros(shape, dtype=np.uint64)
        bound = _times(self.shape[1], self.bound, other.bound)
        if self.owner == other.owner or len(session.parties) == 1:
            if session.has(self.owner):
                piece = matmul(self.own, other.own, width)
            return Shared(session, piece, width, bound)
        if session.has(self.owner):
            piece = matmul(self.own, other.masked, width)
        if session.has(other.owner):
            piece = matmul(self.masked, other.mask, width)
        dealt = session.deal(shape, lambda: matmul(self.mask, other.mask, width), width)
        return Shared(session, piece + dealt, width, bound)


@dataclass(frozen=True, eq=False)
class Waves:
    """Sines and cosines of a hidden angle: of the public masked one, and dealt ones of its mask."""

    session: Session
    known: Sequence[tuple[Floats, Floats]]
    dealt: Sequence[tuple[Words, Words]]
    bits: int
    width: int

    def sum(
        self, bits: int, *, sines: Sequence[float] = (), cosines: Sequence[float] = ()
    ) -> Shared:
        """Σ sines_j sin(angle_j) + cosines_j cos(angle_j), without a message.

        Coefficients are rounded to ``bits`` behind the point; the result has these and the dealt
        ones. All parties must be given the same coefficients to the last bit.
        """
        sines, cosines = (tuple(c) or (0.0,) * len(self.dealt) for c in (sines, cosines))
        total = np.zeros(self.dealt[0][0].shape, dtype=np.uint64)
        if self.session.holds:
            for (sin, cos), (dealt_sin, dealt_cos), a, b in zip(
                self.known, self.dealt, sines, cosines, strict=True
            ):
                total += _to_fixed(a * sin + b * cos, bits) * dealt_cos
                total += _to_fixed(b * sin - a * cos, bits) * dealt_sin
        # By Cauchy and Schwarz: each pair of factors is a vector, off by rounding less than 1.
        sizes = [math.hypot(a, b) for a, b in zip(sines, cosines, strict=True)]
        bound = sum(math.ceil((r * 2.0**bits + 1) * (2.0**self.bits + 1)) for r in sizes)
        return Shared(self.session, total, self.width, bound)


def concatenate(arrays: Sequence[Shared], axis: int = 0) -> Shared:
    """Shared arrays one after the other."""
    pieces = np.concatenate([one.piece for one in arrays], axis=axis)
    bounds = [one.bound for one in arrays]
    bound = None if None in bounds else max(b for b in bounds if b is not None)
    return Shared(arrays[0].session, pieces, min(one.width for one in arrays), bound)


_NONE: Floats = np.zeros(0)
_NO_WORDS: Words = np.zeros(0, dtype=np.uint64)


def _multiply_masks(matrix: Words, mask: Mask, width: int) -> Words:
    return matmul(matrix, mask.total, width)


def _to_fixed(values: Floats, bits: int) -> Words:
    return to_words(np.rint(values * 2.0**bits).astype(np.int64))


def _check_width(width: int) -> None:
    if not 8 <= width <= WIDEST:
        raise ConfigError(f"A width must be from 8 to {WIDEST} bits. Got {width} instead.")


def _largest(numbers: Any) -> int:
    numbers = np.asarray(numbers)
    return max(-int(numbers.min()), int(numbers.max())) if numbers.size else 0


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _times(terms: int, one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else terms * one * other
