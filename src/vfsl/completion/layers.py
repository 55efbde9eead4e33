"""Layers and draws whose randomness comes from a passed torch Generator, never the global one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from vfsl.completion.mixed import MixedEncoder, Span
from vfsl.values import Array

Layer = TypeVar("Layer", bound=nn.Module)


def source_from(rng: np.random.Generator) -> torch.Generator:
    """A torch Generator seeded by a numpy one."""
    return torch.Generator().manual_seed(int(rng.integers(2**63)))


def linear(inputs: int, outputs: int, source: torch.Generator) -> nn.Linear:
    """A linear layer with PyTorch's usual initial weights, drawn from ``source``."""
    return _draw_weights(nn.Linear(inputs, outputs, device="meta"), inputs, source)


def convolution(inputs: int, outputs: int, source: torch.Generator, **shape: Any) -> nn.Conv2d:
    """A convolution with PyTorch's usual initial weights.

    DC-GAN's deviation of 0.02 suits pictures under batch norm; rows of a few cells vanish in it.
    """
    layer = nn.Conv2d(inputs, outputs, device="meta", **shape)
    return _draw_weights(layer, inputs * layer.weight[0, 0].numel(), source)


def deconvolution(
    inputs: int, outputs: int, source: torch.Generator, **shape: Any
) -> nn.ConvTranspose2d:
    """A transposed convolution with PyTorch's usual initial weights."""
    layer = nn.ConvTranspose2d(inputs, outputs, device="meta", **shape)
    return _draw_weights(layer, outputs * layer.weight[0, 0].numel(), source)


