"""A pool of precomputed randomness: every item leaves it exactly once.

A pool cannot be copied or written to disk: randomness used twice shows the difference of two
plaintexts. It can be filled in the background, by worker processes, while its owner waits; that
moves work out of the way but does not make it less, so it is asked for, never automatic.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Generic, NoReturn, TypeVar

from vfsl.errors import CryptoError

Item = TypeVar("Item")


class Pool(ABC, Generic[Item]):
    """Thread-safe and single use."""

    def __init__(self) -> None:
        self._ready: deque[Item] = deque()

    def __reduce__(self) -> NoReturn:
        raise CryptoError("A pool of randomness cannot be copied or stored; make a new one.")

    def __len__(self) -> int:
        return len(self._ready)

    def prepare(self, count: int) -> None:
        """Compute ``count`` further items."""
        self._ready.extend(self._fresh(count))

    def prepare_in_background(self, count: int) -> threading.Thread:
        """Let worker processes compute ``count`` further items; join the thread to wait for all."""

        def fill() -> None:
            for items in self._elsewhere(count):
                self._ready.extend(items)

        thread = threading.Thread(target=fill, name="vfsl pool", daemon=True)
        thread.start()
        return thread

    def take(self, count: int) -> list[Item]:
        """``count`` items that nobody has used, computing those that are missing."""
        taken: list[Item] = []
        with suppress(IndexError):
            while len(taken) < count:
                taken.append(self._ready.popleft())  # atomic: two threads never get the same
        if len(taken) < count:
            taken += self._fresh(count - len(taken))
        return taken

    @abstractmethod
    def _fresh(self, count: int) -> list[Item]:
        """New items, computed while the caller waits."""

    @abstractmethod
    def _elsewhere(self, count: int) -> Iterator[list[Item]]:
        """New items, computed by worker processes, some at a time."""
