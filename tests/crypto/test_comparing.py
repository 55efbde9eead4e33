"""Comparisons with the dealer's numbers, and ands of shared bits, beside plain integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crypto.share_cases import NAMES, run_program
from vfsl.channel import Transcript, count_rounds
from vfsl.crypto.comparing import compare, multiply_bits, to_numbers
from vfsl.crypto.session import Exchange
from vfsl.crypto.shares import Session


def gather(results, parties, join=np.bitwise_xor):
    """The value from the pieces of all data holders."""
    return join.reduce([results[party] for party in parties])


def comparing(shown, hidden, length):
    """A program that compares public numbers with numbers that only the dealer is given."""

    def program(session, _):
        return compare(session, shown, lambda: hidden, length)

    return program


EDGES = [1, 2, 3, 4, 5, 7, 8, 9, 16, 19, 20, 21, 24, 25, 32, 33, 47, 48, 61, 62]


@pytest.mark.parametrize("length", EDGES)
@pytest.mark.parametrize("count", [2, 3])
def test_comparisons_at_the_edges(length, count):
    top = (1 << length) - 1
    values = sorted({0, 1, top // 2, top // 2 + 1, max(top - 1, 0), top})
    shown, hidden = (grid.ravel() for grid in np.meshgrid(values, values))
    shown, hidden = shown.astype(np.uint64), hidden.astype(np.uint64)
    parties = NAMES[:count]
    results = run_program(comparing(shown, hidden, length), parties, {})
    assert (gather(results, parties) == (shown < hidden)).all()


@settings(max_examples=30)
@given(st.data(), st.integers(1, 62), st.integers(2, 4))
def test_comparisons_of_any_numbers(data, length, count):
    """Half of them agree in their leading digits, where all ands matter."""
    near = st.integers(0, (1 << length) - 1).flatmap(
        lambda one: st.tuples(
            st.just(one), st.integers(0, 40).map(lambda bit: one ^ (1 << (bit % length)))
        )
    )
    any_two = st.tuples(*[st.integers(0, (1 << length) - 1)] * 2)
    pairs = data.draw(st.lists(near | any_two, min_size=1, max_size=12))
    shown, hidden = np.array(pairs, dtype=np.uint64).T
    parties = NAMES[:count]
    results = run_program(comparing(shown, hidden, length), parties, {})
    assert (gather(results, parties) == (shown < hidden)).all()
    assert (comparing(shown, hidden, length)(Session.plain(), {}) == (shown < hidden)).all()


@pytest.mark.parametrize(
    ("length", "numbers", "rounds"),
    [(20, 5, 1), (24, 5, 1), (25, 5, 1), (25, 2000, 2), (62, 5, 2)],
)
def test_rounds_of_a_comparison(length, numbers, rounds):
    """And one more for the seeds, before which nobody can begin. Few numbers get longer tables."""
    transcript = Transcript()
    shown = np.arange(numbers, dtype=np.uint64)
    run_program(comparing(shown, shown, length), ("A", "B"), {}, transcript=transcript)
    assert count_rounds(transcript) == rounds + 1


@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 3), (1, 2, 2)])
def test_any_shape_is_compared(shape):
    rng = np.random.default_rng(0)
    shown, hidden = rng.integers(0, 1 << 24, (2, *shape), dtype=np.uint64)
    results = run_program(comparing(shown, hidden, 24), ("A", "B"), {})
    assert gather(results, ("A", "B")).shape == shape
    assert (gather(results, ("A", "B")) == (shown < hidden)).all()


def test_ands_of_all_four_bits():
    """All values, and all ways to have their pieces at two parties."""
    both = np.arange(256)
    first = np.stack([(both >> place) & 1 for place in range(4)]).astype(np.uint8)
    second = np.stack([(both >> (place + 4)) & 1 for place in range(4)]).astype(np.uint8)

    def program(session, bits):
        return multiply_bits(session, bits.get("bits", np.zeros((4, 256), np.uint8)))

    results = run_program(program, ("A", "B"), {"A": {"bits": first}, "B": {"bits": second}})
    wanted = np.bitwise_and.reduce(first ^ second)
    assert wanted.sum() == 16
    assert (gather(results, ("A", "B")) == wanted).all()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_bits_become_numbers(count):
    rng = np.random.default_rng(count)
    parties = NAMES[:count]
    data = {party: {"bits": rng.integers(0, 2, 40).astype(np.uint8)} for party in parties}

    def program(session: Exchange, held):
        return to_numbers(session, held.get("bits", np.zeros(40, np.uint8)))

    results = run_program(program, parties, data)
    wanted = np.bitwise_xor.reduce([held["bits"] for held in data.values()])
    assert (gather(results, parties, np.add) == wanted).all()
