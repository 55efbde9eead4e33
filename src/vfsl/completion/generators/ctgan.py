"""CTGAN: a conditional Wasserstein GAN on mode-normalised rows, trained by sampling.

The conditions, and how a GAN that takes them is asked for rows, also serve CTAB-GAN.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from vfsl.completion.deep import Conditions, DeepGenerator, RowTraining, in_parts
from vfsl.completion.layers import Dropout, linear, normal, uniform
from vfsl.completion.mixed import MixedEncoder, Span
from vfsl.completion.training import descend
from vfsl.params import documented, param
from vfsl.values import Array

# ---- conditions: which choice a row is asked to have ---------------------------------------------


class Asked(NamedTuple):
    """Conditions of a batch."""

    vector: Tensor  # (rows, width): a single 1, at the asked choice
    span: Tensor  # which span each row's condition is in
    choice: Tensor  # and which of its choices, by its place in the vector

    def take(self, rows: Tensor) -> Asked:
        return Asked(*(part[rows] for part in self))


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

    _rows: Tensor
    _begins: Tensor
    _sizes: Tensor

    def __init__(
        self, spans: Sequence[Span], counts: Sequence[Array], log_frequency: bool = True
    ) -> None:
        self.spans = list(spans)
        self.counts = [np.asarray(count, dtype=np.float64) for count in counts]
        self.width = sum(span.width for span in self.spans)
        self.starts = np.cumsum([0, *(span.width for span in self.spans)])[:-1]
        self._by_log = _cumulate([np.log1p(count) for count in self.counts])
        self._by_count = _cumulate(self.counts)
        self.log_frequency = log_frequency

    @classmethod
    def fit(cls, spans: Sequence[Span], matrix: Array, log_frequency: bool = True) -> Self:
        """Count the choices of an encoder's matrix, and remember which rows have them."""
        blocks = [matrix[:, span.start : span.stop] for span in spans]
        made = cls(spans, [block.sum(axis=0) for block in blocks], log_frequency)
        orders = [np.argsort(block.argmax(axis=1), kind="stable") for block in blocks]
        begins = [
            np.cumsum([0, *count])[:-1] + place * len(matrix)
            for place, count in enumerate(made.counts)
        ]
        made._rows, made._begins, made._sizes = (
            torch.from_numpy(np.concatenate([*parts, []]).astype(np.int64))
            for parts in (orders, begins, made.counts)
        )
        return made

    def ask(self, rows: int, source: torch.Generator, *, as_found: bool = False) -> Asked:
        """Conditions for so many rows; ``as_found`` draws by frequency, for sampling."""
        table = self._by_count if as_found or not self.log_frequency else self._by_log
        which = (uniform((rows,), source) * len(self.spans)).long()
        # Chances of each span end at 1, so the first that exceeds a uniform draw is the choice.
        within = (table[which] <= uniform((rows, 1), source).double()).sum(1)
        return self._asked(which, within)

    def ask_for(self, choices: Array, which: Array) -> Asked:
        """Conditions that name a choice: span ``which[i]`` and choice ``choices[i]`` of row i."""
        return self._asked(torch.from_numpy(which), torch.from_numpy(choices))

    def real_rows(self, asked: Asked, source: torch.Generator) -> Tensor:
        """A training row with the asked choice, for each condition."""
        sizes = self._sizes[asked.choice]
        offset = (uniform((len(sizes),), source).double() * sizes).long()
        return self._rows[self._begins[asked.choice] + offset]

    def _asked(self, which: Tensor, within: Tensor) -> Asked:
        choice = torch.from_numpy(self.starts)[which] + within
        vector = torch.zeros((len(which), self.width))
        vector[torch.arange(len(which)), choice] = 1.0
        return Asked(vector, which, choice)


