"""A pool of precomputed randomness: every item leaves it exactly once.

A pool cannot be copied or written to disk: randomness used twice shows the difference of two
plaintexts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
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
    def _fresh(self, count: int) -> list[Item]: ...
