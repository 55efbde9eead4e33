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

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

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
    return Bar(shown=form is Form.BAR)


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


class _Rate(ProgressColumn):
    """Units a second."""

    def render(self, task: Task) -> Text:
        speed = task.speed
        return Text(
            "" if speed is None else f"{speed:,.1f}/s" if speed < 100 else f"{speed:,.0f}/s"
        )


class Bar:
    """A bar with stage, round, rate and remaining time, if a person is watching.

    Where nobody is, as under ``nohup``, each step that has ended is one line.
    """

    def __init__(self, *, shown: bool = True) -> None:
        self._lines = shown and not err.is_terminal
        self._began: dict[str, float] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            _Rate(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
            disable=not (shown and err.is_terminal),
        )
        self._last = Event("", "")  # with a known end, or the first of its step
        self._task = self._progress.add_task("reading", total=None, count="")
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def event(self, event: Event) -> None:
        with self._lock:
            if self._lines:
                self._write(event)
            last = self._last
            if event.total is None and event.step == last.step and last.total:
                # A round within a column: the bar stays that of the columns.
                text = f"{last.step}: {last.stage}, {event.stage}"
                self._progress.update(self._task, description=text)
                return
            if (event.step, event.total) != (last.step, last.total) or event.done < last.done:
                self._progress.reset(self._task, total=event.total)
            self._last = event
            self._progress.update(
                self._task,
                description=f"{event.step}: {event.stage}",
                completed=min(event.done, event.total) if event.total else event.done,
                total=event.total,
                count=f"{event.done:,} of {event.total:,}" if event.total else "",
            )

    def _write(self, event: Event) -> None:
        now = time.monotonic()
        if event.stage == "end":
            seconds = now - self._began.pop(event.step, now)
            err.print(f"{event.step}: done in {seconds:.1f} s", markup=False)
        else:
            self._began.setdefault(event.step, now)
