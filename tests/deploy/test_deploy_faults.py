"""Processes of a real deployment killed in the middle of a run: who is named, and going on."""

import time

import pandas as pd
import pytest

pytest.importorskip("nvflare")

from vfsl.deploy.local import LocalDeployment
from vfsl.deploy.runs import RunFolder
from vfsl.deploy.submit import resume_run, submit_job, wait_for
from vfsl.estimators import XGB

pytestmark = [
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("faults"),
]

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
    tables = kit.tables()
    # Categories are completed after the numbers, so there is a time between them.
    above = tables["B"]["MARKER-b1"] + tables["B"]["MARKER-b2"] > 0.5
    tables["B"]["MARKER-b3"] = above.map({True: "MARKER-UP", False: "MARKER-DOWN"})
    for party, table in tables.items():
        table.to_csv(made.site(party) / "table.csv", index=False)
    for party in "ABCK":
        text = kit.party_text(party).replace('"MARKER-b2"', '"MARKER-b2", "MARKER-b3"')
        made.write_party(party, text)
    with made:
        made.start()
        yield made


def wait_until(holds, seconds, describe=lambda: ""):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not happen in time: {describe()}"
        time.sleep(0.05)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_killed_process_is_named_and_the_run_goes_on(deployment, kit, tmp_path, victim):
    site, place, named = VICTIMS[victim]
    text = kit.job.replace("refine = 1", "refine = 1\nmax_rounds = 200\ntolerance = 0.0")
    run = start_run(deployment, text, tmp_path)
    leader = RunFolder(deployment.site("C"), run)
    wait_until(lambda: leader.status().finished_steps == 1, 200)
    kill(deployment, run, site, place, named)
    if place == 0:
        deployment.restart(site)
    plan = (leader.state / "standing-1" / "rows-C.npz").read_bytes()
    results = go_on(deployment, run)
    assert (leader.results / "plan" / "rows-C.npz").read_bytes() == plan
    kit.assert_same_as_in_memory(
        tables_of(deployment), results, tmp_path / "plans", max_rounds=200, tolerance=0.0
    )


# A job's second step, whose run is killed, and what its folder has when it is in the middle.
INSIDE = {
    "a tree model": ("B", "C", "step-2/xgb/**/round-1.json"),
    "vfpu": ("K", "C", "step-2/vfpu/task-0.json"),
    "a completion": ("C", "B", "step-2/*cross-fit*/**/group-0.json"),
}
TREES = """
[[steps]]
do = "train"
model = "xgb"
label = ["C", "y"]
n_estimators = 6
max_depth = 2
subsample = 0.7
"""


@pytest.mark.parametrize("step", INSIDE)
def test_a_run_that_is_killed_inside_a_step_ends_as_if_it_had_not(deployment, kit, tmp_path, step):
    victim, watched, sign = INSIDE[step]
    # Few rows a batch, so that there is a second one to be killed in.
    pu = kit.pu + "outer = 3\npromote = 0.05\n"
    text = {"a tree model": TREES, "vfpu": pu, "a completion": kit.complete}
    run = start_run(deployment, kit.align + text[step], tmp_path)
    state = RunFolder(deployment.site(watched), run).state
    wait_until(lambda: any(state.glob(sign)), 200)
    kill(deployment, run, victim, 1, victim)
    assert any(state.glob(sign))
    results = go_on(deployment, run)
    tables, plans = tables_of(deployment), tmp_path / "plans"
    if step == "vfpu":
        kit.assert_same_positives(tables, results, plans, number=2, outer=3, promote=0.05)
    elif step == "a completion":
        kit.assert_same_completion(tables, results, plans, 2, {"rounds": 3})
    else:
        model = XGB(n_estimators=6, max_depth=2, subsample=0.7)
        fed, model = kit.fitted_in_memory(tables, results, plans, model)
        came = pd.read_csv(results("C") / "predictions-2.csv")["probability"]
        assert list(came) == model.predict_proba(fed)[:, 1].tolist()


def start_run(deployment, text, folder):
    (folder / "job.toml").write_text(text)
    return submit_job(deployment.site("C"), folder / "job.toml")


def kill(deployment, run, site, place, named):
    """Kill a process of a site; the others have to name it in time, and nothing is half written."""
    deployment.kill(deployment.processes(site)[place])
    others = [RunFolder(deployment.site(party), run) for party in "ABCK" if party != site]

    def all_know():
        deployment.reap()
        return all(kept.status().state == "failed" for kept in others)

    wait_until(all_know, 15, lambda: [kept.status() for kept in others])
    assert [kept.status().party for kept in others] == [named] * len(others)
    assert not any(kept.results.exists() for kept in others)
    assert half_written(deployment, run) == []


def go_on(deployment, run):
    """Resume when all processes of the first attempt have gone; where results are by party."""
    wait_until(lambda: all(len(deployment.processes(p)) == 1 for p in deployment.sites), 60)
    assert resume_run(deployment.site("C"), run) == run
    for party in "CABK":
        assert wait_for(deployment.site(party), run, 400).state == "finished"
        assert RunFolder(deployment.site(party), run).status().attempt == 2
    kept = [RunFolder(deployment.site(party), run) for party in "ABCK"]
    wait_until(lambda: all(one.results.exists() for one in kept), 30)  # they come after the word
    return lambda party: RunFolder(deployment.site(party), run).results


def tables_of(deployment):
    return {party: pd.read_csv(deployment.site(party) / "table.csv") for party in "ABC"}


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


def test_a_peer_that_was_not_pinned_is_refused_and_named(deployment, kit, tmp_path):
    """B has pinned another key than C's: no message of a step is sent, and nothing is logged."""
    own = deployment.site("B") / "party.toml"
    kept = own.read_text()
    pins = deployment.pins()
    own.write_text(kept.replace(pins["C"], pins["A"]))
    try:
        run = start_run(deployment, kit.job, tmp_path)
        statuses = {p: wait_for(deployment.site(p), run, 200) for p in "CB"}
    finally:
        own.write_text(kept)
    assert {status.state for status in statuses.values()} == {"failed"}
    words = " ".join(status.sentence for status in statuses.values())
    assert "handshake" in words
    # Whose handshake fails names the other; a note without a handshake could be the relay's.
    either = {"B", "C", "the relay or B", "the relay or C"}
    assert {status.party for status in statuses.values()} <= either
    for party in "ABCK":
        assert not RunFolder(deployment.site(party), run).state.exists()
        assert "MARKER" not in (deployment.site(party) / "engine.log").read_text()


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
