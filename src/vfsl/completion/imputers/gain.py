"""GAIN: a generator fills cells, a discriminator with hints guesses which ones were filled.

Hiding cells, the discriminator, the loss on cells and completing a table also serve VGAIN and, for
the columns of one party, VF-GAIN.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from vfsl.completion.base import Completed, Filling, Table, as_table
from vfsl.completion.deep import SAMPLE_ROWS, Deep
from vfsl.completion.layers import Layout, Pieces, perceptron, source_from, uniform
from vfsl.completion.mixed import Mixed, MixedEncoder, NumberCoding
from vfsl.completion.training import Training, descend
from vfsl.data import PartyTable
from vfsl.data.checks import check_rng
from vfsl.errors import ConfigError, DataError
from vfsl.parallel import using_threads
from vfsl.params import documented, param
from vfsl.values import Array

LARGEST_DRAW = 0.01  # in the place of unknown cells


# ---- which cells are hidden while an imputer learns ----------------------------------------------


@dataclass(frozen=True, eq=False)
class Patterns:
    """Sets of columns that go missing together, and how often each does.

    ``hidden`` is (patterns, columns); empty where columns are drawn anew for each row.
    """

    hidden: Array
    chances: Array

    @classmethod
    def of_table(cls, observed: Array) -> Patterns:
        """The missing sets of a table's rows; sets that leave nothing known do not count."""
        missing = ~observed
        usable = missing[missing.any(axis=1) & ~missing.all(axis=1)]
        hidden, counts = np.unique(usable, axis=0, return_counts=True)
        return cls(hidden, counts / max(counts.sum(), 1))

    @classmethod
    def named(cls, blocks: Sequence[Sequence[str]], columns: Sequence[str], where: str) -> Patterns:
        """Sets given by name, equally often."""
        for block in blocks:
            unknown = [name for name in block if name not in columns]
            if isinstance(block, str) or unknown or not block:
                raise ConfigError(
                    f"The blocks parameter of {where} must be lists of columns of the table. "
                    f"Got {block!r} instead."
                )
        hidden = np.array([np.isin(columns, block) for block in blocks])
        return cls(hidden, np.full(len(hidden), 1 / len(hidden)))

    def draw(self, rows: int, columns: int, source: torch.Generator) -> Tensor:
        """Which cells to hide, (rows, columns)."""
        if not len(self.hidden):
            # Nothing tells what will be missing: each row hides a fraction of its own.
            return uniform((rows, columns), source) < uniform((rows, 1), source)
        ends = torch.from_numpy(np.cumsum(self.chances))
        which = torch.searchsorted(ends, uniform((rows,), source).double(), right=True)
        return torch.from_numpy(self.hidden)[which.clamp(max=len(self.hidden) - 1)]


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Encoded rows: values by network column, known by table column."""

    values: Tensor
    known: Tensor

    @classmethod
    def of(cls, encoded: Mixed, layout: Layout, device: str = "cpu") -> EncodedRows:
        known = torch.from_numpy(encoded.observed.astype(np.float32)).to(device)
        return cls(layout.into(encoded.matrix, device), known)

    def take(self, rows: Any) -> EncodedRows:
        return EncodedRows(self.values[rows], self.known[rows])

    def __len__(self) -> int:
        return len(self.values)


def replace_unknown(values: Tensor, known: Tensor, layout: Layout, answer: Tensor) -> Tensor:
    """Known cells as they are, the others from an answer for all cells."""
    cells = known[:, layout.owners]
    return cells * values + (1 - cells) * answer


def cut_pieces(networks: nn.ModuleDict, rows: EncodedRows, layout: Layout, which: Any) -> None:
    """Learn the knots of the networks' pieces from rows: those of the numbers at these places."""
    known = rows.known[:, layout.owners[which]]
    cast(Pieces, networks["pieces"]).learn(rows.values[:, which], known)


# ---- the discriminator, which says for each cell whether it was known ----------------------------


class Discriminator(nn.Module):
    """A filled row and its hint → a logit for each table column: was this cell known?"""

    def __init__(self, size: int, columns: int, width: int, source: torch.Generator) -> None:
        super().__init__()
        self.layers = perceptron([size + columns, width, width, columns], source)

    def forward(self, filled: Tensor, hint: Tensor) -> Tensor:
        out: Tensor = self.layers(torch.cat([filled, hint], dim=1))
        return out


