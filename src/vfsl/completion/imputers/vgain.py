"""VGAIN: GAIN whose generator is a variational encoder and decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer, RMSprop

from vfsl.completion.generators.vae import kl_to_standard, split_gaussian
from vfsl.completion.imputers.gain import (
    Discriminator,
    Imputer,
    ImputerTraining,
    activate,
    adversarial_loss,
    number_gaps,
)
from vfsl.completion.layers import Layout, Pieces, normal, perceptron
from vfsl.completion.training import descend
from vfsl.params import documented, param


def encode(
    networks: nn.ModuleDict, values: Tensor, known: Tensor, layout: Layout
) -> tuple[Tensor, Tensor]:
    """Mean and log-variance of z from the known cells and the mask."""
    cells, numbers = known[:, layout.owners], slice(layout.scalars)
    pieces = networks["pieces"](values[:, numbers], cells[:, numbers])
    return split_gaussian(networks["encoder"](torch.cat([values * cells, known, pieces], dim=1)))


def _cells(weighed: Tensor) -> Tensor:
    """How many cells of a row are weighed, on average."""
    return weighed.mean().clamp(min=1e-3) * weighed.shape[1]


def likelihood_loss(
    output: Tensor,
    values: Tensor,
    weights: Tensor,
    log_deviation: Tensor,
    layout: Layout,
    bounded: bool,
) -> Tensor:
    """−log p of the weighted cells (numbers less ½ log 2π), summed by row."""
    gap = number_gaps(output, values, layout, bounded) / log_deviation.exp()
    terms = torch.cat([0.5 * gap**2 + log_deviation, layout.cross_entropy(output, values)], dim=1)
    return (terms * weights[:, layout.owners[layout.firsts]]).sum(1)


class _VGAINTraining(ImputerTraining):
    """A step of the discriminator, then one of encoder and decoder."""

    model: VGAIN

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        model, batch = self.model, self.data.take(rows)
        known, weighed = self.hide(batch.known)
        mean, log_variance = encode(self.networks, batch.values, known, model.layout_)
        draw = normal(mean.shape, self.source, mean.device)
        output = self.networks["decoder"](mean + draw * (0.5 * log_variance).exp())
        filled, hint, judged = self.judge(output, batch, known)
        descend(self.optimisers["discriminator"], judged, clip=1.0)
        divergence = model.divergence * kl_to_standard(mean, log_variance).mean()
        passed = adversarial_loss(self.networks["discriminator"](filled, hint), known)
        losses = {
            "likelihood": self.likelihood(output, batch.values, weighed),
            "kl": divergence / _cells(weighed),
            "adversarial": model.adversarial * passed,
        }
        total = torch.stack(list(losses.values())).sum()
        descend(self.optimisers["generator"], total, clip=1.0)
        return losses | {"discriminator": judged}

    def likelihood(self, output: Tensor, values: Tensor, weighed: Tensor) -> Tensor:
        """The mean loss of the weighed cells."""
        deviation = cast(nn.ParameterDict, self.networks["noise"])["log"].clamp(-4.6, 1.0)
        layout, bounded = self.model.layout_, self.model.bounded
        cells = likelihood_loss(output, values, weighed, deviation, layout, bounded)
        return cells.mean() / _cells(weighed)

    def held_loss(self, known: Tensor, hidden: Tensor) -> Tensor:
        # At the mean of z: what a draw adds differs from epoch to epoch and would stop by luck.
        mean, _ = encode(self.networks, self.held.values, known, self.model.layout_)
        return self.likelihood(self.networks["decoder"](mean), self.held.values, hidden)


@documented
@dataclass(kw_only=True)
class VGAIN(Imputer):
    """Variational generative adversarial imputation.

    There is no canonical text. Here: an encoder of the known cells, the mask and the ``pieces`` of
    known numbers gives a Gaussian over z, a decoder of z gives all cells, numbers with a learned
    deviation per column; both have one hidden layer. GAIN's discriminator judges the filled row.
    Loss = adversarial + likelihood of the hidden cells (with ``masking="cell"``: of the known ones)
    + ``divergence`` · KL, both over the fraction of such cells; RMSprop, gradients clipped at norm
    1.
    """

    name = "vgain"
    training = _VGAINTraining

    latent: int = param(64, "Dimensions of z.", ge=1)
    divergence: float = param(0.01, "Weight of the KL term.", ge=0)
    draws: int = param(20, "Draws of z that a completed cell is averaged over.", ge=1)

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        size, columns = self.layout_.width, len(self.encoder_.columns_)
        pieces = Pieces(self.layout_.scalars, self.pieces)
        inputs = size + columns + pieces.width
        start = torch.zeros(self.layout_.scalars)
        return nn.ModuleDict(
            {
                "pieces": pieces,
                # One hidden layer each: with z between them they are deeper than GAIN's generator,
                # and with two each they filled categories less well.
                "encoder": perceptron([inputs, self.width, 2 * self.latent], source),
                "decoder": perceptron([self.latent, self.width, size], source),
                "noise": nn.ParameterDict({"log": nn.Parameter(start)}),
                "discriminator": Discriminator(size, columns, self.width, source),
            }
        )

    def _optimisers(self, networks: nn.ModuleDict) -> dict[str, Optimizer]:
        ours = [w for part in ("encoder", "decoder", "noise") for w in networks[part].parameters()]
        judge = networks["discriminator"].parameters()
        return {
            "generator": RMSprop(ours, lr=self.rate),
            "discriminator": RMSprop(judge, lr=self.rate),
        }

    def _guess(self, values: Tensor, known: Tensor, source: torch.Generator) -> Tensor:
        mean, log_variance = encode(self.networks_, values, known, self.layout_)
        total = torch.zeros_like(values)
        for _ in range(self.draws):
            draw = normal(mean.shape, source, mean.device)
            output = self.networks_["decoder"](mean + draw * (0.5 * log_variance).exp())
            total += activate(output, self.layout_, self.bounded)
        return total / self.draws
