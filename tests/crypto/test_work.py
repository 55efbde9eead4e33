"""Pools can be filled in the background by worker processes, and never repeat an item."""

import itertools
import threading

import numpy as np
import pytest

from vfsl.crypto import make_scheme
from vfsl.crypto.work import Pool


class Numbers(Pool[int]):
    """Counts, and notes who computed what."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = itertools.count()
        self.here = 0

    def _make(self, count):
        self.here += count
        return [next(self.counter) for _ in range(count)]

    def _make_elsewhere(self, count):
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
@pytest.mark.parametrize(
    ("name", "use", "count", "pool"),
    [
        ("bfv", "inner", 24, lambda public: public.packed.pool),
        ("bfv", "any", 8, lambda public: public.slots.pool),
        ("paillier", "any", 128, lambda public: public.pool),
    ],
)
def test_real_pools_fill_from_worker_processes(name, use, count, pool):
    public, secret = make_scheme(name, 112).generate()
    before = len(pool(public))
    public.prepare_in_background(count, use=use).join(timeout=120)
    filled = len(pool(public))
    assert filled >= before + count
    values = np.arange(-20, 20)
    assert (secret.decrypt(public.encrypt(values, use=use)) == values).all()
    assert len(pool(public)) < filled
