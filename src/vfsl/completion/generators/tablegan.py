"""TableGAN: a DC-GAN on rows as pictures, with an information loss and a classification loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from vfsl.completion.deep import Conditions, DeepGenerator, by_parts
from vfsl.completion.generators.matching import best_of
from vfsl.completion.generators.square import (
    SquareGenerator,
    SquareJudge,
    feature_statistics,
    from_square,
    side_for,
    to_square,
)
from vfsl.completion.layers import uniform
from vfsl.completion.mixed import MixedEncoder, Span
from vfsl.completion.training import Task, descend
from vfsl.data.checks import check_fraction
from vfsl.errors import ConfigError
from vfsl.values import Array


@dataclass(kw_only=True)
class TableGAN(DeepGenerator):
    """TableGAN (Park et al. 2018).

    Every column is one cell of a zero-padded square: numbers scaled to −1..1, categories by their
    place in order. A DC-GAN makes such squares; the information loss holds the mean and deviation
    of the discriminator's features to those of real rows, and a classifier of the target column
    from the others holds made-up rows to a consistent target.

    Parameters
    ----------
    target : str, optional
        The column of the classification loss; the last categorical one by default, else the last.
    latent : int
        Dimensions of the uniform noise.
    channels : int
        Of the first convolution.
    rate : float
        Learning rate of Adam.
    information, classification : float
        Weights of the two losses; 0 switches one off.
    slack_mean, slack_deviation : float
        How far feature statistics may be off before the information loss counts: more is more
        private.
    memory : float
        Decay of the moving averages of feature statistics, below 1. The published 0.99 lags so far
        behind that the generator ran from mode to mode on small tables; 0 takes the batch alone.
    generator_steps : int
        Updates of the generator for each of the discriminator.
    matches : int
        Candidates of which ``sample(given=...)`` takes the nearest.
    """

    name = "tablegan"

    epochs: int = 100
    target: str | None = None
    latent: int = 100
    channels: int = 32
    rate: float = 2e-4
    information: float = 1.0
    classification: float = 1.0
    slack_mean: float = 0.0
    slack_deviation: float = 0.0
    memory: float = 0.0
    generator_steps: int = 2
    matches: int = 20

    def _check(self) -> None:
        super()._check()
        self._at_least(latent=1, channels=1, rate=0.0, information=0.0, classification=0.0)
        self._at_least(slack_mean=0.0, slack_deviation=0.0, generator_steps=1, matches=1)
        check_fraction("TableGAN", "memory", self.memory)
        if self.patience is not None:
            raise ConfigError(
                "The patience parameter of TableGAN must be None: losses of a GAN do not say when "
                f"it is good. Got {self.patience!r} instead."
            )

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

    def _task(self, matrix: Array, source: torch.Generator) -> Task:
        return _TableGANTask(self, compact(matrix, self.encoder_.spans_), source)

    def _make(self, n: int, given: Conditions | None, source: torch.Generator) -> Array:
        if given is None:
            return self._generate(n, source)
        return best_of(
            self.encoder_, given, self.matches, lambda rows: self._generate(len(rows), source)
        )

    def _generate(self, n: int, source: torch.Generator) -> Array:
        noise = 2 * uniform((n, self.latent), source, self.device) - 1
        pictures = torch.tanh(by_parts(self.networks_["generator"], noise))
        cells = from_square(pictures, len(self.encoder_.spans_)).cpu().numpy()
        return expand(cells.astype(np.float64), self.encoder_.spans_, self.encoder_.width)

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


def compact(matrix: Array, spans: list[Span]) -> Array:
    """One cell a span: scalars as they are, choices by their place, from −1 to 1."""
    cells = np.empty((len(matrix), len(spans)))
    for place, span in enumerate(spans):
        block = matrix[:, span.start : span.stop]
        if span.kind == "scalar":
            cells[:, place] = block[:, 0]
        else:
            cells[:, place] = 2 * block.argmax(axis=1) / max(span.width - 1, 1) - 1
    return cells


def expand(cells: Array, spans: list[Span], width: int) -> Array:
    """Undo :func:`compact`: the nearest choice of each cell."""
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


class _TableGANTask(Task):
    """Discriminator, classifier, then the generator some times."""

    def __init__(self, model: TableGAN, cells: Array, source: torch.Generator) -> None:
        self.model, self.source = model, source
        rows = torch.from_numpy(cells.astype(np.float32)).to(model.device)
        self.side = side_for(rows.shape[1])
        self.pictures = to_square(rows, self.side)
        self.target = model.target_cell()
        self.networks = model._build(source).to(model.device)
        self.optimisers = {
            part: torch.optim.Adam(
                self.networks[part].parameters(), lr=model.rate, betas=(0.5, 0.999)
            )
            for part in ("generator", "discriminator", "classifier")
        }

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        real = self.pictures[rows]
        losses = {"discriminator": self.discriminator_loss(real)}
        descend(self.optimisers["discriminator"], losses["discriminator"])
        if self.model.classification:
            said, cell = self.classify(real)
            losses["classifier"] = classification_loss(said, cell)
            descend(self.optimisers["classifier"], losses["classifier"])
        for part in ("discriminator", "classifier"):
            self.networks[part].requires_grad_(False)
        for _ in range(self.model.generator_steps):
            more = self.generator_losses(real)
            descend(self.optimisers["generator"], torch.stack(list(more.values())).sum())
        for part in ("discriminator", "classifier"):
            self.networks[part].requires_grad_(True)
        return losses | more

    def discriminator_loss(self, real: Tensor) -> Tensor:
        """Cross-entropy of real against made-up."""
        judge = self.networks["discriminator"]
        with torch.no_grad():
            made = self._made(len(real))
        entropy = nn.functional.binary_cross_entropy_with_logits
        one, two = judge(real)[0], judge(made)[0]
        return entropy(one, torch.ones_like(one)) + entropy(two, torch.zeros_like(two))

    def generator_losses(self, real: Tensor) -> dict[str, Tensor]:
        """Passing for real, the information loss, and the classification loss."""
        model, judge = self.model, self.networks["discriminator"]
        made = self._made(len(real))
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
            said, cell = self.classify(made)
            losses["classification"] = model.classification * classification_loss(said, cell)
        return losses

    def classify(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """What the classifier says with the target cell blanked, and that cell."""
        row, column = divmod(self.target, self.side)
        mask = torch.ones_like(pictures[:1])
        mask[:, :, row, column] = 0.0
        return self.networks["classifier"](pictures * mask)[0], pictures[:, 0, row, column]

    def _made(self, size: int) -> Tensor:
        noise = 2 * uniform((size, self.model.latent), self.source, self.model.device) - 1
        made = torch.tanh(self.networks["generator"](noise))
        # Cells beyond the columns are zero in real rows, so they must be in made-up ones.
        cells = from_square(made, len(self.model.encoder_.spans_))
        return to_square(cells, self.side)
