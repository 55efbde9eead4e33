"""Two-party intersection: right results, what each side sees, resume, growth, and bad messages."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vfsl.align import (
    Alignment,
    BlindingPool,
    Caution,
    Limits,
    Normalise,
    intersect_client,
    intersect_server,
    prepare_ids,
)
from vfsl.align.intersect import DISCLOSURES
from vfsl.channel import Transcript, run_together, wire
from vfsl.errors import ConfigError, ProtocolError, StoreError
from vfsl.progress import Event
from vfsl.values import SealedIds

names = st.lists(st.text(max_size=8).filter(str.strip), unique_by=str.strip, max_size=40)


def intersect(client, server, how, server_how=None, **options):
    """Both roles together; the client's ids are ``client``, the server's ``server``."""
    roles = {
        "C": partial(intersect_client, server="S", ids=prepare_ids("C", client), how=how),
        "S": partial(
            intersect_server, client="C", ids=prepare_ids("S", server), how=server_how or how
        ),
    }
    return run_together(roles, **options)


def shared(client, server, result):
    """The common names by the client's result, checked against the server's order."""
    matches, served = result["C"], result["S"]
    pairs = zip(matches.numbers, served.order[matches.positions], strict=True)
    common = {(client[c], server[s]) for c, s in pairs}
    assert all(left.strip() == right.strip() for left, right in common)
    return {left.strip() for left, _ in common}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data(), names, names, st.sampled_from([1, 3, 1000]))
def test_equals_set_intersection(how, data, client, server, batch):
    server = list(dict.fromkeys([*server, *data.draw(st.lists(st.sampled_from(client or ["x"])))]))
    server = list({text.strip(): text for text in server}.values())
    plain = Normalise(unicode="none")
    roles = {
        "C": partial(
            intersect_client,
            server="S",
            ids=prepare_ids("C", client, normalise=plain),
            how=replace(how, batch=batch),
        ),
        "S": partial(
            intersect_server, client="C", ids=prepare_ids("S", server, normalise=plain), how=how
        ),
    }
    result = run_together(roles)
    expected = {text.strip() for text in client} & {text.strip() for text in server}
    assert shared(client, server, result) == expected
    assert result["C"].server_ids == len(server)
    assert result["S"].asked == len(client)


@pytest.mark.parametrize("overlap", [0, 1, 50, 99, 100])
def test_every_share_of_overlap(how, overlap):
    client = [f"c{number}" for number in range(100)]
    server = [f"s{number}" for number in range(100 - overlap)] + client[:overlap]
    assert shared(client, server, intersect(client, server, how)) == set(client[:overlap])


def test_ten_thousand_ids_by_worker_processes(curve_key):
    client = [f"id {number}" for number in range(10_000)]
    server = [f"id {number}" for number in range(7_000, 13_000)]
    result = intersect(client, server, Alignment(protocol="ecdh", key=curve_key))
    assert shared(client, server, result) == set(client[7_000:])


@pytest.mark.slow
def test_ten_thousand_ids_by_blind_rsa(rsa_key):
    client = [f"id {number}" for number in range(10_000)]
    server = [f"id {number}" for number in range(7_000, 13_000)]
    how = Alignment(security=112, key=rsa_key)
    assert shared(client, server, intersect(client, server, how)) == set(client[7_000:])


def test_over_sealed_channels_and_with_a_pool(rsa_key):
    pool = BlindingPool(rsa_key.public)
    pool.fill(3)
    how = Alignment(security=112, key=rsa_key, pool=pool)
    result = intersect(list("abcd"), list("cdx"), how, sealed=True)
    assert shared(list("abcd"), list("cdx"), result) == {"c", "d"}
    assert len(pool) == 0


# What each side sees


def seen(transcript, party, message):
    """The payloads of one kind of message as a party received them."""
    values = [wire.decode(body) for _, _, body in transcript.view(party)]
    return [value for name, value in values if name.rsplit("/", 1)[-1] == message]


def run_with_views(client, server, how, server_how=None):
    transcript = Transcript(keep_views=True)
    result = intersect(client, server, how, server_how, transcript=transcript)
    return result, transcript


def test_the_server_sees_blinded_values_and_sizes_only(how):
    client, server = ["marker-1", "marker-2", "other"], ["marker-2", "x"]
    _, transcript = run_with_views(client, server, how)
    names = [name.rsplit("/", 1)[-1] for _, name, _ in transcript.view("S")]
    assert names == ["ask", "asked", "blinded"]
    (asked,) = seen(transcript, "S", "asked")
    assert asked["ids"] == 3
    (blinded,) = seen(transcript, "S", "blinded")
    assert isinstance(blinded, SealedIds)
    everything = b"".join(body for _, _, body in transcript.view("S"))
    assert b"marker" not in everything
    assert all(row.tobytes() not in everything for row in prepare_ids("C", client).digests)


def test_the_server_sees_other_values_for_the_same_ids_in_every_run(how):
    views = []
    for _ in range(2):
        _, transcript = run_with_views(["a", "b", "c"], ["b"], how)
        views.append({row.tobytes() for row in seen(transcript, "S", "blinded")[0].payload})
    assert not views[0] & views[1]


def test_the_client_cannot_link_tags_between_runs(how, tmp_path):
    """The same key, the same lists, values kept: still no tag comes twice, not even of matches."""
    tags = []
    hows = replace(how, state=tmp_path / "C"), replace(how, state=tmp_path / "S")
    for _ in range(2):
        _, transcript = run_with_views(["a", "b"], ["b", "x", "y"], *hows)
        tags.append([row.tobytes() for row in seen(transcript, "C", "tags")[0].payload])
    assert [len(set(one)) for one in tags] == [3, 3]
    assert not set(tags[0]) & set(tags[1])


def test_tags_are_shuffled_anew_in_every_run(how):
    client = server = [str(number) for number in range(60)]
    orders = [intersect(client, server, how)["S"].order.tolist() for _ in range(2)]
    assert orders[0] != orders[1] != list(range(60))
    assert sorted(orders[0]) == list(range(60))


def test_each_message_is_declared_and_protected(how):
    _, transcript = run_with_views(["a"], ["a"], how)
    kinds = {entry.message: entry.kind for entry in transcript.entries}
    assert set(kinds) == set(DISCLOSURES)
    assert {name for name, kind in kinds.items() if kind == "sealed ids"} == {
        "blinded",
        "signed",
        "tags",
    }


def test_ids_in_neither_errors_nor_events(how):
    events = []
    told = replace(how, on_event=events.append)
    intersect(["marker-1", "marker-2"], ["marker-2"], told)
    assert events
    assert all("marker" not in repr(event) for event in events)


# Limits


def test_the_cap_stops_a_client_that_asks_too_much(how, tmp_path):
    limits = Limits(asked=5, minimum=0)
    server = replace(how, limits=limits, state=tmp_path)
    intersect(["a", "b", "c"], ["a"], how, server)
    with pytest.raises(ProtocolError, match="'C' wants to ask about 3 ids; it asked about 3"):
        intersect(["d", "e", "f"], ["a"], how, server)
    intersect(["g", "h"], ["a"], how, server)


def test_a_repeated_alignment_with_small_changes_is_warned_about(how, tmp_path):
    events = []
    server = replace(how, state=tmp_path, on_event=events.append, limits=Limits(minimum=0))
    people = [str(number) for number in range(30)]
    intersect(["1"], people, how, server)
    assert not [event for event in events if isinstance(event, Caution)]
    intersect(["1"], [*people, "new"], how, server)
    (caution,) = [event for event in events if isinstance(event, Caution)]
    assert (caution.party, caution.peer) == ("S", "C")
    assert "1 added and 0 removed" in caution.text


# Resume and growth


class Interrupted(Exception):
    """Stands for a crash."""


def test_an_interrupted_run_goes_on_where_it_stopped(how, tmp_path):
    client, server = [str(n) for n in range(40)], [str(n) for n in range(20, 60)]

    def stop(event):
        if isinstance(event, Event) and event.stage == "C asked ids" and event.done >= 20:
            raise Interrupted

    hows = {
        "C": replace(how, batch=10, state=tmp_path / "C"),
        "S": replace(how, state=tmp_path / "S"),
    }
    with pytest.raises(Interrupted):
        intersect(client, server, replace(hows["C"], on_event=stop), hows["S"])
    totals = {}
    note = partial(_note_total, totals)
    result = intersect(
        client, server, *(replace(hows[party], on_event=note) for party in ("C", "S"))
    )
    assert shared(client, server, result) == set(client[20:])
    assert result["S"].asked == 20  # 20 of 40 were finished
    assert totals == {"C asked ids": 20, "S answered ids": 20}  # and none of the server's own again


def _note_total(totals, event):
    if isinstance(event, Event):
        totals[event.stage] = event.total


def test_a_grown_list_only_costs_what_is_new(how, tmp_path):
    hows = replace(how, state=tmp_path / "C"), replace(how, state=tmp_path / "S")
    client, server = ["a", "b", "c"], ["b", "x"]
    intersect(client, server, *hows)
    client, server = ["new", "c", "b", "a"], ["x", "new", "b", "c"]
    totals = {}
    note = partial(_note_total, totals)
    result = intersect(client, server, *(replace(one, on_event=note) for one in hows))
    assert shared(client, server, result) == {"new", "b", "c"}
    assert totals == {"C asked ids": 1, "S answered ids": 1, "S own ids": 2}


def test_a_new_key_makes_kept_values_worthless(how, tmp_path):
    state = replace(how, state=tmp_path / "C")
    intersect(["a", "b"], ["b"], state)
    fresh = replace(how, key=type(how.key).generate(112))
    result = intersect(["a", "b"], ["b"], state, fresh)
    assert result["S"].asked == 2
    assert shared(["a", "b"], ["b"], result) == {"b"}


def test_the_server_keeps_its_key_in_its_folder(how, tmp_path):
    server = replace(how, key=None, state=tmp_path)
    keys = []
    for _ in range(2):
        _, transcript = run_with_views(["a"], ["a"], how, server)
        keys.append(seen(transcript, "C", "key")[0]["public"])
    assert keys[0] == keys[1]
    (tmp_path / f"key-{how.protocol}.pem").write_text("nonsense")
    with pytest.raises(StoreError, match="damaged"):
        intersect(["a"], ["a"], how, server)


# Disagreement and bad messages


def test_both_sides_must_agree(how, rsa_key):
    other = Alignment(protocol="ecdh" if how.protocol == "blind-rsa" else "blind-rsa", security=112)
    with pytest.raises(ProtocolError, match="choose the same at both"):
        intersect(["a"], ["a"], other, how)
    roles = {
        "C": partial(
            intersect_client,
            server="S",
            ids=prepare_ids("C", ["a"], normalise=Normalise(case="lower")),
            how=how,
        ),
        "S": partial(intersect_server, client="C", ids=prepare_ids("S", ["a"]), how=how),
    }
    with pytest.raises(ProtocolError, match="case='lower'"):
        run_together(roles)


def test_between_organisations_nobody_serves_without_a_state_folder(tmp_path):
    with pytest.raises(ConfigError, match="with a state folder only"):
        Alignment(lasting=True)
    Alignment(lasting=True, state=tmp_path)


@pytest.mark.parametrize(
    "options",
    [{"protocol": "rsa"}, {"security": 100}, {"batch": 0}, {"protocol": "ecdh", "key": "rsa"}],
)
def test_impossible_options_are_refused(options, rsa_key):
    options = {**options, **({"key": rsa_key} if "key" in options else {})}
    with pytest.raises(ConfigError):
        Alignment(**options)


def test_a_kept_key_below_the_asked_security_is_refused(rsa_key):
    with pytest.raises(ConfigError, match="has 2048 bits"):
        intersect(["a"], ["a"], Alignment(key=rsa_key, security=128))


GREETING = {"version": 1, "nonce": bytes(16), "normalise": Normalise().describe()}


def bad_client(channel, protocol, elements, asked=None):
    """A client that sends what it likes as blinded elements."""
    channel = channel.within("intersect", DISCLOSURES)
    channel.send("S", "ask", {**GREETING, "protocol": protocol})
    channel.receive("S", "key")
    channel.send("S", "asked", asked or {"ids": len(elements), "batch": 1024})
    channel.within("batch 0").send("S", "blinded", SealedIds(elements))
    channel.within("batch 0").receive("S", "signed")


def rows(numbers, width, order):
    return np.array([list(n.to_bytes(width, order)) for n in numbers], dtype=np.uint8)


@pytest.mark.parametrize("fault", ["zero", "large", "group", "repeated", "count", "width", "type"])
def test_a_bad_client_is_refused_by_name(how, fault):
    if how.protocol == "blind-rsa":
        width, order = how.key.width, "big"
        bad = {"zero": 0, "large": int(how.key.modulus), "group": int(how.key._q)}
    else:
        width, order = 32, "little"
        bad = {"zero": 0, "large": 2**255 - 19, "group": 2}
    elements = rows([9, bad.get(fault, 9)], width, order)
    if fault == "count":
        elements = elements[:1]
    if fault == "width":
        elements = elements[:1, 1:]
    if fault == "type":
        elements = elements[:1].astype(np.int64)
    asked = {"ids": 2, "batch": 1024} if fault == "count" else None
    roles = {
        "C": partial(bad_client, protocol=how.protocol, elements=elements, asked=asked),
        "S": partial(intersect_server, client="C", ids=prepare_ids("S", ["a"]), how=how),
    }
    transcript = Transcript()
    with pytest.raises(ProtocolError, match=r"^Party 'C' sent") as caught:
        run_together(roles, transcript=transcript)
    assert caught.value.party == "C"
    assert {entry.message for entry in transcript.entries if entry.sender == "S"} == {"key"}


@pytest.mark.parametrize(
    "asked",
    [{"ids": -1, "batch": 1}, {"ids": 1, "batch": 0}, {"ids": 1, "batch": 2**17}, {"ids": 1}],
)
def test_impossible_announcements_are_refused(curve_key, asked):
    how = Alignment(protocol="ecdh", key=curve_key)
    roles = {
        "C": partial(
            bad_client, protocol="ecdh", elements=np.zeros((1, 32), np.uint8), asked=asked
        ),
        "S": partial(intersect_server, client="C", ids=prepare_ids("S", ["a"]), how=how),
    }
    with pytest.raises(ProtocolError, match="Party 'C' sent"):
        run_together(roles)


def repeating_client(channel):
    """Sends the same blinded element in two batches."""
    channel = channel.within("intersect", DISCLOSURES)
    channel.send("S", "ask", {**GREETING, "protocol": "ecdh"})
    channel.receive("S", "key")
    channel.send("S", "asked", {"ids": 2, "batch": 1})
    for place in range(2):
        scope = channel.within(f"batch {place}")
        scope.send("S", "blinded", SealedIds(rows([9], 32, "little")))
        scope.receive("S", "signed")
    channel.within("part 0").receive("S", "tags")


def test_repeats_across_batches_are_refused_before_tags_leave(curve_key):
    how = Alignment(protocol="ecdh", key=curve_key)
    roles = {
        "C": repeating_client,
        "S": partial(intersect_server, client="C", ids=prepare_ids("S", ["a"]), how=how),
    }
    with pytest.raises(ProtocolError, match="Party 'C' sent 'blinded' in which 1 values repeat"):
        run_together(roles)


def bad_server(channel, key, fault):
    """A server that cheats at one place."""
    channel = channel.within("intersect", DISCLOSURES)
    channel.receive("C", "ask")
    reply = {
        "public": key.public,
        "proof": key.proof(),
        "nonce": bytes(16),
        "ids": 2,
        "minimum": 0,
    }
    if fault == "key":
        reply["public"] = b"\x02" + bytes(len(key.public) - 1)
    if fault == "fields":
        del reply["minimum"]
    if fault == "ids":
        reply["ids"] = -1
    channel.send("C", "key", reply)
    channel.receive("C", "asked")
    scope = channel.within("batch 0")
    answers = np.array(key.answer(scope.receive("C", "blinded").payload))
    if fault == "zero":
        answers[0] = 0
    if fault == "large":
        answers[0] = 255
    if fault == "count":
        answers = answers[:1]
    if fault == "repeated":
        answers[1] = answers[0]
    scope.send("C", "signed", SealedIds(answers))
    tags = np.arange(32, dtype=np.uint8).reshape(2, 16)
    if fault == "tag count":
        tags = tags[:1]
    if fault == "repeated tags":
        tags[1] = tags[0]
    channel.within("part 0").send("C", "tags", SealedIds(tags))


@pytest.mark.parametrize(
    "fault",
    ["key", "fields", "ids", "zero", "large", "count", "repeated", "tag count", "repeated tags"],
)
def test_a_bad_server_is_refused_by_name(how, fault):
    roles = {
        "C": partial(intersect_client, server="S", ids=prepare_ids("C", ["a", "b"]), how=how),
        "S": partial(bad_server, key=how.key, fault=fault),
    }
    with pytest.raises(ProtocolError, match=r"^Party 'S' sent") as caught:
        run_together(roles)
    assert caught.value.party == "S"
