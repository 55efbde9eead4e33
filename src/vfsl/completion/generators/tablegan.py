"""TableGAN: a DC-GAN on rows as pictures, with an information loss and a classification loss.

The networks on pictures also serve CTAB-GAN. Tensors of pictures keep the channels of a cell
together, which is what convolutions on a CPU are fastest with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from vfsl.completion.deep import Conditions, DeepGenerator, RowTraining, in_parts
from vfsl.completion.layers import convolution, deconvolution, linear, uniform
from vfsl.completion.mixed import MixedEncoder, Span
from vfsl.completion.training import descend
from vfsl.errors import ConfigError, DataError
from vfsl.params import documented, param
from vfsl.values import Array

LARGEST = 48


# ---- rows as small pictures ----------------------------------------------------------------------


def side_for(cells: int) -> int:
    """The side of the smallest square that holds so many cells: a multiple of 4."""
    side = 4
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

    def forward(self, latent: Tensor) -> Tensor:
        start = self.first(latent).reshape(len(latent), self.channels, self.start, self.start)
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


def judged_apart(judge: nn.Module, real: Tensor, made: Tensor) -> Tensor:
    """The discriminator's loss: cross-entropy of real against made-up pictures."""
    entropy = nn.functional.binary_cross_entropy_with_logits
    one, two = judge(real)[0], judge(made)[0]
    return entropy(one, torch.ones_like(one)) + entropy(two, torch.zeros_like(two))


# ---- TableGAN ------------------------------------------------------------------------------------


def to_cells(matrix: Array, spans: list[Span]) -> Array:
    """One cell per span: scalars as they are, choices by their place, from −1 to 1."""
    cells = np.empty((len(matrix), len(spans)))
    for place, span in enumerate(spans):
        block = matrix[:, span.start : span.stop]
        if span.kind == "scalar":
            cells[:, place] = block[:, 0]
        else:
            cells[:, place] = 2 * block.argmax(axis=1) / max(span.width - 1, 1) - 1
    return cells


def from_cells(cells: Array, spans: list[Span], width: int) -> Array:
    """Undo :func:`to_cells`: the nearest choice of each cell."""
    matrix = np.zeros((len(cells), width))
    for place, span in enumerate(spans):
        if span.kind == "scalar":
            matrix[:, span.start] = cells[:, place]
        else:
            chosen = np.rint((cells[:, place] + 1) / 2 * max(span.width - 1, 1)).astype(np.intp)
            chosen = np.clip(chosen, 0, span.width - 1)
            matrix[np.arange(len(cells)), span.start + chosen] = 1.0
    return matrix


def information_loss(
    real: tuple[Tensor, Tensor], made: tuple[Tensor, Tensor], slack: tuple[float, float]
) -> Tensor:
    """Hinged L1 gaps of feature means and of feature deviations."""
    gaps = [(one - two).abs().sum() for one, two in zip(real, made, strict=True)]
    return torch.relu(gaps[0] - slack[0]) + torch.relu(gaps[1] - slack[1])


def classification_loss(said: Tensor, cell: Tensor) -> Tensor:
    """Mean absolute gap between a target cell and what the classifier says of the others."""
    return (torch.tanh(said) - cell).abs().mean()


class Averages(nn.Module):
    """Moving averages of feature means and deviations; buffers, so that checkpoints keep them."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int, memory: float) -> None:
        super().__init__()
        self.memory = memory
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.zeros(width))

    def forward(self, now: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Take in the statistics of a batch; the averages, through which its gradient flows."""
        mean = self.memory * self.mean + (1 - self.memory) * now[0]
        deviation = self.memory * self.deviation + (1 - self.memory) * now[1]
        self.mean.copy_(mean.detach())
        self.deviation.copy_(deviation.detach())
        return mean, deviation


