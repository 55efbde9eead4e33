"""GAIN's discriminator: it says for each cell whether it was known, helped by hints."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vfsl.completion.layers import linear, uniform


class Discriminator(nn.Module):
    """A filled row and its hint → a logit for each table column: was this cell known?"""

    def __init__(self, size: int, columns: int, width: int, source: torch.Generator) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            linear(size + columns, width, source),
            nn.ReLU(),
            linear(width, width, source),
            nn.ReLU(),
            linear(width, columns, source),
        )

    def forward(self, filled: Tensor, hint: Tensor) -> Tensor:
        out: Tensor = self.layers(torch.cat([filled, hint], dim=1))
        return out


def hints(known: Tensor, rate: float, source: torch.Generator) -> Tensor:
    """The true mask where a coin of chance ``rate`` falls so, else ½."""
    told = (uniform(known.shape, source) < rate).to(known)
    return told * known + 0.5 * (1 - told)


def discriminator_loss(logits: Tensor, known: Tensor) -> Tensor:
    """Cross-entropy of the mask, averaged over cells."""
    return nn.functional.binary_cross_entropy_with_logits(logits, known)


def judged_loss(
    judge: nn.Module,
    filled: Tensor,
    known: Tensor,
    hint: Tensor,
    whole: tuple[Tensor, Tensor, Tensor] | None,
) -> Tensor:
    """The discriminator's loss on filled rows and, under block masking, on the rows unhidden.

    If a block is hidden in every row it sees, the mask alone gives the answer away: the filled
    values then play no part, and what they get back from the discriminator is noise. ``whole`` is
    rows, mask and hint without anything hidden.
    """
    loss = discriminator_loss(judge(filled, hint), known)
    if whole is None:
        return loss
    rows, mask, told = whole
    return 0.5 * (loss + discriminator_loss(judge(rows, told), mask))


def adversarial_loss(logits: Tensor, known: Tensor) -> Tensor:
    """−log D of the filled cells: small where they pass for known ones."""
    missing = 1 - known
    passed = nn.functional.logsigmoid(logits)
    return -(missing * passed).sum() / missing.sum().clamp(min=1)
