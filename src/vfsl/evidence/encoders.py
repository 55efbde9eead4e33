"""What a party's network is: a recipe without torch, and the torch modules built from it.

Group normalisation, not batch normalisation: a party may have a handful of rows in a batch, and the
mean row that stands for absent ones must not shift the statistics of real rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vfsl.errors import ConfigError
from vfsl.evidence.columns import Columns

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class MLP:
    """Embeddings of categories beside numbers, then fully connected layers.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the layers.
    embedding : int
        Numbers that stand for one category.
    """

    columns: ClassVar[str] = "mixed"

    hidden: tuple[int, ...] = (64, 64)
    embedding: int = 6


@dataclass(frozen=True)
class CNN:
    """Three blocks of convolution, normalisation, ReLU and pooling, for columns that are pixels.

    Parameters
    ----------
    shape : tuple of int
        Height and width, or channels, height and width; the columns are its cells in that order.
    width : int
        Channels of the first block; the next ones have twice and four times as many.
    """

    columns: ClassVar[str] = "pixels"

    shape: tuple[int, ...]
    width: int = 16


@dataclass(frozen=True)
class Custom:
    """A torch module of the user's own: standardised numbers and one-hot categories in, K out."""

    columns: ClassVar[str] = "matrix"

    module: Any = field(repr=False)


Recipe = MLP | CNN | Custom


def recipe_for(encoder: Any, party: str) -> Recipe:
    """The recipe that the ``encoder`` parameter means for one party."""
    chosen = encoder.get(party) if isinstance(encoder, dict) else encoder
    if chosen == "mlp":
        return MLP()
    if isinstance(chosen, MLP | CNN | Custom):
        return chosen
    if hasattr(chosen, "state_dict") and callable(chosen):
        return Custom(chosen)
    raise ConfigError(
        f"The encoder parameter of RISA must be 'mlp', an MLP, a CNN or a torch module, or a dict "
        f"of those by party. Got {chosen!r:.80} for party {party!r} instead."
    )


def check_shape(recipe: CNN, width: int, party: str) -> None:
    if len(recipe.shape) not in (2, 3) or math.prod(recipe.shape) != width:
        raise ConfigError(
            f"The shape parameter of CNN must be 2 or 3 lengths whose product is the number of "
            f"columns, {width} at party {party!r}. Got {recipe.shape} instead."
        )
    if min(recipe.shape[-2:]) < 8:
        raise ConfigError(
            f"The shape parameter of CNN must have a height and width of at least 8. "
            f"Got {recipe.shape} instead."
        )


@dataclass(frozen=True, eq=False)
class Inputs:
    """Rows as tensors. A mean row has frequencies of categories in place of codes."""

    numbers: torch.Tensor
    codes: torch.Tensor
    frequencies: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Any) -> Inputs:
        import torch

        chosen = torch.as_tensor(np.asarray(rows), device=self.numbers.device)
        return Inputs(self.numbers[chosen], self.codes[chosen])


def mean_row(inputs: Inputs, levels: Sequence[int]) -> Inputs:
    """The mean of rows: of numbers as they are, of a category as its frequencies."""
    import torch

    starts = np.cumsum([0, *levels])
    frequencies = torch.zeros(len(levels), int(starts[-1]), device=inputs.numbers.device)
    for place, (start, count) in enumerate(zip(starts[:-1].tolist(), levels, strict=True)):
        counts = torch.bincount(inputs.codes[:, place], minlength=count)
        frequencies[place, start : start + count] = counts / len(inputs)
    return Inputs(inputs.numbers.mean(dim=0, keepdim=True), inputs.codes[:0], frequencies)


def build_network(
    recipe: Recipe, columns: Columns, outputs: int, rng: np.random.Generator, party: str = "?"
) -> nn.Module:
    """A network from rows to ``outputs`` numbers each, initialised from the given generator."""
    if isinstance(recipe, Custom):
        return _checked_custom(recipe, columns, outputs, party)
    from torch import nn

    body, width = build_body(recipe, columns, rng, party)
    return nn.Sequential(body, linear(width, outputs, rng, gain=1.0))


def build_body(
    recipe: Recipe, columns: Columns, rng: np.random.Generator, party: str = "?"
) -> tuple[nn.Module, int]:
    """A network from rows to features, without a last layer, and how many features."""
    from vfsl.evidence import networks

    if isinstance(recipe, MLP):
        made = networks.MixedBody(columns.width, columns.levels, recipe, rng)
        return made, recipe.hidden[-1]
    if isinstance(recipe, CNN):
        check_shape(recipe, columns.width, party)
        picture = networks.PictureBody(recipe, rng)
        return picture, picture.width
    raise ConfigError("A torch module of the user's own has no body apart from its last layer.")


def linear(inputs: int, outputs: int, rng: np.random.Generator, gain: float = 2.0) -> nn.Linear:
    """A fully connected layer whose weights come from the given generator."""
    from vfsl.evidence import networks

    return networks.filled_linear(inputs, outputs, rng, gain)


def _checked_custom(recipe: Custom, columns: Columns, outputs: int, party: str) -> nn.Module:
    """The user's module, copied so that training leaves theirs alone, tried on one row."""
    import torch

    from vfsl.evidence import networks

    module = copy.deepcopy(recipe.module)
    with torch.no_grad():
        was_training = module.training
        module.eval()
        try:
            answer = module(torch.zeros(2, columns.width))
        except RuntimeError as error:
            raise ConfigError(
                f"The torch module of party {party!r} must accept rows of {columns.width} numbers. "
                f"It raised: {error}"
            ) from None
        module.train(was_training)
    if tuple(answer.shape) != (2, outputs):
        raise ConfigError(
            f"The torch module of party {party!r} must return {outputs} numbers a row, one for "
            f"each class. Got an output of shape {tuple(answer.shape)} for 2 rows instead."
        )
    return networks.NumbersOnly(module)
