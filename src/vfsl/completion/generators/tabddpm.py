"""TabDDPM: Gaussian diffusion of quantile-normalised numbers, multinomial diffusion of choices.

``signal[t]`` (ᾱ in the papers) is how much of a row is left after t steps; ``signal[0]`` is 1.
Steps back may leave out times: each goes from t to any earlier s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from vfsl.completion.deep import Conditions, DeepGenerator, RowTraining
from vfsl.completion.generators.vae import random_known
from vfsl.completion.layers import Layout, draw_one_hot, linear, normal, uniform
from vfsl.completion.mixed import MixedEncoder
from vfsl.completion.training import descend
from vfsl.errors import ConfigError
from vfsl.params import documented, param
from vfsl.values import Array

_LEAST = 1e-30


class Denoiser(nn.Module):
    """What is left of a row, embeddings of the time and of known cells, through a perceptron."""

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
        when = self.time(time_features(times, 2 * (self.embedding // 2)))
        given = self.known(torch.cat([values, known], dim=1))
        state = self.row(row) + when + given
        for layer in self.layers:
            state = torch.nn.functional.silu(layer(state))
        out: Tensor = self.last(state)
        return out


def time_features(times: Tensor, width: int) -> Tensor:
    """Sines and cosines of the time at geometric frequencies."""
    half = width // 2
    rates = torch.exp(-math.log(10_000) * torch.arange(half, device=times.device) / half)
    angles = times[:, None].float() * rates
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)


# ---- the diffusion: there and back, of numbers and of categories ---------------------------------


def cosine_schedule(steps: int) -> Tensor:
    """Signal left after 0..steps, by the cosine of Nichol and Dhariwal; β at most 0.999."""
    times = torch.arange(steps + 1, dtype=torch.float64) / steps
    curve = torch.cos((times + 0.008) / 1.008 * math.pi / 2) ** 2
    beta = (1 - curve[1:] / curve[:-1]).clamp(max=0.999)
    return torch.cat([torch.ones(1, dtype=torch.float64), torch.cumprod(1 - beta, 0)])


def linear_schedule(steps: int) -> Tensor:
    """Signal left after 0..steps with β rising evenly, scaled to the number of steps."""
    scale = 1000 / steps
    beta = torch.linspace(scale * 1e-4, min(scale * 0.02, 0.999), steps, dtype=torch.float64)
    return torch.cat([torch.ones(1, dtype=torch.float64), torch.cumprod(1 - beta, 0)])


def diffuse_numbers(clean: Tensor, epsilon: Tensor, signal: Tensor) -> Tensor:
    """q(x_t | x_0): √ᾱ x_0 + √(1 − ᾱ) ε."""
    return signal.sqrt() * clean + (1 - signal).sqrt() * epsilon


def gaussian_back(
    now: Tensor, epsilon: Tensor, signal: float, earlier: float, draw: Tensor
) -> Tensor:
    """A draw from q(x_s | x_t, x_0) with the x_0 that the predicted ε implies."""
    clean = ((now - (1 - signal) ** 0.5 * epsilon) / signal**0.5).clamp(-6, 6)
    step = signal / earlier
    from_clean = earlier**0.5 * (1 - step) / (1 - signal)
    from_now = step**0.5 * (1 - earlier) / (1 - signal)
    variance = (1 - step) * (1 - earlier) / (1 - signal)
    return torch.add(from_clean * clean + from_now * now, variance**0.5 * draw)


def mix_with_uniform(log_chances: Tensor, signal: Tensor | float) -> Tensor:
    """log q(x_t | x_0) of a category: ᾱ of the chances, the rest spread evenly."""
    left = torch.as_tensor(signal, dtype=log_chances.dtype, device=log_chances.device)
    width = log_chances.shape[1]
    return torch.logaddexp(
        log_chances + left.clamp(_LEAST).log(), (1 - left).clamp(_LEAST).log() - math.log(width)
    )


def category_posterior(
    log_clean: Tensor, log_now: Tensor, signal: Tensor | float, earlier: Tensor | float
) -> Tensor:
    """log q(x_s | x_t, x_0) of a category; ``log_clean`` may be soft, ``log_now`` is one-hot."""
    step = torch.as_tensor(signal) / torch.as_tensor(earlier)
    joint = mix_with_uniform(log_clean, earlier) + mix_with_uniform(log_now, step)
    return joint - torch.logsumexp(joint, dim=1, keepdim=True)


def log_one_hot(hot: Tensor) -> Tensor:
    """One-hot rows as logarithms that stay finite."""
    return hot.clamp(min=_LEAST).log()


def category_loss(
    log_guess: Tensor, hot: Tensor, hot_now: Tensor, signal: Tensor, earlier: Tensor
) -> Tensor:
    """KL(q(x_s | x_t, x_0) ‖ q(x_s | x_t, guessed x_0)) by row; at s = 0, −log of the guess."""
    clean, now = log_one_hot(hot), log_one_hot(hot_now)
    truth = category_posterior(clean, now, signal, earlier)
    guess = category_posterior(log_guess, now, signal, earlier)
    divergence = (truth.exp() * (truth - guess)).sum(1)
    decoder = -(hot * guess).sum(1)
    return torch.where(earlier.squeeze(1) >= 1.0, decoder, divergence)


def diffuse(
    clean: Tensor, signal: Tensor, layout: Layout, source: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Rows at their times, and the ε in their numbers."""
    scalars, blocks = layout.split(clean)
    epsilon = normal(scalars.shape, source, clean.device)
    parts = [diffuse_numbers(scalars, epsilon, signal)]
    for block in blocks:
        parts.append(draw_one_hot(mix_with_uniform(log_one_hot(block), signal), source))
    return torch.cat(parts, dim=1), epsilon


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
    parts = [gaussian_back(numbers, said, signal, earlier, draw)]
    for block, guess in zip(blocks, guesses, strict=True):
        log_guess = torch.log_softmax(guess, 1)
        chances = category_posterior(log_guess, log_one_hot(block), signal, earlier)
        parts.append(draw_one_hot(chances, source))
    return torch.cat(parts, dim=1)


