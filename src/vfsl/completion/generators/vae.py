"""VAE: a plain variational autoencoder on min-max scaled numbers, squared error + cross-entropy.

Beside the textbook's encoder q(z | x) and decoder p(x | z) there is a second encoder r(z | known
cells), trained in the same loop to match q when some columns are hidden: KL(q ‖ r). It changes
neither q nor p, and lets the decoder be asked about rows of which only some columns are known.
TVAE shares all of it but the encoding and p.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from vfsl.completion.deep import Conditions, DeepGenerator, RowTraining
from vfsl.completion.layers import Layout, normal, perceptron, uniform
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.training import descend
from vfsl.params import documented, param
from vfsl.values import Array


def kl_to_standard(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, variance) ‖ N(0, 1)) of each row."""
    return 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)


def kl_between(mean: Tensor, log_variance: Tensor, other: Tensor, other_log: Tensor) -> Tensor:
    """KL(N(mean, variance) ‖ N(other, exp other_log)) of each row."""
    ratio = (log_variance - other_log).exp()
    away = (mean - other) ** 2 * (-other_log).exp()
    return 0.5 * (ratio + away - 1 + other_log - log_variance).sum(1)


def split_gaussian(output: Tensor) -> tuple[Tensor, Tensor]:
    """An encoder's output as mean and log-variance of z."""
    mean, log_variance = output.chunk(2, dim=1)
    return mean, log_variance.clamp(-10, 10)


