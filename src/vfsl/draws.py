"""Seeds drawn from a party's private stream: one to keep, one that everybody may be told."""

from __future__ import annotations

import hashlib

import numpy as np

ANNOUNCED_BITS = 62
_BYTES = 32


def draw_private_seed(rng: np.random.Generator) -> int:
    """A seed of 256 bits for draws that hide something; it must not leave its party."""
    return int.from_bytes(rng.bytes(_BYTES), "big")


def draw_announced_seed(rng: np.random.Generator) -> int:
    """A seed of 62 bits that others are told.

    It is a one-way function of 256 bits of the stream, so whoever has it learns nothing about what
    else the stream gives.
    """
    digest = hashlib.sha256(b"vfsl announced seed" + rng.bytes(_BYTES)).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - ANNOUNCED_BITS)
