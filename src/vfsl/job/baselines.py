"""What the label holder can do alone: its own columns only, or no columns at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

from vfsl.channel import run_together
from vfsl.data import Encoder, PartyTable
from vfsl.estimators import XGB
from vfsl.job.metrics import Floats
from vfsl.parts import Part, Roles, Rows
from vfsl.values import Array

OWN_TREES, OWN_LINEAR, PRIOR = (
    "own columns, boosted trees",
    "own columns, linear",
    "prior, no columns",
)


def baselines(
    table: PartyTable,
    train: Rows,
    target: Array,
    test: Rows,
    classes: Sequence[Any] | None,
    rng: np.random.Generator,
) -> dict[str, Floats]:
    """Answers for the test rows by models that see nothing of other parties.

    Parameters
    ----------
    table : PartyTable
        The label holder's, without the label among its features.
    train : array of int
        All its rows with a known label that are not for testing, also those of no other party.
    target : array
        Of ``train``: numbers, or codes of classes.
    classes : sequence or None
        None: numbers.

    Returns
    -------
    dict of arrays
        Numbers (rows,), or probabilities (rows, classes).
    """
    answers = {}
    if table.features:
        answers[OWN_TREES] = _trees(table, train, target, test, classes, rng)
        answers[OWN_LINEAR] = _linear(table, train, target, test, classes)
    answers[PRIOR] = _prior(target, len(test), classes)
    return answers


def _trees(
    table: PartyTable,
    train: Rows,
    target: Array,
    test: Rows,
    classes: Sequence[Any] | None,
    rng: np.random.Generator,
) -> Floats:
    """Small boosted trees, those that advice on completed columns trains too."""
    task: Literal["classes", "regression"] = "regression" if classes is None else "classes"
    model = XGB(task=task, n_estimators=60, max_depth=4, learning_rate=0.08)
    me = table.party
    roles = Roles(me, (), f"no key beside {me}", "plain")
    values = target.astype(np.float64) if classes is None else target.astype(object)
    learn = partial(model.train, part=Part(table, train, values), roles=roles, rng=rng)
    share = run_together({me: learn})[me]
    ask = partial(model.score_rows, part=Part(table, test), share=share, roles=roles)
    scores = np.asarray(run_together({me: ask})[me])
    if classes is None:
        return scores[:, 0]
    known = [int(code) for code in share.state["classes"]]
    return in_order(model.to_probabilities(share, scores), known, len(classes))


def _linear(
    table: PartyTable, train: Rows, target: Array, test: Rows, classes: Sequence[Any] | None
) -> Floats:
    known = table.take(train)
    encoder = Encoder(missing="impute").fit(known)
    columns = encoder.transform(known).matrix
    asked = encoder.transform(table.take(test)).matrix
    if classes is None:
        return np.asarray(Ridge().fit(columns, target).predict(asked), dtype=np.float64)
    model = LogisticRegression(max_iter=5000).fit(columns, target.astype(np.int64))
    return in_order(model.predict_proba(asked), list(model.classes_), len(classes))


def _prior(target: Array, rows: int, classes: Sequence[Any] | None) -> Floats:
    if classes is None:
        return np.full(rows, float(np.mean(target)))
    counts = np.bincount(target.astype(np.int64), minlength=len(classes))
    return np.tile(counts / counts.sum(), (rows, 1))


def in_order(chances: Array, known: Sequence[int], classes: int) -> Floats:
    """Probabilities in the order of all classes; those that a model never saw get none."""
    whole = np.zeros((len(chances), classes))
    whole[:, [int(code) for code in known]] = chances
    return whole
