"""A site: one party's own view of a run, what it draws and keeps, what it adds to the record."""

import numpy as np
import pandas as pd
import pytest

from vfsl.align import RowShare
from vfsl.channel import Transcript
from vfsl.channel.transcript import Release
from vfsl.data import PartyTable
from vfsl.draws import PrivateSeed
from vfsl.errors import ConfigError, StoreError
from vfsl.site import Outcome, Site, Standing, Terms, make_records, merge_outcomes
from vfsl.values import Disclosure

SEED = PrivateSeed.from_system("C")
TERMS = Terms(("B", "C"), seed=3)


def site(**facts):
    frame = pd.DataFrame({"id": list("abcdef"), "x": np.arange(6.0), "y": list("nynyny")})
    table = PartyTable.from_frame(frame, party="C", id="id", label="y")
    share = RowShare("C", "plan", np.array([4, 0, 2]), np.array([1, 3, 5]))
    return Site("C", TERMS, SEED, table, Standing(share, ("B", "C")), **facts)


def first(rng):
    return int(rng.integers(1 << 62))


def test_draws_of_one_purpose_are_new_each_time():
    one = site()
    draws = [first(one.private_rng("logistic")) for _ in range(3)]
    assert len(set(draws)) == 3
    assert draws[0] == first(SEED.rng("logistic"))
    assert draws[1] == first(SEED.rng("logistic 2"))
    assert first(one.private_rng("xgb")) == first(SEED.rng("xgb"))


def test_a_step_that_is_done_again_repeats_its_draws(tmp_path):
    """Also where the steps before it are finished and not done again."""
    through = site()
    first(through.private_rng("logistic"))
    kept = through.save_standing(tmp_path)
    second = first(through.private_rng("logistic"))
    again = site()
    again.load_standing(tmp_path, kept)
    assert first(again.private_rng("logistic")) == second


def test_a_standing_is_kept_and_bound_to_the_ids(tmp_path):
    one = site()
    one.standing.held_out = np.array([1])
    content = one.save_standing(tmp_path)
    other = site()
    other.standing = Standing()
    other.load_standing(tmp_path, content)
    assert other.rows().overlap.tolist() == [4, 0, 2]
    assert other.standing.held_out.tolist() == [1]
    assert other.standing.aligned == ("B", "C")
    changed = site()
    changed.table = changed.own_table().take(np.arange(5))
    with pytest.raises(StoreError, match="another id list"):
        changed.load_standing(tmp_path, content)


def test_a_part_has_the_label_at_its_holder_only():
    part = site().part(("C", "y"))
    assert part.target.tolist() == ["n", "n", "n"]
    assert part.rest_target.tolist() == ["y", "y", "y"]
    assert part.all_rows.tolist() == [4, 0, 2, 1, 3, 5]
    assert site().part(("B", "y")).target is None
    assert Site("K", TERMS, SEED).part(("C", "y")) is None


def test_a_site_that_is_not_aligned_says_so():
    bare = Site("C", TERMS, SEED, site().table)
    for ask in (bare.rows, lambda: bare.roles("C")):
        with pytest.raises(ConfigError, match="not aligned yet"):
            ask()
    with pytest.raises(ConfigError, match="has no table"):
        Site("K", TERMS, SEED).own_table()


def test_checkpoints_are_bound_to_the_rows(tmp_path):
    one = site(folder=tmp_path)
    one.checkpoints("vfpu", {"bags": 3}).save("task-1", [1])
    assert one.checkpoints("vfpu", {"bags": 3}).load("task-1") == [1]
    for other in (
        one.checkpoints("vfpu", {"bags": 4}),
        _moved(one).checkpoints("vfpu", {"bags": 3}),
    ):
        with pytest.raises(StoreError, match="another job"):
            other.load("task-1")
    assert site().checkpoints("vfpu").load("task-1") is None


def _moved(one):
    return one.with_rows(RowShare("C", "plan", np.array([0, 4, 2]), np.array([1, 3, 5])))


class Talk:
    scope = "step 2/train/"


def test_a_part_of_a_step_is_timed_and_recorded_with_its_messages():
    heard, one = [], site()
    one.on_event = heard.append
    with one.records("train xgb", Talk, {"n_estimators": 3}) as outcome:
        outcome.metrics = {"auc": 0.9}
    transcript = Transcript()
    for name, to in (("step 2/train/sums", "B"), ("step 2/predict/sides", "B")):
        transcript.note_sent("C", to, name, "plain", 10, Disclosure(int, "a fact").fact)
    transcript.note_released(Release("C", "B", "scores", "columns", 5, 5, "step 2/predict/"))
    record, other = make_records(one.outcomes, transcript)
    assert (record.name, record.metrics) == ("train xgb", {"auc": 0.9})
    assert [flow.message for flow in record.flows] == ["sums"]
    assert record.shown == ()
    assert other.name == "other messages"  # nothing that was sent is missing
    assert [flow.message for flow in other.flows] == ["sides"]
    assert [line.what for line in other.shown] == ["scores"]
    assert [(event.stage, event.total) for event in heard] == [("start", 3), ("end", None)]


def test_a_message_is_in_the_record_of_the_innermost_part():
    transcript = Transcript()
    for name in ("complete/part 1/rows", "complete/size"):
        transcript.note_sent("C", "B", name, "plain", 10, "a fact")
    outcomes = [
        Outcome("completion", {}, "complete/"),
        Outcome("cross-fit", {}, "complete/part 1/"),
    ]
    whole, part = make_records(outcomes, transcript)
    assert [flow.message for flow in whole.flows] == ["size"]
    assert [flow.message for flow in part.flows] == ["rows"]


def test_outcomes_of_all_parties_become_one_record():
    at_c = [Outcome("train xgb", {"a": 1}, metrics={"auc": 0.9}, rounds=({"n": 1},), seconds=2.0)]
    at_b = [Outcome("train xgb", {"a": 1}, notes=("few rows",), seconds=3.0), Outcome("more", {})]
    train, more = merge_outcomes({"B": at_b, "C": at_c})
    assert (train.metrics, train.rounds, train.notes) == ({"auc": 0.9}, ({"n": 1},), ("few rows",))
    assert train.seconds == 3.0
    assert more.name == "more"
    twice = [Outcome("vfpu-m", {}, metrics={"n": 1}), Outcome("vfpu-m", {}, metrics={"n": 2})]
    assert [one.metrics["n"] for one in merge_outcomes({"B": twice, "C": twice[:1]})] == [1, 2]
