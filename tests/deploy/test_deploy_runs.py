"""A party's own folder of a run: attempts, states, checkpoints, results."""

import os
import subprocess
import sys
import time

import pytest

from vfsl.deploy import submit
from vfsl.deploy.engine import JobFacts
from vfsl.deploy.job import job_hash, load_shared_job, sealed_text
from vfsl.deploy.runs import Refused, RunFolder, all_runs, identify_process
from vfsl.deploy.submit import fetch_results, resume_run, status_lines, wait_for
from vfsl.errors import ConfigError, PeerFailed, ProtocolError, StoreError, TimedOut
from vfsl.record import StepRecord
from vfsl.store import read_json, write_json


@pytest.fixture
def kept(tmp_path):
    made = RunFolder(tmp_path, "run-1")
    made.begin(1, "hash")
    return made


def test_attempts_only_grow(tmp_path, kept):
    for number in (0, 1):
        with pytest.raises(ProtocolError, match="attempt 1 was seen here"):
            RunFolder(tmp_path, "run-1").begin(number, "hash")
    RunFolder(tmp_path, "run-1").begin(2, "hash")
    assert kept.last_attempt() == 2


@pytest.mark.parametrize("name", ["", "../x", "a b", "a/b"])
def test_names_of_runs_are_names_of_folders(tmp_path, name):
    with pytest.raises(ConfigError, match="name of a run"):
        RunFolder(tmp_path, name)


def test_states(tmp_path, kept):
    assert kept.status().state == "running"
    kept.note_failure("B", "it does not answer")
    assert (kept.status().state, kept.status().party) == ("failed", "B")
    kept.fail(PeerFailed("Party 'B' failed (x); 'A' stops.", "B"))
    kept.note_failure("C", "an echo that comes later")
    assert kept.status().party == "B"
    assert "PeerFailed: Party 'B'" in kept.status().sentence
    kept.fail(Refused("not allowed"))
    assert kept.status().state == "refused"
    (line,) = status_lines(tmp_path)
    assert line == "run-1 attempt 1: refused; Refused: not allowed"
    assert [one.name for one in all_runs(tmp_path)] == ["run-1"]
    write_json(kept.path / "status.json", {"run": 1})
    with pytest.raises(StoreError, match="damaged"):
        kept.status()


def test_finished_steps_are_those_without_a_gap_and_of_this_job(kept):
    record = StepRecord("align", {}, 1.0)
    for number in (1, 2, 4):
        kept.keep("hash", number, [record], {"plan": "p"})
    assert kept.finished_steps("hash") == 2
    assert kept.records("hash", 2) == [record]
    assert kept.standing("hash", 2) == {"plan": "p"}
    assert (kept.records("hash", 0), kept.standing("hash", 0)) == ([], {})
    with pytest.raises(StoreError, match="another job"):
        kept.finished_steps("another")
    kept.forget_from("hash", 2, 4)
    assert kept.finished_steps("hash") == 1


def test_results_appear_as_a_whole(tmp_path, kept):
    (kept.state / "work").mkdir(parents=True)
    (kept.state / "work" / "a.csv").write_text("1")
    kept.prepare()
    assert not kept.results.exists()
    with pytest.raises(ConfigError, match="no results here"):
        fetch_results(tmp_path, "run-1", tmp_path / "out")
    kept.note("finished", "The run has ended well.")  # a crash here: fetch does what is left
    assert fetch_results(tmp_path, "run-1", tmp_path / "out") == ["a.csv"]
    assert not kept.state.exists()
    kept.publish()
    assert (kept.results / "a.csv").read_text() == "1"
    with pytest.raises(ConfigError, match="not empty"):
        fetch_results(tmp_path, "run-1", tmp_path / "out")


def test_waiting_ends_with_the_run(tmp_path, kept):
    with pytest.raises(TimedOut, match="run-1"):
        wait_for(tmp_path, "run-1", 0.1)
    kept.note("finished", "x")
    seen = []
    assert wait_for(tmp_path, "run-1", 5, seen.append).state == "finished"
    assert len(seen) == 1


def test_only_an_unfinished_run_of_this_party_can_go_on(tmp_path, kept):
    with pytest.raises(ConfigError, match="was not submitted from"):
        resume_run(tmp_path, "run-1")
    write_json(kept.path / "job.json", {"text": "", "hash": "", "attempt": 1})
    kept.note("finished", "x")
    with pytest.raises(ConfigError, match="has ended well"):
        resume_run(tmp_path, "run-1")


def test_a_run_that_is_still_going_cannot_be_resumed(tmp_path, kept):
    write_json(kept.path / "job.json", {"text": "", "hash": "", "attempt": 1})
    before = (kept.path / "status.json").read_bytes()
    with pytest.raises(ConfigError, match="still going"):
        resume_run(tmp_path, "run-1")
    assert (kept.path / "status.json").read_bytes() == before


def test_a_run_whose_process_was_killed_is_interrupted(tmp_path, kept):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        content = read_json(kept.path / "status.json")
        written = content | {"process": identify_process(process.pid)}
        write_json(kept.path / "status.json", written)
        assert kept.status().state == "running"
    finally:
        process.kill()  # it is a zombie until it is waited for
        wait_until_gone(process.pid)
        assert kept.status().state == "interrupted"
        process.communicate()
    assert "--resume run-1" in wait_for(tmp_path, "run-1", 5).sentence
    # Another process that has got the same number is not this run's.
    write_json(kept.path / "status.json", content | {"process": [os.getpid(), 1.0]})
    assert kept.status().state == "interrupted"


def wait_until_gone(number):
    deadline = time.monotonic() + 10
    while identify_process(number) is not None and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_that_has_not_begun_says_whom_it_waits_for(world, monkeypatch, ended):
    text = sealed_text(load_shared_job(world.folder / "job.toml"))
    content = {"text": text, "hash": job_hash(text), "attempt": 1, "engine job": "x"}
    kept = world.kept("C")
    write_json(kept.path / "job.json", content)
    kept.note("submitted", "The run waits for all parties to take part.")
    state = "FINISHED:CAN_NOT_SCHEDULE" if ended else "SUBMITTED"
    facts = JobFacts(state, "12:00:00: missing required site B", ("A", "C", "K"))
    monkeypatch.setattr(submit, "_engine_facts", lambda folder, run: facts)
    monkeypatch.setattr(submit, "_ASK_EVERY", 0.0)
    (line,) = status_lines(world.site("C"), "run-1")
    assert "Not connected to the relay: 'B'" in line
    if not ended:
        assert kept.status().state == "submitted"
        with pytest.raises(TimedOut, match="Not connected to the relay: 'B'"):
            wait_for(world.site("C"), "run-1", 0.7)
        return
    assert "missing required site B" in line
    assert "--resume run-1" in line
    assert (kept.status().state, kept.status().party) == ("failed", "B")
    assert wait_for(world.site("C"), "run-1", 5).state == "failed"
