"""The one training loop of networks: progress, early stop, and checkpoints that resume exactly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vfsl.errors import ConfigError, StoreError
from vfsl.progress import Event, OnEvent
from vfsl.store import Checkpoints
from vfsl.values import Array

KEEP_EVERY = 10  # epochs
_KEPT = 2  # between parties, an epoch that only some managed to keep must not be the only one


@dataclass(frozen=True)
class EpochEvent(Event):
    """One finished epoch, with its mean losses."""

    losses: Mapping[str, float] = field(default_factory=dict)


@dataclass
class History:
    """What a training did: the mean losses of each epoch, which was the best, and why it ended."""

    losses: list[dict[str, float]] = field(default_factory=list)
    stop_reason: str = ""
    best: float | None = None
    best_epoch: int = 0
    best_facts: Any = None


class Training(ABC):
    """What a method gives the loop: its networks, its optimisers, and one step on some rows."""

    # Empty methods of a base class are meant here: most methods need none of these.
    # ruff: noqa: B027

    networks: nn.ModuleDict
    optimisers: dict[str, Optimizer]

    def begin(self, epoch: int, epochs: int) -> None:
        """Called before each epoch."""

    @abstractmethod
    def step(self, rows: Tensor) -> dict[str, Tensor]:
        """One update on these row numbers; the losses, for the record."""

    def validate(self) -> float | None:
        """A loss on rows held out, to stop early by; None if there is no such thing."""
        return None

    def end(self, better: bool, stop: bool) -> Any:
        """Called when an epoch was judged; what is to be kept of it if it is the best, as JSON."""

    def sources(self) -> dict[str, torch.Generator]:
        """Further generators that the training draws from."""
        return {}


def train_networks(
    training: Training,
    rows: int,
    source: torch.Generator,
    *,
    name: str,
    epochs: int,
    batch_size: int,
    patience: int | None = None,
    kept: Checkpoints | None = None,
    resume: int | None = None,
    on_event: OnEvent | None = None,
) -> History:
    """Train until all epochs are done or the held-out loss no longer falls.

    A training that was kept at an earlier attempt goes on to the same networks: from the epoch
    ``resume``, by default from the last one that is there.
    """
    kept = Checkpoints(None) if kept is None else kept
    history = History()
    best: dict[str, Array] | None = None
    sources = {"source": source, **training.sources()}
    mark = max(kept.numbers("epoch"), default=0) if resume is None else resume
    if mark:
        history = History(**kept.load(f"epoch-{mark}"))
        arrays = kept.load_arrays(f"epoch-{mark}")
        best = _load_state(arrays, training.networks, training.optimisers, sources)
    for epoch in range(len(history.losses), epochs):
        if history.stop_reason:
            break
        training.networks.train()
        training.begin(epoch, epochs)
        history.losses.append(_train_epoch(training, rows, batch_size, source))
        if patience is not None:
            best = _judge(training, history, epoch, patience, best)
        if (epoch + 1) % KEEP_EVERY == 0 or history.stop_reason:
            arrays = _state_arrays(training.networks, training.optimisers, sources, best)
            kept.save(f"epoch-{epoch + 1}", asdict(history), arrays)
            for old in kept.numbers("epoch")[:-_KEPT]:
                kept.forget(f"epoch-{old}")
        if on_event is not None:
            on_event(EpochEvent(name, "epoch", epoch + 1, epochs, history.losses[-1]))
    history.stop_reason = history.stop_reason or f"all {epochs} epochs"
    if best is not None:
        load_arrays(training.networks, best, "the best epoch")
    training.networks.eval()
    return history


def _train_epoch(
    training: Training, rows: int, batch_size: int, source: torch.Generator
) -> dict[str, float]:
    """All rows once, in random batches of nearly equal size."""
    order = torch.randperm(rows, generator=source)
    batches = order.tensor_split(max(round(rows / batch_size), 1))
    sums: dict[str, Tensor] = {}
    for batch in batches:
        for key, loss in training.step(batch).items():
            sums[key] = sums.get(key, torch.zeros(())) + loss.detach().cpu()
    losses = {key: float(total) / len(batches) for key, total in sums.items()}
    odd = [key for key, loss in losses.items() if not np.isfinite(loss)]
    if odd:
        raise ConfigError(
            f"Training diverged: the loss {odd[0]!r} is no longer a finite number; use a smaller "
            "learning rate."
        )
    return losses


def _judge(
    training: Training, history: History, epoch: int, patience: int, best: dict[str, Array] | None
) -> dict[str, Array] | None:
    """Keep the weights with the smallest held-out loss; decide whether to stop."""
    training.networks.eval()
    score = training.validate()
    if score is None:
        return best
    history.losses[-1]["held out"] = score
    better = history.best is None or score < history.best
    if better:
        history.best, history.best_epoch = score, epoch + 1
        best = arrays_of(training.networks)
    stop = epoch + 1 - history.best_epoch >= patience
    if stop:
        history.stop_reason = f"no better held-out loss for {patience} epochs"
    facts = training.end(better, stop)
    history.best_facts = facts if better else history.best_facts
    return best


def descend(optimiser: Optimizer, loss: Tensor, clip: float | None = None) -> None:
    """One step of an optimiser down a loss, its gradient cut to a norm of ``clip``."""
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward([loss])
    if clip is not None:
        parameters = [value for group in optimiser.param_groups for value in group["params"]]
        nn.utils.clip_grad_norm_(parameters, clip)
    optimiser.step()


def arrays_of(networks: nn.Module) -> dict[str, Array]:
    """Weights as named arrays, copied: the next step does not change them."""
    return {key: value.cpu().numpy().copy() for key, value in networks.state_dict().items()}


def load_arrays(networks: nn.Module, arrays: Mapping[str, Array], where: str) -> None:
    """Weights from named arrays of the same shapes, else StoreError."""
    wanted = networks.state_dict()
    if {key: tuple(value.shape) for key, value in wanted.items()} != {
        key: tuple(value.shape) for key, value in arrays.items()
    }:
        raise StoreError(f"{where} holds networks of another shape than its settings say.")
    networks.load_state_dict({key: _tensor(arrays[key]) for key in wanted})


def _state_arrays(
    networks: nn.Module,
    optimisers: Mapping[str, Optimizer],
    sources: Mapping[str, torch.Generator],
    best: Mapping[str, Array] | None,
) -> dict[str, Array]:
    """All that a training goes on from, as named arrays."""
    arrays = {f"now/{key}": value for key, value in arrays_of(networks).items()}
    arrays |= {f"best/{key}": value for key, value in (best or {}).items()}
    arrays |= {f"source/{name}": source.get_state().numpy() for name, source in sources.items()}
    for name, optimiser in optimisers.items():
        for place, state in optimiser.state_dict()["state"].items():
            for key, value in state.items():
                arrays[f"optimiser/{name}/{place}/{key}"] = torch.as_tensor(value).cpu().numpy()
    return arrays


def _load_state(
    arrays: Mapping[str, Array],
    networks: nn.Module,
    optimisers: Mapping[str, Optimizer],
    sources: Mapping[str, torch.Generator],
) -> dict[str, Array] | None:
    """Undo :func:`_state_arrays`; the best weights, if there were any."""
    load_arrays(networks, _under(arrays, "now/"), "a checkpoint")
    for name, source in sources.items():
        source.set_state(_tensor(arrays[f"source/{name}"]))
    for name, optimiser in optimisers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in _under(arrays, f"optimiser/{name}/").items():
            place, _, of = key.partition("/")
            state.setdefault(int(place), {})[of] = _tensor(value)
        groups = optimiser.state_dict()["param_groups"]
        optimiser.load_state_dict({"state": state, "param_groups": groups})
    return _under(arrays, "best/") or None


def _under(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {k.removeprefix(prefix): value for k, value in arrays.items() if k.startswith(prefix)}


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array))
