"""Scores under shared weights: as exact as said, never out of their words, few bytes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crypto.share_cases import SPEAKS, run_program
from vfsl.channel import Transcript
from vfsl.crypto.shares import Session
from vfsl.crypto.words import count_bytes, pack, unpack
from vfsl.errors import BoundExceeded
from vfsl.estimators.shared.scoring import (
    LINEAR,
    LOGISTIC,
    ScoreBits,
    find_reach,
    open_shared_scores,
    settle,
)
from vfsl.values import Disclosure, Masked

SPEAKS |= {name: Disclosure(Masked, "") for name in ("size of weights", "total scores")}


@given(st.integers(8, 64), st.integers(0, 40), st.integers(0, 2**32))
def test_words_of_any_width_are_packed(width, count, seed):
    words = np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)
    content = pack(words, width)
    assert len(content) == count_bytes((count,), width)
    lowest = words & np.uint64((1 << width) - 1)
    np.testing.assert_array_equal(unpack(content, width, (count,)), lowest)


@pytest.mark.parametrize("accuracy", [LOGISTIC, LINEAR])
@pytest.mark.parametrize("norm", [2**-7, 0.5, 1.0, 8.0])
@pytest.mark.parametrize("columns", [2, 24, 300])
def test_errors_of_rounding_are_as_said(accuracy, norm, columns):
    rng = np.random.default_rng([columns, accuracy.spread])
    cells = accuracy.spread * rng.normal(size=(2000, columns))
    weights = rng.normal(size=(columns, 200))
    weights *= norm / np.linalg.norm(weights, axis=0)
    bits = ScoreBits.choose(accuracy, columns, norm)
    rounded = np.rint(cells * 2.0**bits.cells) @ np.rint(weights * 2.0**bits.weights)
    reach = np.linalg.norm(cells, axis=1).max()
    assert np.abs(rounded).max() < 2.0 ** (bits.find_width(columns, norm, reach) - 1)
    off = rounded / 2.0 ** (bits.cells + bits.weights) - cells @ weights
    assert np.sqrt((off**2).mean()) < 1.05 * accuracy.error * min(1, accuracy.spread * norm)


def score(session, own, sizes):
    """Settle weights with 16 bits, then open scores."""
    weights = {
        p: session.share("C", own.get("weights", {}).get(p), (n, 2)) for p, n in sizes.items()
    }
    settled = settle(session, weights, 16, LOGISTIC, "C")
    columns = own.get("columns")
    state = {"models": 2, "power": settled.power, "reach": 0}
    if columns is not None:
        state["back"] = np.eye(columns.shape[1])
        if session.me == "C":
            state["back"][-1, -1] = LOGISTIC.spread
        state["pieces"] = {p: one.piece for p, one in settled.pieces.items()}
    return open_shared_scores(session, columns, state, LOGISTIC, "C"), settled.power


def people(parties, rows=120, seed=0):
    rng = np.random.default_rng([seed, *map(ord, parties)])
    columns = {p: 2 * rng.normal(size=(rows, 3 + i)) for i, p in enumerate(parties)}
    columns["B"][0] *= 300  # far out
    columns["C"] = np.column_stack([columns["C"], np.ones(rows)])
    sizes = {p: x.shape[1] for p, x in columns.items()}
    weights = {p: rng.normal(size=(n, 2)) / 4 for p, n in sizes.items()}
    exact = sum(
        (x * np.where(np.arange(sizes[p]) < sizes[p] - (p == "C"), 1, 2)) @ weights[p]
        for p, x in columns.items()
    )
    whole = {p: np.rint(w * 2**16).astype(np.int64) for p, w in weights.items()}
    norm = math.sqrt(sum((w**2).sum() for w in weights.values()))
    return columns, sizes, whole, exact, norm


@pytest.mark.parametrize("parties", ["BC", "CBD", "BCDA"])
def test_rows_far_out_are_scored_too_and_only_scores_reach_the_label_holder(parties):
    columns, sizes, whole, exact, norm = people(parties)
    data = {p: {"columns": columns[p]} for p in parties}
    data["C"]["weights"] = whole
    transcript = Transcript()
    found = run_program(
        lambda session, own: score(session, own, sizes),
        tuple(parties),
        data,
        transcript=transcript,
    )
    scores, power = found["C"]
    assert 2 ** (power / 2) >= norm * 0.9
    off = scores - exact
    assert np.sqrt((off[1:] ** 2).mean()) < 1.2 * LOGISTIC.error
    assert np.abs(off[0]).max() < 0.05 * np.abs(exact[0]).max()
    assert all(found[p][0] is None for p in parties if p != "C")
    plain = run_program(
        lambda session, own: score(session, own, sizes), tuple(parties), data, hide=False
    )
    np.testing.assert_array_equal(plain["C"][0], scores)


def test_what_fits_no_word_is_refused():
    bits = ScoreBits.choose(LINEAR, 20, 1.0)
    with pytest.raises(BoundExceeded, match="too far out"):
        bits.find_width(20, 1.0, 1e12)
    assert find_reach(np.zeros((3, 2))) == 0
    assert find_reach(np.array([[3.0, 4.0]])) == math.ceil(4 * math.log2(5))
    flat = Session.plain().share("C", np.full((3, 1), 1 << 26), (3, 1))
    with pytest.raises(BoundExceeded, match="too large"):
        settle(Session.plain(), {"C": flat}, 16, LOGISTIC, "C")
