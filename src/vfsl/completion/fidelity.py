"""How much made-up rows are like real ones: shapes, pairs, usefulness for learning, copies.

Shapes and pairs follow the measures that people know from the sdmetrics quality report, so that
figures compare: 1 is the same distribution, 0 is disjoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from vfsl.completion.base import Table, as_table
from vfsl.data import Encoder, Kind, PartyTable
from vfsl.data.checks import counted
from vfsl.data.codes import as_floats
from vfsl.errors import DataError
from vfsl.values import Array

_BINS = 10


@dataclass(frozen=True, eq=False)
class Quality:
    """Fidelity of a table.

    Attributes
    ----------
    shapes : Series by column
        KS complement of numbers, TV complement of categories.
    pairs : Series by (column, column)
        Correlation similarity of two numbers, else contingency similarity; NaN for a correlation
        with a constant column.
    strengths : Series by (column, column)
        How strongly the real columns of a pair depend on each other: |Pearson correlation| of two
        numbers, else Cramér's V.
    """

    shapes: pd.Series[Any]
    pairs: pd.Series[Any]
    strengths: pd.Series[Any]
    numeric: pd.Series[Any]  # which pairs are of two numbers

    @property
    def shape(self) -> float:
        """The mean over columns."""
        return float(self.shapes.mean())

    @property
    def pair(self) -> float:
        """The mean over pairs; NaN if there are none."""
        return float(self.pairs.mean())

    @property
    def overall(self) -> float:
        """The mean of both."""
        return float(np.nanmean([self.shape, self.pair]))

    def strong_pair(self, correlation: float = 0.5, association: float = 0.3) -> float:
        """The mean over pairs whose real columns depend on each other more than that.

        The report of sdmetrics 0.32 averages these pairs only; earlier ones averaged all.
        """
        least = np.where(self.numeric, correlation, association)
        return float(self.pairs[self.strengths.to_numpy() > least].mean())


def quality(real: Table, made: Table) -> Quality:
    """Compare the distribution of made-up rows with real ones.

    Parameters
    ----------
    real, made : PartyTable or DataFrame
        The made-up table must have the columns of the real one.

    Returns
    -------
    Quality
    """
    first, second = _both(real, made, "quality")
    kinds = {name: first.kinds[name] for name in first.features}
    shapes = {
        name: (ks_complement if kind is Kind.NUMERIC else tv_complement)(
            first.column(name), second.column(name)
        )
        for name, kind in kinds.items()
    }
    pairs = {(one, two): _pair(first, second, one, two) for one, two in combinations(kinds, 2)}
    index = pd.MultiIndex.from_tuples(list(pairs), names=["first", "second"]) if pairs else None
    numeric = [kinds[one] is Kind.NUMERIC and kinds[two] is Kind.NUMERIC for one, two in pairs]
    strengths = [_strength(first, one, two) for one, two in pairs]
    return Quality(
        pd.Series(shapes, dtype=float),
        pd.Series(list(pairs.values()), index=index, dtype=float),
        pd.Series(strengths, index=index, dtype=float),
        pd.Series(numeric, index=index, dtype=bool),
    )


def ks_complement(real: pd.Series[Any], made: pd.Series[Any]) -> float:
    """1 − the largest gap between two empirical distribution functions; missing cells left out."""
    from scipy.stats import ks_2samp

    first, second = (as_floats(column.dropna()) for column in (real, made))
    if not first.size or not second.size:
        return float("nan")
    return float(1.0 - ks_2samp(first, second, method="asymp").statistic)


def tv_complement(real: pd.Series[Any], made: pd.Series[Any]) -> float:
    """1 − total variation between two frequency tables; missing cells left out."""
    first, second = (column.dropna().astype(object) for column in (real, made))
    if not len(first) or not len(second):
        return float("nan")
    return _overlap(first.value_counts(normalize=True), second.value_counts(normalize=True))


def correlation_similarity(real: pd.DataFrame, made: pd.DataFrame) -> float:
    """1 − half the gap between Pearson correlations of two columns; NaN if one is constant."""
    return 1.0 - abs(_correlation(real) - _correlation(made)) / 2


def contingency_similarity(real: pd.DataFrame, made: pd.DataFrame) -> float:
    """1 − total variation between two contingency tables; missing is a category."""
    pairs = [
        list(zip(*(_labels(frame[name]) for name in frame.columns), strict=True))
        for frame in (real, made)
    ]
    return _overlap(*(pd.Series(cells).value_counts(normalize=True) for cells in pairs))


@dataclass(frozen=True)
class Efficiency:
    """What a model learns from made-up rows, beside what it learns from real ones."""

    measure: str  # "macro F1" or "R²"
    real: float
    made: float

    @property
    def ratio(self) -> float:
        return self.made / self.real


def learning_efficiency(train: Table, made: Table, test: Table, target: str) -> Efficiency:
    """Train a boosted model on real and on made-up rows, and score both on real test rows.

    Parameters
    ----------
    train, made, test : PartyTable or DataFrame
        Test rows must not have been seen by the generator.
    target : str
        The column to predict: macro F1 for a category, R² for a number.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.metrics import f1_score, r2_score

    real, copy = _both(train, made, "learning_efficiency")
    real, held = _both(real, test, "learning_efficiency")
    if target not in real.columns:
        raise DataError(f"The target of learning_efficiency must be a column. Got {target!r}.")
    numeric = real.kinds[target] is Kind.NUMERIC
    encoder = Encoder(missing="keep").fit(real.without([target]))
    scores = []
    for table in (real, copy):
        known = table.take(np.flatnonzero(table.column(target).notna().to_numpy()))
        tested = held.take(np.flatnonzero(held.column(target).notna().to_numpy()))
        columns, goal = encoder.transform(known).matrix, known.column(target)
        asked, truth = encoder.transform(tested).matrix, tested.column(target)
        if numeric:
            model = HistGradientBoostingRegressor(random_state=0).fit(columns, as_floats(goal))
            scores.append(float(r2_score(as_floats(truth), model.predict(asked))))
        else:
            text = goal.astype(str)
            if text.nunique() < 2:
                # A generator that lost all categories but one teaches just that one.
                guess = np.full(len(asked), text.iloc[0] if len(text) else "")
            else:
                model = HistGradientBoostingClassifier(random_state=0).fit(columns, text)
                guess = model.predict(asked)
            scores.append(float(f1_score(truth.astype(str), guess, average="macro")))
    return Efficiency("R²" if numeric else "macro F1", scores[0], scores[1])


