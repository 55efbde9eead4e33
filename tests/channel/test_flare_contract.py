"""The public contract suite on NVFlare itself: sites on loopback, mutual TLS, sealed above it."""

import io
import os
import pickle
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfsl.channel import Attempt, Channel, Transcript, seal, wire
from vfsl.channel.flare import Station
from vfsl.channel.relayed import session_name
from vfsl.deploy import engine
from vfsl.deploy.local import LocalDeployment
from vfsl.deploy.provision import submitter_name
from vfsl.errors import PeerFailed, VfslError
from vfsl.testing.channels import CHANNEL_CHECKS

pytestmark = [
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("contract"),
]
SITES = ("A", "B", "C", "D", "E")  # E submits; it plays the key holder's part of nobody


class Talker(Station):
    """A party that runs roles which the test hands over in files, one after the other."""

    def work(self):
        folder, number = Path(os.environ["VFSL_PARTY_FOLDER"]) / "talk", 0
        folder.mkdir(exist_ok=True)
        while not (folder / "stop").exists():
            task = folder / f"{number}.task"
            if not task.exists():
                time.sleep(0.02)
                continue
            _write(folder / f"{number}.done", self._talk(number, pickle.loads(task.read_bytes())))
            number += 1

    def _talk(self, number, task):
        if task["role"] is None:
            return "result", None
        transport = self.open(session_name("talk", number), task["peers"])
        try:
            own = X25519PrivateKey.from_private_bytes(task["keys"][self.me])
            pins = {
                party: X25519PrivateKey.from_private_bytes(key).public_key()
                for party, key in task["keys"].items()
            }
            sealed = seal(transport, own, pins, Attempt("talk", number), 60)
            limit = task["max_bytes"] or wire.MAX_BYTES
            channel = Channel(sealed, Transcript(), timeout=task["timeout"], max_bytes=limit)
            result = task["role"](channel)
            transport.close()
        except BaseException as error:
            transport.abandon(error)
            return "error", _picklable(error)
        return "result", result


def _write(path, value):
    path.with_suffix(".part").write_bytes(pickle.dumps(value))
    path.with_suffix(".part").replace(path)


def _picklable(error):
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return VfslError(f"{type(error).__name__}: {error}")


class Runner:
    """Runs roles at the sites; the next free number names the session."""

    def __init__(self, deployment):
        self.deployment = deployment
        self.next = dict.fromkeys(SITES, 0)

    def __call__(self, roles, *, timeout=None, max_bytes=None):
        number = max(self.next.values())
        keys = {party: X25519PrivateKey.generate().private_bytes_raw() for party in roles}
        for site in SITES:
            role = roles.get(site)
            peers = tuple(party for party in roles if party != site)
            task = {"role": role, "peers": peers, "keys": keys}
            task |= {"timeout": timeout, "max_bytes": max_bytes}
            _write(self.deployment.site(site) / "talk" / f"{number}.task", task)
            self.next[site] = number + 1
        answers = {site: self._answer(site, number) for site in roles}
        errors = [value for kind, value in answers.values() if kind == "error"]
        if errors:
            causes = [error for error in errors if not isinstance(error, PeerFailed)]
            raise (causes or errors)[0]
        return {site: value for site, (_, value) in answers.items()}

    def _answer(self, site, number):
        path = self.deployment.site(site) / "talk" / f"{number}.done"
        deadline = time.monotonic() + 800
        while not path.exists():
            assert time.monotonic() < deadline, f"{site} did not answer"
            time.sleep(0.02)
        return pickle.loads(path.read_bytes())


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contract")
    deployment = LocalDeployment(
        folder / "sites",
        SITES[:-1],
        key_holder=SITES[-1],
        submitters=["D"],
        classes=["test_flare_contract.Talker"],
    )
    deployment.provision()
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    deployment.environment = {site: dict(here) for site in SITES}
    with deployment:
        deployment.start()
        job = engine.write_job(folder, "talk", SITES, "test_flare_contract.Talker", {}, 120.0)
        with (
            redirect_stdout(io.StringIO()),
            engine.session(deployment.site("D") / "submit", submitter_name("local", "D")) as opened,
        ):
            opened.submit_job(str(job))
        deadline = time.monotonic() + 120
        while not all((deployment.site(site) / "talk").is_dir() for site in SITES):
            assert time.monotonic() < deadline, "the sites did not begin"
            time.sleep(0.2)
        yield Runner(deployment)
        for site in SITES:
            (deployment.site(site) / "talk" / "stop").touch()


@pytest.mark.parametrize("check", CHANNEL_CHECKS)
def test_nvflare_keeps_the_contract(runner, check):
    CHANNEL_CHECKS[check](runner)
