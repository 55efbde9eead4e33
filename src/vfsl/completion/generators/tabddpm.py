"""TabDDPM: Gaussian diffusion of quantile-normalised numbers, multinomial diffusion of choices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from vfsl.completion.deep import Conditions, DeepGenerator
from vfsl.completion.generators import diffusion
from vfsl.completion.generators.variational import random_known
from vfsl.completion.layers import Layout, gumbel, linear, normal, uniform
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.training import Task, descend
from vfsl.data.checks import check_choice
from vfsl.errors import ConfigError
from vfsl.values import Array


@dataclass(kw_only=True)
class TabDDPM(DeepGenerator):
    """Denoising diffusion of tables (Kotelnikov et al. 2023).

    Numbers become normal deviates of their ranks and lose their signal in Gaussian noise; choices
    lose theirs in evenly drawn ones. The network sees noisy cells, the time, and an embedding of
    the known cells; it says the noise of numbers and the clean choices.

    Parameters
    ----------
    steps : int
        Of the diffusion.
    sample_steps : int, optional
        Times that sampling visits; all by default. Fewer is faster and a little worse.
    schedule : {"cosine", "linear"}
    width, layers : int
        Of the network.
    embedding : int
        Width of the time and condition embeddings.
    rate, decay : float
        Of AdamW; the rate falls to 0 evenly.
    hide : list of str, optional
        The columns that will be missing together: half of the rows are then trained with exactly
        these hidden and all others known (block masking). Without it they are drawn by row.
    conditional : bool
        Train half of the rows with some cells known, for ``sample(n, given=...)``.
    average : float
        Decay of the moving average of the weights that samples come from; 0 for the last ones.
    """

    name = "tabddpm"

    epochs: int = 200
    steps: int = 100
    sample_steps: int | None = None
    schedule: str = "cosine"
    width: int = 256
    layers: int = 3
    embedding: int = 128
    rate: float = 2e-3
    decay: float = 1e-4
    hide: list[str] | None = None
    conditional: bool = True
    average: float = 0.99

    def _check(self) -> None:
        super()._check()
        check_choice("TabDDPM", "schedule", self.schedule, ("cosine", "linear"))
        self._at_least(steps=2, width=1, layers=1, embedding=2, rate=0.0, decay=0.0, average=0.0)
        if self.sample_steps is not None and not 1 <= self.sample_steps <= self.steps:
            raise ConfigError(
                f"The sample_steps parameter of TabDDPM must be from 1 to {self.steps}. "
                f"Got {self.sample_steps!r} instead."
            )

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("quantile")

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        shape = (self.layout_.width, self.width, self.layers, self.embedding)
        return nn.ModuleDict(
            {
                "denoiser": Denoiser(*shape, source),
                "average": Denoiser(*shape, source),
            }
        )

    def _task(self, matrix: Array, source: torch.Generator) -> Task:
        return _DiffusionTask(self, matrix, source)

    def _signal(self) -> Tensor:
        made = {"cosine": diffusion.cosine_schedule, "linear": diffusion.linear_schedule}
        return made[self.schedule](self.steps)

    def _hidden_columns(self) -> Array | None:
        """Which table columns ``hide`` names."""
        if self.hide is None:
            return None
        names = list(self.encoder_.kinds)
        unknown = [name for name in self.hide if name not in names]
        if unknown or not self.hide:
            raise ConfigError(
                "The hide parameter of TabDDPM must name columns of the table. "
                f"Got {self.hide!r} instead."
            )
        return np.isin(names, self.hide)

    def _make(self, n: int, given: Conditions | None, source: torch.Generator) -> Array:
        layout, width = self.layout_, self.layout_.width
        values = known = torch.zeros((n, width), device=self.device)
        if given is not None:
            if not self.conditional:
                raise ConfigError(
                    "This TabDDPM was fitted with conditional=False and meets no conditions; fit "
                    "it with conditional=True."
                )
            values, known = given.inputs(layout, self.device)
        signal = self._signal().tolist()
        times = np.unique(
            np.linspace(1, self.steps, self.sample_steps or self.steps).round().astype(int)
        )
        now = start_of(n, layout, source, self.device)
        for place in range(len(times) - 1, -1, -1):
            time, earlier = int(times[place]), int(times[place - 1]) if place else 0
            moment = torch.full((n,), time, device=self.device)
            free = now * (1 - known)
            output = self.networks_["average"](free, moment, values * known, known)
            now = step_back(now, output, layout, signal[time], signal[earlier], source)
        return layout.back(torch.where(known > 0, values, now))


class Denoiser(nn.Module):
    """Noisy row + embeddings of the time and of the known cells, through a perceptron."""

    def __init__(
        self, size: int, width: int, layers: int, embedding: int, source: torch.Generator
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.row = linear(size, embedding, source)
        self.time = nn.Sequential(
            linear(embedding, embedding, source), nn.SiLU(), linear(embedding, embedding, source)
        )
        self.known = nn.Sequential(
            linear(2 * size, embedding, source), nn.SiLU(), linear(embedding, embedding, source)
        )
        widths = [embedding, *[width] * layers]
        self.layers = nn.ModuleList(linear(one, two, source) for one, two in pairwise(widths))
        self.last = linear(width, size, source)

    def forward(self, row: Tensor, times: Tensor, values: Tensor, known: Tensor) -> Tensor:
        when = self.time(diffusion.time_features(times, 2 * (self.embedding // 2)))
        given = self.known(torch.cat([values, known], dim=1))
        state = self.row(row) + when + given
        for layer in self.layers:
            state = torch.nn.functional.silu(layer(state))
        out: Tensor = self.last(state)
        return out


def start_of(n: int, layout: Layout, source: torch.Generator, device: str) -> Tensor:
    """Pure noise: normal numbers, evenly drawn choices."""
    flat = torch.zeros((n, layout.width), device=device)
    flat[:, : layout.scalars] = normal((n, layout.scalars), source, device)
    return layout.draw(flat, source)


def diffuse(
    clean: Tensor, signal: Tensor, layout: Layout, source: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Rows at their times, and the noise in their numbers."""
    scalars, blocks = layout.split(clean)
    noise = normal(scalars.shape, source, clean.device)
    parts = [diffusion.noised(scalars, noise, signal)]
    for block in blocks:
        chances = diffusion.mixed_with_uniform(diffusion.log_one_hot(block), signal)
        chosen = (chances + gumbel(block.shape, source, block.device)).argmax(1)
        parts.append(nn.functional.one_hot(chosen, block.shape[1]).to(clean.dtype))
    return torch.cat(parts, dim=1), noise


