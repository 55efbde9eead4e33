"""Sealing: the handshake against an independent implementation, and every kind of tampering."""

import json
import random
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfsl.channel.sealing import Attempt, Handshake, Secrets, Session, seal
from vfsl.errors import ConfigError, Unauthentic

VECTOR = json.loads((Path(__file__).parent / "vectors" / "noise_kk.json").read_text())
KEYS = {name: X25519PrivateKey.generate() for name in ("A", "B", "M")}
PINS = {name: key.public_key() for name, key in KEYS.items()}


def key(name):
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(VECTOR[name]))


def test_handshake_equals_an_independent_implementation():
    own, peer = key("initiator_static"), key("responder_static")
    prologue = bytes.fromhex(VECTOR["prologue"])
    initiator = Handshake(
        initiator=True,
        own=own,
        peer=peer.public_key(),
        prologue=prologue,
        ephemeral=key("initiator_ephemeral"),
    )
    responder = Handshake(
        initiator=False,
        own=peer,
        peer=own.public_key(),
        prologue=prologue,
        ephemeral=key("responder_ephemeral"),
    )
    first = initiator.write()
    responder.read(first)
    second = responder.write()
    initiator.read(second)
    assert first.hex() == VECTOR["message_1"]
    assert second.hex() == VECTOR["message_2"]
    for side in (initiator, responder):
        secrets = side.finish()
        assert secrets.initiator_key.hex() == VECTOR["initiator_key"]
        assert secrets.responder_key.hex() == VECTOR["responder_key"]
        assert secrets.transcript_hash.hex() == VECTOR["handshake_hash"]


def shake(attempt_a=None, attempt_b=None, own_b="B", pin_b="B", pin_a="A"):
    """Handshake of A and B by hand; the sessions of both."""
    attempt_a, attempt_b = attempt_a or Attempt("run"), attempt_b or Attempt("run")
    a = Handshake(
        initiator=True, own=KEYS["A"], peer=PINS[pin_b], prologue=attempt_a.bind("A", "B")
    )
    b = Handshake(
        initiator=False, own=KEYS[own_b], peer=PINS[pin_a], prologue=attempt_b.bind("A", "B")
    )
    b.read(a.write())
    a.read(b.write())
    return Session(a.finish(), "A", "B", attempt_a), Session(b.finish(), "B", "A", attempt_b)


def test_both_directions_work_in_order():
    a, b = shake()
    for i in range(5):
        assert b.open(a.seal(b"to b %d" % i)) == b"to b %d" % i
        assert a.open(b.seal(b"to a %d" % i)) == b"to a %d" % i


@pytest.mark.parametrize(
    "difference",
    [
        {"attempt_b": Attempt("other run")},
        {"attempt_b": Attempt("run", number=2)},
        {"attempt_b": Attempt("run", job_hash=b"x")},
        {"attempt_b": Attempt("run", he_key_hash=b"x")},
        {"own_b": "M"},
        {"pin_b": "M"},
        {"pin_a": "M"},
    ],
)
def test_any_disagreement_ends_the_handshake(difference):
    with pytest.raises(Unauthentic):
        shake(**difference)


def test_points_of_small_order_and_wrong_lengths_are_refused():
    for message in (bytes(48), bytes(47), b"\x01" + bytes(47)):
        side = Handshake(initiator=False, own=KEYS["B"], peer=PINS["A"], prologue=b"")
        with pytest.raises(Unauthentic):
            side.read(message)


def test_replay_reorder_drop_and_reflection_are_refused():
    a, b = shake()
    first, second, third = a.seal(b"1"), a.seal(b"2"), a.seal(b"3")
    with pytest.raises(Unauthentic):
        b.open(second)  # reordered
    assert b.open(first) == b"1"
    with pytest.raises(Unauthentic):
        b.open(first)  # replayed
    with pytest.raises(Unauthentic):
        b.open(third)  # one dropped
    with pytest.raises(Unauthentic):
        a.open(second)  # sent back to its sender
    assert b.open(second) == b"2"


def test_100000_forgeries_are_refused():
    a, b = shake()
    source = random.Random(3)
    sealed = [a.seal(source.randbytes(source.randrange(40))) for _ in range(50)]
    for case in range(100_000):
        if case % 5 == 0:
            forged = source.randbytes(source.randrange(80))
        elif case % 5 == 1:
            forged = source.choice(sealed[1:])  # replay or reorder of genuine frames
        else:
            frame = bytearray(source.choice(sealed))
            frame[source.randrange(len(frame))] ^= source.randrange(1, 256)
            forged = bytes(frame[: source.randrange(len(frame) + 1)] if case % 5 == 2 else frame)
        with pytest.raises(Unauthentic):
            b.open(forged)
    for frame in sealed:
        b.open(frame)  # none of the forgeries disturbed the session


def test_a_resumed_attempt_never_shares_a_key():
    """Even with the same ephemeral keys, another attempt number gives other keys."""
    secrets = Secrets(bytes(32), bytes(range(32)), b"h" * 32)
    one, two = (Session(secrets, "A", "B", Attempt("run", number)) for number in (1, 2))
    frame = one.seal(b"same text")
    assert frame != two.seal(b"same text")
    with pytest.raises(Unauthentic):
        Session(secrets, "B", "A", Attempt("run", 2)).open(frame)


def test_fresh_handshakes_share_no_key():
    frames = {shake()[0].seal(b"same text") for _ in range(20)}
    assert len(frames) == 20


def test_a_session_ends_before_its_counter_wraps():
    one = Session(Secrets(bytes(32), bytes(32), bytes(32)), "A", "B", Attempt("run"))
    one._sent = 1 << 32
    with pytest.raises(Unauthentic, match="used up"):
        one.seal(b"")


def test_a_peer_without_a_pin_is_named():
    class Nobody:
        me, peers = "A", ("B",)

    with pytest.raises(ConfigError, match="no pinned key for 'B'"):
        seal(Nobody(), KEYS["A"], {}, Attempt("run"))
