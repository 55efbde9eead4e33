"""Alignment through a hub and P/U marks: plans against sets, who sees what, refusals."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vfsl.align import (
    Alignment,
    Limits,
    align,
    align_hub,
    align_server,
    mark_client,
    mark_server,
    prepare_ids,
)
from vfsl.align.intersect import intersect_client
from vfsl.align.roles import DISCLOSURES
from vfsl.channel import Transcript, run_together, wire
from vfsl.errors import ConfigError, DataError, ProtocolError

pools = st.lists(st.lists(st.integers(0, 30), unique=True, max_size=25), min_size=2, max_size=4)


def prepared(tables):
    return {party: prepare_ids(party, column) for party, column in tables.items()}


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data(), pools)
def test_plans_equal_set_intersection(how, data, columns):
    tables = dict(zip("ABCD", columns, strict=False))
    hub = data.draw(st.sampled_from(sorted(tables)))
    plan = align(prepared(tables), hub=hub, how=how)
    people = {party: [tables[party][row] for row in plan[party].overlap] for party in tables}
    expected = set.intersection(*map(set, columns))
    for party, column in tables.items():
        assert people[party] == people[hub]  # the k-th row is the same person everywhere
        rest = [column[row] for row in plan[party].rest]
        assert rest == [person for person in column if person not in expected]
    assert set(people[hub]) == expected
    assert len(plan.overlap) == len(expected)


def test_the_common_order_follows_no_table(curve_key):
    how = Alignment(protocol="ecdh", key=curve_key)
    ids = prepared({"A": list(range(300)), "B": list(range(299, -1, -1))})
    first, second = align(ids, how=how), align(ids, how=how)
    assert abs(np.corrcoef(np.arange(300), first["A"].overlap)[0, 1]) < 0.3
    assert not np.array_equal(first["A"].overlap, second["A"].overlap)
    assert first["A"].plan != second["A"].plan


def test_a_seed_repeats_the_order_of_a_simulation(how):
    ids = prepared({"A": list(range(30)), "B": list(range(10, 40))})
    one, two, other = (align(ids, how=how, rng=np.random.default_rng(s)) for s in (0, 0, 1))
    assert np.array_equal(one["A"].overlap, two["A"].overlap)
    assert np.array_equal(one["B"].overlap, two["B"].overlap)
    assert not np.array_equal(one["A"].overlap, other["A"].overlap)


def test_dropped_rows_are_in_no_part_of_the_plan(curve_key):
    how = Alignment(protocol="ecdh", key=curve_key)
    a = prepare_ids("A", ["x", None, "y", "x", "z"], duplicates="first", empty="drop")
    plan = align({"A": a, "B": prepare_ids("B", ["z", "x"])}, how=how)
    assert sorted(plan["A"].overlap.tolist()) == [0, 4]
    assert plan["A"].rest.tolist() == [2]


def seen(transcript, party, message):
    values = [wire.decode(body) for _, _, body in transcript.view(party)]
    return [value for name, value in values if name.rsplit("/", 1)[-1] == message]


def test_a_party_learns_the_plan_and_no_pairwise_intersection(how):
    """What the hub shares with B beyond the plan differs in two runs; what B sees does not."""
    views = []
    for others in (["x", "y", "z"], ["x", "p", "q"]):  # the hub shares y, z with B, or not
        transcript = Transcript(keep_views=True)
        tables = {"A": ["x", "n"], "B": ["x", "y", "z"], "C": others}
        plan = align(prepared(tables), hub="C", how=how, transcript=transcript)
        assert len(plan.overlap) == 1
        names = [name for _, name, _ in transcript.view("B")]
        views.append((names, seen(transcript, "B", "asked"), len(seen(transcript, "B", "plan"))))
        (told,) = seen(transcript, "B", "plan")
        assert len(told["positions"]) == 1
        assert all(sender == "C" for sender, _, _ in transcript.view("B"))
    assert views[0] == views[1]


def test_an_overlap_below_the_minimum_is_refused_by_the_hub(how):
    ids = prepared({"A": ["a", "b", "c"], "B": ["b", "c", "d"]})
    strict = replace(how, limits=Limits(minimum=3))
    for hows in ({"A": strict, "B": how}, {"A": how, "B": strict}):
        with pytest.raises(DataError, match="has 2 rows, but the parties want at least 3"):
            align(ids, how=hows)


def bad_hub(channel, how, ids, content):
    intersect_client(channel, "A", ids, how)
    channel.within("align", DISCLOSURES).send("A", "plan", content)


@pytest.mark.parametrize(
    ("positions", "why"),
    [
        ([0, 0], "names a row twice"),
        ([0, 3], "positions outside 0 to 2"),
        ([-1], "positions outside 0 to 2"),
        ([0], "wants at least 2"),
        ([0.0, 1.0], "expected integer"),
        ("all", "expected an array"),
    ],
)
def test_a_bad_plan_is_refused_by_name(curve_key, positions, why):
    how = Alignment(protocol="ecdh", key=curve_key, limits=Limits(minimum=2))
    content = {"plan": "p", "positions": positions}
    if isinstance(positions, list):
        content["positions"] = np.array(positions)
    roles = {
        "A": partial(align_server, hub="B", ids=prepare_ids("A", ["a", "b", "c"]), how=how),
        "B": partial(bad_hub, how=how, ids=prepare_ids("B", ["a", "b"]), content=content),
    }
    with pytest.raises(ProtocolError, match=why) as caught:
        run_together(roles)
    assert caught.value.party == "B"


def test_a_plan_without_its_name_is_refused(curve_key):
    how = Alignment(protocol="ecdh", key=curve_key)
    roles = {
        "A": partial(align_server, hub="B", ids=prepare_ids("A", ["a"]), how=how),
        "B": partial(bad_hub, how=how, ids=prepare_ids("B", ["a"]), content={"positions": []}),
    }
    with pytest.raises(ProtocolError, match="other fields"):
        run_together(roles)


def test_wrong_parties_are_refused(how):
    ids = prepared({"A": ["a"], "B": ["a"]})
    with pytest.raises(ConfigError, match="a hub among them"):
        align(ids, hub="Z", how=how)
    with pytest.raises(ConfigError, match="two or more parties"):
        align({"A": ids["A"]}, how=how)
    with pytest.raises(ConfigError, match="belongs to one party"):
        align(ids, how=replace(how, state="shared"))
    with pytest.raises(ConfigError, match="different parties"):
        run_together({"A": partial(align_hub, servers=[], ids=ids["A"], how=how)})


# VFPU: B ∩ C, then C asks A


def positive_holder(channel, ids, how):
    mark_server(channel, "C", ids, how)


def feature_holder(channel, ids, how):
    return align_server(channel, "C", ids, how)


def label_holder(channel, ids, how):
    return mark_client(channel, "A", ids, align_hub(channel, ["B"], ids, how), how)


def run_vfpu(tables, how, **options):
    ids = prepared(tables)
    roles = {"A": positive_holder, "B": feature_holder, "C": label_holder}
    return run_together(
        {party: partial(role, ids=ids[party], how=how) for party, role in roles.items()}, **options
    )


def test_marks_are_plus_for_known_positives_and_nothing_is_dropped(how):
    tables = {
        "A": ["p1", "p2", "far"],
        "B": ["u1", "p1", "u2", "b"],
        "C": ["c", "u2", "p1", "u1", "p2"],
    }
    result = run_vfpu(tables, how)
    people = [tables["C"][row] for row in result["C"].overlap]
    assert sorted(people) == ["p1", "u1", "u2"]
    marks = dict(zip(people, result["C"].marks.tolist(), strict=True))
    assert marks == {"p1": 1, "u1": -1, "u2": -1}
    assert result["A"] is None
    assert [tables["B"][row] for row in result["B"].overlap] == people
    assert result["B"].marks is None


def test_the_positive_holder_sees_only_how_many_rows_are_asked(how):
    """Whether all or none of its ids are in the overlap, A sees the same."""
    views = []
    for positives in (["x", "y"], ["m", "n"]):
        transcript = Transcript(keep_views=True)
        tables = {"A": positives, "B": ["x", "y", "b"], "C": ["y", "x", "c"]}
        run_vfpu(tables, how, transcript=transcript)
        assert {sender for sender, _, _ in transcript.view("A")} == {"C"}
        sizes = [(name, len(body)) for _, name, body in transcript.view("A")]
        assert seen(transcript, "A", "plan") == []
        views.append((sizes, seen(transcript, "A", "asked")))
    assert views[0] == views[1]
    assert views[0][1] == [{"ids": 2, "batch": how.key.batch}]


def test_no_positive_at_all(how):
    result = run_vfpu({"A": [], "B": ["x"], "C": ["x"]}, how)
    assert result["C"].marks.tolist() == [-1]


def test_parties_in_processes_of_their_own(tmp_path):
    ids = prepared({"A": ["a", "b", "c"], "B": ["c", "d", "a"]})
    hows = {party: Alignment(protocol="ecdh", state=tmp_path / party) for party in ids}
    roles = {
        "A": partial(align_server, hub="B", ids=ids["A"], how=hows["A"]),
        "B": partial(align_hub, servers=["A"], ids=ids["B"], how=hows["B"]),
    }
    result = run_together(roles, on="processes")
    assert sorted(result["A"].overlap.tolist()) == [0, 2]
    assert sorted(result["B"].overlap.tolist()) == [0, 2]
