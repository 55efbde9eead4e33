"""The plain side of inner products in slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vfsl.crypto.packing import Plains
from vfsl.crypto.ring import Parameters, ring_of, shifted
from vfsl.values import Array


@dataclass(frozen=True, eq=False)
class SlotPlains:
    """Plain columns as polynomials that bring the sum over all slots to X^(N−1).

    ``plains`` are those columns in coefficients, one a polynomial, row i at X^(N−1−i).
    """

    params: Parameters
    plains: Plains
    blocks: int

    @property
    def groups(self) -> int:
        return self.plains.groups

    def block(self, block: int, groups: slice = slice(None)) -> Array:
        ring = ring_of(self.params)
        columns = ring.residues(self.plains.block(block, groups)[:, ::-1])
        return np.stack([summing(ring.from_slots(column), ring.t) for column in columns])

    def norm(self) -> int:
        # Whatever the values are, coefficients spread over the whole plaintext space.
        return self.blocks * ring_of(self.params).slot_norm


def summing(coefficients: Array, t: int) -> Array:
    """N · X^(N−1) times a polynomial, mod X^N + 1 and t; N is a power of two."""
    lifted = shifted(coefficients.astype(np.int64), len(coefficients).bit_length() - 1, t)
    # X^(N−1) · X^j = −X^(j−1) for j > 0.
    return np.concatenate([-lifted[1:], lifted[:1]])
