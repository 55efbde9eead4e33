"""FedCVT: unique and common representations, attention, and cross-view pseudo-labels.

Each party has two encoders. The features of a row that a party does not have are estimated by
attention, from overlap rows (unique part) and from the other party's rows (common part). There are
three linear heads: A, B and both. The loss weights are those published for images; the thresholds
are 0.8, 0.7, 0.7 and the sharpening temperature is 0.5.

Our choices: the keys of attention are the step's own aligned batch, instead of blocks of 5,000
rows; an aligned row never attends to itself, which would make the estimation losses trivial; one
optimiser. One party alone is predicted by its own head.
"""

from __future__ import annotations

import math
from typing import NamedTuple

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
from vfsl.evidence.networks import Inputs, linear
from vfsl.values import Array

TEMPERATURE = 0.5
THRESHOLDS = (0.8, 0.7, 0.7)  # of both, A, B


class Weights(NamedTuple):
    """Of the losses beside cross-entropy."""

    common: float = 0.1
    orthogonal: float = 0.01
    estimate: float = 0.1
    labels: float = 1.0


class Views(NamedTuple):
    """The unique and the common representation of some rows at one party."""

    unique: Tensor
    common: Tensor

    @property
    def joined(self) -> Tensor:
        return torch.cat([self.unique, self.common], dim=1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, not_itself: bool = False) -> Tensor:
    """Sharpened attention: weights softmax(q·k / √d)^(1/T), normalised, times values."""
    likeness = queries @ keys.T / math.sqrt(keys.shape[1])
    if not_itself and len(keys) > 1:
        likeness = likeness.masked_fill(torch.eye(*likeness.shape, dtype=torch.bool), -torch.inf)
    # A power of a softmax is the softmax of multiplied scores.
    return torch.softmax(likeness / TEMPERATURE, dim=1) @ values


def orthogonality(views: Views) -> Tensor:
    """‖U Cᵀ‖ over the number of rows: 0 when unique and common parts share nothing."""
    shared: Tensor = torch.linalg.norm(views.unique @ views.common.T)
    return shared / len(views.unique)


def label_estimates(first: Views, second: Views, hot: Tensor) -> Tensor:
    """Cross-entropy of labels attended from B's unique part, and from its common part to A's."""
    found = (
        attend(second.unique, second.unique, hot, not_itself=True),
        attend(second.common, first.common, hot, not_itself=True),
    )
    logs = [torch.log((one * hot).sum(dim=1).clamp_min(1e-9)).mean() for one in found]
    return -torch.stack(logs).sum()


