"""Base estimators of VFPU-M: by name and kind of column, what each party brings, what scores mean.

A linear base predicts all columns in the same rounds, a category by an indicator for each class.
Trees predict one column at a time.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from vfsl.data import Encoder, Kind, PartyTable
from vfsl.errors import ConfigError
from vfsl.estimators.base import Estimator
from vfsl.estimators.descent import Program, Width
from vfsl.estimators.linear import LinearRegression
from vfsl.estimators.trees import GBDT, LGB, XGB, RandomForest
from vfsl.parts import ModelShare, Part, Roles
from vfsl.values import Array, Floats

BASES = ("linear", "rf", "gbdt", "xgb", "lgb")
# A linear model on as many columns as rows would show the given party the other's residuals.
_ROWS_PER_COLUMN = 10
# Row weights up to 2^10 times the average, instead of 2^6.
_MORE_BITS = 4
_FARTHEST = 8.0

# ---- estimators ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _HeavyRows(Program):
    """A training whose fixed-point widths give precision away for larger row weights.

    Rows outside D_L weigh nothing, so those in it may weigh far more than the average.
    """

    def width(self, rows: int, stage: int, roles: Roles) -> Width:
        usual = super().width(rows, stage, roles)
        if not self.is_weighted(stage):
            return usual
        return replace(
            usual,
            columns=usual.columns - _MORE_BITS // 2,
            scores=usual.scores - _MORE_BITS // 2,
            row_weight_range=usual.row_weight_range + _MORE_BITS,
        )


@dataclass
class RidgeBase(LinearRegression):
    """Ridge regression whose rows may weigh a lot; several columns train in the same rounds.

    A guess at a column needs no seven digits: two save most of the rounds.
    """

    l2: float = 0.01
    max_rounds: int = 30
    tolerance: float = 1e-3

    def _program(self, weighted: bool = False) -> Program:
        usual = super()._program(weighted)
        fields = {name: getattr(usual, name) for name in Program.__dataclass_fields__}
        # Rows that weigh nothing may be predicted far out.
        return replace(_HeavyRows(**fields), score_range=7)


# Small trees: the common rows are few. Users who want others give estimators of their own.
_TREES: Mapping[str, Any] = {
    "rf": lambda task: RandomForest(task=task, n_estimators=50, max_depth=8, columns=0.5),
    "gbdt": lambda task: GBDT(task=task, n_estimators=50, max_depth=3, learning_rate=0.1),
    "xgb": lambda task: XGB(task=task, n_estimators=50, max_depth=3, learning_rate=0.1),
    "lgb": lambda task: LGB(task=task, n_estimators=50, max_depth=4, learning_rate=0.1),
}


@dataclass(frozen=True)
class Pair:
    """The estimators of a base for numbers and for classes.

    A linear base has none for classes: it predicts an indicator of each, which the missing party
    turns into probabilities by itself.
    """

    numbers: Estimator
    classes: Estimator | None = None

    def of(self, *, classes: bool) -> Estimator:
        if not classes:
            return self.numbers
        if self.classes is None:
            raise ConfigError(f"The base {self.numbers.name!r} has no estimator for classes.")
        return self.classes

    @property
    def linear(self) -> bool:
        return isinstance(self.numbers, LinearRegression)

    @property
    def work(self) -> str:
        """What kind of work the scheme is chosen for."""
        return "linear" if self.linear else "trees"

    @property
    def penalty(self) -> float:
        """The l2 penalty of a linear base."""
        return float(self.numbers.l2) if isinstance(self.numbers, LinearRegression) else 0.0

    @property
    def rare_rows(self) -> float:
        """How many rows per column a value must have for a linear base to predict it by itself."""
        if not isinstance(self.numbers, LinearRegression):
            return 0.0
        return float(self.numbers.rare_rows_per_column)

    def name_of(self, *, classes: bool) -> str:
        """The name of what predicts such a column."""
        return self.numbers.name if self.linear else self.of(classes=classes).name

    def check(self) -> None:
        """Refuse what would only fail in the middle of a run, or show more than it should."""
        if self.linear:
            if self.classes is not None:
                raise ConfigError(
                    "A Pair with a linear model for numbers must have no estimator for classes: "
                    "it would show a party more scores of every row than its predictions."
                )
            return
        for one in (self.numbers, self.classes):
            if one is None or not one.knows_training_scores:
                raise ConfigError(
                    "A Pair must be of a linear model, or of two estimators that know the scores "
                    f"of their training rows, as trees do. Got {type(one).__name__} instead."
                )


def make_pair(base: str | Pair) -> Pair:
    """The base of that name, or the given pair."""
    if base == "linear":
        base = Pair(RidgeBase())
    if isinstance(base, Pair):
        base.check()
        if isinstance(base.numbers, LinearRegression):
            # Completion computes on shares by itself; where it does not, the base has rounds.
            return Pair(replace(base.numbers, protocol="rounds", weights="auto"))
        return base
    if base in _TREES:
        return Pair(_TREES[base]("regression"), _TREES[base]("classes"))
    near = difflib.get_close_matches(str(base), BASES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ConfigError(
        f"The base parameter must be one of {', '.join(BASES)} or a Pair of estimators. "
        f"Got {base!r} instead{hint}"
    )


# ---- what scores mean ---------------------------------------------------------------------------


def as_chances(base: Estimator, share: ModelShare, scores: Array, classes: int) -> Floats:
    """Scores of a classifier as probabilities of the class codes 0 to ``classes`` − 1."""
    found = np.asarray(scores, dtype=np.float64)
    known = [int(code) for code in share.state["classes"]]
    chances = base.to_probabilities(share, found[:, :1] if len(known) == 2 else found)
    chances = chances / np.maximum(chances.sum(axis=1, keepdims=True), 1e-12)
    # A part of the rows may lack a rare class.
    whole = np.zeros((len(chances), classes))
    whole[:, known] = chances
    return whole


def scores_of_model(scores: Array, share: ModelShare, model: int) -> Floats:
    """The scores of one of the models that were trained together, (rows, outputs)."""
    by_model = np.asarray(scores, dtype=np.float64).reshape(len(scores), share.state["models"], -1)
    return np.asarray(by_model[:, model])


# ---- what the parties' models learn from --------------------------------------------------------


def columns_for(common: int) -> int:
    """How many columns a party may bring to a linear model of so many common rows."""
    return max(common // _ROWS_PER_COLUMN, 1)


def make_plain_table(party: str, columns: Mapping[str, Array], rows: int) -> PartyTable:
    """A table of numbers without ids of its own."""
    frame = pd.DataFrame(columns, index=pd.RangeIndex(rows))
    ids = np.array([str(row) for row in range(rows)], dtype=object)
    return PartyTable(party, ids, frame, dict.fromkeys(columns, Kind.NUMERIC))


@dataclass(frozen=True, eq=False)
class Components:
    """A party's columns as a few numbers, by what it learned from all of its own rows.

    Few common rows allow few columns of a linear model. A party's own principal components keep
    most of what its columns say, and the rows that are not common help to find them.
    """

    encoder: Encoder
    centre: Array
    directions: Array  # (components, encoded columns)

    @classmethod
    def fit(cls, table: PartyTable, common: int) -> Components:
        """As many components as allowed, of a table whose first rows are the common ones."""
        most = columns_for(common)
        encoder = Encoder(missing=table.missing).fit(table)
        matrix = _clip(encoder.transform(table).matrix)
        centre = matrix.mean(axis=0)
        directions = np.eye(matrix.shape[1])
        if matrix.shape[1] > most:
            _, _, found = np.linalg.svd(matrix - centre, full_matrices=False)
            # The sign of a direction is arbitrary; its largest entry decides, so that runs repeat.
            largest = np.abs(found[:most]).argmax(axis=1)
            signs = np.sign(found[np.arange(most), largest])
            directions = found[:most] * signs[:, None]
        # In units of the common rows, which is what models learn from.
        deviation = ((matrix[:common] - centre) @ directions.T).std(axis=0)
        varied = deviation > 1e-6
        return cls(encoder, centre, directions[varied] / deviation[varied, None])

    def transform(self, table: PartyTable) -> PartyTable:
        """The components of a table's rows."""
        matrix = _clip(self.encoder.transform(table).matrix) - self.centre
        matrix = _clip(matrix @ self.directions.T)
        columns = {f"component {place}": matrix[:, place] for place in range(matrix.shape[1])}
        return make_plain_table(table.party, columns, len(matrix))


