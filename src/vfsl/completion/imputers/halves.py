"""The two halves of VF-GAIN as plain networks: no channel, so that a test can join them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from vfsl.completion.base import Completed
from vfsl.completion.deep import SAMPLE_ROWS
from vfsl.completion.imputers.gain import (
    LARGEST_DRAW,
    Discriminator,
    EncodedRows,
    activate,
    adversarial_loss,
    cell_loss,
    cut_pieces,
    draw_hints,
    fill_table,
    judged_loss,
    replace_unknown,
)
from vfsl.completion.layers import Layout, Pieces, perceptron, source_from, uniform
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.training import descend, load_arrays
from vfsl.data import Kind, PartyTable
from vfsl.errors import DataError
from vfsl.parts import ModelShare
from vfsl.values import Array

if TYPE_CHECKING:
    from vfsl.completion.imputers.vfgain import VFGAIN


@dataclass(frozen=True)
class NetworkShare(ModelShare):
    """One party's part of a fitted VF-GAIN: its state, and the weights of its networks."""

    arrays: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)

    @property
    def role(self) -> str:
        """ "embedder" at the given party, "filler" at the missing one."""
        return str(self.state["role"])

    def to_page(self) -> dict[str, Any]:
        """All but the weights, as JSON values to be saved."""
        state = {name: value for name, value in self.state.items() if name != "role"}
        if self.role == "filler":
            state |= {"rounds": list(self.rounds), "stop_reason": self.stop_reason}
        else:
            state["rounds"] = len(self.rounds)
        return {"party": self.party, "method": self.model, "role": self.role, "state": state}

    @classmethod
    def from_page(cls, page: Mapping[str, Any], arrays: Mapping[str, Array]) -> NetworkShare:
        """Undo :meth:`to_page`; KeyError, TypeError or DataError where it is something else."""
        role, state = str(page["role"]), dict(page["state"])
        rounds, reason = state.pop("rounds"), state.pop("stop_reason", None)
        if {*state} != {"embedder": {"encoder"}, "filler": {"encoder", "known", "spread"}}[role]:
            raise KeyError(f"not the state of the {role}")
        MixedEncoder.from_dict(state["encoder"])
        if role == "embedder":
            rounds = [{"round": number + 1} for number in range(rounds)]
        state = {"role": role, **state}
        return cls(page["party"], page["method"], state, tuple(rounds), reason, arrays=arrays)


class Half:
    """One party's networks over its own columns."""

    networks: nn.ModuleDict
    optimisers: dict[str, Optimizer]

    def __init__(self, model: VFGAIN, encoder: MixedEncoder, source: torch.Generator) -> None:
        self.model, self.encoder, self.source = model, encoder, source
        self.layout = Layout(encoder)
        self.spread: dict[str, float] = {}  # by numeric column, how far guesses are off

    @classmethod
    def of_share(
        cls, model: VFGAIN, share: NetworkShare, source: torch.Generator, where: str = "this share"
    ) -> Self:
        """The networks with their learned weights."""
        model = replace(model, known=share.state.get("known", ()))
        made = cls(model, MixedEncoder.from_dict(share.state["encoder"]), source)
        load_arrays(made.networks, share.arrays, where)
        made.spread = dict(share.state.get("spread", {}))
        return made

    def rows(self, table: PartyTable) -> EncodedRows:
        return EncodedRows.of(self.encoder.transform(table, unseen="blank"), self.layout)

    def adam(self, part: str) -> Adam:
        weights, model = self.networks[part].parameters(), self.model
        return Adam(weights, lr=model.rate, weight_decay=model.decay)


class Embedder(Half):
    """The given party's half: its columns to vectors, and an update by the gradients of them."""

    def __init__(self, model: VFGAIN, encoder: MixedEncoder, source: torch.Generator) -> None:
        super().__init__(model, encoder, source)
        pieces = Pieces(self.layout.scalars, model.pieces)
        size = self.layout.width + len(encoder.columns_) + pieces.width
        embedder = perceptron([size, model.width, model.embedding], source)
        self.networks = nn.ModuleDict({"pieces": pieces, "embedder": embedder})
        self.optimisers = {"embedder": self.adam("embedder")}

    @classmethod
    def learn(cls, model: VFGAIN, table: PartyTable, rng: np.random.Generator) -> Self:
        """Learn the encoding of a table and the pieces of its numbers; weights are fresh."""
        made = cls(model, _fit_encoder(table, rng), source_from(rng))
        cut_pieces(made.networks, made.rows(table), made.layout, slice(made.layout.scalars))
        return made

    def inputs(self, table: PartyTable) -> Tensor:
        """Encoded columns, which of their cells are known, and the pieces of numbers."""
        rows, numbers = self.rows(table), slice(self.layout.scalars)
        known = rows.known[:, self.layout.owners[numbers]]
        pieces = self.networks["pieces"](rows.values[:, numbers], known)
        return torch.cat([rows.values, rows.known, pieces], dim=1)

    def embed(self, inputs: Tensor) -> Tensor:
        vectors: Tensor = self.networks["embedder"](inputs)
        return vectors

    def update(self, vectors: Tensor, gradient: Tensor) -> None:
        """Descend along the other party's loss."""
        optimiser = self.optimisers["embedder"]
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward([vectors], [gradient])
        optimiser.step()


