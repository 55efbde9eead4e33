"""Consent: what a job asks of a party, and the party's own answer, before anything is sent.

Pure functions over the job and the party file. A refusal is a sentence; it names the setting that
would have to change.
"""

from __future__ import annotations

from collections.abc import Iterator

from vfsl.deploy.config import DISCLOSURES, OUTPUTS, PARTY_FILE, PartyFile
from vfsl.estimators import Ask
from vfsl.job.schema import SharedJob
from vfsl.job.steps import CompleteTerms, EvaluateStep, PuTerms, Step, TrainStep


def asks_of(step: Step, scheme: str = "auto") -> list[Ask]:
    """What a step reveals or delivers beyond the defaults, by its name in party.toml."""
    asks: list[Ask] = []
    if isinstance(step, TrainStep):
        asks += step.estimator().asks(scheme)
        if step.rows == "completed":
            asks.append(("disclosure", "row confidence"))
        asks.append(("output", "predictions"))
    if isinstance(step, PuTerms):
        asks += step.method().asks(deliver=bool(step.consent), scheme=scheme)
    if isinstance(step, CompleteTerms):
        asks += step.method().asks(scheme)
        if step.label is not None:
            asks += [("disclosure", "tree partitions"), ("disclosure", "row confidence")]
    if isinstance(step, EvaluateStep):
        asks.append(("output", "predictions"))
    return list(dict.fromkeys(asks))


def refusals(mine: PartyFile, job: SharedJob, leader: str) -> list[str]:
    """Everything that keeps this party from taking part; empty if it agrees."""
    return list(_refusals(mine, job, leader))


def agreement(job: SharedJob) -> list[str]:
    """What every party of a job has agreed to, in words, for the ledger."""
    words = DISCLOSURES | OUTPUTS
    asked = {name for step in job.steps for _, name in asks_of(step, job.run.scheme)}
    return [f"{name}: {words[name]}" for name in words if name in asked]


def _refusals(mine: PartyFile, job: SharedJob, leader: str) -> Iterator[str]:
    me, allow = mine.party, mine.allow
    if leader not in allow.submitters and leader != me:
        yield f"{me!r} takes no jobs of {leader!r}; its allow.submitters does not name it."
    if me not in job.everyone:
        yield f"{me!r} is not among the parties of the job."
    for peer in job.everyone:
        if peer != me and peer not in mine.peers:
            yield f"{me!r} has no pinned key of {peer!r}; add it to [peers] in {PARTY_FILE}."
    if (mine.role == "key holder") != (job.run.key_holder == me):
        yield f"{me!r} is set up as {mine.role}, and the job has {job.run.key_holder!r} hold keys."
    if job.run.security < allow.security:
        yield f"{me!r} wants {allow.security}-bit security; the job has {job.run.security}."
    if job.run.seconds > mine.limits.seconds:
        yield (
            f"{me!r} waits {mine.limits.seconds:g} s for a message at most; the job has "
            f"{job.run.seconds:g}."
        )
    for number, step in enumerate(job.steps, start=1):
        concerned = me in job.concerned_in(number)  # the columns of others are theirs to give
        for text in _step_refusals(mine, step, concerned, job.run.scheme):
            yield f"Step {number}: {text}"


def _step_refusals(mine: PartyFile, step: Step, concerned: bool, scheme: str) -> Iterator[str]:
    me, allow = mine.party, mine.allow
    if step.do not in allow.steps:
        yield f"{me!r} does not take part in {step.do!r}; its allow.steps does not name it."
    if isinstance(step, TrainStep):
        if allow.models and step.model not in allow.models:
            yield f"{me!r} does not train {step.model!r}; its allow.models does not name it."
        if step.label[0] == me and (mine.table is None or mine.table.label != step.label[1]):
            yield f"{me!r} has not released the label that the job asks for in its [table]."
    granted = {"disclosure": allow.disclosures, "output": allow.outputs}
    words = DISCLOSURES | OUTPUTS
    for what, name in asks_of(step, scheme):
        if concerned and name not in granted[what]:
            yield f"{me!r} has not allowed the {what} {name!r} ({words[name]})."
