"""SSL+VFL: each party pre-trains its encoder by contrastive learning on all its rows, then VFL.

For images SimCLR over two random versions (simclr.py), temperature 0.5. For tables SCARF: the
clean row against one with 60 % of its cells replaced, temperature 1. The projector has two layers
and is discarded. In fine-tuning the encoders learn at a tenth of the head's rate. Pre-training and
fine-tuning each take the whole budget of steps.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.rivals.augment import corrupt
from benchmarks.rivals.harness import Batches, Fitted, Problem, label_tensor, optimise
from benchmarks.rivals.simclr import distort
from benchmarks.rivals.vfl import Split, predictor
from vfsl.evidence.encoders import CNN, PixelColumns
from vfsl.evidence.networks import linear

PROJECTION = 64


def contrast(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """NT-Xent: each version should be nearer to its twin than to every other one."""
    views = functional.normalize(torch.cat([first, second]), dim=1)
    likeness = views @ views.T / temperature
    likeness = likeness.masked_fill(torch.eye(len(views), dtype=torch.bool), -torch.inf)
    twins = torch.arange(len(views)).roll(len(first))
    return functional.cross_entropy(likeness, twins)


def pretrain(
    problem: Problem, place: int, body: nn.Module, width: int, rng: np.random.Generator, steps: int
) -> None:
    view = problem.views[place]
    projector = nn.Sequential(
        linear(width, width, rng), nn.ReLU(), linear(width, PROJECTION, rng, gain=1.0)
    )
    rows = np.arange(len(view.inputs), dtype=np.int64)
    batches = Batches(rows, problem.learning.batch_size, rng)
    recipe, columns = view.recipe, view.columns

    def loss(step: int) -> Tensor:
        clean = view.inputs.take(batches.next())
        if isinstance(recipe, CNN) and isinstance(columns, PixelColumns):
            pair, temperature = [distort(clean, recipe, columns, rng) for _ in range(2)], 0.5
        else:
            pair, temperature = [clean, corrupt(clean, view.inputs, rng)], 1.0
        first, second = (projector(body(one)) for one in pair)
        return contrast(first, second, temperature)

    optimise([body, projector], steps, loss, problem.learning)


def fit(problem: Problem, rng: np.random.Generator) -> Fitted:
    return fit_after(problem, rng, problem.steps)


def fit_after(problem: Problem, rng: np.random.Generator, pretraining: int) -> Fitted:
    """VFL after this many steps of pre-training."""
    network = Split(problem, rng)
    for place, body in enumerate(network.bodies):
        pretrain(problem, place, body, network.widths[place], rng, pretraining)
    batches = Batches(problem.labelled("overlap"), problem.learning.batch_size, rng)
    first, second = (view.inputs for view in problem.views)

    def loss(step: int) -> Tensor:
        batch = batches.next()
        scores = network(first.take(batch), second.take(batch))
        return functional.cross_entropy(scores, label_tensor(problem, batch))

    optimise([network.head, network.bodies], problem.steps, loss, problem.learning, {1: 0.1})
    return predictor(network)
