"""VFL: a split network over concatenated features, cross-entropy on labelled overlap rows only.

An absent party's features are zeros, at prediction only: the paper leaves it open.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.rivals.harness import (
    Batches,
    Fitted,
    Problem,
    evaluate,
    joint_head,
    label_tensor,
    optimise,
    part,
)
from vfsl.evidence.networks import Inputs
from vfsl.values import Array


class Split(nn.Module):
    """Two bodies and a linear head over both."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        super().__init__()
        made = [problem.body(place, rng) for place in (0, 1)]
        self.bodies = nn.ModuleList(body for body, _ in made)
        self.widths = [width for _, width in made]
        self.head = joint_head(self.widths, problem.classes, rng)

    def features(self, first: Inputs | None, second: Inputs | None) -> list[Tensor]:
        """Both parties' features; zeros for one that is absent."""
        found = [None if x is None else self.bodies[m](x) for m, x in enumerate((first, second))]
        rows = next(len(one) for one in found if one is not None)
        return [
            torch.zeros(rows, width) if one is None else one
            for one, width in zip(found, self.widths, strict=True)
        ]

    def forward(self, first: Inputs | None, second: Inputs | None) -> Tensor:
        scores: Tensor = self.head(torch.cat(self.features(first, second), dim=1))
        return scores


def predictor(network: Split) -> Fitted:
    """Probabilities by the joint head."""

    def predict(first: Inputs | None, second: Inputs | None) -> Array:
        given = first if first is not None else second
        rows = 0 if given is None else len(given)

        def scores(of: slice) -> Tensor:
            made: Tensor = network(*(None if x is None else part(x, of) for x in (first, second)))
            return made

        return evaluate(scores, rows)

    return predict


def fit(problem: Problem, rng: np.random.Generator) -> Fitted:
    network = Split(problem, rng)
    batches = Batches(problem.labelled("overlap"), problem.learning.batch_size, rng)
    first, second = problem.views

    def loss(step: int) -> Tensor:
        batch = batches.next()
        scores = network(first.inputs.take(batch), second.inputs.take(batch))
        return functional.cross_entropy(scores, label_tensor(problem, batch))

    optimise([network], problem.steps, loss, problem.learning)
    return predictor(network)
