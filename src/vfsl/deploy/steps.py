"""The steps of a job as one party runs them: a name, and the function that plays this party's role.

Every function gets the party's site, a channel of its own and the step; it leaves what it made in
the site's work folder and returns what goes into the party's record. The roles are those of a
simulation; only the arrangement differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from vfsl.align import align_hub, align_server, mark_client, mark_server
from vfsl.channel import Channel
from vfsl.data import write_table
from vfsl.deploy.complete import complete_step
from vfsl.deploy.view import Outcome, Site
from vfsl.errors import ConfigError
from vfsl.estimators import Estimator, save_model
from vfsl.estimators.saved import save_shares
from vfsl.evidence import RISA
from vfsl.job.schema import AlignStep, PuStep, Step, TrainStep
from vfsl.parts import ModelShare, Part, Roles
from vfsl.pu.bases import make_base, work_of
from vfsl.pu.deliver import deliver_feature_holder, deliver_label_holder, deliver_positive_holder
from vfsl.store import Checkpoints
from vfsl.values import Array

StepRole = Callable[[Site, Channel, Any], Outcome]


def align_step(site: Site, channel: Channel, step: AlignStep) -> Outcome:
    """Find the common rows; the last party named is the hub, as in a simulation."""
    parties = list(step.parties or site.job.parties)
    settings = {"protocol": step.protocol, "parties": parties, "hub": parties[-1]}
    if site.me not in parties:
        return Outcome("align", settings)
    cautions: list[str] = []
    how = site.alignment(step.protocol, cautions)
    ids = site.ids()
    if site.me == parties[-1]:
        share = align_hub(channel, parties[:-1], ids, how)
    else:
        share = align_server(channel, parties[-1], ids, how)
    share.save(site.state / "plan", ids)
    share.save(site.work / "plan", ids)
    table = site.own_table()
    frame = table.take(share.overlap).to_frame()[list(table.id_columns)]
    write_table(frame, site.work / "aligned.csv")
    counts = {"overlap": len(share.overlap), "own other rows": len(share.rest)}
    return Outcome("align", settings, counts, notes=tuple(cautions))


def train_step(site: Site, channel: Channel, step: TrainStep) -> Outcome:
    """Train a model, keep this party's share, predict the common rows at the label holder."""
    model = step.estimator()
    if isinstance(model, RISA):  # refused with the job already
        raise ConfigError("Deployments do not train 'risa'.")
    roles = site.roles(step.label[0], model.work(site.feature_holders))
    settings = {"model": model.name, "label": list(step.label), "scheme": roles.scheme}
    taking_part = roles.everyone if model.needs_key_holder else roles.data_holders
    if site.me not in taking_part:
        return Outcome(f"train {model.name}", settings)
    part = site.part(step.label)
    rng = site.private_rng(model.name)
    kept = Checkpoints(site.state / f"step-{site.number}-model", step.model)
    share = model.train(channel.within("train"), part, roles=roles, rng=rng, kept=kept)
    model.label_ = step.label
    if share is not None:
        model.shares_ = {site.me: share}
        save_model(model, site.work, f"model-{site.number}", force=True)
    metrics = _predict(site, channel.within("predict"), model, part, share, roles)
    if share is None:
        return Outcome(f"train {model.name}", settings, metrics)
    reason, rounds = share.stop_reason, share.rounds
    return Outcome(f"train {model.name}", settings, metrics, rounds, reason, share.notes)


def _predict(
    site: Site,
    channel: Channel,
    model: Estimator,
    part: Part | None,
    share: ModelShare | None,
    roles: Roles,
) -> Mapping[str, Any]:
    """Predictions of the common rows, written at the label holder; its quality on known labels.

    Of trees the label holder has the scores of these rows from training: nobody is asked.
    """
    scores: Array | None = None
    if not model.knows_training_scores:
        scores = model.score_rows(channel, part, share, roles=roles)
    elif share is not None and site.me == roles.label_holder:
        scores = model.training_scores(share)
    if site.me != roles.label_holder or part is None or share is None or scores is None:
        return {}
    label = model.label_[1]
    columns: dict[str, Array] = {f"predicted {label}": model.to_predictions(share, scores)}
    if model.predicts == "classes":
        chances, classes = model.to_probabilities(share, scores), share.state["classes"]
        columns |= {f"p({label}={c})": p for c, p in zip(classes, chances.T, strict=True)}
    rows = site.own_table().take(part.rows)
    frame = rows.to_frame()[list(rows.id_columns)].assign(**columns)
    write_table(frame, site.work / f"predictions-{site.number}.csv")
    return model.measure_quality(share, scores, part.target)


