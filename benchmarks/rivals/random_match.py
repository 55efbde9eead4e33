"""Random Match: the remaining rows of both parties are paired at random, with A's label.

Our choice: partners are drawn anew in every batch. If B has no remaining rows, it is VFL.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor
from torch.nn import functional

from benchmarks.rivals.harness import Batches, Fitted, Problem, label_tensor, optimise
from benchmarks.rivals.vfl import Split, predictor
from vfsl.evidence.rows import Numbers


def partners(batch: Numbers, overlap: int, others: Numbers, rng: np.random.Generator) -> Numbers:
    """B's row for each of A's: the same person in the overlap, else anybody of B's own."""
    drawn = rng.choice(others, len(batch))
    return np.where(batch < overlap, batch, drawn).astype(np.int64)


def fit(problem: Problem, rng: np.random.Generator) -> Fitted:
    network = Split(problem, rng)
    others = problem.own(1)
    rows = problem.labelled() if len(others) else problem.labelled("overlap")
    batches = Batches(rows, problem.learning.batch_size, rng)
    first, second = (view.inputs for view in problem.views)

    def loss(step: int) -> Tensor:
        batch = batches.next()
        paired = partners(batch, problem.overlap, others, rng) if len(others) else batch
        scores = network(first.take(batch), second.take(paired))
        return functional.cross_entropy(scores, label_tensor(problem, batch))

    optimise([network], problem.steps, loss, problem.learning)
    return predictor(network)
