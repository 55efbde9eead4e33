"""How a completion is judged: columns by their hidden truth, and trees that learn from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.complete_cells import Hidden
from vfsl.completion.columns import Filled
from vfsl.completion.completed import Completion
from vfsl.data import Kind, PartyTable
from vfsl.values import Array

_LEAST = 1e-6  # a probability below it counts as much


def judge_columns(done: Completion, truth: PartyTable) -> list[dict[str, Any]]:
    """Each completed column beside its hidden truth."""
    return [
        {"column": name, "route": column.route, "model": column.model, **judge(column, truth)}
        for name, column in done.columns.items()
    ]


def judge(column: Filled, truth: PartyTable) -> dict[str, float | None]:
    """The standardised MSE of numbers; accuracy and cross-entropy of categories."""
    target = column.target
    hidden = truth.column(target.name)
    seen = hidden.notna().to_numpy() & column.present
    if not seen.any():
        return {}
    if not target.classes:
        numbers = hidden.to_numpy(dtype=np.float64, na_value=np.nan)
        scale = float(np.nanvar(numbers)) or 1.0
        return {"MSE": float(((column.values - numbers)[seen] ** 2).mean() / scale)}
    levels = pd.Index(target.levels, dtype=object)
    places = levels.get_indexer(pd.Index(hidden.astype(object)))
    found: dict[str, float | None] = {
        "accuracy": float((column.values == places)[seen].mean()),
        "cross-entropy": None,
    }
    if column.chances is not None:
        # A category that common rows do not have gets no probability.
        chances = np.where(places >= 0, column.chances[np.arange(len(places)), places], 0.0)
        found["cross-entropy"] = float(-np.log(np.maximum(chances[seen], _LEAST)).mean())
    return found


def train_on_completed(
    done: Completion, hidden: Hidden, trees: Mapping[str, Any]
) -> dict[str, float]:
    """The test AUC of pooled trees on completed rows, on common rows only, and on true columns."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    tables = hidden.train.tables
    own, other = hidden.whole["A"].without([hidden.label]), hidden.whole["B"]
    common = len(tables["B"])
    shown = tables["B"].without([]).frame[list(other.features)].reset_index(drop=True)
    completed = pd.concat([shown, done.table[list(other.features)]], ignore_index=True)
    true = other.frame[list(other.features)].reset_index(drop=True)
    test = hidden.test.tables
    asked = _join(test["A"].without([hidden.label]), test["B"].frame[list(other.features)])
    label = hidden.whole["A"].column(hidden.label).to_numpy()
    positive, truth = np.unique(label)[-1], test["A"].column(hidden.label).to_numpy()
    kinds = {**own.kinds, **other.kinds}

    def score(theirs: pd.DataFrame, rows: int) -> float:
        given = _join(own, theirs)[:rows]
        matrix, answers, categories = encode_together(given, asked, kinds)
        model = HistGradientBoostingClassifier(
            random_state=0, categorical_features=categories, **trees
        )
        model.fit(matrix, label[:rows] == positive)
        return float(roc_auc_score(truth == positive, model.predict_proba(answers)[:, 1]))

    return {
        "downstream AUC": score(completed, len(label)),
        "AUC, common rows only": score(completed, common),
        "AUC, true columns": score(true, len(label)),
    }


def _join(table: PartyTable, theirs: pd.DataFrame) -> pd.DataFrame:
    own = table.frame[list(table.features)].reset_index(drop=True)
    return pd.concat([own, theirs.reset_index(drop=True)], axis=1)


def encode_together(
    train: pd.DataFrame, test: pd.DataFrame, kinds: Mapping[str, Any]
) -> tuple[Array, Array, list[bool]]:
    """Numbers as they are, the most frequent 200 categories as codes, for training and test."""
    sides: tuple[list[Array], list[Array]] = ([], [])
    categories = []
    for name in train.columns:
        category = kinds[str(name)] is not Kind.NUMERIC
        categories.append(category)
        known = train[name].dropna().astype(str).value_counts().index[:200] if category else None
        for found, frame in zip(sides, (train, test), strict=True):
            column = frame[name]
            if known is None:
                found.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
            else:
                places = known.get_indexer(pd.Index(column.astype(str))).astype(np.float64)
                places[(places < 0) | column.isna().to_numpy()] = np.nan
                found.append(places)
    return np.column_stack(sides[0]), np.column_stack(sides[1]), categories
