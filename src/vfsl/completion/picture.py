"""What the report draws of a completion: aggregates of the missing party's columns, never a row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from vfsl.completion.columns import CARE, MEAN, USE, Filled
from vfsl.completion.completed import Completion
from vfsl.completion.fidelity import ks_complement, tv_complement
from vfsl.completion.targets import Target, restored
from vfsl.data.aggregates import LEAST, histogram, level_counts

# A page with more charts than that is not read; the table has all columns.
_MOST_CHARTS = 60
# Held-out cells of a completed column, and what mean, mode and hot-deck would have scored.
_MEASURES = ("skill", "rmse / deviation", "accuracy", "shape")


def picture(done: Completion) -> dict[str, Any]:
    """Routes, quality beside the baselines', distributions, and confidence by round."""
    columns = done.columns
    drawn = list(columns)[:_MOST_CHARTS]
    return {
        "rows": len(done.ids),
        "common": len(done.common),
        "routing": [_plain(asdict(route)) for route in done.routes],
        "quality": [_quality(done, name) for name in columns],
        "baselines": baselines(columns),
        "distributions": [{"column": name, **distribution(columns[name])} for name in drawn],
        "confidence": confidence_by_round(columns),
        "verdicts": {
            verdict: sum(column.verdict == verdict for column in columns.values())
            for verdict in (USE, CARE, MEAN)
        },
    }


def _quality(done: Completion, name: str) -> dict[str, Any]:
    """A column's held-out quality; shapes without pairs, whose number grows as the square."""
    column = done.columns[name]
    line = {"column": name, **column.quality(done.miss, done.folds)}
    return _plain(line | {"shape": shape(column.target, column.fold.predicted)})


def shape(target: Target, predicted: Any) -> float:
    """How alike the distributions of the known cells and of these values are; 1 is the same."""
    every = np.ones(len(target.filled), dtype=bool)
    real = restored(target, target.filled, every)[target.known]
    made = restored(target, np.asarray(predicted, dtype=float), every)[target.known]
    return (tv_complement if target.classes else ks_complement)(real, made)


def baselines(columns: Mapping[str, Filled]) -> list[dict[str, Any]]:
    """Means over the columns of this run, of mean and mode, and of hot-deck (a random known cell).

    Hot-deck is its expectation: the squared error doubles, the accuracy is Σp², the shape is kept.
    """
    live = {name: column for name, column in columns.items() if not column.target.constant}
    lines: dict[str, list[dict[str, float]]] = {"this run": [], "mean and mode": [], "hot-deck": []}
    for column in live.values():
        target = column.target
        ours = column.quality(0.1, 2)
        lines["this run"].append(
            {name: ours[name] for name in _MEASURES if name in ours}
            | {"shape": shape(target, column.fold.predicted)}
        )
        one = {"skill": 0.0, "shape": shape(target, np.full(len(target.filled), target.filler))}
        two = {"skill": -1.0, "shape": 1.0}
        if target.classes:
            shares = np.bincount(target.filled[target.known].astype(np.int64)) / target.known.sum()
            one["accuracy"], two["accuracy"] = float(shares.max()), float((shares**2).sum())
        else:
            one["rmse / deviation"], two["rmse / deviation"] = 1.0, math.sqrt(2.0)
        lines["mean and mode"].append(one)
        lines["hot-deck"].append(two)
    return [{"method": name, **_means(found)} for name, found in lines.items() if found]


def distribution(column: Filled) -> dict[str, Any]:
    """Known cells of common rows beside completed cells of the remaining ones."""
    target = column.target
    every = np.ones(len(target.filled), dtype=bool)
    real = restored(target, target.filled, every)[target.known]
    made = restored(target, column.values, column.present)[column.present]
    if target.classes:
        counts = [series.astype(object).value_counts().to_dict() for series in (real, made)]
        return {"kind": "categorical", **level_counts(*counts)}
    numbers = [pd.to_numeric(series).to_numpy(dtype=float) for series in (real, made)]
    return {"kind": "numeric", **histogram(*numbers)}


def confidence_by_round(columns: Mapping[str, Filled]) -> list[dict[str, Any]]:
    """For each round of VFPU-M how many cells got a pseudo-label, and how surely; 0: none did.

    Rounds with fewer than ten cells are added to the one before.
    """
    routed = [column for column in columns.values() if (column.round > 0).any()]
    if not routed:
        return []
    rounds = np.concatenate([column.round for column in routed])
    sure = np.concatenate([np.clip(column.confidence, 0, 1) for column in routed])
    groups: list[tuple[list[int], Any]] = []
    for number in np.unique(rounds[rounds > 0]).tolist():
        here = sure[rounds == number]
        if groups and (len(here) < LEAST or len(groups[-1][1]) < LEAST):
            numbers, before = groups.pop()
            groups.append(([*numbers, number], np.concatenate([before, here])))
        else:
            groups.append(([number], here))
    groups.append(([0], sure[rounds == 0]))
    return [
        {
            "round": f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}",
            "cells": len(values),
            "mean": float(values.mean()),
            "low": float(np.quantile(values, 0.25)),
            "high": float(np.quantile(values, 0.75)),
        }
        for numbers, values in groups
        if len(values) >= LEAST
    ]


def _means(lines: list[dict[str, float]]) -> dict[str, float]:
    found = {}
    for name in _MEASURES:
        values = [line[name] for line in lines if name in line and math.isfinite(line[name])]
        if values:
            found[name] = float(np.mean(values))
    return found


def _plain(line: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of numpy as those of Python; a number that is none as None, which JSON has."""
    made = {}
    for name, value in line.items():
        plain = value.item() if isinstance(value, np.generic) else value
        made[name] = None if isinstance(plain, float) and not math.isfinite(plain) else plain
    return made
