"""Pools can be filled in the background by worker processes, and never repeat an item."""

import itertools
import threading

import numpy as np
import pytest

from vfsl.crypto import scheme
from vfsl.crypto.pool import Pool


class Numbers(Pool[int]):
    """Counts, and notes who computed what."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = itertools.count()
        self.here = 0

    def _fresh(self, count):
        self.here += count
        return [next(self.counter) for _ in range(count)]

    def _elsewhere(self, count):
        for start in range(0, count, 4):
            yield [next(self.counter) for _ in range(min(4, count - start))]


def test_items_from_the_background_are_used_first_and_once():
    pool = Numbers()
    pool.prepare_in_background(10).join()
    assert len(pool) == 10
    taken = pool.take(7) + pool.take(7)
    assert len(set(taken)) == 14
    assert pool.here == 4


def test_many_threads_never_share_an_item():
    pool = Numbers()
    taken, lock = [], threading.Lock()
    filling = pool.prepare_in_background(200)

    def work():
        for _ in range(30):
            items = pool.take(3)
            with lock:
                taken.extend(items)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in (*threads, filling):
        thread.join()
    assert len(taken) == len(set(taken)) == 540


@pytest.mark.slow
@pytest.mark.parametrize(("name", "security", "count"), [("bfv", 128, 24), ("paillier", 112, 128)])
def test_real_pools_fill_from_worker_processes(name, security, count):
    public, secret = scheme(name, security).generate()
    before = len(public.pool)
    public.prepare_in_background(count).join(timeout=60)
    assert len(public.pool) >= before + count
    values = np.arange(-20, 20)
    assert (secret.decrypt(public.encrypt(values)) == values).all()
    assert len(public.pool) < before + count + 64
