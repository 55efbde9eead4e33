"""Rows as small pictures, for the GANs that read tables with convolutions.

Tensors of pictures keep the channels of a cell together, which is what convolutions on a CPU are
fastest with.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vfsl.completion.layers import convolution, deconvolution, linear
from vfsl.errors import DataError

LARGEST = 48


def side_for(cells: int, least: int = 4) -> int:
    """The side of the smallest square that holds so many cells: a multiple of 4."""
    side = least
    while side * side < cells:
        side += 4
    if side > LARGEST:
        raise DataError(
            f"A row has {cells:,} encoded cells, but convolutions here take at most "
            f"{LARGEST * LARGEST:,}; use CTGAN, or merge rare categories."
        )
    return side


def to_square(rows: Tensor, side: int) -> Tensor:
    """Rows, zero-padded, as pictures of one channel."""
    padded = nn.functional.pad(rows, (0, side * side - rows.shape[1]))
    return _by_cell(padded.reshape(len(rows), 1, side, side))


def from_square(pictures: Tensor, cells: int) -> Tensor:
    """The first cells of each picture."""
    return pictures.flatten(1)[:, :cells]


def _by_cell(pictures: Tensor) -> Tensor:
    return pictures.contiguous(memory_format=torch.channels_last)


def _weights_by_cell(layers: nn.Sequential) -> nn.Sequential:
    for weights in layers.parameters():
        if weights.dim() == 4:
            weights.data = _by_cell(weights.data)
    return layers


class SquareGenerator(nn.Module):
    """A linear layer, two deconvolutions that double the side, and one that gives the picture."""

    def __init__(
        self,
        inputs: int,
        side: int,
        channels: int,
        source: torch.Generator,
        attention: bool = False,
    ) -> None:
        super().__init__()
        self.start, self.channels = side // 4, 4 * channels
        wide, half = 4 * channels, 2 * channels
        self.first = linear(inputs, wide * self.start**2, source)
        double = {"kernel_size": 4, "stride": 2, "padding": 1, "bias": False}
        layers = nn.Sequential(
            nn.BatchNorm2d(wide),
            nn.ReLU(),
            deconvolution(wide, half, source, **double),
            nn.BatchNorm2d(half),
            nn.ReLU(),
            SelfAttention(half, source) if attention else nn.Identity(),
            deconvolution(half, channels, source, **double),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            deconvolution(channels, 1, source, kernel_size=3, stride=1, padding=1),
        )
        self.layers = _weights_by_cell(layers)

    def forward(self, noise: Tensor) -> Tensor:
        start = self.first(noise).reshape(len(noise), self.channels, self.start, self.start)
        picture: Tensor = self.layers(_by_cell(start))
        return picture


class SquareJudge(nn.Module):
    """Convolutions that halve the side down to one cell of features, and a logit of them."""

    def __init__(
        self, side: int, channels: int, source: torch.Generator, attention: bool = False
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        before, now = 1, channels
        halve = {"kernel_size": 4, "stride": 2, "padding": 1}
        while side > 2:
            parts.append(convolution(before, now, source, **halve, bias=before == 1))
            if before > 1:
                parts.append(nn.BatchNorm2d(now))
            parts.append(nn.LeakyReLU(0.2))
            if attention and before == 1:
                parts.append(SelfAttention(now, source))
            before, now, side = now, min(2 * now, 8 * channels), side // 2
        parts += [convolution(before, now, source, kernel_size=side), nn.LeakyReLU(0.2)]
        self.layers = _weights_by_cell(nn.Sequential(*parts))
        self.last = linear(now, 1, source)

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (rows,) and features (rows, width)."""
        features = self.layers(pictures).flatten(1)
        return self.last(features).squeeze(1), features


class SelfAttention(nn.Module):
    """Cells of a picture look at each other; starts as the identity (SAGAN)."""

    def __init__(self, channels: int, source: torch.Generator) -> None:
        super().__init__()
        inner = max(channels // 8, 1)
        self.query = convolution(channels, inner, source, kernel_size=1)
        self.key = convolution(channels, inner, source, kernel_size=1)
        self.value = convolution(channels, channels, source, kernel_size=1)
        self.share = nn.Parameter(torch.zeros(1))

    def forward(self, pictures: Tensor) -> Tensor:
        query, key = self.query(pictures).flatten(2), self.key(pictures).flatten(2)
        looks = torch.softmax(query.transpose(1, 2) @ key, dim=2)
        seen = self.value(pictures).flatten(2) @ looks.transpose(1, 2)
        return torch.add(pictures, self.share * seen.reshape(pictures.shape))


def feature_statistics(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and population deviation of each feature over a batch."""
    return features.mean(0), features.var(0, unbiased=False).clamp(min=1e-12).sqrt()
