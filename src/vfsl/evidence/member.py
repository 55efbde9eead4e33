"""One party's network with its rows and its optimiser: all that a party computes itself."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from vfsl.errors import StoreError
from vfsl.evidence.columns import Arrays
from vfsl.evidence.encoders import Inputs, mean_row
from vfsl.evidence.opinion import evidence_of
from vfsl.evidence.rows import Numbers
from vfsl.values import Array

Floats = npt.NDArray[np.float32]
_ANSWER_ROWS = 2048


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

        So a run learns as much in all as if the rate fell with each step. Epochs count from 0.
        """
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (epoch + 0.5) / self.epochs))


def as_inputs(arrays: Arrays, device: str = "cpu") -> Inputs:
    return Inputs(
        torch.as_tensor(arrays.numbers, device=device), torch.as_tensor(arrays.codes, device=device)
    )


class Member:
    """A party's network. ``outputs`` then ``learn`` is one step of training.

    Parameters
    ----------
    network : torch module
        From rows to K numbers each.
    inputs : Inputs
        All rows of the party: the overlap, then its own.
    overlap : int
        How many of them are overlap rows; their mean stands for the party where it is absent.
    levels : sequence of int
        How many codes each categorical column has.
    evidence : {"exp", "softplus", "relu"} or None
        How outputs become evidence; None leaves them as scores.
    learning : Learning
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
        self._pending: torch.Tensor | None = None

    def begin(self, rate: float) -> None:
        """Learn at this rate from now on."""
        self.network.train()
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def outputs(self, rows: Numbers, with_fill: bool) -> Floats:
        """What the party says of these rows of its own, and of its mean row last if asked."""
        self._pending = self._forward(rows, with_fill)
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

    def _forward(self, rows: Numbers, with_fill: bool) -> torch.Tensor:
        with torch.set_grad_enabled(self.network.training):
            parts = [self.network(self.inputs.take(rows))]
            if with_fill:
                parts.append(self.network(self.fill))
            made: torch.Tensor = torch.cat(parts) if with_fill else parts[0]
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
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, values in arrays.items():
            if name.startswith("optimiser "):
                _, number, what = name.split(" ", 2)
                state.setdefault(int(number), {})[what] = torch.as_tensor(np.array(values))
        content["state"] = state
        self.optimiser.load_state_dict(content)


def weights_of(network: nn.Module) -> dict[str, Any]:
    """All weights as JSON values."""
    kept = {}
    for name, tensor in network.state_dict().items():
        values = _numpy(tensor)
        data = base64.b64encode(values.tobytes()).decode()
        kept[name] = {"dtype": values.dtype.str, "shape": list(values.shape), "data": data}
    return kept


def restore_weights(network: nn.Module, kept: Mapping[str, Any]) -> None:
    """Undo `weights_of`."""
    try:
        arrays = {
            name: np.frombuffer(base64.b64decode(one["data"]), one["dtype"]).reshape(one["shape"])
            for name, one in kept.items()
        }
    except (KeyError, TypeError, ValueError):
        raise StoreError("This share of RISA is damaged: its weights cannot be read.") from None
    load_weights(network, arrays)


def load_weights(network: nn.Module, arrays: Mapping[str, Array]) -> None:
    tensors = {name: torch.as_tensor(np.array(values)) for name, values in arrays.items()}
    try:
        network.load_state_dict(tensors)
    except RuntimeError:
        raise StoreError("The kept weights belong to a network of another shape.") from None


def _numpy(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.detach().cpu().numpy())
