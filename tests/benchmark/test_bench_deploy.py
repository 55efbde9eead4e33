"""The experiment on the engine's overhead: its tables, and its quick form on a real deployment."""

import pytest

from vfsl.benchmark import deploy
from vfsl.record import Flow, RunRecord, StepRecord


def test_tables_share_all_people_and_a_knows_some_positives():
    tables = deploy.make_tables(300)
    assert set(tables["B"]["id"]) == set(tables["C"]["id"])
    assert list(tables["B"]["id"]) != list(tables["C"]["id"])
    positive = set(tables["C"].loc[tables["C"]["y"] == 1, "id"])
    assert 0 < len(tables["A"]) < len(positive)
    assert set(tables["A"]["id"]) < positive


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
    assert "True" in outcome.notes[-1]
    for line in outcome.rows[:-1]:
        assert line["messages, NVFlare"] == line["messages, memory"]
