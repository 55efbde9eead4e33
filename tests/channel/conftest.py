"""Ends the threads of the engines that a test of channels has made."""

import pytest

from tests.channel.relay_case import Engine


@pytest.fixture(autouse=True)
def _no_threads_stay():
    Engine.made.clear()
    yield
    for engine in Engine.made:
        for transport in engine.transports.values():
            transport._stop(0.0)
