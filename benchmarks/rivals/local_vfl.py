"""Local+VFL: A's own rows are trained with the common rows, with zeros for the columns of B.

Zeros replace B's scaled columns, and code 0 (missing) its categories. They go through B's network,
as "imputed with zeros" in the RISA paper says.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.rivals.harness import Batches, Fitted, Problem, label_tensor, optimise
from benchmarks.rivals.vfl import Split, predictor
from vfsl.evidence.networks import Inputs
from vfsl.values import Array


def put_zeros(inputs: Inputs, absent: Array) -> Inputs:
    """The rows with zeros where the party is absent."""
    here = torch.as_tensor(~absent)[:, None]
    return Inputs(inputs.numbers * here, inputs.codes * here)


def zeros(like: Inputs, rows: int) -> Inputs:
    return Inputs(
        like.numbers.new_zeros(rows, like.numbers.shape[1]),
        like.codes.new_zeros(rows, like.codes.shape[1]),
    )


def fit(problem: Problem, rng: np.random.Generator) -> Fitted:
    network = Split(problem, rng)
    batches = Batches(problem.labelled(), problem.learning.batch_size, rng)
    first, second = (view.inputs for view in problem.views)

    def loss(step: int) -> Tensor:
        batch = batches.next()
        absent = batch >= problem.overlap
        other = put_zeros(second.take(np.where(absent, 0, batch)), absent)
        scores = network(first.take(batch), other)
        return functional.cross_entropy(scores, label_tensor(problem, batch))

    optimise([network], problem.steps, loss, problem.learning)
    joint = predictor(network)

    return predict_with_zeros(joint, (first, second))


def predict_with_zeros(joint: Fitted, like: tuple[Inputs, Inputs]) -> Fitted:
    """Predict with rows of zeros for an absent party."""

    def predict(first: Inputs | None, second: Inputs | None) -> Array:
        rows = len(first or second or ())
        return joint(
            zeros(like[0], rows) if first is None else first,
            zeros(like[1], rows) if second is None else second,
        )

    return predict
