"""Progress of a run on standard error: a bar for people, JSON lines for programs, or nothing."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol, Self

from vfsl.bar import Bar
from vfsl.cli.screen import err
from vfsl.progress import Event


class Form(StrEnum):
    """How progress is shown."""

    BAR = "bar"
    JSON = "json"
    NONE = "none"


class Display(AbstractContextManager["Display"], Protocol):
    """Shows events while it is open."""

    def event(self, event: Event) -> None: ...


def display(form: Form) -> Display:
    """The display of that form, to be opened by ``with``."""
    if form is Form.JSON:
        return Lines(sys.stderr.write, time.monotonic)
    return Bar(err, shown=form is Form.BAR)


class Pace:
    """How fast a step goes and how long it still takes, from the events so far.

    What has a known end is counted apart from what has not: a column is one of so many, while its
    rounds go on until they suffice.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: dict[tuple[str, int | None], tuple[float, int]] = {}

    def after(self, event: Event) -> tuple[float | None, float | None]:
        """Units a second, and seconds that remain; None where it cannot be said."""
        now, what = self._clock(), (event.step, event.total)
        start, first = self._began.get(what, (now, event.done))
        if what not in self._began or event.done < first:
            self._began[what] = (now, event.done)
            return None, None
        seconds, units = now - start, event.done - first
        if seconds <= 0 or units <= 0:
            return None, None
        rate = units / seconds
        if event.total is None:
            return rate, None
        return rate, max(event.total - event.done, 0) / rate


class Lines:
    """One JSON object a line for each event."""

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._start = clock()
        self._pace = Pace(clock)
        self._lock = threading.Lock()  # parties are threads

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def event(self, event: Event) -> None:
        with self._lock:
            rate, remaining = self._pace.after(event)
            line = {
                "seconds": round(self._clock() - self._start, 3),
                "step": event.step,
                "stage": event.stage,
                "done": event.done,
                "total": event.total,
                "rate": None if rate is None else round(rate, 3),
                "remaining": None if remaining is None else round(remaining, 1),
            }
            self._write(json.dumps(line, ensure_ascii=False) + "\n")
