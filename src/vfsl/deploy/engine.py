"""NVFlare as the engine: its tools, a start-up kit made strict, its processes and its sessions."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from vfsl.errors import ConfigError, StoreError, VfslError
from vfsl.store import read_json, write_json

RELAY_CLASS = "vfsl.channel.flare.Relay"
PARTY_CLASS = "vfsl.deploy.party.Party"
_CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
_EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"
_tool_lock = threading.Lock()
# Parts of the default kit that send a site's log files to the server, or take them there.
_LOG_PARTS = {"site_log_streamer", "log_receiver"}
_CALLS = "nvflare.collab.runtime.cell_dispatcher.CellDispatcher"
_NO = "none"


class EngineError(VfslError):
    """The engine refused or failed; its own words are in the message."""


def require_engine() -> None:
    """One sentence where NVFlare is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        raise ConfigError(
            "Deployments need NVFlare, which is not installed; run: pip install 'vfsl[deploy]'."
        )


def tool(*arguments: str | Path) -> None:
    """Run one of NVFlare's commands, such as ``cert request``, without its words on the screen."""
    require_engine()
    from nvflare.cli import run

    said = io.StringIO()
    code: object = 0
    # Its commands read sys.argv; a process of its own for each would cost seconds.
    with _tool_lock, redirect_stdout(said), redirect_stderr(said):
        kept_arguments, kept_path = sys.argv, list(sys.path)
        sys.argv = ["nvflare", *map(str, arguments)]
        try:
            run("nvflare")
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.argv, sys.path[:] = kept_arguments, kept_path
    if code != 0:
        words = " ".join(said.getvalue().split())
        raise EngineError(f"nvflare {arguments[0]} {arguments[1]} failed: {words[-400:]}")


def make_strict(kit: Path, storage: Path, extra_classes: Sequence[str] = ()) -> None:
    """Close what a start-up kit leaves open, before it is ever started.

    Only our two classes may be built by a job, jobs may not bring code, nobody may run commands on
    the site, log files are not sent to the server, and what the server stores lies in ``storage``
    of this deployment instead of a folder that all deployments of a machine share.
    """
    local = kit / "local"
    resources = read_json(local / "resources.json.default")
    allowed = [_CONTROLLER, _EXECUTOR, RELAY_CLASS, PARTY_CLASS, *extra_classes]
    resources["class_allow_list"] = allowed
    resources["class_list_enforcement_mode"] = "enforce"
    resources["allow_log_streaming"] = False
    parts = [part for part in resources["components"] if part["id"] not in _LOG_PARTS]
    for part in parts:
        if part["id"] == "job_manager":
            part["args"]["uri_root"] = str((storage / "jobs").absolute())
    resources["components"] = parts
    if "snapshot_persistor" in resources:
        place = resources["snapshot_persistor"]["args"]["storage"]["args"]
        place["root_dir"] = str((storage / "snapshots").absolute())
    write_json(local / "resources.json", resources)
    nothing = dict.fromkeys(("submit_job", "clone_job", "manage_job", "download_job"), _NO)
    nothing |= dict.fromkeys(("operate", "shell_commands", "byoc", "server-predeployed-flwr"), _NO)
    nothing["view"] = _NO
    lead = nothing | {"submit_job": "any", "manage_job": "n:submitter", "view": "any"}
    roles = {"project_admin": nothing, "org_admin": nothing, "lead": lead, "member": nothing}
    write_json(local / "authorization.json", {"format_version": "1.0", "permissions": roles})
    logging = read_json(local / "log_config.json.default")
    logging["loggers"][_CALLS] = {"level": "WARNING"}  # else two lines for every message
    write_json(local / "log_config.json", logging)


