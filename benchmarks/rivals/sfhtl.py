"""SFHTL-style: autoencoders, maps between the parties' features, completion, pseudo-labels.

The losses of the paper (Feng et al., "Semi-Supervised Federated Heterogeneous Transfer Learning")
are not public; this follows its abstract. Each party has an autoencoder over all of its rows.
Two-layer maps take the features of one party to those of the other; they are learned on overlap
rows, and complete the rows outside the overlap. The joint classifier is trained on A's labelled
rows (completed outside the overlap), with 0.1 × reconstruction and 0.1 × map loss. In three rounds,
B's remaining rows join with a pseudo-label where the joint classifier's probability is at least
0.9. For an absent party, mapped features are used.
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
    label_tensor,
    optimise,
    part,
)
from benchmarks.rivals.vfl import Split
from vfsl.evidence.networks import Inputs, linear
from vfsl.evidence.rows import Numbers, pseudo_labels
from vfsl.values import Array

RECONSTRUCTION = MAP = 0.1
SURE = 0.9
ROUNDS = 3


def flat(rows: Inputs, levels: tuple[int, ...]) -> Tensor:
    """Numbers, and categories as one-hot blocks: what the autoencoder is to restore."""
    blocks = [functional.one_hot(rows.codes[:, place], count) for place, count in enumerate(levels)]
    return torch.cat([rows.numbers, *blocks], dim=1).float()


def map_loss(maps: nn.ModuleList, features: list[Tensor]) -> Tensor:
    """The distance between each party's features and the mapped features of the other."""
    there = functional.mse_loss(maps[0](features[0]), features[1])
    back = functional.mse_loss(maps[1](features[1]), features[0])
    return there + back


class Style(nn.Module):
    """Encoders with a joint head, decoders, and a map in each direction."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        super().__init__()
        self.split = Split(problem, rng)
        self.levels = [view.columns.levels for view in problem.views]
        widths = self.split.widths
        outputs = [view.columns.width + sum(view.columns.levels) for view in problem.views]
        self.decoders = nn.ModuleList(
            linear(width, output, rng, gain=1.0)
            for width, output in zip(widths, outputs, strict=True)
        )
        self.maps = nn.ModuleList(
            nn.Sequential(linear(a, b, rng), nn.ReLU(), linear(b, b, rng, gain=1.0))
            for a, b in (widths, widths[::-1])
        )

    def features(self, place: int, rows: Inputs) -> Tensor:
        made: Tensor = self.split.bodies[place](rows)
        return made

    def joint(self, features: list[Tensor]) -> Tensor:
        scores: Tensor = self.split.head(torch.cat(features, dim=1))
        return scores

    def scores(self, first: Inputs | None, second: Inputs | None) -> Tensor:
        """Scores of the joint head; an absent party's features are mapped from the other's."""
        if first is None and second is not None:
            own = self.features(1, second)
            return self.joint([self.maps[1](own), own])
        if second is None and first is not None:
            own = self.features(0, first)
            return self.joint([own, self.maps[0](own)])
        if first is None or second is None:
            raise ValueError("both parties are absent")
        return self.joint([self.features(0, first), self.features(1, second)])

    def reconstruction(self, place: int, rows: Inputs) -> Tensor:
        restored = self.decoders[place](self.features(place, rows))
        return functional.mse_loss(restored, flat(rows, self.levels[place]))


def fit(problem: Problem, rng: np.random.Generator) -> Fitted:
    return fit_weighted(problem, rng, RECONSTRUCTION, MAP)


def fit_weighted(
    problem: Problem, rng: np.random.Generator, reconstruction: float, mapping: float
) -> Fitted:
    """Train with these weights of the two extra losses."""
    model = Style(problem, rng)
    pseudo = np.full(len(problem.own(1)), -1, dtype=np.int64)
    for number in range(ROUNDS):
        if number and len(pseudo):
            others = problem.views[1].inputs.take(problem.own(1))
            pseudo = pseudo_labels(_answer(model, None, others), SURE)
        _train(problem, model, pseudo, rng, reconstruction, mapping)

    def predict(first: Inputs | None, second: Inputs | None) -> Array:
        return _answer(model, first, second)

    return predict


def _answer(model: Style, first: Inputs | None, second: Inputs | None) -> Array:
    return evaluate(
        lambda of: model.scores(*(None if x is None else part(x, of) for x in (first, second))),
        len(first or second or ()),
    )


def _train(
    problem: Problem,
    model: Style,
    pseudo: Numbers,
    rng: np.random.Generator,
    reconstruction: float,
    mapping: float,
) -> None:
    size = problem.learning.batch_size
    first, second = (view.inputs for view in problem.views)
    aligned = Batches(np.arange(problem.overlap), size, rng)
    labelled = Batches(problem.labelled(), size, rng)
    sure = problem.own(1)[pseudo >= 0]
    guessed = Batches(sure, size, rng) if len(sure) else None

    def loss(step: int) -> Tensor:
        batch = labelled.next()
        together, alone = batch[batch < problem.overlap], batch[batch >= problem.overlap]
        total = torch.zeros(())
        for rows, other in ((together, second.take(together)), (alone, None)):
            if len(rows):
                scores = model.scores(first.take(rows), other)
                truth = label_tensor(problem, rows)
                total = total + functional.cross_entropy(scores, truth, reduction="sum")
        total = total / len(batch)
        if guessed is not None:
            rows = guessed.next()
            truth = torch.as_tensor(pseudo[rows - problem.overlap])
            total = total + functional.cross_entropy(model.scores(None, second.take(rows)), truth)
        shared = aligned.next()
        rebuilt = model.reconstruction(0, first.take(batch))
        rebuilt = rebuilt + model.reconstruction(1, second.take(rng.integers(0, len(second), size)))
        features = [model.features(0, first.take(shared)), model.features(1, second.take(shared))]
        return total + reconstruction * rebuilt + mapping * map_loss(model.maps, features)

    optimise([model], -(-problem.steps // ROUNDS), loss, problem.learning)
