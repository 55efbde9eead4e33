"""The party channel over transports that misbehave, and what it writes down."""

from functools import partial

import numpy as np
import pytest

from vfsl.channel import (
    CHANNELS,
    Channel,
    Transcript,
    expect_array,
    expect_integer,
    run_together,
    wire,
)
from vfsl.errors import ConfigError, ProtocolError, UndeclaredMessage, WireError
from vfsl.testing.channels import CHANNEL_CHECKS
from vfsl.values import Aggregate, Ciphertext, Disclosure

TALK = {"hello": Disclosure(int, "a number"), "secret": Disclosure(Ciphertext, "nothing")}


class Canned:
    """A transport whose peer always sends the same bytes."""

    me, peers = "A", ("B",)

    def __init__(self, frame):
        self.frame = frame

    def post(self, to, frame):
        raise AssertionError("nothing should be sent")

    def take(self, sender, name, timeout):
        return self.frame


@pytest.mark.parametrize("cut", [0, 3, 16, 20])
def test_damaged_frames_name_the_sender(cut):
    channel = Channel(Canned(wire.encode("hello", 5)[:cut]), Transcript(), speaks=TALK)
    with pytest.raises(WireError, match="'B'") as caught:
        channel.receive("B", "hello")
    assert caught.value.party == "B"


def test_a_peer_cannot_send_another_type_than_declared():
    frame = wire.encode("secret", np.arange(3))
    channel = Channel(Canned(frame), Transcript(), speaks=TALK)
    with pytest.raises(UndeclaredMessage, match="declared as Ciphertext"):
        channel.receive("B", "secret")


def sender(channel):
    channel = channel.within("part 1", TALK)
    channel.send("B", "hello", 5)
    channel.send("B", "secret", Ciphertext(b"xyz"))


def receiver(channel):
    channel = channel.within("part 1", TALK)
    return channel.receive("A", "hello"), channel.receive("A", "secret").payload


@pytest.mark.parametrize("on", ["memory", "processes"])
def test_transcript_says_who_sent_what_and_how_protected(on):
    transcript = Transcript(keep_views=True)
    result = run_together({"A": sender, "B": receiver}, on=on, transcript=transcript)
    assert result == {"A": None, "B": (5, b"xyz")}
    rows = [(e.sequence, e.sender, e.receiver, e.name, e.kind, e.fact) for e in transcript.entries]
    assert rows == [
        (0, "A", "B", "part 1/hello", "plain", "a number"),
        (1, "A", "B", "part 1/secret", "ciphertext", "nothing"),
    ]
    assert transcript.entries[1].message == "secret"
    assert transcript.entries[0].bytes == len(wire.encode("part 1/hello", 5))
    assert [name for _, name, _ in transcript.view("B")] == ["part 1/hello", "part 1/secret"]
    assert transcript.view("A") == []


def test_unknown_place_to_run():
    with pytest.raises(ConfigError, match=r"no channel 'cloud'\. Known are memory, processes"):
        run_together({"A": sender}, on="cloud")


@pytest.mark.parametrize(
    "value",
    [3, np.arange(4.0), np.arange(3), np.array([1.0, np.inf, 0.0]), np.zeros((3, 1)), Aggregate(1)],
)
def test_expected_arrays(value):
    with pytest.raises(ProtocolError, match=r"'B' sent .*'x'"):
        expect_array(value, sender="B", name="x", holds="float", shape=(3,))


def test_expected_arrays_and_integers_pass():
    good = np.arange(3.0)
    assert expect_array(good, sender="B", name="x", holds="float", shape=(None,)) is good
    assert expect_integer(3, sender="B", name="x", low=0, high=3) == 3
    for bad in (True, 4, -1, 2.0, "3"):
        with pytest.raises(ProtocolError, match="from 0 to 3"):
            expect_integer(bad, sender="B", name="x", low=0, high=3)


TOY = """
import pickle

from vfsl.channel import Venue
from vfsl.channel.memory import MEMORY

played = []


def play(bodies):
    played.append(sorted(bodies))
    return MEMORY.play(bodies)


def play_copies(bodies):
    copies = {party: pickle.loads(pickle.dumps(body)) for party, body in bodies.items()}
    return pickle.loads(pickle.dumps(play(copies)))


NEAR = Venue(play, shares_memory=True)
FAR = Venue(play_copies, shares_memory=False)
"""


@pytest.mark.parametrize("on", ["near", "far"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_channel_of_another_package(install, on, sealed):
    install("toy_channels", TOY, "vfsl.channels", near="NEAR", far="FAR")
    assert CHANNELS.names() == ["memory", "processes", "far", "near"]
    transcript = Transcript(keep_views=True)
    result = run_together({"A": sender, "B": receiver}, on=on, transcript=transcript, sealed=sealed)
    assert result == {"A": None, "B": (5, b"xyz")}
    assert [entry.message for entry in transcript.entries] == ["hello", "secret"]
    assert len(transcript.view("B")) == 2
    import toy_channels

    assert toy_channels.played == [["A", "B"]]


def test_a_channel_of_another_package_keeps_the_contract(install):
    install("toy_channels", TOY, "vfsl.channels", near="NEAR")
    for name in ("keeps_order", "reports_a_failed_peer", "reports_a_deadlock", "keeps_deadlines"):
        CHANNEL_CHECKS[name](partial(run_together, on="near"))
