"""A party's network in torch: its layers, and with its rows and optimiser all that it computes.

Every weight of ours is drawn from a numpy generator, never a global one. Group normalisation, not
batch normalisation: a party may have a handful of rows in a batch, and the mean row that stands for
absent ones must not shift the statistics of real rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from vfsl.errors import ConfigError, StoreError
from vfsl.evidence.encoders import CNN, MLP, Arrays, Columns, Custom, Recipe
from vfsl.evidence.features import pack_array, unpack_array
from vfsl.evidence.opinion import evidence_of
from vfsl.evidence.rows import Numbers
from vfsl.values import Array

Floats = npt.NDArray[np.float32]
_ANSWER_ROWS = 2048


@dataclass(frozen=True, eq=False)
class Inputs:
    """Rows as tensors. A mean row has frequencies of categories in place of codes."""

    numbers: Tensor
    codes: Tensor
    frequencies: Tensor | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Any) -> Inputs:
        chosen = torch.as_tensor(np.asarray(rows), device=self.numbers.device)
        return Inputs(self.numbers[chosen], self.codes[chosen])


def as_inputs(arrays: Arrays, device: str = "cpu") -> Inputs:
    return Inputs(*(torch.as_tensor(part, device=device) for part in arrays))


def mean_row(inputs: Inputs, levels: Sequence[int]) -> Inputs:
    """The mean of rows: of numbers as they are, of a category as its frequencies."""
    starts = np.cumsum([0, *levels])
    frequencies = torch.zeros(len(levels), int(starts[-1]), device=inputs.numbers.device)
    for place, (start, count) in enumerate(zip(starts[:-1].tolist(), levels, strict=True)):
        counts = torch.bincount(inputs.codes[:, place], minlength=count)
        frequencies[place, start : start + count] = counts / len(inputs)
    return Inputs(inputs.numbers.mean(dim=0, keepdim=True), inputs.codes[:0], frequencies)


# ---- layers --------------------------------------------------------------------------------------


class MixedBody(nn.Module):
    """Numbers and embedded categories through fully connected layers."""

    def __init__(
        self, width: int, levels: Sequence[int], recipe: MLP, rng: np.random.Generator
    ) -> None:
        super().__init__()
        self.starts: Tensor
        self.register_buffer("starts", torch.as_tensor(np.cumsum([0, *levels])[:-1]))
        table = rng.normal(0, 0.1, (sum(levels), recipe.embedding))
        self.table = nn.Parameter(torch.as_tensor(table, dtype=torch.float32))
        widths = [width + len(levels) * recipe.embedding, *recipe.hidden]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [linear(inputs, outputs, rng), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, rows: Inputs) -> Tensor:
        if rows.frequencies is not None:
            # The mean of embeddings is the embedding of frequencies.
            embedded = (rows.frequencies @ self.table).reshape(1, -1)
        else:
            places = rows.codes + self.starts
            embedded = nn.functional.embedding(places, self.table).flatten(1)
        answer: Tensor = self.layers(torch.cat([rows.numbers, embedded], dim=1))
        return answer


class PictureBody(nn.Module):
    """Three blocks of convolution, group normalisation, ReLU and pooling."""

    def __init__(self, recipe: CNN, rng: np.random.Generator) -> None:
        super().__init__()
        shape = recipe.shape if len(recipe.shape) == 3 else (1, *recipe.shape)
        self.shape = shape
        channels = [shape[0], recipe.width, 2 * recipe.width, 4 * recipe.width]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(channels):
            convolution = _raw(nn.Conv2d, inputs, outputs, 3, padding=1)
            _fill(convolution, 9 * inputs, rng, 2.0)
            groups = math.gcd(outputs, 4)
            layers += [convolution, nn.GroupNorm(groups, outputs), nn.ReLU(), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.width = channels[-1] * (shape[1] // 8) * (shape[2] // 8)

    def forward(self, rows: Inputs) -> Tensor:
        answer: Tensor = self.layers(rows.numbers.reshape(-1, *self.shape))
        return answer


class Reader(nn.Module):
    """How far the label holder believes what a head says: a · said + b, the same for all classes.

    ``a`` has to grow by several units in a few hundred steps of AdamW, whose steps are as long as
    the rate, so it is learned in tenths.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tenths = nn.Parameter(torch.full((), 0.1))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, rows: Inputs) -> Tensor:
        answer: Tensor = 10 * self.tenths * rows.numbers + self.bias
        return answer


