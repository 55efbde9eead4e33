"""What parties see while they compute on shares: uniform words; and that these tests would notice.

Seeds are fixed, so a test gives the same every time. The rates below say how often one with good
masks would fail for another choice of seeds.
"""

from collections import Counter

import numpy as np
import pytest

from tests.crypto.share_cases import DEALER, NAMES, SPEAKS, run_program
from vfsl.channel import Transcript, wire
from vfsl.crypto.choosing import sum_chosen
from vfsl.crypto.dealing import SEED_BYTES, Stream
from vfsl.crypto.session import Exchange, Mask, absent
from vfsl.crypto.shares import Session
from vfsl.crypto.together import Cut, cut_all, multiply_all, scale_rows
from vfsl.draws import RepeatableGenerator
from vfsl.errors import NameMismatch, PeerClosed, ProtocolError
from vfsl.values import Masked

RUNS = 32
CELLS = 64  # so that packed bits fill whole words
SHAPE = (CELLS, 1)
HALF = 1 << 19

# Numbers that are far from uniform, and whose last 20 bits hardly ever carry.
DATA = {
    party: {"column": (np.arange(CELLS).reshape(SHAPE) % 7 - HALF), "one": np.array([[3]])}
    for party in NAMES
}


def all_operations(session, held):
    """Every operation that sends something, each on arrays that are still with their owners."""

    def column(owner):
        return session.share(owner, held.get("column"), SHAPE)

    def one(owner):
        return session.share(owner, held.get("one"), (1, 1))

    x = session.private("A", held.get("column"), SHAPE)
    y = session.private("B", held.get("column"), SHAPE)
    again = column("A")  # a factor that keeps its mask
    waves = session.waves([(x, one("B")), (y, one("A"))], (1, 3), period=64, bits=14, width=64)
    found = [
        again * column("B"),
        again * (column("B") + 1),
        column("A") @ one("B"),
        x @ one("B"),
        y @ one("A"),
        x @ y[:1].T,
        y @ x[:1].T,
        column("A").truncate(20),
        column("B").truncate(20),
        (column("A") + HALF).below_zero(),
        (column("B") + HALF).below_zero(),
        waves.sum(14, sines=[0.5, 0.25]),
    ]
    return [array.open("A", name="result") for array in found]


def together_operations(session, held):
    """The same for operations that share rounds."""

    def column(owner, shape=SHAPE):
        name = "column" if shape == SHAPE else "one"
        return session.share(owner, held.get(name), shape)

    x = session.private("A", held.get("column"), SHAPE)
    found = [
        scale_rows(x, column("B")),
        *multiply_all([(column("A"), column("B", (1, 1))), (column("B"), column("A", (1, 1)))]),
        *cut_all([Cut.truncate(column("A"), 20), Cut.sign(column("B") + HALF)]),
    ]
    return [array.open("A", name="result") for array in found]


def choosing_operations(session, held):
    """The first holder's words, chosen by bits of all others."""
    column = held.get("column")
    first = session.me == session.parties[0] and column is not None
    words = (lambda chunk: (column[chunk].repeat(8, axis=1), column[chunk])) if first else None
    own = None if column is None else lambda chunk: column[chunk].repeat(8, axis=1) & 1
    bits = {} if own is None or first else {session.me: own}
    found = sum_chosen(session, CELLS, [8], 64, bits, words)
    return found.open(session.parties[0], name="result")


class Seeds(RepeatableGenerator):
    """The dealer's seeds: those of some parties are the same in every run, the others' are not."""

    def __init__(self, parties, same, run):
        super().__init__(np.random.PCG64(0))
        self._next = iter(parties)
        self._same, self._run = same, run

    def bytes(self, size):
        party = next(self._next)
        run = 0 if party in self._same else self._run + 1
        return np.random.default_rng([run, ord(party)]).bytes(size)


