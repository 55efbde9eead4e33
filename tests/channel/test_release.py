"""The release seam: what a party is about to show is counted, may be refused, and is written."""

import pytest

from vfsl.channel import Channel, Transcript, run_together
from vfsl.errors import ChannelError, LimitReached
from vfsl.record import Shown


class Silent:
    """A transport over which nothing must go."""

    me, peers = "B", ("C",)

    def post(self, to, frame):
        raise AssertionError("nothing should be sent")

    def take(self, sender, name, timeout):
        raise AssertionError("nothing should be received")


class Purse:
    """A budget of so many numbers."""

    def __init__(self, left):
        self.left, self.heard = left, []

    def charge(self, peer, what, numbers, about, once, spent=()):
        if numbers > self.left:
            raise LimitReached("no more", peer)
        self.left -= numbers
        self.heard.append((peer, what, numbers, about, once))


def test_a_budget_is_asked_before_and_the_ledger_written_after():
    purse, transcript = Purse(100), Transcript()
    channel = Channel(Silent(), transcript, budget=purse).within("round 1", {})
    channel.release("C", "total scores", 60)
    channel.release("C", "gradients", 50, about="label", new=30, once=b"x")
    assert purse.heard == [
        ("C", "total scores", 60, "columns", None),
        ("C", "gradients", 30, "label", b"x"),
    ]
    with pytest.raises(LimitReached):
        channel.release("C", "total scores", 11)
    assert transcript.shown("train") == (
        Shown("train", "B", "C", "total scores", "columns", 60, 60),
        Shown("train", "B", "C", "gradients", "label", 50, 30),
    )


def test_numbers_that_follow_from_others_are_not_charged():
    purse, transcript = Purse(0), Transcript()
    channel = Channel(Silent(), transcript, budget=purse)
    for _ in range(2):
        channel.release("C", "sides", 7, new=0)
    assert transcript.shown("s") == (Shown("s", "B", "C", "sides", "columns", 14, 0),)


def test_a_release_to_nobody_or_of_less_than_nothing_is_refused():
    channel = Channel(Silent(), Transcript())
    with pytest.raises(ChannelError, match="no peer 'Z'"):
        channel.release("Z", "scores", 1)
    with pytest.raises(ChannelError, match="-1 numbers"):
        channel.release("C", "scores", -1)
    with pytest.raises(ChannelError, match="-2 numbers"):
        channel.release("C", "scores", 1, new=-2)


def show(channel):
    channel.release("C", "scores", 3)


def look(channel):
    return channel.me


@pytest.mark.parametrize("on", ["memory", "processes"])
def test_what_was_shown_comes_back_from_wherever_parties_ran(on):
    transcript = Transcript()
    run_together({"B": show, "C": look}, on=on, transcript=transcript)
    assert transcript.shown("s") == (Shown("s", "B", "C", "scores", "columns", 3, 3),)
