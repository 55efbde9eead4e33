"""Cross-validation: how good a model is on rows that it was not trained on, fold by fold.

Holds   what the model's parties hold.
Learns  the label holder: one score per labelled row, by the model that has not seen it. The others:
        which fold each aligned row is in, and what trainings on the other folds show them.

The label holder draws folds from its private seed, whatever the labels are: who hears of them hears
nothing about labels. Folds with even classes would say that every fold has as many positives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.metrics import log_loss

from vfsl.align import RowPlan, RowShare
from vfsl.channel import Channel, expect_array
from vfsl.errors import ConfigError
from vfsl.estimators import Estimator
from vfsl.estimators.base import find_labelled
from vfsl.federation import Federation
from vfsl.model_selection.figures import auc, is_positive
from vfsl.parallel import spread
from vfsl.parts import no_rows
from vfsl.record import StepRecord
from vfsl.site import Site
from vfsl.values import Array, Disclosure, Disclosures

DISCLOSURES: Disclosures = {
    "folds": Disclosure(
        np.ndarray,
        "which fold of a cross-validation each aligned row is in, drawn whatever its label is, and "
        "which rows have a known label",
    ),
}
LOWER_IS_BETTER = ("log_loss", "rmse")
_NO_FOLD = -1

Folds = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation:
    """What a model says of rows that it was not trained on, at the label holder.

    Attributes
    ----------
    measures : DataFrame
        A line per fold: how many rows, ``score`` as `Estimator.score` has it, and ``auc`` and
        ``log_loss`` of classes or ``rmse`` of numbers.
    folds : array of int
        The fold of each aligned row, in the common order; −1 for a row without a label, which no
        fold leaves out.
    predictions : array
        By row, of the model that has not seen it; None or NaN without a label.
    probabilities : array (rows, classes) or None
        The same of class probabilities, in the order of sorted classes; None for numbers.
    """

    measures: pd.DataFrame
    folds: Folds
    predictions: Array
    probabilities: Array | None

    @property
    def test_score(self) -> Array:
        """The score of each fold."""
        return self.measures["score"].to_numpy()

    def __repr__(self) -> str:
        shown = self.measures.drop(columns="rows")
        told = [f"{name} {shown[name].mean():.3f} ± {shown[name].std():.3f}" for name in shown]
        rows = int(self.measures["rows"].sum())
        return f"<Cross-validated in {len(shown)} folds of {rows:,} rows: {', '.join(told)}>"


def cross_validate(
    model: Estimator,
    fed: Federation,
    label: tuple[str, str],
    *,
    folds: int = 5,
    n_jobs: int | None = None,
) -> CrossValidation:
    """Train a model on all folds but one, ask it for that one, and so on for each fold.

    The model itself stays as it is. Every training and prediction is in the federation's record.

    Parameters
    ----------
    model : Estimator
        Fitted or not: copies of it are trained.
    fed : Federation
        Aligned.
    label : (party, column)
    folds : int
        At least 2.
    n_jobs : int, optional
        How many trainings go on at the same time, each in a process; −1: one per core. The figures
        do not depend on it.
    """
    return validate_all([model], fed, label, folds, n_jobs)[0]


def validate_all(
    models: Sequence[Estimator],
    fed: Federation,
    label: tuple[str, str],
    folds: int,
    n_jobs: int | None,
) -> list[CrossValidation]:
    """`cross_validate` of several models on the same folds."""
    for model in models:
        _check_model(model)
    drawn = fed.play(partial(draw_folds, label=label, folds=folds))
    numbers: Folds = drawn[label[0]]
    shares = {party: one for party, one in drawn.items() if one is not None}
    workers = effective_n_jobs(n_jobs)
    tasks = [
        _Task(fed.apart(quiet=workers > 1), clone(model), label, shares, fold)
        for model in models
        for fold in range(folds)
    ]
    done = []
    for one in spread(_validate, tasks, workers=workers):
        for step in one.steps:
            fed.adopt(step)
        done.append(one)
    every = [done[start : start + folds] for start in range(0, len(done), folds)]
    return [_collect(numbers, one) for one in every]


def draw_folds(site: Site, channel: Channel, label: tuple[str, str], folds: int) -> Folds | None:
    """One party's side: the fold of each aligned row, which the label holder draws and tells."""
    if site.standing.rows is None:
        return None
    holder, rows = label[0], len(site.rows().overlap)
    with site.records("draw folds", channel, {"label": list(label), "folds": folds}):
        channel = channel.within("cross-validation", DISCLOSURES)
        if site.me != holder:
            return expect_array(
                channel.receive(holder, "folds"),
                sender=holder,
                name="folds",
                holds="integer",
                shape=(rows,),
            )
        part = site.part(label)
        known = find_labelled(site.me, None if part is None else part.target)
        numbers = np.full(rows, _NO_FOLD)
        numbers[known] = split_rows(int(known.sum()), folds, site.private_rng("folds"))
        for party in site.standing.aligned:
            if party != holder:
                channel.send(party, "folds", numbers)
    return numbers