class CrossView(nn.Module):
    """Two encoders per party and three heads."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        super().__init__()
        made = [[problem.body(place, rng) for _ in range(2)] for place in (0, 1)]
        width = min(pair[0][1] for pair in made)
        # Attention across parties needs equal widths.
        self.encoders = nn.ModuleList(
            nn.ModuleList(nn.Sequential(body, linear(w, width, rng, gain=1.0)) for body, w in pair)
            for pair in made
        )
        self.alone = nn.ModuleList(
            linear(2 * width, problem.classes, rng, gain=1.0) for _ in range(2)
        )
        self.both = linear(4 * width, problem.classes, rng, gain=1.0)

    def views(self, place: int, rows: Inputs) -> Views:
        pair = self.encoders[place]
        if not isinstance(pair, nn.ModuleList):
            raise TypeError(pair)
        return Views(pair[0](rows), pair[1](rows))

    def scores(self, first: Inputs | None, second: Inputs | None) -> Tensor:
        """By the joint head, or by that of the one party that is there."""
        made: Tensor
        if first is None and second is not None:
            made = self.alone[1](self.views(1, second).joined)
        elif second is None and first is not None:
            made = self.alone[0](self.views(0, first).joined)
        elif first is not None and second is not None:
            joined = [self.views(0, first).joined, self.views(1, second).joined]
            made = self.both(torch.cat(joined, dim=1))
        else:
            raise ValueError("both parties are absent")
        return made


def fit(problem: Problem, rng: np.random.Generator) -> Fitted:
    return fit_weighted(problem, rng, Weights())


def fit_weighted(problem: Problem, rng: np.random.Generator, weights: Weights) -> Fitted:
    """Train with these weights of the extra losses."""
    model = CrossView(problem, rng)
    # A step shows an encoder as many rows as everywhere: half of them aligned, half its own.
    size = problem.learning.batch_size // 2
    aligned = Batches(problem.labelled("overlap"), size, rng)
    rest = [problem.labelled("own"), problem.own(1)]
    more = [Batches(rows, size, rng) if len(rows) else None for rows in rest]
    inputs = [view.inputs for view in problem.views]

    def loss(step: int) -> Tensor:
        rows = aligned.next()
        truth = label_tensor(problem, rows)
        first, second = (model.views(place, inputs[place].take(rows)) for place in (0, 1))
        total = _aligned_loss(model, first, second, truth, weights)
        if more[0] is not None:
            rows = more[0].next()
            own = model.views(0, inputs[0].take(rows))
            truth = label_tensor(problem, rows)
            total = total + _completed_loss(model, own, first, second, truth)
        if more[1] is not None:
            own = model.views(1, inputs[1].take(more[1].next()))
            total = total + _guessed_loss(model, own, first, second)
        return total

    optimise([model], problem.steps, loss, problem.learning)

    def predict(first: Inputs | None, second: Inputs | None) -> Array:
        rows = len(first or second or ())
        return evaluate(
            lambda of: model.scores(*(None if x is None else part(x, of) for x in (first, second))),
            rows,
        )

    return predict


def _aligned_loss(
    model: CrossView, first: Views, second: Views, truth: Tensor, weights: Weights
) -> Tensor:
    """All losses on aligned rows."""
    joined = torch.cat([first.joined, second.joined], dim=1)
    total = functional.cross_entropy(model.both(joined), truth)
    for head, views in zip(model.alone, (first, second), strict=True):
        total = total + functional.cross_entropy(head(views.joined), truth)
    total = total + weights.common * functional.mse_loss(first.common, second.common)
    total = total + weights.orthogonal * (orthogonality(first) + orthogonality(second))
    if len(truth) < 2:
        return total
    for own, other in ((first, second), (second, first)):
        unique = attend(other.unique, other.unique, own.unique, not_itself=True)
        common = attend(other.common, own.common, own.common, not_itself=True)
        estimated = torch.cat([unique, common], dim=1)
        total = total + weights.estimate * functional.mse_loss(estimated, own.joined)
    hot = functional.one_hot(truth, model.both.out_features).float()
    return total + weights.labels * label_estimates(first, second, hot)


def _completed_loss(
    model: CrossView, own: Views, first: Views, second: Views, truth: Tensor
) -> Tensor:
    """A's own rows, B's part attended, under their true labels."""
    unique = attend(own.unique, first.unique, second.unique)
    common = attend(own.common, second.common, second.common)
    joined = torch.cat([own.joined, unique, common], dim=1)
    alone = functional.cross_entropy(model.alone[0](own.joined), truth)
    return alone + functional.cross_entropy(model.both(joined), truth)


def _guessed_loss(model: CrossView, own: Views, first: Views, second: Views) -> Tensor:
    """B's own rows, A's part attended, where all three heads agree and are sure."""
    unique = attend(own.unique, second.unique, first.unique)
    common = attend(own.common, first.common, first.common)
    estimated = torch.cat([unique, common], dim=1)
    scores = model.both(torch.cat([estimated, own.joined], dim=1))
    with torch.no_grad():
        heads = (scores, model.alone[0](estimated), model.alone[1](own.joined))
        best = [torch.softmax(one, dim=1).max(dim=1) for one in heads]
        sure = torch.stack([b.values >= t for b, t in zip(best, THRESHOLDS, strict=True)]).all(0)
        agree = (best[0].indices == best[1].indices) & (best[0].indices == best[2].indices)
        kept = sure & agree
    if not bool(kept.any()):
        return torch.zeros(())
    guessed = functional.cross_entropy(scores, best[0].indices, reduction="none")
    return (guessed * kept).sum() / len(kept)
