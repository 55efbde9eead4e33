"""A relay that forges, repeats, changes and withholds notes, in whole runs."""

import threading
from functools import partial

import pytest

from tests.channel.relay_case import Engine, pair, run
from vfsl.channel import Attempt, wire
from vfsl.channel.envelopes import DATA, OPEN_NOTE, SEALED_NOTE, make_envelope, open_envelope
from vfsl.channel.relayed import session_name
from vfsl.channel.sealing import NoteSession, Secrets
from vfsl.errors import ChannelError, DataError, PeerFailed, VfslError
from vfsl.testing.channels import TALK

FORGED = {
    "a failure": ("failed", {"culprit": "A", "reason": "made up", "sure": True}),
    "another's failure": ("failed", {"culprit": "B", "reason": "made up", "sure": True}),
    "an end": ("ended", {"posted": 0}),
    "a wait": ("waiting", {"for": "B", "taken": 0, "posted": {"B": 0}}),
    "a malformed wait": ("waiting", {"for": "B", "taken": 0, "posted": 5}),
}


def envelope(kind, content, number=0):
    return make_envelope(kind, session_name("run", 1), number, content)


def opened(one):
    """Kind, number and content of an envelope."""
    found = open_envelope(one)
    return found.kind, found.number, found.content


def talk(channel):
    """A and B send each other a few words in turn, and return what they got."""
    channel, other = channel.within("x", TALK), {"A": "B", "B": "A"}[channel.me]
    came = []
    for turn in range(4):
        if (turn % 2 == 0) == (channel.me == "A"):
            channel.send(other, "anything", f"word {turn}")
        else:
            came.append(channel.receive(other, "anything"))
    return came


def talked(on_carry):
    return run({"A": talk, "B": talk}, timeout=20, engine=Engine("AB", on_carry=on_carry))


HEARD = {"A": ["word 1", "word 3"], "B": ["word 0", "word 2"]}


def forging(kind, after_handshake):
    """A relay that says something in A's name, before its handshake or amid the talk."""
    note = envelope(OPEN_NOTE, wire.encode(*FORGED[kind]))
    amid = threading.Event()

    def carry(me, peer, one):
        if me != "A":
            return [one]
        # A's frame 0 is its handshake; with frame 2 it answers B, who has its keys by then.
        if opened(one)[:2] == (DATA, 2):
            amid.set()
        if after_handshake:
            return [note, one, note] if amid.is_set() else [one]
        return [note, one]

    return carry


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_note_changes_nothing_after_the_handshake(kind):
    assert talked(forging(kind, after_handshake=True)) == HEARD


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_note_before_the_handshake_stops_the_run_and_blames_nobody_for_sure(kind):
    """The control: the same forgery is heard while there are no keys."""
    with pytest.raises(ChannelError) as caught:
        talked(forging(kind, after_handshake=False))
    assert isinstance(caught.value, PeerFailed)
    assert caught.value.party == ("the relay or B" if "another" in kind else "the relay or A")


def test_repeated_notes_count_once():
    kept = []

    def carry(me, peer, one):
        if opened(one)[0] != SEALED_NOTE:
            return [one]
        kept.append((me, peer, one))
        return [old for sender, receiver, old in kept if (sender, receiver) == (me, peer)] * 2

    assert talked(carry) == HEARD
    assert len(kept) >= 4  # the first note of each, and that of its end


@pytest.mark.parametrize("change", ["altered", "renumbered", "sent back", "cut"])
def test_a_changed_note_stops_the_run_and_blames_nobody_for_sure(change):
    from_b = []

    def carry(me, peer, one):
        kind, number, content = opened(one)
        if kind != SEALED_NOTE:
            return [one]
        if me == "B":
            from_b.append(content)
            return [one]
        if change == "altered":
            return [one[:-1] + bytes([one[-1] ^ 1])]
        if change == "renumbered":
            return [envelope(kind, content, number + 1)]
        if change == "cut":
            return [one[:-1]]
        return [envelope(kind, from_b[-1] if from_b else bytes(40), number)]

    with pytest.raises(PeerFailed, match="an envelope was refused") as caught:
        talked(carry)
    assert caught.value.party == "the relay or A"


def test_a_note_of_one_pair_is_refused_by_another():
    def carry(me, peer, one):
        kind, number, content = opened(one)
        if me == "A" and peer == "C" and kind == SEALED_NOTE:
            engine.transports["B"].accept("A", envelope(kind, content, number + 1))
        return [one]

    engine = Engine("ABC", on_carry=carry)

    def waits(channel):
        channel.within("x", TALK).receive("A", "anything")

    with pytest.raises(PeerFailed) as caught:
        run({"A": waits_for("B"), "B": waits, "C": waits}, timeout=20, engine=engine)
    assert caught.value.party == "the relay or A"


