"""TVAE: a variational autoencoder on mode-normalised numbers with a learned noise per number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from vfsl.completion.generators.variational import Variational
from vfsl.completion.layers import Layout, normal
from vfsl.completion.mixed import MixedEncoder

_LEAST, _MOST = 0.01, 1.0  # of the learned deviations


@dataclass(kw_only=True)
class TVAE(Variational):
    """Tabular variational autoencoder (Xu et al. 2019).

    Numbers are a mode and a distance from it; the distance has a Gaussian whose deviation is
    learned for each column. Choices are drawn from the decoder's probabilities.

    Parameters
    ----------
    modes : int
        Most modes of a numeric column.
    learned_noise : bool
        Learn the deviations; False fixes them at 0.1, as in the starting point.
    """

    name = "tvae"

    modes: int = 10
    learned_noise: bool = True

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("modes", modes=self.modes)

    def _extra(self) -> nn.ParameterDict:
        start = torch.full((self.layout_.scalars,), 0.1)
        return nn.ParameterDict({"sigma": nn.Parameter(start, requires_grad=self.learned_noise)})

    def reconstruction(self, output: Tensor, target: Tensor) -> Tensor:
        return reconstruction(output, target, self.layout_, self._sigma())

    def emit(self, output: Tensor, source: torch.Generator) -> Tensor:
        scalars = self.layout_.scalars
        drawn = self.layout_.draw(output, source)
        noise = normal((len(output), scalars), source, output.device) * self._sigma()
        drawn[:, :scalars] = (torch.tanh(drawn[:, :scalars]) + noise).clamp(-1, 1)
        return drawn

    def _sigma(self) -> Tensor:
        extra = cast(nn.ParameterDict, self.networks_["extra"])
        return torch.clamp(extra["sigma"], _LEAST, _MOST)


def reconstruction(output: Tensor, target: Tensor, layout: Layout, sigma: Tensor) -> Tensor:
    """Gaussian negative log-likelihood of numbers (less ½ log 2π) plus cross-entropy; by row."""
    gap = torch.tanh(output[:, : layout.scalars]) - target[:, : layout.scalars]
    likelihood = (gap**2 / (2 * sigma**2) + torch.log(sigma)).sum(1)
    return likelihood + layout.cross_entropy(output, target).sum(1)
