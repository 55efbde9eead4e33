"""Random augmentation of rows, for rivals that compare two versions of a row.

Images are shifted by up to two pixels (weak), and also brightened, jittered and partly blanked
(strong). They are not mirrored, since digits are not symmetric. Cells of tables are replaced by
the column's mean or by code 0 (weak), with jitter on numbers (strong); or, for contrastive
learning, by cells of other rows.
"""

from __future__ import annotations

import numpy as np
import torch

from vfsl.evidence.encoders import CNN, Recipe
from vfsl.evidence.networks import Inputs

_KEEP, _NOISE, _SHIFT = 0.8, 0.1, 2


def weak(rows: Inputs, recipe: Recipe, rng: np.random.Generator) -> Inputs:
    if isinstance(recipe, CNN):
        return _flat(shift(_pictures(rows, recipe), rng), rows)
    numbers = torch.as_tensor(rng.random(tuple(rows.numbers.shape)) < _KEEP)
    codes = torch.as_tensor(rng.random(tuple(rows.codes.shape)) < _KEEP)
    return Inputs(rows.numbers * numbers, rows.codes * codes)


def strong(rows: Inputs, recipe: Recipe, rng: np.random.Generator) -> Inputs:
    changed = weak(rows, recipe, rng)
    noise = torch.as_tensor(rng.normal(0, _NOISE, tuple(changed.numbers.shape)))
    numbers = changed.numbers + noise.float()
    if isinstance(recipe, CNN):
        pictures = _pictures(Inputs(numbers, rows.codes), recipe)
        gain = torch.as_tensor(rng.uniform(0.6, 1.4, (len(rows), 1, 1, 1))).float()
        return _flat(blank(pictures * gain, rng), rows)
    return Inputs(numbers, changed.codes)


def corrupt(rows: Inputs, pool: Inputs, rng: np.random.Generator, fraction: float = 0.6) -> Inputs:
    """Each cell replaced with that probability by the same column's cell of a random row."""
    parts = []
    for own, other in ((rows.numbers, pool.numbers), (rows.codes, pool.codes)):
        shape = tuple(own.shape)
        drawn = torch.as_tensor(rng.integers(0, len(pool), shape))
        replaced = torch.as_tensor(rng.random(shape) < fraction)
        parts.append(torch.where(replaced, torch.gather(other, 0, drawn), own))
    return Inputs(parts[0], parts[1])


def shift(pictures: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Each image shifted by up to two pixels and padded with zeros."""
    rows, _, height, width = pictures.shape
    padded = torch.nn.functional.pad(pictures, [_SHIFT] * 4)
    down, right = (torch.as_tensor(rng.integers(0, 2 * _SHIFT + 1, rows)) for _ in range(2))
    lines = (down[:, None] + torch.arange(height))[:, None, :, None]
    across = (right[:, None] + torch.arange(width))[:, None, None, :]
    number = torch.arange(rows)[:, None, None, None]
    channel = torch.arange(pictures.shape[1])[None, :, None, None]
    return padded[number, channel, lines, across]


def blank(pictures: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """A random box of a third of the height and width of each picture set to 0."""
    rows, _, height, width = pictures.shape
    top = torch.as_tensor(rng.integers(0, height, rows))[:, None]
    left = torch.as_tensor(rng.integers(0, width, rows))[:, None]
    lines, across = torch.arange(height), torch.arange(width)
    in_lines = (lines >= top) & (lines < top + height // 3)
    in_across = (across >= left) & (across < left + width // 3)
    return pictures * ~(in_lines[:, None, :, None] & in_across[:, None, None, :])


def _pictures(rows: Inputs, recipe: CNN) -> torch.Tensor:
    shape = recipe.shape if len(recipe.shape) == 3 else (1, *recipe.shape)
    return rows.numbers.reshape(-1, *shape)


def _flat(pictures: torch.Tensor, rows: Inputs) -> Inputs:
    return Inputs(pictures.flatten(1), rows.codes)
