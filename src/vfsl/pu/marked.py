"""What VFPU asks of a federation, and where its parties keep finished pieces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vfsl.channel import Channel
from vfsl.data import PartyTable
from vfsl.estimators.base import Roles, Rows, StepReport
from vfsl.store import Checkpoints
from vfsl.values import Array


class MarkedShare(Protocol):
    @property
    def overlap(self) -> Rows: ...

    @property
    def plan(self) -> str: ...

    @property
    def marks(self) -> Array | None: ...


class Marked(Protocol):
    """The little that VFPU needs of a federation."""

    @property
    def tables(self) -> Mapping[str, PartyTable]: ...

    def share(self, party: str) -> MarkedShare: ...

    def mark(self, *, positives: str, label_holder: str) -> Any: ...

    def roles(self, label_holder: str, work: str) -> Roles: ...

    def private_rng(self, party: str, purpose: str) -> np.random.Generator: ...

    def run(
        self, step: str, roles: Mapping[str, Callable[[Channel], Any]], settings: Mapping[str, Any]
    ) -> tuple[dict[str, Any], StepReport]: ...


def keeper_of(
    fed: Marked,
    party: str,
    state: Mapping[str, Path | str] | None,
    public: Mapping[str, Any],
) -> Checkpoints | None:
    """A party's own folder, bound to the settings and its share of the row plan."""
    if state is None or party not in state:
        return None
    share = fed.share(party)
    digest = hashlib.sha256(json.dumps([public, share.plan], sort_keys=True).encode())
    if share.marks is not None:
        digest.update(np.asarray(share.marks, dtype=np.int8).tobytes())
    return Checkpoints(Path(state[party]), digest.hexdigest())