class NumbersOnly(nn.Module):
    """A module of the user's own, which knows nothing of codes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, rows: Inputs) -> Tensor:
        answer: Tensor = self.module(rows.numbers)
        return answer


def linear(inputs: int, outputs: int, rng: np.random.Generator, gain: float = 2.0) -> nn.Linear:
    """A layer with uniform weights of variance ``gain`` / inputs and no bias yet."""
    layer: nn.Linear = _raw(nn.Linear, inputs, outputs)
    _fill(layer, inputs, rng, gain)
    return layer


def _fill(layer: nn.Module, fan_in: int, rng: np.random.Generator, gain: float) -> None:
    bound = math.sqrt(3 * gain / max(fan_in, 1))
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            values = rng.uniform(-bound, bound, tuple(parameter.shape))
            drawn = torch.as_tensor(values, dtype=torch.float32)
            parameter.copy_(drawn if name == "weight" else torch.zeros_like(drawn))


def _raw(kind: Any, *sizes: int, **options: int) -> Any:
    """A layer whose weights are not drawn yet, so that torch's global generator is left alone."""
    return skip_init(kind, *sizes, **options)  # type: ignore[no-untyped-call]


def build_network(
    recipe: Recipe, columns: Columns, outputs: int, rng: np.random.Generator, party: str = "?"
) -> nn.Module:
    """A network from rows to ``outputs`` numbers each, initialised from the given generator."""
    if isinstance(recipe, Custom):
        return _wrap_custom(recipe, columns, outputs, party)
    body, width = build_body(recipe, columns, rng, party)
    return nn.Sequential(body, linear(width, outputs, rng, gain=1.0))


def build_body(
    recipe: Recipe, columns: Columns, rng: np.random.Generator, party: str = "?"
) -> tuple[nn.Module, int]:
    """A network from rows to features, without a last layer, and how many features."""
    if isinstance(recipe, MLP):
        return MixedBody(columns.width, columns.levels, recipe, rng), recipe.hidden[-1]
    if isinstance(recipe, CNN):
        _check_shape(recipe, columns.width, party)
        picture = PictureBody(recipe, rng)
        return picture, picture.width
    raise ConfigError("A torch module of the user's own has no body apart from its last layer.")


def _check_shape(recipe: CNN, width: int, party: str) -> None:
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


def _wrap_custom(recipe: Custom, columns: Columns, outputs: int, party: str) -> nn.Module:
    """The user's module, copied so that training leaves theirs alone, tried on one row."""
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
    return NumbersOnly(module)


# ---- training and answering ----------------------------------------------------------------------


@dataclass(frozen=True)
class Learning:
    """How a network learns; the same at all parties."""

    epochs: int = 30
    batch_size: int = 128
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    device: str = "cpu"

    def rate(self, epoch: int) -> float:
        """Half a cosine from the learning rate to 0, as it stands in the middle of an epoch.

        So networks learn as much in all as if the rate fell with each step. Epochs count from 0.
        """
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch + 0.5) / self.epochs))


def drop_empty(batches: Sequence[Numbers], with_fill: bool) -> list[Numbers]:
    """The batches in which a party says anything at all."""
    return [rows for rows in batches if with_fill or len(rows)]


