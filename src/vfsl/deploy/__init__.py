"""Runs across organisations: sites with certificates, consent, checkpoints, on NVFlare.

Importing this package needs no engine; starting, submitting and provisioning do.
"""

from vfsl.deploy.config import PartyFile, Project, load_party, load_project
from vfsl.deploy.job import load_shared_job
from vfsl.deploy.local import LocalDeployment
from vfsl.deploy.submit import fetch_results, resume_run, status_lines, submit_job, wait_for
from vfsl.job.schema import SharedJob

__all__ = [
    "LocalDeployment",
    "PartyFile",
    "Project",
    "SharedJob",
    "fetch_results",
    "load_party",
    "load_project",
    "load_shared_job",
    "resume_run",
    "status_lines",
    "submit_job",
    "wait_for",
]
