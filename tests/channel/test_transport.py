"""Deadlocks are found from late reports, and never reported where there is none."""

from vfsl.channel.transport import Wait, WaitGraph


def wait(sender, taken=0, **posted):
    return Wait(sender, "x", taken, posted)


def test_a_ring_is_found_when_it_closes():
    graph = WaitGraph()
    assert graph.add("A", wait("B")) is None
    assert graph.add("B", wait("C")) is None
    assert sorted(graph.add("C", wait("A"))) == ["A", "B", "C"]
    assert "'A' waits for 'x' from 'B'" in graph.describe(["A"])


def test_a_message_under_way_is_no_deadlock():
    graph = WaitGraph()
    graph.add("A", wait("B", taken=3))
    assert graph.add("B", wait("A", taken=0, A=4)) is None  # B's fourth message is on its way
    assert graph.add("A", wait("B", taken=4)) == ["A", "B"]


def test_a_chain_that_ends_at_a_working_party_is_no_deadlock():
    graph = WaitGraph()
    graph.add("A", wait("B"))
    assert graph.add("B", wait("C")) is None
    assert graph.add("C", wait("A", B=1)) is None  # B works on what C had sent it


def test_the_ring_leaves_out_those_who_merely_wait_for_it():
    graph = WaitGraph()
    graph.add("B", wait("C"))
    assert sorted(graph.add("C", wait("B"))) == ["B", "C"]
    assert sorted(graph.add("A", wait("B"))) == ["B", "C"]
