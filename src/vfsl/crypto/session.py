"""One party's side of a computation on shares: public numbers, random words, masked words.

Holds   every data holder: the stream of its own seed; the dealer: all seeds, no data.
Learns  a data holder: words minus words of a stream that it does not have, or words that fit other
        parties' streams: uniform. The dealer: sizes, and how often a loop went on. The dealer
        together with one data holder can remove all masks: it must collude with nobody, and must
        not be the relay.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import add, xor
from typing import Any, Literal, Protocol, Self

import numpy as np

from vfsl.crypto.dealing import SEED_BYTES, Inbox, Outbox, Stream, ZeroStream
from vfsl.crypto.words import (
    WIDEST,
    Bits,
    Bytes,
    Words,
    count_bytes,
    lowest,
    pack,
    pack_bits,
    unpack,
    unpack_bits,
)
from vfsl.draws import RepeatableGenerator
from vfsl.errors import ConfigError, ProtocolError
from vfsl.values import Array, Disclosure, Disclosures, Masked

DISCLOSURES: Disclosures = {
    "seed": Disclosure(bytes, "the start of the receiver's random words"),
    "sizes": Disclosure(dict, "how many rows, columns, derived columns and models the sender has"),
    "announced": Disclosure(np.ndarray, "public numbers of the computation"),
    "masked": Disclosure(Masked, "nothing: uniformly random words"),
    "dealt": Disclosure(Masked, "nothing: random words that fit those of the others"),
    "goes on": Disclosure(Masked, "a few bits: whether the computation goes on, and how"),
    "decision": Disclosure(bool, "whether the computation goes on, and how"),
}

Shape = tuple[int, ...]
EVERYONE = "(everyone)"  # the only party of a session in one place; no party may have this name
_LARGEST_SIZE = 1 << 40


class Link(Protocol):
    """What a session needs of a channel."""

    scope: str

    @property
    def me(self) -> str: ...
    def send(self, to: str, name: str, value: Any) -> None: ...
    def receive(self, sender: str, name: str) -> Any: ...
    def release(
        self, to: str, what: str, numbers: int, *, about: Any = "columns", new: int | None = None
    ) -> None: ...
    def release_noisy(
        self, to: str, what: str, values: Array, mechanism: Any, rng: Any, *, once: bytes | None
    ) -> Array: ...

    def note_opened(self, name: str, values: Any) -> None: ...


@dataclass(frozen=True, eq=False)
class Mask:
    """Words or bits of holders' streams: a holder knows its own, the dealer all of them."""

    own: Array
    every: tuple[Array, ...]

    @property
    def total(self) -> Words:
        return np.asarray(reduce(add, self.every))

    @property
    def parity(self) -> Bits:
        return np.asarray(reduce(xor, self.every))


