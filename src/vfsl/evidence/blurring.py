"""Noise on evidence: what a feature holder adds to what its head says, once for each row.

The noise of a row follows from a secret key and the row's own features, so whoever asks for the
same row again gets the same answer: averaging finds nothing out.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vfsl.crypto.shares import Session
from vfsl.draws import KeyedNormal, draw_private_seed
from vfsl.estimators.shared.scoring import Blur
from vfsl.mechanisms import GaussianNoise
from vfsl.values import Floats

# Where scores are cut off, in units of what bounds their deviation: a score two deviations out is
# as sure as evidence needs to be, and a wider limit costs ε for one row in twenty.
LIMIT = 2.0


@dataclass(frozen=True)
class Blurring:
    """The noise that was asked for, in units of what bounds the deviation of scores.

    ``key`` is the feature holder's, 64 hexadecimal digits; elsewhere it is empty.
    """

    noise: float
    key: str = ""

    def with_key(self, rng: np.random.Generator) -> Blurring:
        """The same with a fresh key."""
        return replace(self, key=f"{draw_private_seed(rng):064x}")

    def prepare(
        self,
        session: Session,
        owner: str,
        columns: Floats | None,
        state: Mapping[str, Any],
        label_holder: str,
    ) -> Blur:
        """What a scoring needs; the owner draws the noise and is charged for it."""
        if session.me != owner or columns is None:
            return Blur(owner, LIMIT)
        models = int(state["models"])
        mechanism = GaussianNoise(self.noise, 2 * LIMIT * math.sqrt(models))
        head = json.dumps(state["pieces"], sort_keys=True).encode()
        key = bytes.fromhex(self.key) + hashlib.sha256(head).digest()
        nothing = np.zeros((len(columns), models))
        noise = session.link.release_noisy(
            label_holder,
            "evidence",
            nothing,
            mechanism,
            KeyedNormal(key, columns),
            once=hashlib.sha256(key + np.ascontiguousarray(columns).tobytes()).digest(),
        )
        return Blur(owner, LIMIT, noise)
