"""The measurements run, check their results, and say what they measured."""

from __future__ import annotations

from benchmarks.scheme_kernels import KERNELS, measure


def test_every_kernel_is_exact_under_every_scheme() -> None:
    rows = measure(("plain", "paillier-112", "bfv"), scale=0.001)
    assert {(row["scheme"], row["kernel"]) for row in rows} == {
        (name, kernel) for name in ("plain", "paillier-112", "bfv") for kernel in KERNELS
    }
    for row in rows:
        assert row["exact"], row
        assert row["seconds"] >= row["online"] >= 0
        assert row["sent_mb"] > 0
        # A ratio to a peer that was measured on more rows would flatter.
        assert "times_faster" not in row


def test_kernels_can_be_chosen() -> None:
    plain, bfv = measure(("plain", "bfv"), scale=1.0, kernels=("gradient",))
    assert plain["rows"] == bfv["rows"] == 10_000
    assert "times_faster" not in plain
    assert bfv["compared"] == bfv["seconds"]
    assert bfv["times_faster"] > 1
