"""Ends the threads of engines that the tests of channels made."""

import pytest


@pytest.fixture(autouse=True)
def _no_threads_stay():
    from tests.channel.relay_case import Engine

    Engine.made.clear()
    yield
    for engine in Engine.made:
        for transport in engine.transports.values():
            transport._stop()
