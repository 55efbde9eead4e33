"""Several completers as one: vote, weighted mean, stacking, a choice per column or per row.

Scores are out of fold and block-masked: on held-out rows all columns that are to be completed are
hidden at once, as they will be. Means and probabilities are combined, never single draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from vfsl.completion.base import Completed, Completer, Filling, Table, as_table
from vfsl.completion.registry import completer
from vfsl.completion.simple import restored as restored_category
from vfsl.data import Encoder, PartyTable, codes
from vfsl.data.checks import check_choice, check_count, check_rng
from vfsl.data.codes import CategoryCode, NumericCode
from vfsl.errors import ConfigError
from vfsl.values import Floats

HOW = ("vote", "weighted", "stack", "column", "row")

# ---- combining, on arrays ------------------------------------------------------------------------


def vote(codes_of: Floats, classes: int, weights: Floats | None = None) -> Floats:
    """Shares of the methods' votes (methods, rows) for each class, (rows, classes)."""
    methods, rows = codes_of.shape
    each = np.full(methods, 1.0) if weights is None else weights
    shares = np.zeros((rows, classes))
    for method in range(methods):
        shares[np.arange(rows), codes_of[method].astype(np.int64)] += each[method]
    return np.asarray(shares / each.sum())


def weighted(answers: Floats, errors: Floats) -> Floats:
    """The mean over methods (first axis), each weighing the inverse of its held-out error."""
    floor = max(float(errors.max()) * 1e-9, 1e-300)
    weights = 1.0 / np.maximum(errors, floor)
    return np.asarray(np.tensordot(weights / weights.sum(), answers, axes=1))


def stack_weights(answers: Floats, truth: Floats, ridge: float = 0.05) -> Floats:
    """Non-negative weights, adding up to 1, with the least squared error of the combination.

    Parameters
    ----------
    answers : array (methods, values)
        Held-out answers.
    truth : array (values,)
    ridge : float
        Pull towards equal weights, as a share of the mean squared answer: few rows say little.
    """
    from scipy.optimize import nnls

    methods, count = answers.shape
    scale = max(float(np.mean((answers - truth) ** 2)), 1e-300)
    strong = np.sqrt(1e4 * scale * count)  # makes the sum of weights 1
    pull = np.sqrt(ridge * scale * count)
    # Differences to the truth: with weights adding up to 1 their combination is the error.
    left = np.vstack([(answers - truth).T, np.full((1, methods), strong), np.eye(methods) * pull])
    right = np.concatenate([np.zeros(count), [strong], np.full(methods, pull / methods)])
    found, _ = nnls(left, right)
    return np.asarray(found / found.sum()) if found.sum() > 0 else np.full(methods, 1 / methods)


def choose_by_row(held: Floats, points: Floats, asked: Floats, neighbours: int = 50) -> Floats:
    """For each asked row the method with the least held-out error among its nearest rows.

    Parameters
    ----------
    held : array (methods, held-out rows)
        Squared errors.
    points, asked : array (rows, dimensions)
        Where held-out and asked rows lie.
    """
    from sklearn.neighbors import NearestNeighbors

    if not points.shape[1]:
        return np.full(len(asked), int(held.mean(axis=1).argmin()))
    count = min(neighbours, len(points))
    near = NearestNeighbors(n_neighbors=count).fit(points).kneighbors(asked, return_distance=False)
    return np.asarray(held[:, near].mean(axis=2).argmin(axis=0))


# ---- a completer of completers -------------------------------------------------------------------


