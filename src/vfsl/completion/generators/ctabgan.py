"""CTAB-GAN: a conditional DC-GAN on mixed columns, with classifier and information losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from vfsl.completion.generators.ctgan import (
    Asked,
    ConditionalGAN,
    ConditionalTraining,
    asked_cross_entropy,
    with_condition,
)
from vfsl.completion.generators.tablegan import (
    SquareGenerator,
    SquareJudge,
    feature_statistics,
    from_square,
    judged_apart,
    side_for,
    to_square,
)
from vfsl.completion.layers import perceptron
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.training import descend
from vfsl.errors import ConfigError
from vfsl.params import documented, param
from vfsl.values import Array


def information_loss(real: Tensor, made: Tensor) -> Tensor:
    """Mean L1 gap of feature means plus that of feature deviations."""
    (mean, deviation), (other, spread) = feature_statistics(real), feature_statistics(made)
    return (mean - other).abs().mean() + (deviation - spread).abs().mean()


class _CTABGANTraining(ConditionalTraining):
    """Discriminator, generator under conditions with the information loss, classifier."""

    model: CTABGAN

    def __init__(self, model: CTABGAN, matrix: Array, source: torch.Generator) -> None:
        super().__init__(model, matrix, source)
        self.side = side_for(model.layout_.width + sum(model.layout_.widths))
        self.target = model.target_choice()

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        size, judge = len(rows), self.networks["discriminator"]
        asked = self.ask(size)
        order = torch.randperm(size, generator=self.source)
        again = None if asked is None else asked.take(order)
        real = self.pictures(self.real_rows(size, again), again)
        with torch.no_grad():
            made = self.pictures(self.activate(self.logits(size, asked)), asked)
        losses = {"discriminator": judged_apart(judge, real, made)}
        descend(self.optimisers["discriminator"], losses["discriminator"])
        if self.target is not None:
            losses["classifier"] = self.classifier_loss(self.rows[rows], self.target)
            descend(self.optimisers["classifier"], losses["classifier"])
        for part in self.networks:
            self.networks[part].requires_grad_(part == "generator")
        more = self.generator_losses(real, self.ask(size), size)
        descend(self.optimisers["generator"], torch.stack(list(more.values())).sum())
        for part in self.networks:
            self.networks[part].requires_grad_(True)
        return losses | more

    def generator_losses(self, real: Tensor, asked: Asked | None, size: int) -> dict[str, Tensor]:
        """Passing for real, meeting conditions, information, and the classifier's verdict."""
        model, judge = self.model, self.networks["discriminator"]
        logits = self.logits(size, asked)
        made = self.activate(logits)
        judged, features = judge(self.pictures(made, asked))
        losses = {"generator": -nn.functional.logsigmoid(judged).mean()}
        if asked is not None:
            _, blocks = model.layout_.split(logits)
            losses["condition"] = asked_cross_entropy(blocks, asked)
        if model.information:
            with torch.no_grad():
                _, wanted = judge(real)
            losses["information"] = model.information * information_loss(wanted, features)
        if self.target is not None:
            lost = self.classifier_loss(made, self.target)
            losses["classification"] = model.classification * lost
        return losses

    def classifier_loss(self, rows: Tensor, target: int) -> Tensor:
        """Cross-entropy of the target given all other cells."""
        scalars, blocks = self.model.layout_.split(rows)
        others = [block for place, block in enumerate(blocks) if place != target]
        said = self.networks["classifier"](torch.cat([scalars, *others], dim=1))
        return -(torch.log_softmax(said, 1) * blocks[target]).sum(1).mean()

    def pictures(self, rows: Tensor, asked: Asked | None) -> Tensor:
        """Rows with their conditions, as squares."""
        return to_square(with_condition(rows, asked), self.side)


@documented
@dataclass(kw_only=True)
class CTABGAN(ConditionalGAN):
    """CTAB-GAN (Zhao et al., "CTAB-GAN: Effective Table Data Synthesizing", 2021).

    Numbers are modes and distances; special values, such as the 0 of "none", are choices beside
    the modes. Conditions may ask for any choice, modes included. A DC-GAN makes and judges rows as
    squares; the information loss holds feature means and deviations, and a classifier of the
    target column holds its consistency with the others.
    """

    name = "ctabgan"
    asks_for = ("category", "mode")
    training = _CTABGANTraining

    epochs: int = param(50, "Passes over the training rows.", ge=1)
    target: str | None = param(
        None,
        "The categorical column of the classifier; the last one by default. Without any there is "
        "no classifier.",
    )
    special: Mapping[str, Sequence[float]] | Literal["auto"] | None = param(
        "auto",
        "Numbers that are choices of their own, by column; 'auto' takes those that fill a fifth of "
        "a column.",
    )
    latent: int = param(100, "Dimensions of the latent vector that a row is made from.", ge=1)
    channels: int = param(
        16, "Channels of the first convolution; the published 64 take hours on a CPU.", ge=1
    )
    rate: float = param(
        1e-3,
        "Learning rate of Adam. The published 2e-4 needs several times as many steps, since its "
        "eps of 1e-3 damps them.",
        ge=0,
    )
    decay: float = param(1e-5, "Weight decay of Adam.", ge=0)
    information: float = param(1.0, "Weight of the information loss; 0 switches it off.", ge=0)
    classification: float = param(1.0, "Weight of the classifier's loss; 0 switches it off.", ge=0)
    self_attention: bool = param(
        False,
        "Self-attention in generator and discriminator. The published method has none; the "
        "description of FedPSG-PUM adds it.",
    )

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("modes", modes=self.modes, special=self.special)

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        size, asked = self.layout_.width, sum(self.layout_.widths)
        sides = side_for(size), side_for(size + asked)
        shape = (self.channels, source, self.self_attention)
        made = nn.ModuleDict(
            {
                "generator": SquareGenerator(self.latent + asked, sides[0], *shape),
                "discriminator": SquareJudge(sides[1], *shape),
            }
        )
        place = self.target_choice()
        if place is not None:
            outputs = self.layout_.widths[place]
            made["classifier"] = perceptron([size - outputs, *[256] * 4, outputs], source)
        return made

    def _optimisers(self, networks: nn.ModuleDict) -> dict[str, Optimizer]:
        adam: dict[str, Any] = {"lr": self.rate, "betas": (0.5, 0.9), "eps": 1e-3}
        return {
            part: Adam(network.parameters(), weight_decay=self.decay, **adam)
            for part, network in networks.items()
        }

    def target_choice(self) -> int | None:
        """Which choice is the target, None without a classifier."""
        if self.classification == 0:
            return None
        choices = self.layout_.choices
        able = [place for place, span in enumerate(choices) if span.of == "category"]
        if self.target is None:
            return able[-1] if able else None
        found = [place for place in able if choices[place].column == self.target]
        if not found:
            raise ConfigError(
                "The target parameter of CTABGAN must be a categorical column that is not "
                f"constant. Got {self.target!r} instead."
            )
        return found[0]

    def _logits(self, inputs: Tensor) -> Tensor:
        return from_square(self.networks_["generator"](inputs), self.layout_.width)
