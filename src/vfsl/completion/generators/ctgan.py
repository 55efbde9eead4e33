"""CTGAN: a conditional Wasserstein GAN on mode-normalised rows, trained by sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vfsl.completion.generators.conditional import ConditionalGAN
from vfsl.completion.generators.conditioning import Conditioner, asked_cross_entropy, spans_of
from vfsl.completion.layers import Dropout, linear, normal, uniform
from vfsl.completion.mixed import MixedEncoder, Span
from vfsl.completion.training import Task, descend
from vfsl.values import Array


@dataclass(kw_only=True)
class CTGAN(ConditionalGAN):
    """Conditional tabular GAN (Xu et al. 2019).

    Numbers are a mode and a distance from it. Each row is generated under a condition: one column
    has one category, drawn by log-frequency, and the critic compares with a real row that has it.

    Parameters
    ----------
    latent : int
        Dimensions of the noise.
    width : int
        Of the two residual blocks of the generator and the two layers of the critic.
    rate, decay : float
        Learning rate and weight decay of Adam, for both networks.
    pac : int
        Rows that the critic judges together (PacGAN); the batch is cut to a multiple.
    penalty : float
        Weight of the gradient penalty.
    temperature : float
        Of the Gumbel-softmax.
    dropout : float
        Of the critic.
    log_frequency : bool
        Ask for rare categories more often than they occur.
    conditional : bool
        Use condition vectors; False is an unconditional WGAN-GP on the same encoding.
    modes : int
        Most modes of a numeric column.
    matches : int
        Candidates of which ``sample(given=...)`` takes the nearest.
    """

    name = "ctgan"

    epochs: int = 300
    width: int = 256
    rate: float = 2e-4
    decay: float = 1e-6
    pac: int = 10
    penalty: float = 10.0
    dropout: float = 0.5
    log_frequency: bool = True
    conditional: bool = True

    def _check(self) -> None:
        super()._check()
        self._at_least(width=1, rate=0.0, decay=0.0, pac=1, penalty=0.0, dropout=0.0)

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("modes", modes=self.modes)

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        asked = sum(span.width for span in self._asked_spans())
        size = self.layout_.width
        return nn.ModuleDict(
            {
                "generator": Residual(self.latent + asked, self.width, size, source),
                "critic": critic(self.pac * (size + asked), self.width, self.dropout, source),
            }
        )

    def _task(self, matrix: Array, source: torch.Generator) -> Task:
        self.conditioner_ = Conditioner.fit(self._asked_spans(), matrix, self.log_frequency)
        return _CTGANTask(self, matrix, source)

    def _asked_spans(self) -> list[Span]:
        return spans_of(self.layout_.choices, ("category",)) if self.conditional else []

    def _conditioner(self, counts: Sequence[Array]) -> Conditioner:
        return Conditioner(self._asked_spans(), counts, self.log_frequency)

    def _logits(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.networks_["generator"](inputs)
        return made


class Residual(nn.Module):
    """Two blocks of Linear, batch norm and ReLU that keep their input beside their output."""

    def __init__(self, inputs: int, width: int, outputs: int, source: torch.Generator) -> None:
        super().__init__()
        self.first = linear(inputs, width, source)
        self.first_norm = nn.BatchNorm1d(width)
        self.second = linear(inputs + width, width, source)
        self.second_norm = nn.BatchNorm1d(width)
        self.last = linear(inputs + 2 * width, outputs, source)

    def forward(self, inputs: Tensor) -> Tensor:
        values = torch.cat([torch.relu(self.first_norm(self.first(inputs))), inputs], dim=1)
        values = torch.cat([torch.relu(self.second_norm(self.second(values))), values], dim=1)
        out: Tensor = self.last(values)
        return out


def critic(inputs: int, width: int, dropout: float, source: torch.Generator) -> nn.Sequential:
    """Two layers with leaky ReLU and dropout, and one number."""
    return nn.Sequential(
        linear(inputs, width, source),
        nn.LeakyReLU(0.2),
        Dropout(dropout, source),
        linear(width, width, source),
        nn.LeakyReLU(0.2),
        Dropout(dropout, source),
        linear(width, 1, source),
    )


def packed(rows: Tensor, pac: int) -> Tensor:
    """Groups of ``pac`` rows side by side, for the critic to judge together."""
    return rows.reshape(len(rows) // pac, -1)


def gradient_penalty(judge: nn.Module, real: Tensor, made: Tensor, mix: Tensor) -> Tensor:
    """Mean of (‖∇ critic‖ − 1)² at points between real and made-up packs."""
    between = (mix * real + (1 - mix) * made).requires_grad_(True)
    (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
    return torch.mean((torch.linalg.vector_norm(slope, dim=1) - 1) ** 2)


class _CTGANTask(Task):
    """One step of the critic, then one of the generator, under fresh conditions each."""

    def __init__(self, model: CTGAN, matrix: Array, source: torch.Generator) -> None:
        self.model, self.source = model, source
        self.rows = model.layout_.into(matrix, model.device)
        self.networks = model._build(source).to(model.device)
        adam: dict[str, Any] = {
            "lr": model.rate,
            "betas": (0.5, 0.9),
            "weight_decay": model.decay,
        }
        self.optimisers = {
            part: torch.optim.Adam(self.networks[part].parameters(), **adam)
            for part in ("generator", "critic")
        }
        asked = model.conditioner_.spans
        self._asked_blocks = [p for p, s in enumerate(model.layout_.choices) if s in asked]

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        # Rows are drawn by condition, so the loop's own choice of rows only says how many.
        size = max(len(rows) // self.model.pac, 1) * self.model.pac
        losses = self.critic_losses(size)
        descend(
            self.optimisers["critic"], losses["critic"] + self.model.penalty * losses["penalty"]
        )
        self.networks["critic"].requires_grad_(False)
        more = self.generator_losses(size)
        descend(self.optimisers["generator"], more["generator"] + more["condition"])
        self.networks["critic"].requires_grad_(True)
        return losses | more

    def critic_losses(self, size: int) -> dict[str, Tensor]:
        """Wasserstein gap of made-up and real rows, and the gradient penalty."""
        model, judge = self.model, self.networks["critic"]
        conditioner = model.conditioner_
        with torch.no_grad():
            made, vector = self._made(size)
        if conditioner.spans:
            # Real rows meet the same conditions, in another order.
            order = torch.randperm(size, generator=self.source)
            asked = type(vector)(*(part[order] for part in vector))
            real = self.rows[conditioner.real_rows(asked, self.source)]
            made = torch.cat([made, vector.vector.to(made.device)], dim=1)
            real = torch.cat([real, asked.vector.to(made.device)], dim=1)
        else:
            drawn = torch.randint(len(self.rows), (size,), generator=self.source)
            real = self.rows[drawn]
        made, real = packed(made, model.pac), packed(real, model.pac)
        mix = uniform((len(real), 1), self.source, real.device)
        return {
            "critic": judge(made).mean() - judge(real).mean(),
            "penalty": gradient_penalty(judge, real, made, mix),
        }

    def generator_losses(self, size: int) -> dict[str, Tensor]:
        """What the critic says of made-up rows, and how well they meet their conditions."""
        model = self.model
        asked = model.conditioner_.ask(size, self.source) if model.conditioner_.spans else None
        logits = self._logits(size, asked)
        made = model.layout_.tanh_gumbel(logits, model.temperature, self.source)
        condition = logits.new_zeros(())
        if asked is not None:
            _, blocks = model.layout_.split(logits)
            wanted = [blocks[place] for place in self._asked_blocks]
            condition = asked_cross_entropy(wanted, model.conditioner_, asked)
            made = torch.cat([made, asked.vector.to(made.device)], dim=1)
        judged = self.networks["critic"](packed(made, model.pac))
        return {"generator": -judged.mean(), "condition": condition}

    def _made(self, size: int) -> tuple[Tensor, Any]:
        model = self.model
        asked = model.conditioner_.ask(size, self.source) if model.conditioner_.spans else None
        logits = self._logits(size, asked)
        return model.layout_.tanh_gumbel(logits, model.temperature, self.source), asked

    def _logits(self, size: int, asked: Any) -> Tensor:
        noise = normal((size, self.model.latent), self.source, self.model.device)
        if asked is not None:
            noise = torch.cat([noise, asked.vector.to(noise.device)], dim=1)
        logits: Tensor = self.networks["generator"](noise)
        return logits
