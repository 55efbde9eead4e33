"""Homomorphic schemes: our kernels and those of peers in one run, in core-seconds.

Peers get ciphertexts that were obfuscated, the same kinds of numbers, one core, and their results
are checked. Where a peer is timed on fewer rows, the time of its sums is scaled in proportion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.figures import Panels
from benchmarks.peers import PeerMissing, peer_python, run_peer
from benchmarks.scheme_kernels import measure
from benchmarks.table import Outcome, judged

# What a peer does with 20 columns, 32 bins and its own calls: encrypt, gradient, histogram,
# decrypt and repeat are what the adapter in front of this defines.
_KERNELS = """
def timed(work):
    spent = []
    for _ in range(inputs["times"]):
        start = time.process_time()
        result = work()
        spent.append(time.process_time() - start)
    return result, min(spent)
rng = np.random.default_rng(0)
rows, many, values = inputs["rows"], inputs["many"], inputs["values"]
answer = {}
residuals = rng.integers(-2**23, 2**23, size=rows)
cipher = encrypt(residuals)
for bits in (30, 20):
    columns = rng.integers(-2**(bits - 1), 2**(bits - 1), size=(rows, 20))
    sums, computing = timed(lambda: gradient(cipher, columns))
    opened, opening = timed(lambda: decrypt(sums))
    correct = opened == (residuals.astype(object) @ columns.astype(object)).tolist()
    answer[f"gradient, {bits} bits"] = [rows, computing, opening, correct]
pairs = rng.integers(-2**11 + 1, 2**11, size=(rows, 2)) @ np.array([1, 2**29])
bins = rng.integers(0, 32, size=(many, 20))
places = np.arange(many) % rows
cipher = repeat(encrypt(pairs), places)
sums, computing = timed(lambda: histogram(cipher, bins))
opened, opening = timed(lambda: decrypt(sums))
expected = np.zeros((20, 32), dtype=np.int64)
for feature in range(20):
    np.add.at(expected[feature], bins[:, feature], pairs[places])
answer["histogram"] = [many, computing, opening, opened == expected.ravel().tolist()]
plain = rng.integers(-2**29, 2**29, size=values)
cipher, encrypting = timed(lambda: encrypt(plain))
opened, opening = timed(lambda: decrypt(cipher))
answer["encrypt"] = [values, encrypting, 0.0, opened == plain.tolist()]
answer["decrypt"] = [values, 0.0, opening, opened == plain.tolist()]
print()
print(json.dumps(answer))
"""

_START = """
import os, time
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numpy as np
"""

# python-paillier is GPL: it runs in its own environment and is never imported by vfsl.
_PHE = """
from phe import paillier
public, secret = paillier.generate_paillier_keypair(n_length=2048)
def encrypt(values):
    return [public.encrypt(value) for value in values.tolist()]
def gradient(cipher, columns):
    sums = [None] * 20
    for one, row in zip(cipher, columns.tolist()):
        for place, factor in enumerate(row):
            term = one * factor
            sums[place] = term if sums[place] is None else sums[place] + term
    return sums
def histogram(cipher, bins):
    sums = [0] * 640
    for one, row in zip(cipher, (bins + 32 * np.arange(20)).tolist()):
        for place in row:
            sums[place] = one + sums[place]
    return sums
def decrypt(sums):
    return [secret.decrypt(one) if one != 0 else 0 for one in sums]
def repeat(cipher, places):
    return [cipher[place] for place in places]
"""

_HEU = """
from heu import numpy as hnp, phe
kit = hnp.setup(inputs["scheme"], 2048)
evaluator, encryptor, decryptor = kit.evaluator(), kit.encryptor(), kit.decryptor()
whole = phe.IntegerEncoderParams(1)
def encrypt(values):
    return encryptor.encrypt(kit.array(values.reshape(-1, 1), whole))
def gradient(cipher, columns):
    return evaluator.matmul(kit.array(np.ascontiguousarray(columns.T), whole), cipher)
def histogram(cipher, bins):
    everybody = np.ones((1, len(bins)), dtype=np.int8)
    return evaluator.feature_wise_bucket_sum(cipher, everybody, bins.astype(np.int8), 32, False)
def decrypt(sums):
    return decryptor.decrypt(sums).to_numpy(kit.integer_encoder(1)).ravel().tolist()
