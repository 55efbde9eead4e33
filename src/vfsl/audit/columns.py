"""Attacks on columns from numbers about rows: regression on known rows, and ranks of views."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score

from vfsl.values import Floats, Integers

_ALPHAS = np.logspace(-8, 3, 12)
_NONE, _EXACT = 1e-6, 0.9


def recover_columns(
    views: Sequence[Floats], truth: Floats, aux: int, rng: np.random.Generator, own: Floats
) -> Floats:
    """R² of each of the other's columns on rows that the attacker does not know, at least 0.

    ``views`` is a list of arrays (rows, views). The attacker knows ``aux`` rows and regresses their
    columns on its views, on their main directions (how many: what does best on the known rows, one
    left out at a time), and on its own columns. The best of all these for each column counts, which
    is more than an attacker can know.
    """
    known = rng.permutation(len(truth))[:aux]
    rest = np.setdiff1d(np.arange(len(truth)), known)
    found = [np.zeros(truth.shape[1])]
    if own.shape[1]:
        found.append(_fit_best([own], truth, known, rest))
    for block in views:
        left, size, _ = np.linalg.svd(block - block.mean(axis=0), full_matrices=False)
        counts = range(1, int((size > _NONE * size[0]).sum()) + 1) if len(size) and size[0] else ()
        alone = [left[:, :count] for count in counts]
        if alone:
            found.append(_fit_best(alone, truth, known, rest))
            found.append(_fit_best(alone[-1:], truth, known, rest))
            found.append(_fit_best([np.hstack([one, own]) for one in alone], truth, known, rest))
    return np.asarray(np.max(found, axis=0))


def _fit_best(designs: Sequence[Floats], truth: Floats, known: Integers, rest: Integers) -> Floats:
    """R² on the rest of the design that predicts each left-out known row best."""
    best = np.full(truth.shape[1], -np.inf)
    guess = np.zeros((len(rest), truth.shape[1]))
    for given in designs:
        given = given / np.maximum(given.std(axis=0), 1e-12)
        model = RidgeCV(alphas=_ALPHAS, alpha_per_target=True)
        model.fit(given[known], truth[known])
        score = np.atleast_1d(model.best_score_)
        better = score > best
        best = np.where(better, score, best)
        guess[:, better] = model.predict(given[rest]).reshape(guess.shape)[:, better]
    return np.array(r2_score(truth[rest], guess, multioutput="raw_values"))


def gain_of_views(
    view: Floats, truth: Floats, own: Floats, aux: int, seed: int, draws: int = 3
) -> tuple[Floats, Floats]:
    """Mean R² of each column with the view and by own columns alone, over draws of known rows."""
    pairs = []
    for draw in range(draws):
        found = [
            recover_columns(views, truth, aux, np.random.default_rng([seed, draw]), own)
            for views in ([view], [])
        ]
        pairs.append(found)
    after, before = np.mean(pairs, axis=0)
    return after, before


def count_directions(view: Floats, theirs: Floats, own: Floats) -> tuple[int, int]:
    """Of the other's columns how many directions a view shows, and how many there are.

    What own columns explain is taken off both. A direction of the view counts if the other's
    columns explain nine tenths of it: a model that bends or rounds them shows less.
    """
    base = np.column_stack([own, np.ones(len(own))])
    seen, hidden = (_without(base, one) for one in (view, theirs))
    shown, size, _ = np.linalg.svd(seen, full_matrices=False)
    spread, sizes, _ = np.linalg.svd(hidden, full_matrices=False)
    there = spread[:, sizes > _NONE * max(float(sizes.max(initial=0.0)), 1e-300)]
    whole = float(np.linalg.norm(view - view.mean(axis=0)))
    shown = shown[:, size > _NONE * max(whole, 1e-300)]
    explained = ((there.T @ shown) ** 2).sum(axis=0)
    return int((explained > _EXACT).sum()), there.shape[1]


def _without(base: Floats, values: Floats) -> Floats:
    """What columns have beyond those of the base."""
    return np.asarray(values - base @ np.linalg.lstsq(base, values, rcond=None)[0])
