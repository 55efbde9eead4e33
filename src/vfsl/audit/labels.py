"""Attacks on labels from numbers about rows, by an attacker that knows some labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from vfsl.audit.trees import auc, guess_labels
from vfsl.values import Booleans, Floats, Integers


def guess_by_columns(columns: Floats, known: Integers, labels: Booleans) -> Floats:
    """A score for each row by logistic regression on the rows whose label is known."""
    scaled = StandardScaler().fit_transform(columns)
    return np.asarray(LogisticRegression().fit(scaled[known], labels).decision_function(scaled))


def draw_known(truth: Booleans, count: int, rng: np.random.Generator) -> Integers:
    """Rows whose labels the attacker knows, half of them positive as far as there are so many."""
    sides = [np.flatnonzero(truth == side) for side in (False, True)]
    half = [rng.choice(side, min(count // 2, len(side) // 2), replace=False) for side in sides]
    return np.concatenate(half)


def gain_of_view(
    designs: Sequence[Floats],
    own: Floats,
    truth: Booleans,
    count: int,
    *,
    near: Floats | None = None,
    seed: int = 0,
    draws: int = 10,
) -> tuple[float, float]:
    """AUC on rows of unknown label with the view, and by own columns alone.

    Each design is tried alone and beside the own columns; ``near`` says how near rows are to each
    other. Which of them is best is judged on the unknown rows, which is more than an attacker can
    do; so are own columns, of which there is one way only.
    """
    found: dict[str, list[float]] = {}
    rng = np.random.default_rng([seed, count])
    for _ in range(draws):
        known = draw_known(truth, count, rng)
        hidden = np.setdiff1d(np.arange(len(truth)), known)
        guesses: dict[str, Floats] = {"own": np.zeros(len(truth))}
        if own.shape[1]:
            guesses["own"] = guess_by_columns(own, known, truth[known])
        for at, design in enumerate(designs):
            guesses[f"view {at}"] = guess_by_columns(design, known, truth[known])
            both = np.hstack([design, own])
            guesses[f"both {at}"] = guess_by_columns(both, known, truth[known])
        if near is not None:
            guesses["near"] = guess_labels(near, known, truth[known])
        for name, scores in guesses.items():
            found.setdefault(name, []).append(auc(scores[hidden], truth[hidden]))
    means = {name: float(np.mean(values)) for name, values in found.items()}
    baseline = max(means.pop("own"), 0.5)
    return max([baseline, *means.values()]), baseline
