"""Progress of a run for people who watch: a bar in terminals and notebooks, else lines."""

from __future__ import annotations

import threading
import time
from importlib.util import find_spec
from typing import Self

from rich.console import Console
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

from vfsl.progress import Event, OnEvent


def show_progress(console: Console | None = None) -> OnEvent:
    """What to pass as ``on_event`` to see how far a run is, in a notebook or a terminal.

    A bar is there while a step runs. In notebooks it needs ipywidgets; without it, and where
    nobody watches, each step that has ended is one line.
    """
    bar = Bar(console or Console(stderr=True, highlight=False))

    def hear(event: Event) -> None:
        if event.stage == "start":
            bar.__enter__()
        bar.event(event)
        if event.stage in ("end", "failed"):
            bar.__exit__()

    return hear


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

    def __init__(self, console: Console, *, shown: bool = True) -> None:
        drawn = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        self._console, self._lines = console, shown and not drawn
        self._began: dict[str, float] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            _Rate(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (shown and drawn),
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
            self._console.print(f"{event.step}: done in {seconds:.1f} s", markup=False)
        else:
            self._began.setdefault(event.step, now)
