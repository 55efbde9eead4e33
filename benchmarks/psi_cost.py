"""What alignment costs on this machine: rates, bytes per id, peak memory, raw operations."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import PeakMemory
from vfsl.align import Alignment, CurveKey, RsaKey, align, prepare_ids
from vfsl.align.blind_rsa import in_threads, to_bytes, to_numbers
from vfsl.align.ids import DIGEST_BYTES, ByteRows, to_rows
from vfsl.channel import Transcript
from vfsl.parallel import count_cores


def raw_rates(protocol: str = "blind-rsa", security: int = 128, ids: int = 512) -> dict[str, Any]:
    """Operations per second of the method's one expensive step, on one core and on all.

    For blind RSA that is the unchecked CRT signature, the floor of anything built on this
    big-number library. For ecdh it is hashing to the curve with one multiplication, and one
    multiplication alone.
    """
    random = to_rows(os.urandom(DIGEST_BYTES * ids), DIGEST_BYTES)
    rates: dict[str, Any] = {"protocol": protocol, "security": security, "cores": count_cores()}
    if protocol == "aided":
        return rates  # it has no such step
    if protocol == "ecdh":
        scalar = CurveKey.generate()
        rates["hashed_multiplications_one_core"] = ids / _seconds(lambda: scalar.values(random))
        points = to_rows(scalar.public * ids, DIGEST_BYTES)
        rates["multiplications_one_core"] = ids / _seconds(lambda: scalar.answer(points))
        return rates
    key = RsaKey.generate(security)
    elements = to_rows(os.urandom(key.width * ids), key.width)

    def sign(rows: ByteRows) -> bytes:
        numbers = [number % key.modulus for number in to_numbers(rows)]
        return to_bytes(key.sign_crt(numbers), key.width)

    rates["signatures_one_core"] = ids / _seconds(lambda: sign(elements))
    start = time.process_time()
    rates["signatures_all_cores"] = ids / _seconds(lambda: in_threads(sign, key.width, elements))
    rates["cpu_seconds_a_signature"] = (time.process_time() - start) / ids
    return rates


def measure_alignment(
    protocol: str = "blind-rsa",
    ids: int = 100_000,
    *,
    shared: float = 0.5,
    security: int = 128,
    state: dict[str, Path] | None = None,
    check: bool = True,
) -> dict[str, Any]:
    """Align two lists of ``ids`` ids in this process and report what it took.

    Parameters
    ----------
    protocol : {"blind-rsa", "ecdh", "aided"}
        The method.
    ids : int
        Ids per party.
    shared : float
        Fraction of ids that both parties have.
    security : {128, 112}
        Key size of blind RSA.
    state : mapping of "A" and "B" to folders, optional
        Where the parties keep values, to measure a second run.
    check : bool
        Compare the plan with the known overlap.

    Returns
    -------
    dict
        seconds, rows_per_second (both lists), bytes_per_id (both lists), peak_megabytes; for blind
        RSA also limit_seconds, the time of two raw signatures per row on all cores (measured
        before and after), ratio_to_limit, and cpu_ratio_to_limit, the same in processor time,
        which other work on the machine disturbs less.
    """
    gap = ids - round(shared * ids)
    lists = {
        "A": prepare_ids("A", range(ids)),
        "B": prepare_ids("B", range(gap, gap + ids)),
    }
    folders = state or {}
    how = {
        party: Alignment(protocol=protocol, security=security, state=folders.get(party))
        for party in lists
    }
    transcript = Transcript()
    before = raw_rates(protocol, security)
    with PeakMemory() as memory:
        start, cpu_start = time.perf_counter(), time.process_time()
        plan = align(lists, hub="B", how=how, transcript=transcript)
        seconds = time.perf_counter() - start
        cpu_seconds = time.process_time() - cpu_start
    after = raw_rates(protocol, security)
    sent = sum(entry.bytes for entry in transcript.entries)
    result: dict[str, Any] = {
        "protocol": protocol,
        "ids": ids,
        "overlap": len(plan.overlap),
        "seconds": seconds,
        "rows_per_second": 2 * ids / seconds,
        "bytes_per_id": sent / (2 * ids),
        "peak_megabytes": memory.megabytes,
        "raw": before,
    }
    if protocol == "blind-rsa":
        result |= {"security": security, **_against_limit(seconds, cpu_seconds, ids, before, after)}
    if check:
        rows = plan["A"].overlap - gap, plan["B"].overlap
        result["correct"] = bool(len(rows[0]) == ids - gap and np.array_equal(*rows))
    return result


def _against_limit(
    seconds: float, cpu_seconds: float, ids: int, before: dict[str, Any], after: dict[str, Any]
) -> dict[str, float]:
    """A blind-RSA alignment compared with two raw signatures per row."""
    limit = 2 * ids * 2 / (before["signatures_all_cores"] + after["signatures_all_cores"])
    name = "cpu_seconds_a_signature"
    cpu_limit = 2 * ids * (before[name] + after[name]) / 2
    return {
        "limit_seconds": limit,
        "ratio_to_limit": seconds / limit,
        "cpu_ratio_to_limit": cpu_seconds / cpu_limit,
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