def look(together, parties, fixed=True, operations=all_operations):
    """What data holders get from the others in each run, and all learn: {message: words by run}.

    They know their own seeds, so these stay the same if ``fixed``: words must be uniform given what
    they know. If not, relations with their own words show that one value of these would hide.
    """
    seen = {}
    for run in range(RUNS):
        transcript = Transcript(keep_views=True)
        learnt = []

        def program(session, held, learnt=learnt):
            if session.me == together[0]:
                _listen(session, learnt)
            return operations(session, held)

        rng = Seeds(parties, together if fixed else (), run)
        run_program(program, parties, DATA, rng=rng, transcript=transcript)
        for receiver in together:
            for place, (sender, name, frame) in enumerate(transcript.view(receiver)):
                message = name.rsplit("/")[-1]
                if message in ("masked", "dealt") and sender not in together:
                    key = (f"{receiver} {place}", sender, message)
                    content = wire.decode(frame)[1].payload
                    seen.setdefault(key, []).append(content.view(np.uint64))
        for place, content in enumerate(learnt):
            seen.setdefault((place, "all", "learnt"), []).append(content.view(np.uint64))
    return {key: np.stack(found) for key, found in seen.items()}


def _listen(session, learnt):
    """Keep what all holders learn: the sums of masked pieces."""
    reveal, reveal_bits = session.reveal, session.reveal_bits

    def keep(pieces):
        shown = reveal(pieces)
        learnt.extend(shown)
        return shown

    def keep_bits(bits, mask):
        shown = reveal_bits(bits, mask)
        learnt.append(np.packbits(shown))
        return shown

    session.reveal, session.reveal_bits = keep, keep_bits


def find_patterns(seen):
    """What is not uniform in words by run: bits that never change, biased ones, equal masks.

    With good masks, 10^5 bits have one that never changes in 32 runs with a rate of 5·10^-5, and
    10^4 means of bits, or of bits that equal their neighbour, have one that is off by 6 deviations
    with a rate of 2·10^-5.
    """
    found = []
    for message, words in seen.items():
        bits = _split_bits(words)
        if (bits == bits[0]).all(axis=0).any():
            found.append((message, "a bit never changes"))
        for start in range(0, words.shape[1], CELLS):
            block = bits[:, start : start + CELLS]
            most = 6 * 0.5 / np.sqrt(block.shape[0] * block.shape[1])
            for what in (block, block[..., 1:] ^ block[..., :-1]):
                if (np.abs(what.mean(axis=(0, 1)) - 0.5) > most).any():
                    found.append((message, "a bit has a bias"))
    received = np.concatenate([w for (_, sender, _), w in seen.items() if sender != "all"], axis=1)
    received = np.unique(received, axis=1)  # what one party sent to several
    for change in (received[0] - received[1], received[0] ^ received[1]):
        if Counter(change.tolist()).most_common(1)[0][1] > 1:
            found.append(("two words", "the same mask"))
    return found


def _split_bits(words):
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    return bits.reshape(*words.shape, 64)


CASES = [("A", "AB", True), ("B", "AB", True), ("B", "AB", False), ("AC", "ABC", True)]
MORE = ["B ABC", "C ABC", "AB ABC", "BC ABC", "D ABCD", "ABD ABCD", "BCD ABCD"]
MORE_CASES = [(*case.split(), fixed) for case in MORE for fixed in (True, False)]


@pytest.mark.parametrize(
    ("together", "parties", "fixed"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_CASES)],
)
def test_data_holders_see_uniform_words(together, parties, fixed):
    """Also several of them together, as long as one stays out."""
    together, parties = tuple(together), tuple(parties)
    seen = look(together, parties, fixed)
    assert find_patterns(seen) == []
    senders = {sender for _, sender, _ in seen}
    assert senders >= {*parties, "all"} - {*together}
    assert (DEALER in senders) == (parties[-1] in together)
    assert sum(words.shape[1] for words in seen.values()) > 1000


@pytest.mark.parametrize("receiver", ["A", "B"])
def test_operations_that_share_rounds_show_uniform_words(receiver):
    seen = look((receiver,), ("A", "B"), operations=together_operations)
    assert find_patterns(seen) == []


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(
    "case", ["A AB", "B AB", "A ABC", "C ABC", "AB ABC", "AC ABC", "BC ABC", "ABD ABCD", "ACD ABCD"]
)
def test_words_chosen_by_bits_show_uniform_words(case, fixed):
    together, parties = (tuple(names) for names in case.split())
    seen = look(together, parties, fixed, operations=choosing_operations)
    if {*parties[1:]} <= {*together}:  # they know all masks of what is dealt among them
        seen = {key: words for key, words in seen.items() if key[2] != "dealt"}
    assert find_patterns(seen) == []
    assert seen


