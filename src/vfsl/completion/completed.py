"""What FedPSG gives back: the completed table, where each cell comes from, and what it is worth.

Also what the record says of it: notes in sentences, and a picture of aggregates, never of a row.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from vfsl.completion import fidelity
from vfsl.completion.calibration import Shift
from vfsl.completion.columns import CARE, MEAN, USE, Filled, Target
from vfsl.completion.fidelity import ks_complement, tv_complement
from vfsl.data import Kind, PartyTable
from vfsl.data.aggregates import LEAST, histogram, level_counts
from vfsl.data.checks import counted
from vfsl.showing import show_table
from vfsl.values import Array

HIGH, LOW, CONSTANT = "high", "low", "constant"
ASSOCIATION, SIGNIFICANCE = "association", "significance"
RARE = "rare values"  # why a column is routed: its values are too rare for a linear base
_WIDTH_OFF = 0.15  # of a deviation: beyond it draws do not keep the distribution
# A page with more charts than that is not read; the table has all columns.
_MOST_CHARTS = 60
# Held-out cells of a completed column, and what mean, mode and hot-deck would have scored.
_MEASURES = ("skill", "rmse / deviation", "accuracy", "shape")


@dataclass(frozen=True)
class Route:
    """Where a column goes, and by which number.

    Attributes
    ----------
    column : str
    route : {"high", "low", "constant"}
        VFPU-M, a local method, or a column with one value only.
    by : {"association", "significance", "skill", "constant", "known cells", "rare values"}
    measure : float
        μ_q, a p-value, or the cross-validated skill.
    threshold : float
        What the measure had to exceed; a p-value had to be no larger.
    """

    column: str
    route: str
    by: str
    measure: float
    threshold: float


@dataclass(eq=False)
class Completion:
    """The missing party's columns for the given party's remaining rows.

    Attributes
    ----------
    columns : dict of str to Filled
        Each column in full.
    routes : list of Route
        Which column went where, and by which number.
    ids : array
        The given party's ids of the remaining rows, in a simulation; row numbers at the missing
        party, who is never told the ids.
    common : PartyTable
        The missing party's common rows.
    miss : float
        The fraction of truth that intervals and sets may leave out.
    folds : int
    shift : Shift or None
        How the remaining rows differ from the common ones.
    notes : tuple of str
        What to beware of.
    """

    columns: dict[str, Filled]
    routes: list[Route]
    ids: Array
    common: PartyTable
    miss: float
    folds: int
    shift: Shift | None = None
    notes: tuple[str, ...] = ()
    adviser: Any = field(default=None, repr=False)

    def __repr__(self) -> str:
        counts = Counter(column.verdict for column in self.columns.values())
        verdicts = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
        return f"<Completion of {len(self.columns)} columns for {len(self.ids):,} rows; {verdicts}>"

    def _repr_html_(self) -> str:
        """A line per column, in a notebook."""
        lines = [(name, one.route, one.verdict) for name, one in self.columns.items()]
        title = f"Completion of {counted(len(self.ids), 'row')}"
        return show_table(title, ("column", "route", "what to do"), lines)

    @cached_property
    def table(self) -> pd.DataFrame:
        """The completed columns in the user's units, types, bounds and category names, by id."""
        made = {
            name: column.target.restore(column.cells, column.present)
            for name, column in self.columns.items()
        }
        frame = pd.DataFrame(made, index=pd.RangeIndex(len(self.ids)))
        return frame.set_axis(self._index)

    @cached_property
    def provenance(self) -> pd.DataFrame:
        """For each cell: route, model, round (0: no pseudo-label) and confidence, by id."""
        blocks = {
            name: pd.DataFrame(
                {
                    "route": column.route,
                    "model": column.model,
                    "round": column.round,
                    "confidence": column.confidence,
                },
                index=self._index,
            )
            for name, column in self.columns.items()
        }
        return pd.concat(blocks, axis=1)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """Bounds of each numeric cell that hold a fraction 1 − ``miss`` of the truth, by id."""
        blocks = {}
        for name, column in self.columns.items():
            if not column.target.classes:
                low, high = column.interval(self.miss, self.shift)
                blocks[name] = pd.DataFrame({"low": low, "high": high}, index=self._index)
        return pd.concat(blocks, axis=1) if blocks else pd.DataFrame(index=self._index)

    @cached_property
    def probabilities(self) -> dict[str, pd.DataFrame]:
        """For each categorical column the probabilities of its categories, by id."""
        return {
            name: self._by_level(column, column.chances)
            for name, column in self.columns.items()
            if column.chances is not None
        }

    @cached_property
    def sets(self) -> dict[str, pd.DataFrame]:
        """For each categorical column which categories are in the 1 − ``miss`` set, by id."""
        return {
            name: self._by_level(column, column.sets(self.miss, self.shift))
            for name, column in self.columns.items()
            if column.chances is not None
        }

    def _by_level(self, column: Filled, cells: Array) -> pd.DataFrame:
        return pd.DataFrame(cells, self._index, pd.Index(column.target.levels, dtype=object))

    @cached_property
    def quality(self) -> pd.DataFrame:
        """For each column what held-out common rows say of it, with a verdict.

        ``skill`` is the fraction of the mean's (mode's) squared error that the model removes;
        ``shape`` and ``pairs`` compare the distribution of held-out predictions with the truth: a
        completed column may be right on average and yet much narrower than the real one.
        """
        lines = {
            name: column.quality(self.miss, self.folds) for name, column in self.columns.items()
        }
        frame = pd.DataFrame.from_dict(lines, orient="index")
        shapes, pairs = self._fidelity()
        verdict = frame.pop("verdict")
        return frame.assign(shape=shapes, pairs=pairs, verdict=verdict)

    @property
    def row_confidence(self) -> pd.Series[float]:
        """How sure a row is over all columns: the mean of their confidences, from 0 to 1, by id."""
        each = [np.clip(column.confidence, 0.0, 1.0) for column in self.columns.values()]
        means: pd.Series[float] = pd.Series(np.mean(each, axis=0), self._index, dtype=float)
        return means.rename("confidence")

    def recommend(self, **options: Any) -> Any:
        """Which way to train with these columns is best, and by how much.

        Parameters
        ----------
        **options
            Of :func:`vfsl.completion.recommend.recommend`: ``label``, ``base``, ``folds``.

        Returns
        -------
        Advice
        """
        return self.adviser(self, **options)

    @property
    def _index(self) -> pd.Index[Any]:
        return pd.Index(self.ids, name="id", dtype=object)

    def _fidelity(self) -> tuple[pd.Series[Any], pd.Series[Any]]:
        """Shapes, and the mean over the pairs of each column, of held-out predictions."""
        names = list(self.columns)
        real = self.common.without([name for name in self.common.columns if name not in names])
        held = pd.DataFrame(
            {name: one.target.restore(one.fold.predicted) for name, one in self.columns.items()}
        )
        made = PartyTable(real.party, real.ids, held[real.columns], dict(real.kinds))
        found = fidelity.quality(real, made)
        means = {name: _mean_of_pairs(found.pairs, name) for name in names}
        return found.shapes, pd.Series(means)


