"""TVAE: a variational autoencoder on mode-normalised numbers with learned deviations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from vfsl.completion.generators.vae import Variational, draw_around
from vfsl.completion.layers import Layout
from vfsl.completion.mixed import MixedEncoder
from vfsl.params import documented, param

_LEAST, _MOST = 0.01, 1.0  # of the learned deviations


@documented
@dataclass(kw_only=True)
class TVAE(Variational):
    """Tabular VAE (Xu et al., "Modeling Tabular Data using Conditional GAN", 2019).

    Numbers are a mode and a distance from it; the distance has a Gaussian whose deviation is
    learned for each column. Choices are drawn from the decoder's probabilities.
    """

    name = "tvae"

    modes: int = param(10, "Maximum number of modes per numeric column.", ge=1)
    learned_noise: bool = param(
        True, "Learn the deviations; False fixes them at 0.1, where they would start."
    )

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("modes", modes=self.modes)

    def _extra(self) -> nn.ParameterDict:
        start = torch.full((self.layout_.scalars,), 0.1)
        return nn.ParameterDict({"sigma": nn.Parameter(start, requires_grad=self.learned_noise)})

    def reconstruction(self, output: Tensor, target: Tensor) -> Tensor:
        return reconstruction(output, target, self.layout_, self._sigma())

    def emit(self, output: Tensor, source: torch.Generator) -> Tensor:
        return draw_around(output, self.layout_, self._sigma(), source)

    def _sigma(self) -> Tensor:
        extra = cast(nn.ParameterDict, self.networks_["extra"])
        return torch.clamp(extra["sigma"], _LEAST, _MOST)


def reconstruction(output: Tensor, target: Tensor, layout: Layout, sigma: Tensor) -> Tensor:
    """Gaussian negative log-likelihood of numbers (less ½ log 2π) plus cross-entropy; by row."""
    gap = torch.tanh(output[:, : layout.scalars]) - target[:, : layout.scalars]
    likelihood = (gap**2 / (2 * sigma**2) + torch.log(sigma)).sum(1)
    return likelihood + layout.cross_entropy(output, target).sum(1)