def repeat(cipher, places):
    return cipher[places.tolist()]
"""

_FATE = """
from fate_utils import paillier
secret, public, coder = paillier.keygen(2048)
def encrypt(values):
    return public.encrypt_encoded(coder.encode_i64_vec(values), True)
def gradient(cipher, columns):
    encoded = coder.encode_i64_vec(columns.ravel())
    return cipher.matmul(public, encoded, [1, len(columns)], [len(columns), 20])
def histogram(cipher, bins):
    sums = paillier.CiphertextVector.zeros(640)
    sums.iupdate(cipher, (bins + 32 * np.arange(20)).tolist(), 1, public)
    return sums
def decrypt(sums):
    return np.asarray(coder.decode_i64_vec(secret.decrypt_to_encoded(sums))).tolist()
def repeat(cipher, places):
    return cipher.slice_indexes(places.tolist())
"""


@dataclass(frozen=True)
class _Peer:
    """A peer, what pip installs for it, its calls, and the fraction of rows it is timed on."""

    name: str
    key: str
    environment: str
    packages: tuple[str, ...]
    adapter: str
    share: int
    inputs: tuple[tuple[str, str], ...] = ()


_HEU_PACKAGES = ("sf-heu", ("sf-heu==0.5.2b0",), _HEU)
PEERS = (
    _Peer("python-paillier", "Paillier 2048", "phe", ("phe==1.5.0", "gmpy2", "numpy"), _PHE, 20),
    _Peer("fate-utils", "Paillier 2048", "fate-utils", ("fate-utils==0.1.0", "numpy"), _FATE, 20),
    _Peer("sf-heu", "Paillier 2048", *_HEU_PACKAGES, 20, (("scheme", "z-paillier"),)),
    _Peer("sf-heu OU", "OU 2048", *_HEU_PACKAGES, 20, (("scheme", "ou"),)),
)

# vfsl's schemes: the name in measure, the key, and which kernels are timed. Association under
# Paillier would take minutes, and nobody uses it for that.
_ALL = ("gradient", "histogram", "association", "encrypt")
_OURS = {
    "plain": ("no encryption", _ALL),
    "paillier-112": ("Paillier 2048", ("gradient", "histogram", "encrypt")),
    "paillier": ("Paillier 3072", ("gradient", "histogram", "encrypt")),
    "bfv": ("BFV 8192", _ALL),
}
WIDE, NARROW = "gradient, 30 bits", "gradient, 20 bits"
FULL = {WIDE: 10_000, NARROW: 10_000, "histogram": 100_000, "encrypt": 100_000, "decrypt": 200}
_SUMS = (WIDE, NARROW, "histogram", "association")
_QUICK_SCALE = 0.1
# The machine may have other work: the best of this many counts, for us and for the peers.
_TIMES = 3


@dataclass(frozen=True)
class Timing:
    """Core-seconds of one kernel by one implementation, at ``rows`` rows."""

    kernel: str
    who: str
    key: str
    rows: int
    measured: int
    correct: bool
    sums: float = 0.0
    opening: float = 0.0
    encrypting: float = 0.0
    pool: float = 0.0

    @property
    def ours(self) -> bool:
        return self.who.startswith("vfsl")

    @property
    def compared(self) -> float:
        """What is compared: no encryption, except for bfv and plain, where everything counts."""
        if self.kernel in _SUMS and "Paillier" in self.key:
            return self.sums + self.opening
        return self.sums + self.opening + self.encrypting + self.pool


def run(quick: bool, say: Callable[[str], None]) -> Outcome:
    """All schemes and all peers at full size; a tenth of the rows and one peer if quick."""
    scale, times = (_QUICK_SCALE, 1) if quick else (1.0, _TIMES)
    timings: list[Timing] = []
    notes = list(_NOTES)
    if quick:
        notes.insert(
            0, "The quick form has a tenth of the rows and one peer: goals are not judged."
        )
    for peer in PEERS[:1] if quick else PEERS:
        say(f"{peer.name}, {peer.key} bits")
        try:
            timings += time_peer(peer, scale, times)
        except PeerMissing as error:
            notes.append(f"{peer.name} did not run: {error}")
    for name, (key, kernels) in _OURS.items():
        say(f"vfsl {name}: {', '.join(kernels)}")
        rows = [row for _ in range(times) for row in measure((name,), scale=scale, kernels=kernels)]
        timings += best(one for row in rows for one in of_ours(row, name.partition("-")[0], key))
    if not quick:
        notes += goals(timings)
    panels = [Panels("compared", ("by", "key"), ("kernel",))]
    return Outcome("schemes", "Homomorphic schemes", table(timings), notes, panels)


def time_peer(peer: _Peer, scale: float, times: int = 1) -> list[Timing]:
    """Run a peer's kernels in its own environment; its times at our numbers of rows."""
    share = peer.share
    sizes = {
        "times": times,
        "rows": max(int(FULL[WIDE] * scale / share), 64),
        "many": max(int(FULL["histogram"] * scale / share), 640),
        "values": FULL["decrypt"],
    }
    python = peer_python(peer.environment, *peer.packages)
    program = _START + peer.adapter + _KERNELS
    return of_peer(run_peer(python, program, **sizes, **dict(peer.inputs)), peer, scale)


