"""Local: only the label holder's columns, all of its labelled rows; no other party.

Without A's columns it predicts the class frequencies of the training rows.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor
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


def fit(problem: Problem, rng: np.random.Generator) -> Fitted:
    body, width = problem.body(0, rng)
    head = joint_head([width], problem.classes, rng)
    rows = problem.labelled()
    batches = Batches(rows, problem.learning.batch_size, rng)

    def loss(step: int) -> Tensor:
        batch = batches.next()
        scores = head(body(problem.views[0].inputs.take(batch)))
        return functional.cross_entropy(scores, label_tensor(problem, batch))

    optimise([body, head], problem.steps, loss, problem.learning)
    frequencies = np.bincount(problem.labels[rows], minlength=problem.classes) / len(rows)

    def predict(first: Inputs | None, second: Inputs | None) -> Array:
        if first is None:
            return np.tile(frequencies, (len(second or ()), 1))
        return evaluate(lambda rows: head(body(part(first, rows))), len(first))

    return predict
