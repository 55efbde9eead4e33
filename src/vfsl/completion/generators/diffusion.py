"""Diffusion by hand: noise schedules, and the Gaussian and multinomial steps there and back.

``alpha_bar[t]`` is how much of the signal is left after t steps; ``alpha_bar[0]`` is 1. Steps back
may leave out times: each goes from t to any earlier s.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_LEAST = 1e-30


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


def noised(clean: Tensor, noise: Tensor, signal: Tensor) -> Tensor:
    """q(x_t | x_0): √ᾱ x_0 + √(1 − ᾱ) ε."""
    return signal.sqrt() * clean + (1 - signal).sqrt() * noise


def gaussian_back(
    now: Tensor, noise: Tensor, signal: float, earlier: float, draw: Tensor
) -> Tensor:
    """A draw from q(x_s | x_t, x_0) with the x_0 that the predicted noise implies."""
    clean = ((now - (1 - signal) ** 0.5 * noise) / signal**0.5).clamp(-6, 6)
    step = signal / earlier
    from_clean = earlier**0.5 * (1 - step) / (1 - signal)
    from_now = step**0.5 * (1 - earlier) / (1 - signal)
    variance = (1 - step) * (1 - earlier) / (1 - signal)
    return torch.add(from_clean * clean + from_now * now, variance**0.5 * draw)


def mixed_with_uniform(log_chances: Tensor, signal: Tensor | float) -> Tensor:
    """log q(x_t | x_0) of a category: ᾱ of the chances, the rest spread evenly."""
    share = torch.as_tensor(signal, dtype=log_chances.dtype, device=log_chances.device)
    width = log_chances.shape[1]
    return torch.logaddexp(
        log_chances + share.clamp(_LEAST).log(), (1 - share).clamp(_LEAST).log() - math.log(width)
    )


def category_posterior(
    log_clean: Tensor, log_now: Tensor, signal: Tensor | float, earlier: Tensor | float
) -> Tensor:
    """log q(x_s | x_t, x_0) of a category; ``log_clean`` may be soft, ``log_now`` is one-hot."""
    step = torch.as_tensor(signal) / torch.as_tensor(earlier)
    joint = mixed_with_uniform(log_clean, earlier) + mixed_with_uniform(log_now, step)
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


def time_features(times: Tensor, width: int) -> Tensor:
    """Sines and cosines of the time at geometric frequencies."""
    half = width // 2
    rates = torch.exp(-math.log(10_000) * torch.arange(half, device=times.device) / half)
    angles = times[:, None].float() * rates
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=1)
