"""What the two variational autoencoders share: the networks, the bound, and conditions.

Beside the textbook's encoder q(z | x) and decoder p(x | z) there is a second encoder r(z | known
cells), trained in the same loop to match q when some columns are hidden: KL(q ‖ r). It changes
neither q nor p, and lets the decoder be asked about rows of which only some columns are known.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vfsl.completion.deep import Conditions, DeepGenerator
from vfsl.completion.layers import Layout, normal, perceptron, uniform
from vfsl.completion.training import Task, descend
from vfsl.errors import ConfigError
from vfsl.values import Array


def kl_to_standard(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, variance) ‖ N(0, 1)) of each row."""
    return 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)


def kl_between(mean: Tensor, log_variance: Tensor, other: Tensor, other_log: Tensor) -> Tensor:
    """KL(N(mean, variance) ‖ N(other, exp other_log)) of each row."""
    ratio = (log_variance - other_log).exp()
    away = (mean - other) ** 2 * (-other_log).exp()
    return 0.5 * (ratio + away - 1 + other_log - log_variance).sum(1)


@dataclass(kw_only=True)
class Variational(DeepGenerator):
    """A variational autoencoder of encoded rows.

    Parameters
    ----------
    latent : int
        Dimensions of z.
    width : int
        Of the two hidden layers of encoder and decoder.
    rate : float
        Learning rate of Adam.
    decay : float
        Weight decay.
    weight : float
        Of the reconstruction against the KL term.
    conditional : bool
        Also train the encoder of partly known rows, for ``sample(n, given=...)``.
    """

    latent: int = 128
    width: int = 128
    rate: float = 1e-3
    decay: float = 1e-5
    weight: float = 2.0
    conditional: bool = True

    def _check(self) -> None:
        super()._check()
        self._at_least(latent=1, width=1, rate=0.0, decay=0.0, weight=0.0)

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

    def _task(self, matrix: Array, source: torch.Generator) -> Task:
        return _VariationalTask(self, matrix, source)

    def _make(self, n: int, given: Conditions | None, source: torch.Generator) -> Array:
        draws = normal((n, self.latent), source, self.device)
        if given is not None:
            values, known = given.inputs(self.layout_, self.device)
            if not self.conditional:
                self._refuse_conditions()
            mean, log_variance = partial_posterior(self.networks_, values, known)
            draws = mean + draws * (0.5 * log_variance).exp()
        output = self.networks_["decoder"](draws)
        return self.layout_.back(self.emit(output, source))

    def _refuse_conditions(self) -> None:
        raise ConfigError(
            f"This {type(self).__name__} was fitted with conditional=False and meets no "
            "conditions; fit it with conditional=True."
        )


def posterior(networks: nn.ModuleDict, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log-variance of q(z | x)."""
    mean, log_variance = networks["encoder"](rows).chunk(2, dim=1)
    return mean, log_variance.clamp(-10, 10)


def partial_posterior(
    networks: nn.ModuleDict, values: Tensor, known: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and log-variance of r(z | known cells)."""
    inputs = torch.cat([values * known, known], dim=1)
    mean, log_variance = networks["partial"](inputs).chunk(2, dim=1)
    return mean, log_variance.clamp(-10, 10)


def random_known(rows: int, layout: Layout, source: torch.Generator, device: str) -> Tensor:
    """Which cells stay known: each row keeps every column with a chance of its own."""
    columns = int(layout.owners.max()) + 1
    keep = uniform((rows, columns), source) < uniform((rows, 1), source)
    return keep.float().index_select(1, layout.owners).to(device)


class _VariationalTask(Task):
    """Minimise weight · reconstruction + KL, and beside it KL(q ‖ r)."""

    def __init__(self, model: Variational, matrix: Array, source: torch.Generator) -> None:
        self.model, self.source = model, source
        rows = model.layout_.into(matrix, model.device)
        held = len(rows) // 10 if model.patience is not None else 0
        self.held, self.rows = rows[:held], rows[held:]
        self.networks = model._build(source).to(model.device)
        model.networks_ = self.networks
        self.optimisers = {
            "adam": torch.optim.Adam(
                self.networks.parameters(), lr=model.rate, weight_decay=model.decay, fused=True
            )
        }

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        batch = self.rows.index_select(0, (rows % len(self.rows)).to(self.rows.device))
        losses = self.losses(batch)
        descend(self.optimisers["adam"], torch.stack(list(losses.values())).sum())
        return losses

    def losses(self, batch: Tensor) -> dict[str, Tensor]:
        """The terms of the bound, averaged over rows."""
        mean, log_variance = posterior(self.networks, batch)
        noise = normal(mean.shape, self.source, batch.device)
        output = self.networks["decoder"](mean + noise * (0.5 * log_variance).exp())
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
