"""The train step of a job: any federated model, on common rows or on completed ones as well."""

from __future__ import annotations

from typing import Any

from vfsl.align import RowPlan
from vfsl.evidence import RISA
from vfsl.federation import Federation
from vfsl.job.completing import completed_rows
from vfsl.job.models import keep_model, write_predictions
from vfsl.job.schema import TrainStep
from vfsl.job.work import Work
from vfsl.progress import Event


def train(work: Work, step: TrainStep) -> None:
    """Train, keep the model and predict the aligned rows; training goes on where it was."""
    model = step.estimator()
    if isinstance(model, RISA):
        _train_risa(model, work, step)
    else:
        kept = work.state("model")
        completed = work.job.completed_before(work.number) if step.rows == "completed" else None
        if completed is None:
            model.fit(work.training.keeping(kept), label=step.label)
        else:
            fed, weights = completed_rows(work, completed)
            model.fit(fed.keeping(kept), label=step.label, weights=weights)
    keep_model(model, work.results, f"model-{work.number}")
    path = work.party_folder(step.label[0]) / f"predictions-{work.number}.csv"
    fed = _with_parties(work.fed, list(model.shares_))
    write_predictions(model, fed, path)


def _train_risa(model: RISA, work: Work, step: TrainStep) -> None:
    tell = work.listener

    def hear(line: dict[str, Any]) -> None:
        if tell is not None:
            tell(Event("train risa", f"epoch {line['epoch']}", line["epoch"], line["epochs"]))

    model.checkpoints = work.state("risa")
    model.on_event = hear if tell is not None else None
    model.fit(work.training, label=step.label)


def _with_parties(fed: Federation, parties: list[str]) -> Federation:
    """The aligned rows of those parties that the model is of."""
    plan = fed.plan
    if plan is None or set(plan.parties) == set(parties):
        return fed
    return fed.with_rows(
        RowPlan({party: plan[party] for party in plan.parties if party in parties})
    )
