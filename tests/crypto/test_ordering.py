"""The largest of shared numbers, in an order that nobody knows; bits by oblivious transfer."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crypto.share_cases import run_program
from vfsl.channel import Transcript, wire
from vfsl.crypto.choosing import show_chosen_bits
from vfsl.crypto.ordering import (
    find_largest,
    find_less,
    find_signs,
    open_bits,
    plan_stages,
    shuffle,
)
from vfsl.crypto.session import absent
from vfsl.crypto.words import to_signed, to_words

TWO = ("A", "B")


def in_two(values, seed=0):
    """Pieces of numbers, as data of both parties."""
    one = np.random.default_rng(seed).integers(0, 1 << 63, size=values.shape).astype(np.uint64)
    return {"A": {"words": one}, "B": {"words": to_words(values) - one}}


def held(data, shape):
    return data.get("words", absent(shape))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 30), bits=st.sampled_from([3, 12, 17, 24, 31, 40]))
def test_signs(seed, bits):
    rng = np.random.default_rng(seed)
    values = rng.integers(-(1 << bits) + 1, 1 << bits, size=(3, 20))
    values[0, :4] = [0, -1, (1 << bits) - 1, -(1 << bits) + 1]

    def program(session, data):
        return open_bits(session, find_signs(session, held(data, values.shape), bits))

    found = run_program(program, TWO, in_two(values, seed))
    assert (found["A"] == (values < 0)).all()
    assert (found["B"] == found["A"]).all()


@pytest.mark.parametrize(("length", "base"), [(4, 4), (8, 4), (17, 3), (31, 4), (33, 4), (5, 3)])
def test_public_numbers_below_the_dealers(length, base):
    rng = np.random.default_rng(length)
    shown, hidden = rng.integers(0, 1 << length, size=(2, 60)).astype(np.uint64)
    hidden[:20] = shown[:20]
    hidden[20:30] = shown[20:30] ^ np.uint64(1)

    def program(session, data):
        one, two = find_less(
            session,
            [(shown, lambda: hidden, length, base), (hidden, lambda: shown, length, base)],
        )
        return open_bits(session, one), open_bits(session, two)

    below, above = run_program(program, TWO, {})["A"]
    assert (below == (shown < hidden)).all()
    assert (above == (hidden < shown)).all()


@pytest.mark.parametrize("items", [1, 2, 3, 7, 40, 119])
def test_the_largest_of_each_group(items):
    rng = np.random.default_rng(items)
    keys = rng.permuted(np.tile(np.arange(items), (5, 1)), axis=1) * 1000 + 7

    def program(session, data):
        mixed = shuffle(session, held(data, keys.shape)[:, :, None], 32)[:, :, 0]
        return mixed, find_largest(session, mixed, 20)

    found = run_program(program, TWO, in_two(keys))
    mixed = to_signed(found["A"][0] + found["B"][0], 32)
    assert (np.sort(mixed, axis=1) == np.sort(keys, axis=1)).all()
    assert (np.take_along_axis(mixed, found["A"][1][:, None], 1)[:, 0] == keys.max(axis=1)).all()
    assert (found["A"][1] == found["B"][1]).all()


def test_stages_leave_one():
    for items in (1, 2, 5, 24, 119, 310, 3000):
        left = items
        for size in plan_stages(items):
            left = -(-left // size)
        assert left == 1
    assert len(plan_stages(119)) == 3


def test_where_the_largest_comes_to_lie_is_anybodys_guess():
    """The same key first in all groups; its place, which both learn, is uniform."""
    keys = np.tile(np.arange(8)[::-1], (800, 1))

    def program(session, data):
        mixed = shuffle(session, held(data, keys.shape)[:, :, None], 32)[:, :, 0]
        return find_largest(session, mixed, 20)

    counts = np.bincount(run_program(program, TWO, in_two(keys))["A"], minlength=8)
    # Seven deviations of a binomial count of mean 100: never in practice.
    assert np.abs(counts - 100).max() < 7 * np.sqrt(100 * 7 / 8)


def test_neither_partys_own_order_is_the_order():
    """What either party sends or gets while words are moved is uniform: equal words differ."""
    values = np.zeros((50, 20, 1), dtype=np.int64)
    transcript = Transcript(keep_views=True)

    def program(session, data):
        return shuffle(session, held(data, values.shape), 32)

    run_program(program, TWO, in_two(values), transcript=transcript)
    masked = [
        wire.decode(sight.body)[1].payload
        for sight in transcript.sights
        if sight.name.endswith("masked")
    ]
    assert len(masked) == 2
    for content in masked:
        assert abs(np.unpackbits(content).mean() - 0.5) < 0.03


# ---- chosen bits --------------------------------------------------------------------------------


def play_chosen(chosen, bits, transcript=None):
    def program(session, data):
        return show_chosen_bits(session, chosen.shape, data.get("chosen"), data.get("bits"))

    data = {"A": {"chosen": chosen}, "B": {"bits": bits}}
    return run_program(program, TWO, data, transcript=transcript or Transcript())


def test_chosen_bits_and_no_others():
    rng = np.random.default_rng(0)
    chosen, bits = rng.integers(0, 2, size=(2, 3, 500))
    found = play_chosen(chosen, bits)
    assert (found["A"] == (chosen & bits)).all()
    assert found["B"] is None
    assert found["K"] is None


def test_what_crosses_for_chosen_bits_is_uniform():
    """Whatever is chosen and whatever the bits are: both messages are coin flips."""
    zeros, ones = np.zeros((1, 20_000), dtype=int), np.ones((1, 20_000), dtype=int)
    for chosen, bits in [(zeros, zeros), (zeros, ones), (ones, zeros), (ones, ones)]:
        transcript = Transcript(keep_views=True)
        play_chosen(chosen, bits, transcript)
        contents = [
            wire.decode(sight.body)[1].payload
            for sight in transcript.sights
            if sight.name.endswith("masked")
        ]
        assert len(contents) == 2
        flips = [np.unpackbits(content).astype(float) for content in contents]
        for one in flips:
            assert abs(one.mean() - 0.5) < 7 * 0.5 / np.sqrt(20_000)
        for one, two in combinations(flips, 2):
            assert abs(np.corrcoef(one, two)[0, 1]) < 7 / np.sqrt(20_000)
