"""Notes of a relayed run: fields that are checked, keys of their own, and when one counts."""

import numpy as np
import pytest

from vfsl.channel import wire
from vfsl.channel.notes import Ended, Notebook, Working, Written
from vfsl.channel.sealing import Attempt, NoteSession, Secrets, Session
from vfsl.channel.transport import Failed, Wait
from vfsl.errors import Unauthentic, WireError

SECRETS = Secrets(bytes(32), bytes(range(32)), b"h" * 32)
RUN = Attempt("run")
NOTES = [
    Working(),
    Ended(7),
    Failed("C", "DataError"),
    Failed("B", "it does not answer", sure=False),
    Failed("the relay", "it does not answer"),
    Wait("C", "a message", 3, {"A": 1, "C": 0}),
]


def books(sealed=True):
    """Notebooks of A and B, who know of C."""
    a, b = Notebook("A", ("B", "C")), Notebook("B", ("A", "C"))
    if sealed:
        a.add_keys("B", NoteSession(SECRETS, "A", "B", RUN))
        b.add_keys("A", NoteSession(SECRETS, "B", "A", RUN))
    return a, b


@pytest.mark.parametrize("note", NOTES, ids=str)
def test_a_sealed_note_says_what_was_said(note):
    a, b = books()
    (first, *_) = a.write("B", note)
    assert first.sealed
    assert b.read("A", first) == note


def test_once_both_have_keys_nothing_is_said_or_believed_openly():
    a, b = books()
    failed = Failed("A", "DataError")
    sealed, opened = a.write("B", failed)  # B may not have its keys yet
    assert (sealed.sealed, opened.sealed) == (True, False)
    assert a.read("B", b.write("A", Working())[0]) == Working()
    (only,) = a.write("B", failed)
    assert only.sealed
    assert b.read("A", only) == failed
    assert b.read("A", opened) is None
    assert b.read("A", Written(False, 0, b"any bytes")) is None


def test_before_there_are_keys_only_a_failure_counts_and_is_not_sure():
    a, b = books(sealed=False)
    for note in NOTES:
        if not isinstance(note, Failed):
            assert a.write("B", note) == []
    (opened,) = a.write("B", Failed("A", "ConfigError"))
    said = b.read("A", opened)
    assert said == Failed("A", "ConfigError", sure=False)
    assert said.named == "the relay or A"
    relay = b.read("A", Written(False, 0, a.write("B", Failed("the relay", "x"))[0].content))
    assert relay.named == "the relay"
    for note in (wire.encode("ended", {"posted": 0}), wire.encode("working", {})):
        with pytest.raises(WireError, match="came open"):
            b.read("A", Written(False, 0, note))


def test_sealed_notes_wait_for_the_keys():
    a, _ = books()
    b = Notebook("B", ("A", "C"))
    for note in NOTES:
        assert b.read("A", a.write("B", note)[0]) is None
    assert b.add_keys("A", NoteSession(SECRETS, "B", "A", RUN)) == NOTES


def test_a_flood_of_early_notes_takes_bounded_memory():
    b = Notebook("B", ("A",))
    for number in range(10_000):
        assert b.read("A", Written(True, number, bytes(1 << 14))) is None
    assert len(b._early["A"]) == 64
    with pytest.raises(WireError, match="bytes is refused"):
        b.read("A", Written(True, 0, bytes((1 << 14) + 1)))


def test_repeated_and_late_notes_are_dropped_and_altered_ones_refused():
    a, b = books()
    one, two, three = (a.write("B", Ended(count))[0] for count in range(3))
    assert b.read("A", two) == Ended(1)
    assert b.read("A", two) is None  # repeated
    assert b.read("A", one) is None  # late
    forged = [
        Written(True, 9, three.content),  # another number
        Written(True, 2, three.content[:-1] + bytes([three.content[-1] ^ 1])),
        Written(True, 2, b""),
        Written(True, 1 << 33, three.content),
        Written(True, 2, b.write("A", Ended(2))[0].content),  # sent back to its sender
    ]
    for written in forged:
        with pytest.raises(Unauthentic):
            b.read("A", written)
    assert b.read("A", three) == Ended(2)  # none of them disturbed the session


def test_notes_and_frames_share_no_key():
    number, note = NoteSession(SECRETS, "A", "B", RUN).seal(b"text")
    frames = Session(SECRETS, "B", "A", RUN)
    with pytest.raises(Unauthentic):
        frames.open(note)
    frame = Session(SECRETS, "A", "B", RUN).seal(b"text")
    with pytest.raises(Unauthentic):
        NoteSession(SECRETS, "B", "A", RUN).open(0, frame)
    assert NoteSession(SECRETS, "B", "A", RUN).open(number, note) == b"text"
    with pytest.raises(Unauthentic):
        NoteSession(SECRETS, "B", "A", Attempt("run", 2)).open(number, note)


WAIT = {"for": "B", "taken": 0, "posted": {}}
FAILURE = {"culprit": "A", "reason": "DataError", "sure": True}


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("unknown", {}),
        ("working", None),
        ("working", {"more": 1}),
        ("ended", {}),
        ("ended", 3),
        ("ended", {"posted": -1}),
        ("ended", {"posted": True}),
        ("ended", {"posted": 1.0}),
        ("ended", {"posted": 1 << 70}),
        ("waiting", []),
        ("waiting", WAIT | {"for": "D"}),
        ("waiting", WAIT | {"for": {}}),
        ("waiting", WAIT | {"for": np.zeros(3)}),
        ("waiting", WAIT | {"taken": "0"}),
        ("waiting", WAIT | {"posted": 5}),
        ("waiting", WAIT | {"posted": ["A"]}),
        ("waiting", WAIT | {"posted": {"D": 1}}),
        ("waiting", WAIT | {"posted": {"A": None}}),
        ("waiting", WAIT | {"more": 1}),
        ("failed", ["A", "DataError"]),
        ("failed", FAILURE | {"culprit": "somebody else"}),
        ("failed", FAILURE | {"culprit": None}),
        ("failed", FAILURE | {"culprit": []}),
        ("failed", FAILURE | {"reason": 5}),
        ("failed", FAILURE | {"reason": "x" * 201}),
        ("failed", FAILURE | {"reason": "two\nlines"}),
        ("failed", FAILURE | {"sure": 1}),
    ],
)
def test_a_malformed_note_is_a_wire_error_sealed_or_open(kind, facts):
    content = wire.encode(kind, facts)
    _, b = books()
    number, sealed = NoteSession(SECRETS, "A", "B", RUN).seal(content)
    with pytest.raises(WireError):
        b.read("A", Written(True, number, sealed))
    with pytest.raises(WireError):
        books(sealed=False)[1].read("A", Written(False, 0, content))


@pytest.mark.parametrize("content", [b"", b"junk", wire.encode("ended", {"posted": 0})[:-1]])
def test_bytes_that_are_no_note_are_a_wire_error(content):
    _, b = books(sealed=False)
    with pytest.raises(WireError):
        b.read("A", Written(False, 0, content))
