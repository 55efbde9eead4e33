"""VGAIN: GAIN whose generator is a variational encoder and decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from vfsl.completion.generators.variational import kl_to_standard
from vfsl.completion.imputers.hints import Discriminator, adversarial_loss, judged_loss
from vfsl.completion.imputers.imputer import Imputer, Rows, activated
from vfsl.completion.imputers.masked import MaskedTask
from vfsl.completion.imputers.masking import Patterns
from vfsl.completion.layers import Layout, Pieces, normal, perceptron
from vfsl.completion.training import Task, descend


@dataclass(kw_only=True)
class VGAIN(Imputer):
    """Variational generative adversarial imputation.

    There is no canonical text. Here: an encoder of the known cells, the mask and the ``pieces`` of
    known numbers gives a Gaussian over z, a decoder of z gives all cells, numbers with a learned
    deviation per column; both have one hidden layer. GAIN's discriminator judges the filled row.
    Loss = adversarial + likelihood of the hidden cells (with ``masking="cell"``: of the known ones)
    + ``divergence`` · KL, both over the share of such cells; RMSprop, gradients clipped at norm 1.

    Parameters
    ----------
    latent : int
        Dimensions of z.
    divergence : float
        Weight of the KL term.
    draws : int
        Draws of z that a completed cell is averaged over.
    """

    name = "vgain"

    latent: int = 64
    divergence: float = 0.01
    draws: int = 20

    def _check(self) -> None:
        super()._check()
        self._at_least(latent=1, divergence=0.0, draws=1)

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

    def _task(self, data: Rows, held: Rows, patterns: Patterns, source: torch.Generator) -> Task:
        return _VGAINTask(self, data, held, patterns, source)

    def _guess(self, values: Tensor, known: Tensor, source: torch.Generator) -> Tensor:
        mean, log_variance = encode(self.networks_, values, known, self.layout_)
        total = torch.zeros_like(values)
        for _ in range(self.draws):
            noise = normal(mean.shape, source, mean.device)
            output = self.networks_["decoder"](mean + noise * (0.5 * log_variance).exp())
            total += activated(output, self.layout_, self.scaling == "minmax")
        return total / self.draws


def encode(
    networks: nn.ModuleDict, values: Tensor, known: Tensor, layout: Layout
) -> tuple[Tensor, Tensor]:
    """Mean and log-variance of z from the known cells and the mask."""
    cells, numbers = known[:, layout.owners], slice(layout.scalars)
    pieces = networks["pieces"](values[:, numbers], cells[:, numbers])
    inputs = torch.cat([values * cells, known, pieces], dim=1)
    mean, log_variance = networks["encoder"](inputs).chunk(2, dim=1)
    return mean, log_variance.clamp(-10, 10)


def likelihood_loss(
    output: Tensor,
    values: Tensor,
    weights: Tensor,
    log_deviation: Tensor,
    layout: Layout,
    bounded: bool,
) -> Tensor:
    """−log p of the weighted cells (numbers less ½ log 2π), summed by row."""
    numbers = output[:, : layout.scalars]
    numbers = torch.tanh(numbers) if bounded else numbers
    gap = (numbers - values[:, : layout.scalars]) / log_deviation.exp()
    gaussian = 0.5 * gap**2 + log_deviation
    entropy = layout.cross_entropy(output, values)
    firsts = layout.scalars + np.cumsum([0, *layout.widths])[:-1].astype(np.int64)
    owners = torch.cat([layout.owners[: layout.scalars], layout.owners[firsts]])
    return (torch.cat([gaussian, entropy], dim=1) * weights[:, owners]).sum(1)


class _VGAINTask(MaskedTask[VGAIN]):
    """A step of the discriminator, then one of encoder and decoder."""

    def __init__(
        self, model: VGAIN, data: Rows, held: Rows, patterns: Patterns, source: torch.Generator
    ) -> None:
        super().__init__(model, data, held, patterns, source)
        ours = [
            value
            for part in ("encoder", "decoder", "noise")
            for value in self.networks[part].parameters()
        ]
        self.optimisers = {
            "generator": torch.optim.RMSprop(ours, lr=model.rate),
            "discriminator": torch.optim.RMSprop(
                self.networks["discriminator"].parameters(), lr=model.rate
            ),
        }

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        batch = self.data.take(rows)
        known, weighed = self.hide(batch.known)
        output, divergence = self.decode(batch.values, known)
        filled = self.filled(output, batch.values, known)
        hint, whole = self.hints(known), self.whole(output, batch)
        judge = self.networks["discriminator"]
        judged = judged_loss(judge, filled.detach(), known, hint, whole)
        descend(self.optimisers["discriminator"], judged, clip=1.0)
        losses = self.generator_losses(output, divergence, batch.values, weighed)
        passed = adversarial_loss(judge(filled, hint), known)
        losses["adversarial"] = self.model.adversarial * passed
        total = torch.stack(list(losses.values())).sum()
        descend(self.optimisers["generator"], total, clip=1.0)
        return losses | {"discriminator": judged}

    def decode(self, values: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
        """The decoder's answer for one draw of z, and the KL term of each row."""
        mean, log_variance = encode(self.networks, values, known, self.model.layout_)
        noise = normal(mean.shape, self.source, mean.device)
        output = self.networks["decoder"](mean + noise * (0.5 * log_variance).exp())
        return output, kl_to_standard(mean, log_variance)

    def generator_losses(
        self, output: Tensor, divergence: Tensor, values: Tensor, weighed: Tensor
    ) -> dict[str, Tensor]:
        """(likelihood + weight · KL) / mean of the mask, averaged over rows and columns."""
        return {
            "likelihood": self.likelihood(output, values, weighed),
            "kl": self.model.divergence * divergence.mean() / _cells(weighed),
        }

    def likelihood(self, output: Tensor, values: Tensor, weighed: Tensor) -> Tensor:
        """The mean loss of the weighed cells."""
        noise = cast(nn.ParameterDict, self.networks["noise"])["log"].clamp(-4.6, 1.0)
        layout, bounded = self.model.layout_, self.model.scaling == "minmax"
        cells = likelihood_loss(output, values, weighed, noise, layout, bounded)
        return cells.mean() / _cells(weighed)

    def held_loss(self, known: Tensor, hidden: Tensor) -> Tensor:
        # At the mean of z: what a draw adds differs from epoch to epoch and would stop by luck.
        mean, _ = encode(self.networks, self.held.values, known, self.model.layout_)
        return self.likelihood(self.networks["decoder"](mean), self.held.values, hidden)


def _cells(weighed: Tensor) -> Tensor:
    """How many cells of a row are weighed, on average."""
    return weighed.mean().clamp(min=1e-3) * weighed.shape[1]
