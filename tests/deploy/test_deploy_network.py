"""A real deployment on loopback: relay, three parties and a key holder as processes, mutual TLS."""

import re
import shutil
import time

import pandas as pd
import pytest

pytest.importorskip("nvflare")

from vfsl.deploy import engine
from vfsl.deploy.local import LocalDeployment
from vfsl.deploy.provision import submitter_name
from vfsl.deploy.runs import RunFolder
from vfsl.deploy.submit import engine_state, fetch_results, submit_job, wait_for

# One group: all tests of this file share the processes of one deployment.
pytestmark = [pytest.mark.network, pytest.mark.timeout(400), pytest.mark.xdist_group("network")]

# The header of an envelope: name, version, kind, session, and a number below 2**32. The name alone
# would turn up by chance once in fifteen runs: some 280 MB of ciphertext pass the relay.
ENVELOPE = re.compile(rb"VE\x03\x00.{20}\x00{4}", re.DOTALL)

# Runs in the relay's processes only: writes down everything that passes through them.
SNIFFER = """
import os
try:
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell
except ImportError:
    CoreCell = None
if CoreCell is not None:
    original = CoreCell._process_received_msg
    def sniff(self, endpoint, connection, message):
        payload = message.payload
        with open(os.environ["SNIFFED"], "ab") as file:
            file.write(repr(message.headers).encode())
            if isinstance(payload, (bytes, bytearray, memoryview)):
                file.write(bytes(payload))
        return original(self, endpoint, connection, message)
    CoreCell._process_received_msg = sniff
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory, kit):
    folder = tmp_path_factory.mktemp("deployment")
    made = LocalDeployment(folder / "sites", ["A", "B", "C"], submitters=["C"])
    made.provision()
    for party, table in kit.tables().items():
        table.to_csv(made.site(party) / "table.csv", index=False)
    for party in "ABCK":
        made.write_party(party, kit.party_text(party))
    (folder / "job.toml").write_text(kit.job)
    (folder / "spy").mkdir()
    (folder / "spy" / "sitecustomize.py").write_text(SNIFFER)
    made.environment["relay"] = {
        "PYTHONPATH": str(folder / "spy"),
        "SNIFFED": str(folder / "sniffed"),
    }
    with made:
        made.start()
        yield made


def test_provisioning_leaves_each_key_with_its_site(deployment):
    keys = {
        path.relative_to(deployment.folder).parts[0]
        for path in deployment.folder.rglob("*")
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes()
    }
    assert keys == {"authority", "relay", "A", "B", "C", "K"}
    for site in deployment.sites:
        found = [
            path
            for path in deployment.site(site).rglob("*.key")
            if path.is_file() and path.stat().st_mode & 0o077
        ]
        assert found == [], "a private key can be read by others"
    left = {path.name for path in (deployment.folder / "authority").rglob("*") if path.is_file()}
    assert {name for name in left if name.endswith(".key")} == {"rootCA.key"}


def run_job(deployment, text, folder, secure):
    """Run a job; the folders with the results of all, and what passed through the relay."""
    sniffed = deployment.folder.parent / "sniffed"
    sniffed.write_bytes(b"")
    job = folder / "job.toml"
    job.write_text(text)
    run = submit_job(deployment.site("C"), job, secure=secure)
    status = wait_for(deployment.site("C"), run, 250)
    assert status.state == "finished", status
    for party in "ABK":
        assert wait_for(deployment.site(party), run, 20).state == "finished"
    fetched = {party: folder / party / "results" for party in "ABCK"}
    for party, out in fetched.items():
        out.parent.mkdir()
        shutil.copy(RunFolder(deployment.site(party), run).private_seed, out.parent)
        assert "record.json" in fetch_results(deployment.site(party), run, out)
    return run, fetched, sniffed.read_bytes()


def assert_nothing_seen(seen, secure):
    """Nothing that was planted, no name of a message and no setting is in what was forwarded."""
    for marker in (b"MARKER", b"logistic", b"vfpu-m", b"labelled rows", b"public key"):
        assert marker not in seen
    # Without NVFlare's own encryption our envelopes are in plain sight, and sealed inside.
    assert bool(ENVELOPE.search(seen)) is not secure
    assert len(seen) > 100_000


def assert_logs_have_no_data(deployment):
    """Neither the logs nor what the relay stores hold anything that was planted."""
    places = [site / "engine.log" for site in map(deployment.site, deployment.sites)]
    for name in deployment.sites:
        places += [path for path in (deployment.site(name) / "kit").rglob("*") if path.is_file()]
    places += [path for path in deployment.site("relay").rglob("*") if path.is_file()]
    assert len(places) > 20
    assert [path for path in places if b"MARKER" in path.read_bytes()] == []


def test_align_vfpu_and_completion_are_those_in_memory(deployment, kit, tmp_path):
    text = kit.align + kit.pu + kit.complete
    run, fetched, seen = run_job(deployment, text, tmp_path, secure=True)
    tables = {party: pd.read_csv(deployment.site(party) / "table.csv") for party in kit.tables()}
    kit.assert_same_positives(tables, fetched.__getitem__, tmp_path / "plans", number=2)
    done = kit.assert_same_completion(
        tables, fetched.__getitem__, tmp_path / "the same plans", 3, {"rounds": 3}
    )
    assert [(route.column, route.route) for route in done.routes] == [
        ("MARKER-b1", "high"),
        ("MARKER-b2", "high"),
    ]
    assert_nothing_seen(seen, secure=True)
    deadline = time.monotonic() + 30
    while "FINISHED" not in (state := engine_state(deployment.site("C"), run)):
        assert time.monotonic() < deadline, state
        time.sleep(1)
    assert state == "FINISHED:COMPLETED"


def test_our_sealing_is_enough_without_that_of_the_engine(deployment, kit, tmp_path):
    _, fetched, seen = run_job(deployment, kit.job, tmp_path, secure=False)
    tables = {party: pd.read_csv(deployment.site(party) / "table.csv") for party in kit.tables()}
    kit.assert_same_as_in_memory(tables, fetched.__getitem__, tmp_path / "plans")
    assert_nothing_seen(seen, secure=False)
    assert_logs_have_no_data(deployment)


@pytest.mark.slow
def test_a_strict_party_refuses_before_anything_is_sent(deployment, kit):
    allowed = kit.party_text("B")
    deployment.write_party("B", allowed.replace('"training scores", ', ""))
    try:
        run = submit_job(deployment.site("C"), deployment.folder.parent / "job.toml")
        status = wait_for(deployment.site("C"), run, 100)
    finally:
        deployment.write_party("B", allowed)
    assert status.state == "refused"
    assert "'B' has not allowed the disclosure 'training scores'" in status.sentence
    assert not RunFolder(deployment.site("C"), run).results.exists()


@pytest.mark.slow
@pytest.mark.parametrize("trick", ["code in the job", "another class"])
def test_a_job_that_brings_code_or_names_another_class_is_refused(deployment, tmp_path, trick):
    """Even a submitter with a valid certificate cannot make a site run what is not installed."""
    proof = tmp_path / "proof"
    name = "evil.Evil" if trick == "code in the job" else "pathlib.Path"
    job = engine.write_job(tmp_path, "evil", ["A", "B", "C", "K"], name, {}, 30.0)
    if trick == "code in the job":
        (job / "app" / "custom").mkdir()
        code = f"open({str(proof)!r}, 'w').write('ran')\nclass Evil: pass\n"
        (job / "app" / "custom" / "evil.py").write_text(code)
    user = submitter_name(deployment.project.name, "C")
    kit = deployment.site("C") / "submit"
    with engine.session(kit, user) as opened:
        submitted = str(opened.submit_job(str(job)))
    deadline = time.monotonic() + 90
    while "FINISHED" not in (state := engine.job_state(kit, user, submitted)):
        assert time.monotonic() < deadline, state
        time.sleep(1)
    assert state != "FINISHED:COMPLETED"
    logs = "".join((deployment.site(p) / "engine.log").read_text() for p in deployment.sites)
    reason = "BYOC not permitted" if trick == "code in the job" else "is not in allow_list"
    assert reason in logs
    assert not proof.exists()