def draw_hints(known: Tensor, rate: float, source: torch.Generator) -> Tensor:
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
    values then play no part, and what they get back from the discriminator means nothing.
    ``whole`` is rows, mask and hint without anything hidden.
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


# ---- the generator's answer ----------------------------------------------------------------------


def activate(output: Tensor, layout: Layout, bounded: bool) -> Tensor:
    """The generator's answer: chances of choices; numbers as they are, or by tanh."""
    made = layout.softmax(output)
    if not bounded:
        return made
    return torch.cat([torch.tanh(made[:, : layout.scalars]), made[:, layout.scalars :]], dim=1)


def number_gaps(output: Tensor, values: Tensor, layout: Layout, bounded: bool) -> Tensor:
    """How far the answered numbers are off, (rows, scalars)."""
    numbers = output[:, : layout.scalars]
    return (torch.tanh(numbers) if bounded else numbers) - values[:, : layout.scalars]


def cell_loss(
    output: Tensor, values: Tensor, weights: Tensor, layout: Layout, bounded: bool
) -> Tensor:
    """Squared error of numbers and cross-entropy of choices, averaged over the weighted cells.

    ``weights`` is (rows, table columns).
    """
    squares = number_gaps(output, values, layout, bounded) ** 2
    terms = torch.cat([squares, layout.cross_entropy(output, values)], dim=1)
    chosen = weights[:, layout.owners[layout.firsts]]
    return (terms * chosen).sum() / chosen.sum().clamp(min=1)


def fill_table(
    asked: PartyTable, encoder: MixedEncoder, guess: Array, spread: Mapping[str, float]
) -> Completed:
    """A table with its missing cells filled from an encoded guess of all cells."""
    restored = encoder.inverse(np.nan_to_num(guess))
    filling = Filling(asked)
    for coding, columns in encoder.blocks():
        name, block = coding.code.name, guess[:, columns]
        if name not in asked.kinds:
            continue
        if isinstance(coding, NumberCoding):
            code = coding.code
            first = np.zeros(len(guess), dtype=np.intp)
            inner = coding.scale.value(first, block[:, 0] if coding.width else np.zeros(len(guess)))
            means = np.clip(inner * code.deviation + code.mean, code.low, code.high)
            unit = coding.scale.value(np.zeros(2, dtype=np.intp), np.array([0.0, 1.0]))
            width = float(unit[1] - unit[0]) * code.deviation * spread.get(name, 0.0)
            if not code.seen:
                means, width = np.full(len(guess), np.nan), np.nan
            filling.fill_number(code, means, width, restored[name])
        else:
            ones = np.ones((len(guess), len(coding.code.levels)))
            filling.fill_category(coding.code, block if coding.width else ones, restored[name])
    return filling.finish()


# ---- imputers: GAIN and VGAIN --------------------------------------------------------------------


