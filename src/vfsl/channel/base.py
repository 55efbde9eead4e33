"""The channel of one party: names, disclosures, releases, wire format, transcript."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from vfsl.channel import wire
from vfsl.channel.transcript import Release, Transcript
from vfsl.channel.transport import Transport
from vfsl.errors import ChannelError, NameMismatch, ProtocolError, UndeclaredMessage, WireError
from vfsl.mechanisms import Mechanism
from vfsl.values import Array, Disclosure, Disclosures, Wire, kind_of

About = Literal["columns", "label"]

_KINDS = {"integer": "iu", "float": "f", "boolean": "b", "bytes": "u"}


class Budget(Protocol):
    """What a party keeps of the exact numbers that peers have seen, over all of its runs."""

    def charge(
        self,
        peer: str,
        what: str,
        numbers: int,
        about: About,
        once: bytes | None,
        spent: Sequence[float] = (),
    ) -> None:
        """Count what the peer is about to see; LimitReached if it would be too much.

        ``numbers`` are exact ones; ``spent`` is what noisy ones cost, as `Mechanism.spend` says.
        """


class Channel:
    """What a protocol role sees of the others; its local view *is* its privacy view."""

    def __init__(
        self,
        transport: Transport,
        transcript: Transcript,
        *,
        timeout: float | None = None,
        max_bytes: int = wire.MAX_BYTES,
        speaks: Disclosures | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._transport = transport
        self._transcript = transcript
        self._timeout = timeout
        self._max_bytes = max_bytes
        self.scope = ""  # what names of messages begin with here, such as "step 2/train/"
        self._speaks = speaks or {}
        self._budget = budget

    @property
    def me(self) -> str:
        return self._transport.me

    @property
    def peers(self) -> tuple[str, ...]:
        return self._transport.peers

    def within(self, scope: str, speaks: Disclosures | None = None) -> Channel:
        """The same channel with names under ``scope``, and the messages of another protocol."""
        inner = copy.copy(self)
        inner.scope = f"{self.scope}{scope}/"
        if speaks is not None:
            inner._speaks = speaks
        return inner

    def send(self, to: str, name: str, value: Wire) -> None:
        """Send a declared message; returns without waiting for the receiver."""
        disclosure = self._declared(to, name)
        if not isinstance(value, disclosure.type):
            raise UndeclaredMessage(
                f"Message {name!r} from {self.me!r} to {to!r} is declared as "
                f"{disclosure.type.__name__}, but {type(value).__name__} was to be sent.",
                to,
            )
        full_name = self.scope + name
        frame = wire.encode(full_name, value, max_bytes=self._max_bytes)
        self._transport.post(to, frame)
        self._transcript.note_sent(
            self.me, to, full_name, kind_of(value), len(frame), disclosure.fact
        )

    def receive(self, sender: str, name: str) -> Wire:
        """The next message of a sender, which must have this name and its declared type."""
        disclosure = self._declared(sender, name)
        full_name = self.scope + name
        frame = self._transport.take(sender, full_name, self._timeout)
        try:
            came, value = wire.decode(frame, max_bytes=self._max_bytes)
        except WireError as error:
            raise WireError(
                f"{self.me!r} cannot read a message of {sender!r}: {error}", sender
            ) from None
        if came != full_name:
            raise NameMismatch(
                f"{self.me!r} waited for {full_name!r} from {sender!r}, but {came!r:.200} came.",
                sender,
            )
        if not isinstance(value, disclosure.type):
            raise UndeclaredMessage(
                f"Message {full_name!r} from {sender!r} is declared as {disclosure.type.__name__}, "
                f"but {type(value).__name__} came.",
                sender,
            )
        self._transcript.note_seen(self.me, sender, full_name, kind_of(value), frame)
        return value

    def release(
        self,
        to: str,
        what: str,
        numbers: int,
        *,
        about: About = "columns",
        new: int | None = None,
        once: bytes | None = None,
    ) -> None:
        """Let a peer see exact numbers about one's own rows; called just before they can be seen.

        The party whose data is shown calls it, whoever opens or sends the numbers in the end. It
        writes the ledger and, where the party keeps a budget, counts or refuses.

        Parameters
        ----------
        to, what : str
            Who will see them, and what they are, in a few words.
        numbers : int
            How many; bits that are seen one by one count as numbers of 32 bits.
        about : {"columns", "label"}
            What of one's own data they tell about.
        new : int, optional
            How many of them the budget counts, where the others follow from those; say why beside
            the call.
        once : bytes, optional
            A digest of all that these numbers could tell in the end. Charged once, the same is
            never charged again.
        """
        counted = numbers if new is None else new
        self._let_see(to, what, numbers, counted, about, once)

    def release_noisy(
        self,
        to: str | Sequence[str],
        what: str,
        values: Array,
        mechanism: Mechanism,
        rng: Any,
        *,
        about: About = "columns",
        once: bytes | None = None,
    ) -> Array:
        """The values as peers may see them: changed by the mechanism, which the budget is charged.

        None of these numbers is exact, so they count by what the mechanism spends. ``rng`` must be
        private. The other parameters are those of `release`.
        """
        values, spent = np.asarray(values), mechanism.spend()
        for peer in (to,) if isinstance(to, str) else to:
            self._let_see(peer, what, values.size, 0, about, once, tuple(spent.tolist()))
        return mechanism.apply(values, rng)

    def _let_see(
        self,
        to: str,
        what: str,
        numbers: int,
        counted: int,
        about: About,
        once: bytes | None,
        spent: tuple[float, ...] = (),
    ) -> None:
        self._check_peer(to)
        if min(numbers, counted) < 0:
            raise ChannelError(
                f"{self.me!r} cannot show {to!r} {min(numbers, counted)} numbers ({what}).", to
            )
        if self._budget is not None and (counted or spent):
            self._budget.charge(to, what, counted, about, once, spent)
        self._transcript.note_released(
            Release(self.me, to, what, about, numbers, counted, self.scope, spent)
        )

    def note_opened(self, name: str, values: Any) -> None:
        """Keep what this party can now read, where an audit asks for views; it sends nothing."""
        self._transcript.note_opened(self.me, self.scope + name, values)

    def _check_peer(self, peer: str) -> None:
        if peer not in self.peers:
            known = ", ".join(repr(party) for party in self.peers) or "none"
            raise ChannelError(f"{self.me!r} has no peer {peer!r}; its peers are {known}.", peer)

    def _declared(self, peer: str, name: str) -> Disclosure:
        self._check_peer(peer)
        if name not in self._speaks:
            raise UndeclaredMessage(
                f"Message {name!r} between {self.me!r} and {peer!r} is not among the declared "
                "disclosures of this protocol.",
                peer,
            )
        return self._speaks[name]


def expect_array(
    value: Wire, *, sender: str, name: str, holds: str, shape: tuple[int | None, ...]
) -> Array:
    """``value`` as an array of that content and shape (None: any length), else ProtocolError."""
    if not isinstance(value, np.ndarray):
        raise ProtocolError(
            f"Party {sender!r} sent {type(value).__name__} as {name!r}; expected an array.", sender
        )
    fits = value.dtype.kind in _KINDS[holds] and (holds != "bytes" or value.dtype == np.uint8)
    if not fits:
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} as {value.dtype}; expected {holds} values.", sender
        )
    if len(value.shape) != len(shape) or any(
        wanted is not None and wanted != got for wanted, got in zip(shape, value.shape, strict=True)
    ):
        wanted_text = " × ".join("any" if length is None else str(length) for length in shape)
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} with shape {value.shape}; expected {wanted_text}.",
            sender,
        )
    if holds == "float" and not np.isfinite(value).all():
        raise ProtocolError(
            f"Party {sender!r} sent {name!r} with numbers that are not finite.", sender
        )
    return value


def expect_integer(value: Wire, *, sender: str, name: str, low: int, high: int) -> int:
    """``value`` as an integer between ``low`` and ``high``, else ProtocolError."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ProtocolError(
            f"Party {sender!r} sent {value!r:.60} as {name!r}; expected an integer from {low} "
            f"to {high}.",
            sender,
        )
    return value
