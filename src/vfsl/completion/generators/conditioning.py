"""The condition vector of conditional GANs: which choice a row is asked to have, and real rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from vfsl.completion.layers import uniform
from vfsl.completion.mixed import Span
from vfsl.values import Array


class Asked(NamedTuple):
    """Conditions of a batch."""

    vector: Tensor  # (rows, width): a single 1, at the asked choice
    span: Tensor  # which span each row's condition is in
    choice: Tensor  # and which of its choices, by its place in the vector


class Conditioner:
    """Draws conditions: a span evenly, then one of its choices by log-frequency (or frequency).

    Parameters
    ----------
    spans : list of Span
        The choices that may be asked for.
    counts : list of arrays
        How many training rows have each choice.
    log_frequency : bool
        Draw by the logarithm of 1 + count in training, so that rare choices are seen; False draws
        by the count.
    """

    def __init__(
        self, spans: Sequence[Span], counts: Sequence[Array], log_frequency: bool = True
    ) -> None:
        self.spans = list(spans)
        self.counts = [np.asarray(count, dtype=np.float64) for count in counts]
        self.width = sum(span.width for span in self.spans)
        self.starts = np.cumsum([0, *(span.width for span in self.spans)])[:-1]
        self._by_log = self._cumulative([np.log1p(count) for count in self.counts])
        self._by_count = self._cumulative(self.counts)
        self.log_frequency = log_frequency

    @classmethod
    def fit(cls, spans: Sequence[Span], matrix: Array, log_frequency: bool = True) -> Self:
        """Count the choices of an encoder's matrix, and remember which rows have them."""
        made = cls(spans, [matrix[:, s.start : s.stop].sum(axis=0) for s in spans], log_frequency)
        orders = [
            np.argsort(matrix[:, s.start : s.stop].argmax(axis=1), kind="stable") for s in spans
        ]
        made._rows = torch.from_numpy(
            np.concatenate(orders) if orders else np.empty(0, dtype=np.int64)
        )
        sizes = np.concatenate([*made.counts, []])
        begins = [
            np.cumsum([0, *count])[:-1] + place * len(matrix)
            for place, count in enumerate(made.counts)
        ]
        made._begins = torch.from_numpy(np.concatenate([*begins, []]).astype(np.int64))
        made._sizes = torch.from_numpy(sizes.astype(np.int64))
        return made

    def ask(self, rows: int, source: torch.Generator, *, as_found: bool = False) -> Asked:
        """Conditions for so many rows; ``as_found`` draws by frequency, for sampling."""
        table = self._by_count if as_found or not self.log_frequency else self._by_log
        which = (uniform((rows,), source) * len(self.spans)).long()
        # Chances of each span end at 1, so the first that exceeds a uniform draw is the choice.
        within = (table[which] <= uniform((rows, 1), source).double()).sum(1)
        return self._asked(which, within)

    def ask_for(self, wanted: Mapping[int, Array] | Array, which: Array) -> Asked:
        """Conditions that name a choice: span ``which[i]`` and choice ``wanted[i]`` of row i."""
        return self._asked(torch.from_numpy(which), torch.from_numpy(np.asarray(wanted)))

    def real_rows(self, asked: Asked, source: torch.Generator) -> Tensor:
        """A training row with the asked choice, for each condition."""
        sizes = self._sizes[asked.choice]
        offset = (uniform((len(sizes),), source).double() * sizes).long()
        return self._rows[self._begins[asked.choice] + offset]

    def to_list(self) -> list[list[float]]:
        """The counts, to be saved."""
        return [count.tolist() for count in self.counts]

    def _asked(self, which: Tensor, within: Tensor) -> Asked:
        choice = torch.from_numpy(self.starts)[which] + within
        vector = torch.zeros((len(which), self.width))
        vector[torch.arange(len(which)), choice] = 1.0
        return Asked(vector, which, choice)

    def _cumulative(self, weights: Sequence[Array]) -> Tensor:
        """Cumulated chances, one line a span; lines are filled up with 1."""
        most = max((len(weight) for weight in weights), default=1)
        table = np.ones((len(weights), most))
        for place, weight in enumerate(weights):
            total = np.cumsum(weight / weight.sum())
            # From the last choice that occurs on, rounding must not leave a gap below 1.
            total[np.flatnonzero(weight)[-1] :] = 1.0
            table[place, : len(weight)] = total
            table[place, len(weight) :] = 2.0
        return torch.from_numpy(table)

    _rows: Tensor
    _begins: Tensor
    _sizes: Tensor


def asked_cross_entropy(blocks: Sequence[Tensor], conditioner: Conditioner, asked: Asked) -> Tensor:
    """Cross-entropy of the asked choice in its own span, averaged over the batch.

    ``blocks`` are the generator's logits of the conditioner's spans, in order.
    """
    chances = torch.cat([torch.log_softmax(block, dim=1) for block in blocks], dim=1)
    return -(chances * asked.vector.to(chances.device)).sum(1).mean()


def choose_condition(
    matrix: Array, observed: Array, spans: Sequence[Span], owners: Mapping[str, int]
) -> tuple[Array, Array]:
    """The rarest given choice a row can be asked for: (span or −1, choice within it)."""
    which = np.full(len(matrix), -1)
    choice = np.zeros(len(matrix), dtype=np.int64)
    widest = np.zeros(len(matrix))
    for place, span in enumerate(spans):
        block = matrix[:, span.start : span.stop]
        able = observed[:, owners[span.column]] & block.any(axis=1) & (span.width > widest)
        which[able] = place
        choice[able] = block[able].argmax(axis=1)
        widest[able] = span.width
    return which, choice


def spans_of(choices: Sequence[Span], of: Sequence[str]) -> list[Span]:
    """The choices of these origins, ``"category"`` or ``"mode"``."""
    return [span for span in choices if span.of in of]
