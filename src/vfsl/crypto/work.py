"""How much work is worth worker processes, and how it is cut for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from vfsl.parallel import cores, spread

Item = TypeVar("Item")
Result = TypeVar("Result")

# Starting workers and moving numbers to them costs about a second once; below that work is
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


def workers() -> int:
    """How many worker processes crypto may use now."""
    asked = _workers.get()
    return cores() if asked is None else asked


def shared(
    function: Callable[[Item], Result], items: Sequence[Item], seconds: float
) -> Iterator[Result]:
    """``function`` of each item in order, in worker processes if ``seconds`` of work justify it."""
    count = workers() if seconds >= WORTH_SECONDS and len(items) > 1 else 1
    return spread(function, items, workers=count)


def pieces(length: int, seconds: float) -> list[slice]:
    """Cut ``length`` things into equal runs, several a worker so that none waits long."""
    wanted = 2 * workers() if seconds >= WORTH_SECONDS else 1
    step = max(1, -(-length // wanted))
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]
