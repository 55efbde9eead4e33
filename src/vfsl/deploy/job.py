"""Jobs between organisations: the steps of a job file, without anybody's tables.

The same job.toml runs on one machine by ``vfsl run``. Here each party reads its own table as its
own party.toml says, so the tables that a job file may name are left out when it is submitted.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from vfsl.data.checks import PARTY_NAME, is_party_name
from vfsl.deploy.config import checked, read_toml
from vfsl.errors import ConfigError, ProtocolError
from vfsl.job.fields import Strict
from vfsl.job.schema import (
    AlignStep,
    AnyStep,
    CompleteStep,
    EvaluateStep,
    Step,
    TrainStep,
    check,
)


class RunTerms(Strict):
    """Settings of the whole run; a deployment has no ``plain`` scheme and no local channel."""

    seed: int = 0
    scheme: Literal["auto", "paillier", "bfv"] = "auto"
    security: Literal[128, 112] = 128
    key_holder: str = "K"
    seconds: float = Field(default=600.0, gt=0, strict=False)  # longest wait for one message


class SharedJob(Strict):
    """What all parties of a run know of it."""

    run: RunTerms = RunTerms()
    parties: list[str] = Field(min_length=2)
    steps: list[Step] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for party in self.everyone:
            if not is_party_name(party):
                raise ValueError(
                    f"the name of a party must be {PARTY_NAME}. Got {party!r:.80} instead"
                )
        if self.run.key_holder in self.parties:
            raise ValueError(f"the key holder {self.run.key_holder!r} must have no table")
        if len(set(self.parties)) != len(self.parties):
            raise ValueError("parties names a party twice")
        if not isinstance(self.steps[0], AlignStep):
            raise ValueError("the first step must be an align step")
        for number, step in enumerate(self.steps):
            reason = _not_deployable(step)
            if reason is not None:
                raise ValueError(f"steps[{number}]: {reason}")
        return self

    @property
    def everyone(self) -> tuple[str, ...]:
        return (*self.parties, self.run.key_holder)

    def aligned_before(self, number: int) -> tuple[str, ...]:
        """The parties of the last alignment before a step."""
        chosen: tuple[str, ...] = ()
        for step in self.steps[: number - 1]:
            if isinstance(step, AlignStep):
                chosen = tuple(step.parties or self.parties)
        return chosen

    def concerned_in(self, number: int) -> tuple[str, ...]:
        """The parties whose columns a step uses."""
        step = self.steps[number - 1]
        if isinstance(step, CompleteStep):
            return (step.given, step.missing)
        return self.aligned_before(number)


def _not_deployable(step: AnyStep) -> str | None:
    """Why a step that jobs on one machine have cannot run between organisations."""
    if isinstance(step, EvaluateStep):
        return "models are evaluated on one machine only"
    if isinstance(step, TrainStep) and step.model == "risa":
        return "model = 'risa' trains on one machine only"
    if isinstance(step, TrainStep) and step.rows != "common":
        return "rows = 'completed' trains on one machine only"
    return None


def load_shared_job(path: Path) -> SharedJob:
    """Read a job file for a deployment; tables and other local settings in it are left out."""
    content = read_toml(path)
    if isinstance(content.get("parties"), dict):
        content["parties"] = list(content["parties"])
    terms = content.get("run")
    if isinstance(terms, dict):
        terms.pop("channel", None)
        if terms.get("scheme") == "plain":
            raise ConfigError(
                f"In {path}: run.scheme = 'plain' encrypts nothing and is refused in deployments; "
                "use 'auto'."
            )
        if terms.pop("private_draws", "system") != "system":
            raise ConfigError(
                f"In {path}: run.private_draws = 'seed' would let every party repeat what the "
                "others hide (bags, folds, sampled rows) and is refused in deployments; leave it "
                "out, or use 'system'."
            )
    job = checked(SharedJob, content, path)
    _check_as_local(job)
    return job


def _check_as_local(job: SharedJob) -> None:
    """The rules of jobs on one machine hold here too; tables are nobody's business."""
    own = {"table": "own", "id": "own"}
    steps = [step.model_dump(exclude_none=True) for step in job.steps]
    check({"parties": dict.fromkeys(job.parties, own), "steps": steps})


def sealed_text(job: SharedJob) -> str:
    """The job as text, with a random part so that its hash says nothing about it."""
    return json.dumps({"job": job.model_dump(mode="json"), "salt": secrets.token_hex(32)})


def job_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def opened_job(text: str, expected_hash: str, leader: str) -> SharedJob:
    """The job that the leader sent, if it is the announced one."""
    try:
        if job_hash(text) != expected_hash:
            raise ValueError("another hash")
        content: Any = json.loads(text)
        job = SharedJob.model_validate_json(json.dumps(content["job"]))
        _check_as_local(job)
        return job
    except (ValueError, KeyError, TypeError, ConfigError):
        raise ProtocolError(
            f"Party {leader!r} sent a job that is not the announced one, or that this version of "
            "vfsl does not know.",
            leader,
        ) from None
