"""What a label holder can say alone: a linear model of its own columns, for rows nobody else has.

It is trained beside the joint model, at the label holder and without a message, on every row of its
own whose label is known. What it is worth is measured by cross-validation then and kept with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import logit
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import KFold

from vfsl.data import Encoder, PartyTable
from vfsl.parts import Rows
from vfsl.values import Array, Floats

JOINT, OWN_COLUMNS = "joint", "own columns"
_FOLDS = 5
_MOST_JUDGED = 50_000  # rows; more would tell the same figure
_LEAST_L2 = 1e-6  # indicators of one category add up to 1: without a penalty weights are not unique
_LEAST_CHANCE = 1e-9


def fit_alone(
    table: PartyTable,
    rows: Rows,
    target: Floats,
    weights: Floats | None = None,
    *,
    classes: int | None,
    l2: float = 1e-3,
    missing: str | None = None,
    judged_by: Array | None = None,
) -> dict[str, Any]:
    """A linear model of a table's own columns, as plain values.

    Parameters
    ----------
    table : PartyTable
        Without the label among its features.
    rows : array of int
        Those to learn from.
    target : array
        Of these: numbers, codes of classes, or for two classes the chance of the second one.
    weights : array, optional
        Of these.
    classes : int or None
        How many; None: numbers.
    l2 : float
        The penalty ½ l2 ‖w‖² beside the mean loss.
    judged_by : array, optional
        What its quality is measured by, if not by the target: codes of classes.

    Returns
    -------
    dict
        "encoder", "weights" (columns and the constant, outputs), and "quality": the cross-validated
        "AUC", "accuracy" or "R²", and on how many "rows". No quality where rows are too few.
    """
    chosen = table.take(rows)
    encoder = Encoder(missing=missing or table.missing).fit(chosen)
    columns = np.asarray(encoder.transform(chosen).matrix, dtype=np.float64)
    own = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    found = _solve(columns, target, own, classes, l2)
    truth = target if judged_by is None else judged_by
    quality = _cross_validate(columns, target, own, truth, classes, l2)
    return {"encoder": encoder.to_dict(), "weights": found.tolist(), "quality": quality}


def score_alone(state: Mapping[str, Any], table: PartyTable, rows: Rows) -> Floats:
    """Scores of rows, (rows, outputs): numbers, the logit of the second class, or logits of all."""
    columns = Encoder.from_dict(state["encoder"]).transform(table.take(rows)).matrix
    return _score(columns, np.asarray(state["weights"], dtype=np.float64))


def to_separate_logits(scores: Floats) -> Floats:
    """Logits of a softmax as those of each class against all others, of the same chances."""
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return np.asarray(logit(np.clip(chances, _LEAST_CHANCE, 1 - _LEAST_CHANCE)))


def describe_quality(state: Mapping[str, Any]) -> dict[str, float]:
    """Its figures for the record of a training: {"own columns, cross-validated AUC": 0.71}."""
    return {
        f"{OWN_COLUMNS}, cross-validated {name}": value
        for name, value in state["quality"].items()
        if name != "rows"
    }


def _solve(
    columns: Floats, target: Floats, weights: Floats, classes: int | None, l2: float
) -> Floats:
    """Weights of columns and, last, the constant, (columns + 1, outputs)."""
    penalty = max(l2, _LEAST_L2) * weights.sum()
    if not columns.shape[1]:  # a party may have nothing but the label
        columns = np.zeros((len(columns), 1))
    if classes is None:
        number = Ridge(alpha=penalty).fit(columns, target, weights)
        return np.append(number.coef_, number.intercept_)[:, None]
    if classes == 2:  # each row counts for both classes, by its chance
        columns = np.vstack([columns, columns])
        weights = np.concatenate([weights * (1 - target), weights * target])
        target = np.repeat([0, 1], len(target))
        used = weights > 0
        columns, weights, target = columns[used], weights[used], target[used]
    model = LogisticRegression(C=1 / penalty, max_iter=5000)
    model.fit(columns, target.astype(np.int64), weights)
    return np.vstack([model.coef_.T, model.intercept_])


def _score(columns: Array, weights: Floats) -> Floats:
    return np.asarray(columns @ weights[: columns.shape[1]] + weights[-1], dtype=np.float64)


def _cross_validate(
    columns: Floats,
    target: Floats,
    weights: Floats,
    truth: Array,
    classes: int | None,
    l2: float,
) -> dict[str, float]:
    """How good it is on rows that it did not learn from; nothing where a fold cannot be judged."""
    drawn = np.random.default_rng(0).permutation(len(target))[:_MOST_JUDGED]
    smallest = (
        len(drawn)
        if classes is None
        else np.bincount(truth[drawn].astype(int), minlength=classes).min()
    )
    if smallest < 2 * _FOLDS:
        return {}
    scores = np.zeros((len(drawn), 1 if classes in (None, 2) else int(classes or 0)))
    for train, test in KFold(_FOLDS).split(drawn):
        learned, asked = drawn[train], drawn[test]
        if classes is not None and len(np.unique(truth[learned])) < classes:
            return {}
        solved = _solve(columns[learned], target[learned], weights[learned], classes, l2)
        scores[test] = _score(columns[asked], solved)
    rows, truth = {"rows": float(len(drawn))}, truth[drawn]
    if classes is None:
        return {"R²": float(r2_score(truth, scores[:, 0])), **rows}
    if classes == 2:
        return {"AUC": float(roc_auc_score(truth, scores[:, 0])), **rows}
    return {"accuracy": float(accuracy_score(truth, scores.argmax(axis=1))), **rows}
