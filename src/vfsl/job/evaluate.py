"""Judge trained models on held-out rows, beside what the label holder can do alone.

Every party scores the held-out rows of its own table by its share of each model; the label holder
gets the scores and judges them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression, Ridge

from vfsl.channel import run_together
from vfsl.data import Encoder, PartyTable
from vfsl.errors import ConfigError, DataError
from vfsl.estimators import XGB
from vfsl.parts import Part, Roles, Rows
from vfsl.values import Array

Floats = npt.NDArray[np.float64]


def judge(
    label: tuple[str, str],
    test: Part,
    train: Part,
    answers: Mapping[str, tuple[Array, Array | None]],
    bootstrap: int,
    level: float,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Metrics of models of one label and of baselines, as plain values.

    Parameters
    ----------
    label : (party, column)
    test, train : Part
        The label holder's rows: held out; and all others, also those of no other party.
    answers : mapping of name to (answer, classes)
        For the test rows: numbers and None, or probabilities and the classes they are of.
    bootstrap : int
        How many samples.
    level : float
        Of the intervals.
    """
    holder, column = label
    numbers = {classes is None for _, classes in answers.values()}
    if len(numbers) > 1:
        raise ConfigError(
            f"Models of label {column!r} predict numbers and classes; evaluate them in steps of "
            "their own."
        )
    truth = np.asarray(test.target)
    known = ~pd.isna(truth)
    if known.sum() < 2:
        raise DataError(
            f"Label {column!r} of party {holder} is known in {int(known.sum())} of {len(truth)} "
            "rows held out for testing; at least 2 are needed."
        )
    taught = np.concatenate([np.asarray(train.target), np.asarray(train.rest_target)])
    own, taught = train.all_rows[~pd.isna(taught)], taught[~pd.isna(taught)]
    classes = None if numbers == {True} else sorted({*taught.tolist(), *truth[known].tolist()})
    judged = {
        name: _in_common_order(answer, given, classes)[known]
        for name, (answer, given) in answers.items()
    }
    alone = predict_alone(
        train.table, own, _to_codes(taught, classes), test.rows[known], classes, rng
    )
    boot = Bootstrap(_to_codes(truth[known], classes), bootstrap, level, rng)
    measures = measures_for(None if classes is None else len(classes))
    lines, gains = compare_models(boot, measures, judged, alone)
    return {
        "label": [holder, column],
        "test rows": int(known.sum()),
        "classes": None if classes is None else [_to_plain(name) for name in classes],
        "metrics": lines,
        "gains": gains,
        "verdict": give_verdict(gains, holder, level),
    }