class ImputerTraining(Training):
    """A training on rows of which some known cells are hidden."""

    def __init__(
        self,
        model: Imputer,
        data: EncodedRows,
        held: EncodedRows,
        patterns: Patterns,
        source: torch.Generator,
    ) -> None:
        self.model, self.data, self.held = model, data, held
        self.patterns, self.source = patterns, source
        self.networks = model.networks_ = model._build(source).to(model.device)
        self.optimisers = model._optimisers(self.networks)
        cut_pieces(self.networks, data, model.layout_, slice(model.layout_.scalars))

    def hide(self, known: Tensor) -> tuple[Tensor, Tensor]:
        """What the generator may see, and the cells that its loss is on."""
        return (known, known) if self.model.masking == "cell" else self._hide_block(known)

    def judge(
        self, output: Tensor, batch: EncodedRows, known: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The filled rows, their hints, and the discriminator's loss on them.

        Under block masking it also judges the rows with nothing hidden.
        """
        model = self.model
        made = activate(output, model.layout_, model.bounded)
        filled = replace_unknown(batch.values, known, model.layout_, made)
        hint, whole = draw_hints(known, model.hint, self.source), None
        if model.masking == "block":
            rows = replace_unknown(batch.values, batch.known, model.layout_, made.detach())
            whole = rows, batch.known, draw_hints(batch.known, model.hint, self.source)
        judge = self.networks["discriminator"]
        return filled, hint, judged_loss(judge, filled.detach(), known, hint, whole)

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


@dataclass(kw_only=True)
class Imputer(Deep):
    """An imputer with networks: encodes, hides cells while it learns, completes a table."""

    training: ClassVar[type[ImputerTraining]]

    epochs: int = param(150, "Passes over the training rows.", ge=1)
    batch_size: int = param(256, "Rows per step.", ge=1)
    patience: int | None = param(
        15,
        "Hold out a tenth of the rows and stop when their loss has not fallen for so many epochs.",
        ge=1,
    )
    masking: Literal["block", "cell"] = param(
        "block",
        "What is hidden while learning. 'block': whole sets of columns, as they are missing in the "
        "table (or as `blocks` says), with the loss on the hidden cells. 'cell': nothing; the loss "
        "is on the known cells, as in the textbook. That fails where every missing cell of a row "
        "is in one block.",
    )
    blocks: Sequence[Sequence[str]] | None = param(
        None, "Columns that go missing together, where the table to learn from does not show it."
    )
    scaling: Literal["standard", "minmax"] = param(
        "standard", "How numbers are scaled; the textbook's is 'minmax'."
    )
    pieces: int = param(
        12,
        "Pieces, cut at quantiles, as which networks also see each number that is known. They show "
        "crowds at one value and long tails; on the credit table they made categories more "
        "accurate. 0 switches them off.",
        ge=0,
    )
    width: int = param(128, "Width of hidden layers.", ge=1)
    rate: float = param(1e-3, "Learning rate.", ge=0)
    hint: float = param(
        0.9,
        "Fraction of cells of which the discriminator is told whether they are known.",
        ge=0,
        le=1,
    )
    adversarial: float = param(
        0.01,
        "Weight of the adversarial loss. It is small since that loss wants draws where the other "
        "wants means: on the credit table 0.1 cost up to a tenth of the accuracy of numbers.",
        ge=0,
    )
    reconstruction: float = param(
        100.0, "Weight of the loss on known cells, with masking='cell'.", ge=0
    )

    def expect_missing(self, columns: Sequence[str]) -> None:
        """Hide these columns together while it learns, unless ``blocks`` says otherwise."""
        if self.blocks is None:
            self.blocks = [list(columns)]

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Learn from a table; its missing cells show what is to be completed.

        Parameters
        ----------
        table : PartyTable or DataFrame
            Rows to learn from together with rows to complete, or the former only.
        rng : numpy Generator
        """
        self._check()
        where = type(self).__name__
        check_rng(f"{where}.fit", rng)
        known = as_table(table, where)
        encoded = self._encode(known, MixedEncoder(self.scaling, missing="blank"), rng)
        patterns = Patterns.of_table(encoded.observed)
        if self.blocks is not None:
            patterns = Patterns.named(self.blocks, list(self.encoder_.kinds), where)
        # Rows that know something which will be hidden.
        able = encoded.observed
        if self.masking == "block" and len(patterns.hidden):
            able = able & patterns.hidden.any(axis=0)
        usable = np.flatnonzero(able.any(axis=1))
        if len(usable) < 2:
            raise DataError(
                f"{where} needs at least two rows in which cells of the missing columns are known. "
                f"Got {len(usable)} instead."
            )
        usable = rng.permutation(usable)
        source = source_from(rng)
        data = EncodedRows.of(encoded, self.layout_, self.device).take(usable)
        count = max(len(usable) // 10, 1) if self.patience is not None else 0
        held, rest = data.take(slice(count)), data.take(slice(count, None))
        training = self.training(self, rest, held, patterns, source)
        self._train(training, len(rest), source, encoded.matrix)
        judged = held if count else data
        self.spread_: dict[str, float] = self._residuals(judged, patterns, source)
        return self

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """Fill missing cells by their conditional mean or most probable category."""
        self._check_fitted()
        where = type(self).__name__
        asked = as_table(table, where)
        check_rng(f"{where}.complete", rng)
        for name in asked.features:
            if name not in self.encoder_.kinds:
                raise DataError(f"Column {name!r} was not in the table that {where} learned.")
        # A column without any cell has the kind that pandas happened to give it; it says nothing.
        empty = [name for name in asked.features if asked.column(name).isna().all()]
        encoded = self.encoder_.transform(asked.without(empty), unseen="blank")
        source = source_from(rng)
        data = EncodedRows.of(encoded, self.layout_, self.device)
        with torch.no_grad(), using_threads(self.threads):
            parts = [
                self._guess(data.values[rows], data.known[rows], source)
                for rows in torch.split(torch.arange(len(data)), SAMPLE_ROWS)
            ]
        return fill_table(asked, self.encoder_, self.layout_.back(torch.cat(parts)), self.spread_)

    @abstractmethod
    def _guess(self, values: Tensor, known: Tensor, source: torch.Generator) -> Tensor:
        """Expected numbers and chances of choices for all cells; ``known`` is rows × columns."""

    @property
    def bounded(self) -> bool:
        """Whether numbers lie from −1 to 1."""
        return self.scaling == "minmax"

    def _residuals(
        self, data: EncodedRows, patterns: Patterns, source: torch.Generator
    ) -> dict[str, float]:
        """By numeric column, the deviation of guesses for hidden cells, standardised."""
        layout = self.layout_
        with torch.no_grad(), using_threads(self.threads):
            hide = patterns.draw(len(data), data.known.shape[1], source).to(data.known)
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

    def state(self) -> dict[str, Any]:
        return {**super().state(), "spread": self.spread_}

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Array], where: str) -> None:
        super().restore(state, arrays, where)
        self.spread_ = dict(state["spread"])