def _mean_of_pairs(pairs: pd.Series[Any], name: str) -> float:
    if not len(pairs):
        return np.nan
    first, second = (pairs.index.get_level_values(level) for level in (0, 1))
    values = pairs[(first == name) | (second == name)].to_numpy(dtype=float)
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else np.nan


def whole_table(common: PartyTable, columns: Mapping[str, Filled]) -> PartyTable:
    """The missing party's columns for common rows and, completed, for the remaining ones."""
    real = common.without([name for name in common.columns if name not in columns])
    made = {name: one.target.restore(one.cells, one.present) for name, one in columns.items()}
    frame = pd.DataFrame(
        {
            name: pd.concat([real.frame[name], made[name]], ignore_index=True)
            for name in real.columns
        }
    )
    ids = np.array([str(row) for row in range(len(frame))], dtype=object)
    return PartyTable(real.party, ids, frame, dict(real.kinds))


# ---- notes --------------------------------------------------------------------------------------


def note_targets(missing: str, constant: Sequence[Target], scarce: Sequence[Target]) -> list[str]:
    """Columns that could not be learned."""
    found = [
        f"Column {target.name!r} of party {missing} has one value in all common rows; it is "
        "completed with that value, and nothing is known of others."
        for target in constant
    ]
    return found + [
        f"Column {target.name!r} of party {missing} is known in only "
        f"{counted(int(target.known.sum()), 'common row')}; it is completed locally."
        for target in scarce
    ]


def note_rare(missing: str, columns: Sequence[str], *, hidden: bool = False) -> list[str]:
    """Columns that a linear base must not learn, or, where nothing is opened, could not."""
    if not columns:
        return []
    names = ", ".join(repr(name) for name in columns)
    if hidden:
        return [
            f"In {counted(len(columns), 'column')} of party {missing} ({names}) too few common "
            "rows differ from the most frequent value to learn from; they are completed locally."
        ]
    return [
        f"In {counted(len(columns), 'column')} of party {missing} ({names}) too few common rows "
        "differ from the most frequent value: the gradients of a linear model could tell the other "
        "party which rows these are. They are completed locally; trees can predict them."
    ]


