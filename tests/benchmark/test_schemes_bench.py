"""The schemes experiment: what is compared with what, and what it says when a peer is missing."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from benchmarks import schemes
from benchmarks.peers import PeerMissing
from benchmarks.schemes import (
    NARROW,
    PEERS,
    WIDE,
    Timing,
    best,
    goals,
    of_ours,
    of_peer,
    ratio,
    table,
)

PHE, FATE, HEU, OU = PEERS


def _answer(gradient: float, histogram: float, *, correct: bool = True) -> dict[str, list[object]]:
    """What a peer's process prints, timed on a twentieth of the rows."""
    return {
        WIDE: [500, gradient / 20, 0.5, correct],
        NARROW: [500, 0.8 * gradient / 20, 0.5, correct],
        "histogram": [5_000, histogram / 20, 2.0, correct],
        "encrypt": [200, 2.0, 0.0, correct],
        "decrypt": [200, 0.0, 0.6, correct],
    }


def _measured(kernel: str, **facts: object) -> dict[str, object]:
    steps = {"encrypt": 0.25, "compute": 4.0, "mask": 0.25, "open": 0.5, "unmask": 0.25}
    row = {"kernel": kernel, "rows": 10_000, "exact": True, "offline": 8.0, "steps": steps}
    return row | facts


def _ours(gradient: float = 4.0, histogram: float = 5.0, bfv: float = 0.1) -> list[Timing]:
    paillier, lattice = "Paillier 2048", "BFV 8192"
    return [
        Timing(WIDE, "vfsl paillier", paillier, 10_000, 10_000, True, sums=gradient),
        Timing(NARROW, "vfsl bfv", lattice, 10_000, 10_000, True, sums=bfv / 2, pool=bfv / 2),
        Timing("histogram", "vfsl paillier", paillier, 100_000, 100_000, True, sums=histogram),
        Timing("association", "vfsl bfv", lattice, 10_000, 10_000, True, sums=0.5, pool=0.25),
        Timing("encrypt, full pool", "vfsl bfv", lattice, 100_000, 1, True, encrypting=0.5),
        Timing("encrypt, full pool", "vfsl paillier", paillier, 100_000, 1, True, encrypting=0.7),
    ]


def test_a_peers_sums_are_scaled_to_our_rows_and_its_opening_is_not():
    timings = {one.kernel: one for one in of_peer(_answer(50, 24), PHE, 1.0)}
    gradient, histogram = timings[WIDE], timings["histogram"]
    assert (gradient.rows, gradient.measured) == (10_000, 500)
    assert gradient.sums == pytest.approx(50)
    assert gradient.opening == 0.5
    assert histogram.compared == pytest.approx(26)
    assert timings["encrypt"].compared == pytest.approx(1000)
    assert timings["decrypt"].compared == pytest.approx(0.6)
    assert timings["decrypt"].rows == 200


def test_smaller_sizes_scale_with_ours():
    timings = {one.kernel: one for one in of_peer(_answer(50, 24), PHE, 0.1)}
    assert timings[WIDE].sums == pytest.approx(5)
    assert timings["encrypt"].rows == 10_000


def test_paillier_is_compared_from_encrypted_values_and_bfv_with_everything():
    (paillier,) = of_ours(_measured("gradient", column_bits=30), "paillier", "Paillier 2048")
    (bfv,) = of_ours(_measured("gradient", column_bits=20), "bfv", "BFV 8192")
    assert paillier.compared == pytest.approx(4 + 1)
    assert bfv.compared == pytest.approx(4 + 1 + 0.25 + 8)
    assert (paillier.kernel, bfv.kernel) == (WIDE, NARROW)


def test_encryption_gives_online_all_in_and_decryption():
    steps = {"encrypt": 0.5, "decrypt 200": 0.25}
    row = _measured("encrypt", rows=100_000, steps=steps)
    online, whole, opened = of_ours(row, "paillier", "Paillier 2048")
    assert (online.kernel, whole.kernel, opened.kernel) == (
        "encrypt, full pool",
        "encrypt",
        "decrypt",
    )
    assert online.compared == 0.5
    assert whole.compared == 8.5
    assert opened.compared == 0.25
    assert online.measured == 1_000


def test_ratios_are_shown_only_where_they_are_fair():
    peers = of_peer(_answer(50, 24), PHE, 1.0)
    paillier = Timing(WIDE, "vfsl paillier", "Paillier 2048", 10_000, 10_000, True, sums=5.05)
    assert ratio(peers, paillier, "python-paillier") == pytest.approx(10)
    assert ratio(peers, replace(paillier, key="Paillier 3072"), "python-paillier") is None
    assert ratio(peers, replace(paillier, key="no encryption"), "python-paillier") is None
    assert ratio(peers, paillier, "sf-heu") is None
    assert ratio(peers, peers[0], "python-paillier") is None
    wrong = of_peer(_answer(50, 24, correct=False), PHE, 1.0)
    assert ratio(wrong, paillier, "python-paillier") is None