class _TableGANTraining(RowTraining):
    """Discriminator, classifier, then the generator some times."""

    model: TableGAN

    def __init__(self, model: TableGAN, matrix: Array, source: torch.Generator) -> None:
        super().__init__(model, matrix, source)
        self.side = side_for(self.rows.shape[1])
        self.pictures = to_square(self.rows, self.side)
        self.target = model.target_cell()

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        real, judge = self.pictures[rows], self.networks["discriminator"]
        with torch.no_grad():
            made = self.made(len(real))
        losses = {"discriminator": judged_apart(judge, real, made)}
        descend(self.optimisers["discriminator"], losses["discriminator"])
        if self.model.classification:
            losses["classifier"] = classification_loss(*self.classify(real))
            descend(self.optimisers["classifier"], losses["classifier"])
        for part in ("discriminator", "classifier"):
            self.networks[part].requires_grad_(False)
        for _ in range(self.model.generator_steps):
            more = self.generator_losses(real)
            descend(self.optimisers["generator"], torch.stack(list(more.values())).sum())
        for part in ("discriminator", "classifier"):
            self.networks[part].requires_grad_(True)
        return losses | more

    def generator_losses(self, real: Tensor) -> dict[str, Tensor]:
        """Passing for real, the information loss, and the classification loss."""
        model, judge = self.model, self.networks["discriminator"]
        made = self.made(len(real))
        logits, features = judge(made)
        losses = {"generator": -nn.functional.logsigmoid(logits).mean()}
        if model.information:
            with torch.no_grad():
                _, wanted = judge(real)
            real_now = self.networks["real"](feature_statistics(wanted))
            made_now = self.networks["made"](feature_statistics(features))
            slack = (model.slack_mean, model.slack_deviation)
            losses["information"] = model.information * information_loss(real_now, made_now, slack)
        if model.classification:
            lost = classification_loss(*self.classify(made))
            losses["classification"] = model.classification * lost
        return losses

    def classify(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """What the classifier says with the target cell blanked, and that cell."""
        row, column = divmod(self.target, self.side)
        mask = torch.ones_like(pictures[:1])
        mask[:, :, row, column] = 0.0
        return self.networks["classifier"](pictures * mask)[0], pictures[:, 0, row, column]

    def made(self, size: int) -> Tensor:
        """Made-up pictures."""
        latent = 2 * uniform((size, self.model.latent), self.source, self.model.device) - 1
        pictures = torch.tanh(self.networks["generator"](latent))
        # Cells beyond the columns are zero in real rows, so they must be in made-up ones.
        return to_square(from_square(pictures, self.rows.shape[1]), self.side)


@documented
@dataclass(kw_only=True)
class TableGAN(DeepGenerator):
    """TableGAN (Park et al., "Data Synthesis based on Generative Adversarial Networks", 2018).

    Every column is one cell of a zero-padded square: numbers scaled to −1..1, categories by their
    place in order. A DC-GAN makes such squares; the information loss holds the mean and deviation
    of the discriminator's features to those of real rows, and a classifier of the target column
    from the others holds made-up rows to a consistent target.
    """

    name = "tablegan"
    stops_early = False
    training = _TableGANTraining

    target: str | None = param(
        None,
        "Column of the classification loss; by default the last categorical one, else the last.",
    )
    latent: int = param(100, "Dimensions of the latent vector that a row is made from.", ge=1)
    channels: int = param(32, "Channels of the first convolution.", ge=1)
    rate: float = param(2e-4, "Learning rate of Adam.", ge=0)
    information: float = param(1.0, "Weight of the information loss; 0 switches it off.", ge=0)
    classification: float = param(
        1.0, "Weight of the classification loss; 0 switches it off.", ge=0
    )
    slack_mean: float = param(
        0.0,
        "How far feature means may be off before the information loss counts: more is more "
        "private.",
        ge=0,
    )
    slack_deviation: float = param(0.0, "The same for the deviations of features.", ge=0)
    memory: float = param(
        0.0,
        "Decay of the moving averages of feature statistics. The published 0.99 lags so far behind "
        "that the generator ran from mode to mode on small tables; 0 takes the batch alone.",
        ge=0,
        le=1,
    )
    generator_steps: int = param(
        2, "Updates of the generator per update of the discriminator.", ge=1
    )
    matches: int = param(20, "Candidates of which `sample(n, rng, given)` takes the nearest.", ge=1)

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("minmax")

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        side = side_for(len(self.encoder_.spans_))
        judge = SquareJudge(side, self.channels, source)
        return nn.ModuleDict(
            {
                "generator": SquareGenerator(self.latent, side, self.channels, source),
                "discriminator": judge,
                "classifier": SquareJudge(side, self.channels, source),
                "real": Averages(judge.last.in_features, self.memory),
                "made": Averages(judge.last.in_features, self.memory),
            }
        )

    def _optimisers(self, networks: nn.ModuleDict) -> dict[str, Optimizer]:
        return {
            part: Adam(networks[part].parameters(), lr=self.rate, betas=(0.5, 0.999))
            for part in ("generator", "discriminator", "classifier")
        }

    def _rows(self, matrix: Array) -> Tensor:
        cells = to_cells(matrix, self.encoder_.spans_)
        return torch.from_numpy(cells.astype(np.float32)).to(self.device)

    def _make(self, n: int, given: Conditions | None, source: torch.Generator) -> Array:
        def draw(rows: Array) -> Array:
            latent = 2 * uniform((len(rows), self.latent), source, self.device) - 1
            pictures = torch.tanh(in_parts(self.networks_["generator"], latent))
            cells = from_square(pictures, len(self.encoder_.spans_)).cpu().numpy()
            return from_cells(cells.astype(np.float64), self.encoder_.spans_, self.encoder_.width)

        if given is None:
            return draw(np.arange(n))
        return given.choose_nearest(self.encoder_, self.matches, draw)

    def target_cell(self) -> int:
        """The cell of the target column."""
        spans = self.encoder_.spans_
        if self.target is not None:
            found = [p for p, s in enumerate(spans) if s.column == self.target and s.of != "mode"]
            if not found:
                raise ConfigError(
                    "The target parameter of TableGAN must be a column of the table that is not "
                    f"constant. Got {self.target!r} instead."
                )
            return found[0]
        categories = [place for place, span in enumerate(spans) if span.of == "category"]
        return (categories or [p for p, s in enumerate(spans) if s.of == "number"])[-1]
