"""GAIN: a generator fills cells, a discriminator with hints guesses which ones were filled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vfsl.completion.imputers.hints import Discriminator, adversarial_loss, judged_loss
from vfsl.completion.imputers.imputer import Imputer, Rows, activated, cell_loss
from vfsl.completion.imputers.masked import MaskedTask
from vfsl.completion.imputers.masking import Patterns
from vfsl.completion.layers import Layout, Pieces, perceptron, uniform
from vfsl.completion.training import Task, descend

_NOISE = 0.01


@dataclass(kw_only=True)
class GAIN(Imputer):
    """Generative adversarial imputation (Yoon et al. 2018), with block masking by default.

    The generator sees the known cells, the mask, and known numbers also as ``pieces``.
    ``GAIN(masking="cell", scaling="minmax", pieces=0, adversarial=1.0, patience=None)`` is the
    textbook's.
    """

    name = "gain"

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        size, columns = self.layout_.width, len(self.encoder_.columns_)
        pieces = Pieces(self.layout_.scalars, self.pieces)
        inputs = size + columns + pieces.width
        return nn.ModuleDict(
            {
                "pieces": pieces,
                "generator": perceptron([inputs, self.width, self.width, size], source),
                "discriminator": Discriminator(size, columns, self.width, source),
            }
        )

    def _task(self, data: Rows, held: Rows, patterns: Patterns, source: torch.Generator) -> Task:
        return _GAINTask(self, data, held, patterns, source)

    def _guess(self, values: Tensor, known: Tensor, source: torch.Generator) -> Tensor:
        output = fill(self.networks_, values, known, self.layout_, source)
        return activated(output, self.layout_, self.scaling == "minmax")


def fill(
    networks: nn.ModuleDict, values: Tensor, known: Tensor, layout: Layout, source: torch.Generator
) -> Tensor:
    """The generator's answer to known cells, with a little noise in the place of the others."""
    cells, numbers = known[:, layout.owners], slice(layout.scalars)
    noise = uniform(values.shape, source, values.device) * _NOISE
    pieces = networks["pieces"](values[:, numbers], cells[:, numbers])
    start = cells * values + (1 - cells) * noise
    out: Tensor = networks["generator"](torch.cat([start, known, pieces], dim=1))
    return out


class _GAINTask(MaskedTask[GAIN]):
    """A step of the discriminator, then one of the generator."""

    def __init__(
        self, model: GAIN, data: Rows, held: Rows, patterns: Patterns, source: torch.Generator
    ) -> None:
        super().__init__(model, data, held, patterns, source)
        self.optimisers = {
            part: torch.optim.Adam(self.networks[part].parameters(), lr=model.rate)
            for part in ("generator", "discriminator")
        }

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        batch = self.data.take(rows)
        known, hidden = self.hide(batch.known)
        output = fill(self.networks, batch.values, known, self.model.layout_, self.source)
        filled = self.filled(output, batch.values, known)
        hint, whole = self.hints(known), self.whole(output, batch)
        judge = self.networks["discriminator"]
        losses = {"discriminator": judged_loss(judge, filled.detach(), known, hint, whole)}
        descend(self.optimisers["discriminator"], losses["discriminator"])
        losses |= self.generator_losses(output, batch.values, known, hidden, filled, hint)
        descend(self.optimisers["generator"], losses["adversarial"] + losses["cells"])
        return losses

    def generator_losses(
        self,
        output: Tensor,
        values: Tensor,
        known: Tensor,
        weighed: Tensor,
        filled: Tensor,
        hint: Tensor,
    ) -> dict[str, Tensor]:
        """The weighted adversarial loss, and the loss on cells whose value is known."""
        model = self.model
        factor = model.reconstruction if model.masking == "cell" else 1.0
        cells = cell_loss(output, values, weighed, model.layout_, model.scaling == "minmax")
        if model.adversarial == 0:
            return {"adversarial": cells.new_zeros(()), "cells": factor * cells}
        passed = adversarial_loss(self.networks["discriminator"](filled, hint), known)
        return {"adversarial": model.adversarial * passed, "cells": factor * cells}

    def held_loss(self, known: Tensor, hidden: Tensor) -> Tensor:
        layout, bounded = self.model.layout_, self.model.scaling == "minmax"
        output = fill(self.networks, self.held.values, known, layout, self.source)
        return cell_loss(output, self.held.values, hidden, layout, bounded)
