"""What the label holder can do alone: models of its own columns, beside which others are judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_predict

from vfsl.data import Encoder, Kind, PartyTable
from vfsl.job.judging import Floats
from vfsl.parts import Rows
from vfsl.values import Array

OWN_TREES, OWN_LINEAR, PRIOR = (
    "own columns, boosted trees",
    "own columns, linear",
    "prior, no columns",
)
_MOST_LEVELS = 250  # of a category that scikit-learn's trees take as such


def predict_alone(
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
    """Small boosted trees, of the size that advice on completed columns trains too."""
    columns, levels = _columns_for_trees(table, train)
    size: dict[str, Any] = {"max_iter": 60, "max_depth": 4, "learning_rate": 0.08}
    size |= {"early_stopping": False, "categorical_features": levels}
    size["random_state"] = int(rng.integers(2**31))
    if classes is None:
        number = HistGradientBoostingRegressor(**size).fit(columns[train], target)
        return np.asarray(number.predict(columns[test]), dtype=np.float64)
    model = HistGradientBoostingClassifier(**size).fit(columns[train], target.astype(np.int64))
    return order_chances(model.predict_proba(columns[test]), list(model.classes_), len(classes))


def _columns_for_trees(table: PartyTable, train: Rows) -> tuple[Floats, list[bool]]:
    """Numbers as they are, categories as codes of those that training rows have."""
    columns = np.empty((len(table), len(table.features)))
    coded = []
    for place, name in enumerate(table.features):
        values = table.column(name)
        if table.kinds[name] is Kind.NUMERIC:
            columns[:, place] = values.to_numpy(dtype=np.float64, na_value=np.nan)
            coded.append(False)
            continue
        known = pd.Index(values.iloc[train].dropna().astype(str).unique()).sort_values()
        codes = known.get_indexer(values.astype(object).map(str, na_action="ignore"))
        columns[:, place] = np.where(codes < 0, np.nan, codes)
        coded.append(len(known) <= _MOST_LEVELS)
    return columns, coded


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
    return order_chances(model.predict_proba(asked), list(model.classes_), len(classes))


def _prior(target: Array, rows: int, classes: Sequence[Any] | None) -> Floats:
    if classes is None:
        return np.full(rows, float(np.mean(target)))
    counts = np.bincount(target.astype(np.int64), minlength=len(classes))
    return np.tile(counts / counts.sum(), (rows, 1))


def order_chances(chances: Array, known: Sequence[int], classes: int) -> Floats:
    """Probabilities in the order of all classes; those that a model never saw get none."""
    whole = np.zeros((len(chances), classes))
    whole[:, [int(code) for code in known]] = chances
    return whole


def rank_by_marks(table: PartyTable, rows: Rows, marked: Array) -> Floats | None:
    """How likely each row is marked, by own columns, from models that did not see the row.

    What a label holder can do alone with marks of known positives: a logistic regression of marked
    against all other rows, in five folds. None where a fold would lack one of them.
    """
    if not table.features or min(marked.sum(), (~marked).sum()) < 5:
        return None
    chosen = table.take(rows)
    columns = Encoder(missing="impute").fit_transform(chosen).matrix
    model = LogisticRegression(max_iter=5000)
    chances = cross_val_predict(model, columns, marked, cv=5, method="predict_proba")
    return np.asarray(chances[:, 1], dtype=np.float64)
