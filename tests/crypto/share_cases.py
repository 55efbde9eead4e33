"""Programs on shares, run by all parties and the dealer in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from vfsl.channel import Channel, Transcript, run_together
from vfsl.crypto.shares import DISCLOSURES, Session, concatenate
from vfsl.values import Disclosure, Masked

DEALER = "K"
NAMES = ("A", "B", "C", "D")
SPEAKS = {**DISCLOSURES, "result": Disclosure(Masked, "the result")}

Program = Callable[[Session, Mapping[str, Any]], Any]


def run_program(
    program: Program,
    parties: tuple[str, ...],
    data: Mapping[str, Mapping[str, Any]],
    hide: bool = True,
    *,
    rng: Any = None,
    transcript: Transcript | None = None,
    replace: Mapping[str, Callable[[Channel], Any]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """What ``program(session, data of the party)`` returns at each data holder and at the dealer.

    ``rng`` makes the dealer's seeds, ``replace`` gives parties that do something else, and the rest
    is for `run_together`.
    """
    roles: dict[str, Callable[[Channel], Any]] = {
        party: partial(_take_part, program, parties, data.get(party, {}), hide, rng)
        for party in (*parties, DEALER)
    }
    transcript = Transcript() if transcript is None else transcript
    return run_together(roles | dict(replace or {}), transcript=transcript, timeout=20, **more)


def _take_part(
    program: Program,
    parties: tuple[str, ...],
    held: Mapping[str, Any],
    hide: bool,
    rng: Any,
    channel: Channel,
) -> Any:
    inner = channel.within("step 1", SPEAKS)
    with Session.join(inner, parties, DEALER, hide=hide, rng=rng) as session:
        return program(session, held)


def run_plain(program: Program, data: Mapping[str, Mapping[str, Any]], angles: Any = None) -> Any:
    """What it returns in one place, with everybody's data."""
    together = {key: value for held in data.values() for key, value in held.items()}
    return program(Session.plain(angles), together)


@dataclass(frozen=True, eq=False)
class Exact:
    """What a shared or private array should be: Python integers, reduced modulo 2^width."""

    values: Any
    width: int = 64

    def __post_init__(self) -> None:
        half = 1 << (self.width - 1)
        values = np.asarray(self.values, dtype=object)
        object.__setattr__(self, "values", (values + half) % (2 * half) - half)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def largest(self) -> int:
        return max((abs(one) for one in self.values.ravel()), default=0)

    def _with(self, other: Any, how: Callable[[Any, Any], Any]) -> Exact:
        if isinstance(other, Exact):
            return Exact(how(self.values, other.values), min(self.width, other.width))
        return Exact(how(self.values, np.asarray(other, dtype=object)), self.width)

    def __add__(self, other: Any) -> Exact:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Exact:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Exact:
        return self._with(other, lambda a, b: b - a)

    def __neg__(self) -> Exact:
        return self._with(-1, lambda a, b: a * b)

    def __mul__(self, other: Any) -> Exact:
        return self._with(other, lambda a, b: a * b)

    def __matmul__(self, other: Exact) -> Exact:
        return self._with(other, lambda a, b: np.asarray(a @ b))

    def __getitem__(self, at: Any) -> Exact:
        return Exact(self.values[at], self.width)

    @property
    def T(self) -> Exact:
        return Exact(np.swapaxes(self.values, -1, -2), self.width)

    def reshape(self, *shape: int) -> Exact:
        return Exact(self.values.reshape(shape), self.width)

    def sum(self, axis: int) -> Exact:
        return Exact(self.values.sum(axis=axis), self.width)

    def narrow(self, width: int) -> Exact:
        return Exact(self.values, min(width, self.width))

    def truncate(self, bits: int) -> Exact:
        return Exact((self.values + (1 << bits >> 1)) // (1 << bits))

    def below_zero(self) -> Exact:
        return Exact((self.values < 0).astype(int).astype(object))


def join_arrays(arrays: Sequence[Any], axis: int = 0) -> Any:
    """`concatenate` for shared and exact arrays."""
    if not isinstance(arrays[0], Exact):
        return concatenate(arrays, axis)
    values = np.concatenate([one.values for one in arrays], axis)
    return Exact(values, min(one.width for one in arrays))
