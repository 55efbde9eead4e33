"""Worker processes: order, streaming, errors, and no nesting."""

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vfsl import parallel
from vfsl.errors import ConfigError, DataError


def square_and_pid(number):
    return number * number, os.getpid()


def nested(count):
    return {pid for _, pid in parallel.spread(square_and_pid, range(count), workers=4)} == {
        os.getpid()
    }


def fail_on_three(number):
    if number == 3:
        raise DataError("three")
    return number


def test_results_keep_their_order_and_come_from_other_processes():
    results = list(parallel.spread(square_and_pid, range(50), workers=2))
    assert [value for value, _ in results] == [n * n for n in range(50)]
    assert os.getpid() not in {pid for _, pid in results}


def test_one_worker_means_this_process():
    assert {pid for _, pid in parallel.spread(square_and_pid, range(3), workers=1)} == {os.getpid()}


def test_workers_do_not_start_workers():
    assert list(parallel.spread(nested, [3, 4], workers=2)) == [True, True]


def test_a_long_iterable_is_read_only_as_far_as_needed():
    taken = []

    def endless():
        number = 0
        while True:
            taken.append(number)
            yield number
            number += 1

    stream = parallel.spread(square_and_pid, endless(), workers=2)
    assert [next(stream)[0] for _ in range(3)] == [0, 1, 4]
    assert len(taken) <= 3 + 2 * 2 + 1
    stream.close()


def test_an_error_in_a_worker_arrives_here():
    with pytest.raises(DataError, match="three"):
        list(parallel.spread(fail_on_three, range(10), workers=2))


def test_number_of_workers_from_the_environment(monkeypatch):
    monkeypatch.setenv("VFSL_WORKERS", "3")
    assert parallel.cores() == 3
    monkeypatch.setenv("VFSL_WORKERS", "many")
    with pytest.raises(ConfigError, match="VFSL_WORKERS"):
        parallel.cores()


def use_workers(sender, stay):
    pids = {pid for _, pid in parallel.spread(square_and_pid, range(8), workers=2)}
    sender.send(pids)
    if stay:
        time.sleep(600)


@pytest.mark.parametrize("killed", [False, True])
def test_workers_end_with_the_process_that_started_them(killed):
    """A spawned process that used workers ends by itself; a killed one leaves none behind."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=use_workers, args=(sender, killed))
    process.start()
    pids = receiver.recv()
    if killed:
        process.kill()
    process.join(timeout=30)
    assert process.exitcode == (-9 if killed else 0)
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def alive(pid):
    """Whether a process runs; a zombie that nobody has collected does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def own_pid_and_workers(count):
    return os.getpid(), {pid for _, pid in parallel.spread(square_and_pid, range(count), workers=2)}


def test_work_apart_is_done_by_a_fresh_process_that_may_use_workers():
    first, workers = parallel.apart(own_pid_and_workers, 6)
    second, _ = parallel.apart(own_pid_and_workers, 6)
    assert len({first, second, os.getpid()}) == 3
    assert first not in workers


@pytest.mark.parametrize(
    ("each", "processes"), [(parallel.apart_each, 4), (parallel.lasting_each, 1)]
)
def test_items_one_by_one_each_in_its_place(each, processes):
    """In a fresh process for each item, or in one that goes on."""
    found = dict(each(square_and_pid, [3, 1, 2, 5], 1))
    assert [found[place][0] for place in range(4)] == [9, 1, 4, 25]
    pids = {pid for _, pid in found.values()}
    assert len(pids) == processes
    assert os.getpid() not in pids


@pytest.mark.parametrize("each", [parallel.apart_each, parallel.lasting_each])
def test_what_was_not_begun_is_dropped_after_an_error(each):
    with pytest.raises(DataError, match="three"):
        list(each(fail_on_three, [1, 3, *range(4, 50)], 1))


def test_a_script_needs_no_main_guard():
    script = Path(__file__).parent / "unguarded_script.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n[1, 2, 3]\n", "")
