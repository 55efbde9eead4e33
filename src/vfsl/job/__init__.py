"""Jobs: a typed TOML file that says which tables, which steps and with which settings."""

from vfsl.job.files import align_files, predict_files, step_files
from vfsl.job.play import play
from vfsl.job.preview import Preview, preview
from vfsl.job.run import run_job, unfinished
from vfsl.job.schema import Job, SharedJob, load_job

__all__ = [
    "Job",
    "Preview",
    "SharedJob",
    "align_files",
    "load_job",
    "play",
    "predict_files",
    "preview",
    "run_job",
    "step_files",
    "unfinished",
]
