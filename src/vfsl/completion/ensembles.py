"""Several completers as one: vote, weighted mean, stacking, a choice per column or per row.

Scores are out of fold and block-masked: on held-out rows all columns that are to be completed are
hidden at once, as they will be. Means and probabilities are combined, never single draws.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from vfsl.completion.base import Completed, Completer, Filling, Table, as_table
from vfsl.completion.registry import completer
from vfsl.data import Encoder, PartyTable, codes
from vfsl.data.checks import check_rng
from vfsl.data.codes import CategoryCode, NumericCode
from vfsl.errors import ConfigError
from vfsl.params import check_params, documented, param, params_of, value_now
from vfsl.values import Array

# The name of a local method, or what makes one.
Method = str | Callable[[], Completer]

# ---- combining, on arrays ------------------------------------------------------------------------


def vote(places: Array, classes: int, weights: Array | None = None) -> Array:
    """Fractions of the methods' votes (methods, rows) for each class, (rows, classes)."""
    each = np.ones(len(places)) if weights is None else weights
    hot = np.eye(classes)[places]
    return np.asarray(np.tensordot(each, hot, axes=1) / each.sum())


def weigh_by_error(answers: Array, errors: Array) -> Array:
    """The mean over methods (first axis), each weighing the inverse of its held-out error."""
    floor = max(float(errors.max()) * 1e-9, 1e-300)
    weights = 1.0 / np.maximum(errors, floor)
    return np.asarray(np.tensordot(weights / weights.sum(), answers, axes=1))