def test_encryption_from_a_pool_is_set_against_all_of_a_peers_encryption():
    peers = of_peer(_answer(50, 24), PHE, 1.0)
    online = Timing("encrypt, full pool", "vfsl bfv", "BFV 8192", 100_000, 1, True, encrypting=2.0)
    assert ratio(peers, online, "python-paillier") == pytest.approx(500)


def test_goals_take_the_fastest_peer_and_for_paillier_the_fastest_paillier():
    timings = [
        *_ours(),
        *of_peer(_answer(49.5, 24), PHE, 1.0),
        *of_peer(_answer(39.5, 10), FATE, 1.0),
        *of_peer(_answer(30.5, 3), OU, 1.0),
    ]
    bfv, wide, paillier, histogram, online, association = goals(timings)
    assert "249 × sf-heu OU (sums alone 488 ×): reached" in bfv
    assert "310 × sf-heu OU (sums alone 610 ×): reached" in wide
    assert "10 × fate-utils (sums alone 9.88 ×): reached" in paillier
    assert "2.4 × fate-utils (sums alone 2 ×): reached" in histogram
    assert "5 (BFV 8192), 7 (Paillier 2048) µs: reached" in online
    assert "0.75, of which 0.25 for the pool: reached" in association


def test_missed_goals_are_said():
    timings = [*_ours(gradient=5, histogram=9, bfv=1.0), *of_peer(_answer(40, 10), FATE, 1.0)]
    lines = goals(timings)
    assert ["NOT reached" in line for line in lines] == [True] * 4 + [False] * 2


def test_a_wrong_peer_is_no_rival():
    timings = [*_ours(), *of_peer(_answer(1, 1, correct=False), FATE, 1.0)]
    assert all("not judged, since no such peer ran" in line for line in goals(timings)[:4])


def test_the_best_of_several_is_taken_and_one_wrong_result_spoils_it():
    one = Timing("histogram", "vfsl bfv", "BFV 8192", 10, 10, True, sums=2.0)
    quick = replace(one, sums=1.0)
    assert best([one, quick, replace(one, kernel="decrypt")]) == [
        quick,
        replace(one, kernel="decrypt"),
    ]
    assert best([replace(one, correct=False), quick]) == [replace(quick, correct=False)]


def test_the_table_says_on_which_share_a_peer_was_timed():
    rows = table([*_ours(), *of_peer(_answer(50, 24), PHE, 1.0)])
    by = {(row["kernel"], row["by"]): row for row in rows}
    peer = by["gradient 10,000 × 20, 30-bit columns", "python-paillier"]
    assert peer["measured on"] == "1/20"
    assert peer["× python-paillier"] is None
    mine = by["gradient 10,000 × 20, 20-bit columns", "vfsl bfv"]
    assert mine["measured on"] == "all"
    assert mine["× python-paillier"] == pytest.approx(405)
    assert [row["kernel"][:5] for row in rows][:4] == ["gradi"] * 4


def test_without_peers_a_note_has_pips_error(monkeypatch):
    def missing(name, *packages):
        raise PeerMissing(f"pip install {packages[0]}: ERROR: No matching distribution")

    monkeypatch.setattr(schemes, "peer_python", missing)
    monkeypatch.setattr(schemes, "_QUICK_SCALE", 0.001)
    monkeypatch.setattr(schemes, "_OURS", {name: schemes._OURS[name] for name in ("plain", "bfv")})
    heard: list[str] = []
    outcome = schemes.run(True, heard.append)
    assert "python-paillier did not run: pip install phe==1.5.0: ERROR: No matching" in str(
        outcome.notes
    )
    assert "goals are not judged" in outcome.notes[0]
    assert {row["by"] for row in outcome.rows} == {"vfsl plain", "vfsl bfv"}
    assert all(row["correct"] for row in outcome.rows)
    assert heard[0] == "python-paillier, Paillier 2048 bits"
    assert "| gradient 64 × 20, 20-bit columns |" in outcome.markdown()


# A peer of plain integers: it shows that the kernels around an adapter check what they should.
_HONEST = """
def encrypt(values): return values.copy()
def gradient(cipher, columns): return cipher @ columns
def histogram(cipher, bins):
    sums = np.zeros(640, dtype=np.int64)
    np.add.at(sums, bins + 32 * np.arange(20), cipher[:, None])
    return sums
def decrypt(sums): return sums.tolist()
def repeat(cipher, places): return cipher[places]
"""


@pytest.mark.parametrize("change", ["", "cipher + 1", "bins // 2"])
def test_the_kernels_notice_wrong_results(monkeypatch, change):
    adapter = _HONEST
    if change == "cipher + 1":
        adapter = adapter.replace("return cipher @ columns", "return (cipher + 1) @ columns")
    if change == "bins // 2":
        adapter = adapter.replace("sums, bins + 32", "sums, bins // 2 + 32")
    monkeypatch.setattr(schemes, "peer_python", lambda name, *packages: sys.executable)
    timings = schemes.time_peer(replace(PHE, adapter=adapter), 0.001)
    correct = {one.kernel: one.correct for one in timings}
    assert correct == {
        WIDE: change != "cipher + 1",
        NARROW: change != "cipher + 1",
        "histogram": change != "bins // 2",
        "encrypt": True,
        "decrypt": True,
    }
