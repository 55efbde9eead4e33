"""Each party's part of a fitted VF-GAIN, as plain values and arrays that make its networks anew.

A share holds what those networks learned from the party's rows: keep it as private as the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import torch

from vfsl.completion.imputers.split import Embedder, Filler, Plan
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.training import load_arrays
from vfsl.values import Array


@dataclass(frozen=True, eq=False)
class EmbedderShare:
    """A's part of a fitted model. It never leaves A."""

    role: ClassVar[str] = "embedder"

    encoder: Mapping[str, Any]
    arrays: Mapping[str, Array]
    rounds: int

    def embedder(self, plan: Plan, where: str = "this share") -> Embedder:
        """The network with its learned weights."""
        made = Embedder(plan, MixedEncoder.from_dict(self.encoder), torch.Generator())
        load_arrays(made.networks, self.arrays, where)
        return made

    def check(self, plan: Plan, where: str) -> None:
        """Refuse weights that do not fit the plan."""
        self.embedder(plan, where)

    def to_dict(self) -> dict[str, Any]:
        """All but the weights, as JSON values."""
        return {"encoder": dict(self.encoder), "rounds": self.rounds}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Undo :meth:`to_dict`."""
        _check_state(cls, state)
        return cls(dict(state["encoder"]), arrays, int(state["rounds"]))


@dataclass(frozen=True, eq=False)
class FillerShare:
    """B's part of a fitted model, and how training went. It never leaves B."""

    role: ClassVar[str] = "filler"

    encoder: Mapping[str, Any]
    arrays: Mapping[str, Array]
    known: tuple[str, ...]
    spread: Mapping[str, float]
    rounds: tuple[dict[str, Any], ...]
    stop_reason: str

    def filler(self, plan: Plan, source: torch.Generator, where: str = "this share") -> Filler:
        """The networks with their learned weights."""
        made = Filler(plan, MixedEncoder.from_dict(self.encoder), self.known, source)
        load_arrays(made.networks, self.arrays, where)
        made.spread = dict(self.spread)
        return made

    def check(self, plan: Plan, where: str) -> None:
        """Refuse weights that do not fit the plan."""
        self.filler(plan, torch.Generator(), where)

    def to_dict(self) -> dict[str, Any]:
        """All but the weights, as JSON values."""
        return {
            "encoder": dict(self.encoder),
            "known": list(self.known),
            "spread": dict(self.spread),
            "rounds": [dict(one) for one in self.rounds],
            "stop_reason": self.stop_reason,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Undo :meth:`to_dict`."""
        _check_state(cls, state)
        return cls(
            dict(state["encoder"]),
            arrays,
            tuple(str(name) for name in state["known"]),
            {str(name): float(value) for name, value in state["spread"].items()},
            tuple(dict(one) for one in state["rounds"]),
            str(state["stop_reason"]),
        )


SHARES: dict[str, type[EmbedderShare] | type[FillerShare]] = {
    kind.role: kind for kind in (EmbedderShare, FillerShare)
}


def _check_state(kind: type[EmbedderShare] | type[FillerShare], state: Mapping[str, Any]) -> None:
    """KeyError or DataError where this is not what to_dict gave."""
    if {*state, "arrays"} != {field.name for field in fields(kind)}:
        raise KeyError(f"not the names of a share of the {kind.role}")
    MixedEncoder.from_dict(state["encoder"])
