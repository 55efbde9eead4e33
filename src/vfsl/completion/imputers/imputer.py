"""What GAIN and VGAIN share: encoding, hiding, the loss on cells, and completing a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from vfsl.completion.base import Completed, Filling, Table, as_table
from vfsl.completion.deep import SAMPLE_ROWS, Deep
from vfsl.completion.imputers.masking import MASKINGS, Patterns
from vfsl.completion.layers import Layout, Pieces, source_from
from vfsl.completion.mixed import MixedEncoder, NumberCoding
from vfsl.completion.training import Task
from vfsl.data import PartyTable
from vfsl.data.checks import check_choice, check_count, check_fraction, check_rng
from vfsl.errors import DataError
from vfsl.parallel import using_threads
from vfsl.values import Array

SCALINGS = ("standard", "minmax")


@dataclass(kw_only=True)
class Imputer(Deep):
    """An imputer with networks.

    Parameters
    ----------
    masking : {"block", "cell"}
        What is hidden while learning. "block": whole sets of columns, as they are missing in the
        table (or as ``blocks`` says), with the loss on the hidden cells. "cell": nothing; the loss
        is on the known cells, as in the textbook. That fails where every missing cell of a row
        is in one block.
    blocks : list of lists of str, optional
        Columns that go missing together, where the table to learn from does not show it.
    scaling : {"standard", "minmax"}
        Of numbers; the textbook's is "minmax".
    pieces : int
        Pieces, cut at quantiles, as which networks also see each number that is known. They show
        crowds at one value and long tails; on the credit table they made categories more accurate.
        0 switches them off.
    width : int
        Of hidden layers.
    rate : float
        Learning rate.
    hint : float
        Share of cells of which the discriminator is told whether they are known.
    adversarial : float
        Weight of the adversarial loss. Small, since it wants draws where the other wants means: on
        the credit table 0.1 cost up to a tenth of the accuracy of numbers.
    reconstruction : float
        Weight of the loss on known cells, with masking="cell".
    """

    epochs: int = 150
    batch_size: int = 256
    patience: int | None = 15
    masking: str = "block"
    blocks: Sequence[Sequence[str]] | None = None
    scaling: str = "standard"
    pieces: int = 12
    width: int = 128
    rate: float = 1e-3
    hint: float = 0.9
    adversarial: float = 0.01
    reconstruction: float = 100.0

    def _check(self) -> None:
        super()._check()
        where = type(self).__name__
        check_choice(where, "masking", self.masking, MASKINGS)
        check_choice(where, "scaling", self.scaling, SCALINGS)
        check_fraction(where, "hint", self.hint)
        check_count(where, "pieces", self.pieces, 0)
        self._at_least(width=1, rate=0.0, adversarial=0.0, reconstruction=0.0)

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Learn from a table; its missing cells show what is to be completed.

        Parameters
        ----------
        table : PartyTable or DataFrame
            Rows to learn from together with rows to complete, or the former only.
        rng : numpy Generator
        """
        self._check()
        check_rng(f"{type(self).__name__}.fit", rng)
        known = as_table(table, type(self).__name__)
        encoded = self._encode(known, MixedEncoder(self.scaling, missing="blank"), rng)
        patterns = self._patterns(encoded.observed)
        usable = self._usable(encoded.observed, patterns)
        if len(usable) < 2:
            raise DataError(
                f"{type(self).__name__} needs at least two rows in which cells of the missing "
                f"columns are known. Got {len(usable)} instead."
            )
        usable = rng.permutation(usable)
        source = source_from(rng)
        data = Rows.of(encoded.matrix[usable], encoded.observed[usable], self.layout_, self.device)
        held = max(len(usable) // 10, 1) if self.patience is not None else 0
        task = self._task(data.take(slice(held, None)), data.take(slice(held)), patterns, source)
        self._train(task, len(usable) - held, source, encoded.matrix)
        judged = data.take(slice(held)) if held else data
        self.spread_: dict[str, float] = self._residuals(judged, patterns, source)
        return self

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """Fill missing cells by their conditional mean or most probable category."""
        self._check_fitted()
        asked = as_table(table, type(self).__name__)
        check_rng(f"{type(self).__name__}.complete", rng)
        self._check_columns(asked)
        # A column without any cell has the kind that pandas happened to give it; it says nothing.
        empty = [name for name in asked.features if asked.column(name).isna().all()]
        encoded = self.encoder_.transform(asked.without(empty), unseen="blank")
        source = source_from(rng)
        parts = []
        with torch.no_grad(), using_threads(self.threads):
            for start in range(0, len(asked), SAMPLE_ROWS):
                rows = slice(start, start + SAMPLE_ROWS)
                data = Rows.of(
                    encoded.matrix[rows], encoded.observed[rows], self.layout_, self.device
                )
                parts.append(self._guess(data.values, data.known, source))
        guess = self.layout_.back(torch.cat(parts))
        return completed(asked, self.encoder_, guess, self.spread_)

    @abstractmethod
    def _task(self, data: Rows, held: Rows, patterns: Patterns, source: torch.Generator) -> Task:
        """The training on these rows."""

    @abstractmethod
    def _guess(self, values: Tensor, known: Tensor, source: torch.Generator) -> Tensor:
        """Expected numbers and chances of choices for all cells; ``known`` is rows × columns."""

    def _patterns(self, observed: Array) -> Patterns:
        if self.blocks is not None:
            names = list(self.encoder_.kinds)
            return Patterns.named(self.blocks, names, type(self).__name__)
        return Patterns.of_table(observed)

    def _usable(self, observed: Array, patterns: Patterns) -> Array:
        """Rows that know something which will be hidden."""
        if self.masking == "cell" or not len(patterns.hidden):
            return np.flatnonzero(observed.any(axis=1))
        return np.flatnonzero((observed & patterns.hidden.any(axis=0)).any(axis=1))

    def _residuals(
        self, data: Rows, patterns: Patterns, source: torch.Generator
    ) -> dict[str, float]:
        """By numeric column, the deviation of guesses for hidden cells, standardised."""
        layout = self.layout_
        with torch.no_grad(), using_threads(self.threads):
            hide = patterns.draw(len(data.values), data.known.shape[1], source).to(data.known)
            guess = self._guess(data.values, data.known * (1 - hide), source)
        gap = (guess - data.values)[:, : layout.scalars].cpu().numpy()
        weighed = (data.known * hide)[:, layout.owners[: layout.scalars]].cpu().numpy()
        counts = weighed.sum(axis=0)
        found = np.sqrt((gap**2 * weighed).sum(axis=0) / np.maximum(counts, 1))
        names = [span.column for span in self.encoder_.spans_ if span.kind == "scalar"]
        return {
            name: float(value) if count else 1.0
            for name, value, count in zip(names, found, counts, strict=True)
        }

    def _check_columns(self, asked: PartyTable) -> None:
        for name in asked.features:
            if name not in self.encoder_.kinds:
                raise DataError(
                    f"Column {name!r} was not in the table that {type(self).__name__} learned."
                )

    def settings(self) -> dict[str, Any]:
        kept = super().settings()
        kept["blocks"] = None if self.blocks is None else [list(block) for block in self.blocks]
        return kept

    def state(self) -> dict[str, Any]:
        return {**super().state(), "spread": self.spread_}

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Array], where: str) -> None:
        super().restore(state, arrays, where)
        self.spread_ = dict(state["spread"])


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows: values by network column, known by table column."""

    values: Tensor
    known: Tensor

    @classmethod
    def of(cls, matrix: Array, observed: Array, layout: Layout, device: str) -> Rows:
        known = torch.from_numpy(observed.astype(np.float32)).to(device)
        return cls(layout.into(matrix, device), known)

    def take(self, rows: Any) -> Rows:
        return Rows(self.values[rows], self.known[rows])

    def __len__(self) -> int:
        return len(self.values)


def cut_pieces(
    networks: nn.ModuleDict, rows: Rows, layout: Layout, which: Tensor | None = None
) -> None:
    """Learn the knots of the networks' pieces from rows: of all numbers, or of these places."""
    places = slice(layout.scalars) if which is None else which
    known = rows.known[:, layout.owners[places]]
    cast(Pieces, networks["pieces"]).learn(rows.values[:, places], known)


