"""Where random draws come from: the job's seed, which everybody knows, or a party's own secret.

What a party must hide (who is in a bag or a fold, which rows validate) it draws from its private
seed. That seed comes from the operating system when a run begins. It is kept in the party's own
folder, so that a resumed run draws the same and nobody else ever can. A simulation has nothing to
hide from itself: there the job's seed stands in for every private one, so that a run repeats.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vfsl.errors import StoreError
from vfsl.store import read_json, write_json

FIXED = "fixed by the simulation's seed"
SYSTEM = "from the operating system, at each party"
ANNOUNCED_BITS = 62
_WORDS = 8  # of 32 bits
_BYTES = 32


class RepeatableGenerator(np.random.Generator):
    """The generator of a simulation, where nothing that it draws hides anything from anybody.

    Keys, masks and seeds that protect come from the operating system; only in a simulation may they
    come from this one, so that a run repeats.
    """


def public_rng(seed: int, purpose: str) -> np.random.Generator:
    """Draws that everybody may know: the same at all parties of a job."""
    return np.random.default_rng([seed, *purpose.encode()])


@dataclass(frozen=True)
class PrivateSeed:
    """One party's secret start of all its private draws."""

    party: str
    words: tuple[int, ...]

    def rng(self, purpose: str) -> np.random.Generator:
        """Private draws for one purpose, the same whenever they are asked for."""
        bits = np.random.PCG64([*self.words, *f"{purpose} {self.party}".encode()])
        return np.random.Generator(bits) if len(self.words) > 1 else RepeatableGenerator(bits)

    @classmethod
    def from_system(cls, party: str) -> PrivateSeed:
        return cls(party, tuple(secrets.randbits(32) for _ in range(_WORDS)))

    @classmethod
    def of_simulation(cls, party: str, seed: int) -> PrivateSeed:
        """A seed that follows from the job's: on one machine there is nobody to hide it from."""
        return cls(party, (seed,))

    @classmethod
    def kept_in(cls, path: Path, party: str) -> PrivateSeed:
        """The seed in the party's own file, drawn and written there if it is not there yet."""
        if not path.exists():
            fresh = cls.from_system(party)
            write_json(path, {"party": party, "words": list(fresh.words)})
        content = read_json(path)
        try:
            words = tuple(int(word) for word in content["words"])
            if content["party"] != party or len(words) < _WORDS:
                raise ValueError("another party's, or too short")
        except (KeyError, TypeError, ValueError):
            raise StoreError(f"{path} is damaged: it holds no private seed of {party!r}.") from None
        return cls(party, words)


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


@dataclass(frozen=True, eq=False)
class KeyedNormal:
    """Normal draws that follow from a secret key and the name of the row they are for.

    The same row gets the same noise whenever it is asked for, whatever rows are beside it.
    """

    key: bytes
    names: Sequence[bytes]

    def standard_normal(self, size: tuple[int, int]) -> Any:
        """One line of draws for each row."""
        lines = np.empty(size)
        for place, name in enumerate(self.names):
            seed = hmac.digest(self.key, name, "sha256")
            bits = np.random.PCG64(int.from_bytes(seed, "big"))
            lines[place] = np.random.Generator(bits).standard_normal(size[1])
        return lines


def draw_by_number(rng: np.random.Generator) -> Callable[[int], np.random.Generator]:
    """A generator for each task by its number, the same whichever tasks were skipped."""
    words, kind = rng.integers(0, 1 << 32, 4).tolist(), type(rng)
    return lambda number: kind(np.random.PCG64([*words, number]))
