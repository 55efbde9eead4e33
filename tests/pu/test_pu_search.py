"""What the label holder decides in a search: who is known, how many to promote, when to stop."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from vfsl.errors import InputError
from vfsl.pu.search import (
    REASONS,
    find_known,
    promotion_size,
    rank_stability,
    warn_of_drift,
    why_stop,
)


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ([-1] * 9, "None of the 9 aligned rows is a known positive"),
        ([1] * 9, "no unlabelled row"),
        ([1] + [-1] * 8, "only 1 known positive"),
        ([1] * 6 + [-1] * 3, "6 known positives but only 3 unlabelled rows"),
        ([0] * 9, r"must be \+1 or −1"),
        (None, "needs marks"),
    ],
)
def test_useless_marks_are_one_sentence(marks, words):
    with pytest.raises(InputError, match=words) as caught:
        find_known(None if marks is None else np.array(marks))
    assert "\n" not in str(caught.value)


def test_how_many_are_promoted():
    assert promotion_size(0.02, 1010, 200, 0) == 21
    assert promotion_size(0.0, 1000, 200, 0) == 1
    assert promotion_size(1.0, 10, 200, 0) == 10
    assert promotion_size(None, 1000, 200, 30) == 70
    assert promotion_size(None, 1000, 0, 30) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"iteration": 3}, "outer"),
        ({"promoted": 100}, "hidden"),
        ({"stability": 0.999}, "stable"),
        ({"positives": 950}, "sizes"),
        ({"pool": 1}, "empty"),
        ({"early": False, "positives": 950, "promoted": 100, "stability": 0.999}, None),
        ({"early": False, "iteration": 3}, "outer"),
        ({"early": False, "pool": 1}, "empty"),
    ],
)
def test_reasons_to_stop(change, reason):
    state = {"iteration": 2, "outer": 3, "promoted": 50, "hidden": 200, "stability": 0.9}
    state |= {"positives": 100, "unlabelled": 900, "pool": 900, "early": True} | change
    assert why_stop(**state) == reason
    assert reason is None or reason in REASONS


def test_stable_ranks_and_drift():
    one, two = np.array([1.0, 2.0, 3.0, 9.0]), np.array([0.0, 5.0, 4.0, 8.0])
    assert rank_stability(one, two) == pytest.approx(spearmanr(one, two)[0])
    assert rank_stability(one[:1], two[:1]) == 1.0
    (text,) = warn_of_drift(2, 0.9, 0.88)
    assert "0.880 of all pairs after iteration 2, against 0.900 in the first" in text
    assert warn_of_drift(2, 0.9, 0.895) == []
