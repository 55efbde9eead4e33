"""Rows that a job holds out: a fraction that everybody can draw, or those that one party marks."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

import vfsl
from vfsl import rows
from vfsl.data import PartyTable
from vfsl.errors import DataError
from vfsl.site import TestRows


def federation(count=60, seed=1):
    rng = np.random.default_rng(0)
    ids = [f"i{row}" for row in range(count)]
    tables = {p: pd.DataFrame({"id": ids, f"{p}-x": rng.normal(size=count)}) for p in "BC"}
    tables["C"] = tables["C"].iloc[5:]
    tables["B"] = tables["B"].iloc[:-5]
    fed = vfsl.simulate(tables, seed=seed)
    fed.align(protocol="ecdh")
    return fed


def test_a_fraction_is_drawn_by_the_seed_without_a_message():
    fed = federation()
    fed.play(partial(rows.hold_out, test=TestRows(0.4)))
    held_out = {party: fed.sites[party].standing.held_out for party in "BC"}
    assert held_out["B"].tolist() == held_out["C"].tolist()
    assert len(held_out["B"]) == 20
    assert fed.transcript.entries == []
    expected = np.sort(fed.rng("test rows").permutation(50)[:20])
    assert held_out["B"].tolist() == expected.tolist()
    assert fed.sites["K"].standing.held_out is None


def test_marks_are_told_to_aligned_parties_and_leave_the_rest():
    fed = federation()
    marks = np.arange(55) % 3 == 0
    tests = {"C": TestRows(party="C", marks=marks), "B": TestRows(party="C")}
    own = {party: {"test": tests.get(party, TestRows(party="C"))} for party in "BCK"}
    before = fed.plan["C"]
    fed.play(rows.hold_out, own=own)
    expected = np.flatnonzero(marks[before.overlap])
    for party in "BC":
        assert fed.sites[party].standing.held_out.tolist() == expected.tolist()
    assert not marks[fed.plan["C"].rest].any()
    assert [(e.sender, e.receiver, e.message) for e in fed.transcript.entries] == [
        ("C", "B", "test rows")
    ]
    assert fed.steps[-1].metrics == {"test rows": len(expected)}


def test_too_few_rows_and_a_party_that_is_not_aligned_are_refused():
    fed = federation()
    with pytest.raises(DataError, match="at least 10 are needed"):
        fed.play(partial(rows.hold_out, test=TestRows(0.1)))
    with pytest.raises(DataError, match="'A' marks the rows for testing but was not aligned"):
        fed.play(partial(rows.hold_out, test=TestRows(party="A")))


def test_training_and_test_rows_share_no_row():
    fed = federation()
    fed.play(partial(rows.hold_out, test=TestRows(0.4)))
    for party in "BC":
        site = fed.sites[party]
        train, test = rows.for_training(site).rows(), rows.for_testing(site).rows()
        assert not set(train.overlap) & set(test.overlap)
        assert sorted([*train.overlap, *test.overlap]) == sorted(site.rows().overlap)
        assert len(train.rest) == 5
        assert len(test.rest) == 0
    assert rows.for_training(fed.sites["K"]).standing.rows is None
    with pytest.raises(DataError, match="holds none out"):
        rows.for_testing(federation().sites["B"])


@pytest.mark.parametrize("cells", [[1, 0, 1.0], ["Yes", "no", "TEST"], ["true", None, "1"]])
def test_a_column_of_marks_is_read_and_leaves_the_table(cells):
    frame = pd.DataFrame({"id": list("abc"), "x": [1.0, 2.0, 3.0]})
    frame["held"] = pd.Series(cells, dtype=object)
    table = PartyTable.from_frame(frame, party="C", id="id", label=False)
    left, test = rows.split_off_marks(table, "held")
    assert "held" not in left.columns
    assert test.party == "C"
    assert test.marks.tolist() == [True, False, True]


def test_other_words_are_no_marks():
    frame = pd.DataFrame({"id": list("abc"), "x": [1.0, 2.0, 3.0], "held": ["yes", "perhaps", ""]})
    table = PartyTable.from_frame(frame, party="C", id="id", label=False)
    with pytest.raises(DataError, match="1 other cells"):
        rows.split_off_marks(table, "held")