@dataclass(frozen=True)
class NearestRecords:
    """Whether made-up rows copy training rows.

    Attributes
    ----------
    copies : float
        Fraction of made-up rows that equal a training row.
    copies_of_held : float
        The same for real rows that the generator never saw: how often that happens by chance.
    nearer : float
        Fraction of made-up rows nearer to a training row than to a row never seen; about 0.5 if
        nothing was memorised.
    distance, distance_of_held : float
        5 % quantile of the distance to the nearest training row, of made-up and of unseen rows.
    """

    copies: float
    copies_of_held: float
    nearer: float
    distance: float
    distance_of_held: float


def nearest_records(train: Table, made: Table, held: Table) -> NearestRecords:
    """Compare the distance of made-up rows to training rows and to real rows never seen.

    Parameters
    ----------
    train, made, held : PartyTable or DataFrame
        Columns are standardised; a differing category counts √2. Equal numbers of training and
        held-out rows are used, since the nearest of more rows is nearer.
    """
    from sklearn.neighbors import NearestNeighbors

    seen, copy = _both(train, made, "nearest_records")
    seen, unseen = _both(seen, held, "nearest_records")
    encoder = Encoder(missing="impute").fit(seen)
    points = {
        name: encoder.transform(table).matrix
        for name, table in (("seen", seen), ("made", copy), ("held", unseen))
    }
    equal = min(len(seen), len(unseen))

    def nearest(base: Array, asked: Array) -> Array:
        found, _ = NearestNeighbors(n_neighbors=1).fit(base).kneighbors(asked)
        return np.asarray(found[:, 0])

    to_seen, held_to_seen = (nearest(points["seen"], points[name]) for name in ("made", "held"))
    fair = nearest(points["seen"][:equal], points["made"])
    other = nearest(points["held"][:equal], points["made"])
    return NearestRecords(
        float((to_seen < 1e-9).mean()),
        float((held_to_seen < 1e-9).mean()),
        float((fair < other).mean() + 0.5 * (fair == other).mean()),
        float(np.quantile(to_seen, 0.05)),
        float(np.quantile(held_to_seen, 0.05)),
    )