def activated(output: Tensor, layout: Layout, bounded: bool) -> Tensor:
    """The generator's answer: chances of choices; numbers as they are, or by tanh."""
    made = layout.softmax(output)
    if not bounded:
        return made
    return torch.cat([torch.tanh(made[:, : layout.scalars]), made[:, layout.scalars :]], dim=1)


def cell_loss(
    output: Tensor, values: Tensor, weights: Tensor, layout: Layout, bounded: bool
) -> Tensor:
    """Squared error of numbers and cross-entropy of choices, averaged over the weighted cells.

    ``weights`` is (rows, table columns).
    """
    numbers = output[:, : layout.scalars]
    numbers = torch.tanh(numbers) if bounded else numbers
    squares = (numbers - values[:, : layout.scalars]) ** 2
    entropy = layout.cross_entropy(output, values)
    firsts = layout.scalars + np.cumsum([0, *layout.widths])[:-1].astype(np.int64)
    terms = torch.cat([squares, entropy], dim=1)
    owners = torch.cat([layout.owners[: layout.scalars], layout.owners[firsts]])
    chosen = weights[:, owners]
    return (terms * chosen).sum() / chosen.sum().clamp(min=1)


def completed(
    asked: PartyTable, encoder: MixedEncoder, guess: Array, spread: Mapping[str, float]
) -> Completed:
    """A table with its missing cells filled from an encoded guess of all cells."""
    restored = encoder.inverse(np.nan_to_num(guess))
    filling = Filling(asked)
    stop = 0
    for coding in encoder.columns_:
        start, stop = stop, stop + coding.width
        code = coding.code
        if code.name not in asked.kinds:
            continue
        column: pd.Series[Any] = restored[code.name]
        if isinstance(coding, NumberCoding):
            scalars = guess[:, start] if coding.width else np.zeros(len(guess))
            inner = coding.scale.value(np.zeros(len(guess), dtype=np.intp), scalars)
            means = np.clip(
                inner * coding.code.deviation + coding.code.mean, coding.code.low, coding.code.high
            )
            unit = coding.scale.value(np.zeros(2, dtype=np.intp), np.array([0.0, 1.0]))
            width = float(unit[1] - unit[0]) * coding.code.deviation * spread.get(code.name, 0.0)
            if not coding.code.seen:
                means, width = np.full(len(guess), np.nan), float("nan")
            filling.number(
                code.name, column, means, np.full(len(guess), width), coding.code.deviation
            )
        else:
            levels = list(coding.code.levels)
            chances = guess[:, start:stop] if coding.width else np.ones((len(guess), len(levels)))
            filling.category(code.name, column, levels, chances)
    return filling.done()
