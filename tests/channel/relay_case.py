"""Relayed transports over an engine of this process, which a test may let meddle."""

import threading
from functools import partial
from typing import ClassVar

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfsl.channel import Attempt, Channel, Transcript, seal, wire
from vfsl.channel.relayed import RelayedTransport, Unreachable, session_name
from vfsl.errors import PeerFailed


class Engine:
    """Hands envelopes over in this process; a test may drop, change or repeat them."""

    made: ClassVar[list] = []

    def __init__(self, parties, on_carry=None):
        Engine.made.append(self)
        self.parties = tuple(parties)
        self.transports = {}
        self.opened = threading.Barrier(len(self.parties), timeout=20)
        self.gone = set()
        self.relayed = True
        self.seen = []
        self.on_carry = on_carry

    def transport(self, me):
        peers = tuple(party for party in self.parties if party != me)
        made = RelayedTransport(
            me,
            peers,
            session_name("run", 1),
            partial(self.carry, me),
            self.probe,
            lambda: self.relayed,
        )
        self.transports[me] = made
        self.opened.wait()
        return made

    def carry(self, me, peer, envelope, seconds=1.0):
        self.seen.append((me, peer, bytes(envelope)))
        self.probe(peer)
        if self.on_carry is not None:
            for changed in self.on_carry(me, peer, bytes(envelope)):
                self.transports[peer].accept(me, changed)
            return
        self.transports[peer].accept(me, envelope)

    def probe(self, peer):
        if peer in self.gone or not self.relayed:
            raise Unreachable(gone=True)


def run(roles, *, timeout=None, max_bytes=None, engine=None):
    """Roles over sealed relayed transports, with the meaning of run_together."""
    engine = engine or Engine(roles)
    keys = {party: X25519PrivateKey.generate() for party in roles}
    pinned = {party: key.public_key() for party, key in keys.items()}
    results, errors = {}, {}

    def body(party):
        transport = engine.transport(party)
        try:
            inner = seal(transport, keys[party], pinned, Attempt("run"), timeout)
            limit = max_bytes or wire.MAX_BYTES
            channel = Channel(inner, Transcript(), timeout=timeout, max_bytes=limit)
            results[party] = roles[party](channel)
            transport.close()
        except BaseException as error:
            errors[party] = error
            transport.abandon(error)

    threads = [threading.Thread(target=body, args=(party,), daemon=True) for party in roles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a party did not end"
    if errors:
        causes = [error for error in errors.values() if not isinstance(error, PeerFailed)]
        raise (causes or list(errors.values()))[0]
    return results


def pair(engine):
    """The two transports of an engine."""
    made = {}
    threads = [
        threading.Thread(target=lambda p=p: made.update({p: engine.transport(p)}))
        for p in engine.parties
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(made[party] for party in engine.parties)