@dataclass
class Ensemble:
    """Completers that answer together.

    Parameters
    ----------
    methods : sequence of str or Completer factories
        Names of `vfsl.completion.available`, or functions that make a completer.
    how : {"vote", "weighted", "stack", "column", "row"}
        Majority of categories (numbers: plain mean); mean weighted by the inverse held-out error;
        weights that minimise it; the best method of each column; the best method near each row.
    folds : int

    Attributes
    ----------
    errors_ : DataFrame
        Held-out squared error (numbers, in deviations; categories: Brier) by method and column.
    weights_ : DataFrame
        The share of each method by column; for "row" how often it was chosen.
    """

    methods: Sequence[str | Callable[[], Completer]] = ("mean", "hot-deck")
    how: str = "stack"
    folds: int = 5

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Keep the table: what is to be completed decides what is hidden in judging."""
        check_choice("Ensemble", "how", self.how, HOW)
        check_count("Ensemble", "folds", self.folds, 2)
        check_rng("Ensemble.fit", rng)
        if len(self.methods) < 1:
            raise ConfigError("The methods parameter of Ensemble must name at least one method.")
        self.table_ = as_table(table, "Ensemble")
        return self

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """Judge the methods on hidden cells of the known rows, then combine their answers."""
        if not hasattr(self, "table_"):
            raise ConfigError("Ensemble is not fitted yet: call fit first.")
        asked = as_table(table, "Ensemble")
        hidden = [name for name in asked.features if asked.column(name).isna().any()]
        names = [method_name(method) for method in self.methods]
        held = [self._held_out(method, hidden, rng) for method in self.methods]
        answers = [
            make_method(method).fit(self.table_, rng).complete(asked, rng)
            for method in self.methods
        ]
        encoder = Encoder(missing="keep").fit(self.table_)
        filling = Filling(asked)
        errors, weights = {}, {}
        for code in encoder.codes_:
            if code.name not in asked.kinds:
                continue
            column = _Column(code, self.table_, held, answers)
            points = self._points(code.name, hidden, asked) if self.how == "row" else None
            combined, share = column.combined(self.how, points)
            errors[code.name], weights[code.name] = column.errors, share
            column.fill(filling, combined)
        self.errors_ = pd.DataFrame(errors, index=names)
        self.weights_ = pd.DataFrame(weights, index=names)
        return filling.done()

    def _held_out(
        self, method: str | Callable[[], Completer], hidden: list[str], rng: np.random.Generator
    ) -> dict[str, Floats]:
        """Answers for the known rows by completers that did not see them, (rows, width)."""
        return held_out(lambda: make_method(method), self.table_, hidden, self.folds, rng)

    def _points(self, name: str, hidden: list[str], asked: PartyTable) -> tuple[Floats, Floats]:
        known = [column for column in asked.features if column not in hidden]
        if not known:
            return np.zeros((len(self.table_), 0)), np.zeros((len(asked), 0))
        drop = [column for column in self.table_.columns if column not in known]
        encoder = Encoder(missing="impute").fit(self.table_.without(drop))
        kept = asked.without([column for column in asked.columns if column not in known])
        return encoder.transform(self.table_).matrix, encoder.transform(kept).matrix


def held_out(
    make: Callable[[], Completer],
    table: PartyTable,
    hidden: Sequence[str],
    folds: int,
    rng: np.random.Generator,
    shown: PartyTable | None = None,
) -> dict[str, Floats]:
    """Block-masked out-of-fold answers by column: means (rows, 1) or probabilities (rows, classes).

    ``shown`` is the table as completers see it at held-out rows; by default the true one.
    """
    order = rng.permutation(len(table))
    source = table if shown is None else shown
    found: dict[str, Floats] = {}
    levels = {
        code.name: code.levels
        for code in Encoder(missing="keep").fit(table).codes_
        if isinstance(code, CategoryCode)
    }
    for rows in np.array_split(order, folds):
        rest = np.setdiff1d(order, rows)
        made = make().fit(table.take(rest), rng)
        asked = source.take(rows)
        frame = asked.frame.assign(**{name: blank(asked.column(name)) for name in hidden})
        done = made.complete(PartyTable(asked.party, asked.ids, frame, asked.kinds), rng)
        for name in hidden:
            answer = _answer(done, name, levels.get(name))
            found.setdefault(name, np.zeros((len(table), answer.shape[1])))[rows] = answer
    return found


@dataclass(eq=False)
class _Column:
    """One column: what the methods said on held-out and on asked rows."""

    code: Any
    table: PartyTable
    held: Sequence[Mapping[str, Floats]]
    answers: Sequence[Completed]

    def __post_init__(self) -> None:
        name = self.code.name
        self._levels = self.code.levels if isinstance(self.code, CategoryCode) else None
        self._known = self.table.column(name).notna().to_numpy()
        values = self.table.column(name)
        if self._levels is None:
            self._truth = codes.as_floats(values)[:, None]
        else:
            places = codes.positions(values, self._levels)
            self._truth = codes.one_hot(places, np.zeros(len(places), bool), len(self._levels))
        self._asked = np.stack([_answer(done, name, self._levels) for done in self.answers])
        whole = [part.get(name) for part in self.held]
        # A column that is not hidden is not judged; methods leave it as it is.
        self._held = (
            np.stack([one for one in whole if one is not None])
            if all(one is not None for one in whole)
            else None
        )
        self._scale = (self.code.deviation or 1.0) if isinstance(self.code, NumericCode) else 1.0

    @property
    def _by_row(self) -> Floats:
        """Squared errors on known rows, (methods, rows)."""
        if self._held is None:
            return np.zeros((len(self.answers), int(self._known.sum())))
        gaps = (self._held[:, self._known] - self._truth[self._known]) / self._scale
        return np.asarray((gaps**2).sum(axis=2))

    @property
    def errors(self) -> Floats:
        return np.asarray(self._by_row.mean(axis=1))

    def combined(self, how: str, points: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
        """The methods' answers as one, and the share of each method."""
        methods = len(self.answers)
        equal = np.full(methods, 1.0 / methods)
        if how == "vote" or self._held is None:
            if self._levels is not None and how == "vote":
                places = self._asked.argmax(axis=2).astype(np.float64)
                return vote(places, len(self._levels)), equal
            return np.asarray(self._asked.mean(axis=0)), equal
        if how == "weighted":
            inverse = 1.0 / np.maximum(self.errors, 1e-12)
            return weighted(self._asked, self.errors), inverse / inverse.sum()
        if how == "stack":
            held = self._held[:, self._known].reshape(methods, -1) / self._scale
            share = stack_weights(held, self._truth[self._known].ravel() / self._scale)
            return np.asarray(np.tensordot(share, self._asked, axes=1)), share
        if how == "column" or points is None:
            best = int(self.errors.argmin())
            return self._asked[best], np.eye(methods)[best]
        chosen = choose_by_row(self._by_row, points[0][self._known], points[1])
        picked = self._asked[chosen.astype(np.int64), np.arange(self._asked.shape[1])]
        return picked, np.bincount(chosen.astype(np.int64), minlength=methods) / max(len(chosen), 1)

    def fill(self, filling: Filling, combined: Floats) -> None:
        name, code = self.code.name, self.code
        if isinstance(code, CategoryCode):
            chosen: Any = restored_category(combined, code)
            filling.category(name, chosen, list(code.levels), combined)
            return
        mean = combined[:, 0]
        block = ((mean - code.mean) / code.deviation)[:, None]
        restored = codes.restore_numbers(block, code, clip=True)
        spread = np.full(len(mean), np.sqrt(self.errors.min()) * self._scale)
        filling.number(name, restored, mean, spread, code.deviation)


