"""Rows of RISA alone: who has them, labels, pseudo labels, and which leave."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfsl.errors import DataError
from vfsl.evidence.rows import (
    UNKNOWN,
    Removal,
    Universe,
    add_scores,
    deal,
    encode_labels,
    find_classes,
    pseudo_labels,
)


def test_rows_are_counted_over_all_parties():
    universe = Universe(("A", "B", "C"), 3, {"A": 2, "B": 0, "C": 2})
    rows = np.arange(universe.total)
    assert universe.total == 7
    assert universe.local("A", rows).tolist() == [0, 1, 2, 3, 4, -1, -1]
    assert universe.local("B", rows).tolist() == [0, 1, 2, -1, -1, -1, -1]
    assert universe.local("C", rows).tolist() == [0, 1, 2, -1, -1, 3, 4]
    assert [universe.owner(row) for row in (2, 3, 4, 5)] == ["overlap", "A", "A", "C"]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 5))
def test_dealing_gives_every_row_once_in_even_batches(rows, size, seed):
    batches = deal(np.arange(rows), size, np.random.default_rng(seed))
    dealt = np.concatenate([np.zeros(0, int), *batches])
    assert sorted(dealt.tolist()) == list(range(rows))
    sizes = [len(batch) for batch in batches]
    assert not sizes or (max(sizes) <= size and max(sizes) - min(sizes) <= 1)


def test_labels_become_numbers_and_unknown_ones_stay_unknown():
    target = np.array(["no", None, "yes"], object)
    classes = find_classes("A", target[:2], target[2:])
    assert classes == ["no", "yes"]
    assert encode_labels("A", target, classes).tolist() == [0, UNKNOWN, 1]
    assert encode_labels("A", np.array(["yes", None], object), classes).tolist() == [1, UNKNOWN]
    with pytest.raises(DataError, match="1 labels of party 'A' are not among the 2 classes"):
        encode_labels("A", np.array(["maybe"], object), classes)


def test_one_class_or_no_overlap_label_is_one_sentence():
    with pytest.raises(DataError, match="at least two classes among the labels of party 'A'"):
        find_classes("A", np.array([1, 1], object), np.array([], object))
    with pytest.raises(DataError, match="no label on any of its 1 overlap rows"):
        find_classes("A", np.array([None], object), np.array([0, 1], object))


def test_the_limit_falls_from_one_to_its_final_value():
    removal = Removal(np.arange(2), np.ones(2, bool), final=0.25, every=1, epochs=10)
    assert removal.limit(0) == 1
    assert removal.limit(10) == pytest.approx(0.25)
    assert removal.limit(5) == pytest.approx(0.5)


def test_rows_leave_by_their_average_over_the_last_epochs():
    may = np.array([True, True, True, False, True])
    removal = Removal(np.array([0, 1, 2, 3]), may, final=0.25, every=2, epochs=4)
    removal.see(np.arange(4), np.array([0.2, 0.9, 0.4, 0.9]))
    assert removal.end_epoch(1) is None
    removal.see(np.arange(4), np.array([0.2, 0.3, 0.5, 0.9]))
    gone = removal.end_epoch(2)  # limit 0.5; averages 0.2, 0.6, 0.45, and 0.9, who may not
    assert gone.tolist() == [1]
    assert removal.rows.tolist() == [0, 2, 3]
    removal.see(np.array([0]), np.array([0.4]))
    assert removal.averages[:2] == pytest.approx([0.8 / 3, 0.6])
    universe = Universe(("A", "B"), 1, {"A": 0, "B": 4})
    lines = removal.list_left(np.array([True, False, True, True, True]), universe)
    why = {"epoch": 2, "score": 0.6, "limit": 0.5, "label": "pseudo"}
    assert lines == [{"row": 1, "of": "B", **why}]
    again = Removal(np.array([0]), may, 0.25, 2, 4)
    again.load_arrays(removal.to_arrays())
    assert again.rows.tolist() == removal.rows.tolist()
    assert again.list_left(np.zeros(5, bool), universe)[0]["row"] == 1
    assert removal.end_epoch(4) is None  # after the last epoch nobody needs to leave


def test_pseudo_labels_by_hand():
    scores = [np.array([[1.0, 0.0], [0.2, 0.0]]), np.array([[1.5, 0.0], [0.0, 0.1]])]
    chances = add_scores(scores)
    assert chances[0, 0] == pytest.approx(1 / (1 + np.exp(-2.5)))
    assert pseudo_labels(chances, 0.9).tolist() == [0, UNKNOWN]
    assert pseudo_labels(chances, 0.5).tolist() == [0, 0]
