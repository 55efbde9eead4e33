"""Jobs: a typed TOML file that says which tables, which steps and with which settings."""

from vfsl.job.run import (
    align_files,
    predict_files,
    pu_files,
    run_job,
    train_files,
    unfinished,
)
from vfsl.job.schema import Job, load_job

__all__ = [
    "Job",
    "align_files",
    "load_job",
    "predict_files",
    "pu_files",
    "run_job",
    "train_files",
    "unfinished",
]
