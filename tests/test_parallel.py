"""Worker processes: order, streaming, errors, and no nesting."""

import hashlib
import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vfsl import parallel
from vfsl.align import ecdh
from vfsl.align.ids import to_rows
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
    assert parallel.count_cores() == 3
    monkeypatch.setenv("VFSL_WORKERS", "many")
    with pytest.raises(ConfigError, match="VFSL_WORKERS"):
        parallel.count_cores()


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
    first, workers = parallel.call_apart(own_pid_and_workers, 6)
    second, _ = parallel.call_apart(own_pid_and_workers, 6)
    assert len({first, second, os.getpid()}) == 3
    assert first not in workers


@pytest.mark.parametrize(
    ("each", "processes"), [(parallel.call_each_apart, 4), (parallel.call_each, 1)]
)
def test_items_one_by_one_each_in_its_place(each, processes):
    """In a fresh process for each item, or in one that goes on."""
    found = dict(each(square_and_pid, [3, 1, 2, 5], 1))
    assert [found[place][0] for place in range(4)] == [9, 1, 4, 25]
    pids = {pid for _, pid in found.values()}
    assert len(pids) == processes
    assert os.getpid() not in pids


@pytest.mark.parametrize("each", [parallel.call_each_apart, parallel.call_each])
def test_what_was_not_begun_is_dropped_after_an_error(each):
    with pytest.raises(DataError, match="three"):
        list(each(fail_on_three, [1, 3, *range(4, 50)], 1))


def test_a_script_needs_no_main_guard():
    script = Path(__file__).parent / "unguarded_script.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n[1, 2, 3]\n", "")


# ---- by a backend of joblib ----------------------------------------------------------------------


@pytest.fixture
def threading_backend():
    parallel.use_backend("threading")
    yield
    parallel.use_backend(None)


@pytest.mark.usefixtures("threading_backend")
def test_a_backend_of_joblib_does_the_work():
    """Threads stand for a cluster: the pool's processes would not have this process's number."""
    results = list(parallel.spread(square_and_pid, range(50), workers=2))
    assert results == [(n * n, os.getpid()) for n in range(50)]
    assert list(parallel.spread(nested, [3, 4], workers=2)) == [True, True]
    with pytest.raises(DataError, match="three"):
        list(parallel.spread(fail_on_three, range(10), workers=2))


def thread_of(number):
    return number, threading.get_ident()


@pytest.mark.usefixtures("threading_backend")
def test_a_backend_is_used_by_all_threads_and_not_further_by_its_own():
    with ThreadPoolExecutor(1) as party:
        done = party.submit(lambda: list(parallel.spread(thread_of, range(8), workers=2))).result()
        its_own = party.submit(threading.get_ident).result()
    assert [number for number, _ in done] == list(range(8))
    assert its_own not in {ident for _, ident in done}
    assert all(parallel.spread(stays_in_its_thread, range(4), workers=2))


def stays_in_its_thread(_):
    return {ident for _, ident in parallel.spread(thread_of, range(3), workers=2)} == {
        threading.get_ident()
    }


@pytest.mark.usefixtures("threading_backend")
def test_a_backend_reads_a_long_iterable_only_as_far_as_needed():
    taken = []
    stream = parallel.spread(abs, (taken.append(n) or n for n in itertools.count()), workers=2)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    assert len(taken) <= 2 * max(os.cpu_count(), 2)
    stream.close()


def test_an_unknown_backend_is_one_sentence_and_changes_nothing():
    with pytest.raises(ConfigError, match=r"joblib can use\. Got 'abacus' instead"):
        parallel.use_backend("abacus")
    results = list(parallel.spread(square_and_pid, range(8), workers=2))
    assert os.getpid() not in {pid for _, pid in results}


def overlap(key, mine, theirs):
    client = ecdh.CurveClient(key.public)
    blinded, secret = client.blind(mine)
    values = client.values(mine, key.answer(blinded), secret)
    return {value.tobytes() for value in values} & {v.tobytes() for v in key.values(theirs)}


@pytest.mark.slow
@pytest.mark.network
def test_a_dask_cluster_finds_the_same_overlap(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs dask[distributed]")
    monkeypatch.setattr(ecdh, "_CHUNK", 64)
    key = ecdh.CurveKey.generate()
    digests = to_rows(b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(1000)), 32)
    here = overlap(key, digests[:700], digests[300:])
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        parallel.use_backend("dask", client=client)
        try:
            pids = {pid for _, pid in parallel.spread(square_and_pid, range(20), workers=2)}
            there = overlap(key, digests[:700], digests[300:])
            alone = list(parallel.spread(nested, [3, 4], workers=2))
            with pytest.raises(DataError, match="three"):
                list(parallel.spread(fail_on_three, range(10), workers=2))
        finally:
            parallel.use_backend(None)
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert alone == [True, True]
    assert there == here
    assert len(here) == 400
