"""The torch modules; every weight of ours is drawn from a numpy generator, never a global one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from vfsl.evidence.encoders import CNN, MLP, Inputs


class MixedBody(nn.Module):
    """Numbers and embedded categories through fully connected layers."""

    def __init__(
        self, width: int, levels: Sequence[int], recipe: MLP, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.starts: Tensor
        self.register_buffer("starts", torch.as_tensor(np.cumsum([0, *levels])[:-1]))
        table = rng.normal(0, 0.1, (sum(levels), recipe.embedding))
        self.table = nn.Parameter(torch.as_tensor(table, dtype=torch.float32))
        widths = [width + len(levels) * recipe.embedding, *recipe.hidden]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [filled_linear(inputs, outputs, rng), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, rows: Inputs) -> Tensor:
        if rows.frequencies is not None:
            # The mean of embeddings is the embedding of frequencies.
            embedded = (rows.frequencies @ self.table).reshape(1, -1)
        else:
            places = rows.codes + self.starts
            embedded = nn.functional.embedding(places, self.table).flatten(1)
        answer: Tensor = self.layers(torch.cat([rows.numbers, embedded], dim=1))
        return answer


class PictureBody(nn.Module):
    """Three blocks of convolution, group normalisation, ReLU and pooling."""

    def __init__(self, recipe: CNN, rng: np.random.Generator) -> None:
        super().__init__()
        shape = recipe.shape if len(recipe.shape) == 3 else (1, *recipe.shape)
        self.shape = shape
        channels = [shape[0], recipe.width, 2 * recipe.width, 4 * recipe.width]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(channels):
            convolution = _raw(nn.Conv2d, inputs, outputs, 3, padding=1)
            _fill(convolution, 9 * inputs, rng, 2.0)
            groups = math.gcd(outputs, 4)
            layers += [convolution, nn.GroupNorm(groups, outputs), nn.ReLU(), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.width = channels[-1] * (shape[1] // 8) * (shape[2] // 8)

    def forward(self, rows: Inputs) -> Tensor:
        answer: Tensor = self.layers(rows.numbers.reshape(-1, *self.shape))
        return answer


class NumbersOnly(nn.Module):
    """A module of the user's own, which knows nothing of codes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, rows: Inputs) -> Tensor:
        answer: Tensor = self.module(rows.numbers)
        return answer


def filled_linear(
    inputs: int, outputs: int, rng: np.random.Generator, gain: float = 2.0
) -> nn.Linear:
    """A layer with uniform weights of variance ``gain`` / inputs and no bias yet."""
    layer: nn.Linear = _raw(nn.Linear, inputs, outputs)
    _fill(layer, inputs, rng, gain)
    return layer


def _fill(layer: nn.Module, fan_in: int, rng: np.random.Generator, gain: float) -> None:
    bound = math.sqrt(3 * gain / max(fan_in, 1))
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            values = rng.uniform(-bound, bound, tuple(parameter.shape))
            drawn = torch.as_tensor(values, dtype=torch.float32)
            parameter.copy_(drawn if name == "weight" else torch.zeros_like(drawn))


def _raw(kind: Any, *sizes: int, **options: int) -> Any:
    """A layer whose weights are not drawn yet, so that torch's global generator is left alone."""
    return skip_init(kind, *sizes, **options)  # type: ignore[no-untyped-call]