@pytest.mark.parametrize(("parties", "number"), [("AB", 0), ("AB", 1), ("ABC", 0), ("ABC", 3)])
def test_a_mask_of_chosen_words_that_is_switched_off_is_noticed(monkeypatch, parties, number):
    switch_off(monkeypatch, number)
    assert is_noticed(tuple(parties), choosing_operations)


def count_draws(parties, operations):
    counted = []

    def program(session, held):
        real, session.draws = session._draw, 0

        def draw(*args):
            session.draws += 1
            return real(*args)

        session._draw = draw
        operations(session, held)
        counted.append(session.draws)

    run_program(program, parties, DATA)
    assert len(set(counted)) == 1
    return counted[0]


def switch_off(monkeypatch, number):
    """All parties and the dealer use zeros in place of one of the draws of a session."""
    real = Exchange._draw

    def draw(self, *args):
        mask, self.drawn = real(self, *args), getattr(self, "drawn", -1) + 1
        if self.drawn != number:
            return mask
        return Mask(np.zeros_like(mask.own), tuple(np.zeros_like(one) for one in mask.every))

    monkeypatch.setattr(Exchange, "_draw", draw)


def is_noticed(parties, operations=all_operations):
    return any(
        find_patterns(look((party,), parties, fixed, operations))
        for fixed in (True, False)
        for party in parties
    )


DRAWS = 63
TOGETHER_DRAWS = 23


def test_the_number_of_draws():
    assert count_draws(("A", "B"), all_operations) == DRAWS
    assert count_draws(("A", "B"), together_operations) == TOGETHER_DRAWS


@pytest.mark.parametrize("number", [5, 11])
def test_a_mask_that_is_switched_off_is_noticed(monkeypatch, number):
    switch_off(monkeypatch, number)
    assert is_noticed(("A", "B"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(TOGETHER_DRAWS))
def test_every_mask_of_operations_that_share_rounds(monkeypatch, number):
    switch_off(monkeypatch, number)
    assert is_noticed(("A", "B"), together_operations)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(DRAWS))
def test_every_mask_that_is_switched_off_is_noticed(monkeypatch, number):
    switch_off(monkeypatch, number)
    assert is_noticed(("A", "B"))


# ---- the dealer ----------------------------------------------------------------------------------


def with_everything(session, held):
    """All operations, and all that reaches the dealer."""
    sizes = session.agree({"rows": CELLS} if held else None)
    session.announce("B", np.arange(3) if session.has("B") else None)
    v = session.share("B", held.get("column"), SHAPE)
    steps = 0
    while steps < 2 and session.decide(v[:1].below_zero()):
        steps += 1
    return sizes, steps, all_operations(session, held)


def exchange(data, parties):
    transcript = Transcript(keep_views=True)
    rng = RepeatableGenerator(np.random.PCG64(5))
    run_program(with_everything, parties, data, rng=rng, transcript=transcript)
    return transcript


@pytest.mark.parametrize("parties", [NAMES[:2], NAMES])
def test_the_dealer_knows_nothing_of_data(parties):
    """It sends the same whatever the data are, and gets sizes and decisions."""
    other = {**DATA, "B": {"column": DATA["B"]["column"] * 977, "one": np.array([[-12345]])}}
    first, second = exchange(DATA, parties), exchange(other, parties)
    for receiver in parties:
        sent = [[s for s in t.view(receiver) if s[0] == DEALER] for t in (first, second)]
        assert sent[0]
        assert sent[0] == sent[1]
    assert first.view(DEALER) == second.view(DEALER)
    names = Counter((sender, name.rsplit("/")[-1]) for sender, name, _ in first.view(DEALER))
    sizes = {(party, "sizes"): 1 for party in parties}
    assert names == {**sizes, ("B", "announced"): 1, ("A", "decision"): 2}
    # Data do matter to what holders send each other: here is where they are.
    assert first.view("A") != second.view("A")


