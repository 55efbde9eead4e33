"""For all tests: how long an example takes is not what they judge."""

import sys
from pathlib import Path

from hypothesis import settings

settings.register_profile("vfsl", deadline=None)
settings.load_profile("vfsl")
sys.path.insert(0, str(Path(__file__).parent))  # for job_cases
