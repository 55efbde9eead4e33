"""Progress of a run: events, and how far a protocol is by the names of its messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Scopes of messages that count what a person waits for; the others are too small or too many.
_COUNTED = re.compile(r"(?:^|/)(trees|round|piece|way|member) (\d+)(?=/)")


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
    """Hears the names of messages and tells when a new round, batch of trees or piece begins."""

    def __init__(self, step: str, settings: Mapping[str, Any], tell: OnEvent) -> None:
        self._step = step
        self._trees = settings.get("n_estimators") if settings.get("model") != "rf" else None
        self._tell = tell
        self._last = ""

    def __call__(self, name: str) -> None:
        counts = _COUNTED.findall(name)
        stage = ", ".join(f"{word} {int(number) + 1}" for word, number in counts)
        if not counts or stage == self._last:
            return
        self._last = stage
        word, number = counts[0]
        total = self._trees if word == "trees" else None
        self._tell(Event(self._step, stage, int(number) + 1, total))
