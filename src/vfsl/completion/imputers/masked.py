"""What the steps of GAIN and VGAIN share: cells that are hidden, and rows that are judged."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

import torch
from torch import Tensor

from vfsl.completion.imputers.hints import hints
from vfsl.completion.imputers.imputer import Imputer, Rows, activated, cut_pieces
from vfsl.completion.imputers.masking import Patterns
from vfsl.completion.training import Task

Model = TypeVar("Model", bound=Imputer)


class MaskedTask(Task, Generic[Model]):
    """A training on rows of which some known cells are hidden."""

    def __init__(
        self,
        model: Model,
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

    def hide(self, known: Tensor) -> tuple[Tensor, Tensor]:
        """What the generator may see, and the cells that its loss is on."""
        return (known, known) if self.model.masking == "cell" else self._hide_block(known)

    def filled(self, output: Tensor, values: Tensor, known: Tensor) -> Tensor:
        """Known cells, and the generator's answer for the others."""
        cells = known[:, self.model.layout_.owners]
        made = activated(output, self.model.layout_, self.model.scaling == "minmax")
        return cells * values + (1 - cells) * made

    def hints(self, known: Tensor) -> Tensor:
        return hints(known, self.model.hint, self.source)

    def whole(self, output: Tensor, batch: Rows) -> tuple[Tensor, Tensor, Tensor] | None:
        """Under block masking the rows with nothing hidden, their mask and hints."""
        if self.model.masking == "cell":
            return None
        unhidden = self.filled(output.detach(), batch.values, batch.known)
        return unhidden, batch.known, self.hints(batch.known)

    def validate(self) -> float | None:
        if not len(self.held):
            return None
        with torch.no_grad():
            return float(self.held_loss(*self._hide_block(self.held.known)))

    @abstractmethod
    def held_loss(self, known: Tensor, hidden: Tensor) -> Tensor:
        """The loss of the hidden cells of the rows held out."""

    def _hide_block(self, known: Tensor) -> tuple[Tensor, Tensor]:
        hide = self.patterns.draw(len(known), known.shape[1], self.source).to(known)
        return known * (1 - hide), known * hide
