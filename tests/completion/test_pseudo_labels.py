"""The loop of VFPU-M in numbers, against values worked out by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from vfsl.completion.columns import make_target
from vfsl.completion.pseudo_labels import Found, choose_rows, spread_confidence, value_confidence
from vfsl.data import PartyTable


def test_value_confidence_uses_mean_and_population_deviation():
    # Mean 4, squared distances 9, 1, 1, 9: population variance 5, not 20/3.
    found = value_confidence(np.array([1.0, 3.0, 5.0, 7.0]))
    near, far = 1 - 1 / np.sqrt(5), 1 - 3 / np.sqrt(5)
    np.testing.assert_allclose(found, [far, near, near, far])
    assert far < 0


@pytest.mark.parametrize("values", [[2.5] * 4, [0.1 + 0.2, 0.3, 0.3], [0.0, 0.0], [7.0]])
def test_equal_predictions_are_all_at_the_mean(values):
    assert value_confidence(np.array(values)).tolist() == [1.0] * len(values)


def test_no_predictions_have_no_confidence():
    assert value_confidence(np.zeros(0)).tolist() == []


def test_spread_confidence_is_bounded():
    assert spread_confidence(np.array([0.0, 1.0, 2.0, 9.0]), 4.0).tolist() == [1, 0.75, 0.5, 0]
    assert spread_confidence(np.array([0.5]), 0.0).tolist() == [0.5]


def test_candidates_have_at_least_alpha():
    among, _ = choose_rows(np.array([0.79, 0.8, 0.95]), 0.8, 0.1)
    assert among.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("among", "fraction", "size"),
    [
        (10, 0.1, 1),
        (30, 0.1, 3),
        (11, 0.1, 2),
        (1, 0.1, 1),
        (7, 1.0, 7),
        (0, 0.1, 0),
        (20, 0.05, 1),
    ],
)
def test_the_top_fraction_is_rounded_up(among, fraction, size):
    confidence = np.linspace(0.8, 1.0, among)
    _, chosen = choose_rows(confidence, 0.8, fraction)
    assert chosen.tolist() == list(range(among - size, among))


def test_ties_go_to_the_lower_place():
    confidence = np.array([0.9, 0.9, 0.95, 0.9])
    _, chosen = choose_rows(confidence, 0.8, 0.5)
    assert chosen.tolist() == [0, 2]


def start(rows):
    frame = pd.DataFrame({"id": list("abc"), "x": [1.0, 2.0, 3.0]})
    return Found.start(make_target(PartyTable.from_frame(frame, party="B", id="id"), "x"), rows)


def test_rounds_move_rows_once_and_keep_their_order():
    """Six rows, α 0.8, k 0.5: worked out by hand."""
    found = start(6)
    found.take_round(
        np.array([10.0, 11.0, 12.0, 13.0, 14.0, 15.0]),
        np.array([0.1, 0.9, 0.85, 0.8, 0.2, 0.95]),
        alpha=0.8,
        fraction=0.5,
    )
    assert found.waiting.tolist() == [0, 2, 3, 4]
    assert np.flatnonzero(found.round == 1).tolist() == [1, 5]
    found.take_round(
        np.array([20.0, 21.0, 22.0, 23.0, 24.0, 25.0]),
        np.array([0.1, 0.9, 0.7, 0.2]),
        alpha=0.8,
        fraction=0.5,
    )
    assert np.flatnonzero(found.round == 2).tolist() == [2]
    found.take_round(np.zeros(6), np.zeros(3), alpha=0.8, fraction=0.5)
    np.testing.assert_array_equal(found.labels, [np.nan, 11, 22, np.nan, np.nan, 15])
    assert found.round.tolist() == [0, 1, 2, 0, 0, 1]
    assert found.confidence.tolist() == [0, 0.9, 0.9, 0, 0, 0.95]
    assert found.moved.tolist() == [False, True, True, False, False, True]
    assert found.values.tolist() == [0, 11, 22, 0, 0, 15]
    counts = [(line["waiting"], line["confident"], line["chosen"]) for line in found.rounds]
    assert counts == [(6, 4, 2), (4, 1, 1), (3, 0, 0)]


def test_what_was_found_is_kept_and_read_back():
    found = start(4)
    found.take_round(np.arange(4.0), np.array([0.9, 0.1, 0.85, 0.2]), alpha=0.8, fraction=0.5)
    again = Found.from_dict(json.loads(json.dumps(found.to_dict())), found.target)
    for name in ("labels", "round", "predicted", "confidence", "values"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert (again.rounds, again.stop_reason) == (found.rounds, found.stop_reason)
