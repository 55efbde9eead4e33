"""Kept values, the cap over a period and its record, and warnings on small changes."""

import os
import stat

import numpy as np
import pytest

from vfsl.align import Limits, SignatureCache, prepare_ids
from vfsl.align.ids import to_rows
from vfsl.align.state import (
    NO_CAP,
    ListRecord,
    PartyState,
    QuestionRecord,
    hash_rows,
    note_missing_caps,
)
from vfsl.errors import ConfigError, LimitReached, ProtocolError, StoreError

HOUR, DAY = 3600.0, 86_400.0


def some(count: int):
    return to_rows(os.urandom(32 * count), 32)


def test_values_are_found_again(tmp_path):
    path, digests, values = tmp_path / "kept.npz", some(10), some(10)
    cache = SignatureCache(path, "key 1")
    cache.add(digests[:6], values[:6])
    cache.add(digests[6:9], values[6:9])
    cache.save()
    again = SignatureCache(path, "key 1")
    known, found = again.lookup(digests[::-1])
    assert len(again) == 9
    assert known.tolist() == [False] + [True] * 9
    assert np.array_equal(found, values[:9][::-1])
    again.add(digests[9:], values[9:])
    again.save()
    assert SignatureCache(path, "key 1").lookup(digests)[0].all()


def test_values_of_another_key_are_not_used(tmp_path):
    path, digests = tmp_path / "kept.npz", some(3)
    cache = SignatureCache(path, "key 1")
    cache.add(digests, some(3))
    cache.save()
    other = SignatureCache(path, "key 2")
    assert not other.lookup(digests)[0].any()


def test_the_file_is_private_and_names_nobody(tmp_path):
    path, ids, values = tmp_path / "kept.npz", prepare_ids("A", ["marker-4711"]), some(1)
    cache = SignatureCache(path, "key 1")
    cache.add(ids.digests, values)
    cache.save()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    assert b"marker-4711" not in content
    assert ids.digests.tobytes() not in content
    assert values.tobytes() in content


def test_without_a_file_nothing_is_kept():
    cache = SignatureCache(None, "key")
    cache.add(some(2), some(2))
    cache.save()
    assert len(cache) == 0


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "kept.npz"
    path.write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="damaged"):
        SignatureCache(path, "key")
    with path.open("wb") as file:
        np.savez(file, handles=np.zeros((2, 16), np.uint8))
    with pytest.raises(StoreError, match="damaged"):
        SignatureCache(path, "key")


def test_long_runs_are_saved_on_the_way(tmp_path, monkeypatch):
    path, clock = tmp_path / "kept.npz", [0.0]
    monkeypatch.setattr("vfsl.align.state.time.monotonic", lambda: clock[0])
    cache = SignatureCache(path, "key")
    cache.add(some(1), some(1))
    assert not path.exists()
    clock[0] = 21.0
    cache.add(some(1), some(1))
    assert len(SignatureCache(path, "key")) == 2


def test_keyed_hashes_depend_on_the_key():
    digests = some(4)
    assert np.array_equal(hash_rows(digests, b"a", 16), hash_rows(digests, b"a", 16))
    assert not np.array_equal(hash_rows(digests, b"a", 16), hash_rows(digests, b"b", 16))


def test_odd_party_names_stay_inside_the_folder(tmp_path):
    state = PartyState(tmp_path)
    digests = prepare_ids("A", ["a"]).digests
    state.last_list("A", "../x/y").keep(digests)
    assert [path.parent for path in tmp_path.rglob("*.npz")] == [tmp_path]
    PartyState(None).last_list("A", "B").keep(digests)  # nothing is written anywhere


# Limits


@pytest.fixture(params=["file", "memory"])
def path(request, tmp_path):
    return tmp_path / "questions.json" if request.param == "file" else None


def test_the_cap_counts_per_peer_and_period(path):
    record = QuestionRecord(path, Limits(asked=100, days=7), own=1)
    record.count("C", 60, now=0.0)
    record.count("C", 40, now=2 * HOUR)
    record.count("D", 100, now=2 * HOUR)
    with pytest.raises(ProtocolError, match=r"'C' wants to ask about 1 ids; it asked about 100"):
        record.check("C", 1, now=3 * HOUR)
    # The first 60 leave the period after seven days, the other 40 two hours later.
    record.check("C", 60, now=7 * DAY + HOUR)
    with pytest.raises(ProtocolError) as caught:
        record.count("C", 61, now=7 * DAY + HOUR)
    assert caught.value.party == "C"
    with pytest.raises(ProtocolError, match="it asked about 40 in"):
        record.check("C", 61, now=7 * DAY + HOUR)
    with pytest.raises(ProtocolError, match="it asked about 0 in"):
        record.check("C", 101, now=8 * DAY)


def test_by_default_a_peer_may_ask_three_times_the_own_list(path):
    record = QuestionRecord(path, Limits(), own=800)
    record.count("C", 2_400, now=0.0)
    with pytest.raises(LimitReached, match=r"may ask about 2400 \(3 × the own list\)"):
        record.count("C", 1, now=1.0)
    assert Limits(asked=5).cap(800) == 5


def test_the_record_of_one_machine_says_what_organisations_would_refuse():
    server = prepare_ids("A", [f"p{i}" for i in range(10)])
    notes = note_missing_caps("C", 31, server, Limits(asked=NO_CAP), None)
    assert "A has 10, and between organisations it would answer 30 in 30 days" in notes[0]
    assert "this run only" in notes[1]
    assert note_missing_caps("C", 30, server, Limits(asked=NO_CAP), "folder") == []
    assert note_missing_caps("C", 31, server, Limits(), "folder") == []


def test_the_record_outlives_the_process_and_is_private(tmp_path):
    path, limits = tmp_path / "questions.json", Limits(asked=10)
    QuestionRecord(path, limits, own=1).count("C", 8, now=0.0)
    with pytest.raises(ProtocolError, match="it asked about 8 in"):
        QuestionRecord(path, limits, own=1).count("C", 3, now=1.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_damaged_record_does_not_open_the_door(tmp_path):
    path = tmp_path / "questions.json"
    for content in ("[]", '{"asked": {"C": [[1]]}}', "{"):
        path.write_text(content)
        with pytest.raises(StoreError, match="damaged"):
            QuestionRecord(path, Limits(), own=1).check("C", 1)


def test_small_changes_of_a_list_are_warned_about(tmp_path):
    record, limits = ListRecord(tmp_path / "last.npz", "A", "C"), Limits(small_change=5)
    names = [f"p{number}" for number in range(100)]

    def warn(names):
        return record.warn(prepare_ids("A", names).digests, limits)

    assert warn(names) is None
    record.keep(prepare_ids("A", names).digests)
    assert warn(names[::-1]) is None
    assert "1 added and 2 removed" in warn([*names[2:], "new"])
    assert "0 added and 5 removed" in warn(names[5:])
    assert warn(names[6:]) is None


def test_the_list_record_holds_no_digest(tmp_path):
    path, ids = tmp_path / "last.npz", prepare_ids("A", ["marker"])
    ListRecord(path, "A", "C").keep(ids.digests)
    assert ids.digests[0].tobytes()[:8] not in path.read_bytes()
    path.write_bytes(b"x")
    with pytest.raises(StoreError, match="damaged"):
        ListRecord(path, "A", "C").warn(ids.digests, Limits())


@pytest.mark.parametrize("options", [{"asked": -1}, {"minimum": 1.5}, {"days": 0}])
def test_impossible_limits_are_refused(options):
    with pytest.raises(ConfigError, match="of Limits must be"):
        Limits(**options)