class Filler(Half):
    """The missing party's half: generator and discriminator over its columns and the vectors."""

    def __init__(self, model: VFGAIN, encoder: MixedEncoder, source: torch.Generator) -> None:
        super().__init__(model, encoder, source)
        layout, names = self.layout, list(encoder.kinds)
        # Block masking: all columns that the rows to complete will lack, at once.
        self.hidden = torch.from_numpy(~np.isin(names, list(model.known))).float()
        # Numbers that those rows will have; only they are ever seen, whole or in pieces.
        self.told = torch.nonzero(self.hidden[layout.owners[: layout.scalars]] == 0).flatten()
        pieces = Pieces(len(self.told), model.pieces)
        inputs = layout.width + len(names) + model.embedding + pieces.width
        widths = [inputs, model.width, model.width, layout.width]
        self.networks = nn.ModuleDict(
            {
                "pieces": pieces,
                "generator": perceptron(widths, source),
                "discriminator": Discriminator(layout.width, len(names), model.width, source),
            }
        )
        self.optimisers = {part: self.adam(part) for part in ("generator", "discriminator")}

    @classmethod
    def learn(cls, model: VFGAIN, table: PartyTable, rng: np.random.Generator) -> Self:
        """Learn the encoding of a table and the pieces of known numbers; weights are fresh."""
        names, known = table.features, model.known
        if [name for name in known if name not in names] or len(set(known)) >= len(names):
            raise DataError(
                f"The columns that party {table.party} knows for the rows to complete must be some "
                f"of its own, but not all. Got {list(known)!r} instead."
            )
        made = cls(model, _fit_encoder(table, rng), source_from(rng))
        cut_pieces(made.networks, made.rows(table), made.layout, made.told)
        return made

    def fill(self, rows: EncodedRows, known: Tensor, vectors: Tensor) -> Tensor:
        """G([x_B, mask, e_A, pieces of x_B]): the generator's answer for all cells."""
        cells = known[:, self.layout.owners]
        draws = uniform(rows.values.shape, self.source) * LARGEST_DRAW
        start = cells * rows.values + (1 - cells) * draws
        pieces = self.networks["pieces"](rows.values[:, self.told], cells[:, self.told])
        inputs = torch.cat([start, known, vectors, pieces], dim=1)
        output: Tensor = self.networks["generator"](inputs)
        return output

    def losses(self, rows: EncodedRows, vectors: Tensor) -> dict[str, Tensor]:
        """A discriminator update, then the generator's losses for these vectors."""
        model, layout, judge = self.model, self.layout, self.networks["discriminator"]
        known = rows.known * (1 - self.hidden)
        output = self.fill(rows, known, vectors)
        made = activate(output, layout, False)
        filled = replace_unknown(rows.values, known, layout, made)
        hint = draw_hints(known, model.hint, self.source)
        unhidden = replace_unknown(rows.values, rows.known, layout, made.detach())
        whole = unhidden, rows.known, draw_hints(rows.known, model.hint, self.source)
        judged = judged_loss(judge, filled.detach(), known, hint, whole)
        descend(self.optimisers["discriminator"], judged)
        hidden = rows.known * self.hidden
        return {
            "cells": cell_loss(output, rows.values, hidden, layout, False),
            "adversarial": model.adversarial * adversarial_loss(judge(filled, hint), known),
        }

    def step(self, rows: EncodedRows, vectors: Tensor) -> Tensor:
        """One update of both networks; the gradient with respect to the vectors."""
        vectors = vectors.clone().requires_grad_(True)
        losses = self.losses(rows, vectors)
        descend(self.optimisers["generator"], losses["cells"] + losses["adversarial"])
        return torch.zeros_like(vectors) if vectors.grad is None else vectors.grad

    def judge(self, rows: EncodedRows, vectors: Tensor) -> tuple[float, dict[str, float]]:
        """The loss on hidden cells of rows held out, and by column how far guesses are off."""
        scalars = self.layout.scalars
        with torch.no_grad():
            output = self.fill(rows, rows.known * (1 - self.hidden), vectors)
            weights = rows.known * self.hidden
            gap = (output - rows.values)[:, :scalars] ** 2
            weighed = weights[:, self.layout.owners[:scalars]]
            found = ((gap * weighed).sum(0) / weighed.sum(0).clamp(min=1)).sqrt().tolist()
            loss = float(cell_loss(output, rows.values, weights, self.layout, False))
        names = [span.column for span in self.encoder.spans_ if span.kind == "scalar"]
        return loss, dict(zip(names, found, strict=True))

    def empty_table(self, rows: int) -> PartyTable:
        """A table of the learned columns in which every cell is missing."""
        kinds = self.encoder.kinds
        columns = {
            name: np.full(rows, np.nan) if kind is Kind.NUMERIC else [None] * rows
            for name, kind in kinds.items()
        }
        frame = pd.DataFrame(columns, index=pd.RangeIndex(rows))
        return PartyTable(self.encoder.party_, np.arange(rows), frame, kinds)

    def complete(self, table: PartyTable, vectors: Tensor) -> Completed:
        """The table with its missing cells filled."""
        rows = self.rows(table)
        parts = []
        for part in torch.split(torch.arange(len(rows)), SAMPLE_ROWS):
            some = rows.take(part)
            output = self.fill(some, some.known, vectors[part])
            parts.append(activate(output, self.layout, False).detach())
        return fill_table(table, self.encoder, self.layout.back(torch.cat(parts)), self.spread)


def _fit_encoder(table: PartyTable, rng: np.random.Generator) -> MixedEncoder:
    encoder = MixedEncoder("standard", missing="blank").fit(table, rng)
    if not encoder.width:
        raise DataError(f"The table of party {table.party} has only constant columns.")
    return encoder