def _cumulate(weights: Sequence[Array]) -> Tensor:
    """Cumulated chances, one line per span; what follows the last choice is never drawn."""
    most = max((len(weight) for weight in weights), default=1)
    table = np.full((len(weights), most), 2.0)
    for place, weight in enumerate(weights):
        total = np.cumsum(weight / weight.sum())
        # From the last choice that occurs on, rounding must not leave a gap below 1.
        total[np.flatnonzero(weight)[-1] :] = 1.0
        table[place, : len(weight)] = total
    return torch.from_numpy(table)


def asked_cross_entropy(blocks: Sequence[Tensor], asked: Asked) -> Tensor:
    """Cross-entropy of the asked choice in its own span, averaged over the batch.

    ``blocks`` are the generator's logits of the conditioner's spans, in order.
    """
    chances = torch.cat([torch.log_softmax(block, dim=1) for block in blocks], dim=1)
    return -(chances * asked.vector.to(chances.device)).sum(1).mean()


# ---- a GAN that takes conditions -----------------------------------------------------------------


def with_condition(rows: Tensor, asked: Asked | None) -> Tensor:
    """Rows with their conditions beside them."""
    return rows if asked is None else torch.cat([rows, asked.vector.to(rows.device)], dim=1)


class ConditionalTraining(RowTraining):
    """What the steps of conditional GANs share: conditions, real rows that meet them, made-up rows.

    Rows are drawn by condition, so the loop's own choice of rows only says how many.
    """

    model: ConditionalGAN

    def __init__(self, model: ConditionalGAN, matrix: Array, source: torch.Generator) -> None:
        spans = model._asked_spans()
        model.conditioner_ = Conditioner.fit(spans, matrix, model.log_frequency)
        super().__init__(model, matrix, source)

    def ask(self, size: int) -> Asked | None:
        conditioner = self.model.conditioner_
        return conditioner.ask(size, self.source) if conditioner.spans else None

    def real_rows(self, size: int, asked: Asked | None) -> Tensor:
        if asked is None:
            drawn = torch.randint(len(self.rows), (size,), generator=self.source)
        else:
            drawn = self.model.conditioner_.real_rows(asked, self.source)
        return self.rows[drawn]

    def logits(self, size: int, asked: Asked | None) -> Tensor:
        latent = normal((size, self.model.latent), self.source, self.model.device)
        return self.model._logits(with_condition(latent, asked))

    def activate(self, logits: Tensor) -> Tensor:
        return self.model.layout_.tanh_gumbel(logits, self.model.temperature, self.source)


