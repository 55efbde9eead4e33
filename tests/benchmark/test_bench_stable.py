"""Quick forms give the same table for the same seed, timings aside."""

from __future__ import annotations

import json

import pytest

from benchmarks import EXPERIMENTS, run_experiment

# Needs processes of an engine, and is a timing from end to end.
LEFT_OUT = {"deploy"}
NAMES = ("sums", "opening", "encryption", "pool", "s per epoch")
TIMED = ("core-s", "wall s", "seconds", "/s", " s", "MB", "×", "operations", "compared", "bytes")


def steady(row):
    """The cells of a row that no clock and no allocator has touched."""
    return {
        name: value
        for name, value in row.items()
        if not (name in NAMES or any(t in name for t in TIMED))
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name not in LEFT_OUT])
def test_quick_forms_are_stable(name, monkeypatch, tmp_path):
    monkeypatch.setenv("VFSL_BENCH_CACHE", str(tmp_path))
    first, second = (run_experiment(name, quick=True) for _ in range(2))
    one, two = (json.dumps([steady(row) for row in each.rows]) for each in (first, second))
    assert one == two
    assert any(steady(row) for row in first.rows)
