"""The lasting budget: what counts, what is refused, what a file keeps, and whole runs under it."""

import json
import stat
import threading
import time

import pandas as pd
import pytest

from vfsl.deploy.budget import Hidden, KeptBudget, RunBudget, limit_of, near_limit
from vfsl.errors import ConfigError, LimitReached, PeerFailed, StoreError
from vfsl.record import RunRecord

COLUMNS = ("age", "basket", "income")


def budget(folder, run="run-1", table="t1", share=0.5, columns=COLUMNS, rows=100):
    hidden = {"columns": Hidden(columns, rows), "label": Hidden(("y",), rows)}
    return RunBudget(KeptBudget(folder), "B", run, table, b"key", share, hidden)


def test_numbers_add_up_over_runs_until_the_limit(tmp_path):
    for run in ("one", "two", "three"):
        budget(tmp_path, run).charge("C", "total scores", 50, "columns", None)
    seen = KeptBudget(tmp_path).sum("C", COLUMNS)
    assert (seen.seen, seen.limit, seen.runs, seen.share) == (150, 150, 3, 1.0)
    with pytest.raises(LimitReached) as caught:
        budget(tmp_path, "four").charge("C", "total scores", 1, "columns", None)
    assert caught.value.party == "C"
    text = str(caught.value)
    for words in (
        "'B' does not show 'C' 1 further exact numbers (total scores)",
        "it has seen 150 over 3 runs",
        "the limit is 150, 0.5 of the 300 that 100 rows hide",
        "Raise limits.numbers in party.toml if you accept that 'C' could solve for 'age'",
        "refine=0",
    ):
        assert words in text
    assert KeptBudget(tmp_path).sum("C", COLUMNS).seen == 150  # a refusal counts nothing
    # Another peer, the label, and a raised limit have their own room.
    budget(tmp_path).charge("D", "total scores", 150, "columns", None)
    budget(tmp_path).charge("C", "gradients", 50, "label", None)
    budget(tmp_path, share=1.0).charge("C", "total scores", 150, "columns", None)


def test_a_touched_table_does_not_start_from_zero(tmp_path):
    budget(tmp_path, table="t1").charge("C", "total scores", 100, "columns", None)
    budget(tmp_path, table="t2").charge("C", "total scores", 40, "columns", None)
    with pytest.raises(LimitReached, match="has seen 140"):
        budget(tmp_path, table="t3").charge("C", "total scores", 20, "columns", None)
    assert [line.table for line in KeptBudget(tmp_path).lines()] == ["t1", "t2"]
    # A further column is room for more of its own, and nothing is forgotten.
    more = budget(tmp_path, columns=(*COLUMNS, "zip"))
    with pytest.raises(LimitReached, match="has seen 140"):
        more.charge("C", "total scores", 61, "columns", None)
    more.charge("C", "total scores", 60, "columns", None)
    # Columns that it knows nothing about are new.
    budget(tmp_path, columns=("a", "b")).charge("C", "total scores", 100, "columns", None)


def test_what_is_counted_as_a_whole_is_counted_once(tmp_path):
    for run in ("one", "two"):
        budget(tmp_path, run).charge("C", "binned columns", 90, "columns", b"these bins")
    assert KeptBudget(tmp_path).sum("C", COLUMNS).seen == 90
    budget(tmp_path).charge("C", "binned columns", 10, "columns", b"other bins")
    budget(tmp_path).charge("D", "binned columns", 90, "columns", b"these bins")
    assert KeptBudget(tmp_path).sum("C", COLUMNS).seen == 100
    assert KeptBudget(tmp_path).sum("D", COLUMNS).seen == 90
    assert b"these bins".hex() not in KeptBudget(tmp_path).path.read_text()


def test_a_damaged_file_does_not_open_the_door(tmp_path):
    kept = KeptBudget(tmp_path)
    budget(tmp_path).charge("C", "total scores", 1, "columns", None)
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
    for content in ("[]", "{", '{"version": 2, "lines": []}', '{"version": 1, "lines": [{}]}'):
        kept.path.write_text(content)
        with pytest.raises(StoreError, match="damaged"):
            budget(tmp_path).charge("C", "total scores", 1, "columns", None)
    negative = {"peer": "C", "columns": list(COLUMNS), "table": "t", "seen": -5, "limit": 1}
    negative |= {"runs": [], "once": [], "last": ""}
    kept.path.write_text(json.dumps({"version": 1, "lines": [negative]}))
    with pytest.raises(StoreError, match="damaged"):
        kept.lines()


def test_a_step_without_a_label_has_none_to_show(tmp_path):
    mine = RunBudget(
        KeptBudget(tmp_path), "B", "r", "t", b"k", 0.5, {"columns": Hidden(COLUMNS, 9)}
    )
    with pytest.raises(ConfigError, match="no label"):
        mine.charge("C", "gradients", 1, "label", None)


def charge_often(folder, times):
    for _ in range(times):
        budget(folder, rows=10_000).charge("C", "total scores", 1, "columns", None)


