"""Lets the tests of channels import what they share, and ends the threads of their engines."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _no_threads_stay():
    from relay_case import Engine

    Engine.made.clear()
    yield
    for engine in Engine.made:
        for transport in engine.transports.values():
            transport._stop()
