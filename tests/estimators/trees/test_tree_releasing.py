"""What trees count as: bits as parts of numbers, binned columns once."""

import numpy as np
from vfsl.estimators.trees.releasing import binned_numbers, release_binned, side_numbers

from vfsl.channel import Transcript
from vfsl.channel.base import PartyChannel


class Silent:
    me, peers = "B", ("C",)


class Heard:
    def __init__(self):
        self.charges = []

    def charge(self, peer, what, numbers, about, once):
        self.charges.append((peer, numbers, about, once))


def test_thirty_two_sides_are_one_number():
    assert side_numbers([]) == 0
    assert side_numbers([np.zeros(31, dtype=bool), np.zeros(1, dtype=bool)]) == 1
    assert side_numbers([np.zeros(33, dtype=bool)]) == 2


def test_binned_columns_hold_the_bits_of_their_codes():
    assert binned_numbers(320, 10, 32) == 320 * 10 * 5 // 32
    assert binned_numbers(3, 1, 32) == 1
    assert binned_numbers(0, 4, 32) == binned_numbers(4, 0, 32) == 0


def test_the_same_codes_are_the_same_whole_and_others_are_not():
    heard = Heard()
    channel = PartyChannel(Silent(), Transcript(), budget=heard)
    codes = np.arange(640, dtype=np.uint8).reshape(64, 10) % 32
    for given in (codes, codes.copy(), codes[::-1]):
        release_binned(channel, "C", given, 32)
    peers, numbers, about, marks = zip(*heard.charges, strict=True)
    assert set(zip(peers, numbers, about, strict=True)) == {("C", 100, "columns")}
    assert marks[0] == marks[1] != marks[2]