def of_peer(answer: dict[str, Any], peer: _Peer, scale: float) -> list[Timing]:
    """A peer's times, scaled from the rows it was timed on to ours."""
    timings = []
    for kernel, (measured, sums, opening, correct) in answer.items():
        rows = FULL[kernel] if kernel == "decrypt" else int(FULL[kernel] * scale)
        one = Timing(kernel, peer.name, peer.key, rows, measured, bool(correct))
        if kernel == "encrypt":
            one = replace(one, encrypting=sums * rows / measured)
        else:
            # As many sums are opened from few rows as from many.
            one = replace(one, sums=sums * rows / measured, opening=opening)
        timings.append(one)
    return timings


def of_ours(row: dict[str, Any], scheme: str, key: str) -> list[Timing]:
    """A row of `benchmarks.scheme_kernels` as timings; encryption gives three of them."""
    steps, rows = row["steps"], row["rows"]
    who = f"vfsl {scheme}"
    if row["kernel"] == "encrypt":
        timed = min(rows, 1_000) if scheme == "paillier" else rows
        online = Timing("encrypt", who, key, rows, timed, row["exact"], encrypting=steps["encrypt"])
        some = FULL["decrypt"]
        return [
            replace(online, kernel="encrypt, full pool"),
            replace(online, pool=row["offline"]),
            Timing("decrypt", who, key, some, some, row["exact"], opening=steps["decrypt 200"]),
        ]
    kernel = row["kernel"]
    one = Timing(
        f"gradient, {row['column_bits']} bits" if kernel == "gradient" else kernel,
        who,
        key,
        rows,
        rows,
        row["exact"],
        sums=steps["compute"],
        opening=steps["mask"] + steps["open"] + steps["unmask"],
        encrypting=steps["encrypt"],
        pool=row["offline"],
    )
    return [one]


def best(timings: Iterable[Timing]) -> list[Timing]:
    """The fastest of each kernel; correct only if all of them were."""
    found: dict[str, Timing] = {}
    for one in timings:
        other = found.get(one.kernel, one)
        fastest = min(one, other, key=lambda t: t.compared)
        found[one.kernel] = replace(fastest, correct=one.correct and other.correct)
    return list(found.values())


def table(timings: Sequence[Timing]) -> list[dict[str, Any]]:
    """Rows by kernel; each of ours has its ratio to every peer."""
    peers = list(dict.fromkeys(one.who for one in timings if not one.ours))
    order = list(_SHAPES)
    rows = []
    for one in sorted(timings, key=lambda one: order.index(one.kernel)):
        row = {
            "kernel": _SHAPES[one.kernel].format(f"{one.rows:,}"),
            "by": one.who,
            "key": one.key,
            "measured on": "all" if one.measured == one.rows else f"1/{one.rows // one.measured}",
            "sums": one.sums or None,
            "opening": one.opening or None,
            "encryption": one.encrypting or None,
            "pool": one.pool or None,
            "compared": one.compared,
            "correct": one.correct,
        }
        for peer in peers:
            row[f"× {peer}"] = ratio(timings, one, peer)
        rows.append(row)
    return rows


