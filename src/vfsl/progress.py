"""Progress of a run: events, and how far a protocol is by the names of its messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

# Scopes of messages that count what a person waits for; the others are too small or too many.
_COUNTED = re.compile(r"(?:^|/)(trees|round|task|piece|way|member) (\d+)(?=/)")


@dataclass(frozen=True)
class Event:
    """Something that happened in a run, for progress displays.

    Attributes
    ----------
    step : str
        What runs: "align", "train xgb".
    stage : str
        What it is at: "B signs", "round 7", a column's name.
    done, total : int
        How much of the stage is done, of how much; a total of None is not known.
    """

    step: str
    stage: str
    done: int = 0
    total: int | None = None


OnEvent = Callable[[Event], None]


class Watch:
    """Tells of each step once, and hears from the names of messages how far it is.

    Every party says when a step begins and ends; people want to hear it once.
    """

    def __init__(self, tell: OnEvent) -> None:
        self._tell = tell
        self._step, self._total = "", None  # type: tuple[str, int | None]
        self._last = ""

    def __call__(self, heard: Event | str) -> None:
        if isinstance(heard, str):
            self._hear_message(heard)
        elif heard.stage == "start":
            if heard.step != self._step:
                self._step, self._total, self._last = heard.step, heard.total, ""
                self._tell(Event(heard.step, "start"))
        elif heard.stage == "end":
            if heard.step == self._step:
                self._step = ""
                self._tell(heard)
        else:
            self._tell(heard)

    def give_up(self) -> None:
        """Say that the step at hand has failed, so that nobody waits for its end."""
        if self._step:
            self._tell(Event(self._step, "failed"))
        self._step = ""

    def _hear_message(self, name: str) -> None:
        counts = _COUNTED.findall(name)
        stage = ", ".join(f"{word} {int(number) + 1}" for word, number in counts)
        if not counts or not self._step or stage == self._last:
            return
        self._last = stage
        word, number = counts[0]
        total = self._total if word == "trees" else None
        self._tell(Event(self._step, stage, int(number) + 1, total))
