"""Few-shot VFL: labels from clustered gradients, local FixMatch, two exchanges.

1. B sends features of overlap rows from an untrained encoder and gets the gradient of the summed
   loss under an untrained linear head; k-means on it gives each overlap row a temporary label.
2. Each party trains locally: cross-entropy on its labelled rows, and FixMatch on all of its rows
   (where the weak version is classified with probability 0.85, the strong one is trained to agree).
3. The server trains heads over frozen features of overlap rows.
4. Few-shot: B's remaining rows get pseudo-labels from B alone and from both parties (A's features
   by attention). Those that agree and are certain join B's labelled rows, by clustering the
   gradients of those labels anew. Steps 2 and 3 are repeated.

Our choices: A uses its true labels, since it holds them, instead of clusters; 10 restarts; the
budget of steps is shared by the two local phases; heads take 200 full-batch steps. A alone is
predicted by its local network, B alone by the server's head over its features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.rivals.augment import strong, weak
from benchmarks.rivals.harness import Batches, Fitted, Problem, evaluate, optimise, part
from vfsl.evidence.networks import Inputs, linear
from vfsl.evidence.rows import Numbers
from vfsl.values import Array

SURE = 0.85
_HEAD_STEPS = 200
Features = Callable[[int, Numbers], Tensor]


def summed_gradient(features: Tensor, other: Tensor, head: nn.Linear, truth: Tensor) -> Array:
    """The gradient of the summed cross-entropy by the features: nearly K distinct rows."""
    leaf = features.detach().requires_grad_()
    scores = head(torch.cat([other.detach(), leaf], dim=1))
    loss = functional.cross_entropy(scores, truth, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, leaf)
    return np.asarray(gradient.numpy())


def clusters(gradients: Array, count: int, rng: np.random.Generator) -> Numbers:
    """A temporary label for each row: the cluster of its gradient."""
    distinct = len(np.unique(gradients.round(12), axis=0))
    seed = int(rng.integers(1 << 31))
    model = KMeans(min(count, distinct), n_init=10, random_state=seed)
    return np.asarray(model.fit_predict(gradients.astype(np.float64)), dtype=np.int64)


def agreement(weak_scores: Tensor, strong_scores: Tensor) -> Tensor:
    """FixMatch: where the weak version is certain, the strong one should agree."""
    sure, guess = torch.softmax(weak_scores.detach(), dim=1).max(dim=1)
    each = functional.cross_entropy(strong_scores, guess, reduction="none")
    return (each * (sure >= SURE)).mean()


def train_locally(
    problem: Problem,
    place: int,
    network: nn.Sequential,
    rows: Numbers,
    labels: Numbers,
    rng: np.random.Generator,
    weight: float = 1.0,
) -> None:
    """Cross-entropy on rows with a label, FixMatch on all; ``weight`` is that of FixMatch."""
    # A step shows the network as many rows as everywhere: half labelled, half for FixMatch.
    view, size = problem.views[place], problem.learning.batch_size // 2
    order = np.arange(len(rows), dtype=np.int64)
    labelled = Batches(order, size, rng)
    free = Batches(np.arange(len(view.inputs), dtype=np.int64), size, rng)

    def loss(step: int) -> Tensor:
        chosen = labelled.next()
        scores = network(weak(view.inputs.take(rows[chosen]), view.recipe, rng))
        total = functional.cross_entropy(scores, torch.as_tensor(labels[chosen]))
        if not weight:
            return total
        more = view.inputs.take(free.next())
        with torch.no_grad():
            guessed = network(weak(more, view.recipe, rng))
        return total + weight * agreement(guessed, network(strong(more, view.recipe, rng)))

    optimise([network], max(1, problem.steps // 2), loss, problem.learning)


def fit(problem: Problem, rng: np.random.Generator) -> Fitted:
    return fit_weighted(problem, rng, 1.0)


def fit_weighted(problem: Problem, rng: np.random.Generator, weight: float) -> Fitted:
    """Train with this weight of the FixMatch loss."""
    made = [problem.body(place, rng) for place in (0, 1)]
    bodies, widths = [body for body, _ in made], [width for _, width in made]
    networks = [
        nn.Sequential(body, linear(width, problem.classes, rng, gain=1.0)) for body, width in made
    ]
    aligned = problem.labelled("overlap")
    truth = torch.as_tensor(problem.labels[aligned])
    inputs = [view.inputs for view in problem.views]

    def features(place: int, rows: Numbers) -> Tensor:
        with torch.no_grad():
            made: Tensor = bodies[place](inputs[place].take(rows))
            return made

    untrained = linear(sum(widths), problem.classes, rng, gain=1.0)
    gradient = summed_gradient(features(1, aligned), features(0, aligned), untrained, truth)
    labelled = problem.labelled()
    train_locally(problem, 0, networks[0], labelled, problem.labels[labelled], rng, weight)
    temporary = clusters(gradient, problem.classes, rng)
    train_locally(problem, 1, networks[1], aligned, temporary, rng, weight)
    heads = _heads(problem, features(0, aligned), features(1, aligned), truth, rng)
    kept, guessed = _kept(problem, features, aligned, heads)
    if len(kept):
        # Labels reach B as gradients again, so that clusters and classes cannot be confused.
        rows = np.concatenate([aligned, kept])
        labels = torch.cat([truth, guessed])
        missing = attend(features(1, kept), features(1, aligned), features(0, aligned))
        firsts = torch.cat([features(0, aligned), missing])
        gradient = summed_gradient(features(1, rows), firsts, untrained, labels)
        temporary = clusters(gradient, problem.classes, rng)
    else:
        rows = aligned
    train_locally(problem, 1, networks[1], rows, temporary, rng, weight)
    train_locally(problem, 0, networks[0], labelled, problem.labels[labelled], rng, weight)
    heads = _heads(problem, features(0, aligned), features(1, aligned), truth, rng)

    def scores(first: Inputs | None, second: Inputs | None) -> Tensor:
        made: Tensor
        if second is None:
            made = networks[0](first)
        elif first is None:
            made = heads[1](bodies[1](second))
        else:
            made = heads[2](torch.cat([bodies[0](first), bodies[1](second)], dim=1))
        return made

    def predict(first: Inputs | None, second: Inputs | None) -> Array:
        rows = len(first or second or ())
        return evaluate(
            lambda of: scores(*(None if x is None else part(x, of) for x in (first, second))), rows
        )

    return predict


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return torch.softmax(queries @ keys.T / math.sqrt(keys.shape[1]), dim=1) @ values


def _heads(
    problem: Problem, first: Tensor, second: Tensor, truth: Tensor, rng: np.random.Generator
) -> list[nn.Linear]:
    """The server's heads over A, B and both, trained on frozen features."""
    heads = []
    for given in (first, second, torch.cat([first, second], dim=1)):
        head = linear(given.shape[1], problem.classes, rng, gain=1.0)
        optimise([head], _HEAD_STEPS, partial(_head_loss, head, given, truth), problem.learning)
        heads.append(head)
    return heads


def _head_loss(head: nn.Linear, given: Tensor, truth: Tensor, step: int) -> Tensor:
    return functional.cross_entropy(head(given), truth)


def _kept(
    problem: Problem, features: Features, aligned: Numbers, heads: list[nn.Linear]
) -> tuple[Numbers, Tensor]:
    """B's own rows that B's head and the joint head give the same sure label."""
    rows = problem.own(1)
    if not len(rows):
        return rows[:0], torch.zeros(0, dtype=torch.int64)
    own = features(1, rows)
    other = attend(own, features(1, aligned), features(0, aligned))
    with torch.no_grad():
        alone = torch.softmax(heads[1](own), dim=1).max(dim=1)
        both = torch.softmax(heads[2](torch.cat([other, own], dim=1)), dim=1).max(dim=1)
    sure = (alone.values >= SURE) & (both.values >= SURE) & (alone.indices == both.indices)
    return rows[sure.numpy()], both.indices[sure]
