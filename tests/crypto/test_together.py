"""Several operations in one round: the same integers as one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from tests.crypto.share_cases import DEALER, run_plain, run_program
from vfsl.channel import Transcript
from vfsl.channel.rounds import count_rounds
from vfsl.crypto.shares import Session, concatenate
from vfsl.crypto.together import Cut, cut_all, decide_all, multiply_all, scale_rows
from vfsl.errors import BoundExceeded

PARTIES = [("A", "B"), ("A", "B", "C"), ("A", "B", "C", "D")]


def whole(rng, shape, bits):
    return rng.integers(-(1 << bits), 1 << bits, size=shape)


def cut_together(session, held):
    a = session.share("A", held.get("a"), (7,), width=48)
    b = session.share("B", held.get("b"), (2, 3))
    found = cut_all([Cut.truncate(a, 11), Cut.sign(b), Cut.truncate(b, 40)])
    return [one.open(name="result") for one in found]


@pytest.mark.parametrize("parties", PARTIES)
def test_cuts_are_exact(parties):
    rng = np.random.default_rng(0)
    a, b = whole(rng, (7,), 40), whole(rng, (2, 3), 60)
    a[:3] = [1 << 10, -(1 << 10), (1 << 10) - 1]  # halves go up
    b[0] = [0, -1, 1]
    found = run_program(cut_together, parties, {"A": {"a": a}, "B": {"b": b}})
    expected = [(a + (1 << 10)) >> 11, -(b < 0).astype(int), (b + (1 << 39)) >> 40]
    for party in parties:
        for one, right in zip(found[party], expected, strict=True):
            np.testing.assert_array_equal(one, right)
    assert found[DEALER] == [None] * 3


def test_cuts_take_the_rounds_of_one():
    def cut(session, held, together):
        a = session.share("A", held.get("a"), (5,), width=48)
        cuts = [Cut.truncate(a, 11), Cut.truncate(a, 30)]
        if together:
            cut_all(cuts)
        else:
            a.truncate(30)

    rounds = []
    for together in (True, False):
        transcript = Transcript()
        run_program(
            lambda session, held, t=together: cut(session, held, t),
            ("A", "B"),
            {"A": {"a": np.arange(5)}},
            transcript=transcript,
        )
        rounds.append(count_rounds(transcript))
    assert rounds[0] == rounds[1]


def test_a_cut_that_could_overflow_is_refused():
    session = Session.rehearse(("A", "B"))
    value = session.share("A", None, (2,), width=40, bound=1 << 38)
    with pytest.raises(BoundExceeded, match="40 bits can be shortened"):
        cut_all([Cut.truncate(value, 5)])


def multiply(session, held):
    a = session.share("A", held.get("a"), (2, 3, 4))
    b = session.share("B", held.get("b"), (4, 2))
    c = session.share("B", held.get("c"), (1, 4), width=40)
    found = multiply_all([(a, b), (c, b)])
    return [one.open(name="result") for one in found], [one.width for one in found]


@pytest.mark.parametrize("parties", PARTIES)
def test_products_together(parties):
    rng = np.random.default_rng(1)
    a, b, c = whole(rng, (2, 3, 4), 20), whole(rng, (4, 2), 15), whole(rng, (1, 4), 20)
    data = {"A": {"a": a}, "B": {"b": b, "c": c}}
    found, widths = run_program(multiply, parties, data)["B"]
    np.testing.assert_array_equal(found[0], a @ b)
    np.testing.assert_array_equal(found[1], c @ b)
    assert widths == [64, 40]
    np.testing.assert_array_equal(run_plain(multiply, data)[0][0], a @ b)


def scale(session, held):
    matrix = session.private("B", held.get("m"), (5, 2), width=48)
    values = session.share("A", held.get("v"), (5, 2), width=56)
    found = scale_rows(matrix, values)
    return found.open(name="result"), found.width


@pytest.mark.parametrize("parties", PARTIES)
def test_rows_are_scaled(parties):
    rng = np.random.default_rng(2)
    m, v = whole(rng, (5, 2), 20), whole(rng, (5, 2), 20)
    data = {"B": {"m": m}, "A": {"v": v}}
    for found, width in (run_program(scale, parties, data)["A"], run_plain(scale, data)):
        np.testing.assert_array_equal(found, m * v)
        assert width == 48


def decide(session, held):
    bits = session.share("A", held.get("bits"), (3,))
    return decide_all(session, bits), decide_all(session, concatenate([bits, bits]))


@pytest.mark.parametrize("parties", PARTIES)
def test_everybody_learns_the_bits(parties):
    found = run_program(decide, parties, {"A": {"bits": np.array([1, 0, 1])}})
    right = [True, False, True]
    assert all(found[party] == (right, right * 2) for party in (*parties, DEALER))


def test_a_rehearsal_decides_no():
    assert decide(Session.rehearse(("A", "B")), {}) == ([False] * 3, [False] * 6)
