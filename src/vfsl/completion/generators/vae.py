"""VAE: a plain variational autoencoder on min-max scaled numbers, squared error + cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vfsl.completion.generators.variational import Variational
from vfsl.completion.layers import Layout
from vfsl.completion.mixed import MixedEncoder


@dataclass(kw_only=True)
class VAE(Variational):
    """Variational autoencoder (Kingma and Welling 2014) of a table.

    Numbers are scaled to −1..1 and decoded to one value; categories are drawn from the decoder's
    probabilities. Unlike TVAE there are no modes and no learned noise: numbers that have many
    peaks come out blurred.

    Parameters
    ----------
    deviation : float
        The fixed deviation of the decoder's Gaussian, in scaled units; it weighs the squared
        error against the KL term.
    """

    name = "vae"

    epochs: int = 150
    latent: int = 32
    weight: float = 1.0
    deviation: float = 0.1

    def _check(self) -> None:
        super()._check()
        self._at_least(deviation=1e-6)

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("minmax")

    def reconstruction(self, output: Tensor, target: Tensor) -> Tensor:
        return reconstruction(output, target, self.layout_, self.deviation)

    def emit(self, output: Tensor, source: torch.Generator) -> Tensor:
        scalars = self.layout_.scalars
        drawn = self.layout_.draw(output, source)
        drawn[:, :scalars] = torch.tanh(drawn[:, :scalars])
        return drawn


def reconstruction(output: Tensor, target: Tensor, layout: Layout, deviation: float) -> Tensor:
    """Squared error of numbers over 2 σ², plus the cross-entropy of each choice; of each row."""
    gap = torch.tanh(output[:, : layout.scalars]) - target[:, : layout.scalars]
    squares = (gap**2).sum(1) / (2 * deviation**2)
    return squares + layout.cross_entropy(output, target).sum(1)
