"""The transport under NVFlare, over an engine of this process: contract, failures, forgery."""

import threading
import time
from functools import partial

import numpy as np
import pytest

from tests.channel.relay_case import Engine, pair, run
from vfsl.channel import envelopes, relayed
from vfsl.channel.envelopes import DATA, HEADER, Pace
from vfsl.channel.transport import RELAY
from vfsl.errors import ChannelError, PeerFailed, TimedOut, Unauthentic
from vfsl.testing.channels import CHANNEL_CHECKS, TALK


@pytest.mark.parametrize("check", CHANNEL_CHECKS)
def test_relayed_channel_keeps_the_contract(check):
    CHANNEL_CHECKS[check](run)


@pytest.fixture
def impatient(monkeypatch):
    """Short waits, so that losses show at once."""
    monkeypatch.setattr(relayed, "_PROBE_EVERY", 0.02)
    monkeypatch.setattr(relayed, "_GONE_SECONDS", 0.1)
    monkeypatch.setattr(relayed, "_RELAY_SECONDS", 0.1)


def test_large_frames_go_in_parts_as_arrays(monkeypatch):
    monkeypatch.setattr(Pace, "least", 1000)
    monkeypatch.setattr(Pace, "most", 1000)
    monkeypatch.setattr(envelopes, "ARRAY_FROM", 900)
    kinds = []
    engine = Engine("AB")
    a, b = pair(engine)
    original = b.accept
    b.accept = lambda sender, envelope: (
        kinds.append(type(envelope)),
        original(sender, envelope),
    )
    frame = np.random.default_rng(0).bytes(2500)
    a.post("B", frame)
    assert b.take("A", "large", 5) == frame
    assert kinds == [np.ndarray, np.ndarray, bytes]


def test_an_envelope_that_is_carried_twice_counts_once():
    a, b = pair(Engine("AB", on_carry=lambda me, peer, envelope: [envelope, envelope]))
    for text in (b"one", b"two"):
        a.post("B", text)
    assert [b.take("A", "x", 5) for _ in range(2)] == [b"one", b"two"]
    with pytest.raises(TimedOut):
        b.take("A", "x", 0.1)


@pytest.mark.parametrize(
    "forged",
    [
        b"",
        b"VE",
        b"XX" + bytes(40),
        b"VE\x03\x00" + bytes(16) + b"\xff" * 16,
        b"VE\x03\x02" + bytes(40),
        b"VE\x03\x03" + bytes(40),
    ],
)
def test_an_envelope_that_is_not_ours_is_refused_and_blames_nobody_for_sure(forged):
    a, b = pair(Engine("AB", on_carry=lambda me, peer, envelope: [forged]))
    a.post("B", b"text")
    with pytest.raises(PeerFailed, match="refused") as caught:
        b.take("A", "x", 5)
    assert caught.value.party == "the relay or A"


@pytest.mark.parametrize("change", ["altered", "replayed", "reordered"])
def test_sealing_refuses_what_a_relay_changes(change):
    """The relay rewrites headers as it likes; the frames inside still have to be the right ones."""
    head = HEADER
    held = []

    def meddle(me, peer, envelope):
        magic, version, kind, session, number, start, total = head.unpack_from(envelope)
        if me != "A" or kind != DATA or number == 0:  # the handshake passes
            return [envelope]
        content = envelope[head.size :]
        if change == "altered":
            return [envelope[:-1] + bytes([envelope[-1] ^ 1])]
        if change == "replayed":
            again = head.pack(magic, version, kind, session, number + 1, start, total) + content
            return [envelope, again] if number == 1 else []
        held.append(content)
        if len(held) < 2:
            return []
        return [
            head.pack(magic, version, kind, session, 1 + place, 0, len(content)) + content
            for place, content in enumerate(reversed(held))
        ]

    roles = {"A": partial(_send, 2), "B": partial(_receive, 2)}
    with pytest.raises(Unauthentic) as caught:
        run(roles, engine=Engine("AB", on_carry=meddle))
    assert caught.value.party == "A"
    assert "secret" not in str(caught.value)