def _pair(first: PartyTable, second: PartyTable, one: str, two: str) -> float:
    numbers = [name for name in (one, two) if first.kinds[name] is Kind.NUMERIC]
    frames = [table.frame[[one, two]] for table in (first, second)]
    if len(numbers) == 2:
        return correlation_similarity(*frames)
    # Each table by ten bins of its own range: that is how the known report does it.
    cut = [frame.assign(**{name: _bins_of(frame[name]) for name in numbers}) for frame in frames]
    return contingency_similarity(*cut)


def _strength(table: PartyTable, one: str, two: str) -> float:
    frame = table.frame[[one, two]]
    numbers = [name for name in (one, two) if table.kinds[name] is Kind.NUMERIC]
    if len(numbers) == 2:
        return abs(_correlation(frame))
    cells = [
        pd.factorize(pd.Series(_bins_of(frame[n]) if n in numbers else _labels(frame[n])))[0]
        for n in (one, two)
    ]
    # factorize says −1 for missing, which is a category here.
    return cramers_v(*(np.where(codes < 0, codes.max() + 1, codes) for codes in cells))


def _correlation(frame: pd.DataFrame) -> float:
    """Pearson correlation of two columns over rows that have both; NaN if one is constant."""
    both = np.column_stack([as_floats(frame[name]) for name in frame.columns])
    both = both[~np.isnan(both).any(axis=1)]
    if len(both) < 2 or (both == both[:1]).all(axis=0).any():
        return float("nan")
    return float(np.corrcoef(both.T)[0, 1])


def cramers_v(one: Array, two: Array) -> float:
    """Cramér's V of two integer codings, without bias correction; NaN if one is constant."""
    counts = np.zeros((int(one.max()) + 1, int(two.max()) + 1))
    np.add.at(counts, (one, two), 1)
    if min(counts.shape) < 2:
        return float("nan")
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    squares = ((counts - expected) ** 2 / expected).sum()
    return float(np.sqrt(squares / (counts.sum() * (min(counts.shape) - 1))))


def _bins_of(column: pd.Series[Any]) -> Array:
    numbers = as_floats(column)
    return np.digitize(numbers, np.histogram_bin_edges(numbers[~np.isnan(numbers)], bins=_BINS))


def _labels(column: pd.Series[Any]) -> list[Any]:
    cells = column.astype(object)
    return cells.where(cells.notna(), None).tolist()


def _overlap(first: pd.Series[Any], second: pd.Series[Any]) -> float:
    one, two = first.to_dict(), second.to_dict()
    gaps = [abs(one.get(key, 0.0) - two.get(key, 0.0)) for key in {*one, *two}]
    return float(1.0 - 0.5 * np.sum(sorted(gaps)))


def _both(real: Table, made: Table, where: str) -> tuple[PartyTable, PartyTable]:
    """Both tables with the first one's columns and kinds."""
    first = as_table(real, where)
    second = as_table(made, where)
    absent = [name for name in first.columns if name not in second.columns]
    if absent:
        raise DataError(
            f"{where} compares tables of the same columns; the second lacks "
            f"{counted(len(absent), 'column')}: {', '.join(map(repr, absent[:12]))}."
        )
    frame = second.frame[first.columns]
    return first, PartyTable(second.party, second.ids, frame, dict(first.kinds))