def test_a_decision_is_what_the_dealer_learns():
    """Control of the test before: numbers that end the loop earlier are seen."""
    other = {**DATA, "B": {**DATA["B"], "column": -DATA["B"]["column"]}}
    first, second = exchange(DATA, ("A", "B")), exchange(other, ("A", "B"))
    assert first.view(DEALER) != second.view(DEALER)


# ---- opening -------------------------------------------------------------------------------------


def open_a_sum(parties):
    """Only the sum of all parties' columns reaches C; what the others sent to it, by sender."""

    def program(session, held):
        columns = [session.share(p, held.get("column"), SHAPE) for p in parties]
        return sum(columns[1:], columns[0]).open("C", name="result")

    def run(number):
        transcript = Transcript(keep_views=True)
        rng = Seeds(parties, ("C",), number)
        result = run_program(program, parties, DATA, rng=rng, transcript=transcript)
        pieces = {
            (0, sender, "result"): wire.decode(frame)[1].payload.view(np.uint64)
            for sender, name, frame in transcript.view("C")
            if name.endswith("result")
        }
        wanted = sum(DATA[party]["column"] for party in parties)
        assert (result["C"] == wanted).all()
        assert result["A"] is None
        return pieces

    runs = [run(number) for number in range(RUNS)]
    return {key: np.stack([one[key] for one in runs]) for key in runs[0]}


@pytest.mark.parametrize("parties", [NAMES[:3], NAMES, ("C", "A", "B"), ("A", "C", "B")])
def test_opening_shows_a_sum_and_no_piece(parties):
    for key, words in open_a_sum(parties).items():
        assert find_patterns({key: words}) == []


def test_without_dealt_zeros_pieces_would_show(monkeypatch):
    monkeypatch.setattr(Exchange, "deal", lambda self, shape, make, width=64: absent(shape))
    seen = open_a_sum(("A", "B", "C"))
    for party in ("A", "B"):
        column = DATA[party]["column"].ravel()
        assert (seen[0, party, "result"].view(np.int64) == column).all()


# ---- streams -------------------------------------------------------------------------------------


def see_seeds(rng=None):
    transcript = Transcript(keep_views=True)
    run_program(lambda session, held: None, NAMES, {}, rng=rng, transcript=transcript)
    ((_, name, _),) = transcript.view("A")
    assert name == "step 1/seed"
    return [wire.decode(transcript.view(party)[0][2])[1] for party in NAMES]


def test_sessions_never_have_the_same_seeds():
    """Not even if somebody passes a generator that others could repeat."""
    seeds = (
        see_seeds() + see_seeds() + [s for _ in "12" for s in see_seeds(np.random.default_rng(0))]
    )
    assert len(set(seeds)) == 4 * len(NAMES)
    assert {len(seed) for seed in seeds} == {SEED_BYTES}
    first, second = (see_seeds(RepeatableGenerator(np.random.PCG64(0))) for _ in "12")
    assert first == second  # of a simulation
    assert len(set(first)) == len(NAMES)


def test_streams_of_other_scopes_and_parties_share_no_word():
    seed = bytes(SEED_BYTES)
    purposes = ["step 1/A", "step 2/A", "step 1/B", "step 1/try 2/A", "A", ""]
    drawn = [Stream(seed, purpose).draw((2000,), "words") for purpose in purposes]
    other = Stream(bytes([1]) + seed[1:], purposes[0]).draw((2000,), "words")
    assert len(np.unique(np.concatenate([*drawn, other]))) == 2000 * (len(purposes) + 1)
    again = Stream(seed, purposes[0]).draw((2000,), "words")
    assert (again == drawn[0]).all()  # the control: the same seed and purpose


def test_a_stream_never_goes_back():
    stream = Stream(bytes(SEED_BYTES), "x")
    parts = [stream.draw((100,), "words"), stream.draw((6400,), "bits"), stream.draw((9,), "words")]
    words = np.concatenate([parts[0], np.packbits(parts[1]).view(np.uint64), parts[2]])
    assert (words == Stream(bytes(SEED_BYTES), "x").draw((209,), "words")).all()
    assert len(np.unique(words)) == 209


