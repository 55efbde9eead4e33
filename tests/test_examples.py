"""The examples run as scripts, as a user would start them."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.name)
def test_examples_run(script, tmp_path):
    if "vfsl.RISA" in script.read_text():
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.name)
def test_examples_are_notebooks_too(script):
    cells = [line for line in script.read_text().splitlines() if line.startswith("# %%")]
    assert cells[0] == "# %% [markdown]"
    assert "# %%" in cells


def test_there_are_examples():
    assert [script.stem for script in EXAMPLES] == ["align_and_train", "complete", "pu", "risa"]
