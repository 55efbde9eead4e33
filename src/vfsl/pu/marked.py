"""What VFPU asks of a federation, and where its parties keep finished pieces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vfsl.align import RowShare
from vfsl.estimators.base import WithTables
from vfsl.store import Checkpoints


class Marked(WithTables, Protocol):
    """What VFPU needs of a federation: also the marks of known positives."""

    def share(self, party: str) -> RowShare: ...

    def mark(self, *, positives: str, label_holder: str) -> Any: ...


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
        digest.update(share.marks.astype(np.int8).tobytes())
    return Checkpoints(Path(state[party]), digest.hexdigest())
