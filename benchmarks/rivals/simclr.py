"""The augmentations of SimCLR for pictures: crop and resize, mirror, change colours.

As in Chen et al., "A simple framework for contrastive learning of visual representations", with the
numbers that are usual for small pictures: a crop of 20 to 100 % of the area in a shape of 3:4 to
4:3 of the picture's own, mirrored in half of all cases, with colours changed in four of five
(brightness, contrast and saturation by up to 40 %, hue by up to a tenth of a turn) and taken away
in one of five. No blur, as in the paper's own runs on CIFAR-10. Pictures of one channel have
brightness and contrast only.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vfsl.evidence.encoders import CNN, PixelColumns
from vfsl.evidence.networks import Inputs

AREA, SHAPE = (0.2, 1.0), (3 / 4, 4 / 3)
JITTER, HUE = 0.4, 0.1
CHANGED, GREY = 0.8, 0.2
# Luma and two axes of colour; a turn of these two changes the hue.
_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


def distort(rows: Inputs, recipe: CNN, columns: PixelColumns, rng: np.random.Generator) -> Inputs:
    """A random version of each picture, standardised as the rows are."""
    shape = recipe.shape if len(recipe.shape) == 3 else (1, *recipe.shape)
    pictures = crop(rows.numbers.reshape(-1, *shape), rng)
    changed = recolour(pictures * columns.deviation + columns.mean, rng)
    return Inputs(((changed - columns.mean) / columns.deviation).flatten(1), rows.codes)


def crop(pictures: Tensor, rng: np.random.Generator) -> Tensor:
    """A random part of each picture, stretched to the whole and mirrored in half of all cases."""
    count = len(pictures)
    area = rng.uniform(*AREA, count)
    ratio = np.exp(rng.uniform(math.log(SHAPE[0]), math.log(SHAPE[1]), count))
    width, height = np.minimum(np.sqrt(area * ratio), 1), np.minimum(np.sqrt(area / ratio), 1)
    across, down = rng.uniform(-1, 1, (2, count)) * (1 - np.stack([width, height]))
    mirrored = np.where(rng.random(count) < 0.5, -1.0, 1.0)
    maps = np.zeros((count, 2, 3))
    maps[:, 0, 0], maps[:, 0, 2] = width * mirrored, across
    maps[:, 1, 1], maps[:, 1, 2] = height, down
    theta = torch.as_tensor(maps, dtype=pictures.dtype)
    grid = functional.affine_grid(theta, list(pictures.shape), align_corners=False)
    return functional.grid_sample(pictures, grid, padding_mode="border", align_corners=False)


def recolour(pictures: Tensor, rng: np.random.Generator) -> Tensor:
    """Brightness, contrast, saturation and hue changed in some pictures; some without colours."""
    count, channels = pictures.shape[:2]

    def draw(low: float, high: float, share: float, usual: float) -> Tensor:
        values = np.where(rng.random(count) < share, rng.uniform(low, high, count), usual)
        return torch.as_tensor(values, dtype=pictures.dtype)[:, None, None, None]

    touched = torch.as_tensor(rng.random(count) < CHANGED)[:, None, None, None]
    light, contrast, colour = (draw(1 - JITTER, 1 + JITTER, 1.0, 1.0) for _ in range(3))
    changed = pictures * light
    middle = _grey(changed).mean(dim=(2, 3), keepdim=True)
    changed = middle + contrast * (changed - middle)
    if channels == 3:
        changed = _grey(changed) + colour * (changed - _grey(changed))
        changed = turn_hue(changed, draw(-HUE, HUE, 1.0, 0.0))
    changed = torch.where(touched, changed, pictures)
    if channels == 3:
        changed = torch.where(draw(1.0, 1.0, GREY, 0.0) > 0, _grey(changed), changed)
    return changed


def turn_hue(pictures: Tensor, turns: Tensor) -> Tensor:
    """Colours turned around grey by a fraction of a whole turn; luma stays."""
    angle = 2 * math.pi * turns[:, 0, 0, 0]
    turning = torch.zeros(len(pictures), 3, 3, dtype=pictures.dtype)
    turning[:, 0, 0] = 1
    turning[:, 1, 1] = turning[:, 2, 2] = torch.cos(angle)
    turning[:, 1, 2], turning[:, 2, 1] = -torch.sin(angle), torch.sin(angle)
    yiq = _YIQ.to(pictures.dtype)
    maps = torch.linalg.inv(yiq) @ turning @ yiq
    return torch.einsum("nab,nbhw->nahw", maps, pictures)


def _grey(pictures: Tensor) -> Tensor:
    """Luma in every channel."""
    if pictures.shape[1] != 3:
        return pictures.mean(dim=1, keepdim=True).expand_as(pictures)
    luma = torch.einsum("c,nchw->nhw", _YIQ[0].to(pictures.dtype), pictures)
    return luma[:, None].expand_as(pictures)