def stack_weights(answers: Array, truth: Array, ridge: float = 0.05) -> Array:
    """Non-negative weights, adding up to 1, with the least squared error of the combination.

    Parameters
    ----------
    answers : array (methods, values)
        Held-out answers.
    truth : array (values,)
    ridge : float
        Pull towards equal weights, as a fraction of the mean squared error: few rows say little.
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


def choose_by_row(held: Array, points: Array, asked: Array, neighbours: int = 50) -> Array:
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


@documented
@dataclass
class Ensemble:
    """Completers that answer together.

    Attributes
    ----------
    errors_ : DataFrame
        Held-out squared error (numbers, in deviations; categories: Brier) by method and column.
    weights_ : DataFrame
        The weight of each method by column; for "row" how often it was chosen.
    """

    methods: Sequence[Method] = param(
        ("mean", "hot-deck"),
        "Names of `vfsl.completion.available`, or functions that make a completer.",
        option=False,
    )
    how: Literal["vote", "weighted", "stacking", "column", "row"] = param(
        "stacking",
        "Majority of categories (numbers: plain mean); mean weighted by the inverse held-out "
        "error; weights that minimise it; the best method of each column; the best method near "
        "each row.",
        formerly={"stack": "stacking"},
    )
    folds: int = param(5, "Folds of the known rows that the methods are judged on.", ge=2)

    def fit(self, table: Table, rng: np.random.Generator) -> Self:
        """Keep the table: what is to be completed decides what is hidden in judging."""
        self.check()
        check_rng("Ensemble.fit", rng)
        self.table_ = as_table(table, "Ensemble")
        return self

    def check(self) -> None:
        """Refuse parameters that cannot be used."""
        check_params(self)
        if len(self.methods) < 1:
            raise ConfigError("The methods parameter of Ensemble must name at least one method.")

    def complete(self, table: Table, rng: np.random.Generator) -> Completed:
        """Judge the methods on hidden cells of the known rows, then combine their answers."""
        if not hasattr(self, "table_"):
            raise ConfigError("Ensemble is not fitted yet: call fit first.")
        asked, known = as_table(table, "Ensemble"), self.table_
        hidden = [name for name in asked.features if asked.column(name).isna().any()]
        makers = self.makers(hidden)
        held = [held_out(make, known, hidden, self.folds, rng) for make in makers]
        answers = [make().fit(known, rng).complete(asked, rng) for make in makers]
        return self.combine(known, known, asked, held, answers)

    def makers(self, hidden: Sequence[str]) -> list[Callable[[], Completer]]:
        """What makes each method anew, told which columns will be missing."""
        return [partial(make_method, method, hidden) for method in self.methods]

    def combine(
        self,
        known: PartyTable,
        shown: PartyTable,
        asked: PartyTable,
        held: Sequence[Mapping[str, Array]],
        answers: Sequence[Completed],
    ) -> Completed:
        """One answer from those of the methods.

        Parameters
        ----------
        known, shown : PartyTable
            The known rows in truth, and as the methods saw them where they were held out.
        asked : PartyTable
        held : sequence of mapping by column
            The methods' held-out answers for the known rows.
        answers : sequence of Completed
            Their answers for the asked rows.
        """
        points = self._points(known, shown, asked)
        filling = Filling(asked)
        errors, weights = {}, {}
        for code in _codes_of(known, asked.kinds):
            column = _Column.of(code, known, held, [_levelled(one, code) for one in answers])
            combined, weights[code.name] = column.combine(self._how, points)
            errors[code.name] = column.errors
            column.fill(filling, combined)
        names = [method_name(method) for method in self.methods]
        self.errors_ = pd.DataFrame(errors, index=names)
        self.weights_ = pd.DataFrame(weights, index=names)
        return filling.finish()

    def combine_held_out(
        self,
        known: PartyTable,
        shown: PartyTable,
        held: Sequence[Mapping[str, Array]],
        folds: int,
    ) -> dict[str, Array]:
        """The combination's own held-out answers: in each part of the rows, by weights of the
        other parts.
        """
        hidden = list(held[0])
        blanked = shown.frame.assign(**{name: blank(shown.column(name)) for name in hidden})
        asked = PartyTable(shown.party, shown.ids, blanked, shown.kinds)
        points = self._points(known, shown, asked)
        found: dict[str, Array] = {}
        for code in _codes_of(known, hidden):
            answers = np.stack([one[code.name] for one in held])
            found[code.name] = np.zeros(answers.shape[1:])
            for part in range(folds):
                here = np.arange(len(known)) % folds == part
                column = _Column.of(code, known, held, answers[:, here], ~here)
                near = None if points is None else (points[0], points[1][here])
                found[code.name][here] = column.combine(self._how, near)[0]
        return found

    @property
    def _how(self) -> str:
        return str(value_now(params_of(Ensemble)["how"], self.how))

    def _points(
        self, known: PartyTable, shown: PartyTable, asked: PartyTable
    ) -> tuple[Array, Array] | None:
        """Where the known and the asked rows lie, by the columns that are not completed."""
        if self._how != "row":
            return None
        names = [name for name in asked.features if asked.column(name).notna().all()]
        if not names:
            return np.zeros((len(known), 0)), np.zeros((len(asked), 0))
        drop = [column for column in known.columns if column not in names]
        encoder = Encoder(missing="impute").fit(known.without(drop))
        kept = asked.without([column for column in asked.columns if column not in names])
        return encoder.transform(shown).matrix, encoder.transform(kept).matrix


def _codes_of(table: PartyTable, names: Collection[str]) -> list[NumericCode | CategoryCode]:
    """How the columns of these names are written as numbers."""
    found = Encoder(missing="keep").fit(table).codes_
    return [
        code
        for code in found
        if code.name in names and isinstance(code, NumericCode | CategoryCode)
    ]


def _levelled(done: Completed, code: NumericCode | CategoryCode) -> Array:
    return _answer(done, code.name, code.levels if isinstance(code, CategoryCode) else None)


def held_out(
    make: Callable[[], Completer],
    table: PartyTable,
    hidden: Sequence[str],
    folds: int,
    rng: np.random.Generator,
    shown: PartyTable | None = None,
) -> dict[str, Array]:
    """Block-masked out-of-fold answers by column: means (rows, 1) or probabilities (rows, classes).

    ``shown`` is the table as completers see it at held-out rows; by default the true one.
    """
    order = rng.permutation(len(table))
    source = table if shown is None else shown
    found: dict[str, Array] = {}
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


@dataclass(frozen=True, eq=False)
class _Column:
    """One column: what the methods said on held-out and on asked rows.

    ``truth`` is (judged rows, values), ``held`` (methods, judged rows, values), ``asked`` (methods,
    asked rows, values). A column that is not hidden is not judged; methods leave it as it is.
    """

    code: NumericCode | CategoryCode
    truth: Array
    held: Array | None
    asked: Array
    used: Array

    @classmethod
    def of(
        cls,
        code: NumericCode | CategoryCode,
        table: PartyTable,
        held: Sequence[Mapping[str, Array]],
        answers: Sequence[Array] | Array,
        use: Array | None = None,
    ) -> _Column:
        """From held-out answers to the rows of a table, of which only ``use`` judge."""
        values = table.column(code.name)
        used = values.notna().to_numpy() & (True if use is None else use)
        if isinstance(code, NumericCode):
            truth = codes.as_floats(values)[:, None]
        else:
            places = codes.positions(values, code.levels)
            truth = codes.one_hot(places, np.zeros(len(places), bool), len(code.levels))
        judged = None
        if all(code.name in one for one in held):
            judged = np.stack([one[code.name] for one in held])[:, used]
        return cls(code, truth[used], judged, np.asarray(answers), used)

    @property
    def scale(self) -> float:
        return (self.code.deviation or 1.0) if isinstance(self.code, NumericCode) else 1.0

    @property
    def by_row(self) -> Array:
        """Squared errors, (methods, judged rows)."""
        if self.held is None:
            return np.zeros((len(self.asked), len(self.truth)))
        return np.asarray((((self.held - self.truth) / self.scale) ** 2).sum(axis=2))

    @property
    def errors(self) -> Array:
        """Of judged rows, by method."""
        return np.asarray(self.by_row.mean(axis=1))

    def combine(self, how: str, points: tuple[Array, Array] | None) -> tuple[Array, Array]:
        """The methods' answers as one, and the weight of each method."""
        methods = len(self.asked)
        equal = np.full(methods, 1.0 / methods)
        if how == "vote" and isinstance(self.code, CategoryCode):
            return vote(self.asked.argmax(axis=2), len(self.code.levels)), equal
        if how == "vote" or self.held is None:
            return np.asarray(self.asked.mean(axis=0)), equal
        errors = self.errors
        if how == "weighted":
            inverse = 1.0 / np.maximum(errors, 1e-12)
            return weigh_by_error(self.asked, errors), inverse / inverse.sum()
        if how == "stacking":
            held = self.held.reshape(methods, -1) / self.scale
            weights = stack_weights(held, self.truth.ravel() / self.scale)
            return np.asarray(np.tensordot(weights, self.asked, axes=1)), weights
        if points is None:
            best = int(errors.argmin())
            return self.asked[best], np.eye(methods)[best]
        chosen = choose_by_row(self.by_row, points[0][self.used], points[1])
        picked = self.asked[chosen, np.arange(self.asked.shape[1])]
        return picked, np.bincount(chosen, minlength=methods) / max(len(chosen), 1)

    def fill(self, filling: Filling, combined: Array) -> None:
        if isinstance(self.code, CategoryCode):
            filling.fill_category(self.code, combined)
        else:
            spread = np.sqrt(self.errors.min()) * self.scale
            filling.fill_number(self.code, combined[:, 0], spread)


def _answer(done: Completed, name: str, levels: list[Any] | None) -> Array:
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


def make_method(method: Method, hidden: Sequence[str] = ()) -> Completer:
    """A completer by name or from a function that makes one.

    ``hidden`` are columns that will be missing together: a completer that has `expect_missing` is
    told so before it learns.
    """
    made: Completer = completer(method) if isinstance(method, str) else method()
    expect = getattr(made, "expect_missing", None)
    if hidden and expect is not None:
        expect(hidden)
    return made


def method_name(method: Method) -> str:
    """What a method is called in results; one without a name is the user's own."""
    if isinstance(method, str):
        return method
    label = getattr(method, "label", None)
    if isinstance(label, str):
        return label
    name = getattr(method, "__name__", type(method).__name__)
    return "own method" if name == "<lambda>" else name
