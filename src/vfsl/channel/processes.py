"""Parties as operating-system processes of this machine, spawned, joined by pipes.

The parent starts the parties, hears who waits, ends or dies, and tells the others. Party code gets
a transport and nothing else of the parent's memory. What the parent and its own children exchange
(the role, its result) is pickled by multiprocessing; what parties exchange never is.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import threading
import time
from collections.abc import Callable, Mapping
from itertools import combinations
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from typing import Any

from vfsl.channel.transport import (
    Failed,
    Mailbox,
    Transport,
    Venue,
    Wait,
    WaitGraph,
    closed_before_sending,
    find_cause,
    refuse_unread,
)
from vfsl.channel.wire import MAX_BYTES
from vfsl.errors import PeerFailed, VfslError

Body = Callable[[Transport], Any]

_FRAME_LIMIT = MAX_BYTES + (1 << 16)
_GRACE = 10.0  # seconds that the others get to stop after a failure


class PipeTransport(Mailbox):
    """One party's pipes to its peers; a thread per peer drains them, so that senders never wait."""

    report_after = 0.2

    def __init__(self, me: str, links: Mapping[str, Connection], control: Connection) -> None:
        super().__init__(me, tuple(links))
        self._links = links
        self._control = control
        self._control_lock = threading.Lock()
        self._drained: set[str] = set()
        for peer in links:
            threading.Thread(target=self._drain, args=(peer,), daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()

    def post(self, to: str, frame: bytes) -> None:
        try:
            self._links[to].send_bytes(frame)
        except OSError:
            # A pipe broke: wait for the parent's word on what became of the peer.
            with self._changed:
                self._changed.wait_for(lambda: self._failed or to in self._ended, timeout=_GRACE)
                self._raise_if_failed()
            raise closed_before_sending(self.me, to) from None
        self._posted[to] += 1

    def tell_parent(self, what: str, value: Any) -> None:
        """Tell the parent; if it is gone, nobody is left to tell."""
        with self._control_lock, contextlib.suppress(OSError):
            self._control.send((what, value))

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many messages were posted to each peer, and taken from each."""
        return dict(self._posted), dict(self._taken)

    def _report(self, wait: Wait) -> None:
        self.tell_parent("waiting", wait)

    def _is_closed(self, sender: str) -> bool:
        return sender in self._ended and sender in self._drained

    def _drain(self, peer: str) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                frame = self._links[peer].recv_bytes(_FRAME_LIMIT)
                with self._changed:
                    self._inbox[peer].append(frame)
                    self._changed.notify_all()
        with self._changed:
            self._drained.add(peer)
            self._changed.notify_all()

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.learn(*self._control.recv())
        self.learn("failed", Failed("parent process", "it is gone"))


class _Parent:
    """Watches the parties and passes on what concerns the others."""

    def __init__(self) -> None:
        self._processes: dict[str, Any] = {}
        self._controls: dict[str, Connection] = {}
        self._waits = WaitGraph()
        self._results: dict[str, Any] = {}
        self._posted: dict[str, dict[str, int]] = {}
        self._taken: dict[str, dict[str, int]] = {}
        self._errors: dict[str, BaseException] = {}
        self._give_up: float | None = None

    def add(self, party: str, process: Any, control: Connection) -> None:
        self._processes[party] = process
        self._controls[party] = control

    def watch(self) -> dict[str, Any]:
        running = set(self._processes)
        while running:
            waiting_on: dict[Any, str] = {self._controls[party]: party for party in running}
            waiting_on |= {self._processes[party].sentinel: party for party in running}
            timeout = None if self._give_up is None else self._give_up - time.monotonic()
            if timeout is not None and timeout <= 0:
                break
            ready = {waiting_on[item] for item in wait_for_any(list(waiting_on), timeout)}
            running -= {party for party in ready if self._hear(party)}
        if self._errors:
            raise find_cause(self._errors.values())
        for sender, posted in self._posted.items():
            for receiver, count in posted.items():
                refuse_unread(receiver, sender, count - self._taken[receiver].get(sender, 0))
        return {party: self._results[party] for party in self._processes}

    def stop(self) -> None:
        for party, process in self._processes.items():
            process.join(timeout=1 if party in self._results else 0.1)
            if process.is_alive():
                process.kill()
                process.join()
            self._controls[party].close()
            process.close()

    def _hear(self, party: str) -> bool:
        """Handle one report of a party; True if it was its last."""
        try:
            if not self._controls[party].poll(0):
                # The process ended and left no word.
                if self._processes[party].is_alive():
                    return False
                raise EOFError
            what, value = self._controls[party].recv()
        except (EOFError, OSError):
            self._processes[party].join()
            code = self._processes[party].exitcode
            error = PeerFailed(f"Party {party!r} died (exit code {code}).", party)
            self._fail(party, error, "its process died")
            return True
        if what == "waiting":
            ring = self._waits.add(party, value)
            if ring is not None:
                self._tell("deadlock", self._waits.describe(ring))
            return False
        if what == "result":
            self._results[party], self._posted[party], self._taken[party] = value
            self._tell("ended", party)
        else:
            self._fail(party, value, type(value).__name__)
        return True

    def _fail(self, party: str, error: BaseException, reason: str) -> None:
        self._errors[party] = error
        if self._give_up is None:
            self._give_up = time.monotonic() + _GRACE
            self._tell("failed", Failed(party, reason))

    def _tell(self, what: str, value: Any) -> None:
        for control in self._controls.values():
            with contextlib.suppress(OSError):
                control.send((what, value))


def _play(bodies: Mapping[str, Body]) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    links: dict[str, dict[str, Connection]] = {party: {} for party in bodies}
    for one, other in combinations(bodies, 2):
        links[one][other], links[other][one] = context.Pipe()
    parent = _Parent()
    try:
        for party, body in bodies.items():
            own_end, child_end = context.Pipe()
            process = context.Process(
                target=_be_party, args=(party, body, links[party], child_end), name=f"vfsl {party}"
            )
            process.start()
            parent.add(party, process, own_end)
            # Only the child may keep its ends open: then its death closes them for everybody.
            for end in (child_end, *links[party].values()):
                end.close()
        return parent.watch()
    finally:
        parent.stop()


def _be_party(me: str, body: Body, links: dict[str, Connection], control: Connection) -> None:
    """The main function of a party's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    transport = PipeTransport(me, links, control)
    try:
        transport.tell_parent("result", (body(transport), *transport.counts()))
    except BaseException as error:
        transport.tell_parent("error", _make_picklable(error))


def _make_picklable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return VfslError(f"{type(error).__name__}: {error}")
    return error


PROCESSES = Venue(_play, shares_memory=False)
