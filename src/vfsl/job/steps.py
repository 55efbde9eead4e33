"""How each step of a job is done, what it keeps while unfinished, and what it writes."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from vfsl import store
from vfsl.data import FILE_ROW, write_table
from vfsl.estimators import LinearRegression, save_model
from vfsl.estimators.saved import Model, save_shares
from vfsl.estimators.trees import TreeModel
from vfsl.federation import Federation
from vfsl.job.schema import AlignStep, PuStep, TrainStep
from vfsl.record import StepRecord
from vfsl.values import Array


def do_step(
    fed: Federation,
    step: AlignStep | TrainStep | PuStep,
    out: Path,
    checkpoints: store.Checkpoints,
    number: int,
) -> None:
    """Do one step and write its results below ``out``."""
    if isinstance(step, AlignStep):
        _align(fed, step, checkpoints, number)
        for party in step.parties or list(fed.tables):
            write_aligned(fed, party, out)
    elif isinstance(step, TrainStep):
        _train(fed, step, out, checkpoints, number)
    else:
        _find_positives(fed, step, out, checkpoints, number)


def write_aligned(fed: Federation, party: str, out: Path) -> None:
    """The party's own ids of the common rows, in the common order."""
    table = fed.tables[party].take(fed.share(party).overlap)
    frame = table.to_frame()
    kept = [*table.id_columns, *([FILE_ROW] if FILE_ROW in frame else [])]
    write_table(frame[kept], out / "parties" / party / "aligned.csv")


def _align(fed: Federation, step: AlignStep, checkpoints: store.Checkpoints, number: int) -> None:
    """Align, or take up the alignment that an earlier attempt of this job finished."""
    name = f"step-{number}"
    plan = checkpoints.folder / name
    parties = step.parties or list(fed.tables)
    done = checkpoints.load(name)
    if done is not None:
        fed.load_plan(plan, *parties)
        fed.adopt(StepRecord.from_dict(done))
        return
    fed.align(*parties, protocol=step.protocol)
    fed.save_plan(plan)
    checkpoints.save(name, asdict(fed.record.steps[-1]))


def _train(
    fed: Federation, step: TrainStep, out: Path, checkpoints: store.Checkpoints, number: int
) -> None:
    """Train, keep the model and predict the aligned rows; trees go on from the last finished."""
    model = step.estimator()
    if isinstance(model, TreeModel):
        model = replace(model, checkpoints=checkpoints.folder / f"step-{number}-trees")
    model.fit(fed, label=step.label)
    save_model(model, out, f"model-{number}")
    path = out / "parties" / step.label[0] / f"predictions-{number}.csv"
    write_predictions(model, fed, path)


def write_predictions(model: Model, fed: Federation, path: Path) -> None:
    """The label holder's ids of the aligned rows with what the model says of them."""
    holder, column = model.label_
    table = fed.tables[holder].take(fed.parts(model.label_)[holder].rows)
    answer = table.to_frame()[list(table.id_columns)]
    write_table(answer.assign(**_predictions(model, fed, column)), path)


def _predictions(model: Model, fed: Federation, column: str) -> dict[str, Array]:
    if isinstance(model, LinearRegression) or getattr(model, "task", "") == "regression":
        return {f"predicted {column}": model.predict(fed)}
    probabilities = model.predict_proba(fed)
    most = model.classes_[probabilities.argmax(axis=1)]
    named = {f"p({column}={c})": p for c, p in zip(model.classes_, probabilities.T, strict=True)}
    return {f"predicted {column}": most, **named}


def _find_positives(
    fed: Federation, step: PuStep, out: Path, checkpoints: store.Checkpoints, number: int
) -> None:
    """Mark, learn, write scores at the label holder and, with consent, at the positive holder."""
    folder = checkpoints.folder / f"step-{number}"
    kept = {party: folder / quote(party, safe="") for party in fed.tables}
    fed.mark(
        positives=step.positives,
        label_holder=step.label_holder,
        protocol=step.protocol,
        state={party: path / "mark" for party, path in kept.items()},
    )
    method = step.method().fit(
        fed,
        positives=step.positives,
        label_holder=step.label_holder,
        state={party: path / "pu" for party, path in kept.items()},
    )
    save_shares(method.shares_, out, f"vfpu-{number}")
    mine = out / "parties" / step.label_holder
    _write_scores(method.scores_, mine / f"pu-scores-{number}.csv")
    _write_scores(method.reliable_positives_, mine / f"reliable-positives-{number}.csv")
    if step.consent:
        received = method.deliver(fed, consent=step.consent)
        path = out / "parties" / step.positives / f"reliable-positives-{number}.csv"
        _write_scores(received, path)


def _write_scores(scores: pd.Series[float], path: Path) -> None:
    write_table(pd.DataFrame({"id": scores.index.to_numpy(), "score": scores.to_numpy()}), path)
