"""Parties as clients of NVFlare, whose server carries their envelopes and reads nothing.

Each party, the key holder included, is one NVFlare client with one published ``deliver(envelope)``;
relayed.py makes frames of envelopes. NVFlare's own encryption between clients is on below our
sealing. This is the only file that imports NVFlare's classes for running parties.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from nvflare.apis.signal import Signal
from nvflare.collab import collab

from vfsl.channel.envelopes import Envelope, session_of
from vfsl.channel.relayed import CALL_SECONDS, RelayedTransport, Trouble, Unreachable
from vfsl.errors import ChannelError

_ASK_EVERY = 1.0  # seconds between two times that the relay asks all parties how they are
_EARLY_LIMIT = 1 << 28  # bytes kept for a session that this party has not opened yet


class Station:
    """The object at an NVFlare client: takes envelopes in and runs the party's work in a thread.

    A deployment derives its party from it and says what to do in :meth:`work`.
    """

    secure = True  # NVFlare's own encryption between clients, below our sealing

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._transports: dict[bytes, RelayedTransport] = {}
        self._early: dict[bytes, list[tuple[str, Envelope]]] = {}
        self._state = "waiting"
        self._proxies: Mapping[str, Any] = {}
        self._worker: threading.Thread | None = None
        self._parent = os.getppid()
        self.me = ""

    def work(self) -> None:
        """What the party does in this job; it opens its transport by :meth:`open`."""
        raise NotImplementedError

    def open(self, session: bytes, peers: tuple[str, ...]) -> RelayedTransport:
        """The transport of one session; it already holds what peers sent before it was opened."""
        missing = [peer for peer in peers if peer not in self._proxies]
        if missing:
            raise ChannelError(f"Party {missing[0]!r} does not take part in this run.", missing[0])
        transport = RelayedTransport(
            self.me, peers, session, self._carry, self._probe, self._relayed
        )
        with self._lock:
            self._transports[session] = transport
            early = self._early.pop(session, [])
            for sender, envelope in early:
                transport.accept(sender, envelope)
        return transport

    def _carry(self, peer: str, envelope: Envelope, seconds: float) -> None:
        _call(lambda: self._proxies[peer](secure=self.secure, timeout=seconds).deliver(envelope))

    def _probe(self, peer: str) -> None:
        _call(lambda: self._proxies[peer](timeout=CALL_SECONDS).alive())

    def _relayed(self) -> bool:
        cell = next(iter(self._proxies.values())).backend.cell
        return bool(cell.core_cell.is_cell_connected("server"))

    # ---- published to the other sites of the job ----------------------------------------------

    def _begin(self) -> bool:
        with self._lock:
            if self._state != "waiting":
                return False
            self._state = "running"
        self.me = str(collab.site_name)
        self._proxies = {str(proxy.name): _lasting(proxy) for proxy in collab.context.clients}
        self._worker = threading.Thread(target=self._run, daemon=True, name=f"vfsl {self.me}")
        self._worker.start()
        return True

    def _run(self) -> None:
        try:
            self.work()
            self._state = "ended"
        except BaseException:
            # The party's own work has written down what happened; the relay learns that it did.
            self._state = "failed"

    def _deliver(self, envelope: Envelope) -> None:
        sender, session = str(collab.caller), session_of(envelope)
        with self._lock:
            transport = self._transports.get(session)
            if transport is None:
                waiting = self._early.setdefault(session, [])
                if sum(len(one) for _, one in waiting) + len(envelope) > _EARLY_LIMIT:
                    raise ChannelError(f"{sender!r} sends too much before the run begins.", sender)
                waiting.append((sender, envelope))
                return
        if sender in transport.peers:
            transport.accept(sender, envelope)

    def _alive(self) -> str:
        return self._state

    def _end(self) -> None:
        """The engine ends the job; it kills this process ten seconds later."""
        for transport in list(self._transports.values()):
            transport.call_off(own=os.getppid() != self._parent)
        if self._worker is not None:
            self._worker.join(CALL_SECONDS)

    end = collab.final(_end)
    begin = collab.publish(_begin)
    deliver = collab.publish(_deliver)
    alive = collab.publish(_alive)


class Relay:
    """The object at NVFlare's server: starts the parties and waits until all have ended.

    Parameters
    ----------
    grace : float
        Seconds that the others get to end after one has failed or gone.
    """

    def __init__(self, grace: float = 20.0) -> None:
        self._grace = grace

    def _main(self) -> None:
        clients = {str(client.name): client for client in collab.clients}
        for client in clients.values():
            client(timeout=60.0).begin()
        trouble = {name: Trouble() for name in clients}
        give_up: float | None = None
        while clients and (give_up is None or time.monotonic() < give_up):
            for name, client in list(clients.items()):
                if collab.is_aborted:
                    return
                state = _state(client, trouble[name])
                if state == "answers":
                    trouble[name] = Trouble()
                if state in ("ended", "failed"):
                    del clients[name]
                if state == "failed" and give_up is None:
                    give_up = time.monotonic() + self._grace
            time.sleep(_ASK_EVERY)
        if give_up is not None:
            raise RuntimeError("A party of this run has failed; each party's own log names it.")

    main = collab.main(_main)


def _state(client: Any, trouble: Trouble) -> str:
    """What a party says of itself; one that cannot be reached for long has failed."""
    try:
        said = str(_call(lambda: client(timeout=CALL_SECONDS).alive()))
    except Unreachable as error:
        return "failed" if trouble.is_final(error.gone) else "silent"
    return said if said in ("ended", "failed") else "answers"


def _lasting(proxy: Any) -> Any:
    """A proxy that still calls when the engine ends the run, to tell and to learn who failed."""
    lasting = copy.copy(proxy)
    lasting.backend = copy.copy(proxy.backend)
    lasting.backend.abort_signal = Signal()
    lasting.children = {name: _lasting(child) for name, child in proxy.children.items()}
    return lasting


def _call(remote: Callable[[], Any]) -> Any:
    """A call to another site; what goes wrong becomes Unreachable."""
    try:
        return remote()
    except Exception as error:
        text = str(error).lower()
        raise Unreachable(gone="timed out" not in text and "timeout" not in text) from None
