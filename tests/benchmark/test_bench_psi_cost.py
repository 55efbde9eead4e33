"""The measurement functions report what a benchmark needs, and only right alignments."""

import time

import numpy as np
import pytest

from benchmarks.memory import PeakMemory
from benchmarks.psi_cost import measure_alignment, raw_rates


@pytest.mark.parametrize("protocol", ["blind-rsa", "ecdh"])
def test_measure_alignment(protocol):
    result = measure_alignment(protocol, 200, shared=0.25, security=112)
    assert result["correct"]
    assert result["overlap"] == 50
    assert result["rows_per_second"] == pytest.approx(400 / result["seconds"])
    # 16 bytes a tag, two elements an asked id, 8 bytes a plan row, frames
    element = 256 if protocol == "blind-rsa" else 32
    least = (16 + 2 * element + 8 * 0.25) / 2
    assert least < result["bytes_per_id"] < least + 30
    assert ("cpu_ratio_to_limit" in result) == (protocol == "blind-rsa")


def test_raw_rates_are_rates():
    rates = raw_rates("blind-rsa", security=112, ids=32)
    assert rates["signatures_one_core"] > 10
    assert rates["signatures_all_cores"] > 10


def test_peak_memory_sees_a_large_array():
    with PeakMemory(interval=0.005) as before:
        time.sleep(0.1)
    with PeakMemory(interval=0.005) as after:
        block = np.ones(20_000_000)
        time.sleep(0.1)
    if before.megabytes is None:
        pytest.skip("no /proc on this system")
    assert after.megabytes > before.megabytes + block.nbytes / 1e6 - 40
