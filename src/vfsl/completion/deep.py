"""What methods with networks share: settings, checks, fitting around the loop, saving."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from vfsl.completion.base import Given, Table, as_table, check_sample, given_frame
from vfsl.completion.layers import Layout, source_from
from vfsl.completion.mixed import Mixed, MixedEncoder
from vfsl.completion.training import (
    Budget,
    History,
    OnEvent,
    Task,
    arrays_of,
    load_arrays,
    train,
)
from vfsl.data import Kind, PartyTable
from vfsl.data.checks import check_count, check_rng
from vfsl.errors import ConfigError, DataError
from vfsl.parallel import using_threads
from vfsl.values import Array

_NOT_SAVED = ("device", "threads", "checkpoint", "on_event")
SAMPLE_ROWS = 4_096  # rows that are made at a time


def by_parts(network: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """A network's answer to many rows, some at a time: candidates to choose from can be a million.

    For networks that look at each row alone.
    """
    return torch.cat([network(part) for part in torch.split(inputs, SAMPLE_ROWS)])


@dataclass(kw_only=True)
class Deep(ABC):
    """Settings of every method with networks.

    Parameters
    ----------
    epochs : int
        Passes over the training rows.
    batch_size : int
    patience : int, optional
        Hold a tenth of the rows out and stop when their loss has not fallen for so many epochs.
    device : str
        Where the networks are; draws are made on the CPU, so that they are the same everywhere.
    threads : int
        Threads of PyTorch while it trains and samples.
    checkpoint : path, optional
        Where an unfinished training is kept, to go on from after a crash.
    on_event : callable, optional
        Hears of each finished epoch.
    """

    name: ClassVar[str]

    epochs: int = 100
    batch_size: int = 500
    patience: int | None = None
    device: str = "cpu"
    threads: int = 1
    checkpoint: str | Path | None = None
    on_event: OnEvent | None = None

    @abstractmethod
    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        """Networks with fresh weights, of the shapes that settings and encoder say."""

    def _check(self) -> None:
        where = type(self).__name__
        check_count(where, "epochs", self.epochs, 1)
        check_count(where, "batch_size", self.batch_size, 1)
        check_count(where, "threads", self.threads, 1)
        if self.patience is not None:
            check_count(where, "patience", self.patience, 1)

    def _at_least(self, **least: float) -> None:
        """Refuse settings that are not numbers of at least these values."""
        for name, bound in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= bound:
                raise ConfigError(
                    f"The {name} parameter of {type(self).__name__} must be a number of at least "
                    f"{bound}. Got {value!r} instead."
                )

    def _encode(self, table: PartyTable, encoder: MixedEncoder, rng: np.random.Generator) -> Mixed:
        """Learn the encoding of a table and encode it."""
        self.encoder_: MixedEncoder = encoder.fit(table, rng)
        self.layout_: Layout = Layout(encoder)
        if not self.encoder_.width:
            raise DataError(
                f"The table for {type(self).__name__} has only constant columns; there is nothing "
                "to learn."
            )
        return encoder.transform(table, rng)

    def _train(self, task: Task, rows: int, source: torch.Generator, data: Array) -> None:
        """Run the loop, bound to these settings and data."""
        digest = hashlib.sha256(json.dumps(self.settings(), sort_keys=True).encode())
        digest.update(np.ascontiguousarray(data).tobytes())
        budget = Budget(
            self.epochs,
            self.batch_size,
            self.patience,
            None if self.checkpoint is None else Path(self.checkpoint),
            on_event=self.on_event,
        )
        with using_threads(self.threads):
            self.history_: History = train(
                task, rows, budget, source, name=self.name, job=digest.hexdigest()
            )
        self.networks_: nn.ModuleDict = task.networks

    def settings(self) -> dict[str, Any]:
        """What the model was made with, as JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_SAVED}

    def state(self) -> dict[str, Any]:
        """What was learned beside the weights, as JSON values."""
        self._check_fitted()
        return {"encoder": self.encoder_.to_dict()}

    def arrays(self) -> dict[str, Array]:
        """The learned weights."""
        self._check_fitted()
        return arrays_of(self.networks_)

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Array], where: str) -> None:
        """Take up what :meth:`state` and :meth:`arrays` gave."""
        self.encoder_ = MixedEncoder.from_dict(state["encoder"])
        self.layout_ = Layout(self.encoder_)
        self.networks_ = self._build(torch.Generator()).to(self.device)
        load_arrays(self.networks_, arrays, where)
        self.networks_.eval()

    def _check_fitted(self) -> None:
        if "networks_" not in vars(self):
            raise ConfigError(f"{type(self).__name__} is not fitted yet: call fit first.")


