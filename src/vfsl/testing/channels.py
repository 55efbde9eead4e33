"""What every channel must do: checks for the author of a transport, run on all of ours.

Each check takes a runner, ``run(roles, timeout=None, max_bytes=None) -> {party: result}``, with the
meaning of :func:`vfsl.channel.run_together`, and raises AssertionError where the channel breaks the
contract. ``CHANNEL_CHECKS`` names them all::

    @pytest.mark.parametrize("check", CHANNEL_CHECKS.values(), ids=CHANNEL_CHECKS.keys())
    def test_contract(check):
        check(my_runner)
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vfsl.channel import Channel, Player
from vfsl.errors import (
    ChannelError,
    DataError,
    Deadlock,
    NameMismatch,
    PeerClosed,
    PeerFailed,
    TimedOut,
    UndeclaredMessage,
    UnsupportedValue,
    VfslError,
)
from vfsl.testing.claims import require
from vfsl.values import Aggregate, Ciphertext, Disclosure, Disclosures

TALK: Disclosures = {
    "number": Disclosure(int, "a number of the contract suite"),
    "anything": Disclosure(object, "any value of the contract suite"),
    "array": Disclosure(np.ndarray, "an array of the contract suite"),
    "secret": Disclosure(Ciphertext, "nothing"),
}


class Runner(Protocol):
    """Runs roles over the channels under test."""

    def __call__(
        self,
        roles: Mapping[str, Player],
        *,
        timeout: float | None = None,
        max_bytes: int | None = None,
    ) -> dict[str, Any]: ...


def _require_error(
    kind: type[VfslError], party: str | None, run: Callable[[], object], *words: str
) -> None:
    """The run must end in that error, which names the party and mentions the words."""
    try:
        run()
    except kind as error:
        named = getattr(error, "party", None)
        require(party is None or named == party, f"{error!r} names {named!r}, not {party!r}.")
        for word in words:
            require(word in str(error), f"{str(error)!r} does not mention {word!r}.")
        return
    raise AssertionError(f"{kind.__name__} was expected, but nothing was raised.")


def _make_samples() -> list[Any]:
    """One of everything that may cross a channel."""
    arrays = [
        np.arange(6, dtype=t).reshape(2, 3) for t in ("i1", "u2", "i4", "u8", "f4", "f8", ">f8")
    ]
    numbers: list[Any] = [None, True, False, 0, -1, 2**4000, 1.5, float("inf")]
    texts: list[Any] = ["", "Ü 木", b"", b"\0\xff"]
    nested: dict[str, Any] = {"list": [1, [2.5, "x"]], "empty": {}, "none": None}
    shapes = [np.zeros((0, 3)), np.array(7), np.array([True, False]), np.arange(10)[::2]]
    wrapped = [Ciphertext(np.arange(3)), Aggregate({"sum": 4})]
    return [*numbers, *texts, nested, *arrays, *shapes, *wrapped]


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        same_shape = isinstance(other, np.ndarray) and one.shape == other.shape
        return same_shape and bool((one == other).all())
    if hasattr(one, "payload"):
        return type(one) is type(other) and _is_same(one.payload, other.payload)
    return type(one) is type(other) and bool(one == other)


def _send_all(values: list[Any], name: str, to: str, channel: Channel) -> None:
    channel = channel.within("contract", TALK)
    for value in values:
        channel.send(to, name, value)


def _receive_all(count: int, name: str, sender: str, channel: Channel) -> list[Any]:
    channel = channel.within("contract", TALK)
    return [channel.receive(sender, name) for _ in range(count)]


def _sleep(seconds: float, channel: Channel) -> None:
    time.sleep(seconds)


def _one_way(
    values: list[Any],
    name: str = "number",
    *,
    to: str = "B",
    count: int | None = None,
    awaited: str | None = None,
) -> dict[str, Player]:
    """A sends values to B, who receives all of them, or another number, or under another name."""
    wanted = len(values) if count is None else count
    return {
        "A": partial(_send_all, values, name, to),
        "B": partial(_receive_all, wanted, awaited or name, "A"),
    }


def keeps_order(run: Runner) -> None:
    """Messages of one sender arrive in the order in which they were sent."""
    came = run(_one_way(list(range(200))))["B"]
    require(came == list(range(200)), "The messages came in another order.")


def carries_every_type(run: Runner) -> None:
    """Every allowed value arrives equal and of its own type; arrays arrive read-only."""
    samples = _make_samples()
    roles = _one_way(samples, "anything") | {"B": partial(_receive_and_inspect, len(samples))}
    for sent, came in zip(samples, run(roles)["B"], strict=True):
        require(_is_same(sent, came), f"{sent!r} arrived as {came!r}.")


def _receive_and_inspect(count: int, channel: Channel) -> list[Any]:
    values = _receive_all(count, "anything", "A", channel)
    for value in values:
        fixed = not isinstance(value, np.ndarray) or not value.flags.writeable
        require(fixed, "A received array can be written to.")
    return values


def copies_what_it_sends(run: Runner) -> None:
    """What the sender does to an array afterwards does not reach the receiver."""
    roles: dict[str, Player] = {"A": _send_then_change, "B": partial(_receive_all, 1, "array", "A")}
    require(_is_same(run(roles)["B"][0], np.arange(5)), "The receiver saw a later change.")


def _send_then_change(channel: Channel) -> None:
    array = np.arange(5)
    channel.within("contract", TALK).send("B", "array", array)
    array[:] = -1


def nests_scopes(run: Runner) -> None:
    """The same name in two scopes is two messages."""
    roles: dict[str, Player] = {"A": _send_in_scopes, "B": _receive_in_scopes}
    require(run(roles)["B"] == [1, 2], "Scopes collide.")
    wrong: dict[str, Player] = {"A": _send_in_scopes, "B": partial(_receive_all, 1, "number", "A")}
    _require_error(NameMismatch, "A", partial(run, wrong), "bag 0/round 1/number")


def _send_in_scopes(channel: Channel) -> None:
    channel = channel.within("contract", TALK)
    for bag in range(2):
        channel.within(f"bag {bag}").within("round 1").send("B", "number", bag + 1)


def _receive_in_scopes(channel: Channel) -> list[Any]:
    channel = channel.within("contract", TALK)
    return [channel.within(f"bag {bag}/round 1").receive("A", "number") for bag in range(2)]


def reports_another_name(run: Runner) -> None:
    """A message with another name than the one waited for is an error that quotes both."""
    roles = _one_way([1], awaited="anything")
    words = ("'contract/number'", "'contract/anything'")
    _require_error(NameMismatch, "A", partial(run, roles), *words)


def refuses_undeclared_names(run: Runner) -> None:
    """A name that the protocol did not declare cannot be sent, nor waited for."""
    sent, awaited = _one_way([1], "gossip", awaited="number"), _one_way([1], awaited="gossip")
    _require_error(UndeclaredMessage, "B", partial(run, sent), "gossip")
    _require_error(UndeclaredMessage, "A", partial(run, awaited), "gossip")


def refuses_other_types(run: Runner) -> None:
    """A raw array cannot go where a ciphertext is declared."""
    roles = _one_way([np.arange(3)], "secret")
    _require_error(UndeclaredMessage, "B", partial(run, roles), "Ciphertext", "ndarray")


def refuses_foreign_values(run: Runner) -> None:
    """Objects, text arrays, sets and non-text keys do not cross a channel."""
    for value in (np.array([object()]), np.array(["x"]), {1, 2}, {1: 2}, 1j, "\ud800"):
        _require_error(UnsupportedValue, None, partial(run, _one_way([value], "anything")))


def refuses_oversized_messages(run: Runner) -> None:
    """A message over the limit is refused before it is sent."""
    roles = _one_way([np.zeros(2000)], "array")
    _require_error(UnsupportedValue, None, partial(run, roles, max_bytes=10_000), "10000")


def refuses_unknown_peers(run: Runner) -> None:
    """A party that is not part of the run cannot be addressed."""
    _require_error(ChannelError, "Z", partial(run, _one_way([1], to="Z")), "'B'")


def reports_a_closed_peer(run: Runner) -> None:
    """Waiting for a party that has ended is an error that names it, after its last message."""
    _require_error(PeerClosed, "A", partial(run, _one_way([1, 2], count=3)), "contract/number")


def reports_unread_messages(run: Runner) -> None:
    """A message that nobody received is an error: the roles do not fit each other."""
    # A transport may notice at the sender (the peer has gone) or at the receiver (unread).
    _require_error(ChannelError, None, partial(run, _one_way([1, 2], count=1)))


def reports_a_failed_peer(run: Runner) -> None:
    """A failure reaches every other party with the name of the one that failed, not its text."""
    with tempfile.TemporaryDirectory() as folder:
        roles: dict[str, Player] = {
            "A": _fail,
            "B": partial(_note_failure, folder, "A"),
            "C": partial(_note_failure, folder, "B"),
        }
        _require_error(DataError, None, partial(run, roles), "private detail")
        for party in ("B", "C"):
            heard = (Path(folder) / party).read_text()
            require(heard.startswith("A: "), f"{party} heard {heard!r}, which does not name A.")
            require("private" not in heard, f"{party} heard the text of A's error.")


def _fail(channel: Channel) -> None:
    talk = channel.within("contract", TALK)
    for peer in ("B", "C"):
        talk.receive(peer, "number")  # both have begun, so both can write down what they hear
    raise DataError("private detail")


def _note_failure(folder: str, sender: str, channel: Channel) -> None:
    talk = channel.within("contract", TALK)
    talk.send("A", "number", 1)
    try:
        talk.receive(sender, "number")
    except PeerFailed as error:
        (Path(folder) / channel.me).write_text(f"{error.party}: {error}")
        raise


def reports_a_deadlock(run: Runner) -> None:
    """Parties that wait for each other are told so, even while another one is busy."""
    ring: dict[str, Player] = {
        "A": partial(_receive_all, 1, "number", "B"),
        "B": partial(_receive_all, 1, "number", "C"),
        "C": partial(_receive_all, 1, "number", "A"),
        "D": partial(_sleep, 3.0),
    }
    _require_error(Deadlock, None, partial(run, ring), "'A'", "'B'", "'C'")
    pair: dict[str, Player] = {
        "A": partial(_talk_then_wait, "B"),
        "B": partial(_talk_then_wait, "A"),
    }
    _require_error(Deadlock, None, partial(run, pair))


def _talk_then_wait(peer: str, channel: Channel) -> None:
    """One good exchange first, so that message counts matter, then both wait."""
    channel = channel.within("contract", TALK)
    channel.send(peer, "number", 1)
    channel.receive(peer, "number")
    channel.receive(peer, "number")


def keeps_deadlines(run: Runner) -> None:
    """A message that does not come in time is an error that names the sender."""
    roles = _one_way([1]) | {"A": partial(_sleep, 1.5)}
    _require_error(TimedOut, "A", partial(run, roles, timeout=0.3))


def both_send_large_then_receive(run: Runner) -> None:
    """Two parties can send 50 MB to each other before either receives."""
    roles: dict[str, Player] = {
        "A": partial(_exchange_large, "B"),
        "B": partial(_exchange_large, "A"),
    }
    require(run(roles) == {"A": True, "B": True}, "A large array changed on the way.")


def _exchange_large(peer: str, channel: Channel) -> bool:
    channel = channel.within("contract", TALK)
    size = 50_000_000 // 8
    channel.send(peer, "array", np.full(size, ord(channel.me), dtype=np.int64))
    came = channel.receive(peer, "array")
    return bool(came.shape == (size,) and (came == ord(peer)).all())


def carries_many_small_messages(run: Runner) -> None:
    """Ten thousand messages back and forth."""
    roles: dict[str, Player] = {"A": partial(_count, "B", True), "B": partial(_count, "A", False)}
    require(run(roles)["B"] == 9999, "Messages were lost.")


def _count(peer: str, first: bool, channel: Channel) -> int:
    channel = channel.within("contract", TALK)
    number = 0
    for number in range(0 if first else 1, 10_000, 2):
        if first:
            channel.send(peer, "number", number)
            require(channel.receive(peer, "number") == number + 1, "A wrong answer came.")
        else:
            require(channel.receive(peer, "number") == number - 1, "A wrong question came.")
            channel.send(peer, "number", number)
    return number


CHANNEL_CHECKS: dict[str, Callable[[Runner], None]] = {
    check.__name__: check
    for check in (
        keeps_order,
        carries_every_type,
        copies_what_it_sends,
        nests_scopes,
        reports_another_name,
        refuses_undeclared_names,
        refuses_other_types,
        refuses_foreign_values,
        refuses_oversized_messages,
        refuses_unknown_peers,
        reports_a_closed_peer,
        reports_unread_messages,
        reports_a_failed_peer,
        reports_a_deadlock,
        keeps_deadlines,
        both_send_large_then_receive,
        carries_many_small_messages,
    )
}
