"""The one training loop: progress, early stop, checkpoints, seed, threads and device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vfsl import store
from vfsl.errors import ConfigError, StoreError
from vfsl.values import Array


@dataclass(frozen=True)
class Progress:
    """One finished epoch, for progress displays."""

    step: str
    stage: str
    done: int
    total: int
    losses: Mapping[str, float]


OnEvent = Callable[[Progress], None]


@dataclass(frozen=True)
class Budget:
    """How long to train, and where to report."""

    epochs: int
    batch_size: int
    patience: int | None = None
    checkpoint: Path | None = None
    every: int = 10
    on_event: OnEvent | None = None


@dataclass
class History:
    """What a training did: the mean losses of each epoch, and why it ended."""

    losses: list[dict[str, float]] = field(default_factory=list)
    stop_reason: str = ""
    best: float | None = None
    best_epoch: int = 0


class Task(ABC):
    """What a method gives the loop: its networks, its optimisers, and one step on some rows."""

    # An empty method of a base class is meant here: most tasks need neither.
    # ruff: noqa: B027

    networks: nn.ModuleDict
    optimisers: dict[str, Optimizer]

    def begin(self, epoch: int, epochs: int) -> None:
        """Called before each epoch, for schedules."""

    @abstractmethod
    def step(self, rows: Tensor) -> dict[str, Tensor]:
        """One update on these row numbers; the losses, for the record."""

    def validate(self) -> float | None:
        """A loss on rows held out, to stop early by; None if there is no such thing."""
        return None


def train(
    task: Task, rows: int, budget: Budget, source: torch.Generator, *, name: str, job: str
) -> History:
    """Run epochs until the budget is spent or the held-out loss no longer falls.

    Parameters
    ----------
    job : str
        What a checkpoint must have been made for to be taken up: settings and data.
    """
    history = History()
    keeper = None if budget.checkpoint is None else _Keeper(budget.checkpoint, job)
    best: dict[str, Tensor] | None = None
    if keeper is not None and keeper.exists():
        history, best = keeper.load(task, source)
    for epoch in range(len(history.losses), budget.epochs):
        if history.stop_reason:
            break
        task.networks.train()
        task.begin(epoch, budget.epochs)
        history.losses.append(_epoch(task, rows, budget.batch_size, source))
        if budget.patience is not None:
            best = _judge(task, history, epoch, budget.patience, best)
        if keeper is not None and ((epoch + 1) % budget.every == 0 or history.stop_reason):
            keeper.save(task, source, history, best)
        if budget.on_event is not None:
            losses = history.losses[-1]
            budget.on_event(Progress(name, "epoch", epoch + 1, budget.epochs, losses))
    history.stop_reason = history.stop_reason or f"all {budget.epochs} epochs"
    if best is not None:
        task.networks.load_state_dict(best)
    task.networks.eval()
    if keeper is not None:
        keeper.clear()
    return history


def _epoch(task: Task, rows: int, batch_size: int, source: torch.Generator) -> dict[str, float]:
    """All rows once, in random batches of nearly equal size."""
    order = torch.randperm(rows, generator=source)
    batches = order.tensor_split(max(round(rows / batch_size), 1))
    sums: dict[str, Tensor] = {}
    for batch in batches:
        for key, loss in task.step(batch).items():
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
    task: Task, history: History, epoch: int, patience: int, best: dict[str, Tensor] | None
) -> dict[str, Tensor] | None:
    """Keep the weights with the smallest held-out loss; decide whether to stop."""
    task.networks.eval()
    score = task.validate()
    if score is None:
        return best
    history.losses[-1]["held out"] = score
    if history.best is None or score < history.best:
        history.best, history.best_epoch = score, epoch + 1
        return {key: value.clone() for key, value in task.networks.state_dict().items()}
    if epoch + 1 - history.best_epoch >= patience:
        history.stop_reason = f"no better held-out loss for {patience} epochs"
    return best


def arrays_of(networks: nn.Module) -> dict[str, Array]:
    """Weights as named arrays."""
    return {key: value.cpu().numpy() for key, value in networks.state_dict().items()}


def load_arrays(networks: nn.Module, arrays: Mapping[str, Array], where: str) -> None:
    """Weights from named arrays of the same shapes, else StoreError."""
    wanted = networks.state_dict()
    if {key: tuple(value.shape) for key, value in wanted.items()} != {
        key: tuple(value.shape) for key, value in arrays.items()
    }:
        raise StoreError(f"{where} holds networks of another shape than its settings say.")
    networks.load_state_dict({key: torch.from_numpy(np.array(arrays[key])) for key in wanted})


def descend(optimiser: Optimizer, loss: Tensor, clip: float | None = None) -> None:
    """One step of an optimiser down a loss, its gradient cut to a norm of ``clip``."""
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward([loss])
    if clip is not None:
        parameters = [value for group in optimiser.param_groups for value in group["params"]]
        nn.utils.clip_grad_norm_(parameters, clip)
    optimiser.step()


class _Keeper:
    """Checkpoints of one training: arrays beside a JSON page, never pickles."""

    def __init__(self, path: Path, job: str) -> None:
        self._arrays = Path(path).with_suffix(".npz")
        self._page = Path(path).with_suffix(".json")
        self._job = job

    def exists(self) -> bool:
        return self._page.exists()

    def save(
        self,
        task: Task,
        source: torch.Generator,
        history: History,
        best: dict[str, Tensor] | None,
    ) -> None:
        arrays = {f"now/{key}": value for key, value in arrays_of(task.networks).items()}
        arrays["source"] = source.get_state().numpy()
        for key, value in (best or {}).items():
            arrays[f"best/{key}"] = value.cpu().numpy()
        for name, optimiser in task.optimisers.items():
            for place, state in optimiser.state_dict()["state"].items():
                for key, value in state.items():
                    arrays[f"optimiser/{name}/{place}/{key}"] = torch.as_tensor(value).cpu().numpy()
        # The page names the arrays that belong to it, so a crash between the two is noticed.
        mark = len(history.losses)
        arrays["mark"] = np.array(mark)
        store.write_arrays(self._arrays, arrays)
        page = {"job": self._job, "mark": mark, "history": asdict(history)}
        store.write_json(self._page, page)

    def load(self, task: Task, source: torch.Generator) -> tuple[History, dict[str, Tensor] | None]:
        page = store.read_json(self._page)
        if not isinstance(page, dict) or page.get("job") != self._job:
            raise StoreError(
                f"{self._page} was kept by another training or is damaged; delete it to start "
                "afresh."
            )
        arrays = store.read_arrays(self._arrays)
        try:
            history = History(**page["history"])
            # Of the two files the arrays are written first; the page then lags by one save.
            behind = int(arrays["mark"]) != page["mark"]
            state = torch.from_numpy(np.array(arrays["source"]))
        except (KeyError, TypeError):
            raise StoreError(f"{self._page} is damaged: it is not a checkpoint.") from None
        if behind:
            raise StoreError(f"{self._page} and its arrays differ; delete them to start afresh.")
        load_arrays(task.networks, _under(arrays, "now/"), str(self._arrays))
        source.set_state(state)
        for name, optimiser in task.optimisers.items():
            _restore_optimiser(optimiser, _under(arrays, f"optimiser/{name}/"))
        kept = _under(arrays, "best/")
        best = {key: torch.from_numpy(np.array(value)) for key, value in kept.items()} or None
        return history, best

    def clear(self) -> None:
        self._page.unlink(missing_ok=True)
        self._arrays.unlink(missing_ok=True)


def _under(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {k.removeprefix(prefix): value for k, value in arrays.items() if k.startswith(prefix)}


def _restore_optimiser(optimiser: Optimizer, arrays: Mapping[str, Array]) -> None:
    state: dict[int, dict[str, Any]] = {}
    for key, value in arrays.items():
        place, _, name = key.partition("/")
        state.setdefault(int(place), {})[name] = torch.from_numpy(np.array(value))
    content = optimiser.state_dict()
    optimiser.load_state_dict({"state": state, "param_groups": content["param_groups"]})
