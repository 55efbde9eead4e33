"""The two halves of VF-GAIN as plain networks: no channel, so that they can be joined in a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from vfsl.completion.base import Completed
from vfsl.completion.deep import SAMPLE_ROWS
from vfsl.completion.imputers.hints import (
    Discriminator,
    adversarial_loss,
    hints,
    judged_loss,
)
from vfsl.completion.imputers.imputer import Rows, activated, cell_loss, completed, cut_pieces
from vfsl.completion.layers import Layout, Pieces, perceptron, source_from, uniform
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.training import descend
from vfsl.data import PartyTable
from vfsl.errors import DataError

_NOISE = 0.01


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What both parties know of the training; the same at both."""

    epochs: int = 100
    batch_size: int = 256
    patience: int = 15
    embedding: int = 16
    pieces: int = 12
    width: int = 128
    rate: float = 1e-3
    decay: float = 1e-5
    hint: float = 0.9
    adversarial: float = 0.01
    threads: int = 1

    def batches(self, rows: int, source: torch.Generator) -> tuple[Tensor, ...]:
        """All rows once, in a random order that both parties draw alike."""
        order = torch.randperm(rows, generator=source)
        return order.tensor_split(max(round(rows / self.batch_size), 1))

    def held(self, rows: int) -> int:
        """How many of the aligned rows, the first ones, only judge."""
        return max(rows // 10, 1)


class Embedder:
    """A's side: its columns to vectors, and an update by the gradients that come back."""

    def __init__(self, plan: Plan, encoder: MixedEncoder, source: torch.Generator) -> None:
        self.encoder = encoder
        self.layout = Layout(encoder)
        pieces = Pieces(self.layout.scalars, plan.pieces)
        size = self.layout.width + len(self.encoder.columns_) + pieces.width
        self.networks = nn.ModuleDict(
            {
                "pieces": pieces,
                "embedder": perceptron([size, plan.width, plan.embedding], source),
            }
        )
        self.optimiser = torch.optim.Adam(
            self.networks.parameters(), lr=plan.rate, weight_decay=plan.decay
        )

    @classmethod
    def learn(cls, plan: Plan, table: PartyTable, rng: np.random.Generator) -> Self:
        """Learn the encoding of a table and the pieces of its numbers; weights are fresh."""
        made = cls(plan, _encoder(table, rng), source_from(rng))
        cut_pieces(made.networks, made._rows(table), made.layout)
        return made

    def inputs(self, table: PartyTable) -> Tensor:
        """Encoded columns, which of their cells are known, and the pieces of numbers."""
        rows = self._rows(table)
        numbers = slice(self.layout.scalars)
        known = rows.known[:, self.layout.owners[numbers]]
        pieces = self.networks["pieces"](rows.values[:, numbers], known)
        return torch.cat([rows.values, rows.known, pieces], dim=1)

    def _rows(self, table: PartyTable) -> Rows:
        encoded = self.encoder.transform(table, unseen="blank")
        return Rows.of(encoded.matrix, encoded.observed, self.layout, "cpu")

    def embed(self, inputs: Tensor) -> Tensor:
        vectors: Tensor = self.networks["embedder"](inputs)
        return vectors

    def update(self, vectors: Tensor, gradient: Tensor) -> None:
        """Descend along the other party's loss."""
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward([vectors], [gradient])
        self.optimiser.step()


class Filler:
    """B's side: generator and discriminator over its own columns and the received vectors."""

    def __init__(
        self, plan: Plan, encoder: MixedEncoder, known: Sequence[str], source: torch.Generator
    ) -> None:
        self.plan = plan
        self.encoder = encoder
        self.known = tuple(known)
        names = list(encoder.kinds)
        self.layout = Layout(encoder)
        # Block masking: all columns that the rows to complete will lack, at once.
        self.hidden = torch.from_numpy(~np.isin(names, list(known))).float()
        # Numbers that those rows will have; only they are ever seen, whole or in pieces.
        owners = self.layout.owners[: self.layout.scalars]
        self.told = torch.nonzero(self.hidden[owners] == 0).flatten()
        self.source = source
        size, columns = self.layout.width, len(names)
        pieces = Pieces(len(self.told), plan.pieces)
        inputs = size + columns + plan.embedding + pieces.width
        self.networks = nn.ModuleDict(
            {
                "pieces": pieces,
                "generator": perceptron([inputs, plan.width, plan.width, size], self.source),
                "discriminator": Discriminator(size, columns, plan.width, self.source),
            }
        )
        self.optimisers = {
            part: torch.optim.Adam(
                self.networks[part].parameters(), lr=plan.rate, weight_decay=plan.decay
            )
            for part in ("generator", "discriminator")
        }
        self.spread: dict[str, float] = {}

    @classmethod
    def learn(
        cls, plan: Plan, table: PartyTable, known: Sequence[str], rng: np.random.Generator
    ) -> Self:
        """Learn the encoding of a table and the pieces of known numbers; weights are fresh."""
        names = table.features
        if [name for name in known if name not in names] or len(set(known)) >= len(names):
            raise DataError(
                f"The columns that party {table.party} knows for the rows to complete must be some "
                f"of its own, but not all. Got {list(known)!r} instead."
            )
        made = cls(plan, _encoder(table, rng), known, source_from(rng))
        cut_pieces(made.networks, made.rows(table), made.layout, made.told)
        return made

    def rows(self, table: PartyTable) -> Rows:
        encoded = self.encoder.transform(table, unseen="blank")
        return Rows.of(encoded.matrix, encoded.observed, self.layout, "cpu")

    def fill(self, rows: Rows, known: Tensor, vectors: Tensor) -> Tensor:
        """G([x_B, mask, e_A, pieces of x_B]): the generator's answer for all cells."""
        cells = known[:, self.layout.owners]
        noise = uniform(rows.values.shape, self.source) * _NOISE
        start = cells * rows.values + (1 - cells) * noise
        pieces = self.networks["pieces"](rows.values[:, self.told], cells[:, self.told])
        inputs = torch.cat([start, known, vectors, pieces], dim=1)
        output: Tensor = self.networks["generator"](inputs)
        return output

    def losses(self, rows: Rows, vectors: Tensor) -> dict[str, Tensor]:
        """A discriminator update, then the generator's losses for these vectors."""
        known = rows.known * (1 - self.hidden)
        output = self.fill(rows, known, vectors)
        cells = known[:, self.layout.owners]
        made = activated(output, self.layout, False)
        filled = cells * rows.values + (1 - cells) * made
        hint = hints(known, self.plan.hint, self.source)
        shown = rows.known[:, self.layout.owners]
        unhidden = (shown * rows.values + (1 - shown) * made).detach()
        whole = unhidden, rows.known, hints(rows.known, self.plan.hint, self.source)
        judge = self.networks["discriminator"]
        judged = judged_loss(judge, filled.detach(), known, hint, whole)
        descend(self.optimisers["discriminator"], judged)
        hidden = rows.known * self.hidden
        return {
            "cells": cell_loss(output, rows.values, hidden, self.layout, False),
            "adversarial": self.plan.adversarial * adversarial_loss(judge(filled, hint), known),
        }

    def step(self, rows: Rows, vectors: Tensor) -> Tensor:
        """One update of both networks; the gradient with respect to the vectors."""
        vectors = vectors.clone().requires_grad_(True)
        losses = self.losses(rows, vectors)
        descend(self.optimisers["generator"], losses["cells"] + losses["adversarial"])
        return torch.zeros_like(vectors) if vectors.grad is None else vectors.grad

    def judge(self, rows: Rows, vectors: Tensor) -> float:
        """The loss on hidden cells of rows held out; also learns how far guesses are off."""
        with torch.no_grad():
            output = self.fill(rows, rows.known * (1 - self.hidden), vectors)
            weights = rows.known * self.hidden
            self._latest = self._deviations(output, rows, weights)
            return float(cell_loss(output, rows.values, weights, self.layout, False))

    def keep_spread(self) -> None:
        """Remember the deviations of the latest judgement: it was the best."""
        self.spread = self._latest

    def complete(self, table: PartyTable, vectors: Tensor) -> Completed:
        """The table with its missing cells filled."""
        rows = self.rows(table)
        parts = []
        with torch.no_grad():
            for start in range(0, len(rows), SAMPLE_ROWS):
                part = slice(start, start + SAMPLE_ROWS)
                some = rows.take(part)
                output = self.fill(some, some.known, vectors[part])
                parts.append(activated(output, self.layout, False))
        return completed(table, self.encoder, self.layout.back(torch.cat(parts)), self.spread)

    def _deviations(self, output: Tensor, rows: Rows, weights: Tensor) -> dict[str, float]:
        scalars = self.layout.scalars
        gap = (output - rows.values)[:, :scalars] ** 2
        weighed = weights[:, self.layout.owners[:scalars]]
        found = ((gap * weighed).sum(0) / weighed.sum(0).clamp(min=1)).sqrt().tolist()
        names = [span.column for span in self.encoder.spans_ if span.kind == "scalar"]
        return dict(zip(names, found, strict=True))


def _encoder(table: PartyTable, rng: np.random.Generator) -> MixedEncoder:
    encoder = MixedEncoder("standard", missing="blank").fit(table, rng)
    if not encoder.width:
        raise DataError(f"The table of party {table.party} has only constant columns.")
    return encoder
