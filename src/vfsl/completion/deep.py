"""What methods with networks share: settings, saving, sampling, and meeting conditions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vfsl.completion.base import Given, Table, as_table
from vfsl.completion.layers import Layout, source_from
from vfsl.completion.mixed import Mixed, MixedEncoder, NumberCoding
from vfsl.completion.training import History, Training, arrays_of, load_arrays, train_networks
from vfsl.data import Kind, PartyTable
from vfsl.data.checks import check_rng, counted
from vfsl.errors import ConfigError, DataError
from vfsl.parallel import using_threads
from vfsl.params import check_params, param, params_of
from vfsl.progress import OnEvent
from vfsl.store import Checkpoints
from vfsl.values import Array

SAMPLE_ROWS = 4_096  # rows that are made at a time
_NOT_SAVED = ("device", "threads", "checkpoint", "on_event")


@dataclass(kw_only=True)
class Deep(ABC):
    """Settings of every method with networks."""

    name: ClassVar[str]
    stops_early: ClassVar[bool] = True

    epochs: int = param(100, "Passes over the training rows.", ge=1)
    batch_size: int = param(500, "Rows per step.", ge=1)
    patience: int | None = param(
        None,
        "Hold out a tenth of the rows and stop when their loss has not fallen for so many epochs.",
        ge=1,
    )
    device: str = param(
        "cpu",
        "Where the networks are. Draws are made on the CPU, so that they are the same everywhere.",
    )
    threads: int = param(1, "Threads of PyTorch while it trains and samples.", ge=1)
    checkpoint: str | Path | None = param(
        None,
        "Where an unfinished training is kept, to go on from after a crash: a folder of this name "
        "and the suffix .training, which goes when the training is finished.",
        option=False,
    )
    on_event: OnEvent | None = param(
        None, "Hears of each finished epoch and its losses.", option=False
    )

    @abstractmethod
    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        """Networks with fresh weights, of the shapes that settings and encoder say."""

    @abstractmethod
    def _optimisers(self, networks: nn.ModuleDict) -> dict[str, Optimizer]:
        """What moves the weights of these networks."""

    def _check(self) -> None:
        check_params(self)
        if self.patience is not None and not self.stops_early:
            raise ConfigError(
                f"The patience parameter of {type(self).__name__} must be None: losses of a GAN do "
                f"not say when it is good. Got {self.patience!r} instead."
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

    def _train(self, training: Training, rows: int, source: torch.Generator, data: Array) -> None:
        """Run the loop; its checkpoints are bound to these settings and data."""
        folder = None if self.checkpoint is None else Path(self.checkpoint).with_suffix(".training")
        kept = Checkpoints(folder, self.settings(), data)
        with using_threads(self.threads):
            self.history_: History = train_networks(
                training,
                rows,
                source,
                name=self.name,
                epochs=self.epochs,
                batch_size=self.batch_size,
                patience=self.patience,
                kept=kept,
                on_event=self.on_event,
            )
        self.networks_: nn.ModuleDict = training.networks
        kept.clear()

    def settings(self) -> dict[str, Any]:
        """What the model was made with; what belongs to the machine is left out."""
        return {
            name: getattr(self, name) for name in params_of(type(self)) if name not in _NOT_SAVED
        }

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

    training: ClassVar[type[RowTraining]]

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
        training = self.training(self, encoded.matrix, source)
        self._train(training, len(known), source, encoded.matrix)
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
        check_rng(f"{where}.sample", rng)
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise DataError(
                f"The n parameter of {where}.sample must be a whole number of at least 0. "
                f"Got {n!r}."
            )
        source = source_from(rng)
        conditions = None if given is None else Conditions.of(given, n, self.encoder_, where)
        parts = [np.zeros((0, self.encoder_.width))]
        with torch.no_grad(), using_threads(self.threads):
            for start in range(0, n, SAMPLE_ROWS):
                rows = slice(start, min(start + SAMPLE_ROWS, n))
                part = None if conditions is None else conditions.take(rows)
                parts.append(self._make(rows.stop - start, part, source))
        frame = self.encoder_.inverse(np.concatenate(parts))
        return frame if conditions is None else conditions.impose(frame)

    def _refuse_conditions(self) -> NoReturn:
        raise ConfigError(
            f"This {type(self).__name__} was fitted with conditional=False and meets no "
            "conditions; fit it with conditional=True."
        )

    @abstractmethod
    def _encoder(self) -> MixedEncoder:
        """The encoding that the method is defined with."""

    def _rows(self, matrix: Array) -> Tensor:
        """Encoded rows as the networks see them."""
        return self.layout_.into(matrix, self.device)

    @abstractmethod
    def _make(self, n: int, given: Conditions | None, source: torch.Generator) -> Array:
        """``n`` encoded rows that fit the conditions as well as the method can."""


class RowTraining(Training):
    """A training on the rows of a table, of which the first tenth may be held out."""

    def __init__(self, model: DeepGenerator, matrix: Array, source: torch.Generator) -> None:
        self.model, self.source = model, source
        rows = model._rows(matrix)
        held = len(rows) // 10 if model.patience is not None else 0
        self.held, self.rows = rows[:held], rows[held:]
        self.networks = model.networks_ = model._build(source).to(model.device)
        self.optimisers = model._optimisers(self.networks)


def in_parts(network: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """A network's answer to many rows, some at a time: candidates to choose from can be a million.

    For networks that look at each row alone.
    """
    return torch.cat([network(part) for part in torch.split(inputs, SAMPLE_ROWS)])


@dataclass(frozen=True, eq=False)
class Conditions:
    """Given cells: as the user wrote them, and encoded with the free ones blank."""

    frame: pd.DataFrame
    encoded: Mixed

    @classmethod
    def of(cls, given: Given, n: int, encoder: MixedEncoder, where: str) -> Conditions:
        """Conditions for ``n`` rows; unknown columns and wrong lengths are refused."""
        if isinstance(given, PartyTable):
            frame = given.frame
        elif isinstance(given, pd.DataFrame):
            frame = given.reset_index(drop=True)
        elif isinstance(given, Mapping):
            frame = pd.DataFrame({name: [value] * n for name, value in given.items()})
            frame.index = pd.RangeIndex(n)
        else:
            raise DataError(
                f"The given parameter of {where} must be a dict of column to value or a table. "
                f"Got {type(given).__name__} instead."
            )
        kinds = encoder.kinds
        for name in frame.columns:
            if name not in kinds:
                known = ", ".join(repr(column) for column in list(kinds)[:12])
                raise DataError(
                    f"{where} has learned no column {name!r} to be given; its columns are {known}."
                )
        if len(frame) != n:
            raise DataError(
                f"The given parameter of {where} must have {counted(n, 'row')}, one for each "
                f"sample. Got {len(frame):,} instead."
            )
        columns: dict[str, pd.Series[Any]] = {}
        for name in frame.columns:
            columns[name] = frame[name]
            if kinds[name] is Kind.NUMERIC:
                try:
                    columns[name] = pd.to_numeric(frame[name]).astype("Float64")
                except (ValueError, TypeError):
                    raise DataError(
                        f"The given column {name!r} of {where} must be numeric, as in training."
                    ) from None
        typed = pd.DataFrame(columns, index=pd.RangeIndex(n))
        table = PartyTable("given", np.arange(n), typed, {name: kinds[name] for name in columns})
        return cls(frame, encoder.transform(table, blank=True))

    def take(self, rows: slice) -> Conditions:
        encoded = Mixed(self.encoded.matrix[rows], self.encoded.observed[rows])
        return Conditions(self.frame.iloc[rows], encoded)

    def inputs(self, layout: Layout, device: str) -> tuple[Tensor, Tensor]:
        """The given cells and which they are, as a network takes them."""
        known = torch.from_numpy(self.encoded.observed.astype(np.float32)).to(device)
        return layout.into(self.encoded.matrix, device), known[:, layout.owners]

    def choose_nearest(
        self, encoder: MixedEncoder, candidates: int, draw: Callable[[Array], Array]
    ) -> Array:
        """For each row the nearest of some candidates, for generators that take no conditions.

        ``draw`` gives one encoded candidate for each of the row numbers that it is given; they
        repeat.
        """
        n = len(self.frame)
        rows = np.repeat(np.arange(n), candidates)
        made = draw(rows)
        given, observed = self.encoded.matrix[rows], self.encoded.observed[rows]
        nearest = distances(encoder, made, given, observed).reshape(n, candidates).argmin(axis=1)
        return np.asarray(made[np.arange(n) * candidates + nearest])

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


def distances(encoder: MixedEncoder, made: Array, given: Array, observed: Array) -> Array:
    """Squared distance of rows over the given cells: numbers in deviations, 2 a wrong category."""
    total = np.zeros(len(made))
    for place, (coding, columns) in enumerate(encoder.blocks()):
        known = observed[:, place]
        if not coding.width or not known.any():
            continue
        one, two = made[known, columns], given[known, columns]
        if isinstance(coding, NumberCoding):
            # A candidate whose cell is missing is as far as one can be wrong on average.
            gap = np.nan_to_num(coding.standardised(one) - coding.standardised(two), nan=2)
            total[known] += gap**2
        else:
            total[known] += 2.0 * (one.argmax(axis=1) != two.argmax(axis=1))
    return total


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
