"""What an audit says: a finding per probe, attacker and target, with controls and a mark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

GREEN, AMBER, RED, INVALID = "green", "amber", "red", "not valid"
ORDER = (GREEN, AMBER, RED, INVALID)


@dataclass(frozen=True)
class Marks:
    """Up to ``green`` nothing is to be done, beyond ``red`` a door is open."""

    green: float
    red: float

    def judge(self, advantage: float) -> str:
        """green, amber or red."""
        if advantage > self.red:
            return RED
        return GREEN if advantage <= self.green else AMBER

    @property
    def halfway(self) -> float:
        """What a control at chance must stay below: luck is not a finding."""
        return (self.green + self.red) / 2


@dataclass(frozen=True)
class Control:
    """The same attack where its outcome is known: on an open door, or on a view of other rows."""

    kind: str  # "positive" or "negative"
    says: str
    value: float
    passed: bool


def open_door(says: str, value: float, marks: Marks) -> Control:
    """The attack must be red where the door is open."""
    return Control("positive", says, float(value), bool(value > marks.red))


def at_chance(says: str, value: float, marks: Marks) -> Control:
    """The attack must find nothing where there is nothing."""
    return Control("negative", says, float(value), bool(value <= max(marks.halfway, marks.green)))


@dataclass(frozen=True)
class Change:
    """What to change in a job so that a finding gets green, and in which of its steps."""

    says: str
    step: int | None = None


@dataclass(frozen=True)
class Finding:
    """What one party could compute about another from one kind of view.

    Attributes
    ----------
    probe, attacker, target : str
    value, baseline : float
        The attack's number with the view, and with the attacker's own columns alone.
    advantage : float
        What the view adds; the mark judges this.
    mark : {"green", "amber", "red", "not valid"}
    line : str
        The line of the ledger that the view comes from.
    change : Change
    controls : tuple of Control
    low, high : float or None
        An interval of the advantage, where there is one.
    note : str
    """

    probe: str
    attacker: str
    target: str
    value: float
    baseline: float
    advantage: float
    mark: str
    line: str
    change: Change
    controls: tuple[Control, ...] = ()
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def valid(self) -> bool:
        kinds = {control.kind for control in self.controls if control.passed}
        return kinds == {"positive", "negative"} and all(one.passed for one in self.controls)

    def to_plain(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def worst(marks: Sequence[str]) -> str:
    """The worst of some marks; green if there are none."""
    return max(marks, key=ORDER.index, default=GREEN)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value