def _answer(done: Completed, name: str, levels: list[Any] | None) -> Floats:
    """A method's answer for a column: means, or probabilities in the order of these levels."""
    if levels is None:
        return done.means[name].to_numpy(dtype=np.float64)[:, None]
    chances = done.probabilities[name]
    found = chances.reindex(columns=pd.Index(levels, dtype=object), fill_value=0.0)
    return found.to_numpy(dtype=np.float64)


def blank(values: pd.Series[Any], rows: int | None = None) -> pd.Series[Any]:
    """The column without its values, in a type that can lack them."""
    count = len(values) if rows is None else rows
    if isinstance(values.dtype, pd.CategoricalDtype):
        return pd.Series(pd.Categorical([None] * count, dtype=values.dtype))
    if pd.api.types.is_bool_dtype(values.dtype):
        return pd.Series(pd.array([None] * count, dtype="boolean"))
    if pd.api.types.is_numeric_dtype(values.dtype):
        return pd.Series(np.full(count, np.nan))
    return pd.Series([None] * count, dtype=values.dtype)


def make_method(method: str | Callable[[], Completer]) -> Completer:
    """A completer by name or from a function that makes one."""
    if not isinstance(method, str):
        return method()
    made: Completer = completer(method)
    return made


def method_name(method: str | Callable[[], Completer]) -> str:
    """What a method is called in results; one without a name is the user's own."""
    if isinstance(method, str):
        return method
    name = getattr(method, "__name__", type(method).__name__)
    return "own method" if name == "<lambda>" else name
