"""Columns that everybody draws alike; what trees count as: bits of numbers, binned columns once."""

import numpy as np

from vfsl.channel import Channel, Transcript
from vfsl.estimators.trees.protocol import count_binned, count_sides, draw_columns, release_binned


class Silent:
    me, peers = "B", ("C",)


class Heard:
    def __init__(self):
        self.charges = []

    def charge(self, peer, what, numbers, about, once, spent=()):
        self.charges.append((peer, numbers, about, once))


def test_thirty_two_sides_are_one_number():
    assert count_sides([]) == 0
    assert count_sides([np.zeros(31, dtype=bool), np.zeros(1, dtype=bool)]) == 1
    assert count_sides([np.zeros(33, dtype=bool)]) == 2


def test_binned_columns_hold_the_bits_of_their_codes():
    assert count_binned(320, 10, 32) == 320 * 10 * 5 // 32
    assert count_binned(3, 1, 32) == 1
    assert count_binned(0, 4, 32) == count_binned(4, 0, 32) == 0


def test_the_same_codes_are_the_same_whole_and_others_are_not():
    heard = Heard()
    channel = Channel(Silent(), Transcript(), budget=heard)
    codes = np.arange(640, dtype=np.uint8).reshape(64, 10) % 32
    for given in (codes, codes.copy(), codes[::-1]):
        release_binned(channel, "C", given, 32)
    peers, numbers, about, marks = zip(*heard.charges, strict=True)
    assert set(zip(peers, numbers, about, strict=True)) == {("C", 100, "columns")}
    assert marks[0] == marks[1] != marks[2]


def test_columns_are_drawn_alike_by_everybody_and_anew_for_each_node():
    one, again = (draw_columns(20, 0.25, (7, 3, 2)) for _ in range(2))
    assert (one == again).all()
    assert one.sum() == 5
    others = [draw_columns(20, 0.25, (7, 3, node)) for node in range(30)]
    assert np.all([other.any() for other in others])
    assert len({other.tobytes() for other in others}) > 20
    assert np.sum(others, axis=0).min() > 0
    assert draw_columns(3, 0.01, (0,)).sum() == 1
    assert draw_columns(0, 0.5, (0,)).shape == (0,)
    assert draw_columns(3, 1.0, (0,)).all()