def losses(
    output: Tensor,
    clean: Tensor,
    now: Tensor,
    noise: Tensor,
    signal: Tensor,
    earlier: Tensor,
    layout: Layout,
) -> tuple[Tensor, Tensor]:
    """Squared error of the noise of each number, and the KL term of each choice; by row."""
    said, guesses = layout.split(output)
    _, wanted = layout.split(clean)
    _, current = layout.split(now)
    squares = (said - noise) ** 2
    terms = [
        diffusion.category_loss(torch.log_softmax(guess, 1), hot, hot_now, signal, earlier)
        for guess, hot, hot_now in zip(guesses, wanted, current, strict=True)
    ]
    return squares, torch.stack(terms, dim=1) if terms else squares.new_zeros((len(squares), 0))


def step_back(
    now: Tensor,
    output: Tensor,
    layout: Layout,
    signal: float,
    earlier: float,
    source: torch.Generator,
) -> Tensor:
    """Rows one step cleaner."""
    numbers, blocks = layout.split(now)
    said, guesses = layout.split(output)
    draw = normal(numbers.shape, source, now.device)
    parts = [diffusion.gaussian_back(numbers, said, signal, earlier, draw)]
    for block, guess in zip(blocks, guesses, strict=True):
        chances = diffusion.category_posterior(
            torch.log_softmax(guess, 1), diffusion.log_one_hot(block), signal, earlier
        )
        chosen = (chances + gumbel(block.shape, source, block.device)).argmax(1)
        parts.append(nn.functional.one_hot(chosen, block.shape[1]).to(now.dtype))
    return torch.cat(parts, dim=1)