def _send(count, channel):
    for _ in range(count):
        channel.within("x", TALK).send("B", "anything", "secret words")


def _receive(count, channel):
    return [channel.within("x", TALK).receive("A", "anything") for _ in range(count)]


def test_a_lost_peer_and_a_lost_relay_are_told_apart(impatient):
    engine = Engine("AB")
    a, _ = pair(engine)
    engine.gone.add("B")
    with pytest.raises(PeerFailed) as caught:
        a.take("B", "x", 20)
    assert caught.value.party == "B"
    engine = Engine("AB")
    a, _ = pair(engine)
    engine.relayed = False
    with pytest.raises(PeerFailed) as caught:
        a.take("B", "x", 20)
    assert caught.value.party == RELAY


def test_when_the_engine_ends_a_run_the_missing_party_is_named():
    engine = Engine("ABC")
    made = {}
    threads = [
        threading.Thread(target=lambda p=p: made.update({p: engine.transport(p)})) for p in "ABC"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    engine.gone.add("C")
    made["A"].call_off(own=False)
    with pytest.raises(PeerFailed) as caught:
        made["A"].take("B", "x", 5)
    assert caught.value.party == "C"
    engine.gone.clear()
    made["B"].call_off(own=True)
    with pytest.raises(PeerFailed) as caught:
        made["B"].post("A", b"x")
    assert caught.value.party == "B"


def test_a_deadline_counts_from_when_a_peer_was_last_heard_to_get_on(monkeypatch):
    """A waits for B; B, or C whom B waits for, works longer than the deadline and says so."""
    monkeypatch.setattr(relayed, "_WORKING_EVERY", 0.05)

    def waits(channel):
        return channel.within("x", TALK).receive("B", "anything")

    def works(say, channel):
        for _ in range(12):
            time.sleep(0.1)
            if say:
                engine.transports[channel.me].progress()
        channel.within("x", TALK).send("B" if channel.me == "C" else "A", "anything", "done")

    def passes_on(channel):
        word = channel.within("x", TALK).receive("C", "anything")
        channel.within("x", TALK).send("A", "anything", word)

    engine = Engine("AB")
    roles = {"A": waits, "B": partial(works, True)}
    assert run(roles, timeout=0.6, engine=engine)["A"] == "done"
    engine = Engine("ABC")
    roles = {"A": waits, "B": passes_on, "C": partial(works, True)}
    assert run(roles, timeout=0.6, engine=engine)["A"] == "done"
    engine = Engine("AB")
    with pytest.raises(TimedOut) as caught:
        run({"A": waits, "B": partial(works, False)}, timeout=0.6, engine=engine)
    assert caught.value.party == "B"


def test_the_relay_sees_no_names_of_messages_and_no_values():
    engine = Engine("AB")
    roles = {"A": partial(_send, 3), "B": partial(_receive, 3)}
    run(roles, engine=engine)
    carried = b"".join(envelope for _, _, envelope in engine.seen)
    assert b"secret" not in carried
    assert b"anything" not in carried
    assert len(carried) > 300


def test_sending_waits_for_a_slow_engine_but_not_for_the_receiver():
    slow = threading.Event()
    engine = Engine("AB", on_carry=lambda me, peer, envelope: (slow.wait(5), [envelope])[1])
    a, b = pair(engine)
    sent = []

    def work():
        for number in range(relayed._AHEAD + 5):
            a.post("B", b"x")
            sent.append(number)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    time.sleep(0.3)
    assert len(sent) <= relayed._AHEAD + 1
    slow.set()
    thread.join(5)
    assert len(sent) == relayed._AHEAD + 5
    assert b.take("A", "x", 5) == b"x"


def test_a_party_that_ends_early_waits_for_the_others_and_reports_unread_messages():
    sent = threading.Event()

    def sender(channel):
        channel.within("x", TALK).send("B", "anything", 1)
        sent.set()

    # B must not have ended before A sends: that is another error.
    with pytest.raises(ChannelError, match="never received"):
        run({"A": sender, "B": lambda channel: sent.wait(10)})
