"""For all tests: how long an example takes is not what they judge, and one core for each worker."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Workers that use all cores at once crowd each other out; libraries read this when they are loaded.
if "PYTEST_XDIST_WORKER" in os.environ:
    for library in ("OMP", "OPENBLAS"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

settings.register_profile("vfsl", deadline=None)
settings.load_profile("vfsl")
sys.path.insert(0, str(Path(__file__).parent))  # for job_cases


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a module of somebody else for one test, as pip would leave it: no pip is needed."""
    installed = []

    def put(module, source, group, **entries):
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:{attribute}" for name, attribute in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
        monkeypatch.syspath_prepend(tmp_path)
        installed.append(module)

    yield put
    for module in installed:
        sys.modules.pop(module, None)
