"""Private set intersection: our protocols and openmined-psi in one run, on the same lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.figures import Panels
from benchmarks.peers import PeerMissing, peer_python, run_peer
from benchmarks.psi_cost import measure_alignment
from benchmarks.table import Outcome
from vfsl.parallel import call_apart

# Both parties in one process, as in its own example; with the raw data structure, which is exact.
_OPENMINED = """
import time
import private_set_intersection.python as psi
n = inputs["ids"]
ours, theirs = ([f"id-{i + start}" for i in range(n)] for start in (0, n // 2))
client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
start = time.perf_counter()
setup = server.CreateSetupMessage(1e-9, n, theirs, psi.DataStructure.RAW)
request = client.CreateRequest(ours)
response = server.ProcessRequest(request)
common = client.GetIntersection(setup, response)
seconds = time.perf_counter() - start
sent = sum(len(part.SerializeToString()) for part in (setup, request, response))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) / 1000
correct = len(common) == n - n // 2
print(json.dumps({"seconds": seconds, "bytes": sent, "peak": peak, "correct": correct}))
"""


def run(quick: bool, say: Callable[[str], None]) -> Outcome:
    """100,000 ids per party with each method, a million with ecdh, ten with a helper; fewer if
    quick."""
    few, many, rsa = (20_000, 100_000, 2_000) if quick else (100_000, 1_000_000, 100_000)
    rows: list[dict[str, Any]] = []
    notes = [
        "Both parties run on this machine; peak memory counts both and all workers, and the helper "
        "of aided.",
        "Seconds begin when both lists are hashed, which takes about a second per million ids.",
        "The limit of blind RSA is two raw CRT signatures per row on all cores, measured here.",
    ]
    peer_seconds = None
    try:
        say(f"openmined-psi, {few} ids per party")
        peer = run_peer(peer_python("openmined-psi", "openmined-psi==2.0.6"), _OPENMINED, ids=few)
        peer_seconds = peer["seconds"]
        rows.append(
            {
                "method": "openmined-psi (ECDH)",
                "ids per party": few,
                "seconds": peer_seconds,
                "ids/s": 2 * few / peer_seconds,
                "bytes/id": peer["bytes"] / (2 * few),
                "peak MB": peer["peak"],
                "correct": peer["correct"],
            }
        )
    except PeerMissing as error:
        notes.append(f"openmined-psi did not run: {error}")
    for protocol, security, ids in (
        ("ecdh", 128, few),
        ("ecdh", 128, many),
        ("aided", 128, few),
        ("aided", 128, many),
        ("aided", 128, 10 * many),
        ("blind-rsa", 112, rsa),
        ("blind-rsa", 128, rsa),
    ):
        say(f"{protocol}, {security} bits, {ids} ids per party")
        rows.append(
            _row(call_apart(_measure, (protocol, security, ids)), security, peer_seconds, few)
        )
    panels = [Panels("seconds", ("method",), ("ids per party",))]
    return Outcome("psi", "Private set intersection", rows, notes, panels)


def _row(
    measured: dict[str, Any], security: int, peer_seconds: float | None, peer_ids: int
) -> dict[str, Any]:
    same_size = measured["protocol"] in ("ecdh", "aided") and measured["ids"] == peer_ids
    raw = measured["raw"]
    return {
        "method": f"vfsl {measured['protocol']} ({security}-bit security)",
        "ids per party": measured["ids"],
        "seconds": measured["seconds"],
        "ids/s": measured["rows_per_second"],
        "bytes/id": measured["bytes_per_id"],
        "peak MB": measured["peak_megabytes"],
        "correct": measured["correct"],
        "× faster than openmined-psi": peer_seconds / measured["seconds"]
        if peer_seconds and same_size
        else None,
        "× the raw limit": measured.get("ratio_to_limit"),
        "raw operations/s, one core": raw.get(
            "signatures_one_core", raw.get("multiplications_one_core")
        ),
    }


def _measure(case: tuple[str, int, int]) -> dict[str, Any]:
    """One measurement in a fresh process, so that its peak memory is its own."""
    protocol, security, ids = case
    return measure_alignment(protocol, ids, security=security)
