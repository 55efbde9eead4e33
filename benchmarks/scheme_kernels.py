"""How fast the schemes are: the sums that training needs, in core-seconds, results checked.

Everything runs in this process (one worker), so processor time is core-seconds. "offline" is
randomness that can be computed ahead; "online" is everything else, the key holder included.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from typing import Any

import numpy as np

from vfsl.crypto import make_scheme
from vfsl.crypto.fixed import fold
from vfsl.crypto.opening import SecretKey
from vfsl.crypto.scheme import EncryptedArray, PublicKey, Scheme
from vfsl.crypto.work import using_workers
from vfsl.values import Array

# python-paillier with 2048 bits on a similar machine. Its gradient and histogram start from
# obfuscated ciphertexts: encrypting them takes it another 11 ms per value.
PEER_SECONDS = {"gradient": 50.0, "histogram": 24.0, "encrypt": 1120.0}

DEFAULT_SCHEMES = ("plain", "paillier-112", "bfv")


class _Bench:
    """One scheme with temporary keys, data drawn from a seed, and processor time by step."""

    def __init__(self, made: Scheme, scale: float, seed: int) -> None:
        self.name = made.name
        self.public: PublicKey
        self.secret: SecretKey
        self.public, self.secret = made.generate()
        self.scale = scale
        self.seed = seed
        self.start()

    def start(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.steps: dict[str, float] = {}
        self.sent = 0.0

    def rows(self, full: int) -> int:
        return max(int(full * self.scale), 64)

    def timed(self, step: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        self.steps[step] = self.steps.get(step, 0.0) + time.process_time() - start
        return result

    def encrypt(self, values: Array, use: Any) -> EncryptedArray:
        """Encrypt from a pool that was filled beforehand, and send."""
        first = self.public.encrypt(values[:64], use=use)
        numbers = len(first.to_wire().payload.get("numbers", ()))
        if self.name == "paillier":
            # Filling the pool takes minutes. 64 random numbers that are used again and again take
            # the same time (and protect nothing); the cost of the others is extrapolated.
            pool: Any = self.public.pool  # type: ignore[attr-defined]
            needed = len(values) * numbers // 64
            few = self.timed("offline", lambda: pool.take(64))
            self.steps["offline"] *= needed / 64
            pool._ready.extend(islice(cycle(few), needed))
        elif self.name == "bfv":
            whole = self.public.encrypt(values, use=use)
            count = len(whole.to_wire().payload["numbers"])
            self.timed("offline", lambda: self.public.prepare(count))
        array: EncryptedArray = self.timed("encrypt", lambda: self.public.encrypt(values, use=use))
        self.sent += _megabytes(array.to_wire().payload)
        return array

    def opened(self, sums: EncryptedArray, expected: Array) -> dict[str, Any]:
        """Open through the key holder, and compare."""
        if self.name == "bfv":
            count = len(sums.raws)  # type: ignore[attr-defined]
            self.timed("offline", lambda: self.public.prepare(count))
        request, mask = self.timed("mask", sums.mask)
        answer = self.timed("open", lambda: self.secret.open(request, sums.shape))
        result = self.timed("unmask", lambda: mask.remove(answer))
        self.sent += _megabytes(request.payload) + _megabytes(answer.payload)
        return {"exact": bool((result == expected).all())}


def measure(
    schemes: Iterable[str] = DEFAULT_SCHEMES,
    *,
    scale: float = 1.0,
    seed: int = 0,
    kernels: Iterable[str] | None = None,
) -> list[dict[str, Any]]:
    """Measure every kernel under every scheme.

    Parameters
    ----------
    schemes : iterable of str
        Names, with a security level behind a dash if it is not 128.
    scale : float
        Share of the full number of rows; 1.0 for figures to quote.
    seed : int
        Of the data only.
    kernels : iterable of str, optional
        Default: all of ``KERNELS``.

    Returns
    -------
    list of dict
        One for each scheme and kernel: ``scheme``, ``kernel``, ``rows``, ``seconds`` in all,
        ``offline``, ``online``, ``steps``, ``sent_mb``, ``exact``, ``peak_mb`` of the process so
        far. At full scale also ``compared``, the seconds of what a peer was measured at (all but
        encryption for gradient and histogram; encryption with its randomness for encrypt), and
        ``times_faster`` than that peer.
    """
    rows = []
    wanted = list(KERNELS if kernels is None else kernels)
    for name in schemes:
        kind, _, security = name.partition("-")
        bench = _Bench(make_scheme(kind, int(security or 128)), scale, seed)
        for kernel in wanted:
            bench.start()
            with using_workers(1):
                row = {"scheme": name, "kernel": kernel} | KERNELS[kernel](bench)
            rows.append(_finished(row, bench))
    return rows


def gradient(bench: _Bench) -> dict[str, Any]:
    """Logistic regression: ⟨residual, column⟩ of 10,000 rows and 20 columns.

    Paillier gets 30-bit columns, as its peers were measured; bfv and plain 20-bit ones, since
    24 + 20 bits and the rows fill bfv's plaintext space.
    """
    rows = bench.rows(10_000)
    bits = 29 if bench.name == "paillier" else 19
    residuals = bench.rng.integers(-(2**23), 2**23, size=rows)
    columns = bench.rng.integers(-(2**bits), 2**bits, size=(rows, 20))
    array = bench.encrypt(residuals, "inner")
    sums = bench.timed("compute", lambda: array.inner(columns))
    exact = residuals.astype(object) @ columns.astype(object)
    return {"rows": rows, "column_bits": bits + 1} | bench.opened(sums, exact)


def association(bench: _Bench) -> dict[str, Any]:
    """Spearman: centred ranks of 20 columns against 20 columns over 10,000 rows."""
    rows = bench.rows(10_000)
    ranks = np.argsort(bench.rng.random((rows, 40)), axis=0) - rows // 2
    ours, theirs = ranks[:, :20], ranks[:, 20:]
    array = bench.encrypt(theirs, "inner")
    sums = bench.timed("compute", lambda: array.inner(ours))
    return {"rows": rows} | bench.opened(sums, theirs.T @ ours)


def histogram(bench: _Bench) -> dict[str, Any]:
    """Trees: sums of (g, h), 12 bits each and folded, by 32 bins of 20 features."""
    rows = bench.rows(100_000)
    pairs = fold(bench.rng.integers(-(2**11) + 1, 2**11, size=(rows, 2)), 29)
    bins = bench.rng.integers(0, 32, size=(rows, 20))
    expected = np.zeros((20, 32), dtype=np.int64)
    for feature, codes in enumerate(bins.T):
        np.add.at(expected[feature], codes, pairs)
    array = bench.encrypt(pairs, "sum_by")
    sums = bench.timed("compute", lambda: array.sum_by_many(bins, 32))
    return {"rows": rows} | bench.opened(sums, expected)


def encrypt(bench: _Bench) -> dict[str, Any]:
    """Encrypt 100,000 values of 30 bits from a full pool, decrypt 200 of them.

    Paillier fills its pool for 1,000 values only; times are taken in proportion.
    """
    wanted = bench.rows(100_000)
    rows = min(wanted, 1_000) if bench.name == "paillier" else wanted
    values = bench.rng.integers(-(2**29), 2**29, size=rows)
    numbers = rows if bench.name == "paillier" else -(-rows // 8192)
    bench.timed("offline", lambda: bench.public.prepare(numbers))
    array = bench.timed("encrypt", lambda: bench.public.encrypt(values, use="add"))
    bench.sent = _megabytes(array.to_wire().payload) * wanted / rows
    some = bench.public.encrypt(values[:200], use="add")
    opened = bench.timed("decrypt 200", lambda: bench.secret.decrypt(some))
    for step in ("offline", "encrypt"):
        bench.steps[step] *= wanted / rows
    return {
        "rows": wanted,
        "exact": bool((opened == values[:200]).all()),
        "microseconds_per_value": bench.steps["encrypt"] / wanted * 1e6,
        "offline_microseconds_per_value": bench.steps["offline"] / wanted * 1e6,
    }


KERNELS: dict[str, Callable[[_Bench], dict[str, Any]]] = {
    "gradient": gradient,
    "association": association,
    "histogram": histogram,
    "encrypt": encrypt,
}


def _finished(row: dict[str, Any], bench: _Bench) -> dict[str, Any]:
    offline = bench.steps.pop("offline", 0.0)
    online = sum(bench.steps.values())
    row |= {"seconds": offline + online, "offline": offline, "online": online}
    row |= {"steps": bench.steps, "sent_mb": bench.sent, "peak_mb": _peak_megabytes()}
    # plain encrypts nothing, so a ratio would be meaningless.
    if bench.scale == 1.0 and bench.name != "plain" and row["kernel"] in PEER_SECONDS:
        row["compared"] = _compared(row, bench)
        row["times_faster"] = PEER_SECONDS[row["kernel"]] / row["compared"]
    return row


def _compared(row: dict[str, Any], bench: _Bench) -> float:
    encrypting = float(bench.steps["encrypt"])
    if row["kernel"] == "encrypt":
        return encrypting + float(row["offline"])
    if bench.name == "paillier":
        return float(row["online"]) - encrypting
    # bfv's randomness serves encryption and masks alike: all of it counts against us.
    return float(row["seconds"])


def _megabytes(payload: dict[str, Any]) -> float:
    return sum(value.nbytes for value in payload.values() if isinstance(value, np.ndarray)) / 1e6


def _peak_megabytes() -> float:
    if sys.platform == "win32":
        return float("nan")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3
