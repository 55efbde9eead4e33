"""Processes of a real deployment killed in the middle of a run: who is named, and going on."""

import time

import pandas as pd
import pytest

pytest.importorskip("nvflare")

from vfsl.deploy.local import LocalDeployment
from vfsl.deploy.runs import RunFolder
from vfsl.deploy.submit import resume_run, submit_job, wait_for

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.timeout(300)]

# Which process of which site is killed, and whom the others name.
VICTIMS = {
    "a party's run": ("B", 1, "B"),
    "a party's site": ("B", 0, "B"),
    "the submitter's run": ("C", 1, "C"),
    "the key holder's run": ("K", 1, "K"),
    "the relay's run": ("relay", 1, "the relay"),
    "the relay": ("relay", 0, "the relay"),
}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory, kit):
    folder = tmp_path_factory.mktemp("faults")
    made = LocalDeployment(folder / "sites", ["A", "B", "C"], submitters=["C"])
    made.provision()
    for party, table in kit.tables().items():
        table.to_csv(made.site(party) / "table.csv", index=False)
    for party in "ABCK":
        made.write_party(party, kit.party_text(party))
    (folder / "job.toml").write_text(kit.job.replace("refine = 1", "refine = 1\nmax_rounds = 200"))
    with made:
        made.start()
        yield made


def wait_until(holds, seconds):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_killed_process_is_named_and_the_run_goes_on(deployment, kit, tmp_path, victim):
    site, place, named = VICTIMS[victim]
    others = [party for party in "ABCK" if party != site]
    run = submit_job(deployment.site("C"), deployment.folder.parent / "job.toml")
    leader = RunFolder(deployment.site("C"), run)
    wait_until(lambda: leader.status().finished_steps == 1, 90)
    deployment.kill(deployment.processes(site)[place])

    def all_know():
        deployment.reap()
        return all(
            RunFolder(deployment.site(party), run).status().state == "failed" for party in others
        )

    wait_until(all_know, 15)
    for party in others:
        kept = RunFolder(deployment.site(party), run)
        assert kept.status().party == named
        assert not kept.results.exists()
    assert half_written(deployment, run) == []
    if place == 0:
        deployment.restart(site)
    plan = (leader.state / "plan" / "rows-C.npz").read_bytes()
    wait_until(lambda: all(len(deployment.processes(p)) == 1 for p in deployment.sites), 60)
    again = resume_run(deployment.site("C"), run)
    assert again == run
    assert wait_for(deployment.site("C"), run, 90).state == "finished"
    for party in "ABK":
        assert wait_for(deployment.site(party), run, 20).state == "finished"
        assert RunFolder(deployment.site(party), run).status().attempt == 2
    assert (leader.results / "plan" / "rows-C.npz").read_bytes() == plan
    tables = {party: pd.read_csv(deployment.site(party) / "table.csv") for party in "BC"}

    def results(party):
        return RunFolder(deployment.site(party), run).results

    kit.assert_same_as_in_memory(tables, results, tmp_path / "plans", max_rounds=200)


def half_written(deployment, run):
    """Files of a run that are there under a temporary name only."""
    return [
        path
        for party in "ABCK"
        for path in RunFolder(deployment.site(party), run).path.rglob(".*")
        if path.is_file()
        and path.name.split(".")[1] not in ("", "results")
        and not path.with_name(path.name[1:].rsplit(".", 1)[0]).exists()
    ]


def test_a_certificate_of_another_authority_is_refused(deployment, tmp_path):
    """A site with a kit of another project cannot take B's place at this relay."""
    other = LocalDeployment(tmp_path / "sites", ["A", "B"], submitters=["A"])
    other.project = other.project.model_copy(update={"relay": deployment.project.relay})
    other.provision()
    with other:
        other.restart("B")
        log = other.site("B") / "engine.log"
        wait_until(lambda: log.exists() and "handshake" in log.read_text().lower(), 60)
        assert "Successfully registered" not in log.read_text()
