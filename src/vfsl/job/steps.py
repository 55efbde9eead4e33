"""How each step of a job is done, what it keeps while unfinished, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vfsl import store
from vfsl.data import FILE_ROW, write_table
from vfsl.estimators.saved import save_shares
from vfsl.federation import Federation
from vfsl.job.completing import complete
from vfsl.job.evaluating import evaluate
from vfsl.job.holdout import hold_out
from vfsl.job.schema import AlignStep, AnyStep, CompleteStep, PuStep, TrainStep
from vfsl.job.training import train
from vfsl.job.work import Work
from vfsl.record import StepRecord


def do_step(work: Work, step: AnyStep, checkpoints: store.Checkpoints) -> None:
    """Do one step, or take over what an earlier attempt of the job finished."""
    name = f"step-{work.number}"
    done = checkpoints.load(name)
    if done is None:
        before = len(work.fed.steps)
        _do(work, step)
        done = {
            "steps": [asdict(line) for line in work.fed.steps[before:]],
            "test": None if work.test is None else work.test.tolist(),
        }
        checkpoints.save(name, done)
        return
    for line in done["steps"]:
        work.fed.adopt(StepRecord.from_dict(line))
    if isinstance(step, AlignStep):
        work.fed.load_plan(_plan(work), *(step.parties or list(work.fed.tables)))
        work.test = None if done["test"] is None else np.asarray(done["test"], dtype=np.int64)


def _do(work: Work, step: AnyStep) -> None:
    if isinstance(step, AlignStep):
        _align(work, step)
    elif isinstance(step, PuStep):
        _find_positives(work, step)
    elif isinstance(step, CompleteStep):
        complete(work, step)
    elif isinstance(step, TrainStep):
        train(work, step)
    else:
        evaluate(work, step)


def _align(work: Work, step: AlignStep) -> None:
    """Align, keep the plan, and hold rows out for testing."""
    parties = step.parties or list(work.fed.tables)
    work.fed.align(*parties, protocol=step.protocol, state=work.state("align"))
    work.fed.save_plan(_plan(work))
    for party in parties:
        write_aligned(work.fed, party, work.results)
    if work.job.test is not None:
        work.test = hold_out(work.fed, work.job.test.share, work.marked)


def _plan(work: Work) -> Path:
    return work.unfinished / f"step-{work.number}-plan"


def write_aligned(fed: Federation, party: str, out: Path) -> None:
    """The party's own ids of the common rows, in the common order."""
    table = fed.tables[party].take(fed.share(party).overlap)
    frame = table.to_frame()
    kept = [*table.id_columns, *([FILE_ROW] if FILE_ROW in frame else [])]
    write_table(frame[kept], out / "parties" / party / "aligned.csv")


def _find_positives(work: Work, step: PuStep) -> None:
    """Mark, learn, write scores at the label holder and, with consent, at the positive holder."""
    fed = work.fed
    fed.mark(
        positives=step.positives,
        label_holder=step.label_holder,
        protocol=step.protocol,
        state=work.state("mark"),
    )
    method = step.method().fit(
        fed,
        positives=step.positives,
        label_holder=step.label_holder,
        state=work.state("pu"),
    )
    save_shares(method.shares_, work.results, f"vfpu-{work.number}")
    mine = work.party_folder(step.label_holder)
    _write_scores(method.scores_, mine / f"pu-scores-{work.number}.csv")
    _write_scores(method.reliable_positives_, mine / f"reliable-positives-{work.number}.csv")
    if step.consent:
        received = method.deliver(fed, consent=step.consent)
        path = work.party_folder(step.positives) / f"reliable-positives-{work.number}.csv"
        _write_scores(received, path, foreign=["id"])


def _write_scores(scores: pd.Series[Any], path: Path, foreign: Sequence[str] = ()) -> None:
    frame = pd.DataFrame({"id": scores.index.to_numpy(), "score": scores.to_numpy()})
    write_table(frame, path, foreign=foreign)
