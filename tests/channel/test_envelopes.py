"""Frames in parts over lines that are slow, lose parts, or carry them twice."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.channel.relay_case import Engine, pair
from vfsl.channel import relayed
from vfsl.channel.envelopes import (
    DATA,
    HEADER,
    OPEN_NOTE,
    VERSION,
    Incoming,
    Opened,
    OtherVersion,
    Outbox,
    Pace,
    make_envelope,
    open_envelope,
)
from vfsl.channel.notes import Ended, Working
from vfsl.channel.relayed import Unreachable
from vfsl.errors import PeerFailed, WireError


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.lists(st.integers(1, 20), max_size=30), st.data())
def test_parts_of_any_size_carried_again_from_anywhere_make_the_same_frame(frame, sizes, data):
    incoming, came = Incoming(), []
    for number in range(2):
        start = 0
        while True:
            size = sizes.pop() if sizes else len(frame)
            part = Opened(DATA, number, start, len(frame), frame[start : start + size])
            for _ in range(data.draw(st.integers(1, 2))):
                came.append(incoming.add(part))
            start += len(part.content)
            if start >= len(frame):
                break
            if start and data.draw(st.booleans()):
                start = data.draw(st.integers(0, start - 1))
    assert [one for one in came if one is not None] == [frame, frame]
    assert incoming.between_frames


@pytest.mark.parametrize(
    "part",
    [
        Opened(DATA, 1, 0, 4, b"next"),
        Opened(DATA, 0, 2, 4, b"st"),
        Opened(DATA, 0, 0, 3, b"long"),
        Opened(DATA, 0, 0, 1 << 31, b"huge"),
    ],
)
def test_parts_that_do_not_follow_each_other_are_refused(part):
    with pytest.raises(WireError):
        Incoming().add(part)


def test_parts_have_the_size_that_the_line_carries_in_a_second():
    pace = Pace()
    for _ in range(40):
        pace.learn(pace.size, 0.2 + pace.size / 100_000)  # 100 KB per second, and a way of 0.2 s
    assert pace.size == pytest.approx(80_000, rel=0.01)
    before = pace.size
    pace.learn(100, 0.2)
    assert pace.size == before
    for _ in range(40):
        pace.learn(pace.size, pace.size / 1e9)
    assert pace.size == Pace.most
    for _ in range(40):
        pace.slow_down()
    assert pace.size == Pace.least


def test_notes_overtake_frames_but_the_end_does_not():
    box = Outbox()
    box.put(0, b"frame")
    box.tell(Ended(1))
    box.tell(Working())
    box.close()
    assert [box.get() for _ in range(4)] == [Working(), (0, b"frame"), Ended(1), None]


class SlowLine:
    """Carries so many bytes per second, and loses every n-th part on the way or its receipt."""

    def __init__(self, rate, lose_every=0):
        self.rate, self.lose_every, self.count = rate, lose_every, 0
        self.engine = None

    def __call__(self, me, peer, envelope):
        time.sleep(len(envelope) / self.rate)
        self.count += 1
        if self.lose_every and self.count % self.lose_every == 0:
            if self.count % (2 * self.lose_every) == 0:
                self.engine.transports[peer].accept(me, envelope)  # it came; nobody knows
            raise Unreachable(gone=False)
        return [envelope]


def test_a_slow_line_that_loses_parts_is_no_lost_party(monkeypatch):
    """The frame takes several times as long as a silence that would give the peer up."""
    monkeypatch.setattr(relayed, "_SILENT_SECONDS", 1.0)
    monkeypatch.setattr(relayed, "_PROBE_EVERY", 0.05)
    monkeypatch.setattr(relayed, "_WORKING_EVERY", 0.1)
    monkeypatch.setattr(Pace, "seconds", 0.05)
    monkeypatch.setattr(Pace, "least", 1000)
    line = SlowLine(rate=400_000, lose_every=7)
    engine = Engine("AB", on_carry=line)
    line.engine = engine
    a, b = pair(engine)
    frame = np.random.default_rng(0).bytes(1_200_000)
    a.post("B", frame)
    a.post("B", b"next")
    came = b.take("A", "large", timeout=1.5)
    assert came == frame
    assert b.take("A", "next", timeout=1.5) == b"next"
    assert line.count > 20


def test_a_failure_is_told_between_the_parts_of_a_frame(monkeypatch):
    monkeypatch.setattr(Pace, "most", 1000)
    monkeypatch.setattr(Pace, "least", 1000)
    begun, told = threading.Event(), []

    def carry(me, peer, envelope):
        told.append(open_envelope(envelope).kind)
        begun.set()
        time.sleep(0.02)
        return [envelope]

    a, b = pair(Engine("AB", on_carry=carry))
    a.post("B", bytes(1_000_000))
    assert begun.wait(5)
    a.abandon(WireError("secret text"))
    with pytest.raises(PeerFailed, match="WireError"):
        b.take("A", "large", 5)
    assert OPEN_NOTE in told
    assert told.count(DATA) < 100


@pytest.mark.parametrize(
    ("version", "who"), [(VERSION - 1, "it must"), (VERSION + 1, "the others")]
)
def test_an_envelope_of_another_version_says_who_must_upgrade(version, who):
    def carry(me, peer, envelope):
        return [envelope[:2] + bytes([version]) + envelope[3:]]

    a, b = pair(Engine("AB", on_carry=carry))
    a.post("B", b"text")
    with pytest.raises(
        PeerFailed, match=f"version {version}, those here {VERSION}: {who}"
    ) as caught:
        b.take("A", "x", 5)
    assert caught.value.party == "the relay or A"
    with pytest.raises(OtherVersion):
        open_envelope(b"VE\x01" + make_envelope(DATA, bytes(16), 0, b"")[3:])
    assert HEADER.size == 36
