"""Heavy work: when it is worth worker processes, how it is cut, and randomness computed ahead."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Generic, NoReturn, TypeVar

from vfsl.errors import CryptoError
from vfsl.parallel import count_cores, spread

Item = TypeVar("Item")
Result = TypeVar("Result")

# Starting workers and moving numbers to them costs about a second once; less work than that is
# done faster right here.
WORTH_SECONDS = 1.0

_workers: ContextVar[int | None] = ContextVar("vfsl.crypto workers", default=None)


@contextmanager
def using_workers(count: int) -> Iterator[None]:
    """Use ``count`` worker processes in this context; 1 keeps all work here, to be measured."""
    token = _workers.set(count)
    try:
        yield
    finally:
        _workers.reset(token)


def count_workers() -> int:
    """How many worker processes crypto may use now."""
    asked = _workers.get()
    return count_cores() if asked is None else asked


def spread_if_worth(
    function: Callable[[Item], Result], items: Sequence[Item], seconds: float
) -> Iterator[Result]:
    """``function`` of each item in order, in worker processes if ``seconds`` of work justify it."""
    count = count_workers() if seconds >= WORTH_SECONDS and len(items) > 1 else 1
    return spread(function, items, workers=count)


def cut_chunks(length: int, seconds: float) -> list[slice]:
    """Cut ``length`` things into equal chunks, several per worker so that none waits long."""
    wanted = 2 * count_workers() if seconds >= WORTH_SECONDS else 1
    step = max(1, -(-length // wanted))
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


class Pool(ABC, Generic[Item]):
    """Precomputed randomness, thread-safe: every item leaves the pool exactly once.

    It can be neither copied nor stored, since randomness used twice shows the difference of two
    plaintexts. Worker processes can fill it in the background while its owner waits; that moves
    work out of the way but does not make it less, so it is asked for and never automatic.
    """

    def __init__(self) -> None:
        self._ready: deque[Item] = deque()

    def __reduce__(self) -> NoReturn:
        raise CryptoError("A pool of randomness cannot be copied or stored; make a new one.")

    def __len__(self) -> int:
        return len(self._ready)

    def prepare(self, count: int) -> None:
        """Compute ``count`` further items."""
        self._ready.extend(self._make(count))

    def prepare_in_background(self, count: int) -> threading.Thread:
        """Let worker processes compute ``count`` further items; join the thread to wait for all."""

        def fill() -> None:
            for items in self._make_elsewhere(count):
                self._ready.extend(items)

        thread = threading.Thread(target=fill, name="vfsl pool", daemon=True)
        thread.start()
        return thread

    def take(self, count: int) -> list[Item]:
        """``count`` items that nobody has used; those that are missing are computed now."""
        taken: list[Item] = []
        with suppress(IndexError):
            while len(taken) < count:
                taken.append(self._ready.popleft())  # atomic: two threads never get the same
        if len(taken) < count:
            taken += self._make(count - len(taken))
        return taken

    @abstractmethod
    def _make(self, count: int) -> list[Item]:
        """New items, computed while the caller waits."""

    @abstractmethod
    def _make_elsewhere(self, count: int) -> Iterator[list[Item]]:
        """New items, computed by worker processes, some at a time."""