def waits_for(peer):
    return lambda channel: channel.within("x", TALK).receive(peer, "anything")


def test_frames_that_are_withheld_before_an_end_are_not_blamed_on_the_sender():
    """The relay drops A's last frame and lets A's end pass."""

    def carry(me, peer, one):
        kind, number, _ = opened(one)
        # Frame 0 is the handshake, frame 1 the only message.
        return [] if (me, kind, number) == ("A", DATA, 1) else [one]

    def sends(channel):
        channel.within("x", TALK).send("B", "anything", 1)

    with pytest.raises(PeerFailed, match="an envelope was refused") as caught:
        run({"A": sends, "B": waits_for("A")}, timeout=20, engine=Engine("AB", on_carry=carry))
    assert caught.value.party == "the relay or A"


@pytest.mark.parametrize("kind", ["a malformed wait", "an end"])
def test_a_party_whose_sealed_note_is_wrong_is_refused(kind):
    """A itself is the attacker: its notes are authentic, and still checked."""

    def lies(channel):
        transport = engine.transports["A"]
        content = wire.encode(*FORGED[kind])
        number, sealed = transport._notes._keys["B"].seal(content)
        engine.carry("A", "B", envelope(SEALED_NOTE, sealed, number))
        channel.within("x", TALK).receive("B", "anything")

    engine = Engine("AB")
    with pytest.raises(PeerFailed, match="an envelope was refused") as caught:
        run({"A": lies, "B": waits_for("A")}, timeout=20, engine=engine)
    assert caught.value.party == "the relay or A"


def named_by_others(roles, engine=None):
    """Whom each party names when the run fails."""
    engine = engine or Engine(roles)
    named = {}

    def noted(party, role, channel):
        engine.transports[party].on_failure = lambda culprit, _: named.setdefault(party, culprit)
        return role(channel)

    with pytest.raises(VfslError):
        run({party: partial(noted, party, role) for party, role in roles.items()}, engine=engine)
    return named


def asks(channel):
    channel.within("x", TALK).send("C", "anything", "a question")
    return channel.within("x", TALK).receive("C", "anything")


def fails(channel):
    for peer in channel.peers:
        channel.within("x", TALK).receive(peer, "anything")
    raise DataError("secret text")


def test_an_honest_failure_names_the_party_for_sure():
    named = named_by_others({"A": asks, "B": asks, "C": fails})
    assert named == {"A": "C", "B": "C"}


def test_a_failure_that_was_in_doubt_is_sure_once_the_handshake_has_ended():
    """C fails right after its handshake, before B has read C's part of it."""
    secrets = Secrets(bytes(32), bytes(range(32)), bytes(32))
    b, c = pair(Engine("BC"))
    heard = []
    b.on_failure = lambda culprit, _: heard.append(culprit)
    c.seal_notes("B", NoteSession(secrets, "C", "B", Attempt("run")))
    c.abandon(DataError("secret text"))
    assert heard == ["the relay or C"]
    b.seal_notes("C", NoteSession(secrets, "B", "C", Attempt("run")))
    assert heard == ["the relay or C", "C"]
    with pytest.raises(PeerFailed) as caught:
        b.take("C", "x", 5)
    assert caught.value.party == "C"


def test_a_failure_before_the_handshake_is_told_but_not_for_sure():
    a, b = pair(Engine("AB"))
    heard = []
    b.on_failure = lambda culprit, reason: heard.append((culprit, reason))
    a.abandon(DataError("secret text"))
    with pytest.raises(PeerFailed) as caught:
        b.take("A", "handshake", 5)
    assert caught.value.party == "the relay or A"
    assert heard == [("the relay or A", "DataError")]


def test_a_run_ends_well_only_after_the_handshake():
    a, _ = pair(Engine("AB"))
    with pytest.raises(ChannelError, match="before its handshake with 'B'"):
        a.close()


def test_the_relay_sees_no_kind_of_a_note():
    engine = Engine("AB")
    run({"A": talk, "B": talk}, engine=engine)
    kinds = [opened(one)[0] for _, _, one in engine.seen]
    assert kinds.count(SEALED_NOTE) >= 4
    assert OPEN_NOTE not in kinds
    carried = b"".join(one for _, _, one in engine.seen)
    for word in (b"working", b"ended", b"posted"):
        assert word not in carried