def test_two_runs_at_once_lose_no_count(tmp_path):
    # Each charge opens the lock anew, so threads are kept apart as processes are.
    both = [threading.Thread(target=charge_often, args=(tmp_path, 40)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert KeptBudget(tmp_path).sum("C", COLUMNS).seen == 80


def test_people_hear_of_a_budget_that_is_nearly_used_up(tmp_path):
    budget(tmp_path).charge("C", "total scores", 119, "columns", None)
    assert near_limit(tmp_path) == []
    budget(tmp_path).charge("C", "total scores", 1, "columns", None)
    (line,) = near_limit(tmp_path)
    assert "C has seen 80%" in line
    assert f"vfsl budget --folder {tmp_path}" in line


# ---- whole attempts ------------------------------------------------------------------------------


def limited(world, party, numbers):
    path = world.site(party) / "party.toml"
    text = path.read_text()
    path.write_text(text.replace("numbers = 50.0", f"numbers = {numbers}"))


def test_a_run_counts_what_it_shows_at_the_party_whose_data_it_is(world):
    _, errors = world.attempt()
    assert errors == {}
    lines = {line.columns: line for line in KeptBudget(world.site("B")).lines()}
    shown = lines["MARKER-b1", "MARKER-b2"]
    assert (shown.peer, shown.runs) == ("C", ("run-1",))
    # One prediction of 110 rows; one look in training, whose noise leaves 6.3 bits of 32.
    record = RunRecord.load(world.results("B"))
    counted = [line.counted for line in record.shown if line.what == "total scores"]
    assert counted == [22, 110]
    assert shown.seen == sum(line.counted for line in record.shown)
    assert {line.sender for line in record.shown} == {"B"}
    about_label = KeptBudget(world.site("C")).sum("B", ("y",))
    assert 0 < about_label.seen < 0.6 * 110
    assert not KeptBudget(world.site("K")).path.exists()
    assert not KeptBudget(world.site("A")).path.exists()


def test_a_job_that_needs_more_than_is_left_is_refused_before_anything_is_sent(world, kit):
    # 0.6 of two columns: one number of each row, and with exact looks the job shows two.
    job = (world.folder / "job.toml").read_text() + "look_noise = 0.0\n"
    for party in "BC":
        allowed = kit.party_text(party).replace("numbers = 50.0", "numbers = 0.6")
        allowed = allowed.replace('"training scores"', '"training scores", "exact training scores"')
        world.write_party(party, allowed)
    engine, errors = world.attempt(job=job)
    assert set(errors) == set("ABCK")
    sentence = world.kept("C").status().sentence
    assert "Step 2: 'B' would show 'C' 2 exact numbers about each common row" in sentence
    assert "limits.numbers" in sentence
    assert world.kept("C").status().state == "refused"
    assert not (world.site("B") / "alignment").exists()
    assert not KeptBudget(world.site("B")).path.exists()
    assert len(engine.seen) < 62  # 12 of them say versions


def test_runs_add_up_until_one_is_refused(world):
    job = (world.folder / "job.toml").read_text().replace("refine = 1", "refine = 0")
    limited(world, "B", 0.6)
    _, errors = world.attempt(run="run-1", job=job)
    assert errors == {}
    seen = KeptBudget(world.site("B")).sum("C", ("MARKER-b1",)).seen
    assert 110 < seen <= 132
    _, errors = world.attempt(run="run-2", job=job)
    assert f"after {seen} over 1 run;" in world.kept("C", "run-2").status().sentence
    assert set(errors) == set("ABCK")
    # One row more in the table does not help.
    frame = world.tables["B"]
    grown = pd.concat([frame, frame.iloc[:1].assign(id="new")])
    grown.to_csv(world.site("B") / "table.csv", index=False)
    _, errors = world.attempt(run="run-3", job=job)
    assert world.kept("C", "run-3").status().state == "refused"


def test_a_budget_that_is_used_up_in_a_run_stops_it_before_the_numbers_leave(world):
    limited(world, "C", 0.01)  # gradients about 110 labels: one number
    _, errors = world.attempt()
    assert isinstance(errors["C"], LimitReached)
    assert "(gradients) about 'y'" in world.kept("C").status().sentence
    assert isinstance(errors["B"], PeerFailed)
    assert KeptBudget(world.site("C")).sum("B", ("y",)).seen == 0


def test_a_further_attempt_is_counted_again(world, monkeypatch):
    from vfsl.channel import relayed

    monkeypatch.setattr(relayed, "_PROBE_EVERY", 0.05)
    monkeypatch.setattr(relayed, "_GONE_SECONDS", 0.2)
    engine = world.engine()
    count = 0

    def dies(me, peer, envelope):
        nonlocal count
        count += me == "B"
        if count >= 32:
            engine.gone.add("B")
        return envelope

    engine.meddle = dies
    world.attempt(engine=engine)
    before = KeptBudget(world.site("C")).sum("B", ("y",)).seen
    assert before > 0
    _, errors = world.attempt(number=2)
    assert errors == {}
    once = sum(
        line.counted for line in RunRecord.load(world.results("C")).shown if line.about == "label"
    )
    assert KeptBudget(world.site("C")).sum("B", ("y",)).seen == before + once


def test_questions_are_counted_in_the_folder_of_the_party(world):
    world.attempt()
    asked = json.loads((world.site("B") / "alignment" / "questions.json").read_text())["asked"]
    assert sum(count for _, count in asked["C"]) == 120
    # Without a word about it B answers three times its own list: 360.
    path = world.site("B") / "party.toml"
    path.write_text(path.read_text().replace("asked = 1000\n", ""))
    (world.site("C") / "alignment" / "values-ecdh-at-B.npz").unlink()
    (world.site("B") / "alignment" / "questions.json").write_text(
        json.dumps({"version": 1, "asked": {"C": [[time.time(), 241]]}})
    )
    _, errors = world.attempt(run="run-2")
    assert isinstance(errors["B"], LimitReached)
    assert "may ask about 360 (3 × the own list)" in str(errors["B"])


def test_the_limit_is_a_share_of_what_is_hidden():
    assert limit_of(Hidden(COLUMNS, 750), 0.6) == 1350
    assert limit_of(Hidden((), 750), 0.6) == 0
