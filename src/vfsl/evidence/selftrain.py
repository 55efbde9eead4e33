"""Labels for rows that have none, from the class scores of the self-training model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from vfsl.evidence.rows import UNKNOWN, Numbers
from vfsl.values import Array

_TEMPERATURES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def self_trained(scores: Sequence[Array]) -> Array:
    """Probabilities by the self-training model: the parties' scores add up, then a softmax."""
    total = np.sum([np.asarray(one, dtype=np.float64) for one in scores], axis=0)
    return np.asarray(softmax(total, axis=1))


def cooling(scores: Array, labels: Numbers) -> float:
    """The temperature by which one party's scores say most of the labels of held-out rows.

    A model that learned few rows by heart is far too sure of others; divided by the temperature its
    scores are as sure as they are right. Never below 1: a few lucky rows must not make it surer.
    """
    rows = np.arange(len(labels))
    chances = [softmax(scores / t, axis=1)[rows, labels] for t in _TEMPERATURES]
    losses = [-np.log(one + 1e-12).mean() for one in chances]
    return _TEMPERATURES[int(np.argmin(losses))]


def pseudo_labels(probabilities: Array, least: float) -> Numbers:
    """The most probable class where it has at least that probability; elsewhere no label."""
    best = probabilities.argmax(axis=1)
    sure = probabilities.max(axis=1) >= least
    return np.where(sure, best, UNKNOWN).astype(np.int64)
