"""For all tests: how long an example takes is not what they judge, and one core for each worker."""

import os
import sys
from pathlib import Path

from hypothesis import settings

# Workers that use all cores at once crowd each other out; libraries read this when they are loaded.
if "PYTEST_XDIST_WORKER" in os.environ:
    for library in ("OMP", "OPENBLAS"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

settings.register_profile("vfsl", deadline=None)
settings.load_profile("vfsl")
sys.path.insert(0, str(Path(__file__).parent))  # for job_cases