class Member:
    """A party's network with its rows, in this process.

    After ``plan``, ``outputs`` and then ``learn`` is one step of training. The first ``overlap``
    rows are those of the overlap: their mean stands for the party where it is absent. ``evidence``
    says how outputs become evidence; None leaves them as scores.
    """

    def __init__(
        self,
        network: nn.Module,
        inputs: Inputs,
        overlap: int,
        levels: Sequence[int],
        evidence: str | None,
        learning: Learning,
    ) -> None:
        self.network = network.to(learning.device)
        self.inputs = inputs
        self.fill = mean_row(inputs.take(np.arange(overlap)), levels)
        self.evidence = evidence
        self.learning = learning
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(),
            lr=learning.learning_rate,
            weight_decay=learning.weight_decay,
            fused=True,
        )
        self._batches: list[Numbers] = []
        self._with_fill = False
        self._pending: Tensor | None = None

    def plan(self, rate: float, batches: Sequence[Numbers], with_fill: bool) -> None:
        """Begin a pass over these rows of its own, at this rate."""
        self.network.train()
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self._batches, self._with_fill = drop_empty(batches, with_fill)[::-1], with_fill

    @property
    def unfinished(self) -> bool:
        """Whether there are batches left in this pass."""
        return bool(self._batches)

    def outputs(self) -> Floats:
        """What the party says of the next batch, and of its mean row last if that was planned."""
        self._pending = self._forward(self._batches.pop(), self._with_fill)
        return np.asarray(self._pending.detach().cpu().numpy())

    def learn(self, gradient: Floats) -> None:
        """Take the step that the gradient of the last outputs asks for."""
        if self._pending is None:
            raise RuntimeError("learn without outputs")
        self.optimiser.zero_grad(set_to_none=True)
        given = torch.as_tensor(np.array(gradient), device=self._pending.device)
        torch.autograd.backward([self._pending], [given])
        self._pending = None
        self.optimiser.step()

    def answer(self, rows: Numbers, with_fill: bool = False) -> Floats:
        """Outputs without learning."""
        self.network.eval()
        parts = [
            self._forward(part, False).cpu().numpy()
            for part in np.array_split(rows, -(-len(rows) // _ANSWER_ROWS) or 1)
        ]
        if with_fill:
            parts.append(self._forward(rows[:0], True).cpu().numpy())
        return np.concatenate(parts)

    def _forward(self, rows: Numbers, with_fill: bool) -> Tensor:
        with torch.set_grad_enabled(self.network.training):
            parts = [self.network(self.inputs.take(rows))]
            if with_fill:
                parts.append(self.network(self.fill))
            made: Tensor = torch.cat(parts) if with_fill else parts[0]
            return made if self.evidence is None else evidence_of(made, self.evidence)

    # ---- what is kept -------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, Array]:
        """Weights and the state of the optimiser, for a checkpoint."""
        arrays = {f"weight {name}": _numpy(t) for name, t in self.network.state_dict().items()}
        for number, state in self.optimiser.state_dict()["state"].items():
            arrays |= {f"optimiser {number} {name}": _numpy(t) for name, t in state.items()}
        return arrays

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        weights = {
            n.removeprefix("weight "): t for n, t in arrays.items() if n.startswith("weight ")
        }
        load_weights(self.network, weights)
        content = self.optimiser.state_dict()
        state: dict[int, dict[str, Tensor]] = {}
        for name, values in arrays.items():
            if name.startswith("optimiser "):
                _, number, what = name.split(" ", 2)
                state.setdefault(int(number), {})[what] = torch.as_tensor(np.array(values))
        content["state"] = state
        self.optimiser.load_state_dict(content)


def weights_of(network: nn.Module) -> dict[str, Any]:
    """All weights as JSON values."""
    return {name: pack_array(_numpy(tensor)) for name, tensor in network.state_dict().items()}


def restore_weights(network: nn.Module, kept: Mapping[str, Any]) -> None:
    """Undo `weights_of`."""
    try:
        arrays = {name: unpack_array(one) for name, one in kept.items()}
    except (KeyError, TypeError, ValueError):
        raise StoreError("This share of RISA is damaged: its weights cannot be read.") from None
    load_weights(network, arrays)


def load_weights(network: nn.Module, arrays: Mapping[str, Array]) -> None:
    tensors = {name: torch.as_tensor(np.array(values)) for name, values in arrays.items()}
    try:
        network.load_state_dict(tensors)
    except RuntimeError:
        raise StoreError("The kept weights belong to a network of another shape.") from None


def _numpy(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().cpu().numpy())
