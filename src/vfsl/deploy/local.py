"""A whole deployment on this machine, over loopback: to try one, to test it, to measure it.

Every site has a folder and processes of its own and talks through the relay under mutual TLS, as
between machines; only the files of the hand-overs are moved by one hand here.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from vfsl.deploy.config import (
    FOLDER_VARIABLE,
    KIT_FOLDER,
    PARTY_FILE,
    RELAY_NAME,
    Address,
    Project,
)
from vfsl.deploy.engine import EngineError, members, start, stop
from vfsl.deploy.provision import PROJECT_FILE, init_project, join_site, request_site, sign_requests
from vfsl.errors import TimedOut
from vfsl.store import write_text

_START_SECONDS = 60.0
# Hears of process groups on its input; when that ends, so does whoever started them: end them.
_LIFELINE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
groups = [int(line) for line in sys.stdin]
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class LocalDeployment:
    """Sites of one project on loopback; a context manager that ends all their processes.

    Parameters
    ----------
    folder : Path
        A new folder; each site gets a folder of its own in it.
    parties : sequence of str
    key_holder : str
    submitters : sequence of str
    classes : sequence of str
        Further classes that an engine job may build, for tests of the engine itself.
    """

    def __init__(
        self,
        folder: Path,
        parties: Sequence[str],
        *,
        key_holder: str = "K",
        submitters: Sequence[str],
        classes: Sequence[str] = (),
    ) -> None:
        port, admin_port = free_ports(2)
        self.folder = folder
        self.project = Project(
            name="local",
            relay=Address(host="localhost", port=port, admin_port=admin_port),
            parties=list(parties),
            key_holder=key_holder,
            submitters=list(submitters),
        )
        self._classes = tuple(classes)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lifeline: subprocess.Popen[str] | None = None
        self.environment: dict[str, dict[str, str]] = {}  # more for the processes of a site

    @property
    def sites(self) -> tuple[str, ...]:
        return (RELAY_NAME, *self.project.everyone)

    def site(self, name: str) -> Path:
        return self.folder / name

    def provision(self) -> None:
        """Requests, signatures and start-up kits of all sites."""
        init_project(self.project, self.folder / "authority")
        authority = self.folder / "authority"
        for name in self.sites:
            requests = request_site(authority / PROJECT_FILE, name, self.site(name))
            join_site(self.site(name), sign_requests(authority, requests), self._classes)

    def pins(self) -> dict[str, str]:
        """The public keys of all parties, as people would read them to each other."""
        return {
            name: (self.site(name) / "pin.txt").read_text().strip()
            for name in self.project.everyone
        }

    def write_party(self, name: str, text: str) -> None:
        """Write a party's party.toml: ``text`` and the pins of all others."""
        pins = [f'{peer} = "{pin}"' for peer, pin in self.pins().items() if peer != name]
        write_text(self.site(name) / PARTY_FILE, "\n".join([text, "[peers]", *pins, ""]))

    def start(self) -> None:
        """Start the relay, then all parties, each as a process of its own."""
        self.restart(RELAY_NAME)
        for name in self.project.everyone:
            self.restart(name)

    def restart(self, name: str) -> None:
        """Start a site, again if it was running; of the relay, wait until it listens."""
        if name in self._processes:
            self._stop(name, 10.0)
        folder = self.site(name)
        more = self.environment.get(name, {}) | {FOLDER_VARIABLE: str(folder.absolute())}
        self._processes[name] = start(folder / KIT_FOLDER, folder / "engine.log", more)
        self._hold(self._processes[name].pid)
        if name == RELAY_NAME:
            self._wait_for_port()

    def _hold(self, group: int) -> None:
        """Let no site outlive this process, however it ends."""
        if self._lifeline is None:
            self._lifeline = subprocess.Popen(
                [sys.executable, "-c", _LIFELINE],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        if self._lifeline.stdin is not None:
            self._lifeline.stdin.write(f"{group}\n")
            self._lifeline.stdin.flush()

    def _stop(self, name: str, grace: float) -> None:
        stop(self._processes.pop(name), self.site(name) / KIT_FOLDER, grace)

    def processes(self, name: str) -> list[int]:
        """The process ids of a site: its own, then those of the runs that it takes part in."""
        own = self._processes[name].pid
        found = members(self.site(name) / KIT_FOLDER)
        return [own, *(pid for pid in found if pid != own)]

    def kill(self, pid: int) -> None:
        """Kill a process of this deployment at once, as a crash would."""
        if pid not in [one for name in self._processes for one in self.processes(name)]:
            raise EngineError(f"Process {pid} is not one of this deployment.")
        os.kill(pid, signal.SIGKILL)
        self.reap()

    def reap(self) -> None:
        """Take note of sites that have ended, so that what they started sees it."""
        for process in self._processes.values():
            process.poll()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._processes):
            self._stop(name, grace=1.0)
        if self._lifeline is not None:
            self._lifeline.communicate()
            self._lifeline = None

    def _wait_for_port(self) -> None:
        relay, deadline = self.project.relay, time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._processes[RELAY_NAME].poll() is not None:
                raise EngineError(f"The relay ended; see {self.site(RELAY_NAME) / 'engine.log'}.")
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex(("127.0.0.1", relay.port)) == 0:
                    return
            time.sleep(0.2)
        raise TimedOut(f"The relay does not listen on port {relay.port}.")


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