def split_rows(rows: int, folds: int, rng: np.random.Generator) -> Folds:
    """The fold of each row; sizes differ by one row at the most."""
    if not 2 <= folds <= rows:
        raise ConfigError(
            f"The number of folds must be from 2 to the number of rows with a known label, {rows}. "
            f"Got {folds} instead."
        )
    return np.asarray(rng.permutation(np.arange(rows) % folds))


@dataclass(frozen=True, eq=False)
class _Task:
    """A training without one fold, and the prediction of that fold."""

    fed: Federation
    model: Estimator
    label: tuple[str, str]
    folds: Mapping[str, Folds]  # by party
    fold: int


@dataclass(frozen=True, eq=False)
class _Done:
    fold: int
    measures: dict[str, float]
    predictions: Array
    probabilities: Array | None
    steps: tuple[StepRecord, ...]


def _validate(task: _Task) -> _Done:
    model, fed, parties = task.model, task.fed, task.folds
    training, testing = {}, {}
    for party, numbers in parties.items():
        left_out, share = numbers == task.fold, fed.share(party)
        training[party] = _choose(share, ~left_out)
        testing[party] = replace(_choose(share, left_out), rest=no_rows(), marks=None)
    model.fit(fed.with_rows(RowPlan(training)), task.label)
    asked = fed.with_rows(RowPlan(testing))
    scores = model.decision_function(asked)
    held = model.held_share
    target = np.asarray(asked.parts(task.label)[task.label[0]].target)
    found = model.to_predictions(held, scores)
    chances = None if model.predicts == "numbers" else model.to_probabilities(held, scores)
    measures = {"rows": len(found), "score": model.rate(found, target)}
    measures |= _measure(target, found, chances, held.state.get("classes"))
    return _Done(task.fold, measures, found, chances, fed.steps)


def _choose(share: RowShare, places: npt.NDArray[np.bool_]) -> RowShare:
    marks = None if share.marks is None else share.marks[places]
    return replace(share, overlap=share.overlap[places], marks=marks)


def _measure(
    target: Array, found: Array, chances: Array | None, classes: Sequence[Any] | None
) -> dict[str, float]:
    """What `score` does not say: AUC and log-loss of classes, the error of numbers."""
    if chances is None or classes is None:
        errors = found - target.astype(np.float64)
        return {"rmse": float(np.sqrt((errors**2).mean()))}
    loss = float(log_loss(target.tolist(), chances, labels=list(classes)))
    if len(classes) > 2:
        return {"log_loss": loss}
    positive = is_positive(target, np.asarray(classes))
    return {"auc": auc(positive, chances[:, 1]), "log_loss": loss}


def _collect(folds: Folds, done: Sequence[_Done]) -> CrossValidation:
    """The folds of one model, put together by row."""
    measures = pd.DataFrame([one.measures for one in done], index=[one.fold for one in done])
    first = done[0]
    numbers = first.probabilities is None
    predictions = np.full(len(folds), np.nan) if numbers else np.full(len(folds), None, object)
    chances = None
    if first.probabilities is not None:
        chances = np.full((len(folds), first.probabilities.shape[1]), np.nan)
    for one in done:
        predictions[folds == one.fold] = one.predictions
        if chances is not None:
            chances[folds == one.fold] = one.probabilities
    return CrossValidation(measures.rename_axis("fold"), folds, predictions, chances)


def _check_model(model: Any) -> None:
    """Refuse what has no label to be judged by."""
    if not isinstance(model, Estimator):
        raise ConfigError(
            f"Cross-validation is for models of a label. Got {type(model).__name__} instead; VFPU "
            "and FedPSG judge themselves on rows that they hold out."
        )
    model.check()
