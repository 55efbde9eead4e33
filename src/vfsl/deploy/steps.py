"""The steps of a job as one party runs them: a name, and the function that plays this party's role.

Every function gets the party's site, a channel of its own and the step; it leaves what it made in
the site's work folder and returns what goes into the party's record. The roles are those of a
simulation; only the arrangement differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from vfsl.align import RowShare, align_hub, align_server, mark_client, mark_server
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
from vfsl.pu import deliver_side, reliable_of, scores_of
from vfsl.site import Site as CoreSite
from vfsl.site import Standing, Terms
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
    method, holder = step.method(), step.label_holder
    cautions: list[str] = []
    how = site.alignment(step.protocol, cautions)
    rows = site.share() if site.me in site.job.aligned_before(site.number) else None
    if site.me == step.positives:
        mark_server(channel.within("mark"), holder, site.ids(), how)
    elif rows is not None and site.me == holder:
        rows = mark_client(channel.within("mark"), step.positives, site.ids(), rows, how)
    core = _core_site(site, rows)
    share = method.learn(core, channel.within("train"), step.positives, holder)
    reliable = None
    if share is not None:
        save_shares({site.me: share}, site.work, f"vfpu-{site.number}")
        if site.me == holder:
            reliable = reliable_of(share, core)
            _write_scores(site, "pu-scores", scores_of(share, core))
            _write_scores(site, "reliable-positives", reliable)
    if step.consent:
        deliver = channel.within("deliver")
        received = deliver_side(core, deliver, step.positives, holder, step.consent, reliable)
        if received is not None:
            _write_scores(site, "reliable-positives", received, foreign=["id"])
    settings = step.model_dump(exclude={"do"}, exclude_none=True)
    done = next((one for one in core.outcomes if one.name == "vfpu"), None)
    if done is None:
        return Outcome("vfpu", settings, notes=tuple(cautions))
    settings |= {"scheme": done.settings["scheme"]}
    notes = (*done.notes, *cautions)
    return Outcome("vfpu", settings, {}, done.rounds, done.stop_reason, notes)


def _core_site(site: Site, rows: RowShare | None) -> CoreSite:
    run = site.job.run
    terms = Terms(tuple(site.job.parties), run.key_holder, run.scheme, run.security, run.seed)
    standing = Standing(rows, tuple(site.job.aligned_before(site.number)))
    folder = site.state / f"step-{site.number}-pu"
    return CoreSite(site.me, terms, site.private, site.table, standing, folder=folder)


def _write_scores(
    site: Site, name: str, scores: pd.Series[float], foreign: Sequence[str] = ()
) -> None:
    frame = pd.DataFrame({"id": scores.index.to_numpy(), "score": scores.to_numpy()})
    write_table(frame, site.work / f"{name}-{site.number}.csv", foreign=foreign)


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
