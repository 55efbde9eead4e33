"""Messages between parties: one channel over interchangeable transports."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfsl.channel import wire
from vfsl.channel.base import About, Budget, Channel, expect_array, expect_integer
from vfsl.channel.rounds import count_rounds, estimate_seconds
from vfsl.channel.sealing import Attempt, seal
from vfsl.channel.transcript import Entry, Event, Opening, Release, Sight, Transcript
from vfsl.channel.transport import Transport, Venue
from vfsl.registry import Registry

Player = Callable[[Channel], Any]

# Where the parties of a protocol can run together.
CHANNELS: Registry[Venue] = Registry(
    what="channel",
    group="vfsl.channels",
    builtin={
        "memory": "vfsl.channel.memory:MEMORY",
        "processes": "vfsl.channel.processes:PROCESSES",
    },
)


def run_together(
    roles: Mapping[str, Player],
    *,
    on: str = "memory",
    transcript: Transcript | None = None,
    sealed: bool = False,
    timeout: float | None = None,
    max_bytes: int | None = None,
) -> dict[str, Any]:
    """Run one role per party over channels and return their results by party.

    Parameters
    ----------
    roles : mapping of party name to function
        Each is called with its party's channel. Where the parties do not share this process's
        memory it must pickle: a function of a module, or ``functools.partial`` of one.
    on : str
        One of ``CHANNELS.names()``: "memory" for threads of this process, "processes" for one
        spawned process per party, or a channel of another package.
    transcript : Transcript, optional
        Takes in every message of the run.
    sealed : bool
        Seal the messages as between organisations, with keys made for this run.
    timeout : float, optional
        Seconds that a party waits for one message.
    max_bytes : int, optional
        The largest message that may be sent or read; 1 GiB by default.

    Raises
    ------
    VfslError
        The error of the party that failed first. The others stop with PeerFailed, which names it.
    """
    venue = CHANNELS.find(on)
    transcript = Transcript() if transcript is None else transcript
    keys = {party: X25519PrivateKey.generate().private_bytes_raw() for party in roles if sealed}
    terms = _Terms(keys, Attempt(run=secrets.token_hex(8)), timeout, max_bytes or wire.MAX_BYTES)
    if venue.shares_memory:
        return venue.play(
            {party: partial(_play, role, terms, transcript) for party, role in roles.items()}
        )
    bodies = {
        party: partial(_record, role, terms, transcript.keep_views) for party, role in roles.items()
    }
    outcomes = venue.play(bodies)
    for _, *recorded in outcomes.values():
        transcript.merge(*recorded)
    return {party: result for party, (result, *_) in outcomes.items()}


@dataclass(frozen=True)
class _Terms:
    """What the channels of one run have in common."""

    keys: Mapping[str, bytes]  # private keys by party, all made here: a simulation; empty: unsealed
    attempt: Attempt
    timeout: float | None
    max_bytes: int


def _play(role: Player, terms: _Terms, transcript: Transcript, transport: Transport) -> Any:
    """Run a role over its channel, sealed if there are keys to seal with."""
    if terms.keys:
        private = {
            party: X25519PrivateKey.from_private_bytes(key) for party, key in terms.keys.items()
        }
        pinned = {party: key.public_key() for party, key in private.items()}
        transport = seal(transport, private[transport.me], pinned, terms.attempt, terms.timeout)
    return role(Channel(transport, transcript, timeout=terms.timeout, max_bytes=terms.max_bytes))


def _record(
    role: Player, terms: _Terms, keep_views: bool, transport: Transport
) -> tuple[Any, list[Entry], list[Sight], list[Release], list[Event], list[Opening]]:
    """Run a role in its own process and bring back its part of the transcript."""
    transcript = Transcript(keep_views=keep_views)
    result = _play(role, terms, transcript, transport)
    kept = transcript
    return result, kept.entries, kept.sights, kept.releases, kept.events, kept.openings


__all__ = [
    "CHANNELS",
    "About",
    "Attempt",
    "Budget",
    "Channel",
    "Entry",
    "Player",
    "Transcript",
    "Transport",
    "Venue",
    "count_rounds",
    "estimate_seconds",
    "expect_array",
    "expect_integer",
    "run_together",
    "seal",
]
