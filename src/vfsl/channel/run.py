"""Run the roles of a protocol together and return what each party ends up with."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfsl.channel import wire
from vfsl.channel.base import Channel, PartyChannel
from vfsl.channel.memory import Hub
from vfsl.channel.processes import run_processes
from vfsl.channel.sealing import Attempt, seal
from vfsl.channel.transcript import Entry, Release, Sight, Transcript
from vfsl.channel.transport import Transport
from vfsl.errors import ChannelError, ConfigError, PeerFailed

Player = Callable[[Channel], Any]


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
        Each is called with its party's channel. On ``"processes"`` it must pickle: a function of a
        module, or ``functools.partial`` of one.
    on : {"memory", "processes"}
        Threads of this process, or one spawned process per party.
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
    if on not in ("memory", "processes"):
        raise ConfigError(f"Parties run on 'memory' or 'processes'. Got {on!r} instead.")
    transcript = Transcript() if transcript is None else transcript
    keys = {party: X25519PrivateKey.generate().private_bytes_raw() for party in roles if sealed}
    terms = Terms(keys, Attempt(run=secrets.token_hex(8)), timeout, max_bytes or wire.MAX_BYTES)
    if on == "memory":
        return _run_threads(roles, transcript, terms)
    bodies = {
        party: partial(_record, role, terms, transcript.keep_views) for party, role in roles.items()
    }
    outcomes = run_processes(bodies)
    for _, entries, sights, releases in outcomes.values():
        transcript.merge(entries, sights, releases)
    return {party: result for party, (result, *_) in outcomes.items()}


@dataclass(frozen=True)
class Terms:
    """What the channels of one run have in common."""

    keys: Mapping[str, bytes]  # private keys by party, all made here: a simulation; empty: unsealed
    attempt: Attempt
    timeout: float | None
    max_bytes: int


def _open(transport: Transport, transcript: Transcript, terms: Terms) -> PartyChannel:
    """A party's channel over its transport, sealed if there are keys to seal with."""
    if terms.keys:
        private = {
            party: X25519PrivateKey.from_private_bytes(key) for party, key in terms.keys.items()
        }
        pinned = {party: key.public_key() for party, key in private.items()}
        transport = seal(transport, private[transport.me], pinned, terms.attempt, terms.timeout)
    return PartyChannel(transport, transcript, timeout=terms.timeout, max_bytes=terms.max_bytes)


def _run_threads(
    roles: Mapping[str, Player], transcript: Transcript, terms: Terms
) -> dict[str, Any]:
    hub = Hub(tuple(roles))
    results: dict[str, Any] = {}
    errors: list[BaseException] = []

    def body(party: str) -> None:
        try:
            results[party] = roles[party](_open(hub.transport(party), transcript, terms))
            hub.end(party)
        except BaseException as error:
            errors.append(error)
            hub.fail(party, type(error).__name__)

    threads = [
        threading.Thread(target=body, args=(party,), name=f"vfsl {party}", daemon=True)
        for party in roles
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        # Ctrl-C: parties that wait stop now, those that compute stop at their next message.
        hub.fail("this run", "interrupted")
        raise
    if errors:
        raise next((error for error in errors if not isinstance(error, PeerFailed)), errors[0])
    unread = hub.unread()
    if unread is not None:
        sender, receiver, count = unread
        raise ChannelError(
            f"{receiver!r} ended with {count} messages of {sender!r} that it never received.",
            sender,
        )
    return {party: results[party] for party in roles}


def _record(
    role: Player, terms: Terms, keep_views: bool, transport: Transport
) -> tuple[Any, list[Entry], list[Sight], list[Release]]:
    """Run a role in its own process and bring back its part of the transcript."""
    transcript = Transcript(keep_views=keep_views)
    result = role(_open(transport, transcript, terms))
    return result, transcript.entries, transcript.sights, transcript.releases