def start(kit: Path, log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the site of a kit as a process of its own, with its output in ``log``."""
    command, more = _command(kit, environment)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            cwd=kit,
            env=more,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def become(kit: Path, log: Path, environment: Mapping[str, str]) -> NoReturn:
    """Turn this process into the site of a kit: who ends or kills it ends the site itself."""
    command, more = _command(kit, environment)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(kit)
    os.execvpe(command[0], command, more)


def _command(kit: Path, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """How a site is started, with our Python first: the kit's script calls python3."""
    require_engine()
    script = (kit / "startup" / "sub_start.sh").absolute()
    if not script.exists():
        raise ConfigError(f"{kit} has no start-up kit; run: vfsl deploy join, first.")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return ["bash", str(script), "--once"], {**os.environ, **environment, "PATH": path}


def stop(process: subprocess.Popen[bytes], kit: Path, grace: float = 10.0) -> None:
    """End a site and the processes of the runs that it takes part in."""
    _signal(os.killpg, process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    _signal(os.killpg, process.pid, signal.SIGKILL)
    process.wait()
    for pid in members(kit):  # they have process groups of their own
        _signal(os.kill, pid, signal.SIGKILL)


def members(kit: Path) -> list[int]:
    """The processes that run on a kit, from the process table of Linux: site first, then runs."""
    word = str(kit.absolute()).encode()
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                if word in (place / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(place.name))
    return sorted(found)


def _signal(send: Callable[[int, int], None], target: int, kind: int) -> None:
    with suppress(ProcessLookupError):
        send(target, kind)


def write_job(
    folder: Path,
    name: str,
    sites: Sequence[str],
    party_class: str,
    arguments: Mapping[str, Any],
    call_seconds: float,
) -> Path:
    """The folder of an engine job: two classes by name, no code, nothing about the work itself."""
    app = folder / name / "app" / "config"
    threads = {"max_inbound_call_threads": 100, "max_outbound_call_threads": 100}
    server = {
        "format_version": 2,
        "workflows": [
            {
                "id": "controller",
                "path": _CONTROLLER,
                "args": {
                    "server_obj_id": "relay",
                    "collab_obj_ids": [],
                    "props": {},
                    "sync_task_timeout": call_seconds,
                    **threads,
                },
            }
        ],
        "components": [{"id": "relay", "path": RELAY_CLASS, "args": {}}],
    }
    executor = {
        "path": _EXECUTOR,
        "args": {"client_obj_id": "party", "collab_obj_ids": [], "props": {}, **threads},
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": executor}],
        "components": [{"id": "party", "path": party_class, "args": dict(arguments)}],
    }
    meta = {
        "name": name,
        "resource_spec": {},
        "min_clients": len(sites),
        "mandatory_clients": list(sites),
        "deploy_map": {"app": ["server", *sites]},
    }
    write_json(app / "config_fed_server.json", server)
    write_json(app / "config_fed_client.json", client)
    write_json(folder / name / "meta.json", meta)
    return folder / name


@contextmanager
def session(kit: Path, user: str, seconds: float = 30.0) -> Iterator[Any]:
    """A session with the relay as one of its users, to submit and to look up jobs."""
    require_engine()
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    if not (kit / "startup").is_dir():
        raise StoreError(f"{kit} has no start-up kit of a submitter.")
    try:
        with redirect_stdout(io.StringIO()):  # it greets whoever connects
            opened = new_secure_session(user, str(kit), timeout=seconds)
    except Exception as error:  # NVFlare raises a dozen kinds without a common base
        raise EngineError(f"The relay cannot be reached as {user}: {error}") from None
    try:
        yield opened
    except VfslError:
        raise
    except Exception as error:
        raise EngineError(f"The relay refused: {error}") from None
    finally:
        opened.close()


@dataclass(frozen=True)
class JobFacts:
    """What the engine says of a job: its state, the last try to schedule it, who is connected."""

    state: str  # such as RUNNING or FINISHED:COMPLETED
    last_try: str
    connected: tuple[str, ...]


def job_facts(kit: Path, user: str, job: str) -> JobFacts:
    """Ask the relay about a job, and which sites are connected to it."""
    with session(kit, user) as opened:
        meta = json.loads(json.dumps(opened.get_job_meta(job), default=str))
        connected = tuple(str(one.name) for one in opened.get_connected_client_list())
    tries = meta.get("schedule_history") or [""]
    return JobFacts(str(meta.get("status", "unknown")), str(tries[-1]), connected)


def job_state(kit: Path, user: str, job: str) -> str:
    """What the engine says of a job, such as RUNNING or FINISHED:COMPLETED."""
    return job_facts(kit, user, job).state
