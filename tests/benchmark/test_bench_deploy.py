"""The experiment on the engine's overhead: its tables, and its quick form on a real deployment."""

import pytest

from benchmarks import deploy
from vfsl.record import Flow, RunRecord, StepRecord


def test_c_has_more_people_than_b_and_a_knows_some_positives():
    tables = deploy.make_tables(300)
    shared = set(tables["B"]["id"])
    assert shared < set(tables["C"]["id"])
    assert (len(tables["B"]), len(tables["C"])) == (300, 330)
    assert list(tables["B"]["id"]) != [one for one in tables["C"]["id"] if one in shared]
    positive = set(tables["C"].loc[tables["C"]["y"] == 1, "id"])
    assert 0 < len(tables["A"]) < len(positive)
    assert set(tables["A"]["id"]) < positive & shared


def test_a_line_sums_what_all_parties_sent():
    def record(seconds, **sent):
        steps = tuple(
            StepRecord(
                name, {}, seconds, flows=(Flow(name, "A", "B", "m", "plain", count, 10**6, "f"),)
            )
            for name, count in sent.items()
        )
        return RunRecord("r", "now", 0, "auto", {}, steps, {})

    records = {"B": record(9.0, align=2), "C": record(6.0, align=3)}
    line = deploy._line("align", 100, 4, records, record(2.0, align=5, mark=1))
    assert line["messages, NVFlare"] == 5
    assert line["MB, NVFlare"] == pytest.approx(2.0)
    assert line["messages, memory"] == 5
    assert line["× memory"] == pytest.approx(3.0)


@pytest.mark.slow
@pytest.mark.network
def test_the_quick_form_runs_and_both_runs_agree():
    pytest.importorskip("nvflare")
    outcome = deploy.run(True, lambda text: None)
    assert all("bit for bit: True" in note for note in outcome.notes[-2:])
    *steps, complete, _ = outcome.rows
    for line in steps:
        assert line["messages, NVFlare"] == line["messages, memory"]
    # In a deployment the missing party also tells the others what comes next.
    assert 0 < complete["messages, NVFlare"] - complete["messages, memory"] < 20
