"""Which rows of a table a training had."""

import numpy as np
import pandas as pd

from vfsl.data import PartyTable
from vfsl.parts import ModelShare, Part, Seen, mark_rows, places_in_training, scores_with_kept


def table(rows=12, shift=0.0, party="C"):
    frame = pd.DataFrame(
        {
            "id": [f"p{row}" for row in range(rows)],
            "number": np.arange(rows) + shift,
            "kind": [None if row % 5 == 0 else "ab"[row % 2] for row in range(rows)],
            "label": np.arange(rows) % 2,
        }
    )
    return PartyTable.from_frame(frame, party=party, id="id", label="label")


def test_places_in_any_order():
    seen = Seen.of(table(), np.array([7, 3, 9, 0]))
    assert seen.places(np.array([0, 1, 3, 11, 7, 9])).tolist() == [3, -1, 1, -1, 0, 2]
    assert Seen.of(table(), np.zeros(0, dtype=int)).places(np.arange(2)).tolist() == [-1, -1]


def test_marks_are_of_features_only():
    one = table()
    marks = mark_rows(one, np.arange(12))
    assert len(set(marks.tolist())) == 12
    relabelled = one.frame.assign(label=1 - one.frame["label"])
    other = PartyTable(one.party, one.ids, relabelled, one.kinds, one.id_columns)
    assert (mark_rows(other, np.arange(12)) == marks).all()
    assert (mark_rows(table(shift=0.5), np.arange(12)) != marks).all()
    assert len(mark_rows(one.without(["number", "kind"]), np.arange(12))) == 12


def shares(rows, scores):
    """C, the label holder, and B, whose rows have other numbers in its table."""
    return {
        "C": ModelShare("C", "m", {}, scores=scores, seen=Seen.of(table(), rows)),
        "B": ModelShare("B", "m", {}, seen=Seen.of(table(shift=100, party="B"), rows + 2)),
    }


def parts(rows, b=None):
    other = table(shift=100, party="B") if b is None else b
    return {"C": Part(table(), rows), "B": Part(other, rows + 2)}


def test_a_row_is_known_if_all_parties_have_what_they_had():
    rows = np.array([1, 4, 6])
    scores = np.array([[0.1], [0.4], [0.6]])
    held = shares(rows, scores)
    asked = np.array([6, 2, 1])
    places = places_in_training(held, parts(asked), "C")
    assert places.tolist() == [2, -1, 0]
    assert scores_with_kept(held["C"], places, np.array([[9.0]])).tolist() == [[0.6], [9.0], [0.1]]
    assert (scores == [[0.1], [0.4], [0.6]]).all()
    strange = parts(asked, table(shift=50, party="B"))
    assert places_in_training(held, strange, "C").tolist() == [-1] * 3


def test_nothing_is_known_without_scores_or_a_partner():
    rows = np.array([1, 4, 6])
    held = shares(rows, None)
    assert places_in_training(held, parts(rows), "C").tolist() == [-1] * 3
    held = shares(rows, np.zeros((3, 1)))
    alone = {"C": held["C"], "B": ModelShare("B", "m", {})}
    assert places_in_training(alone, parts(rows), "C").tolist() == [-1] * 3
    assert places_in_training({"C": held["C"]}, parts(rows), "C").tolist() == [-1] * 3


def test_marks_do_not_depend_on_how_a_column_is_stored():
    """Nor on the order of columns: tables that went through files have the same marks."""
    one = table()
    frame = one.frame.astype({"number": "Float64", "kind": "category"})[["kind", "label", "number"]]
    kinds = {name: one.kinds[name] for name in frame.columns}
    other = PartyTable(one.party, one.ids, frame, kinds, one.id_columns)
    assert (mark_rows(other, np.arange(12)) == mark_rows(one, np.arange(12))).all()
