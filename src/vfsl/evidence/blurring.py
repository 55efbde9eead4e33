"""Noise on evidence: what a feature holder adds to what its head says, once for each row.

The noise of a row follows from a secret key, the row's id and its cells. Whoever asks for the
same row again gets the same answer, so averaging finds nothing out; and two rows that are alike get
noise of their own, so equal answers tell nothing either.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vfsl.crypto.shares import Session
from vfsl.draws import KeyedNormal, draw_private_seed
from vfsl.estimators.shared.scoring import Blur
from vfsl.evidence.encoders import Arrays
from vfsl.mechanisms import DELTA, GaussianNoise, find_epsilon
from vfsl.values import Array, Floats

# Where scores are cut off, in units of what bounds their deviation: a score two deviations out is
# as sure as evidence needs to be, and a wider limit costs ε for one row in twenty.
LIMIT = 2.0


def name_rows(ids: Array, cells: Arrays) -> list[bytes]:
    """A name of each row that changes with its id and with any of its cells."""
    return [
        hashlib.sha256(f"{name}\0".encode() + numbers.tobytes() + codes.tobytes()).digest()
        for name, numbers, codes in zip(ids, *cells, strict=True)
    ]


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

    def mechanism(self, models: int) -> GaussianNoise:
        """What it does to a row, whose own scores differ by at most twice the limit."""
        return GaussianNoise(self.noise, 2 * LIMIT * math.sqrt(models))

    def describe(self, classes: int) -> str:
        """What it promises, for people."""
        spent = self.mechanism(1 if classes == 2 else classes).spend()
        return (
            f"Evidence of the others has noise: ε = {find_epsilon(spent):.1f} at δ = {DELTA:g} for "
            "a row each time that a new head speaks of it, the head taken as known."
        )

    def prepare(
        self,
        session: Session,
        owner: str,
        columns: Floats | None,
        names: Sequence[bytes] | None,
        state: Mapping[str, Any],
        label_holder: str,
    ) -> Blur:
        """What a scoring needs; the owner draws the noise and is charged for it."""
        if session.me != owner or columns is None or names is None:
            return Blur(owner, LIMIT)
        models = int(state["models"])
        head = json.dumps(state["pieces"], sort_keys=True).encode()
        key = bytes.fromhex(self.key) + hashlib.sha256(head).digest()
        nothing = np.zeros((len(columns), models))
        noise = session.link.release_noisy(
            label_holder,
            "evidence",
            nothing,
            self.mechanism(models),
            KeyedNormal(key, names),
            once=hashlib.sha256(key + b"".join(names)).digest(),
        )
        return Blur(owner, LIMIT, noise)
