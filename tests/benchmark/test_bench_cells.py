"""Cells of experiments: kept, in order, several at a time, and not computed twice."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import cells as module
from benchmarks.cells import Cells


@dataclass(frozen=True)
class Job:
    folder: str
    number: int


def work(job: Job) -> dict[str, int]:
    """Squares, and leaves a file behind each time that it is called."""
    if job.number < 0:
        raise ValueError("negative")
    count = len(list(Path(job.folder).iterdir()))
    Path(job.folder, f"{job.number}-{count}-{os.getpid()}").touch()
    return {"square": job.number**2, "threads": int(os.environ["OMP_NUM_THREADS"])}


@pytest.fixture
def calls(tmp_path):
    folder = tmp_path / "calls"
    folder.mkdir()
    return folder


def made(tmp_path, said=None, **changes):
    say = (lambda text: None) if said is None else said.append
    return Cells(**{"experiment": "x", "edition": 1, "say": say, "folder": tmp_path} | changes)


def test_results_keep_the_order_of_the_cases(tmp_path, calls):
    cases = {str(n): Job(str(calls), n) for n in (3, 1, 2)}
    with module.workers(2):
        found = made(tmp_path).all(work, cases)
    assert [one["square"] for one in found] == [9, 1, 4]
    assert {one["threads"] for one in found} == {1}
    assert len({path.name.split("-")[2] for path in calls.iterdir()}) == 3  # a process each


def test_a_finished_cell_is_not_computed_again(tmp_path, calls):
    said: list[str] = []
    case = Job(str(calls), 5)
    assert made(tmp_path).get("five", work, case) == made(tmp_path, said).get("five", work, case)
    assert said == []
    assert len(list(calls.iterdir())) == 1
    made(tmp_path, edition=2).get("five", work, case)
    made(tmp_path, keep=False).get("five", work, case)
    assert len(list(calls.iterdir())) == 3


def test_what_was_finished_before_a_failure_is_kept(tmp_path, calls):
    cases = {str(n): Job(str(calls), n) for n in (1, -1)}
    with pytest.raises(ValueError, match="negative"):
        made(tmp_path).all(work, cases)
    made(tmp_path).get("1", work, cases["1"])
    assert len(list(calls.iterdir())) == 1


def test_variables_are_put_back(tmp_path, calls, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    made(tmp_path).get("1", work, Job(str(calls), 1))
    assert "OMP_NUM_THREADS" not in os.environ
    assert os.environ["MKL_NUM_THREADS"] == "7"


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("VFSL_BENCH_CACHE", str(tmp_path))
    path = Cells("x", 1, print)._path(work, Job("f", 1))
    assert path.parent == tmp_path / "x"