def note_none_high(given: str, missing: str, routes: Sequence[Route], aggregate: str) -> list[str]:
    """That a threshold or a test has left nothing to predict."""
    judged = [one for one in routes if one.by in (ASSOCIATION, SIGNIFICANCE)]
    if not judged or any(one.route == HIGH for one in routes):
        return []
    if judged[0].by == SIGNIFICANCE:
        return [
            f"No column of party {missing} is significantly associated with the columns of "
            f"{given}, so none was predicted from them."
        ]
    best = max(judged, key=lambda one: one.measure)
    text = (
        f"No column of party {missing} has an association with the columns of {given} above τ = "
        f"{judged[0].threshold:g}, so none was predicted from them; the largest is "
        f"{best.measure:g}, of {best.column!r}."
    )
    if aggregate == "mean":
        text += " The mean over many columns is rarely large: aggregate='max' takes the strongest."
    return [text]


def has_other_width(column: Filled) -> bool:
    """Whether a method's draws of a number are clearly narrower or wider than the known cells."""
    if column.drawn is None or column.target.classes or not column.target.deviation:
        return False
    return abs(_width(column) - 1) > _WIDTH_OFF


def note_widths(columns: Mapping[str, Filled]) -> list[str]:
    """Columns whose draws by a method are not used."""
    return [
        f"The draws of column {name!r} by {one.model} deviate {_width(one):.2f} times as much as "
        f"its known cells: the numbers of {one.model} are its means with held-out errors instead."
        for name, one in columns.items()
        if has_other_width(one)
    ]


def _width(column: Filled) -> float:
    return float(np.std(column.cells)) / column.target.deviation


def note_unseen(table: PartyTable, common: PartyTable) -> list[str]:
    """Categories that cannot be predicted."""
    found = []
    for name in common.features:
        if table.kinds[name] is not Kind.CATEGORICAL:
            continue
        unseen = set(table.column(name).dropna()) - set(common.column(name).dropna())
        if unseen:
            found.append(
                f"Column {name!r} of party {table.party} has "
                f"{counted(len(unseen), 'category', 'categories')} that no common row has; no "
                "completed cell can have them."
            )
    return found


def note_views(given: str, missing: str, views: int, columns: int, rounds: int) -> list[str]:
    """What predictions of the same rows show together of the columns that they come from.

    ``views``: how many exact predictions per remaining row the missing party has seen, over all
    columns, classes and rounds.
    """
    if not views:
        return []
    seen = f"{missing} has seen {counted(views, 'exact prediction')} per remaining row of {given}"
    if rounds > 1:
        seen += f", over {rounds} rounds"
    rank = min(views, columns)
    if views < columns:
        return [f"{seen}: they can show {rank} of {counted(columns, 'dimension')} of its columns."]
    return [
        f"{seen}, which has {counted(columns, 'column')}: with a linear base they show the columns "
        f"of {given} up to a linear map (rank {rank} of {columns}). Route fewer columns, use one "
        "round, or use trees."
    ]


# ---- the picture --------------------------------------------------------------------------------


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


def shape(target: Target, predicted: Array) -> float:
    """How alike the distributions of the known cells and of these values are; 1 is the same."""
    real, made = (
        target.restore(np.asarray(values, dtype=float))[target.known]
        for values in (target.filled, predicted)
    )
    return (tv_complement if target.classes else ks_complement)(real, made)


def baselines(columns: Mapping[str, Filled]) -> list[dict[str, Any]]:
    """Means over the columns of this run, of mean and mode, and of hot-deck (a random known cell).

    Hot-deck is its expectation: the squared error doubles, the accuracy is Σp², the shape is kept.
    """
    lines: dict[str, list[dict[str, float]]] = {"this run": [], "mean and mode": [], "hot-deck": []}
    for column in columns.values():
        target = column.target
        if target.constant:
            continue
        ours = column.quality(0.1, 2)
        lines["this run"].append(
            {name: ours[name] for name in _MEASURES if name in ours}
            | {"shape": shape(target, column.fold.predicted)}
        )
        one = {"skill": 0.0, "shape": shape(target, np.full(len(target.filled), target.filler))}
        two = {"skill": -1.0, "shape": 1.0}
        if target.classes:
            fractions = target.frequencies()
            one["accuracy"], two["accuracy"] = float(fractions.max()), float((fractions**2).sum())
        else:
            one["rmse / deviation"], two["rmse / deviation"] = 1.0, math.sqrt(2.0)
        lines["mean and mode"].append(one)
        lines["hot-deck"].append(two)
    return [{"method": name, **_means(found)} for name, found in lines.items() if found]


def distribution(column: Filled) -> dict[str, Any]:
    """Known cells of common rows beside completed cells of the remaining ones."""
    target = column.target
    real = target.restore(target.filled)[target.known]
    made = target.restore(column.cells, column.present)[column.present]
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
