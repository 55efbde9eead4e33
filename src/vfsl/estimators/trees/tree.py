"""A tree as the label holder knows it, and what it is to fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vfsl.estimators.descent import Integers
from vfsl.estimators.trees.gains import Scale
from vfsl.estimators.trees.offers import Rule

LEAF, OWN = -1, 0


@dataclass
class Tree:
    """A tree as the label holder knows it: who splits where, and what the leaves say.

    ``owner`` is LEAF, OWN, or the place of a feature holder, from 1 on; a split's children are
    ``left`` and ``left`` + 1.
    """

    owner: list[int] = field(default_factory=lambda: [LEAF])
    left: list[int] = field(default_factory=lambda: [LEAF])
    value: list[float] = field(default_factory=lambda: [0.0])
    gain: list[float] = field(default_factory=lambda: [0.0])
    rules: dict[int, Rule] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        rules = [[node, *rule] for node, rule in sorted(self.rules.items())]
        return {
            "owner": self.owner,
            "left": self.left,
            "value": self.value,
            "gain": self.gain,
            "rules": rules,
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Tree:
        rules = {rule[0]: (rule[1], rule[2], rule[3]) for rule in content["rules"]}
        return cls(content["owner"], content["left"], content["value"], content["gain"], rules)


@dataclass(frozen=True)
class Goal:
    """What one tree is to fit.

    ``values`` are the integers (g, h) that splits are judged by, zero outside the bag.
    """

    values: Integers
    scale: Scale
