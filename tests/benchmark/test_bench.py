"""Experiments by name: tables, peers that do not install, and the set-intersection experiment."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vfsl
from benchmarks import EXPERIMENTS, Outcome, psi, run_experiment
from benchmarks.peers import PeerMissing, peer_python, run_peer
from vfsl.cli import main
from vfsl.errors import ConfigError

OUTCOME = Outcome(
    "toy",
    "A toy",
    [{"method": "ours", "seconds": 1.23456, "correct": True}, {"method": "theirs", "bytes": 7}],
    ["a note"],
)


def test_outcome_is_written_in_three_forms(tmp_path):
    OUTCOME.save(tmp_path)
    content = json.loads((tmp_path / "toy.json").read_text())
    assert content["rows"][0]["seconds"] == 1.23456
    assert (tmp_path / "toy.csv").read_text().splitlines() == [
        "method,seconds,correct,bytes",
        "ours,1.23456,True,",
        "theirs,,,7",
    ]
    page = (tmp_path / "toy.md").read_text()
    assert "| ours | 1.23 | True |  |" in page
    assert "- a note" in page
    assert "vfsl bench run toy" in page


def test_unknown_experiments_name_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'psi'"):
        run_experiment("psy")


def test_every_experiment_can_be_loaded():
    for module, text in EXPERIMENTS.values():
        assert text
        __import__(module)
        assert callable(sys.modules[module].run)


def test_a_peer_that_does_not_install_says_what_pip_said(tmp_path, monkeypatch):
    monkeypatch.setenv("VFSL_PEERS", str(tmp_path))
    with pytest.raises(PeerMissing, match="pip install no-such-package-of-vfsl"):
        peer_python("nothing", "no-such-package-of-vfsl==0")
    assert not (tmp_path / "nothing" / "ready").exists()


def test_peers_answer_or_fail_in_one_line():
    code = "print(json.dumps({'twice': 2 * inputs['n']}))"
    assert run_peer(sys.executable, code, n=21) == {"twice": 42}
    with pytest.raises(PeerMissing, match="ZeroDivisionError"):
        run_peer(sys.executable, "1 / 0")


def test_set_intersection_beside_a_missing_peer(monkeypatch):
    def missing(*arguments):
        raise PeerMissing("pip install openmined-psi: ERROR: no wheel")

    measured = []

    def measure(function, case):
        measured.append(case)
        protocol, _, ids = case
        raw = {"signatures_one_core": 1.0} if protocol == "blind-rsa" else {}
        facts = {"seconds": 2.0, "rows_per_second": 1.0, "bytes_per_id": 42.0, "correct": True}
        return {"protocol": protocol, "ids": ids, "peak_megabytes": 9.0, "raw": raw, **facts}

    monkeypatch.setattr(psi, "peer_python", missing)
    monkeypatch.setattr(psi, "call_apart", measure)
    outcome = psi.run(True, lambda text: None)
    assert [case[0] for case in measured] == [*["ecdh"] * 2, *["aided"] * 3, *["blind-rsa"] * 2]
    assert any("no wheel" in note for note in outcome.notes)
    assert all(row["× faster than openmined-psi"] is None for row in outcome.rows)


def test_the_real_measurement_is_correct():
    row = psi._measure(("ecdh", 128, 300))
    assert row["correct"]
    assert row["overlap"] == 150
    assert row["bytes_per_id"] > 40


def test_the_command_prints_and_saves(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.run_experiment", lambda name, **how: OUTCOME)
    for arguments in (["list"], ["run", "psi", "--quick", "--out", str(tmp_path)]):
        monkeypatch.setattr("sys.argv", ["vfsl", "bench", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert "private set intersection" in printed
    assert "A toy" in printed
    assert (tmp_path / "toy.md").exists()


def test_an_installed_package_says_where_benchmarks_are(tmp_path):
    """Also in the folder of a checkout: its benchmarks are not of that package."""
    package = Path(vfsl.__file__).parent
    shutil.copytree(package, tmp_path / "vfsl", ignore=shutil.ignore_patterns("__pycache__"))
    for words in (["list"], ["run", "psi", "--quick"]):
        done = subprocess.run(
            [sys.executable, "-m", "vfsl.cli", "bench", *words],
            cwd=package.parent.parent,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith("vfsl: Experiments are part of a source checkout of vfsl")
        assert str(tmp_path) in line
        assert "pip install -e ." in line


def test_processes_of_a_run_from_anywhere_find_the_benchmarks(tmp_path):
    """The checkout is on the path of the command, and of the processes that cells start."""
    code = (
        "from vfsl.cli.bench import load_benchmarks; load_benchmarks()\n"
        "from vfsl.parallel import call_apart; from benchmarks.table import judged\n"
        "from functools import partial\n"
        "print(call_apart(partial(judged, 'a', True), 'b'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "Goal, a: b: reached.\n", done.stderr
