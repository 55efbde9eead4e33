"""A pool of precomputed randomness: every item leaves it exactly once.

A pool cannot be copied or written to disk: randomness used twice shows the difference of two
plaintexts. One that is used a lot refills itself in the background, in worker processes, while its
owner waits for messages or computes.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from typing import Generic, NoReturn, TypeVar

from vfsl.crypto.work import WORTH_SECONDS, workers
from vfsl.errors import CryptoError

Item = TypeVar("Item")


class Pool(ABC, Generic[Item]):
    """Thread-safe and single use.

    Parameters
    ----------
    seconds : float
        What one item costs.
    most : int
        Items that are kept ready at most: they take memory.
    """

    def __init__(self, seconds: float, most: int) -> None:
        self._ready: deque[Item] = deque()
        self._seconds = seconds
        self._most = most
        self._spent = 0.0
        self._level = 0
        self._filling = threading.Lock()

    def __reduce__(self) -> NoReturn:
        raise CryptoError("A pool of randomness cannot be copied or stored; make a new one.")

    def __len__(self) -> int:
        return len(self._ready)

    def prepare(self, count: int) -> None:
        """Compute ``count`` further items."""
        self._ready.extend(self._fresh(count))

    def take(self, count: int) -> list[Item]:
        """``count`` items that nobody has used, computing those that are missing."""
        taken: list[Item] = []
        with suppress(IndexError):
            while len(taken) < count:
                taken.append(self._ready.popleft())  # atomic: two threads never get the same
        missing = count - len(taken)
        if missing:
            taken += self._fresh(missing)
            self._spent += missing * self._seconds
        self._level = min(max(self._level, 2 * count), self._most)
        # Short jobs end before worker processes would have started.
        worth = self._spent >= WORTH_SECONDS and workers() > 1
        if worth and len(self) < self._level / 2 and self._filling.acquire(blocking=False):
            threading.Thread(target=self._refill, daemon=True).start()
        return taken

    def _refill(self) -> None:
        try:
            # Without workers, as at the end of the process, items are computed when needed.
            with suppress(BrokenExecutor, RuntimeError):
                for items in self._elsewhere(self._level - len(self)):
                    self._ready.extend(items)
        finally:
            self._filling.release()

    @abstractmethod
    def _fresh(self, count: int) -> list[Item]:
        """New items, computed while the caller waits."""

    @abstractmethod
    def _elsewhere(self, count: int) -> Iterator[list[Item]]:
        """New items, computed by worker processes, some at a time."""