def test_streams_are_written_down():
    """Parties with other versions must draw the same: digits that never change."""
    words = Stream(bytes(range(32)), "step 1/A").draw((2,), "words")
    assert [f"{word:016x}" for word in words.tolist()] == ["0562763292b1733d", "e7316830f1dcb8ee"]


# ---- parties that lie ----------------------------------------------------------------------------


def multiply(session, held):
    v = session.share("A", held.get("column"), SHAPE)
    return (v * session.share("B", held.get("column"), SHAPE)).open(name="result")


SIZE = 2 * 8 * CELLS


@pytest.mark.parametrize(
    "content",
    [
        np.zeros(SIZE - 1, np.uint8),
        np.zeros(SIZE + 8, np.uint8),
        np.zeros(0, np.uint8),
        np.zeros((SIZE, 1), np.uint8),
        np.zeros(SIZE, np.int8),
        np.zeros(SIZE // 8, np.uint64),
        b"x" * SIZE,
        None,
    ],
)
@pytest.mark.parametrize("parties", [("A", "B"), ("B", "A")])
def test_masked_words_of_another_size_name_their_sender(content, parties):
    def lie(channel):
        channel = channel.within("step 1", SPEAKS)
        with Session.join(channel, parties, DEALER):
            channel.send("A", "masked", Masked(content))
            channel.receive("A", "masked")

    with pytest.raises(ProtocolError, match="'B' sent") as caught:
        run_program(multiply, parties, DATA, replace={"B": lie})
    assert caught.value.party == "B"


def lying_dealer(*contents, seed=bytes(SEED_BYTES)):
    def lie(channel):
        channel = channel.within("step 1", SPEAKS)
        for party in ("A", "B"):
            channel.send(party, "seed", seed)
        for content in contents:
            channel.send("B", "dealt", Masked(content))

    return {DEALER: lie}


@pytest.mark.parametrize(
    ("liar", "error"),
    [
        (lying_dealer(seed=bytes(31)), ProtocolError),
        (lying_dealer(np.zeros(8 * CELLS + 1, np.uint8)), ProtocolError),
        (lying_dealer(np.zeros(8 * CELLS, np.int64)), ProtocolError),
        (lying_dealer(np.zeros(8 * CELLS - 1, np.uint8)), PeerClosed),
        (lying_dealer(np.zeros(0, np.uint8)), PeerClosed),
        (lying_dealer(), PeerClosed),
    ],
)
def test_a_dealer_that_deals_otherwise_is_named(liar, error):
    with pytest.raises(error) as caught:
        run_program(multiply, ("A", "B"), DATA, replace=liar)
    assert caught.value.party == DEALER


@pytest.mark.parametrize("sizes", [{"n": -1}, {"n": True}, {"n": 2.0}, {"n": "5"}, {"n": 2**50}])
def test_sizes_that_cannot_be_name_their_sender(sizes):
    def lie(channel):
        channel = channel.within("step 1", SPEAKS)
        with Session.join(channel, ("A", "B"), DEALER):
            for party in ("A", DEALER):
                channel.send(party, "sizes", sizes)
            channel.receive("A", "sizes")

    def program(session, held):
        return session.agree({"n": 5} if held else None)

    with pytest.raises(ProtocolError, match="sizes that cannot be") as caught:
        run_program(program, ("A", "B"), DATA, replace={"B": lie})
    assert caught.value.party == "B"


def test_a_size_that_was_not_said_names_who_left_it_out():
    def program(session, held):
        sizes = session.agree({"n": 5} if session.me == "A" else {})
        return sizes["B"]["n"] if session.me == "A" else None

    with pytest.raises(ProtocolError, match="'B' did not say its n") as caught:
        run_program(program, ("A", "B"), DATA)
    assert caught.value.party == "B"


def test_a_party_in_another_step_is_noticed():
    def program(session, held):
        if session.me == "B":
            session.agree({"n": 1})
        return multiply(session, held)

    with pytest.raises(NameMismatch):
        run_program(program, ("A", "B"), DATA)
