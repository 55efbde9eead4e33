"""Worker processes or a cluster for heavy local work, and threads of PyTorch.

Processes are always spawned, since forked SEAL and BLAS state hangs. The pool is our own. joblib's
loky pool is one for the whole process: parties in threads share it, and an error in one thread's
work shuts it down for the others. It also reads items ahead of whoever takes the results, and its
workers outlive a parent that is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess, parent_process
from multiprocessing.util import Finalize
from typing import Any, Generic, TypeVar

from joblib import Parallel, delayed, effective_n_jobs, parallel_config

from vfsl.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")

_lock = threading.Lock()
_pool: ProcessPoolExecutor | None = None
_pool_size = 0
_inside_worker = False
_inside_task: ContextVar[bool] = ContextVar("vfsl.parallel inside task", default=False)
_backend: dict[str, Any] | None = None
_torch_users = 0
_torch_before = 1


def count_cores() -> int:
    """How many worker processes to use: ``VFSL_WORKERS``, else the cores this process may use."""
    asked = os.environ.get("VFSL_WORKERS")
    if asked is None:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    if not asked.isdigit() or int(asked) < 1:
        raise ConfigError(
            f"VFSL_WORKERS must be a whole number of at least 1. Got {asked!r} instead."
        )
    return int(asked)


def spread(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int | None = None,
) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order, computed by worker processes.

    At most two items per worker are under way, so a long iterable streams in constant memory.
    With one worker, or inside a worker, everything is computed here. ``function`` and the items
    must pickle; they never leave this machine unless `use_backend` has named a cluster.
    """
    count = count_cores() if workers is None else workers
    if count <= 1 or _inside_worker or _inside_task.get():
        yield from map(function, items)
        return
    if _backend is not None:
        yield from _spread_by_joblib(function, items, _backend)
        return
    pool = _get_pool(count)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def use_backend(name: str | None, **settings: Any) -> None:
    """Do heavy local work by a joblib backend from now on, in all threads of this process.

    The backend is given keys and ids, so a cluster must be the party's own, and encrypted.

    Parameters
    ----------
    name : str or None
        A backend that joblib knows, such as "dask", or a registered one. None returns to worker
        processes of this machine.
    **settings
        Settings of that backend, such as ``client`` for "dask".
    """
    global _backend
    chosen = None if name is None else {"backend": name, **settings}
    if chosen is not None:
        try:
            with parallel_config(**chosen):
                effective_n_jobs(-1)
        except (ValueError, TypeError, ImportError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"The backend must be one that joblib can use. Got {name!r} instead: {reason}"
            ) from None
    _backend = chosen


def _spread_by_joblib(
    function: Callable[[Item], Result], items: Iterable[Item], backend: dict[str, Any]
) -> Iterator[Result]:
    """By windows of two items per worker: joblib alone would read all items ahead."""
    task, rest = delayed(_Call(function)), iter(items)
    while True:
        # The setting belongs to this thread, so it must end before a result is handed out.
        with parallel_config(**backend):
            window = list(islice(rest, 2 * effective_n_jobs(-1)))
            # No arrays in files: they may be secret.
            work = Parallel(n_jobs=-1, batch_size=1, max_nbytes=None)
            results = work(task(item) for item in window)
        yield from results
        if not window:
            return


@dataclass(frozen=True)
class _Call(Generic[Item, Result]):
    """A function as a backend calls it, perhaps in a thread of a worker: it spreads no further."""

    function: Callable[[Item], Result]

    def __call__(self, item: Item) -> Result:
        token = _inside_task.set(True)
        try:
            return self.function(item)
        finally:
            _inside_task.reset(token)


def close_pool() -> None:
    """End the worker processes; the next call of :func:`spread` starts new ones."""
    global _pool
    with _lock:
        if _pool is not None:
            _pool.shutdown(cancel_futures=True)
            _pool = None


def _get_pool(size: int) -> ProcessPoolExecutor:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < size:
            if _pool is not None:
                _pool.shutdown(wait=False)
            else:
                # Not atexit: that does not run in a spawned process, which would wait forever.
                # Before the queues close (priority 10), or workers would never hear of the end.
                Finalize(None, close_pool, exitpriority=100)
            # The parent decides when work stops; Ctrl-C must not print a traceback per worker.
            _pool = _start_pool(size, signal.SIG_IGN)
            _pool_size = size
        return _pool


class _Worker(SpawnProcess):
    """A spawned process that does not run the user's script again.

    Workers only run functions of this package, so a script needs no ``if __name__ == "__main__"``.
    """

    @staticmethod
    def _Popen(process: BaseProcess) -> Any:
        main = sys.modules["__main__"]
        hidden = {name: main.__dict__.pop(name, None) for name in ("__spec__", "__file__")}
        main.__spec__ = None
        try:
            return SpawnProcess._Popen(process)
        finally:
            main.__dict__.update({name: v for name, v in hidden.items() if v is not None})


class _Workers(SpawnContext):
    Process = _Worker


def call_apart(function: Callable[[Item], Result], item: Item) -> Result:
    """``function(item)`` in a fresh process of its own, so that its memory can be measured."""
    with ProcessPoolExecutor(1, mp_context=_Workers()) as executor:
        return executor.submit(function, item).result()


def call_each_apart(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[tuple[int, Result]]:
    """``function(item)`` for each item, every one in a fresh process, as they are finished.

    Yields the item's place and its result. Whatever was not begun when the caller stops is dropped.
    """

    def call(item: Item) -> Result:
        with _start_pool(1, signal.SIG_DFL) as executor:  # Ctrl-C ends it without a word
            return executor.submit(function, item).result()

    with ThreadPoolExecutor(workers) as threads:
        yield from _collect(threads, call, items)


def call_each(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[tuple[int, Result]]:
    """:func:`call_each_apart`, but a process goes on to the next item: for short work.

    It saves loading large imports again. No result may depend on what its process computed before.
    """
    pool = _start_pool(workers, signal.SIG_DFL)
    try:
        yield from _collect(pool, function, items)
    finally:
        pool.shutdown(cancel_futures=True)


def _collect(
    executor: Executor, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[tuple[int, Result]]:
    places = {executor.submit(function, item): place for place, item in enumerate(items)}
    try:
        for future in as_completed(places):
            yield places[future], future.result()
    finally:
        for future in places:
            future.cancel()


def _start_pool(size: int, on_interrupt: signal.Handlers) -> ProcessPoolExecutor:
    """Processes that have no workers of their own and end with their parent."""
    return ProcessPoolExecutor(
        size, mp_context=_Workers(), initializer=_enter_worker, initargs=(on_interrupt,)
    )


def _enter_worker(on_interrupt: signal.Handlers) -> None:
    global _inside_worker
    _inside_worker = True
    signal.signal(signal.SIGINT, on_interrupt)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """End with the parent, also when it was killed and could not say so."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """PyTorch on that many threads for a while: small networks are fastest, and repeat, on one.

    The number belongs to the whole process; the last of several users, parties in threads for
    example, puts it back.
    """
    import torch

    global _torch_users, _torch_before
    with _lock:
        if _torch_users == 0:
            _torch_before = torch.get_num_threads()
        _torch_users += 1
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            _torch_users -= 1
            if _torch_users == 0:
                torch.set_num_threads(_torch_before)