class _DiffusionTask(Task):
    """Noise of numbers by squared error, choices by their KL over the number of choices."""

    def __init__(self, model: TabDDPM, matrix: Array, source: torch.Generator) -> None:
        self.model, self.source = model, source
        rows = model.layout_.into(matrix, model.device)
        held = len(rows) // 10 if model.patience is not None else 0
        self.held, self.rows = rows[:held], rows[held:]
        self.signal = model._signal().float().to(model.device)
        self.networks = model._build(source).to(model.device)
        self.networks["average"].load_state_dict(self.networks["denoiser"].state_dict())
        self.networks["average"].requires_grad_(False)
        self.optimisers = {
            "adamw": torch.optim.AdamW(
                self.networks["denoiser"].parameters(), lr=model.rate, weight_decay=model.decay
            )
        }
        hidden = model._hidden_columns()
        self._block = None
        if hidden is not None:
            self._block = torch.from_numpy(~hidden).float()[model.layout_.owners].to(model.device)

    def begin(self, epoch: int, epochs: int) -> None:
        for group in self.optimisers["adamw"].param_groups:
            group["lr"] = self.model.rate * (1 - epoch / epochs)

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        batch = self.rows[rows % len(self.rows)]
        found = self._losses(batch, self.networks["denoiser"])
        descend(self.optimisers["adamw"], (found["numbers"] + found["choices"]))
        self._follow()
        return found

    def validate(self) -> float | None:
        if not len(self.held):
            return None
        with torch.no_grad():
            found = self._losses(self.held, self.networks["average"])
        return float(found["numbers"] + found["choices"])

    def _losses(self, clean: Tensor, network: nn.Module) -> dict[str, Tensor]:
        model, layout = self.model, self.model.layout_
        times = (uniform((len(clean),), self.source) * model.steps).long() + 1
        times = times.to(clean.device)
        signal, earlier = self.signal[times, None], self.signal[times - 1, None]
        known = self._known(len(clean))
        now, noise = diffuse(clean, signal, layout, self.source)
        output = network(now * (1 - known), times, clean * known, known)
        squares, terms = losses(output, clean, now, noise, signal, earlier, layout)
        # Known cells are given, not diffused: nothing is to be learned of them.
        free = 1 - known
        numbers = (squares * free[:, : layout.scalars]).sum(1)
        share = (terms * free[:, layout.scalars :][:, self._choice_offsets()]).sum(1)
        # One time stands for all of them, so the bound of a choice is its term times the steps.
        return {
            "numbers": numbers.mean() / max(layout.scalars, 1),
            "choices": model.steps * share.mean() / max(len(layout.choices), 1),
        }

    def _known(self, rows: int) -> Tensor:
        """Half of the rows know nothing; the others some cells, or all but the hidden block."""
        model = self.model
        if not model.conditional:
            return torch.zeros((rows, model.layout_.width), device=model.device)
        if self._block is not None:
            known = self._block.expand(rows, -1)
        else:
            known = random_known(rows, model.layout_, self.source, model.device)
        asked = (uniform((rows, 1), self.source) < 0.5).float().to(model.device)
        return known * asked

    def _choice_offsets(self) -> list[int]:
        return [int(start) for start in np.cumsum([0, *self.model.layout_.widths])[:-1]]

    def _follow(self) -> None:
        """Move the averaged weights towards the current ones."""
        with torch.no_grad():
            pairs = zip(
                self.networks["average"].parameters(),
                self.networks["denoiser"].parameters(),
                strict=True,
            )
            for kept, now in pairs:
                kept.lerp_(now, 1 - self.model.average)