def perceptron(widths: Sequence[int], source: torch.Generator) -> nn.Sequential:
    """Linear layers with ReLU between them, none after the last."""
    parts: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        parts += [linear(inputs, outputs, source), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def _draw_weights(layer: Layer, inputs: int, source: torch.Generator) -> Layer:
    """Weights for a layer that was made without any, so that the global generator is left alone."""
    layer = layer.to_empty(device="cpu")
    bound = 1 / math.sqrt(max(inputs, 1))
    with torch.no_grad():
        for values in layer.parameters():
            values.copy_((2 * torch.rand(values.shape, generator=source) - 1) * bound)
    return layer


def uniform(shape: Sequence[int], source: torch.Generator, device: Any = "cpu") -> Tensor:
    """Uniform draws; always made on the CPU, so that every device gets the same."""
    return torch.rand(tuple(shape), generator=source).to(device)


def normal(shape: Sequence[int], source: torch.Generator, device: Any = "cpu") -> Tensor:
    """Standard normal draws; always made on the CPU."""
    return torch.randn(tuple(shape), generator=source).to(device)


def gumbel(shape: Sequence[int], source: torch.Generator, device: Any = "cpu") -> Tensor:
    """Standard Gumbel draws: the largest of logits plus these is a draw from their softmax."""
    draws = uniform(shape, source, device).clamp_(1e-20, 1 - 1e-7)
    return -torch.log(-torch.log(draws))


def draw_one_hot(logits: Tensor, source: torch.Generator) -> Tensor:
    """One choice per row, drawn from the softmax of its logits, as a one-hot block."""
    chosen = (logits + gumbel(logits.shape, source, logits.device)).argmax(1)
    return nn.functional.one_hot(chosen, logits.shape[1]).to(logits.dtype)


class Dropout(nn.Module):
    """Dropout whose draws come from ``source``."""

    def __init__(self, fraction: float, source: torch.Generator) -> None:
        super().__init__()
        self.fraction = fraction
        self._source = source

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.fraction == 0:
            return values
        kept = uniform(values.shape, self._source, values.device) >= self.fraction
        return values * kept / (1 - self.fraction)


class Pieces(nn.Module):
    """Numbers as how far they fill the pieces between their quantiles (Gorishniy et al. 2022).

    One standardised input shows a perceptron neither a crowd at zero nor who is who in a long tail;
    a tree sees both. Each piece is an input of its own: 0 below it, 1 above it, linear within. The
    knots are no weights, but they are learned from data and are saved with the weights.
    """

    knots: Tensor

    def __init__(self, scalars: int, pieces: int) -> None:
        super().__init__()
        self.width = scalars * pieces
        self.register_buffer("knots", torch.zeros(scalars, pieces + 1 if pieces else 0))

    def learn(self, values: Tensor, known: Tensor) -> None:
        """Put knots at the distinct quantiles of the known values; both are (rows, scalars)."""
        scalars, count = self.knots.shape
        if not count:
            return
        for place in range(scalars):
            told = values[known[:, place] > 0, place].cpu().numpy()
            cuts = np.quantile(told, np.linspace(0, 1, count)) if len(told) else np.zeros(1)
            found = np.unique(cuts.astype(np.float32))
            # Fewer distinct quantiles leave pieces without a width at the end.
            padded = np.pad(found, (0, count - len(found)), mode="edge")
            self.knots[place] = torch.from_numpy(padded)

    def forward(self, values: Tensor, known: Tensor) -> Tensor:
        """(rows, scalars · pieces); 0 where the number is not known or the piece has no width."""
        low, high = self.knots[:, :-1], self.knots[:, 1:]
        wide = high > low
        filled = (values[:, :, None] - low) / torch.where(wide, high - low, 1)
        return (filled.clamp(0, 1) * (wide * known[:, :, None])).flatten(1)


class Layout:
    """How a network sees an encoded table: all scalars first, then the one-hot choices.

    Attributes
    ----------
    scalars : int
        How many scalars there are.
    choices : list of Span
        In order; their places are those of the encoder's matrix.
    widths : list of int
        Of the choices.
    width : int
        Of the whole input.
    owners : Tensor
        For each network column, the place of its table column.
    firsts : Tensor
        The first network column of each scalar and of each choice.
    """

    def __init__(self, encoder: MixedEncoder) -> None:
        numbers = [span for span in encoder.spans_ if span.kind == "scalar"]
        self.choices: list[Span] = [span for span in encoder.spans_ if span.kind == "choice"]
        self.scalars = len(numbers)
        self.widths = [span.width for span in self.choices]
        self.width = encoder.width
        places = [np.arange(span.start, span.stop) for span in [*numbers, *self.choices]]
        self._order = np.concatenate(places) if places else np.empty(0, dtype=np.intp)
        self.owners = torch.from_numpy(encoder.owners[self._order].astype(np.int64))
        firsts = np.cumsum([0, *[1] * self.scalars, *self.widths])[:-1]
        self.firsts = torch.from_numpy(firsts.astype(np.int64))
        # The choice of each network column behind the scalars, as its place and as a matrix.
        of = np.repeat(np.arange(len(self.widths)), self.widths)
        self._choice_of = torch.from_numpy(of.astype(np.int64))
        self._belongs = torch.from_numpy(np.eye(len(self.widths), dtype=np.float32)[of])

    def into(self, matrix: Array, device: Any = "cpu") -> Tensor:
        """An encoder's matrix as the network's input."""
        return torch.from_numpy(matrix[:, self._order].astype(np.float32)).to(device)

    def back(self, values: Tensor) -> Array:
        """The network's output as an encoder's matrix."""
        matrix = np.empty((len(values), self.width))
        matrix[:, self._order] = values.detach().cpu().numpy()
        return matrix

    def split(self, values: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Scalars, and the blocks of choices."""
        if not self.widths:
            return values, ()
        scalars, *blocks = torch.split_with_sizes(values, [self.scalars, *self.widths], dim=1)
        return scalars, tuple(blocks)

    def softmax(self, logits: Tensor) -> Tensor:
        """Choices by softmax, scalars as they are."""
        scalars, blocks = self.split(logits)
        return torch.cat([scalars, *(torch.softmax(block, 1) for block in blocks)], dim=1)

    def tanh_gumbel(self, logits: Tensor, temperature: float, source: torch.Generator) -> Tensor:
        """Scalars by tanh, choices by Gumbel-softmax: what a GAN shows its critic."""
        scalars, blocks = self.split(logits)
        if not blocks:
            return torch.tanh(scalars)
        draws = gumbel((len(logits), sum(self.widths)), source, logits.device)
        parts = torch.split_with_sizes(draws, self.widths, dim=1)
        soft = [
            torch.softmax((block + part) / temperature, dim=1)
            for block, part in zip(blocks, parts, strict=True)
        ]
        return torch.cat([torch.tanh(scalars), *soft], dim=1)

    def cross_entropy(self, logits: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy of each choice, (rows, choices)."""
        values, wanted = logits[:, self.scalars :], target[:, self.scalars :]
        belongs = self._belongs.to(values)
        # All choices at once: one pass for each of them costs more than what they compute.
        with torch.no_grad():
            place = self._choice_of.to(values.device).expand(len(values), -1)
            largest = values.new_full((len(values), len(self.widths)), -torch.inf)
            largest = largest.scatter_reduce(1, place, values, "amax")
            shift = largest.gather(1, place)
        total = largest + torch.log((values - shift).exp() @ belongs)
        return total * (wanted @ belongs) - (values * wanted) @ belongs

    def draw(self, logits: Tensor, source: torch.Generator) -> Tensor:
        """Choices drawn from their softmax, as one-hot blocks; scalars as they are."""
        scalars, blocks = self.split(logits)
        return torch.cat([scalars, *(draw_one_hot(block, source) for block in blocks)], dim=1)
