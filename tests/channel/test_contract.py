"""The public contract suite on every channel of ours."""

from functools import partial

import pytest

from vfsl.channel import run_together
from vfsl.testing.channels import CHANNEL_CHECKS

RUNNERS = {
    "memory": run_together,
    "sealed memory": partial(run_together, sealed=True),
    "processes": partial(run_together, on="processes"),
    "sealed processes": partial(run_together, on="processes", sealed=True),
}
# Sealing and processes are each held by the whole suite; together by what could break only there.
TOGETHER = {"carries_every_type", "both_send_large_then_receive", "reports_a_failed_peer"}
CASES = [
    (runner, check)
    for runner in RUNNERS
    for check in CHANNEL_CHECKS
    if runner != "sealed processes" or check in TOGETHER
]


@pytest.mark.parametrize(("runner", "check"), CASES)
def test_channel_keeps_the_contract(runner, check):
    CHANNEL_CHECKS[check](RUNNERS[runner])
