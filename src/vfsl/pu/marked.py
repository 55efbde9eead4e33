"""Where the parties of VFPU keep finished pieces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vfsl.federation import Federation
from vfsl.store import Checkpoints


def keeper_of(
    fed: Federation,
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