def pu_step(site: Site, channel: Channel, step: PuStep) -> Outcome:
    """Mark, find reliable positives, write the scores at the label holder, deliver if agreed."""
    method, base = step.method(), make_base(step.base)
    roles = site.roles(step.label_holder, work_of(base, site.feature_holders))
    settings = step.model_dump(exclude={"do"}, exclude_none=True) | {"scheme": roles.scheme}
    cautions: list[str] = []
    how = site.alignment(step.protocol, cautions)
    marks: Array | None = None
    if site.me == step.positives:
        mark_server(channel.within("mark"), step.label_holder, site.ids(), how)
    elif site.me == step.label_holder:
        marked = mark_client(channel.within("mark"), step.positives, site.ids(), site.share(), how)
        marks = marked.marks
    share: ModelShare | None = None
    if site.me in roles.everyone:
        part = site.part((step.positives, ""))
        if part is not None and marks is not None:
            part = replace(part, target=marks)
        share = method.train(
            channel.within("train"),
            part,
            roles=roles,
            rng=site.private_rng("vfpu"),
            kept=_keeper(site, settings, marks),
        )
        if share is not None:
            save_shares({site.me: share}, site.work, f"vfpu-{site.number}")
    reliable = None
    if site.me == step.label_holder and share is not None:
        reliable = _write_scores(site, share)
    if step.consent:
        _deliver(site, channel.within("deliver"), step, roles, reliable)
    if share is None:
        return Outcome("vfpu", settings, notes=tuple(cautions))
    notes = (*share.notes, *cautions)
    return Outcome("vfpu", settings, {}, share.rounds, share.stop_reason, notes)


def _keeper(site: Site, settings: Mapping[str, Any], marks: Array | None) -> Checkpoints | None:
    """Where this party keeps finished bags, bound to the settings, its plan and its marks."""
    if site.mine.role == "key holder":
        return None
    facts = [dict(settings), site.plan_name()]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    if marks is not None:
        digest.update(np.asarray(marks, dtype=np.int8).tobytes())
    return Checkpoints(site.state / f"step-{site.number}-pu", digest.hexdigest())


def _write_scores(site: Site, share: ModelShare) -> pd.Series[float]:
    """Scores of unlabelled rows by id, and of the reliable positives, which are returned."""
    ids = site.own_table().ids[site.share().overlap]
    rows = np.asarray(share.state["unlabelled rows"], dtype=np.int64)
    index = pd.Index(ids[rows], name="id", dtype=object)
    scores = pd.Series(share.state["probabilities"], index=index, name="score", dtype=float)
    best = np.asarray(share.state["reliable rows"], dtype=np.int64)
    reliable = scores.loc[pd.Index(ids[best], dtype=object)]
    for name, values in (("pu-scores", scores), ("reliable-positives", reliable)):
        frame = pd.DataFrame({"id": values.index.to_numpy(), "score": values.to_numpy()})
        write_table(frame, site.work / f"{name}-{site.number}.csv")
    return reliable


def _deliver(
    site: Site, channel: Channel, step: PuStep, roles: Roles, reliable: pd.Series[float] | None
) -> None:
    """Reliable positives go to the positive holder; all that hold columns have agreed before."""
    if site.me in roles.feature_holders:
        deliver_feature_holder(channel, roles, agrees=site.me in step.consent)
    elif reliable is not None:
        agrees = site.me in step.consent
        deliver_label_holder(channel, roles, step.positives, reliable, agrees)
    elif site.me == step.positives:
        received = deliver_positive_holder(channel, roles)
        frame = pd.DataFrame({"id": received.index.to_numpy(), "score": received.to_numpy()})
        path = site.work / f"reliable-positives-{site.number}.csv"
        write_table(frame, path, foreign=["id"])


# One line a kind of step: the "do" of a job file, and who plays this party's part in it.
STEPS: dict[str, StepRole] = {
    "align": align_step,
    "train": train_step,
    "pu": pu_step,
    "complete": complete_step,
}


def run_step(site: Site, channel: Channel, step: Step) -> Outcome:
    """Play this party's part in a step."""
    return STEPS[step.do](site, channel, step)