def ratio(timings: Iterable[Timing], one: Timing, peer: str) -> float | None:
    """How many times faster ours is than a peer; None where that would not be fair."""
    # plain hides nothing; a longer key does more than the peer's.
    if not one.ours or one.key in ("no encryption", "Paillier 3072"):
        return None
    kernel = "encrypt" if one.kernel == "encrypt, full pool" else one.kernel
    same = [t for t in timings if t.who == peer and t.kernel == kernel and t.correct]
    return same[0].compared / one.compared if same else None


def goals(timings: Sequence[Timing]) -> list[str]:
    """What was to be reached, and whether it was."""
    bfv = _one(timings, NARROW, "BFV 8192")
    gradient = _one(timings, WIDE, "Paillier 2048")
    histogram = _one(timings, "histogram", "Paillier 2048")
    joined = _one(timings, "association", "BFV 8192")
    online = [
        (one.key, one.encrypting / one.rows * 1e6)
        for one in timings
        if one.kernel == "encrypt, full pool" and one.key != "no encryption"
    ]
    each = ", ".join(f"{micro:.2g} ({key})" for key, micro in online)
    return [
        _against("gradient with bfv ≥ 200 × the fastest peer", 200, bfv, timings),
        _against("the same, with 30-bit columns for the peers", 200, bfv, timings, kernel=WIDE),
        _against("gradient with Paillier ≥ 9 × peers' Paillier", 9, gradient, timings),
        _against("histogram with Paillier ≥ 1.8 × peers' Paillier", 1.8, histogram, timings),
        judged(
            "encryption online ≤ 10 µs per value", max(m for _, m in online) <= 10, f"{each} µs"
        ),
        judged(
            f"association 20 × 20 of {joined.rows:,} rows ≤ 1 core-second",
            joined.compared <= 1,
            f"{joined.compared:.2g}, of which {joined.pool:.2g} for the pool",
        ),
    ]


def _one(timings: Iterable[Timing], kernel: str, key: str) -> Timing:
    return next(t for t in timings if t.ours and t.kernel == kernel and t.key == key)


def _against(
    text: str, least: float, mine: Timing, timings: Iterable[Timing], kernel: str | None = None
) -> str:
    """Ours against the fastest peer with a right result; Paillier against Paillier only."""
    rivals = [
        t
        for t in timings
        if not t.ours
        and t.correct
        and t.kernel == (kernel or mine.kernel)
        and ("Paillier" not in mine.key or t.key == mine.key)
    ]
    if not rivals:
        return f"Goal, {text}: not judged, since no such peer ran."
    fastest = min(rivals, key=lambda t: t.compared)
    times = fastest.compared / mine.compared
    alone = f" (sums alone {fastest.sums / mine.sums:.3g} ×)"
    return judged(text, times >= least, f"{times:.3g} × {fastest.who}{alone}")


_SHAPES = {
    WIDE: "gradient {} × 20, 30-bit columns",
    NARROW: "gradient {} × 20, 20-bit columns",
    "association": "association 20 × 20 of {} rows",
    "histogram": "histogram {} × 20 × 32, (g, h)",
    "encrypt, full pool": "encrypt {}, from a full pool",
    "encrypt": "encrypt {}, everything included",
    "decrypt": "decrypt {}",
}

_NOTES = (
    "All figures are core-seconds: processor time of one process on one core, the best of three "
    "(in the quick form: of one) for every library.",
    "compared: for Paillier and for the peers, gradient, histogram and association consist of the "
    "sums and their opening, starting from encrypted values; our Paillier also masks what the key "
    "holder opens, the peers do not. For bfv and plain everything is included: encryption, its "
    "randomness, masks, opening.",
    "Peers start from obfuscated ciphertexts. Their histograms use each of a few hundred "
    "ciphertexts several times, since adding them costs the same. They have no pool of randomness, "
    "so 'encrypt from a full pool' is compared with all of their encryption.",
    "Our Paillier fills its pool for 1,000 values in 'encrypt', and for 64 in gradient and "
    "histogram; the time of the pool is extrapolated.",
    "In the gradient, bfv's plaintext space has room for columns of at most 20 bits; its encrypted "
    "values have 24 bits like the others'. 200 values fit into one ciphertext there.",
    "Ratios are shown at equal key size: 2048-bit Paillier has about 112-bit security, 3072-bit "
    "Paillier and bfv have 128-bit security, 2048-bit OU about 112.",
)
