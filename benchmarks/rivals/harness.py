"""What RISA's rivals share: the problem, the budget, encoders, and one training loop.

Rivals are for comparing quality. They run in one process, for two parties, and send no messages;
RISA itself runs over channels (vfsl.evidence.protocol), with the same result as in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from vfsl.evidence.encoders import Columns, Recipe
from vfsl.evidence.networks import Inputs, Learning, build_body, linear
from vfsl.evidence.rows import UNKNOWN, Numbers
from vfsl.values import Array


@dataclass(frozen=True, eq=False)
class View:
    """One party's rows, the overlap first, and the recipe of its network."""

    inputs: Inputs
    recipe: Recipe
    columns: Columns


@dataclass(frozen=True, eq=False)
class Problem:
    """Two parties, the label holder first.

    Attributes
    ----------
    views : tuple of View
        Of A, who holds labels, and of B.
    overlap : int
        The first rows of both views are the same people.
    labels : array of int
        Of A's rows; UNKNOWN where there is none.
    classes : int
    learning : Learning
        The budget: every method takes as many steps as Local in that many epochs of A's rows, and
        a step shows an encoder about ``batch_size`` rows, whatever they are used for.
    """

    views: tuple[View, View]
    overlap: int
    labels: Numbers
    classes: int
    learning: Learning

    @property
    def steps(self) -> int:
        rows = int((self.labels != UNKNOWN).sum())
        return self.learning.epochs * -(-rows // self.learning.batch_size)

    def labelled(self, within: str = "all") -> Numbers:
        """A's rows with a label: all, those of the overlap, or its own."""
        rows = np.flatnonzero(self.labels != UNKNOWN)
        if within == "overlap":
            rows = rows[rows < self.overlap]
        if within == "own":
            rows = rows[rows >= self.overlap]
        return rows.astype(np.int64)

    def own(self, place: int) -> Numbers:
        """Rows of a party that are not in the overlap."""
        return np.arange(self.overlap, len(self.views[place].inputs), dtype=np.int64)

    def body(self, place: int, rng: np.random.Generator) -> tuple[nn.Module, int]:
        view = self.views[place]
        return build_body(view.recipe, view.columns, rng)


class Fitted(Protocol):
    """A trained rival. Either party's rows may be None: it is absent."""

    def __call__(self, first: Inputs | None, second: Inputs | None) -> Array:
        """Class probabilities."""
        ...


Fit = Callable[[Problem, np.random.Generator], Fitted]


class Batches:
    """Endless batches of some rows: reshuffled whenever they are used up."""

    def __init__(self, rows: Numbers, size: int, rng: np.random.Generator) -> None:
        self._rows, self._size, self._rng = rows, max(1, min(size, len(rows))), rng
        self._left = rows[:0]

    def next(self) -> Numbers:
        if len(self._left) < self._size:
            self._left = np.concatenate([self._left, self._rng.permutation(self._rows)])
        batch, self._left = self._left[: self._size], self._left[self._size :]
        return batch


def optimise(
    modules: Iterable[nn.Module],
    steps: int,
    loss: Callable[[int], Tensor],
    learning: Learning,
    rates: Mapping[int, float] | None = None,
) -> None:
    """AdamW with half a cosine, ``loss(step)`` at each step; ``rates`` scale modules by place."""
    groups = [
        {"params": list(module.parameters()), "scale": (rates or {}).get(place, 1.0)}
        for place, module in enumerate(modules)
    ]
    optimiser = torch.optim.AdamW(groups, lr=1.0, weight_decay=learning.weight_decay)
    for step in range(steps):
        rate = learning.learning_rate * 0.5 * (1 + np.cos(np.pi * step / steps))
        for group in optimiser.param_groups:
            group["lr"] = rate * group["scale"]
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward([loss(step)])
        optimiser.step()


def joint_head(widths: Iterable[int], classes: int, rng: np.random.Generator) -> nn.Linear:
    """A linear head over concatenated features."""
    return linear(sum(widths), classes, rng, gain=1.0)


def evaluate(compute: Callable[[slice], Tensor], rows: int, size: int = 2048) -> Array:
    """Probabilities of many rows, some at a time and without gradients."""
    with torch.no_grad():
        parts = [
            torch.softmax(compute(slice(start, start + size)), dim=1).cpu().numpy()
            for start in range(0, rows, size)
        ]
    return np.concatenate(parts)


def part(inputs: Inputs, rows: Any) -> Inputs:
    return Inputs(inputs.numbers[rows], inputs.codes[rows])


def label_tensor(problem: Problem, rows: Numbers) -> Tensor:
    return torch.as_tensor(problem.labels[rows])
