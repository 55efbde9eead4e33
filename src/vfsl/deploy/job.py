"""Jobs between organisations: the steps of a job file, without anybody's tables.

The same job.toml runs on one machine by ``vfsl run``. Here each party reads its own table as its
own party.toml says, so the tables that a job file may name are left out when it is submitted.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path
from typing import Any

from vfsl import __version__
from vfsl.deploy.config import read_toml
from vfsl.errors import ConfigError, ProtocolError
from vfsl.job.schema import SharedJob, check


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
    try:
        job: SharedJob = check(content, SharedJob)
    except ConfigError as error:
        raise ConfigError(f"In {path}: {error}") from None
    return job


def sealed_text(job: SharedJob) -> str:
    """The job as text, with a random part so that its hash says nothing about it."""
    return json.dumps({"job": job.to_plain(), "salt": secrets.token_hex(32)})


def job_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def opened_job(text: str, expected_hash: str, leader: str) -> SharedJob | str:
    """The job that the leader sent, if it is the announced one; why it cannot be read, if not."""
    if job_hash(text) != expected_hash:
        raise ProtocolError(f"Party {leader!r} sent a job that is not the announced one.", leader)
    try:
        content: Any = json.loads(text)
        job: SharedJob = check(content["job"], SharedJob)
        return job
    except ConfigError as error:
        why = str(error)
    except (ValueError, KeyError, TypeError) as error:
        why = type(error).__name__
    return f"has vfsl {__version__}, which cannot read the job of {leader!r}: {why[:300]}"
