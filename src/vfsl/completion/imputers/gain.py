"""GAIN: a generator fills cells, a discriminator with hints guesses which ones were filled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vfsl.completion.imputers.hints import (
    Discriminator,
    adversarial_loss,
    hints,
    judged_loss,
)
from vfsl.completion.imputers.imputer import Imputer, Rows, activated, cell_loss, cut_pieces
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


class _GAINTask(Task):
    """A step of the discriminator, then one of the generator."""

    def __init__(
        self,
        model: GAIN,
        data: Rows,
        held: Rows,
        patterns: Patterns,
        source: torch.Generator,
    ) -> None:
        self.model, self.data, self.held = model, data, held
        self.patterns, self.source = patterns, source
        self.networks = model._build(source).to(model.device)
        cut_pieces(self.networks, data, model.layout_)
        model.networks_ = self.networks
        self.optimisers = {
            part: torch.optim.Adam(self.networks[part].parameters(), lr=model.rate)
            for part in ("generator", "discriminator")
        }

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        batch = self.data.take(rows)
        known, hidden = self.hide(batch.known)
        output = fill(self.networks, batch.values, known, self.model.layout_, self.source)
        filled = self.filled(output, batch.values, known)
        hint = hints(known, self.model.hint, self.source)
        whole = None
        if self.model.masking == "block":
            unhidden = self.filled(output.detach(), batch.values, batch.known)
            whole = unhidden, batch.known, hints(batch.known, self.model.hint, self.source)
        judge = self.networks["discriminator"]
        losses = {"discriminator": judged_loss(judge, filled.detach(), known, hint, whole)}
        descend(self.optimisers["discriminator"], losses["discriminator"])
        losses |= self.generator_losses(output, batch.values, known, hidden, filled, hint)
        descend(self.optimisers["generator"], losses["adversarial"] + losses["cells"])
        return losses

    def hide(self, known: Tensor) -> tuple[Tensor, Tensor]:
        """What the generator may see, and the cells that its loss is on."""
        if self.model.masking == "cell":
            return known, known
        hide = self.patterns.draw(len(known), known.shape[1], self.source).to(known)
        return known * (1 - hide), known * hide

    def filled(self, output: Tensor, values: Tensor, known: Tensor) -> Tensor:
        """Known cells, and the generator's answer for the others."""
        cells = known[:, self.model.layout_.owners]
        made = activated(output, self.model.layout_, self.model.scaling == "minmax")
        return cells * values + (1 - cells) * made

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

    def validate(self) -> float | None:
        if not len(self.held):
            return None
        with torch.no_grad():
            hide = self.patterns.draw(len(self.held), self.held.known.shape[1], self.source)
            hide = hide.to(self.held.known)
            known = self.held.known * (1 - hide)
            output = fill(self.networks, self.held.values, known, self.model.layout_, self.source)
            bounded = self.model.scaling == "minmax"
            weights = self.held.known * hide
            return float(cell_loss(output, self.held.values, weights, self.model.layout_, bounded))
