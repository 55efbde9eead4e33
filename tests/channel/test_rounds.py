"""The longest chain of messages, and the time that a slow network would take."""

from functools import partial

import pytest

from vfsl.channel import Transcript, count_rounds, estimate_seconds, run_together
from vfsl.channel.transcript import Event
from vfsl.errors import ChannelError
from vfsl.values import Disclosure

TALK = {"number": Disclosure(int, "a number")}
MEGABIT = 125_000  # bytes


def write(*lines):
    """A transcript of lines such as "A>B" (A sends to B) and "B<A" (B takes from A)."""
    transcript = Transcript()
    for line in lines:
        what, _, size = line.partition(" ")
        sends = ">" in what
        party, peer = what.split(">" if sends else "<")
        transcript.events.append(Event(party, peer, sends, int(size or 0)))
    return transcript


def test_nothing_takes_no_time():
    assert count_rounds(Transcript()) == 0
    assert estimate_seconds(Transcript()) == 0.0


@pytest.mark.parametrize(
    ("lines", "rounds"),
    [
        (["A>B"], 1),
        (["A>B", "A>B", "B<A", "B<A"], 1),  # sent ahead: one after the other, nobody waits
        (["A>B", "B<A", "B>A", "A<B"], 2),
        (["A>B", "B>A", "A<B", "B<A"], 1),  # both at once
        (["A>B", "A>C", "B<A", "C<A", "B>C", "C<B"], 2),
        (["K>B", "A>B", "B<A", "B>A", "A<B", "A>B", "B<A", "B<K"], 3),  # K sent ahead
        (["K>B", "A>B", "B<A", "B>K", "K<B", "K>B", "B<K", "B<K"], 3),
    ],
)
def test_rounds_are_the_longest_chain(lines, rounds):
    assert count_rounds(write(*lines)) == rounds


def test_the_order_between_parties_does_not_matter():
    """A receiver may be noted before the sender's own note is written."""
    assert count_rounds(write("B<A", "B>A", "A>B", "A<B")) == 2


def test_a_line_carries_one_message_after_the_other():
    both = write(f"A>B {MEGABIT}", f"A>C {MEGABIT}", "B<A", "C<A")
    assert estimate_seconds(both, latency=0.5, bits_per_second=1e6) == pytest.approx(2.5)
    apart = write(f"A>C {MEGABIT}", f"B>C {MEGABIT}", "C<A", "C<B")
    assert estimate_seconds(apart, latency=0.5, bits_per_second=1e6) == pytest.approx(1.5)


def test_an_answer_leaves_when_the_question_has_come_and_the_line_is_free():
    lines = [f"A>B {MEGABIT}", "B<A", f"B>A {MEGABIT}", "A<B"]
    assert estimate_seconds(write(*lines), 0.5, 1e6) == pytest.approx(3.0)
    busy = [f"B>C {5 * MEGABIT}", *lines, "C<B"]
    assert estimate_seconds(write(*busy), 0.5, 1e6) == pytest.approx(6.5)


def test_a_transcript_of_one_party_is_refused():
    with pytest.raises(ChannelError, match="lacks a message that 'B' took from 'A'") as caught:
        count_rounds(write("B<A"))
    assert caught.value.party == "A"


def bounce(peer, first, channel):
    """Three messages to and fro."""
    channel = channel.within("play", TALK)
    for turn in range(3):
        if first == (turn % 2 == 0):
            channel.send(peer, "number", turn)
        else:
            channel.receive(peer, "number")


@pytest.mark.parametrize("on", ["memory", "processes"])
def test_real_runs_add_up(on):
    transcript = Transcript()
    roles = {"A": partial(bounce, "B", True), "B": partial(bounce, "A", False)}
    run_together(roles, on=on, transcript=transcript)
    assert count_rounds(transcript) == 3
    sizes = sum(entry.bytes for entry in transcript.entries)
    assert estimate_seconds(transcript, 0.1, 8e3) == pytest.approx(0.3 + sizes / 1000)
    run_together(roles, on="memory", transcript=transcript)
    assert count_rounds(transcript) == 5  # A begins again while its last message is on the way