def posterior(networks: nn.ModuleDict, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log-variance of q(z | x)."""
    return split_gaussian(networks["encoder"](rows))


def partial_posterior(
    networks: nn.ModuleDict, values: Tensor, known: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and log-variance of r(z | known cells)."""
    return split_gaussian(networks["partial"](torch.cat([values * known, known], dim=1)))


def random_known(rows: int, layout: Layout, source: torch.Generator, device: str) -> Tensor:
    """Which cells stay known: each row keeps every column with a chance of its own."""
    columns = int(layout.owners.max()) + 1
    keep = uniform((rows, columns), source) < uniform((rows, 1), source)
    return keep.float().index_select(1, layout.owners).to(device)


class VariationalTraining(RowTraining):
    """Minimise weight · reconstruction + KL, and beside it KL(q ‖ r)."""

    model: Variational

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        batch = self.rows.index_select(0, (rows % len(self.rows)).to(self.rows.device))
        losses = self.losses(batch)
        descend(self.optimisers["adam"], torch.stack(list(losses.values())).sum())
        return losses

    def losses(self, batch: Tensor) -> dict[str, Tensor]:
        """The terms of the bound, averaged over rows."""
        mean, log_variance = posterior(self.networks, batch)
        draws = normal(mean.shape, self.source, batch.device)
        output = self.networks["decoder"](mean + draws * (0.5 * log_variance).exp())
        losses = {
            "reconstruction": self.model.weight * self.model.reconstruction(output, batch).mean(),
            "kl": kl_to_standard(mean, log_variance).mean(),
        }
        if self.model.conditional:
            # r learns from half of the batch, whose order is random: it has the same rows in the
            # next epochs, and its step takes half the time.
            half = (len(batch) + 1) // 2
            known = random_known(half, self.model.layout_, self.source, self.model.device)
            other, other_log = partial_posterior(self.networks, batch[:half], known)
            # q is what r follows, so r's loss must not pull at q.
            gap = kl_between(mean[:half].detach(), log_variance[:half].detach(), other, other_log)
            losses["partial"] = gap.mean()
        return losses

    def validate(self) -> float | None:
        if not len(self.held):
            return None
        with torch.no_grad():
            mean, log_variance = posterior(self.networks, self.held)
            output = self.networks["decoder"](mean)
            gap = self.model.weight * self.model.reconstruction(output, self.held)
            return float((gap + kl_to_standard(mean, log_variance)).mean())


@dataclass(kw_only=True)
class Variational(DeepGenerator):
    """A variational autoencoder of encoded rows."""

    training = VariationalTraining

    latent: int = param(128, "Dimensions of z.", ge=1)
    width: int = param(128, "Width of the two hidden layers of encoder and decoder.", ge=1)
    rate: float = param(1e-3, "Learning rate of Adam.", ge=0)
    decay: float = param(1e-5, "Weight decay of Adam.", ge=0)
    weight: float = param(2.0, "Weight of the reconstruction against the KL term.", ge=0)
    conditional: bool = param(
        True, "Also train the encoder of partly known rows, for `sample(n, rng, given)`."
    )

    @abstractmethod
    def reconstruction(self, output: Tensor, target: Tensor) -> Tensor:
        """−log p(x | z) up to a constant, of each row."""

    @abstractmethod
    def emit(self, output: Tensor, source: torch.Generator) -> Tensor:
        """Rows drawn from p(x | z)."""

    def _extra(self) -> nn.ParameterDict:
        """Learned numbers beside the layers."""
        return nn.ParameterDict()

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        size, hidden = self.layout_.width, [self.width, self.width]
        made = nn.ModuleDict(
            {
                "encoder": perceptron([size, *hidden, 2 * self.latent], source),
                "decoder": perceptron([self.latent, *hidden, size], source),
                "extra": self._extra(),
            }
        )
        if self.conditional:
            made["partial"] = perceptron([2 * size, *hidden, 2 * self.latent], source)
        return made

    def _optimisers(self, networks: nn.ModuleDict) -> dict[str, Optimizer]:
        weights = networks.parameters()
        return {"adam": Adam(weights, lr=self.rate, weight_decay=self.decay, fused=True)}

    def _make(self, n: int, given: Conditions | None, source: torch.Generator) -> Array:
        draws = normal((n, self.latent), source, self.device)
        if given is not None:
            if not self.conditional:
                self._refuse_conditions()
            values, known = given.inputs(self.layout_, self.device)
            mean, log_variance = partial_posterior(self.networks_, values, known)
            draws = mean + draws * (0.5 * log_variance).exp()
        output = self.networks_["decoder"](draws)
        return self.layout_.back(self.emit(output, source))


def reconstruction(output: Tensor, target: Tensor, layout: Layout, deviation: float) -> Tensor:
    """Squared error of numbers over 2 σ², plus the cross-entropy of each choice; of each row."""
    gap = torch.tanh(output[:, : layout.scalars]) - target[:, : layout.scalars]
    squares = (gap**2).sum(1) / (2 * deviation**2)
    return squares + layout.cross_entropy(output, target).sum(1)


def draw_around(
    output: Tensor, layout: Layout, deviation: float | Tensor, source: torch.Generator
) -> Tensor:
    """Numbers from the decoder's Gaussian, within −1..1, and choices by their probabilities."""
    scalars, drawn = layout.scalars, layout.draw(output, source)
    away = normal((len(output), scalars), source, output.device) * deviation
    drawn[:, :scalars] = (torch.tanh(drawn[:, :scalars]) + away).clamp(-1, 1)
    return drawn


@documented
@dataclass(kw_only=True)
class VAE(Variational):
    """Variational autoencoder (Kingma and Welling, "Auto-Encoding Variational Bayes", 2014).

    Numbers are scaled to −1..1 and drawn around one decoded value, categories from the decoder's
    probabilities. Unlike TVAE there are no modes and no learned deviations: numbers that have many
    peaks come out blurred.
    """

    name = "vae"

    epochs: int = param(150, "Passes over the training rows.", ge=1)
    latent: int = param(32, "Dimensions of z.", ge=1)
    weight: float = param(1.0, "Weight of the reconstruction against the KL term.", ge=0)
    deviation: float = param(
        0.1,
        "The fixed deviation of the decoder's Gaussian, in scaled units; it weighs the squared "
        "error against the KL term.",
        ge=1e-6,
    )

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("minmax")

    def reconstruction(self, output: Tensor, target: Tensor) -> Tensor:
        return reconstruction(output, target, self.layout_, self.deviation)

    def emit(self, output: Tensor, source: torch.Generator) -> Tensor:
        return draw_around(output, self.layout_, self.deviation, source)
