"""Sums of words that private bits choose: the same as in the clear, few bytes, uniform messages."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crypto.share_cases import DEALER, NAMES, run_program
from vfsl.channel import Transcript, count_rounds, wire
from vfsl.crypto.choosing import CHUNK, sum_chosen
from vfsl.crypto.shares import Session
from vfsl.errors import ProtocolError


def made(rng, holders, rows, counts, width=24):
    """Words and constants of the first holder, and the bits of all others."""
    places, half = sum(counts), 1 << (width - 1)
    return {
        "words": rng.integers(-half, half, (rows, places)),
        "always": rng.integers(-half, half, (rows, len(counts))),
        "bits": {name: rng.integers(0, 2, (rows, places)) for name in NAMES[1:holders]},
    }


def add_up(known, counts, width):
    """The sums in the clear, as signed numbers of some bits."""
    chosen = known["words"].astype(object)
    for bits in known["bits"].values():
        chosen = chosen * bits
    ends = np.cumsum([0, *counts])
    sums = [chosen[:, a:b].sum(axis=1) for a, b in pairwise(ends)]
    half = 1 << (width - 1)
    total = np.stack(sums, axis=1).reshape(known["always"].shape) + known["always"]
    return (total + half) % (2 * half) - half


def choose(known, session, rows, counts, width, chunk=CHUNK):
    """One party's side; in one place everybody's."""
    everywhere = len(session.parties) == 1
    bits = {
        name: (lambda chunk, one=one: one[chunk])
        for name, one in known["bits"].items()
        if everywhere or session.me == name
    }
    words = None
    if everywhere or session.me == NAMES[0]:
        words = lambda chunk: (known["words"][chunk], known["always"][chunk])  # noqa: E731
    return sum_chosen(session, rows, counts, width, bits, words, chunk)


def run(known, holders, counts, width=24, chunk=CHUNK, **how):
    rows = len(known["words"])

    def program(session, _):
        found = choose(known, session, rows, counts, width, chunk)
        return found.open(NAMES[0], name="result")

    return run_program(program, NAMES[:holders], {}, **how)


CASES = st.tuples(
    st.integers(0, 2**32 - 1),
    st.integers(2, 4),
    st.integers(0, 7),
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.sampled_from([8, 16, 24, 40, 64]),
    st.sampled_from([1, 20, CHUNK]),
)


@settings(deadline=None, max_examples=60)
@given(CASES, st.booleans())
def test_shared_sums_are_those_in_the_clear(case, hide):
    seed, holders, rows, counts, width, chunk = case
    known = made(np.random.default_rng(seed), holders, rows, counts, width)
    truth = add_up(known, counts, width)
    found = run(known, holders, counts, width, chunk, hide=hide)
    assert np.array_equal(found[NAMES[0]], truth)
    assert all(value is None for party, value in found.items() if party != NAMES[0])
    plain = choose(known, Session.plain(), rows, counts, width, chunk)
    assert np.array_equal(plain.open(name="result"), truth)


@pytest.mark.parametrize(
    ("holders", "words", "bits", "rounds"), [(2, 1, 1, 3), (3, 3, 5, 4), (4, 4, 13, 4)]
)
@pytest.mark.parametrize("chunk", [400, CHUNK])
def test_words_cross_once_to_each_chooser_and_bits_as_bits(holders, words, bits, rounds, chunk):
    """For three choosers a word costs 6 exchanged, 4 dealt and 3 shown bits; it is sent thrice, and
    the number of its mask is dealt."""
    rows, counts, transcript = 40, [64, 16], Transcript()
    known = made(np.random.default_rng(0), holders, rows, counts)
    run(known, holders, counts, chunk=chunk, transcript=transcript)
    crossed = sum(entry.bytes for entry in transcript.entries)
    per_word = 3 * words + bits / 8
    framing = 60 * len(transcript.entries)
    assert crossed <= rows * (80 * per_word + 2 * 3 * (2 * holders - 1)) + framing
    # Seeds come first; then bits, words and the result, and with several choosers bits twice.
    assert count_rounds(transcript) == rounds + 1


@pytest.mark.parametrize("holders", [2, 3, 4])
def test_messages_are_uniform_whatever_the_bits_and_words_are(holders):
    """Constant data, so that any bias would show: every sender's bits are 0 and 1 alike."""
    rows, counts = 40, [100]
    known = made(np.random.default_rng(0), holders, rows, counts)
    known["words"] = np.full((rows, 100), -1)
    known["bits"] = {name: np.ones((rows, 100), dtype=int) for name in known["bits"]}
    transcript = Transcript(keep_views=True)
    run(known, holders, counts, transcript=transcript)
    seen = defaultdict(list)
    for sight in transcript.sights:
        name = sight.name.split("/")[-1]
        if name in ("masked", "dealt"):
            content = wire.decode(sight.body)[1].payload
            seen[sight.sender, sight.receiver].append(np.unpackbits(content))
    assert (NAMES[0], NAMES[1]) in seen
    for found in seen.values():
        bits = np.concatenate(found)
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))
    # What one party gets from several is uniform together, too.
    first = [np.concatenate(found) for (_, to), found in seen.items() if to == NAMES[0]]
    together = np.bitwise_xor.reduce(first)
    assert abs(together.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(together))
    assert not any(to == DEALER for _, to in seen)


def test_a_second_run_has_other_masks():
    known = made(np.random.default_rng(0), 3, 20, [30])
    bodies = []
    for _ in range(2):
        transcript = Transcript(keep_views=True)
        run(known, 3, [30], transcript=transcript)
        bodies.append({s.body for s in transcript.sights if s.name.endswith("masked")})
    assert not bodies[0] & bodies[1]


def test_a_chooser_that_sends_too_few_bits_is_named():
    known = made(np.random.default_rng(0), 2, 8, [8])
    short = dict(known, bits={"B": known["bits"]["B"]})

    def program(session, _):
        counts = [7] if session.me == "B" else [8]
        held = short if session.me != "B" else dict(short, bits={"B": short["bits"]["B"][:, :7]})
        return choose(held, session, 8, counts, 24)

    with pytest.raises(ProtocolError, match="'B' sent 7 bytes as 'masked'; expected 8"):
        run_program(program, ("A", "B"), {})