# ---- training ------------------------------------------------------------------------------------


def losses(
    output: Tensor,
    clean: Tensor,
    now: Tensor,
    epsilon: Tensor,
    signal: Tensor,
    earlier: Tensor,
    layout: Layout,
) -> tuple[Tensor, Tensor]:
    """Squared error of the ε of each number, and the KL term of each choice; by row."""
    said, guesses = layout.split(output)
    _, wanted = layout.split(clean)
    _, current = layout.split(now)
    squares = (said - epsilon) ** 2
    terms = [
        category_loss(torch.log_softmax(guess, 1), hot, hot_now, signal, earlier)
        for guess, hot, hot_now in zip(guesses, wanted, current, strict=True)
    ]
    return squares, torch.stack(terms, dim=1) if terms else squares.new_zeros((len(squares), 0))


class _DiffusionTraining(RowTraining):
    """The ε of numbers by squared error, choices by their KL over the number of choices."""

    model: TabDDPM

    def __init__(self, model: TabDDPM, matrix: Array, source: torch.Generator) -> None:
        super().__init__(model, matrix, source)
        self.signal = model.signal().float().to(model.device)
        self.networks["average"].load_state_dict(self.networks["denoiser"].state_dict())
        self.networks["average"].requires_grad_(False)
        shown = model.shown_columns()
        self.block = None if shown is None else shown[model.layout_.owners].to(model.device)

    def begin(self, epoch: int, epochs: int) -> None:
        for group in self.optimisers["adamw"].param_groups:
            group["lr"] = self.model.rate * (1 - epoch / epochs)

    def step(self, rows: Tensor) -> dict[str, Tensor]:
        batch = self.rows[rows % len(self.rows)]
        found = self.mean_losses(batch, self.networks["denoiser"])
        descend(self.optimisers["adamw"], (found["numbers"] + found["choices"]))
        average, now = (self.networks[part].parameters() for part in ("average", "denoiser"))
        with torch.no_grad():
            for kept, value in zip(average, now, strict=True):
                kept.lerp_(value, 1 - self.model.average)
        return found

    def validate(self) -> float | None:
        if not len(self.held):
            return None
        with torch.no_grad():
            found = self.mean_losses(self.held, self.networks["average"])
        return float(found["numbers"] + found["choices"])

    def mean_losses(self, clean: Tensor, network: nn.Module) -> dict[str, Tensor]:
        """The mean terms of numbers and of choices, each row at a time of its own."""
        model, layout = self.model, self.model.layout_
        times = (uniform((len(clean),), self.source) * model.steps).long() + 1
        times = times.to(clean.device)
        signal, earlier = self.signal[times, None], self.signal[times - 1, None]
        known = self.known(len(clean))
        now, epsilon = diffuse(clean, signal, layout, self.source)
        output = network(now * (1 - known), times, clean * known, known)
        squares, terms = losses(output, clean, now, epsilon, signal, earlier, layout)
        # Known cells are given, not diffused: nothing is to be learned of them.
        free = (1 - known)[:, layout.firsts]
        numbers = (squares * free[:, : layout.scalars]).sum(1)
        choices = (terms * free[:, layout.scalars :]).sum(1)
        # One time stands for all of them, so the bound of a choice is its term times the steps.
        return {
            "numbers": numbers.mean() / max(layout.scalars, 1),
            "choices": model.steps * choices.mean() / max(len(layout.choices), 1),
        }

    def known(self, rows: int) -> Tensor:
        """Half of the rows know nothing; the others some cells, or all but the hidden block."""
        model = self.model
        if not model.conditional:
            return torch.zeros((rows, model.layout_.width), device=model.device)
        if self.block is not None:
            known = self.block.expand(rows, -1)
        else:
            known = random_known(rows, model.layout_, self.source, model.device)
        asked = (uniform((rows, 1), self.source) < 0.5).float().to(model.device)
        return known * asked


