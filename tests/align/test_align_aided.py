"""Set intersection with a helper: against sets, what the helper sees, who may stop it."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vfsl
from vfsl.align import (
    Alignment,
    Limits,
    Normalise,
    align,
    alignment_roles,
    help_parties,
    prepare_ids,
    tags,
)
from vfsl.align.aided import Question, find_common
from vfsl.align.roles import HELPER
from vfsl.align.tags import TAG_BYTES, SortedTags, make_keyed_tags, mark_common
from vfsl.channel import Transcript, run_together
from vfsl.errors import ConfigError, DataError, LimitReached, ProtocolError

AIDED = Alignment(protocol="aided")
OPEN = Limits(asked=1000, minimum=1)


def lists(**people):
    return {
        party: prepare_ids(party, [f"p{n}" for n in list(who)]) for party, who in people.items()
    }


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sets(st.integers(0, 40), min_size=1), min_size=2, max_size=4))
def test_the_common_rows_are_the_intersection_in_one_order(groups):
    people = dict(zip("ABCD", map(sorted, groups), strict=False))
    common = set.intersection(*map(set, groups))
    ids = lists(**people)
    if not common:
        with pytest.raises(DataError, match="fewer ids in common"):
            align(ids, how=Alignment(protocol="aided", limits=OPEN))
        return
    plan = align(ids, how=Alignment(protocol="aided", limits=OPEN))
    found = [[people[party][row] for row in plan[party].overlap] for party in people]
    assert set(found[0]) == common
    assert all(one == found[0] for one in found)
    for party, who in people.items():
        assert {who[row] for row in plan[party].rest} == set(who) - common


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.sets(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=20),
        min_size=2,
        max_size=4,
    )
)
def test_tags_whose_first_bytes_are_equal_are_told_apart(groups):
    """In real lists that hardly ever happens; here it does all the time."""
    rows = [
        np.array(
            [[0] * 7 + [high] + [0] * 3 + [low] for high, low in group], dtype=np.uint8
        ).reshape(-1, TAG_BYTES)
        for group in groups
    ]
    lists = [SortedTags.of(one) for one in rows]
    marks = mark_common(lists)
    found = [
        [tuple(row) for row in one.join()[mark]] for one, mark in zip(lists, marks, strict=True)
    ]
    expected = sorted(set.intersection(*groups))
    for one in found:
        assert [(row[7], row[11]) for row in one] == expected


def test_equal_tags_of_one_list_are_noticed():
    twice = np.zeros((2, TAG_BYTES), dtype=np.uint8)
    assert SortedTags.of(twice).repeats
    twice[0, -1] = 1
    assert not SortedTags.of(twice).repeats


def test_a_tag_is_aes_of_the_digest():
    """The example of FIPS 197, appendix C.3."""
    key = bytes(range(32))
    block = bytes.fromhex("00112233445566778899aabbccddeeff")
    digests = np.frombuffer(block + bytes(16), dtype=np.uint8).reshape(1, 32)
    assert make_keyed_tags(digests, key).tobytes().hex() == "8ea2b7ca516745bfeafc4990"


def seen_by_helper(ids):
    transcript = Transcript(keep_views=True)
    run_together(alignment_roles(ids, "B", dict.fromkeys(ids, AIDED)), transcript=transcript)
    return [sight for sight in transcript.sights if sight.receiver == HELPER]


def test_the_helper_sees_random_numbers_that_change_every_time():
    ids = lists(A=range(2000), B=range(1000, 3000))
    views = [seen_by_helper(ids) for _ in range(2)]
    bodies = [[s.body for s in view if s.name.endswith("tags")] for view in views]
    assert {s.name.rsplit("/")[-1] for s in views[0]} == {"sizes", "tags"}
    bodies = [b"".join(one) for one in bodies]
    for body in bodies:
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8)).mean()
        assert abs(bits - 0.5) < 0.01  # 380,000 bits: more than ten deviations
    # No tag of a run can be found in another one; nor can any digest.
    rows = [{body[i : i + 8] for i in range(len(body))} for body in bodies]
    assert len(rows[0] & rows[1]) < 200  # frames and zeros, not 4,000 tags
    assert not any(bytes(digest[:8]) in rows[0] for digest in ids["A"].digests[:200])


def test_helper_and_holder_together_can_test_ids():
    """The control, and what the page says of collusion: with the key, guesses are found."""
    ids = lists(A=range(2000), B=range(1000, 3000))
    transcript = Transcript(keep_views=True)
    run_together(alignment_roles(ids, "B", dict.fromkeys(ids, AIDED)), transcript=transcript)
    told = next(s for s in transcript.sights if s.name.endswith("/key"))
    sent = b"".join(
        s.body for s in transcript.sights if s.name.endswith("/tags") and s.sender == "A"
    )
    keys = (told.body[i : i + 32] for i in range(len(told.body) - 31))
    guess = ids["A"].digests[:1]
    assert any(make_keyed_tags(guess, key).tobytes() in sent for key in keys)


def test_nobody_learns_an_overlap_that_is_too_small():
    ids = lists(A=range(20), B=range(15, 40))
    how = {
        "A": Alignment(protocol="aided", limits=Limits(minimum=6)),
        "B": Alignment(protocol="aided", limits=Limits(minimum=1)),
    }
    transcript = Transcript(keep_views=True)
    with pytest.raises(DataError, match="fewer ids in common"):
        run_together(alignment_roles(ids, "B", how), transcript=transcript)
    assert not any(s.name.endswith("/common") for s in transcript.sights)


def test_other_id_options_are_refused():
    ids = {
        "A": prepare_ids("A", ["a", "b"]),
        "B": prepare_ids("B", ["a", "b"], normalise=Normalise(case="lower")),
    }
    with pytest.raises(ProtocolError, match="choose the same at both"):
        align(ids, how=AIDED)


def test_lists_count_against_the_cap(tmp_path):
    """A list of eleven against one of three: more than three times as many."""
    ids = lists(A=range(3), B=range(11))
    how = {party: Alignment(protocol="aided", state=tmp_path / party) for party in ids}
    with pytest.raises(LimitReached, match="may ask about 9"):
        align(ids, how=how)


def test_marking_tells_the_positive_holder_nothing():
    ids = lists(C=range(50), A=range(0, 100, 3))
    transcript = Transcript(keep_views=True)
    question = Question(("C", "A"), "K", ("C",))

    def holder(channel):
        return find_common(channel, question, ids[channel.me], AIDED)

    def helper(channel):
        return help_parties(channel, question)

    came = run_together({"C": holder, "A": holder, "K": helper}, transcript=transcript)
    assert sorted(came["C"].numbers) == list(range(0, 50, 3))
    assert len(came["A"].numbers) == 0
    told = {s.name.rsplit("/")[-1] for s in transcript.sights if s.receiver == "A"}
    assert told == {"list", "key", "taken"}


def test_a_federation_aligns_and_marks_with_its_key_holder():
    rng = np.random.default_rng(0)
    people = rng.permutation(120)
    frames = {
        "B": pd.DataFrame({"id": people[:80], "b": rng.normal(size=80)}),
        "C": pd.DataFrame({"id": people[20:], "c": rng.normal(size=100)}),
        "A": pd.DataFrame({"id": people[30:60]}),
    }
    fed = vfsl.simulate(frames, seed=3)
    plan = fed.align("B", "C", protocol="aided")
    again = vfsl.simulate(frames, seed=3).align("B", "C", protocol="aided")
    assert (plan["B"].overlap == again["B"].overlap).all()
    rows = [frames[party]["id"].iloc[plan[party].overlap].tolist() for party in "BC"]
    assert rows[0] == rows[1]
    assert set(rows[0]) == set(people[20:80].tolist())
    marked = fed.mark(positives="A", label_holder="C", protocol="aided")["C"]
    known = {row for row, mark in zip(rows[1], marked.marks, strict=True) if mark == 1}
    assert known == set(people[30:60].tolist())
    assert "to the helper: tags under a key that it does not have" in set(fed.ledger["fact"])


# ---- buckets ------------------------------------------------------------------------------------


@pytest.fixture
def small_buckets(monkeypatch):
    """Buckets of about 16 tags, and lists of more than 100 tags in files."""
    monkeypatch.setattr(tags, "_BUCKET_TAGS", 16)
    monkeypatch.setattr(tags, "_IN_MEMORY", 100)


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize("hide", [False, True])
def test_buckets_in_files_give_the_plan_of_one_bucket_in_memory(monkeypatch, tmp_path, hide):
    ids = lists(A=range(700), B=range(300, 1100), C=range(250, 900))
    how = {
        party: Alignment(protocol="aided", hide_sizes=hide, state=tmp_path / party) for party in ids
    }
    plan = align(ids, how=how, rng=np.random.default_rng(5))
    assert not [path for path in tmp_path.rglob("*") if "vfsl-tags" in path.name]
    monkeypatch.undo()
    whole = align(ids, how=AIDED, rng=np.random.default_rng(5))
    for party in ids:
        assert (plan[party].overlap == whole[party].overlap).all()
        assert (plan[party].rest == whole[party].rest).all()


def test_buckets_are_the_first_bits():
    rows = np.zeros((4, TAG_BYTES), dtype=np.uint8)
    rows[:, 0] = [0b00000000, 0b01111111, 0b10000000, 0b11111111]
    assert tags.find_buckets(rows, 4).tolist() == [0, 1, 2, 3]
    assert tags.find_buckets(rows, 1).tolist() == [0, 0, 0, 0]
    assert [tags.count_buckets(n) for n in (0, 1 << 20, (1 << 20) + 1, 10**8)] == [1, 1, 2, 128]


@pytest.mark.usefixtures("small_buckets")
def test_a_list_waits_in_a_private_folder_that_is_gone_afterwards(tmp_path):
    ids = np.arange(500, dtype=np.int64)
    rows = make_keyed_tags(lists(A=range(500))["A"].digests, bytes(32))
    with tags.TagList(500, 8, tmp_path) as found:
        found.add(rows[:300], ids[:300])
        found.add(rows[300:], ids[300:])
        (scratch,) = tmp_path.iterdir()
        assert scratch.stat().st_mode & 0o077 == 0
        came = [found.sort(bucket) for bucket in range(8)]
        everything = np.concatenate(came)
        assert everything.tolist() == sorted(rows.tolist())
        for bucket, part in enumerate(came):
            numbers = found.find_ids(bucket, np.ones(len(part), dtype=bool))
            assert (rows[numbers] == part).all()
    assert not list(tmp_path.iterdir())


# ---- hidden sizes, and counting -----------------------------------------------------------------


def helper_facts(ids, hide):
    """What the helper can count: lengths of lists, and tags that all have."""
    how = dict.fromkeys(ids, Alignment(protocol="aided", hide_sizes=hide))
    transcript = Transcript()
    roles = alignment_roles(ids, "B", how)
    came = run_together(roles, transcript=transcript)
    sent = {e.sender: e.bytes for e in transcript.entries if e.name.endswith("tags")}
    return came[HELPER], tuple(sorted(sent.values()))


def test_the_helper_sees_neither_sizes_nor_the_overlap_where_they_are_hidden():
    small, large = lists(A=range(1030), B=range(1000, 2300)), lists(A=range(2000), B=range(2048))
    assert {helper_facts(one, hide=True)[1] for one in (small, large)} == {
        helper_facts(small, hide=True)[1]
    }
    assert helper_facts(small, hide=False)[1] != helper_facts(large, hide=False)[1]  # control
    counts = [helper_facts(small, hide=True)[0] for _ in range(12)]
    assert min(counts) >= 30  # the true overlap, and up to 1,024 decoys
    assert max(counts) <= 30 + 1024
    assert len(set(counts)) > 6  # of 1,025 values; fewer by chance below 1e-12
    assert helper_facts(small, hide=False)[0] == 30  # control


def test_too_few_common_ids_are_noticed_behind_decoys():
    ids = lists(A=range(20), B=range(15, 40))
    with pytest.raises(DataError, match="fewer ids in common"):
        align(ids, how=Alignment(protocol="aided", hide_sizes=True, limits=Limits(minimum=6)))


def test_hidden_sizes_need_a_helper_and_all_parties():
    with pytest.raises(ConfigError, match="Only alignment with a helper"):
        Alignment(protocol="ecdh", hide_sizes=True)
    ids = lists(A=range(20), B=range(15, 40))
    how = {"A": AIDED, "B": Alignment(protocol="aided", hide_sizes=True)}
    with pytest.raises(ProtocolError, match="choose the same at both"):
        align(ids, how=how)


@pytest.mark.parametrize("hide", [False, True])
def test_counting_tells_how_many_and_not_which(hide):
    frames = {
        "A": pd.DataFrame({"id": range(60), "a": 0.0}),
        "B": pd.DataFrame({"id": range(25, 90), "b": 0.0}),
    }
    fed = vfsl.simulate(frames, seed=1)
    assert fed.count_common(hide_sizes=hide) == 35
    assert "common" not in set(fed.ledger["message"])
    assert "how many ids all lists have, or whether they are enough" in set(fed.ledger["fact"])


def test_tags_out_of_order_are_refused():
    ids = lists(A=range(200), B=range(100, 300))
    question = Question(("A", "B"), "K", ("A", "B"))

    def shuffling(channel):
        original = tags.TagList.sort
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tags.TagList, "sort", lambda self, at: original(self, at)[::-1])
            return find_common(channel, question, ids["A"], AIDED)

    with pytest.raises(ProtocolError, match="rising order"):
        run_together(
            {
                "A": shuffling,
                "B": lambda channel: find_common(channel, question, ids["B"], AIDED),
                "K": lambda channel: help_parties(channel, question),
            }
        )