def compare_models(
    boot: Bootstrap,
    measures: Sequence[str],
    answers: Mapping[str, Floats],
    alone: Mapping[str, Floats],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A line for each model and measure; and each model's gain over the best baseline.

    Which baseline is best is seen on the same rows, in its favour.
    """
    lines = [
        {"model": name, "measure": measure, **asdict(boot.interval(measure, answer))}
        for name, answer in {**answers, **alone}.items()
        for measure in measures
    ]
    gains = []
    for measure in measures:
        values = {
            line["model"]: BETTER[measure] * line["value"]
            for line in lines
            if line["measure"] == measure and line["model"] in alone
        }
        best = max(values, key=lambda name: values[name])
        gains += [
            {
                "model": name,
                "measure": measure,
                "over": best,
                **asdict(boot.gain(measure, answer, alone[best])),
            }
            for name, answer in answers.items()
        ]
    return lines, gains


def give_verdict(gains: Sequence[Mapping[str, Any]], holder: str, level: float) -> str:
    """The best model beside the best that the holder can do alone, in a sentence."""
    first = gains[0]["measure"]
    best = max((line for line in gains if line["measure"] == first), key=lambda line: line["value"])
    bounds = f"{level:.0%} of bootstrap samples: {best['low']:+.3f} to {best['high']:+.3f}"
    said = f"{best['model']}: {first} better by {best['value']:.3f} than {best['over']} ({bounds})"
    if best["value"] <= 0:
        said = (
            f"No model is better than {best['over']}: {first} of {best['model']} worse by "
            f"{-best['value']:.3f} ({bounds})"
        )
        return f"{said}; use what {holder} has alone."
    if best["low"] <= 0:
        return f"{said}; the held-out rows cannot tell whether that is chance."
    return f"{said}."


def _in_common_order(answer: Array, given: Array | None, classes: Sequence[Any] | None) -> Floats:
    if classes is None or given is None:
        return np.asarray(answer, dtype=np.float64)
    places = [list(classes).index(name) for name in given.tolist()]
    return order_chances(answer, places, len(classes))


def _to_codes(labels: Array, classes: Sequence[Any] | None) -> Array:
    if classes is None:
        return labels.astype(np.float64)
    codes = {name: code for code, name in enumerate(classes)}
    return np.array([codes[name] for name in labels.tolist()], dtype=np.int64)


def _to_plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


# ---- how good answers are, with bootstrap intervals ---------------------------------------------

AUC, ACCURACY, LOG_LOSS, RMSE = "AUC", "accuracy", "log loss", "RMSE"
# Whether more is better.
BETTER = {AUC: 1.0, ACCURACY: 1.0, LOG_LOSS: -1.0, RMSE: -1.0}
_LEAST_CHANCE = 1e-15


def measures_for(classes: int | None) -> tuple[str, ...]:
    """What fits: numbers (None), two classes, or more; the first one is what a verdict is about."""
    if classes is None:
        return (RMSE,)
    return (AUC, ACCURACY, LOG_LOSS) if classes == 2 else (ACCURACY, LOG_LOSS)


def measure_answer(measure: str, truth: Array, answer: Floats) -> float:
    """One measure; NaN where it is not defined.

    Parameters
    ----------
    truth : array (rows,)
        Numbers, or codes of classes.
    answer : array (rows,) or (rows, classes)
        Numbers, or probabilities.
    """
    if measure == RMSE:
        return float(np.sqrt(np.mean((answer - truth) ** 2)))
    codes = truth.astype(np.int64)
    if measure == ACCURACY:
        return float((answer.argmax(axis=1) == codes).mean())
    if measure == LOG_LOSS:
        chances = answer[np.arange(len(codes)), codes]
        return float(-np.log(np.maximum(chances, _LEAST_CHANCE)).mean())
    return auc(codes == 1, answer[:, 1])


def auc(positive: npt.NDArray[np.bool_], scores: Floats) -> float:
    """How often a positive row scores above another one; ties count half."""
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return float("nan")
    ranks = rankdata(scores)  # scikit-learn's takes fifteen times as long per bootstrap sample
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * others))


@dataclass(frozen=True)
class Interval:
    """A value and the bounds that bootstrap samples of the rows give it."""

    value: float
    low: float
    high: float


class Bootstrap:
    """Samples of the same rows for all answers, so that differences are paired.

    Parameters
    ----------
    truth : array (rows,)
    samples : int
    level : float
        The share of samples inside the bounds.
    rng : numpy.random.Generator
    """

    def __init__(self, truth: Array, samples: int, level: float, rng: np.random.Generator) -> None:
        self._truth = truth
        self._rows = rng.integers(0, len(truth), (samples, len(truth)))
        self._tails = (50 * (1 - level), 50 * (1 + level))

    def interval(self, measure: str, answer: Floats) -> Interval:
        """A measure of one answer."""
        return self._bounds(
            measure_answer(measure, self._truth, answer), self._all(measure, answer)
        )

    def gain(self, measure: str, answer: Floats, over: Floats) -> Interval:
        """How much better one answer is than another; above 0 is better, whatever the measure."""
        sign = BETTER[measure]
        value = measure_answer(measure, self._truth, answer) - measure_answer(
            measure, self._truth, over
        )
        samples = self._all(measure, answer) - self._all(measure, over)
        return self._bounds(sign * value, sign * samples)

    def _all(self, measure: str, answer: Floats) -> Floats:
        found = [measure_answer(measure, self._truth[rows], answer[rows]) for rows in self._rows]
        return np.asarray(found, dtype=np.float64)

    def _bounds(self, value: float, samples: Floats) -> Interval:
        known = samples[~np.isnan(samples)]
        if np.isnan(value) or not len(known):
            return Interval(value, float("nan"), float("nan"))
        low, high = np.percentile(known, self._tails)
        return Interval(float(value), float(low), float(high))


# ---- what the label holder can do alone ---------------------------------------------------------

OWN_TREES, OWN_LINEAR, PRIOR = (
    "own columns, boosted trees",
    "own columns, linear",
    "prior, no columns",
)


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
    """Small boosted trees, those that advice on completed columns trains too."""
    model = XGB(n_estimators=60, max_depth=4, learning_rate=0.08)
    if classes is None:
        model.task = "regression"
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
    return order_chances(model.to_probabilities(share, scores), known, len(classes))


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