@dataclass(kw_only=True)
class DeepGenerator(Deep):
    """A generator with networks: encodes, trains, samples, and meets conditions."""

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Learn from a table.

        Parameters
        ----------
        table : PartyTable or DataFrame
            Labels of a party's table are left out; missing cells are learned as such.
        rng : numpy Generator
            All randomness; the same seed gives the same model.
        """
        self._check()
        check_rng(f"{type(self).__name__}.fit", rng)
        known = as_table(table, type(self).__name__)
        encoded = self._encode(known, self._encoder(), rng)
        source = source_from(rng)
        task = self._task(encoded.matrix, source)
        self._train(task, self._training_rows(len(known)), source, encoded.matrix)
        return self

    def sample(self, n: int, rng: np.random.Generator, given: Given | None = None) -> pd.DataFrame:
        """Make up rows.

        Parameters
        ----------
        n : int
        rng : numpy Generator
        given : dict, DataFrame or PartyTable, optional
            Conditions: column to value for all rows, or a table of ``n`` rows whose missing cells
            are free. Given cells come back as they are.

        Returns
        -------
        DataFrame
            In the units, types and categories of the training table.
        """
        self._check_fitted()
        where = type(self).__name__
        check_sample(f"{where}.sample", n, rng)
        source = source_from(rng)
        conditions = None if given is None else Conditions.of(given, n, self.encoder_, where)
        if n == 0:
            return self.encoder_.inverse(np.zeros((0, self.encoder_.width)))
        with torch.no_grad(), using_threads(self.threads):
            parts = []
            for start in range(0, n, SAMPLE_ROWS):
                rows = slice(start, min(start + SAMPLE_ROWS, n))
                part = None if conditions is None else conditions.take(rows)
                parts.append(self._make(rows.stop - start, part, source))
        frame = self.encoder_.inverse(np.concatenate(parts))
        return frame if conditions is None else conditions.impose(frame)

    def _training_rows(self, rows: int) -> int:
        return rows

    @abstractmethod
    def _encoder(self) -> MixedEncoder:
        """The encoding that the method is defined with."""

    @abstractmethod
    def _task(self, matrix: Array, source: torch.Generator) -> Task:
        """The training on this matrix."""

    @abstractmethod
    def _make(self, n: int, given: Conditions | None, source: torch.Generator) -> Array:
        """``n`` encoded rows that fit the conditions as well as the method can."""


@dataclass(frozen=True, eq=False)
class Conditions:
    """Given cells: as the user wrote them, and encoded with the free ones blank."""

    frame: pd.DataFrame
    encoded: Mixed

    @classmethod
    def of(cls, given: Given, n: int, encoder: MixedEncoder, where: str) -> Conditions:
        frame = given_frame(given, n, encoder.kinds, where)
        columns: dict[str, pd.Series[Any]] = {}
        for name in frame.columns:
            columns[name] = frame[name]
            if encoder.kinds[name] is Kind.NUMERIC:
                try:
                    columns[name] = pd.to_numeric(frame[name]).astype("Float64")
                except (ValueError, TypeError):
                    raise DataError(
                        f"The given column {name!r} of {where} must be numeric, as in training."
                    ) from None
        typed = pd.DataFrame(columns, index=pd.RangeIndex(n))
        table = PartyTable(
            "given", np.arange(n), typed, {name: encoder.kinds[name] for name in typed.columns}
        )
        return cls(frame, encoder.transform(table, blank=True))

    def take(self, rows: slice) -> Conditions:
        return Conditions(
            self.frame.iloc[rows],
            Mixed(self.encoded.matrix[rows], self.encoded.observed[rows]),
        )

    def inputs(self, layout: Layout, device: str) -> tuple[Tensor, Tensor]:
        """The given cells and which they are, as a network takes them."""
        return (
            layout.into(self.encoded.matrix, device),
            layout.mask(self.encoded.observed, device),
        )

    def impose(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame with the given cells as they were given."""
        for name in self.frame.columns:
            wanted = self.frame[name].reset_index(drop=True)
            known = wanted.notna().to_numpy()
            if not known.any():
                continue
            column = frame[name]
            cells = column.astype(object).to_numpy().copy()
            cells[known] = wanted.astype(object).to_numpy()[known]
            frame[name] = _typed(cells, column.dtype)
        return frame


def _typed(cells: Array, dtype: Any) -> pd.Series[Any]:
    """Cells in a column's type, or as pandas infers it where a given value does not fit it."""
    try:
        if isinstance(dtype, np.dtype) and dtype.kind in "iu":
            numbers = pd.array(cells, dtype="Float64")
            if (numbers != np.floor(numbers.to_numpy(dtype=float, na_value=0))).any():
                return pd.Series(cells.astype(np.float64))
        return pd.Series(cells, dtype=object).astype(dtype)
    except (TypeError, ValueError):
        return pd.Series(cells.tolist())