def _clip(matrix: Array) -> Array:
    # A row dozens of deviations out would be predicted as far out, past what a linear protocol
    # holds.
    return np.clip(matrix, -_FARTHEST, _FARTHEST)


def prepare_given(part: Part, pair: Pair) -> tuple[Part, Components | None]:
    """The given party's rows with its columns as the base takes them: for a linear one components.

    These the given party keeps, to predict new rows.
    """
    if not pair.linear:
        return part, None
    table, common = part.table.take(part.all_rows), len(part.rows)
    found = Components.fit(table, common)
    numbers = np.arange(len(table), dtype=np.int64)
    return Part(found.transform(table), numbers[:common], rest=numbers[common:]), found


def make_context(
    party: str,
    pair: Pair,
    rows: int,
    context: PartyTable | None = None,
    without: Sequence[str] = (),
) -> PartyTable:
    """The missing party's own columns for all rows: preliminary ones, or none.

    For trees a column that no tree can split on stands in for none: it differs in two rows, and
    splits need ten. Two, since one of them is held out of a fold of a cross-fit.
    """
    kept = [] if context is None else [name for name in context.features if name not in without]
    if context is not None and kept:
        return context.without([name for name in context.columns if name not in kept])
    columns = {} if pair.linear else {"no column": (np.arange(rows) < 2).astype(np.float64)}
    return make_plain_table(party, columns, rows)