class Exchange:
    """What the data holders and the dealer can do with words, before they are shares of anything.

    Attributes
    ----------
    me : str
    parties : tuple of str
        The data holders, in the order that all use.
    dealer : str
    holds, deals : bool
        Whether this side has pieces of arrays, and whether it deals; in one place it does both.
    angles : list or None
        Set to a list, the dealer's side keeps the masks of `Session.waves` there; given to `plain`,
        they are used again, so that both round alike.
    """

    def __init__(
        self, channel: Link | None, parties: Sequence[str], dealer: str, streams: dict[str, Stream]
    ) -> None:
        self._channel, self._streams = channel, streams
        self.parties, self.dealer = tuple(parties), dealer
        self.me = EVERYONE if channel is None else channel.me
        self.holds, self.deals = self.me in self.parties, self.me in (dealer, EVERYONE)
        self.angles: list[Words] | None = None
        last = self.parties[-1]
        self._out = Outbox(lambda content: self.link.send(last, "dealt", Masked(content)))
        self._in = Inbox(lambda: self.receive_bytes(dealer, "dealt"))

    # ---- begin and end --------------------------------------------------------------------------

    @classmethod
    @contextmanager
    def join(
        cls,
        channel: Link,
        parties: Sequence[str],
        dealer: str,
        *,
        hide: bool = True,
        rng: np.random.Generator | None = None,
    ) -> Iterator[Self]:
        """Take part in a computation of ``parties`` with ``dealer``, whichever of them one is.

        The channel speaks `DISCLOSURES` and the names under which results are opened. The dealer's
        seeds come from the operating system, unless ``rng`` is the generator of a simulation.
        ``hide=False`` runs the same messages without masks, for simulation only.
        """
        if len(parties) < 2:
            raise ConfigError("Computing on shares needs at least two parties with data.")
        if len({*parties, dealer}) <= len(parties):
            raise ConfigError(
                f"The dealer must have no data, and each party takes part once; got {dealer!r} as "
                f"the dealer of {', '.join(map(repr, parties))}."
            )
        if channel.me not in (*parties, dealer):
            raise ConfigError(f"Party {channel.me!r} takes no part in this computation.")
        streams: dict[str, Stream] = {}
        for party in parties:
            if channel.me == dealer:
                seed = draw_seed(f"{channel.scope}{party}")
                if isinstance(rng, RepeatableGenerator):
                    seed = rng.bytes(SEED_BYTES)
                channel.send(party, "seed", seed)
            elif channel.me == party:
                seed = channel.receive(dealer, "seed")
                if len(seed) != SEED_BYTES:
                    raise ProtocolError(
                        f"Party {dealer!r} sent a seed of {len(seed)} bytes.", dealer
                    )
            else:
                continue
            streams[party] = Stream(seed, f"{channel.scope}{party}") if hide else ZeroStream()
        session = cls(channel, parties, dealer, streams)
        yield session
        session._out.flush()
        if session._in.left:
            raise ProtocolError(
                f"Party {dealer!r} dealt {session._in.left} bytes too many.", dealer
            )

    @classmethod
    def plain(cls, angles: Sequence[Words] | None = None) -> Self:
        """A session in one place without masks, which knows every party's arrays."""
        session = cls(None, (EVERYONE,), EVERYONE, {EVERYONE: ZeroStream()})
        session.angles = None if angles is None else list(angles)
        return session

    @classmethod
    def rehearse(cls, parties: Sequence[str]) -> Self:
        """A session without values or messages: running a protocol in it checks its bounds."""
        session = cls(None, parties, "", {})
        session.me = ""
        session.holds = session.deals = False
        return session

    # ---- public numbers -------------------------------------------------------------------------

    def agree(self, sizes: Mapping[str, int] | None = None) -> dict[str, dict[str, int]]:
        """Tell all others, the dealer included, one's sizes; everybody's sizes by party.

        Sizes are public: they cross as they are, with ``hide`` and without. Every side must have
        joined with the same parties in the same order, for that is the order of the answer, and of
        whatever the protocol does next; and with the same ``hide``, since masks that only some draw
        do not cancel. Neither is told here: both follow from the roles of the step.
        """
        if self._channel is None:
            raise ConfigError("Sizes are exchanged between parties; in one place they are known.")
        if self.holds:
            for party in self.list_others(dealer=True):
                self._channel.send(
                    party, "sizes", {key: int(n) for key, n in (sizes or {}).items()}
                )
        self._out.flush()  # whoever has to answer may need these words first
        found: dict[str, dict[str, int]] = {self.me: dict(sizes or {})} if self.holds else {}
        for party in self.list_others():
            came = self._channel.receive(party, "sizes")
            if not all(type(n) is int and 0 <= n < _LARGEST_SIZE for n in came.values()):
                raise ProtocolError(f"Party {party!r} sent sizes that cannot be.", party)
            found[party] = _Sizes(came, party)
        return {party: found[party] for party in self.parties}

    def announce(self, owner: str, numbers: Array | None) -> Array:
        """Public numbers that one holder works out, so that nobody's machine rounds otherwise."""
        if self._channel is None:
            return np.asarray(numbers)
        if self.me == owner:
            for party in self.list_others(dealer=True):
                self._channel.send(party, "announced", np.asarray(numbers))
            return np.asarray(numbers)
        self._out.flush()
        return np.asarray(self._channel.receive(owner, "announced"))

    # ---- randomness -----------------------------------------------------------------------------

    def draw(self, shape: Shape, *owners: str) -> Mask:
        """Fresh words of the holders' streams (of all, if none is named)."""
        return self._draw(shape, owners or self.parties, "words")

    def draw_bits(self, shape: Shape, *owners: str) -> Mask:
        """Fresh bits of the holders' streams."""
        return self._draw(shape, owners or self.parties, "bits")

    def _draw(self, shape: Shape, owners: Sequence[str], how: Literal["words", "bits"]) -> Mask:
        chosen = [party for party in self.parties if party in owners or party == EVERYONE]
        drawn = {p: self._streams[p].draw(shape, how) for p in chosen if p in self._streams}
        own = drawn.get(self.me, absent(shape) if how == "words" else no_bits(shape))
        return Mask(own, tuple(drawn.values()) if self.deals else ())

    def deal(
        self,
        shape: Shape,
        make: Callable[[], Words],
        width: int = WIDEST,
        holders: Sequence[str] = (),
    ) -> Words:
        """This party's piece of words that only the dealer knows; ``make`` runs there.

        ``holders`` have the pieces, all if none are named; the last holder must be among them.
        """
        if len(self.parties) == 1:
            return make()
        masks = self._draw(shape, (holders or self.parties)[:-1], "words")
        if self.deals:
            self._out.add(pack(make() - masks.total, width))
        elif self.me == self.parties[-1]:
            return unpack(self._in.take(count_bytes(shape, width)), width, shape)
        return masks.own

    def deal_bits(
        self, shape: Shape, make: Callable[[], Array], holders: Sequence[str] = ()
    ) -> Bits:
        """The same for bits, whose pieces are added without carry."""
        if len(self.parties) == 1:
            return make().astype(np.uint8)
        masks = self._draw(shape, (holders or self.parties)[:-1], "bits")
        if self.deals:
            self._out.add(pack_bits(make().astype(np.uint8) ^ masks.parity))
        elif self.me == self.parties[-1]:
            return unpack_bits(self._in.take(-(-math.prod(shape) // 8)), shape)
        return masks.own

    def deal_to_last(self, content: Bytes) -> None:
        """The dealer: bytes that the last holder takes with `take_dealt`, uniform for it."""
        self._out.add(content)

    def take_dealt(self, size: int) -> Bytes:
        """The last holder: the next bytes of the dealer."""
        return self._in.take(size)

    def flush(self) -> None:
        """Send what was dealt so far; a dealer does so before it waits for anybody."""
        self._out.flush()

    # ---- masked values to everybody -------------------------------------------------------------

    def reveal(self, pieces: Sequence[tuple[Words, int, Mask]]) -> list[Words]:
        """Pieces, each of a width, minus masks: their sums, known to all holders, in one round."""
        if not self.holds:
            return [absent(piece.shape) for piece, _, _ in pieces]
        own = [piece - mask.own for piece, _, mask in pieces]
        widths = [width for _, width, _ in pieces]
        content = [pack(one, width) for one, width in zip(own, widths, strict=True)]
        cuts = np.cumsum([len(part) for part in content])[:-1]
        for came in self._swap(np.concatenate(content)):
            for i, part in enumerate(np.split(came, cuts)):
                own[i] = own[i] + unpack(part, widths[i], own[i].shape)
        return [one & lowest(width) for one, width in zip(own, widths, strict=True)]

    def reveal_bits(self, bits: Bits, mask: Mask) -> Bits:
        """Shared bits, masked, known to all holders."""
        if not self.holds:
            return np.zeros(bits.shape, dtype=np.uint8)
        own = bits ^ mask.own
        return reduce(xor, (unpack_bits(c, bits.shape) for c in self._swap(pack_bits(own))), own)

    def _swap(self, content: Bytes) -> list[Bytes]:
        for party in self.list_others():
            self.link.send(party, "masked", Masked(content))
        return [self.receive_bytes(party, "masked", len(content)) for party in self.list_others()]

    # ---- who ------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this party adds public numbers to its piece."""
        return self.me == self.parties[0]

    def has(self, owner: str) -> bool:
        return self.holds and self.me in (owner, EVERYONE)

    def list_others(self, dealer: bool = False) -> list[str]:
        everyone = (*self.parties, self.dealer) if dealer else self.parties
        return [party for party in everyone if party != self.me]

    @property
    def link(self) -> Link:
        if self._channel is None:
            raise ConfigError("A session in one place sends nothing.")
        return self._channel

    def receive_bytes(self, sender: str, name: str, size: int | None = None) -> Bytes:
        content = self.link.receive(sender, name).payload
        if not isinstance(content, np.ndarray) or content.dtype != np.uint8 or content.ndim != 1:
            raise ProtocolError(f"Party {sender!r} sent no bytes as {name!r}.", sender)
        if size is not None and len(content) != size:
            raise ProtocolError(
                f"Party {sender!r} sent {len(content)} bytes as {name!r}; expected {size}.", sender
            )
        return content


class _Sizes(dict[str, int]):
    """What a party said of itself; what it left out is its mistake."""

    def __init__(self, sizes: Mapping[str, int], party: str) -> None:
        super().__init__(sizes)
        self._party = party

    def __missing__(self, key: str) -> int:
        raise ProtocolError(f"Party {self._party!r} did not say its {key}.", self._party)


def draw_seed(purpose: str) -> bytes:
    """A fresh seed from the operating system, whatever its purpose."""
    return secrets.token_bytes(SEED_BYTES)


def absent(shape: Shape) -> Words:
    """Words that this party has no part of."""
    return np.broadcast_to(np.uint64(0), shape)


def no_bits(shape: Shape) -> Bits:
    """The same for bits."""
    return np.broadcast_to(np.uint8(0), shape)
