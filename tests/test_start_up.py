"""What is loaded when nothing was asked for yet: people wait for it, and so does every worker."""

import subprocess
import sys

import pytest
import typer.main

import vfsl.cli

# Not pydantic: typer itself uses it to read options.
HEAVY = {
    *("benchmarks", "cryptography", "gmpy2", "jinja2", "lightgbm", "numpy", "nvflare", "pandas"),
    *("plotly", "pyarrow", "scipy", "seal", "sklearn", "torch", "xgboost"),
}
COMMANDS = sorted(typer.main.get_command(vfsl.cli.app).commands)
CALL = "sys.argv[1:] = {words!r}; from vfsl.cli import main; main()"
LOOK = """
import sys
try:
    {code}
except SystemExit as end:
    assert not end.code
print("\\nloaded", *sys.modules)
"""


def loaded_after(code):
    """The heavy packages that a fresh process has loaded after the code, and what it printed."""
    program = [sys.executable, "-c", LOOK.format(code=code)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    printed, _, modules = done.stdout.rpartition("\nloaded ")
    return HEAVY & set(modules.split()), printed


def test_importing_the_package_loads_nothing_heavy():
    loaded, _ = loaded_after("import vfsl; assert 'simulate' in dir(vfsl)")
    assert loaded == set()


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)],
    ids=" ".join,
)
def test_help_loads_nothing_heavy(words):
    loaded, printed = loaded_after(CALL.format(words=words))
    assert loaded == set()
    assert vfsl.__version__ in printed or "Usage" in printed


def test_using_a_name_loads_what_it_needs():
    """The control: the same look finds packages once something was asked for."""
    loaded, _ = loaded_after("import vfsl; vfsl.simulate")
    assert {"numpy", "pandas"} <= loaded
    assert not loaded & {"benchmarks", "nvflare", "plotly", "torch"}


def test_listing_benchmarks_loads_them():
    loaded, printed = loaded_after(CALL.format(words=["bench", "list"]))
    assert "benchmarks" in loaded
    assert "psi" in printed