@documented
@dataclass(kw_only=True)
class TabDDPM(DeepGenerator):
    """Denoising diffusion of tables (Kotelnikov et al., "TabDDPM", 2023).

    Numbers become normal deviates of their ranks and lose their signal among Gaussian draws (ε);
    choices lose theirs among evenly drawn ones. The network sees what is left of the cells, the
    time, and an embedding of the known cells; it says the ε of numbers and the clean choices.
    """

    name = "tabddpm"
    training = _DiffusionTraining

    epochs: int = param(200, "Passes over the training rows.", ge=1)
    steps: int = param(100, "Steps of the diffusion.", ge=2)
    sample_steps: int | None = param(
        None,
        "How many times sampling visits; all by default. Fewer are faster and a little worse.",
        ge=1,
    )
    schedule: Literal["cosine", "linear"] = param("cosine", "How the signal is lost over time.")
    width: int = param(256, "Width of the network's hidden layers.", ge=1)
    layers: int = param(3, "How many hidden layers the network has.", ge=1)
    embedding: int = param(128, "Width of the embeddings of time and conditions.", ge=2)
    rate: float = param(2e-3, "Learning rate of AdamW; it falls to 0 evenly.", ge=0)
    decay: float = param(1e-4, "Weight decay of AdamW.", ge=0)
    hide: list[str] | None = param(
        None,
        "The columns that will be missing together: half of the rows are then trained with exactly "
        "these hidden and all others known. Without it they are drawn for each row.",
    )
    conditional: bool = param(
        True, "Train half of the rows with some cells known, for `sample(n, rng, given)`."
    )
    average: float = param(
        0.99,
        "Decay of the moving average of the weights that samples come from; 0 takes the last ones.",
        ge=0,
    )

    def _check(self) -> None:
        super()._check()
        if self.sample_steps is not None and self.sample_steps > self.steps:
            raise ConfigError(
                f"The sample_steps parameter of TabDDPM must be from 1 to {self.steps}. "
                f"Got {self.sample_steps!r} instead."
            )

    def expect_missing(self, columns: Sequence[str]) -> None:
        """Train with these columns hidden together, unless ``hide`` says otherwise."""
        if self.hide is None:
            self.hide = list(columns)

    def _encoder(self) -> MixedEncoder:
        return MixedEncoder("quantile")

    def _build(self, source: torch.Generator) -> nn.ModuleDict:
        shape = (self.layout_.width, self.width, self.layers, self.embedding)
        return nn.ModuleDict({part: Denoiser(*shape, source) for part in ("denoiser", "average")})

    def _optimisers(self, networks: nn.ModuleDict) -> dict[str, Optimizer]:
        weights = networks["denoiser"].parameters()
        return {"adamw": AdamW(weights, lr=self.rate, weight_decay=self.decay)}

    def signal(self) -> Tensor:
        """How much of a row is left after 0..steps."""
        schedule = cosine_schedule if self.schedule == "cosine" else linear_schedule
        return schedule(self.steps)

    def shown_columns(self) -> Tensor | None:
        """Which table columns stay known where ``hide`` names the others."""
        if self.hide is None:
            return None
        names = list(self.encoder_.kinds)
        if not self.hide or not {*self.hide} <= {*names}:
            raise ConfigError(
                "The hide parameter of TabDDPM must name columns of the table. "
                f"Got {self.hide!r} instead."
            )
        return torch.from_numpy(~np.isin(names, self.hide)).float()

    def _make(self, n: int, given: Conditions | None, source: torch.Generator) -> Array:
        layout = self.layout_
        values = known = torch.zeros((n, layout.width), device=self.device)
        if given is not None:
            if not self.conditional:
                self._refuse_conditions()
            values, known = given.inputs(layout, self.device)
        signal = self.signal().tolist()
        visits = np.linspace(1, self.steps, self.sample_steps or self.steps).round().astype(int)
        times = [0, *np.unique(visits).tolist()]
        now = torch.zeros((n, layout.width), device=self.device)
        now[:, : layout.scalars] = normal((n, layout.scalars), source, self.device)
        now = layout.draw(now, source)
        for earlier, time in reversed([*pairwise(times)]):
            moment = torch.full((n,), time, device=self.device)
            free = now * (1 - known)
            output = self.networks_["average"](free, moment, values * known, known)
            now = step_back(now, output, layout, signal[time], signal[earlier], source)
        return layout.back(torch.where(known > 0, values, now))
