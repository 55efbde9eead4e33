"""CTAB-GAN: a conditional DC-GAN on mixed columns, with classifier and information losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vfsl.completion.generators.conditional import ConditionalGAN
from vfsl.completion.generators.conditioning import (
    Asked,
    Conditioner,
    asked_cross_entropy,
    spans_of,
)
from vfsl.completion.generators.square import (
    SquareGenerator,
    SquareJudge,
    feature_statistics,
    from_square,
    side_for,
    to_square,
)
from vfsl.completion.layers import normal, perceptron
from vfsl.completion.mixed import MixedEncoder, Span
from vfsl.completion.training import Task, descend
from vfsl.errors import ConfigError
from vfsl.values import Array


@dataclass(kw_only=True)
class CTABGAN(ConditionalGAN):
    """CTAB-GAN (Zhao et al. 2021).

    Numbers are modes and distances; special values, such as the 0 of "none", are choices beside
    the modes. Conditions may ask for any choice, modes included. A DC-GAN makes and judges rows as
    squares; the information loss holds feature means and deviations, and a classifier of the
    target column holds its consistency with the others.

    Parameters
    ----------
    target : str, optional
        The categorical column of the classifier; the last one by default. Without any there is no
        classifier.
    special : dict of str to list of float, or "auto", optional
        Numbers that are choices of their own; "auto" takes those that fill a fifth of a column.
    latent : int
        Dimensions of the noise.
    channels : int
        Of the first convolution; the published 64 take hours on a CPU.
    rate, decay : float
        Learning rate and weight decay of Adam; the published rate of 2e-4 needs several times as
        many steps, since its eps of 1e-3 damps them.
    temperature : float
        Of the Gumbel-softmax.
    information, classification : float
        Weights of the two losses; 0 switches one off.
    attention : bool
        Self-attention in generator and discriminator. The published method has none; the seed of
        FedPSG-PUM describes it with it.
    modes, matches : int
        As in CTGAN.
    """

    name = "ctabgan"

    epochs: int = 50
    target: str | None = None
    special: Mapping[str, Sequence[float]] | str | None = "auto"
    latent: int = 100
    channels: int = 16
    rate: float = 1e-3
    decay: float = 1e-5
    information: float = 1.0
    classification: float = 1.0
    attention: bool = False

    def _check(self) -> None:
        super()._check()
        self._at_least(channels=1, rate=0.0, decay=0.0, information=0.0, classification=0.0)

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("modes", modes=self.modes, special=self.special)

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        size = self.layout_.width
        asked = sum(self.layout_.widths)
        sides = side_for(size), side_for(size + asked)
        made = nn.ModuleDict(
            {
                "generator": SquareGenerator(
                    self.latent + asked, sides[0], self.channels, source, self.attention
                ),
                "discriminator": SquareJudge(sides[1], self.channels, source, self.attention),
            }
        )
        place = self.target_choice()
        if place is not None:
            outputs = self.layout_.widths[place]
            made["classifier"] = perceptron([size - outputs, *[256] * 4, outputs], source)
        return made

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

    def _task(self, matrix: Array, source: torch.Generator) -> Task:
        self.conditioner_ = Conditioner.fit(self._asked_spans(), matrix)
        return _CTABGANTask(self, matrix, source)

    def _asked_spans(self) -> list[Span]:
        return spans_of(self.layout_.choices, ("category", "mode"))

    def _logits(self, inputs: Tensor) -> Tensor:
        return from_square(self.networks_["generator"](inputs), self.layout_.width)

    def settings(self) -> dict[str, Any]:
        kept = super().settings()
        if isinstance(self.special, Mapping):
            kept["special"] = {name: list(values) for name, values in self.special.items()}
        return kept


def information_loss(real: Tensor, made: Tensor) -> Tensor:
    """Mean L1 gap of feature means plus that of feature deviations."""
    first, second = feature_statistics(real), feature_statistics(made)
    return sum(
        ((one - two).abs().mean() for one, two in zip(first, second, strict=True)),
        start=real.new_zeros(()),
    )


class _CTABGANTask(Task):
    """Discriminator, generator under conditions with the information loss, classifier."""

    def __init__(self, model: CTABGAN, matrix: Array, source: torch.Generator) -> None:
        self.model, self.source = model, source
        self.rows = model.layout_.into(matrix, model.device)
        self.networks = model._build(source).to(model.device)
        self.side = side_for(model.layout_.width + sum(model.layout_.widths))
        adam: dict[str, Any] = {
            "lr": model.rate,
            "betas": (0.5, 0.9),
            "eps": 1e-3,
            "weight_decay": model.decay,
        }
        self.optimisers = {
            part: torch.optim.Adam(network.parameters(), **adam)
            for part, network in self.networks.items()
        }
        self.target = model.target_choice()

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        # Rows are drawn by condition, so the loop's own choice of rows only says how many.
        size = len(rows)
        asked = self._ask(size)
        order = torch.randperm(size, generator=self.source)
        again = None if asked is None else Asked(*(part[order] for part in asked))
        real = self._with_condition(self._real(size, again), again)
        losses = {"discriminator": self.discriminator_loss(real, asked, size)}
        descend(self.optimisers["discriminator"], losses["discriminator"])
        if self.target is not None:
            losses["classifier"] = self.classifier_loss(self.rows[rows])
            descend(self.optimisers["classifier"], losses["classifier"])
        for part in self.networks:
            self.networks[part].requires_grad_(part == "generator")
        more = self.generator_losses(real, self._ask(size), size)
        descend(self.optimisers["generator"], torch.stack(list(more.values())).sum())
        for part in self.networks:
            self.networks[part].requires_grad_(True)
        return losses | more

    def discriminator_loss(self, real: Tensor, asked: Asked | None, size: int) -> Tensor:
        """Cross-entropy of real against made-up rows, each with its condition."""
        with torch.no_grad():
            made = self._with_condition(self._activated(self._logits(asked, size)), asked)
        entropy = nn.functional.binary_cross_entropy_with_logits
        judge = self.networks["discriminator"]
        one, two = judge(real)[0], judge(made)[0]
        return entropy(one, torch.ones_like(one)) + entropy(two, torch.zeros_like(two))

    def generator_losses(self, real: Tensor, asked: Asked | None, size: int) -> dict[str, Tensor]:
        """Passing for real, meeting conditions, information, and the classifier's verdict."""
        model, judge = self.model, self.networks["discriminator"]
        logits = self._logits(asked, size)
        made = self._activated(logits)
        judged, features = judge(self._with_condition(made, asked))
        losses = {"generator": -nn.functional.logsigmoid(judged).mean()}
        if asked is not None:
            _, blocks = model.layout_.split(logits)
            losses["condition"] = asked_cross_entropy(blocks, model.conditioner_, asked)
        if model.information:
            with torch.no_grad():
                _, wanted = judge(real)
            losses["information"] = model.information * information_loss(wanted, features)
        if self.target is not None:
            losses["classification"] = model.classification * self.classifier_loss(made)
        return losses

    def classifier_loss(self, rows: Tensor) -> Tensor:
        """Cross-entropy of the target given all other cells."""
        layout = self.model.layout_
        scalars, blocks = layout.split(rows)
        others = [block for place, block in enumerate(blocks) if place != self.target]
        said = self.networks["classifier"](torch.cat([scalars, *others], dim=1))
        wanted = blocks[self.target or 0]
        return -(torch.log_softmax(said, 1) * wanted).sum(1).mean()

    def _ask(self, size: int) -> Asked | None:
        conditioner = self.model.conditioner_
        return conditioner.ask(size, self.source) if conditioner.spans else None

    def _real(self, size: int, asked: Asked | None) -> Tensor:
        if asked is None:
            drawn = torch.randint(len(self.rows), (size,), generator=self.source)
        else:
            drawn = self.model.conditioner_.real_rows(asked, self.source)
        return self.rows[drawn]

    def _with_condition(self, rows: Tensor, asked: Asked | None) -> Tensor:
        parts = [rows] if asked is None else [rows, asked.vector.to(rows.device)]
        return to_square(torch.cat(parts, dim=1), self.side)

    def _logits(self, asked: Asked | None, size: int) -> Tensor:
        noise = normal((size, self.model.latent), self.source, self.model.device)
        if asked is not None:
            noise = torch.cat([noise, asked.vector.to(noise.device)], dim=1)
        return from_square(self.networks["generator"](noise), self.model.layout_.width)

    def _activated(self, logits: Tensor) -> Tensor:
        return self.model.layout_.tanh_gumbel(logits, self.model.temperature, self.source)
