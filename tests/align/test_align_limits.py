"""Limits: the cap over a period, its record, and warnings on small changes."""

import stat

import pytest

from vfsl.align import Limits, prepare_ids
from vfsl.align.limits import ListRecord, QuestionRecord, uncapped
from vfsl.errors import ConfigError, LimitReached, ProtocolError, StoreError

HOUR, DAY = 3600.0, 86_400.0


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
    assert record.asked("C", now=7 * DAY + HOUR) == 40
    assert record.asked("C", now=8 * DAY) == 0


def test_by_default_a_peer_may_ask_three_times_the_own_list(path):
    record = QuestionRecord(path, Limits(), own=800)
    record.count("C", 2_400, now=0.0)
    with pytest.raises(LimitReached, match=r"may ask about 2400 \(3 × the own list\)"):
        record.count("C", 1, now=1.0)
    assert Limits(asked=5).cap(800) == 5


def test_the_record_of_one_machine_says_what_organisations_would_refuse():
    server = prepare_ids("A", [f"p{i}" for i in range(10)])
    notes = uncapped("C", 31, server, None, None)
    assert "A has 10, and between organisations answers 30 in 30 days" in notes[0]
    assert "this run only" in notes[1]
    assert uncapped("C", 30, server, None, {"A": "folder"}) == []
    assert uncapped("C", 31, server, Limits(), {"A": "folder"}) == []


def test_the_record_outlives_the_process_and_is_private(tmp_path):
    path, limits = tmp_path / "questions.json", Limits(asked=10)
    QuestionRecord(path, limits, own=1).count("C", 8, now=0.0)
    with pytest.raises(ProtocolError):
        QuestionRecord(path, limits, own=1).count("C", 3, now=1.0)
    assert QuestionRecord(path, limits, own=1).asked("C", now=1.0) == 8
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_damaged_record_does_not_open_the_door(tmp_path):
    path = tmp_path / "questions.json"
    for content in ("[]", '{"asked": {"C": [[1]]}}', "{"):
        path.write_text(content)
        with pytest.raises(StoreError, match="damaged"):
            QuestionRecord(path, Limits(), own=1).check("C", 1)


def test_small_changes_of_a_list_are_warned_about(tmp_path):
    record = ListRecord(tmp_path / "last.npz", "A", "C")
    names = [f"p{number}" for number in range(100)]
    assert record.compare(prepare_ids("A", names).digests) is None
    record.keep(prepare_ids("A", names).digests)
    limits = Limits(small_change=5)

    same = record.compare(prepare_ids("A", names[::-1]).digests)
    assert (same.kept, same.added, same.removed) == (100, 0, 0)
    assert same.warning(limits) is None

    small = record.compare(prepare_ids("A", [*names[2:], "new"]).digests)
    assert (small.kept, small.added, small.removed) == (98, 1, 2)
    assert "1 added and 2 removed" in small.warning(limits)

    large = record.compare(prepare_ids("A", names[6:]).digests)
    assert large.warning(limits) is None


def test_the_list_record_holds_no_digest(tmp_path):
    path, ids = tmp_path / "last.npz", prepare_ids("A", ["marker"])
    ListRecord(path, "A", "C").keep(ids.digests)
    assert ids.digests[0].tobytes()[:8] not in path.read_bytes()
    path.write_bytes(b"x")
    with pytest.raises(StoreError, match="damaged"):
        ListRecord(path, "A", "C").compare(ids.digests)


@pytest.mark.parametrize("options", [{"asked": -1}, {"minimum": 1.5}, {"days": 0}])
def test_impossible_limits_are_refused(options):
    with pytest.raises(ConfigError, match="of Limits must be"):
        Limits(**options)
