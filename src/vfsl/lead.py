"""One party leads and the others do what it orders; finished work is kept, so a run can go on.

The leader gives each task a number. A party that keeps checkpoints says with which *marks* it could
go on (numbers of tasks, or of epochs: the protocol decides); all go on from the last mark that they
share, or from the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vfsl.channel import Channel, expect_integer
from vfsl.errors import ProtocolError
from vfsl.values import Disclosure, Disclosures

END = "end"
_MOST = 1 << 40


def disclose_orders(fact: str) -> Disclosures:
    """The messages between leader and followers, for the disclosures of a protocol.

    Parameters
    ----------
    fact : str
        What this protocol's orders tell the followers.
    """
    return {
        "kept": Disclosure(list, "with which finished work of an earlier attempt it could go on"),
        "resume": Disclosure(int, "with which finished work all parties go on"),
        "order": Disclosure(dict, fact),
    }


class Leader:
    """The leading party's side.

    Parameters
    ----------
    channel : Channel
        It speaks `disclose_orders` and what the protocol itself says.
    followers : sequence of str
        The parties that keep finished work.
    forgetful : sequence of str
        Parties that follow too but keep nothing, such as the key holder.
    marks : sequence of int
        With which finished work the leader itself could go on.

    Attributes
    ----------
    resumed : int
        The mark with which all go on; 0 at the start.
    number : int
        Of the next task.
    """

    def __init__(
        self,
        channel: Channel,
        followers: Sequence[str],
        forgetful: Sequence[str] = (),
        marks: Sequence[int] = (),
    ) -> None:
        self._channel = channel
        self._told = (*followers, *forgetful)
        common = set(marks)
        for party in followers:
            common &= set(_marks(channel.receive(party, "kept"), party))
        self.resumed = self.number = max(common, default=0)
        for party in self._told:
            channel.send(party, "resume", self.resumed)

    def order(self, do: str, **facts: Any) -> Channel:
        """Order the next task; returns the channel on which it is done."""
        here = self._channel.within(f"task {self.number}")
        self.number += 1
        for party in self._told:
            here.send(party, "order", {"do": do, **facts})
        return here

    def end(self, **facts: Any) -> None:
        """Tell the others that this was all."""
        self.order(END, **facts)


class Follower:
    """A following party's side: iterate over it to do what the leader orders.

    Parameters
    ----------
    channel : Channel
    leader : str
    marks : sequence of int or None
        With which finished work this party could go on; None for a party that keeps nothing.

    Attributes
    ----------
    resumed : int
        The mark with which all go on; 0 at the start.
    last : mapping
        The facts that came with the end.
    """

    def __init__(self, channel: Channel, leader: str, marks: Sequence[int] | None = None) -> None:
        self._channel, self._leader = channel, leader
        if marks is not None:
            channel.send(leader, "kept", [int(mark) for mark in marks])
        self.resumed = expect_integer(
            channel.receive(leader, "resume"), sender=leader, name="resume", low=0, high=_MOST
        )
        if marks is not None and self.resumed not in (0, *marks):
            raise ProtocolError(f"Party {leader!r} goes on from work that is not here.", leader)
        self.last: Mapping[str, Any] = {}

    def __iter__(self) -> Iterator[tuple[int, Channel, Mapping[str, Any]]]:
        """The number, channel and content of each order, until the leader says the end."""
        number = self.resumed
        while True:
            here = self._channel.within(f"task {number}")
            order = here.receive(self._leader, "order")
            if order.get("do") == END:
                self.last = order
                return
            yield number, here, order
            number += 1


def _marks(value: Any, party: str) -> list[int]:
    return [expect_integer(mark, sender=party, name="kept", low=0, high=_MOST) for mark in value]