@dataclass(kw_only=True)
class ConditionalGAN(DeepGenerator):
    """A GAN whose rows are made under a condition: one choice that each of them shall have."""

    stops_early = False
    asks_for: ClassVar[tuple[str, ...]]  # spans of which origin conditions may name
    log_frequency = True

    latent: int = param(128, "Dimensions of the latent vector that a row is made from.", ge=1)
    temperature: float = param(0.2, "Temperature of the Gumbel-softmax.", ge=1e-3)
    modes: int = param(10, "Maximum number of modes per numeric column.", ge=1)
    matches: int = param(20, "Candidates of which `sample(n, rng, given)` takes the nearest.", ge=1)

    @abstractmethod
    def _logits(self, inputs: Tensor) -> Tensor:
        """The generator's rows for latent vectors with conditions beside them."""

    def _asked_spans(self) -> list[Span]:
        """The choices that conditions may ask for."""
        return [span for span in self.layout_.choices if span.of in self.asks_for]

    def _make(self, n: int, given: Conditions | None, source: torch.Generator) -> Array:
        if given is None:
            return self._generate(n, None, source)
        which, choice = self._finest_given(given)

        def draw(rows: Array) -> Array:
            return self._generate(len(rows), (which[rows], choice[rows]), source)

        return given.choose_nearest(self.encoder_, self.matches, draw)

    def _finest_given(self, given: Conditions) -> tuple[Array, Array]:
        """Of the given choices that with the most levels, by row: (span or −1, choice)."""
        matrix, observed = given.encoded.matrix, given.encoded.observed
        columns = list(self.encoder_.kinds)
        which = np.full(len(matrix), -1)
        choice = np.zeros(len(matrix), dtype=np.int64)
        widest = np.zeros(len(matrix))
        for place, span in enumerate(self.conditioner_.spans):
            block = matrix[:, span.start : span.stop]
            known = observed[:, columns.index(span.column)]
            able = known & block.any(axis=1) & (span.width > widest)
            which[able] = place
            choice[able] = block[able].argmax(axis=1)
            widest[able] = span.width
        return which, choice

    def _generate(
        self, n: int, wanted: tuple[Array, Array] | None, source: torch.Generator
    ) -> Array:
        inputs = normal((n, self.latent), source, self.device)
        if self.conditioner_.spans:
            vector = self.conditioner_.ask(n, source, as_found=True).vector
            if wanted is not None:
                named = np.flatnonzero(wanted[0] >= 0)
                asked = self.conditioner_.ask_for(wanted[1][named], wanted[0][named])
                vector[named] = asked.vector
            inputs = torch.cat([inputs, vector.to(self.device)], dim=1)
        logits = in_parts(self._logits, inputs)
        return self.layout_.back(self.layout_.tanh_gumbel(logits, self.temperature, source))

    def state(self) -> dict[str, Any]:
        learned = super().state()
        return {**learned, "counts": [count.tolist() for count in self.conditioner_.counts]}

    def restore(self, state: Mapping[str, Any], arrays: Mapping[str, Array], where: str) -> None:
        super().restore(state, arrays, where)
        counts = [np.asarray(count) for count in state["counts"]]
        self.conditioner_ = Conditioner(self._asked_spans(), counts)


# ---- CTGAN ---------------------------------------------------------------------------------------


class Residual(nn.Module):
    """Two blocks of Linear, batch norm and ReLU that keep their input beside their output."""

    def __init__(self, inputs: int, width: int, outputs: int, source: torch.Generator) -> None:
        super().__init__()
        self.first = linear(inputs, width, source)
        self.first_norm = nn.BatchNorm1d(width)
        self.second = linear(inputs + width, width, source)
        self.second_norm = nn.BatchNorm1d(width)
        self.last = linear(inputs + 2 * width, outputs, source)

    def forward(self, inputs: Tensor) -> Tensor:
        values = torch.cat([torch.relu(self.first_norm(self.first(inputs))), inputs], dim=1)
        values = torch.cat([torch.relu(self.second_norm(self.second(values))), values], dim=1)
        out: Tensor = self.last(values)
        return out


def critic(inputs: int, width: int, dropout: float, source: torch.Generator) -> nn.Sequential:
    """Two layers with leaky ReLU and dropout, and one number."""
    return nn.Sequential(
        linear(inputs, width, source),
        nn.LeakyReLU(0.2),
        Dropout(dropout, source),
        linear(width, width, source),
        nn.LeakyReLU(0.2),
        Dropout(dropout, source),
        linear(width, 1, source),
    )