# ---- GAIN ----------------------------------------------------------------------------------------


def fill(
    networks: nn.ModuleDict, values: Tensor, known: Tensor, layout: Layout, source: torch.Generator
) -> Tensor:
    """The generator's answer to known cells, with small draws in the place of the others."""
    cells, numbers = known[:, layout.owners], slice(layout.scalars)
    draws = uniform(values.shape, source, values.device) * LARGEST_DRAW
    pieces = networks["pieces"](values[:, numbers], cells[:, numbers])
    start = cells * values + (1 - cells) * draws
    out: Tensor = networks["generator"](torch.cat([start, known, pieces], dim=1))
    return out


class _GAINTraining(ImputerTraining):
    """A step of the discriminator, then one of the generator."""

    model: GAIN

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        model, batch = self.model, self.data.take(rows)
        known, weighed = self.hide(batch.known)
        output = fill(self.networks, batch.values, known, model.layout_, self.source)
        filled, hint, judged = self.judge(output, batch, known)
        descend(self.optimisers["discriminator"], judged)
        factor = model.reconstruction if model.masking == "cell" else 1.0
        cells = cell_loss(output, batch.values, weighed, model.layout_, model.bounded)
        passed = cells.new_zeros(())
        if model.adversarial:
            passed = adversarial_loss(self.networks["discriminator"](filled, hint), known)
        losses = {"adversarial": model.adversarial * passed, "cells": factor * cells}
        descend(self.optimisers["generator"], losses["adversarial"] + losses["cells"])
        return {"discriminator": judged, **losses}

    def held_loss(self, known: Tensor, hidden: Tensor) -> Tensor:
        layout, held = self.model.layout_, self.held
        output = fill(self.networks, held.values, known, layout, self.source)
        return cell_loss(output, held.values, hidden, layout, self.model.bounded)


@documented
@dataclass(kw_only=True)
class GAIN(Imputer):
    """Generative adversarial imputation (Yoon et al., "GAIN", 2018), with block masking by default.

    The generator sees the known cells, the mask, and known numbers also as ``pieces``.
    ``GAIN(masking="cell", scaling="minmax", pieces=0, adversarial=1.0, patience=None)`` is the
    textbook's.
    """

    name = "gain"
    training = _GAINTraining

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        size, columns = self.layout_.width, len(self.encoder_.columns_)
        pieces = Pieces(self.layout_.scalars, self.pieces)
        inputs = size + columns + pieces.width
        return nn.ModuleDict(
            {
                "pieces": pieces,
                "generator": perceptron([inputs, self.width, self.width, size], source),
                "discriminator": Discriminator(size, columns, self.width, source),
            }
        )

    def _optimisers(self, networks: nn.ModuleDict) -> dict[str, Optimizer]:
        return {
            part: Adam(networks[part].parameters(), lr=self.rate)
            for part in ("generator", "discriminator")
        }

    def _guess(self, values: Tensor, known: Tensor, source: torch.Generator) -> Tensor:
        output = fill(self.networks_, values, known, self.layout_, source)
        return activate(output, self.layout_, self.bounded)
