"""Pools refill themselves in the background once that is worth it, and never repeat an item."""

import itertools
import threading
import time

import numpy as np
import pytest

from vfsl.crypto import scheme
from vfsl.crypto.pool import Pool
from vfsl.crypto.work import using_workers


class Numbers(Pool[int]):
    """Counts, and notes who computed what."""

    def __init__(self, seconds: float, most: int = 1000) -> None:
        super().__init__(seconds, most)
        self.counter = itertools.count()
        self.here = 0
        self.elsewhere = 0

    def _fresh(self, count):
        self.here += count
        return [next(self.counter) for _ in range(count)]

    def _elsewhere(self, count):
        for start in range(0, count, 4):
            self.elsewhere += min(4, count - start)
            yield [next(self.counter) for _ in range(min(4, count - start))]


def settle(pool):
    """Wait until no refill is under way."""
    deadline = time.monotonic() + 10
    while pool._filling.locked() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not pool._filling.locked()


def test_cheap_use_never_starts_workers():
    pool = Numbers(seconds=1e-4)
    for _ in range(20):
        pool.take(10)
    settle(pool)
    assert (pool.here, pool.elsewhere) == (200, 0)


def test_heavy_use_refills_in_the_background():
    pool = Numbers(seconds=0.2)
    with using_workers(2):
        first = pool.take(10)  # two seconds of work: worth workers from now on
        settle(pool)
        assert len(pool) == 20
        second = pool.take(15)
        settle(pool)
    assert pool.here == 10
    assert len(set(first + second)) == 25


def test_one_worker_means_no_background():
    pool = Numbers(seconds=10.0)
    with using_workers(1):
        pool.take(10)
        settle(pool)
    assert pool.elsewhere == 0


def test_a_pool_keeps_no_more_than_it_may():
    pool = Numbers(seconds=10.0, most=12)
    with using_workers(2):
        pool.take(50)
        settle(pool)
    assert len(pool) == 12


def test_many_threads_never_share_an_item():
    pool = Numbers(seconds=0.05)
    taken, lock = [], threading.Lock()

    def work():
        with using_workers(2):
            for _ in range(30):
                items = pool.take(3)
                with lock:
                    taken.extend(items)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settle(pool)
    assert len(taken) == len(set(taken)) == 540


def test_missing_workers_are_no_failure():
    class Alone(Numbers):
        def _elsewhere(self, count):
            raise RuntimeError("no workers")

    pool = Alone(seconds=10.0)
    with using_workers(2):
        assert len(pool.take(5)) == 5
        settle(pool)
        assert len(pool.take(5)) == 5


@pytest.mark.slow
@pytest.mark.parametrize(("name", "security", "count"), [("bfv", 128, 250), ("paillier", 112, 900)])
def test_real_pools_refill_from_worker_processes(name, security, count):
    public, secret = scheme(name, security).generate()
    public.pool.take(count)
    settle_at = time.monotonic() + 60
    while len(public.pool) < 50 and time.monotonic() < settle_at:
        time.sleep(0.05)
    assert len(public.pool) >= 50
    settle(public.pool)
    values = np.arange(-20, 20)
    assert (secret.decrypt(public.encrypt(values)) == values).all()