def pack(rows: Tensor, pac: int) -> Tensor:
    """Groups of ``pac`` rows side by side, for the critic to judge together."""
    return rows.reshape(len(rows) // pac, -1)


def gradient_penalty(judge: nn.Module, real: Tensor, made: Tensor, mix: Tensor) -> Tensor:
    """Mean of (‖∇ critic‖ − 1)² at points between real and made-up packs."""
    between = (mix * real + (1 - mix) * made).requires_grad_(True)
    (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
    return torch.mean((torch.linalg.vector_norm(slope, dim=1) - 1) ** 2)


class _CTGANTraining(ConditionalTraining):
    """One step of the critic, then one of the generator, under fresh conditions each."""

    model: CTGAN

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        size = max(len(rows) // self.model.pac, 1) * self.model.pac
        losses = self.critic_losses(size)
        total = losses["critic"] + self.model.penalty * losses["penalty"]
        descend(self.optimisers["critic"], total)
        self.networks["critic"].requires_grad_(False)
        more = self.generator_losses(size)
        descend(self.optimisers["generator"], more["generator"] + more["condition"])
        self.networks["critic"].requires_grad_(True)
        return losses | more

    def critic_losses(self, size: int) -> dict[str, Tensor]:
        """Wasserstein gap of made-up and real rows, and the gradient penalty."""
        judge, pac = self.networks["critic"], self.model.pac
        asked = self.ask(size)
        with torch.no_grad():
            made = self.activate(self.logits(size, asked))
        # Real rows meet the same conditions, in another order.
        again = None
        if asked is not None:
            again = asked.take(torch.randperm(size, generator=self.source))
        real = pack(with_condition(self.real_rows(size, again), again), pac)
        made = pack(with_condition(made, asked), pac)
        mix = uniform((len(real), 1), self.source, real.device)
        return {
            "critic": judge(made).mean() - judge(real).mean(),
            "penalty": gradient_penalty(judge, real, made, mix),
        }

    def generator_losses(self, size: int) -> dict[str, Tensor]:
        """What the critic says of made-up rows, and how well they meet their conditions."""
        layout = self.model.layout_
        asked = self.ask(size)
        logits = self.logits(size, asked)
        made = self.activate(logits)
        condition = logits.new_zeros(())
        if asked is not None:
            _, blocks = layout.split(logits)
            able = self.model.conditioner_.spans
            wanted = [b for b, s in zip(blocks, layout.choices, strict=True) if s in able]
            condition = asked_cross_entropy(wanted, asked)
        judged = self.networks["critic"](pack(with_condition(made, asked), self.model.pac))
        return {"generator": -judged.mean(), "condition": condition}


@documented
@dataclass(kw_only=True)
class CTGAN(ConditionalGAN):
    """Conditional tabular GAN (Xu et al., "Modeling Tabular Data using Conditional GAN", 2019).

    Numbers are a mode and a distance from it. Each row is generated under a condition: one column
    has one category, drawn by log-frequency, and the critic compares with a real row that has it.
    """

    name = "ctgan"
    asks_for = ("category",)
    training = _CTGANTraining

    epochs: int = param(300, "Passes over the training rows.", ge=1)
    width: int = param(
        256, "Width of the generator's residual blocks and of the critic's layers.", ge=1
    )
    rate: float = param(2e-4, "Learning rate of Adam.", ge=0)
    decay: float = param(1e-6, "Weight decay of Adam.", ge=0)
    pac: int = param(
        10, "Rows that the critic judges together (PacGAN); batches are cut to a multiple.", ge=1
    )
    penalty: float = param(10.0, "Weight of the gradient penalty.", ge=0)
    dropout: float = param(0.5, "Fraction of the critic's units that are dropped.", ge=0)
    log_frequency: bool = param(True, "Ask for rare categories more often than they occur.")
    conditional: bool = param(
        True, "Use condition vectors; False is an unconditional WGAN-GP on the same encoding."
    )

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("modes", modes=self.modes)

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        asked = sum(span.width for span in self._asked_spans())
        size = self.layout_.width
        return nn.ModuleDict(
            {
                "generator": Residual(self.latent + asked, self.width, size, source),
                "critic": critic(self.pac * (size + asked), self.width, self.dropout, source),
            }
        )

    def _optimisers(self, networks: nn.ModuleDict) -> dict[str, Optimizer]:
        return {
            part: Adam(
                network.parameters(), lr=self.rate, betas=(0.5, 0.9), weight_decay=self.decay
            )
            for part, network in networks.items()
        }

    def _asked_spans(self) -> list[Span]:
        return super()._asked_spans() if self.conditional else []

    def _logits(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.networks_["generator"](inputs)
        return made
