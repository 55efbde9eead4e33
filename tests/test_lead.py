"""One leader, several followers: orders in turn, and going on from what all of them kept."""

from functools import partial

import pytest

from vfsl.channel import run_together
from vfsl.errors import ProtocolError
from vfsl.lead import Follower, Leader, disclose_orders

SPEAKS = disclose_orders("what comes next")


def lead(channel, marks=(), tasks=("train", "score"), forgetful=()):
    followers = [party for party in channel.peers if party not in forgetful]
    leader = Leader(channel.within("work", SPEAKS), followers, forgetful, marks)
    first = leader.resumed
    scopes = [leader.order(do, rows=3).scope for do in tasks]
    leader.end(models=2)
    return first, scopes


def follow(channel, marks=None):
    follower = Follower(channel.within("work", SPEAKS), "C", marks)
    done = [(number, here.scope, order["do"], order["rows"]) for number, here, order in follower]
    return follower.resumed, done, follower.last


def test_followers_do_what_the_leader_orders_in_turn():
    found = run_together(
        {"C": lead, "A": partial(follow, marks=[]), "B": partial(follow, marks=[])}
    )
    assert found["C"] == (0, ["work/task 0/", "work/task 1/"])
    assert found["A"] == found["B"]
    resumed, done, last = found["A"]
    assert resumed == 0
    assert done == [(0, "work/task 0/", "train", 3), (1, "work/task 1/", "score", 3)]
    assert last == {"do": "end", "models": 2}


@pytest.mark.parametrize(
    ("mine", "theirs", "others", "common"),
    [
        ([1, 2, 3], [1, 2], [1, 2, 3], 2),
        ([3, 5], [3, 6], [3, 5], 3),
        ([10, 15], [5, 10], [10], 10),
        ([1], [], [1], 0),
        ([], [4], [4], 0),
    ],
)
def test_all_go_on_from_the_last_mark_that_they_share(mine, theirs, others, common):
    found = run_together(
        {
            "C": partial(lead, marks=mine),
            "A": partial(follow, marks=theirs),
            "B": partial(follow, marks=others),
        }
    )
    assert found["C"][0] == found["A"][0] == found["B"][0] == common
    assert [number for number, *_ in found["A"][1]] == [common, common + 1]


def test_a_party_that_keeps_nothing_does_not_hold_the_others_back():
    found = run_together(
        {
            "C": partial(lead, marks=[1, 2], forgetful=["K"]),
            "A": partial(follow, marks=[1, 2]),
            "K": follow,
        }
    )
    assert found["C"][0] == found["A"][0] == found["K"][0] == 2


def test_a_leader_that_goes_on_from_work_that_is_not_here_is_refused():
    def liar(channel):
        here = channel.within("work", SPEAKS)
        here.receive("A", "kept")
        here.send("A", "resume", 7)

    with pytest.raises(ProtocolError, match="'C' goes on from work that is not here"):
        run_together({"C": liar, "A": partial(follow, marks=[1, 2])})


@pytest.mark.parametrize("marks", [["one"], [-1], [1 << 50], [True]])
def test_marks_that_are_no_numbers_are_refused(marks):
    def odd(channel):
        channel.within("work", SPEAKS).send("C", "kept", marks)

    with pytest.raises(ProtocolError, match="'A'"):
        run_together({"C": lead, "A": odd})
